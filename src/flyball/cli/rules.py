"""`flyball rules` and `flyball queue`: what fires each rule, what waits to be run, and how the last run ended."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from flyball.cli import FINE
from flyball.cli.ask import Asking
from flyball.cli.complete import rule_names
from flyball.cli.show import coloured, print_json, width
from flyball.cli.status import last_exit
from flyball.control.text import ago, clock_time, counted, length, one_line, table

HEAD: Final = ("RULE", "STATE", "QUEUE", "LAST RUN", "NEXT", "FIRED BY")
QUEUE_HEAD: Final = ("ID", "FIRED BY", "WAITS", "ATTEMPTS", "MORE")
SHOWN_MAX: Final = 20
"""Firings of one rule that are shown with it. `flyball queue` shows all."""

EXAMPLES: Final = """\
\b
Examples:
  flyball rules                  all rules
  flyball rules watch-price      one, with its triggers, its actions and its queue
  flyball rules --json           for a script
"""

QUEUE_EXAMPLES: Final = """\
\b
Examples:
  flyball queue watch-price                      what waits to be run
  flyball queue watch-price --clear --dry-run    what would be forgotten
  flyball queue watch-price --clear              forget it
"""


@click.command(epilog=EXAMPLES)
@click.argument("names", metavar="[RULE]...", nargs=-1, shell_complete=rule_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def rules(names: tuple[str, ...], as_json: bool) -> int:
    """Show rules: what fires each, what waits in its queue, how its last run ended, when it is due. Needs no daemon."""
    with Asking() as ask:
        said = ask("rules", rules=list(names))
    if as_json:
        print_json(said)
        return FINE
    found, now = said["rules"], said["at"]
    if not found:
        click.echo("There are no rules.")
    elif names:
        for place, rule in enumerate(found):
            for line in (*([""] if place else []), *lines(rule, now)):
                click.echo(line)
    else:
        _print(found, now)
    return FINE


def _print(found: Sequence[Mapping[str, Any]], now: float) -> None:
    shown = table(HEAD, [_row(rule, now) for rule in found], width())
    click.echo(shown[0])
    for line, rule in zip(shown[1:], found, strict=True):
        before, word, after = line.partition(f"  {rule['state']}")
        click.echo(before + coloured(word, rule["state"]) + after)


def _row(rule: Mapping[str, Any], now: float) -> Sequence[str]:
    ran = rule["last_run"]
    return (
        rule["name"],
        rule["state"] + (" (running)" if rule["running"] else ""),
        f"{rule['waiting']} wait" if rule["waiting"] else "-",
        f"{last_exit(ran)}, {ago(ran['at'], now)} ago" if ran is not None else "-",
        _coming(rule["next"], now),
        _fired_by(rule),
    )


def _coming(at: float | None, now: float) -> str:
    """When it is due: a time that is over waits for a daemon."""
    return "-" if at is None else clock_time(at, now) if at > now else "due"


def _fired_by(rule: Mapping[str, Any]) -> str:
    return "; ".join(trigger["text"] for trigger in rule["triggers"]) or "nothing: the settings do not name it any more"


def lines(rule: Mapping[str, Any], now: float) -> Iterable[str]:
    """One rule, in full."""
    state = coloured(rule["state"], rule["state"])
    yield f"{rule['name']} is {state}" + (", and runs" if rule["running"] else "")
    yield from (f"  {one_line(reason['text'])}. {reason['remedy']}" for reason in rule["reasons"])
    yield from facts(rule, now)
    if rule["last_run"] is not None:
        ran = rule["last_run"]
        yield f"Last run:   {one_line(last_exit(ran))}, {length(now - ran['at'])} ago"


def facts(rule: Mapping[str, Any], now: float) -> Iterable[str]:
    """What fires it, what it does, and what waits."""
    for trigger in rule["triggers"]:
        coming = f", next: {_coming(trigger['next'], now)}" if trigger["next"] is not None else ""
        yield f"Fired by:   {one_line(trigger['text'])}{coming}"
    if not rule["defined"]:
        yield "Fired by:   nothing: the settings do not name it any more"
    if rule["when"]:
        yield f"When:       {one_line(rule['when'])}"
    if rule["actions"]:
        yield f"Does:       {one_line('; '.join(rule['actions']))}"
    counts = ", ".join(f"{number} {name}" for name, number in rule["counts"].items() if number)
    if counts:
        yield f"Since up:   {counts}"
    for place, firing in enumerate(rule["queue"][:SHOWN_MAX]):
        yield f"{'' if place else 'Queue:':<12}{one_line(_firing(firing, now))}"
    left = len(rule["queue"]) - SHOWN_MAX
    if left > 0:
        yield f"{'':<12}and {left} more: `flyball queue {rule['name']}`"


def _firing(firing: Mapping[str, Any], now: float) -> str:
    parts = [f"{firing['id']} by {firing['trigger']}, {length(now - firing['at'])} ago", *_more(firing)]
    return ", ".join(parts)


def _more(firing: Mapping[str, Any]) -> Iterable[str]:
    if firing["running"]:
        yield f"runs (attempt {firing['attempt']})"
    elif firing["attempt"]:
        yield f"waits for attempt {firing['attempt'] + 1}"
    if firing["joined"]:
        yield f"for {firing['joined'] + 1} at once"
    if firing["depth"]:
        yield f"{counted(firing['depth'], 'rule')} deep"
    if firing["by_person"]:
        yield "by a person"


@click.command(epilog=QUEUE_EXAMPLES)
@click.argument("rule", shell_complete=rule_names)
@click.option("--clear", is_flag=True, help="Forget all that waits. What runs goes on.")
@click.option("--dry-run", is_flag=True, help="With --clear: only say what would be forgotten.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def queue(rule: str, clear: bool, dry_run: bool, as_json: bool) -> int:
    """Show what waits in the queue of RULE; or forget it. Needs no daemon."""
    if dry_run and not clear:
        raise click.UsageError("--dry-run is for --clear")
    with Asking() as ask:
        said = ask("forget_firings", rule=rule) if clear and not dry_run else ask("queue", rule=rule)
    if as_json:
        print_json({**said, "dry_run": True} if dry_run else said)
        return FINE
    if clear:
        number = sum(not firing["running"] for firing in said["queue"]) if dry_run else said["forgotten"]
        click.echo(f"{said['rule']}: {counted(number, 'firing')} {'would be ' if dry_run else ''}forgotten")
    if "queue" in said:
        _print_queue(said, none=f"{said['rule']}: nothing waits")
    return FINE


def _print_queue(said: Mapping[str, Any], none: str) -> None:
    if not said["queue"]:
        click.echo(none)
        return
    for line in table(QUEUE_HEAD, [_queue_row(firing, said["at"]) for firing in said["queue"]], width()):
        click.echo(line)


def _queue_row(firing: Mapping[str, Any], now: float) -> Sequence[str]:
    return (
        firing["id"],
        firing["trigger"],
        length(now - firing["at"]),
        str(firing["attempt"]),
        ", ".join(_more(firing)),
    )
