"""`flyball raise`: allow more than a budget says, for its period. The settings stay as they are."""

import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from flyball.cli import FAILED, FINE
from flyball.cli.ask import Asking
from flyball.cli.complete import unit_names, user_names
from flyball.cli.show import print_json
from flyball.control.text import one_line
from flyball.core.amounts import amount_text
from flyball.errors import FlyballError

UNIT_AND_AMOUNT: Final = 2

EXAMPLES: Final = """\
\b
Examples:
  flyball raise web 1.00 --resume        one dollar more for a unit, and it goes on
  flyball raise --user ann 5.00          for all that ann has
  flyball raise --fleet 20 --dry-run     what that would come to
  flyball raise web 5000 --meter tokens  of another meter
"""


@click.command(epilog=EXAMPLES)
@click.argument("words", metavar="[UNIT] AMOUNT", nargs=-1, required=True, shell_complete=unit_names)
@click.option("--user", metavar="USER", shell_complete=user_names, help="The budget of this user.")
@click.option("--fleet", is_flag=True, help="The budget of the fleet.")
@click.option("--meter", default="usd", help="Of what; usd if not given.")
@click.option("--resume", is_flag=True, help="What waits because of it goes on.")
@click.option("--note", metavar="TEXT", help="Why, for whoever looks later.")
@click.option("--dry-run", is_flag=True, help="Only say what it would come to.")
@click.option("--yes", is_flag=True, help="Do not ask before --user or --fleet.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def raise_(*, words: tuple[str, ...], yes: bool, as_json: bool, dry_run: bool, **given: Any) -> int:
    """Allow AMOUNT more than the budget of UNIT says, until its period is over; or than that of a user or of the fleet,
    after asking. `flyball budgets` shows what there is. Exits 1 if what was to be resumed is still held.
    """
    unit, amount = _taken_apart(words, shared=bool(given["user"] or given["fleet"]))
    args = {"unit": unit, "more": amount, **given}
    with Asking() as ask:
        if unit is None and not yes and not dry_run:
            _confirm(ask("raise", dry_run=True, **args))
        said = ask("raise", dry_run=dry_run, **args)
    still = given["resume"] and not dry_run and said["unit"] is not None and said["unit"]["held"]
    if as_json:
        print_json(said)
        return FAILED if still else FINE
    click.echo(f"{_effect(said)}{' (nothing was done)' if dry_run else ''}")
    if still:
        for reason in said["unit"]["reasons"]:
            click.echo(one_line(f"{unit} is held all the same: {reason['text']}. {reason['remedy']}"), err=True)
    return FAILED if still else FINE


def _taken_apart(words: tuple[str, ...], *, shared: bool) -> tuple[str | None, str]:
    if shared and len(words) == 1:
        return None, words[0]
    if len(words) == UNIT_AND_AMOUNT:
        return words[0], words[1]
    raise click.UsageError("it takes a UNIT and an AMOUNT, or --user or --fleet and an AMOUNT")


def _effect(said: Mapping[str, Any]) -> str:
    spent = amount_text(said["meter"], said["spent"])
    return one_line(f"{said['effect']}, {spent} of it spent")


def _confirm(would: Mapping[str, Any]) -> None:
    click.echo(_effect(would), err=True)
    if not sys.stdin.isatty():
        raise FlyballError("nothing was raised: there is no terminal to ask on", remedy="Add --yes if you mean it.")
    if not click.confirm("Raise it for all of them?", err=True):
        raise FlyballError("nothing was raised", remedy="One unit alone: `flyball raise UNIT AMOUNT`.")
