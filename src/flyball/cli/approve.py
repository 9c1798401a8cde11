"""`flyball approve`: a yes to what a unit asks a person. It is the same answer as that of `flyball answer`."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from flyball.cli import FINE
from flyball.cli.ask import Asking
from flyball.cli.complete import asking_units, question_ids
from flyball.cli.show import print_json
from flyball.control.answers import YES
from flyball.control.context import LISTED_MAX
from flyball.control.text import length, one_line, question_text
from flyball.errors import FlyballError

EXAMPLES: Final = """\
\b
Examples:
  flyball approve                  the one thing that waits for a yes; it asks first
  flyball approve deployer         what this unit asks
  flyball approve deployer 3fa9    one of several, by its first digits
"""


@click.command(epilog=EXAMPLES)
@click.argument("unit", required=False, shell_complete=asking_units)
@click.argument("question", metavar="[ID]", required=False, shell_complete=question_ids)
@click.option("--yes", is_flag=True, help="Without a UNIT, do not ask first.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def approve(unit: str | None, question: str | None, yes: bool, as_json: bool) -> int:
    """Say yes to what UNIT asks a person, if yes is one of the answers that it takes. Without a UNIT, to the one
    question of all units that can be answered so. A no is given by `flyball answer`. Needs no daemon.
    """
    with Asking() as ask:
        if unit is None:
            found = ask("questions", units=[])
            only = _the_only_one(found["questions"])
            if not yes:
                _confirm(only, found["at"])
            unit, question = only["unit"], only["id"]
        said = ask("approve", unit=unit, id=question)
    if as_json:
        print_json(said)
        return FINE
    for one in said["answered"]:
        click.echo(one_line(f"{unit}: answered {one['answer']}: {one['question']['text']}"))
    return FINE


def _the_only_one(asked: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    can = [one for one in asked if any(choice.casefold() in YES for choice in one["choices"])]
    if len(can) == 1:
        return can[0]
    if not can:
        raise FlyballError("nobody waits for a yes", remedy="`flyball questions` shows what units ask.")
    named = "; ".join(one_line(f"{one['unit']} {one['id']}: {one['text']}") for one in can[:LISTED_MAX])
    more = f" and {len(can) - LISTED_MAX} more" if len(can) > LISTED_MAX else ""
    raise FlyballError(f"{len(can)} wait for a yes: {named}{more}", remedy="Say which: `flyball approve UNIT ID`.")


def _confirm(one: Mapping[str, Any], now: float) -> None:
    asked = one_line(f"{one['unit']} asks, {length(now - one['at'])} ago: {question_text(one['text'], one['choices'])}")
    if not sys.stdin.isatty():
        remedy = f"Name it: `flyball approve {one['unit']} {one['id']}`; or add --yes if you mean it."
        raise FlyballError(f"nothing was approved: there is no terminal to ask on. {asked}", remedy=remedy)
    click.echo(asked, err=True)
    if not click.confirm("Say yes?", err=True):
        raise FlyballError("nothing was approved", remedy=f"To say no: `flyball answer {one['unit']} no`.")
