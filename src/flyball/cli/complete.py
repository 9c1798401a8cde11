"""Names that a shell completes: of units, and of rules. They are asked for as any command asks. Where there is no
answer, such as with broken settings, nothing is completed: nobody wants to read an error in the middle of a line.
"""

import click

from flyball.cli.ask import Asking
from flyball.errors import FlyballError


def unit_names(context: click.Context, argument: click.Parameter, begun: str) -> list[str]:
    """Units, rules among them, that begin so, without those that the line has already."""
    return _left("status", "units", context, argument, begun)


def rule_names(context: click.Context, argument: click.Parameter, begun: str) -> list[str]:
    """Rules that begin so, without those that the line has already."""
    return _left("rules", "rules", context, argument, begun)


def _left(verb: str, plural: str, context: click.Context, argument: click.Parameter, begun: str) -> list[str]:
    given = (context.params.get(argument.name or "") or ()) if argument.nargs == -1 else ()
    try:
        with Asking() as ask:
            found = ask(verb, **{plural: []})[plural]
    except FlyballError:
        return []
    return [one["name"] for one in found if one["name"].startswith(begun) and one["name"] not in given]
