"""`flyball status`: what needs a person, the fleet and its units, at a glance."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import click

from flyball.cli import BAD, FAILED, FINE
from flyball.cli.ask import Asking
from flyball.cli.complete import unit_names
from flyball.cli.problems import gist_of, lines_of, split
from flyball.cli.show import colour_option, coloured, fitted, print_json, strong, width
from flyball.cli.watching import Picture, every_option, watch, watch_option
from flyball.control.board import OFTEN
from flyball.control.context import unknown_unit
from flyball.control.past import RULE
from flyball.control.shapes import Word
from flyball.control.text import (
    ago,
    clock_time,
    counted,
    exit_text,
    length,
    one_line,
    question_text,
    short,
    table,
    times,
)

HEAD: Final = ("UNIT", "STATE", "SINCE", "RESTARTS", "LAST EXIT", "WHY")
HOST_AT: Final = 2
"""Where the column of hosts is, where there are any."""
NEEDS_MAX: Final = 5
"""Problems above the table: it should still be seen. `flyball problems` shows all."""
PATTERN: Final = frozenset("*?[")
"""What makes a pattern of a name."""
OFTEN_TEXT: Final = " (often)"
"""Of restarts, where there are so many that a unit should stand out."""

EXAMPLES: Final = """\
\b
Examples:
  flyball status                        all units
  flyball status web 'coder-*'          some of them
  flyball status --state quarantined    only what is quarantined
  flyball status --check                for a script, by its exit code
  flyball status --json                 for a script
  flyball status --watch                until Ctrl-C

\b
Exit codes of --check:
  0  all is well
  1  something needs a person: a problem, a hold, a question; also if somebody has seen it
  2  nobody can tell: no answer, bad settings, a store that cannot be used, an unknown unit
