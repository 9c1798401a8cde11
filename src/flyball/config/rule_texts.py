"""What is wrong with the texts of a rule: its condition, and the templates of its actions.

What they may name depends on the kinds of the rule's triggers alone, so what is known of one text holds for all rules
alike: of ten thousand rules most are like others but for a name or a number.
"""

import functools
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from flyball.config import expressions, templates
from flyball.config.rule_names import Problem
from flyball.config.rules import Command, Cron, Every, FileChange, Startup, Trigger, UnitEvent, Webhook
from flyball.config.section import Fault

NEEDS: Final = "pip install 'flyball-governor[rules]'"
"""What is to be done where a package is missing that a rule needs."""
CHECKED_MAX: Final = 10_000
"""Texts whose problems are remembered."""

_ONE_OF_EACH: Final[Mapping[type, Trigger]] = {
    type(trigger): trigger
    for trigger in (
        Every(every=1),
        Cron(expression=""),
        FileChange(pattern=""),
        Webhook(hook="", secret=""),
        UnitEvent(unit=""),
        Command(),
        Startup(),
    )
}
_LITERAL: Final = re.compile(r"""units\["[\w.@+-]+"\]|"[^"\\]*"|'[^'\\]*'|(?<![\w.])[1-9][0-9]{0,17}(?![\w.])""")

Path = tuple[str | int, ...]
Steps = tuple[tuple[str, str], ...]
"""The id and the kind of each action."""


def condition_faults(source: str, triggers: Sequence[Trigger]) -> Iterator[Fault]:
    """What is wrong with the condition of a rule with such triggers."""
    if not has_cel():
        yield Fault(("when",), f"a condition needs the package common-expression-language: {NEEDS}")
        return
    kinds = frozenset(map(type, triggers))
    if not _condition_problems(_likeness(source), kinds):
        return
    for problem in _condition_problems(source, kinds):
        yield Fault(("when",), problem.text, problem.column)


def template_faults(actions: Sequence[Any], triggers: Sequence[Trigger], steps: Steps) -> Iterator[Fault]:
    """What is wrong with the templates of a rule's actions, as they were given; `steps` is what they are called."""
    for place, action in enumerate(actions):
        for path, text in _with_templates(action, ()):
            # What undoes an action may use its result.
            before = steps[: place + (path[:1] == ("undo",))]
            for problem in _template_problems(text, frozenset(map(type, triggers)), before):
                yield Fault(("actions", place, *path), problem.text, problem.column)


def _likeness(source: str) -> str:
    """A condition that is right or wrong as this one is: another number, another name of a unit. Where something may be
    more than it seems, it is the same."""
    return source if "\\" in source or '"""' in source or "'''" in source else _LITERAL.sub(_like, source)


def _like(found: re.Match[str]) -> str:
    text = found[0]
    return "1" if text[0].isdigit() else 'units["x"]' if text[0] == "u" else text


@functools.lru_cache(maxsize=CHECKED_MAX)
def _condition_problems(source: str, kinds: frozenset[type]) -> Sequence[Problem]:
    return expressions.check(source, [_ONE_OF_EACH[kind] for kind in kinds])


@functools.lru_cache(maxsize=CHECKED_MAX)
def _template_problems(text: str, kinds: frozenset[type], steps: Steps) -> Sequence[Problem]:
    return templates.check(text, [_ONE_OF_EACH[kind] for kind in kinds], steps)


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
    return importlib.util.find_spec("cel") is not None
