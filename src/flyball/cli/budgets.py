"""`flyball budgets`: who may spend how much, and has."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from flyball.cli import FINE
from flyball.cli.ask import Asking
from flyball.cli.complete import unit_names
from flyball.cli.show import colour_option, coloured, print_json, strong, width
from flyball.control.budgets import BUDGETS_MAX
from flyball.control.text import counted, length, table
from flyball.core.amounts import amount_text

HEAD: Final = ("WHOSE", "USED", "SPENT", "RESERVED", "LIMIT", "PER")
NEAR: Final = 80
"""Percent of a budget from which it stands out."""

EXAMPLES: Final = """\
\b
Examples:
  flyball budgets             all, what is used up most first
  flyball budgets web         of one unit
  flyball raise web 1.00      allow one dollar more
"""


@click.command(epilog=EXAMPLES)
@click.argument("units", metavar="[UNIT]...", nargs=-1, shell_complete=unit_names)
@click.option("-n", "--lines", default=100, type=click.IntRange(0, BUDGETS_MAX), help="How many; 100 if not given.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@colour_option
def budgets(units: tuple[str, ...], lines: int, as_json: bool) -> int:
    """Show budgets of which anything was spent, and those of the fleet: what is used up most first. Needs no daemon."""
    with Asking() as ask:
        if units:
            ask("status", units=list(units))  # a unit that is not known is a slip of the keyboard
        said = ask("budgets", limit=BUDGETS_MAX if units else lines)
    if units:
        said = {**said, "budgets": [one for one in said["budgets"] if one["unit"] in units]}
    if as_json:
        print_json(said)
        return FINE
    for line in _lines(said):
        click.echo(line)
    return FINE


def _lines(said: Mapping[str, Any]) -> Iterable[str]:
    found = said["budgets"]
    if not found:
        yield "Nothing is spent of any budget."
        return
    lines = table(HEAD, [_row(one) for one in found], width())
    yield strong(lines[0])
    for line, one in zip(lines[1:], found, strict=True):
        share = _percent(one)
        before, cell, after = line.partition(f"  {share}%")
        word = "failed" if share is not None and share >= 100 else "cooling"
        yield before + coloured(cell, word) + after if cell and share is not None and share >= NEAR else line
    if said["left_out"]:
        yield f"And {counted(said['left_out'], 'more budget')}: `flyball budgets -n {BUDGETS_MAX}`."


def _row(one: Mapping[str, Any]) -> Sequence[str]:
    meter, share = one["meter"], _percent(one)
    raised = f" ({amount_text(meter, one['raised'])} of it raised)" if one["raised"] else ""
    return (
        _whose(one),
        "-" if share is None else f"{share}%",
        amount_text(meter, one["spent"]),
        amount_text(meter, one["reserved"]) if one["reserved"] else "-",
        ("-" if one["limit"] is None else amount_text(meter, one["limit"])) + raised,
        length(one["every"]) if one["every"] else "run" if one["by"] == "run" else "all time",
    )


def _whose(one: Mapping[str, Any]) -> str:
    match one["by"]:
        case "fleet":
            return "the fleet"
        case "unit":
            return str(one["subject"])
        case "run":
            return f"{one['unit']} (a run)"
    return f"{one['by']} {one['subject']}"


def _percent(one: Mapping[str, Any]) -> int | None:
    """How much of it is used; rounded down, so that 100 is all of it."""
    return (one["spent"] + one["reserved"]) * 100 // one["limit"] if one["limit"] else None