"""


@click.command(epilog=EXAMPLES)
@click.argument("units", metavar="[UNIT]...", nargs=-1, shell_complete=unit_names)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([word.value for word in Word]),
    help="Only units that are this.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --watch one object a line, for each change.")
@click.option("--check", is_flag=True, help="Exit 1 if something of this needs a person, 2 if nobody can tell.")
@watch_option
@every_option
@colour_option
def status(
    *, units: tuple[str, ...], states: tuple[str, ...], as_json: bool, check: bool, watch: bool, every: float | None
) -> int:
    """Show what needs you, then the fleet and its units: what each is, since when, and why. UNIT may be a pattern:
    'web-*'. Needs no daemon.
    """
    watched = watch or every is not None
    if watched and check:
        raise click.UsageError("--watch goes on for ever: it cannot be combined with --check")
    with Asking() as ask:
        if watched:
            _watch(ask, units, states, every, as_json=as_json)
        said = _asked(ask, units, states)
        if as_json:
            print_json(said)
        else:
            for line in _lines(said, fresh=ask.fresh, states=states):
                click.echo(line)
        if check:
            return BAD if ask.warning else FAILED if _needs_a_person(said) else FINE
    return FINE


def _watch(ask: Asking, units: Sequence[str], states: Sequence[str], every: float | None, *, as_json: bool) -> None:
    def look() -> Picture:
        said = _asked(ask, units, states)
        return Picture(list(_lines(said, fresh=ask.fresh, states=states)), said, _gist(said))

    watch(ask, look, every, as_json=as_json)


def _asked(ask: Asking, names: Sequence[str], states: Sequence[str]) -> dict[str, Any]:
    """The status of those that are meant."""
    patterns = any(PATTERN & set(name) for name in names)
    said: dict[str, Any] = ask("status", units=[] if patterns else list(names))
    if not patterns and not states:
        return said
    there = [unit["name"] for unit in said["units"]]
    wanted = set(there) if not patterns else {one for name in names for one in _matching(name, there)}
    shown = [unit for unit in said["units"] if unit["name"] in wanted and (not states or unit["state"] in states)]
    theirs = {"", *(unit["name"] for unit in shown)}
    return {**said, "units": shown, "problems": [one for one in said["problems"] if one["unit"] in theirs]}


def _matching(name: str, there: Sequence[str]) -> list[str]:
    found = [one for one in there if one == name or fnmatchcase(one, name)]
    if not found:
        raise unknown_unit(name, there)
    return found


def _needs_a_person(said: Mapping[str, Any]) -> bool:
    """Whether not all is well. A pause that somebody ordered is no problem, and yet it waits for a person."""
    held = said["fleet"]["held"] or any(unit["held"] or unit["questions"] for unit in said["units"])
    return bool(said["trouble"] or said["problems"] or held)


def _gist(said: Mapping[str, Any]) -> object:
    """What of it makes a change: all but ages."""
    fleet = said["fleet"]
    units = [
        (
            unit["name"],
            unit["state"],
            unit["running"],
            [reason["code"] for reason in unit["reasons"]],
            unit["restarts"]["total"],
            unit["restarts"]["by_hand"],
            unit["last_exit"] and unit["last_exit"]["at"],
            unit["waiting"],
            unit["host"],
        )
        for unit in said["units"]
    ]
    circuits = [(one["name"], one["state"]) for one in (*fleet["breakers"], *fleet["hosts"])]
    codes = [reason["code"] for reason in fleet["reasons"]]
    return (fleet["state"], codes, circuits, said["trouble"], units, gist_of(said["problems"]))


def _lines(said: Mapping[str, Any], *, fresh: bool, states: Sequence[str]) -> Iterable[str]:
    fleet, units = said["fleet"], said["units"]
    if not units and not states:
        yield "Nothing ran here yet." if fresh or not fleet["reasons"] else _fleet_line(fleet)
        return
    yield _fleet_line(fleet)
    if said["trouble"]:
        yield f"  {one_line(said['trouble'])}"
    for reason in fleet["reasons"]:
        yield f"  {one_line(reason['text'])}. {reason['remedy']}"
    yield from _needs(said["problems"], fleet["at"])
    yield ""
    if not units:
        yield f"No unit is {' or '.join(states)}."
        return
    rows = [_row(unit, fleet["at"]) for unit in units]
    head: tuple[str, ...] = HEAD
    if fleet["hosts"]:
        head = (*HEAD[:HOST_AT], "HOST", *HEAD[HOST_AT:])
        rows = [(*row[:HOST_AT], unit["host"] or "-", *row[HOST_AT:]) for row, unit in zip(rows, units, strict=True)]
    lines = table(head, rows, width())
    yield strong(lines[0])
    for line, unit in zip(lines[1:], units, strict=True):
        before, word, after = line.partition(f"  {unit['state']}")
        yield before + coloured(word, unit["state"]) + _often(after)


def _needs(problems: Sequence[Mapping[str, Any]], now: float) -> Iterable[str]:
    """What needs a person, and what to type. What holds the fleet is said above already."""
    new, seen = split(problems)
    wide = width()
    if new:
        yield from ("", coloured(f"Needs you ({len(new)}):", new[0]["severity"], bold=True))
    for problem in new[:NEEDS_MAX]:
        yield from lines_of(problem, now, wide)
    more = [f"{len(new) - NEEDS_MAX} more"] if len(new) > NEEDS_MAX else []
    more += [f"{len(seen)} that somebody has seen"] if seen else []
    if more:
        yield from ([] if new else [""])
        yield fitted(f"  And {' and '.join(more)}: `flyball problems`.", wide)


def _often(line: str) -> str:
    """A unit that restarts often stands out."""
    before, found, after = line.partition(OFTEN_TEXT)
    return before + coloured(found, "degraded", bold=True) + after


def _fleet_line(fleet: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{number} {word}" for word, number in fleet["counts"].items())
    breaker = "" if fleet["breaker"] == "closed" else f"; circuit {fleet['breaker']}"
    others = "".join(f"; circuit {one['name']} {one['state']}" for one in fleet["breakers"] if one["by"] != "fleet")
    word = coloured(fleet["state"], fleet["state"])
    return f"Fleet {word}: {fleet['running']} of {fleet['units']} units run{_on(fleet)} ({counts}){breaker}{others}"


def _on(fleet: Mapping[str, Any]) -> str:
    """On how many hosts, where there are any."""
    hosts = fleet["hosts"]
    lost = sum(host["state"] == "lost" for host in hosts)
    more = f", {lost} lost" if lost else ""
    return f" on {counted(len(hosts) - lost, 'host')}{more}" if hosts else ""


def _row(unit: Mapping[str, Any], now: float) -> Sequence[str]:
    restarts, ended = unit["restarts"], unit["last_exit"]
    often = OFTEN_TEXT if restarts["last_hour"] >= OFTEN else ""
    hour = f"{restarts['last_hour']}/h{often}" + (f", {restarts['total']} in all" if restarts["total"] else "")
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
