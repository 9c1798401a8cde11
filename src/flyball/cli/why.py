"""`flyball why`: why a unit is what it is, and what a person can do about it."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from flyball.cli.answer import ends
from flyball.cli.ask import Asking
from flyball.cli.complete import unit_names
from flyball.cli.events import Told, coloured_line, enough_for
from flyball.cli.post_mortem import post_mortem_lines
from flyball.cli.rules import facts as rule_facts
from flyball.cli.show import colour_option, coloured, print_json, strong
from flyball.cli.watching import Picture, every_option, watch, watch_option
from flyball.control.past import RULE
from flyball.control.text import (
    clock_time,
    counted,
    exit_text,
    length,
    one_line,
    question_text,
    short,
    times,
)
from flyball.core.amounts import amount_text

LINES: Final = 10
"""Entries of the journal, if nothing is said."""
DETAIL_LINES_MAX: Final = 20
"""Of a stack trace or of last output: the end of it, where the error is. `flyball logs` has the rest."""


EXAMPLES: Final = """\
\b
Examples:
  flyball why web              why it is what it is, and what to do
  flyball why web -n 50        with more of what happened
  flyball why web --watch      until Ctrl-C
  flyball why web --json       for a script
"""


@click.command(epilog=EXAMPLES)
@click.argument("unit", shell_complete=unit_names)
@click.option(
    "-n", "--lines", default=LINES, type=click.IntRange(0, 1000), help="Entries of the journal; 10 if not given."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --watch one object a line, for each change.")
@watch_option
@every_option
@colour_option
def why(unit: str, lines: int, as_json: bool, watch: bool, every: float | None) -> None:
    """Say why UNIT is what it is: every safeguard's opinion, what happened last, and what to do. Of a session also its
    whole story: its timeline, where the time went, what each layer saw. Of a rule what fires it, and what waits in its
    queue. Needs no daemon.
    """
    with Asking() as ask:
        limit = lines if as_json else enough_for(lines)
        if watch or every is not None:
            _watch(ask, unit, lines, limit, every, as_json=as_json)
        said = ask("why", unit=unit, limit=limit)
    if as_json:
        print_json(said)
        return
    for line in why_lines(said, lines):
        click.echo(line)


def _watch(ask: Asking, unit: str, lines: int, limit: int, every: float | None, *, as_json: bool) -> None:
    def look() -> Picture:
        said = ask("why", unit=unit, limit=limit)
        return Picture(list(why_lines(said, lines)), said, _gist(said))

    watch(ask, look, every, as_json=as_json)


def _gist(said: Mapping[str, Any]) -> object:
    """What of it makes a change: all but ages."""
    unit, last = said["unit"], said["events"][-1:]
    opinions = [(one["policy"], one["by"], [reason["code"] for reason in one["reasons"]]) for one in said["opinions"]]
    return (unit["state"], unit["running"], unit["questions"], said["says"], opinions, [one["seq"] for one in last])


def why_lines(said: Mapping[str, Any], lines_max: int = LINES) -> Iterable[str]:
    """All that there is to say of it."""
    unit, now = said["unit"], said["at"]
    since = f" since {clock_time(unit['since'], now)}" if unit["since"] is not None else ""
    word = unit["state"] if said["session"] is None else said["session"]["status"]
    yield f"{strong(unit['name'])} is {coloured(word, word, bold=True)}{since}{_running(unit)}"
    for reason in unit["reasons"]:
        yield f"  {one_line(reason['text'])}{_until(reason, now)}"
    if said["says"]:
        yield f"  it says: {one_line(said['says'])}"
    yield from _facts(unit, now)
    if said["rule"] is not None:
        yield from rule_facts(said["rule"], now)
    if said["post_mortem"] is not None:
        yield from post_mortem_lines(said["session"], said["post_mortem"], now)
    yield from _opinions(said["opinions"], now)
    happened = Told().once(said["events"])[-lines_max:] if lines_max else []
    if happened:
        yield from ("", strong("What happened last:"))
        yield from (f"  {coloured_line(data, now, unit=False)}" for data in happened)
    if said["detail"]:
        lines = said["detail"].splitlines()[-DETAIL_LINES_MAX:]
        yield from ("", strong("The end of its last failure:"), *(f"  {one_line(line)}" for line in lines))
    yield from _remedies(unit, work=said["session"] is not None)
    if said["post_mortem"] is not None and said["post_mortem"]["ways_on"]:
        yield from ("", strong("How to go on:"), *(f"  {one_line(way)}" for way in said["post_mortem"]["ways_on"]))


def _running(unit: Mapping[str, Any]) -> str:
    for live in unit["live"]:
        who = f" on {unit['host']}" if unit["host"] else f" under {live['holder']}" if live["holder"] else ""
        if live["lost"]:
            return f"; its run{who} was lost, and is counted as a failure at the next start"
        age = f" for {length(live['age'])}" if live["age"] is not None else ""
        return f"; it runs{age}{who}"
    return ""


def _facts(unit: Mapping[str, Any], now: float) -> Iterable[str]:
    ended, restarts = unit["last_exit"], unit["restarts"]
    yield ""
    if ended is not None:
        how = exit_text(ended["cause"], ended["error"], ended["code"], ended["signal"], ended["fingerprint"])
        yield f"Last exit:  {one_line(how)}, {length(now - ended['at'])} ago"
    by_hand = f", {restarts['by_hand']} by hand" if restarts["by_hand"] else ""
    row = f"; {counted(unit['failures_in_a_row'], 'failing run')} in a row" if unit["failures_in_a_row"] else ""
    yield f"Restarts:   {restarts['last_hour']} in the last hour, {restarts['total']} in all{by_hand}{row}"
    for failure in unit["failures"]:
        held = ", quarantined" if failure["quarantined"] else ""
        error = one_line(failure["error"]) or "failure"
        last = length(now - failure["last"])
        yield f"Failure:    {short(failure['fingerprint'])} {error}, {times(failure['count'])}, last {last} ago{held}"
    for question in unit["questions"]:
        asked = one_line(question_text(question["text"], question["choices"]))
        yield f"Asks:       {question['id']} {asked}, {length(now - question['at'])} ago{ends(question, now)}"
    for budget in unit["budgets"]:
        amounts = [amount_text(budget["meter"], budget[part]) for part in ("spent", "reserved", "limit")]
        yield f"Budget:     {amounts[0]} spent, {amounts[1]} reserved, of {amounts[2]} per {budget['by']}"
    if unit["revision"]:
        yield f"Revision:   {unit['revision']}"
    for order in unit["orders"]:
        yield f"Order:      {order['order']} by {order['by'] or 'a person'} {one_line(order['note'])}, " + (
            f"{length(now - order['at'])} ago"
        )


def _opinions(opinions: Iterable[Mapping[str, Any]], now: float) -> Iterable[str]:
    yield from ("", strong("What each safeguard says:"))
    fine, against = [], set()
    for said in opinions:
        name = said["policy"] if said["by"] == "unit" else f"{said['policy']} ({said['by']})"
        if said["verb"] == "proceed" and not said["reasons"]:
            fine.append(name)
        for reason in said["reasons"]:
            against.add(name)
            verb = coloured(said["verb"], said["verb"])
            yield f"  {name}: {verb}: {one_line(reason['text'])}{_until(reason, now)} [{reason['code']}]"
    fine = [name for name in fine if name not in against]  # who would only refuse a resume speaks twice
    if fine:
        yield f"  nothing against it: {', '.join(fine)}"


def _remedies(unit: Mapping[str, Any], *, work: bool) -> Iterable[str]:
    """What its reasons say. A piece of work is not started again but resumed, which is said by itself; and what is held
    does not start again by itself, as reasons to wait say."""
    given = [
        reason
        for reason in unit["reasons"]
        if reason["remedy"]
        and not (work and reason["policy"] == "restart")
        and not (unit["held"] and reason["verb"] == "wait")
    ]
    remedies = dict.fromkeys(reason["remedy"] for reason in given)
    several = len(unit["questions"]) > 1
    for question in unit["questions"]:
        which = f"--id {question['id']} " if several else ""
        remedies[f"Answer it: `flyball answer {unit['name']} {which}TEXT`."] = None
    if unit["kind"] == RULE and unit["held"] and unit["waiting"]:
        remedies[f"What waits is run then; to forget it: `flyball queue {unit['name']} --clear`."] = None
    if remedies:
        yield from ("", strong("What to do:"), *(f"  {one_line(remedy)}" for remedy in remedies))
    if given:
        codes = dict.fromkeys(reason["code"] for reason in given)
        yield "  More: " + ", ".join(f"`flyball explain {code}`" for code in codes) + "."


def _until(reason: Mapping[str, Any], now: float) -> str:
    until = reason["until"]
    return "" if until is None else f" (until {clock_time(until, now)}, in {length(until - now)})"
