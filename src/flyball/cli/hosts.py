"""`flyball hosts|drain|move`: the hosts of a fleet, and what a person orders about them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from flyball.cli import FINE
from flyball.cli.ask import Asking
from flyball.cli.complete import host_names, unit_names
from flyball.cli.problems import lines_of
from flyball.cli.show import colour_option, coloured, print_json, strong, width
from flyball.cli.watching import Picture, every_option, watch, watch_option
from flyball.control.text import ago, length, one_line, table

HEAD: Final = ("HOST", "STATE", "SINCE", "UNITS", "LEASE", "LABELS", "VERSION", "PAGE")
NONE: Final = "There are no hosts: they share a PostgreSQL (`store: postgresql://…`), and one runs where a daemon does."
NAMED_MAX: Final = 20
"""Units that are named; of more, how many."""

EXAMPLES: Final = """\
\b
Examples:
  flyball hosts                 who lives, and runs how much
  flyball hosts --watch         until Ctrl-C
  flyball hosts --json          for a script
"""
DRAIN_EXAMPLES: Final = """\
\b
Examples:
  flyball drain b --dry-run     which units would go, and which would wait
  flyball drain b               before its machine is taken down
  flyball drain b --undo        it takes units again
"""
MOVE_EXAMPLES: Final = """\
\b
Examples:
  flyball move web b            web, and what runs on one host with it
  flyball move web b --dry-run  only say what would move
"""


@click.command(epilog=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --watch one object a line, for each change.")
@watch_option
@every_option
@colour_option
def hosts(as_json: bool, watch: bool, every: float | None) -> int:
    """Show the hosts of the fleet: which live, how many units each runs, and how long each is taken to live without a
    word from it. Needs no daemon.
    """
    with Asking() as ask:
        if watch or every is not None:
            _watch(ask, every, as_json=as_json)
        said = ask("hosts")
    if as_json:
        print_json(said)
        return FINE
    for line in _lines(said):
        click.echo(line)
    return FINE


def _watch(ask: Asking, every: float | None, *, as_json: bool) -> None:
    def look() -> Picture:
        said = ask("hosts")
        gist = [(one["name"], one["state"], one["units"], one["differs"], one["holder"]) for one in said["hosts"]]
        return Picture(list(_lines(said)), said, (gist, said["homeless"]))

    watch(ask, look, every, as_json=as_json)


def _lines(said: Mapping[str, Any]) -> Iterable[str]:
    found, now = said["hosts"], said["at"]
    if not found:
        yield NONE
        return
    lines = table(HEAD, [_row(host, now) for host in found], width())
    yield strong(lines[0])
    for line, host in zip(lines[1:], found, strict=True):
        before, word, after = line.partition(f"  {host['state']}")
        yield before + coloured(word, host["state"]) + after
    for problem in said["problems"]:
        yield ""
        yield from lines_of(problem, now, width(), indent="")


def _row(host: Mapping[str, Any], now: float) -> Sequence[str]:
    until, most = host["lease_until"], host["units_max"]
    left = until - now if until is not None else 0.0
    return (
        host["name"] + (" (here)" if host["here"] else ""),
        host["state"] + (" (other settings)" if host["differs"] else ""),
        ago(host["since"], now),
        f"{host['units']}" + (f" of {most}" if most else ""),
        f"{length(left)} of {length(host['lease'])}" if left > 0 else "-",
        ", ".join(f"{name}={value}" for name, value in host["labels"].items()) or "-",
        host["version"] or "-",
        host["page"] or "-",
    )


@click.command(epilog=DRAIN_EXAMPLES)
@click.argument("host", shell_complete=host_names)
@click.option("--undo", is_flag=True, help="Let it take units again.")
@click.option("--force", is_flag=True, help="Also if no other host takes units.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def drain(*, host: str, undo: bool, force: bool, dry_run: bool, as_json: bool) -> int:
    """Have HOST take no units, and leave those that it has to others: each is ended in order, and started where it
    goes. Units that only HOST may run wait until it takes units again. A daemon that is started anew does.
    """
    if undo and force:
        raise click.UsageError("--force goes with draining: it cannot be combined with --undo")
    more = {} if undo else {"force": force}
    with Asking() as ask:
        said = ask("undrain" if undo else "drain", host=host, dry_run=dry_run, **more)
    return _print(said, as_json=as_json)


@click.command(epilog=MOVE_EXAMPLES)
@click.argument("unit", shell_complete=unit_names)
@click.argument("host", shell_complete=host_names)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def move(unit: str, host: str, dry_run: bool, as_json: bool) -> int:
    """Have UNIT run on HOST: it is ended in order where it runs, and started there; so is what runs on one host with
    it. It stays there until something moves it: another order, or the end of HOST.
    """
    with Asking() as ask:
        said = ask("move", unit=unit, host=host, dry_run=dry_run)
    return _print(said, as_json=as_json)


def _print(said: Mapping[str, Any], *, as_json: bool) -> int:
    if as_json:
        print_json(said)
        return FINE
    moves, waits = ("would move", "would wait") if said["dry_run"] else ("moves", "waits")
    for names, what in ((said["moves"], moves), (said["waits"], f"{waits}: no other host may run it")):
        for name in names[:NAMED_MAX]:
            click.echo(f"{one_line(name)}: {what}")
        if len(names) > NAMED_MAX:
            click.echo(f"and {len(names) - NAMED_MAX} more: {what}")
    click.echo(f"{'Nothing was done: ' if said['dry_run'] else ''}{one_line(said['effect'])}")
    return FINE
