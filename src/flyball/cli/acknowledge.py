"""`flyball ack` and `flyball snooze`: a person has seen a problem, and does not want to be told of it again unless it
gets worse."""

from collections.abc import Mapping
from typing import Any, Final

import click

from flyball.cli import FINE
from flyball.cli.ask import Asking
from flyball.cli.complete import problem_ids
from flyball.cli.show import print_json
from flyball.control.text import clock_time, one_line
from flyball.core.time import parse_span, seconds

ACK_EXAMPLES: Final = """\
\b
Examples:
  flyball ack web                          the only problem of a unit
  flyball ack web:quarantined:7f3a9c21     by its id, or the beginning of that
  flyball ack 7f3a                         by its fingerprint
  flyball ack web --note "on it"           and why
"""

SNOOZE_EXAMPLES: Final = """\
\b
Examples:
  flyball snooze web 1h                       until in an hour
  flyball snooze 7f3a 8h --note "tomorrow"    by its fingerprint
"""


def _length(_: click.Context, __: click.Parameter, given: str) -> float:
    try:
        return seconds(parse_span(given))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_PROBLEM: Final = click.argument("problem", metavar="PROBLEM|UNIT", shell_complete=problem_ids)
_NOTE: Final = click.option("--note", metavar="TEXT", help="Why, for whoever looks later.")
_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command(epilog=ACK_EXAMPLES)
@_PROBLEM
@_NOTE
@_JSON
def ack(problem: str, note: str | None, as_json: bool) -> int:
    """Say that you have seen a PROBLEM that `flyball problems` lists: it is told of again when it gets worse, or comes
    back. Nothing is put right by that. Needs no daemon.
    """
    with Asking() as ask:
        return _print(ask("acknowledge", problem=problem, note=note), as_json=as_json)


@click.command(epilog=SNOOZE_EXAMPLES)
@_PROBLEM
@click.argument("time", callback=_length)
@_NOTE
@_JSON
def snooze(problem: str, time: float, note: str | None, as_json: bool) -> int:
    """Hear no more of a PROBLEM for a TIME (30m, 1h, 2d), unless it gets worse. Needs no daemon."""
    with Asking() as ask:
        return _print(ask("snooze", problem=problem, seconds=time, note=note), as_json=as_json)


def _print(said: Mapping[str, Any], *, as_json: bool) -> int:
    if as_json:
        print_json(said)
        return FINE
    problem, until = said["problem"], said["problem"]["snoozed_until"]
    how = "seen" if until is None else f"snoozed until {clock_time(until, said['at'])}"
    click.echo(one_line(f"{problem['id']}: {how}; it is told of again if it gets worse"))
    return FINE
