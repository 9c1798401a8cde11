"""`flyball status`: the fleet and its units at a glance."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from flyball.cli import FAILED, FINE
from flyball.cli.ask import Asking
from flyball.cli.complete import unit_names
from flyball.cli.show import coloured, print_json, width
from flyball.control.past import RULE
from flyball.control.text import ago, clock_time, exit_text, length, one_line, question_text, short, table, times

WATCH_SECONDS: Final = 1.0
"""Between two looks: as often as ages change."""
HEAD: Final = ("UNIT", "STATE", "SINCE", "RESTARTS", "LAST EXIT", "WHY")

EXAMPLES: Final = """\
\b
Examples:
  flyball status                 all units
  flyball status web worker      these two
  flyball status --check         exit 1 if anything waits for a person
  flyball status --json          for a script
  flyball status --watch         until Ctrl-C
"""


@click.command(epilog=EXAMPLES)
@click.argument("units", metavar="[UNIT]...", nargs=-1, shell_complete=unit_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--check", is_flag=True, help="Exit 1 if the fleet or one of these units waits for a person.")
@click.option("--watch", is_flag=True, help="Print it again every second, until Ctrl-C.")
def status(units: tuple[str, ...], as_json: bool, check: bool, watch: bool) -> int:
    """Show the fleet and its units: what each is, since when, and why. Needs no daemon."""
    if watch and (as_json or check):
        raise click.UsageError("--watch goes on for ever: it cannot be combined with --json or --check")
    with Asking() as ask:
        while watch:
            said = ask("status", units=list(units))
            click.clear()
            _print(said, fresh=ask.fresh)
            time.sleep(WATCH_SECONDS)
        said = ask("status", units=list(units))
        if as_json:
            print_json(said)
        else:
            _print(said, fresh=ask.fresh)
    waits = said["trouble"] or said["fleet"]["held"] or any(unit["held"] or unit["questions"] for unit in said["units"])
    return FAILED if check and waits else FINE


def _print(said: Mapping[str, Any], *, fresh: bool) -> None:
    fleet, units = said["fleet"], said["units"]
    if not units:
        click.echo("Nothing ran here yet." if fresh or not fleet["reasons"] else _fleet_line(fleet))
        return
    click.echo(_fleet_line(fleet))
    if said["trouble"]:
        click.echo(f"  {one_line(said['trouble'])}")
    for reason in fleet["reasons"]:
        click.echo(f"  {one_line(reason['text'])}. {reason['remedy']}")
    click.echo("")
    lines = table(HEAD, [_row(unit, fleet["at"]) for unit in units], width())
    click.echo(lines[0])
    for line, unit in zip(lines[1:], units, strict=True):
        before, word, after = line.partition(f"  {unit['state']}")
        click.echo(before + coloured(word, unit["state"]) + after)


def _fleet_line(fleet: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{number} {word}" for word, number in fleet["counts"].items())
    breaker = "" if fleet["breaker"] == "closed" else f"; circuit {fleet['breaker']}"
    others = "".join(f"; circuit {one['name']} {one['state']}" for one in fleet["breakers"] if one["by"] != "fleet")
    word = coloured(fleet["state"], fleet["state"])
    return f"Fleet {word}: {fleet['running']} of {fleet['units']} units run ({counts}){breaker}{others}"


def _row(unit: Mapping[str, Any], now: float) -> Sequence[str]:
    restarts, ended = unit["restarts"], unit["last_exit"]
    hour = f"{restarts['last_hour']}/h" + (f", {restarts['total']} in all" if restarts["total"] else "")
    hand = f", {restarts['by_hand']} by hand" if restarts["by_hand"] else ""
    return (
        unit["name"] + (" (rule)" if unit["kind"] == RULE else ""),
        unit["state"] + (" (running)" if unit["running"] else ""),
        ago(unit["since"], now),
        hour + hand,
        last_exit(ended),
        why(unit, now),
    )


def last_exit(ended: Mapping[str, Any] | None) -> str:
    """How it ended last, in a few words."""
    if ended is None:
        return "-"
    return exit_text(ended["cause"], ended["error"], ended["code"], ended["signal"], ended["fingerprint"])


def why(unit: Mapping[str, Any], now: float) -> str:
    """The one reason that counts most, and when it ends; of a rule also how many firings wait."""
    if not unit["waiting"]:
        return _why(unit, now)
    waits = f"queue: {unit['waiting']} wait" if unit["waiting"] > 1 else "queue: 1 waits"
    idle = not (unit["reasons"] or unit["running"] or unit["live"] or unit["questions"])
    return waits if idle else f"{_why(unit, now)}; {waits}"


def _why(unit: Mapping[str, Any], now: float) -> str:
    if unit["questions"] and not unit["held"]:
        return asks(unit["questions"])
    if unit["reasons"]:
        reason = unit["reasons"][0]
        at = f" (until {clock_time(reason['until'], now)})" if reason["verb"] == "wait" and reason["until"] else ""
        return f"{reason['text']}{at}"
    lost = [live for live in unit["live"] if live["lost"]]
    if unit["running"]:
        live = next(live for live in unit["live"] if not live["lost"])
        return f"runs for {length(live['age'])}" if live["age"] is not None else "runs"
    if lost:
        return f"its run is lost: no sign of life from {lost[0]['holder'] or 'its holder'}"
    if unit["failures"]:
        last = unit["failures"][0]
        return f"failed {times(last['count'])}: {last['error'] or short(last['fingerprint'])}"
    if unit["kind"] == RULE:
        return "not fired yet" if unit["last_exit"] is None else "waits to be fired"
    return "not started yet" if unit["since"] is None else "may start"


def asks(questions: Sequence[Mapping[str, Any]]) -> str:
    """What it asks a person: the oldest question, and how many there are besides."""
    first = question_text(questions[0]["text"], questions[0]["choices"])
    return f"asks: {first}" + (f" (and {len(questions) - 1} more)" if len(questions) > 1 else "")
