"""`flyball settle`: a person says what runs that died really used of what they had reserved."""

from collections.abc import Mapping
from typing import Any, Final

import click

from flyball.cli import FINE
from flyball.cli.ask import Asking
from flyball.cli.complete import unit_names
from flyball.cli.show import print_json
from flyball.control.text import one_line
from flyball.core.amounts import amounts_text

EXAMPLES: Final = """\
\b
Examples:
  flyball settle                             who holds what
  flyball settle shop                        all that is reserved was spent
  flyball settle shop --usd 0.02             two cents were
  flyball settle shop --nothing --dry-run    what that would settle
"""


@click.command(epilog=EXAMPLES)
@click.argument("unit", required=False, shell_complete=unit_names)
@click.option("--usd", metavar="AMOUNT", help="So many dollars were spent in all.")
@click.option("--used", metavar="METER=AMOUNT", multiple=True, help="So much of another meter was used.")
@click.option("--nothing", is_flag=True, help="Nothing was spent.")
@click.option("--run", metavar="RUN", help="Only this run, which you know to be dead.")
@click.option("--dry-run", is_flag=True, help="Only say what would be settled.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def settle(unit: str | None, as_json: bool, **said_of_it: Any) -> int:
    """Settle what dead runs of UNIT have reserved; it counts as spent until then. If nothing else is said, all of it
    was spent. Without a UNIT, list who holds what.
    """
    with Asking() as ask:
        said = ask("settle", unit=unit, **said_of_it)
    if as_json:
        print_json(said)
        return FINE
    for one in said["settled"]:
        click.echo(_line(one, dry=said["dry_run"], listed=not unit))
    for one in said["alive"]:
        click.echo(f"{one['unit']}: {amounts_text(one['reserved'])} held by the run {one_line(one['run'])}")
    if not said["settled"]:
        click.echo("No run that died holds anything.")
    return FINE


def _line(one: Mapping[str, Any], *, dry: bool, listed: bool) -> str:
    reserved = amounts_text(one["reserved"])
    whose = f"{one['unit']}: {reserved} held by the dead run {one_line(one['run'])}"
    if listed:
        return whose
    return f"{whose}: {'would be settled' if dry else 'settled'} as {amounts_text(one['used'])}"
