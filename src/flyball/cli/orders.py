"""`flyball pause|resume|reset|stop|start|restart|kill`: what a person orders. Each order is in the journal, with who
gave it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from flyball.cli import FAILED, FINE
from flyball.cli.ask import Asking
from flyball.cli.show import coloured, print_json
from flyball.cli.status import why
from flyball.control.text import one_line, short, times
from flyball.errors import FlyballError

ENDED: Final = ("finished", "failed")
"""What a resume does not start: nothing waits for a person there."""
TOLD_BY_STORE: Final = "No daemon runs here: whoever runs it reads the order from the store."


def _order(name: str, *, note: bool) -> click.Command:
    """One order for units, or for all of them."""

    def order(units: tuple[str, ...], everything: bool, as_json: bool, **more: Any) -> int:
        with Asking() as ask:
            said = ask(name, units=list(units), all=everything, **more)
        return _print(name, said, units=bool(units), everything=everything, as_json=as_json)

    parts: list[Callable[[Any], Any]] = [
        click.argument("units", metavar="[UNIT]...", nargs=-1),
        click.option("--all", "everything", is_flag=True, help="All units."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    ]
    if note:
        parts.append(click.option("--note", metavar="TEXT", help="Why, for whoever looks later."))
    decorated: Any = order
    for part in reversed(parts):
        decorated = part(decorated)
    return click.command(name=name, help=HELP[name])(decorated)


HELP: Final = {
    "pause": "End UNIT, and hold it until it is resumed. --all holds the fleet: no unit starts until `flyball resume`.",
    "resume": "Let UNIT go on if it is paused, halted or waits for a person. Without a UNIT, what holds the fleet: a "
    "restart storm, a clock that jumped, a pause of all. A quarantine is lifted by `flyball reset`.",
    "stop": "End UNIT in order, and do not start it again until somebody starts or resumes it.",
    "start": "Start UNIT, also one that was stopped or paused; --all also takes back a stop or pause of all. Needs a "
    "daemon.",
    "restart": "End UNIT in order, and start it again. It counts as a restart. Needs a daemon.",
    "kill": "End UNIT at once, without grace, and do not start it again until somebody starts or resumes it.",
}

pause = _order("pause", note=True)
resume = _order("resume", note=False)
stop = _order("stop", note=True)
start = _order("start", note=False)
restart = _order("restart", note=False)
kill = _order("kill", note=True)


def _print(name: str, said: Mapping[str, Any], *, units: bool, everything: bool, as_json: bool) -> int:
    """How things stand after the order. A resume or start that left something held did not do what was asked."""
    fleet = said["fleet"]
    held = [unit for unit in said["units"] if unit["held"]]
    frees = name in ("resume", "start", "restart")
    runs = fleet["state"] == "running"
    code = FAILED if frees and (not runs or (held and (units or everything))) else FINE
    if as_json:
        print_json(said)
        return code
    if fleet["reasons"]:
        reason = one_line(fleet["reasons"][0]["text"])
        click.echo(f"fleet: {coloured(fleet['state'], fleet['state'])}: {reason}")
    elif not units:
        click.echo(f"fleet: {coloured(fleet['state'], fleet['state'])}")
    for unit in said["units"]:
        follows = unit["state"] not in (ENDED if name == "resume" else ())
        click.echo(_line(unit, fleet["at"], starting=said["daemon"] and frees and runs and follows))
    if frees:
        against = [*held, *(() if runs else (fleet,))]
        for remedy in dict.fromkeys(reason["remedy"] for one in against for reason in one["reasons"]):
            click.echo(remedy, err=True)
    elif not said["daemon"] and any(unit["running"] for unit in said["units"]):
        click.echo(TOLD_BY_STORE, err=True)
    return code


def _line(unit: Mapping[str, Any], now: float, *, starting: bool) -> str:
    """How a unit stands; or, where nothing is against it and there is a daemon to do it, what comes now."""
    if starting and not unit["held"] and unit["state"] != "cooling":
        return f"{unit['name']}: the daemon was told to start it"
    return f"{unit['name']}: {coloured(unit['state'], unit['state'])}: {one_line(why(unit, now))}"


@click.command()
@click.argument("fingerprint", required=False)
@click.option("--all", "everything", is_flag=True, help="All failures of all units.")
@click.option("--yes", is_flag=True, help="Do not ask before --all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def reset(fingerprint: str | None, everything: bool, yes: bool, as_json: bool) -> int:
    """Forget the failures of one FINGERPRINT (its first digits are enough), and lift its quarantine.

    With --all, all failures of all units, after asking. A pause stays: `flyball resume` ends it.
    """
    with Asking() as ask:
        if everything and not fingerprint and not yes:
            would = ask("reset", all=True, dry_run=True)["cleared"]
            if not would:
                click.echo("There is nothing to forget.")
                return FINE
            _confirm(would)
        said = ask("reset", fingerprint=fingerprint, all=everything)
    if as_json:
        print_json(said)
        return FINE
    if not said["cleared"]:
        click.echo("There is nothing to forget.")
    for line in _listed(said["cleared"], "forgotten"):
        click.echo(line)
    for unit in said["units"]:
        click.echo(_line(unit, said["fleet"]["at"], starting=said["daemon"]))
    return FINE


def _confirm(would: Sequence[Mapping[str, Any]]) -> None:
    for line in _listed(would, "would be forgotten"):
        click.echo(line, err=True)
    if not sys.stdin.isatty():
        raise FlyballError("nothing was forgotten: there is no terminal to ask on", remedy="Add --yes if you mean it.")
    if not click.confirm("Forget all this?", err=True):
        raise FlyballError("nothing was forgotten", remedy="One failure alone: `flyball reset FINGERPRINT`.")


def _listed(cleared: Sequence[Mapping[str, Any]], what: str) -> list[str]:
    lines = []
    for one in cleared:
        kinds = ", ".join(
            f"{short(kind['fingerprint'])} {one_line(kind['error']) or 'failure'} ({times(kind['count'])})"
            for kind in one["failures"]
        )
        lines.append(f"{one['unit']} ({one['state']}): {what}: {kinds or 'its failures in a row'}")
    return lines
