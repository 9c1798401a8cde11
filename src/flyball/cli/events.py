"""`flyball events`: the journal in plain words."""

import json
import time
from typing import Any, Final

import click

from flyball.cli.ask import Asking
from flyball.cli.complete import unit_names
from flyball.control.looking import EVENTS_MAX
from flyball.control.text import event_line
from flyball.core.time import parse_span, seconds

FOLLOW_SECONDS: Final = 0.2
"""Between two looks for something new: no longer than an eye waits, and a look costs a fraction of a millisecond."""

EXAMPLES: Final = """\
\b
Examples:
  flyball events                      the last 50
  flyball events web -n 5             the last 5 of one unit
  flyball events --since 1h --json    for a script, one JSON object a line
  flyball events --follow             and whatever comes, until Ctrl-C
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
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--since", callback=_since, metavar="TIME", help="Not older than this: 10m, 1h, 2d.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def events(unit: str | None, lines: int | None, follow: bool, since: float | None, as_json: bool) -> None:
    """Print what happened: to UNIT, or to all. Needs no daemon."""
    with Asking() as ask:
        limit = lines if lines is not None else 50 if since is None else EVENTS_MAX
        earliest = None if since is None else time.time() - since
        wait_for_unit = follow and unit is not None and ask.fresh
        said = ask("events", unit=None if wait_for_unit else unit, limit=limit, since=earliest)
        _print(said["events"], as_json=as_json)
        while follow:
            time.sleep(FOLLOW_SECONDS)
            said = ask("events", limit=EVENTS_MAX, after=said["last"])
            found = [data for data in said["events"] if unit is None or data["unit"] == unit]
            _print(found, as_json=as_json)


def _print(found: list[dict[str, Any]], *, as_json: bool) -> None:
    now = time.time()
    for data in found:
        click.echo(json.dumps(data) if as_json else event_line(data, now))
