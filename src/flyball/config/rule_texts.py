"""What is wrong with the texts of a rule, each with its path: its condition, and the templates of its actions.

Templates are looked for in what was given, not in what became of it: so each has its place.
"""

import functools
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from flyball.config import expressions, templates
from flyball.config.rules import Trigger
from flyball.config.section import Fault

NEEDS: Final = "pip install 'flyball-governor[rules]'"
"""What is to be done where a package is missing that a rule needs."""

Path = tuple[str | int, ...]
Steps = tuple[tuple[str, str], ...]
"""The id and the kind of each action."""


def condition_faults(source: str, triggers: Sequence[Trigger]) -> Iterator[Fault]:
    """What is wrong with the condition of a rule with such triggers."""
    if not has_cel():
        yield Fault(("when",), f"a condition needs the package common-expression-language: {NEEDS}")
        return
    for problem in expressions.check(source, triggers):
        yield Fault(("when",), problem.text, problem.column)


def template_faults(actions: Sequence[Any], triggers: Sequence[Trigger], steps: Steps) -> Iterator[Fault]:
    """What is wrong with the templates of a rule's actions, as they were given; `steps` is what they are called."""
    for place, action in enumerate(actions):
        for path, text in _with_templates(action, ()):
            # What undoes an action may use its result.
            before = steps[: place + (path[:1] == ("undo",))]
            for problem in templates.check(text, triggers, before):
                yield Fault(("actions", place, *path), problem.text, problem.column)


def _with_templates(given: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """All texts with templates, each with its path."""
    if isinstance(given, str):
        if "{{" in given:
            yield path, given
    elif isinstance(given, Mapping):
        for key, value in given.items():
            yield from _with_templates(value, (*path, key))
    elif isinstance(given, list | tuple):
        for place, value in enumerate(given):
            yield from _with_templates(value, (*path, place))


@functools.cache
def has_cel() -> bool:
    """Whether there is what conditions need."""
    return importlib.util.find_spec("cel") is not None
