"""`flyball events`: the journal in plain words. Here too: how an entry is shown, for whoever else shows one."""

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from flyball.cli.ask import Asking
from flyball.cli.complete import unit_names
from flyball.cli.show import colour_option, coloured, faint
from flyball.control.audit import COVERED, VIA
from flyball.control.looking import EVENTS_MAX, KINDS
from flyball.control.text import event_line
from flyball.core.event import Cause
from flyball.core.time import parse_span, seconds

FOLLOW_SECONDS: Final = 0.2
"""Between two looks for something new: no longer than an eye waits, and a look costs a fraction of a millisecond."""
LINES: Final = 50
"""The newest so many, if nothing is said."""
BY_PEOPLE: Final = frozenset(("held", "released", "answered", "settled", "raised", "acknowledged"))
"""What people ordered: the line of the audit trail that follows tells it once more."""
ORDERED: Final = "ordered"

EXAMPLES: Final = """\
\b
Examples:
  flyball events                            the last 50
  flyball events web -n 5                   the last 5 of one unit
  flyball events --kind exited --kind held  only exits and pauses
  flyball events --since 1h --json          for a script, one JSON object a line
  flyball events --follow                   and whatever comes, until Ctrl-C
"""


def _since(_: click.Context, __: click.Parameter, given: str | None) -> float | None:
    if given is None:
        return None
    try:
        return seconds(parse_span(given))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(epilog=EXAMPLES)
@click.argument("unit", required=False, shell_complete=unit_names)
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, EVENTS_MAX),
    help="How many, the newest; 50, with --since all, if not given.",
)
@click.option("-f", "--follow", "--watch", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--since", callback=_since, metavar="TIME", help="Not older than this: 10m, 1h, 2d.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(KINDS), metavar="KIND", help=f"Only these: {', '.join(KINDS)}."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@colour_option
def events(
    *,
    unit: str | None,
    lines: int | None,
    follow: bool,
    since: float | None,
    kinds: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print what happened: to UNIT, or to all. Needs no daemon. What somebody ordered is one line here; the line of the
    audit trail besides is in --json, and in `flyball audit`.
    """
    told = Told()
    with Asking() as ask:
        limit = lines if lines is not None else LINES if since is None else EVENTS_MAX
        earliest = None if since is None else time.time() - since
        wait_for_unit = follow and unit is not None and ask.fresh
        wanted = limit if as_json else enough_for(limit)
        said = ask("events", unit=None if wait_for_unit else unit, limit=wanted, since=earliest, kinds=list(kinds))
        found = said["events"] if as_json or kinds else told.once(said["events"])
        _print(found[-limit:] if limit else [], as_json=as_json)
        while follow:
            time.sleep(FOLLOW_SECONDS)
            ask.renew()
            said = ask("events", limit=EVENTS_MAX, after=said["last"], kinds=list(kinds))
            found = [data for data in said["events"] if unit is None or data["unit"] == unit]
            _print(found if as_json or kinds else told.once(found), as_json=as_json)


def _print(found: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    now = time.time()
    for data in found:
        click.echo(json.dumps(data) if as_json else coloured_line(data, now))


class Told:
    """Knows which orders were shown, so that the line of the audit trail behind one does not tell it once more. What
    was refused, and what has no order of its own, is told by its line alone."""

    def __init__(self) -> None:
        self._orders: dict[tuple[str, str], float] = {}
        """Of each caller, when the last order was given that no line has followed yet."""

    def once(self, found: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """All but what is told already."""
        return [data for data in found if self._is_new(data)]

    def _is_new(self, data: Mapping[str, Any]) -> bool:
        event = data["data"]
        if data["event"] in BY_PEOPLE and event.get("note", "").startswith(VIA):
            channel = event["note"].removeprefix(VIA).partition(":")[0]
            self._orders[event.get("by", ""), channel] = data["at"]
        if data["event"] != ORDERED:
            return True
        at = self._orders.pop((event.get("by", ""), event.get("channel", "")), None)
        return at is None or data["at"] - at > seconds(COVERED) or bool(event.get("refused"))


def enough_for(limit: int) -> int:
    """Entries to ask for, so that so many are left when those that are told already are taken out."""
    return min(EVENTS_MAX, 2 * limit)


def coloured_line(data: Mapping[str, Any], now: float, *, unit: bool = True) -> str:
    """One line, in the colour of how good the news is."""
    at, gap, text = event_line(data, now, unit=unit).partition("  ")
    return faint(at) + gap + coloured(text, _word(data))


def _word(data: Mapping[str, Any]) -> str:
    """The word for how good it is; what people do, and what simply goes on, has no colour."""
    if data["event"] == ORDERED:
        return "failed" if data["data"].get("refused") else ""
    if data["event"] in BY_PEOPLE:
        return "info"
    if data["event"] == "exited" and Cause(data["data"]["cause"]).failed:
        return "failed"
    return str(data["verb"]) if data["verb"] != "finish" else ""
