"""Conditions: CEL, compiled once, over names that are given. Nothing of Python can be reached, nothing is called but the
functions of CEL's core, and what a condition may cost is bounded before it is evaluated.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from flyball.config.rule_names import Problem, kinds_of, names_of
from flyball.config.rules import Trigger
from flyball.errors import FlyballError

SOURCE_MAX: Final = 4_000
"""Characters of a condition. What is longer belongs into a program."""
COMPILED_MAX: Final = 10_000
"""Conditions that are kept: as many as large sets of rules have."""


class ConditionError(FlyballError):
    """A condition cannot be evaluated: its text is wrong, or the data is not what it expects."""

    remedy = "Correct the condition, or test first: has(trigger.body.amount) && trigger.body.amount > 10"


class Condition:
    """One condition, compiled."""

    def __init__(self, source: str, program: Any) -> None:
        self.source = source
        self._program = program

    def holds(self, names: Mapping[str, Any]) -> bool:
        """Whether it holds. ConditionError if that cannot be said."""
        try:
            result = self._program.execute(dict(names))
        except KeyError as error:
            raise ConditionError(f"there is no {error}") from None
        except (ValueError, TypeError, RuntimeError, ArithmeticError) as error:
            raise ConditionError(str(error)) from None
        if not isinstance(result, bool):
            raise ConditionError("should be true or false")
        return result


@functools.lru_cache(maxsize=COMPILED_MAX)
def compiled(source: str) -> Condition:
    """A condition, ready to be evaluated. ConditionError if it is none."""
    return Condition(source, _program(source))


def check(source: str, triggers: Sequence[Trigger]) -> list[Problem]:
    """What is wrong with a condition of a rule with such triggers."""
    try:
        program = _program(source)
    except ConditionError as error:
        return [Problem(str(error), 1)]
    known = names_of(kinds_of(triggers))
    return [Problem(f"unknown name {name!r}", 1) for name in program.variables() if name not in known]


def _program(source: str) -> Any:
    if len(source) > SOURCE_MAX:
        raise ConditionError(f"longer than {SOURCE_MAX} characters")
    try:
        import cel  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConditionError(
            "conditions need the package common-expression-language, which is not installed",
            remedy="Install it: pip install 'flyball-governor[rules]'",
        ) from None
    try:
        return cel.compile(source)
    except ValueError as error:
        raise ConditionError(str(error)) from None
