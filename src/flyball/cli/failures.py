"""`flyball failures`: what fails the same way, by fingerprint, and in which units."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from flyball.cli import FINE
from flyball.cli.ask import Asking
from flyball.cli.complete import fingerprints
from flyball.cli.show import colour_option, coloured, print_json, strong, width
from flyball.control.context import CommandError
from flyball.control.failures import KINDS_MAX
from flyball.control.text import ago, clock_time, counted, length, one_line, short, table, times

HEAD: Final = ("FINGERPRINT", "TIMES", "LAST", "STATE", "UNITS", "ERROR")
NAMES_SHOWN: Final = 3
"""Units named in a line of the table; of more, how many."""

EXAMPLES: Final = """\
\b
Examples:
  flyball failures              all kinds, the worst first
  flyball failures 7f3a         one, by its first digits: with all its units
  flyball failures --json       for a script
"""


@click.command(epilog=EXAMPLES)
@click.argument("fingerprint", required=False, default="", shell_complete=fingerprints)
@click.option("-n", "--lines", default=100, type=click.IntRange(0, KINDS_MAX), help="How many; 100 if not given.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@colour_option
def failures(fingerprint: str, lines: int, as_json: bool) -> int:
    """Show failures by fingerprint, in all units: what is quarantined first, then what happens most often. Needs no
    daemon.
    """
    with Asking() as ask:
        said = ask("failures", limit=KINDS_MAX if fingerprint else lines)
    if fingerprint:
        said = {**said, "failures": _beginning(said["failures"], fingerprint)}
    if as_json:
        print_json(said)
        return FINE
    found = said["failures"]
    for line in _one(found[0], said["at"]) if fingerprint and len(found) == 1 else _all(said):
        click.echo(line)
    return FINE


def _beginning(found: Sequence[Mapping[str, Any]], fingerprint: str) -> list[Mapping[str, Any]]:
    chosen = [one for one in found if one["fingerprint"].startswith(fingerprint.lower())]
    if not chosen:
        text = f"no failure has a fingerprint that begins with {fingerprint!r}"
        raise CommandError("not_found", text, remedy="`flyball failures` lists all of them.")
    return chosen


def _all(said: Mapping[str, Any]) -> Iterable[str]:
    found, now = said["failures"], said["at"]
    if not found:
        yield "No failures are remembered."
        return
    lines = table(HEAD, [_row(one, now) for one in found], width())
    yield strong(lines[0])
    for line, one in zip(lines[1:], found, strict=True):
        word = _word(one)
        before, cell, after = line.partition(f"  {word} ")
        yield before + coloured(cell, word) + after if cell else line
    if said["left_out"]:
        yield f"And {counted(said['left_out'], 'more kind')}: `flyball failures -n {KINDS_MAX}`."


def _row(one: Mapping[str, Any], now: float) -> Sequence[str]:
    names, more = one["units"][:NAMES_SHOWN], one["of"] - NAMES_SHOWN
    return (
        short(one["fingerprint"]),
        str(one["count"]),
        f"{ago(one['last'], now)} ago",
        _word(one) or "-",
        ", ".join(names) + (f" and {more} more" if more > 0 else ""),
        one["error"] or "-",
    )


def _word(one: Mapping[str, Any]) -> str:
    return "quarantined" if one["quarantined"] else "cooling" if one["until"] is not None else ""


def _one(one: Mapping[str, Any], now: float) -> Iterable[str]:
    word = _word(one)
    held = f", {coloured(word, word)}" if word else ""
    yield f"{strong(one['fingerprint'])} {one_line(one['error']) or 'failure'}, {times(one['count'])}{held}"
    yield f"First:  {clock_time(one['first'], now)}, {length(now - one['first'])} ago"
    yield f"Last:   {clock_time(one['last'], now)}, {length(now - one['last'])} ago"
    if one["until"] is not None:
        yield f"Waits:  until {clock_time(one['until'], now)}, {length(one['until'] - now)} more"
    more = one["of"] - len(one["units"])
    units = ", ".join(one_line(name) for name in one["units"]) + (f" and {more} more" if more > 0 else "")
    yield f"Units:  {units}"
    yield from ("", f"To look into it: `flyball why {one_line(one['units'][0])}`.")
    yield f"To forget it in all of them: `flyball reset {short(one['fingerprint'])}`."
