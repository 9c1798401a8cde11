"""Names that a shell completes: of units, of rules, of failures, of problems. They are asked for as any command asks.
Where there is no answer, such as with broken settings, nothing is completed: nobody wants to read an error in the
middle of a line.
"""

from typing import Any

import click

from flyball.cli.ask import Asking
from flyball.errors import FlyballError


def unit_names(context: click.Context, argument: click.Parameter, begun: str) -> list[str]:
    """Units, rules among them, that begin so, without those that the line has already."""
    return _left("status", "units", context, argument, begun)


def rule_names(context: click.Context, argument: click.Parameter, begun: str) -> list[str]:
    """Rules that begin so, without those that the line has already."""
    return _left("rules", "rules", context, argument, begun)


def host_names(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """Hosts of the fleet that begin so."""
    return _begin_so([one["name"] for one in _asked("hosts", "hosts")], begun)


def fingerprints(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """Fingerprints of failures that are remembered, the worst first."""
    return _begin_so([one["fingerprint"] for one in _asked("failures", "failures")], begun)


def problem_ids(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """Ids of problems, the worst first."""
    return _begin_so([one["id"] for one in _asked("problems", "problems")], begun)


def asking_units(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """Units that ask a person something."""
    return _begin_so([one["unit"] for one in _asked("questions", "questions", units=[])], begun)


def question_ids(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """Ids of what the unit of the line asks; of what all of them ask, if it names none."""
    unit = context.params.get("unit")
    asked = _asked("questions", "questions", units=[])
    return _begin_so([one["id"] for one in asked if unit in (None, one["unit"])], begun)


def user_names(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """Users that units are of."""
    return _begin_so([one["labels"].get("user", "") for one in _asked("status", "units", units=[])], begun)


def _left(verb: str, plural: str, context: click.Context, argument: click.Parameter, begun: str) -> list[str]:
    given = (context.params.get(argument.name or "") or ()) if argument.nargs == -1 else ()
    names = [one["name"] for one in _asked(verb, plural, **{plural: []})]
    return [name for name in _begin_so(names, begun) if name not in given]


def _begin_so(names: list[str], begun: str) -> list[str]:
    """Those that begin so, each once."""
    return [name for name in dict.fromkeys(names) if name and name.startswith(begun)]


def _asked(verb: str, plural: str, **args: Any) -> list[Any]:
    try:
        with Asking() as ask:
            found: list[Any] = ask(verb, **args)[plural]
    except FlyballError:
        return []
    return found
