"""Conditions: CEL, compiled once. Only the values that a condition names are given to it, and as plain data: nothing of
Python can be reached, nothing is called but functions of CEL's core, and what it may cost is bounded before it is
evaluated.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from flyball.config.condition_cost import TooMuch, weight_max, weight_of
from flyball.config.condition_kinds import kinds_in
from flyball.config.condition_paths import NOTHING, with_variables
from flyball.config.condition_tree import SOURCE_MAX, Broken, Node, tree_of
from flyball.config.rule_names import Problem, kinds_of, names_of
from flyball.config.rules import Trigger
from flyball.errors import FlyballError

COMPILED_MAX: Final = 20_000
"""Conditions that are kept: twice as many as the largest sets of rules have, since a changed set replaces another."""
SAID_MAX: Final = 200
"""Characters of what the package says of an error."""

_PLACE: Final = re.compile(r"<input>:(\d+):(\d+): (?:Syntax error: )?(.*)")
"""How the package says where something is wrong: line and column."""
_NO_SUCH: Final = re.compile(r"Undefined variable or function: '(\w+)'")
_NUMBER: Final = re.compile(r"(?<![\w.])[0-9]{1,18}(?![\w.])")
_TEXT: Final = re.compile(r"""("[^"]*"|'[^']*')""")
_HARD: Final = re.compile(r"""\\|//|\"{3}|'{3}""")
"""Where what is a text and what is not takes more to be seen."""


class ConditionError(FlyballError):
    """A condition cannot be evaluated: its text is wrong, or the data is not what it expects."""

    remedy = "Correct the condition, or ask first whether it is there: has(trigger.body.amount) && ..."


class Condition:
    """One condition, compiled."""

    def __init__(self, source: str, tree: Node) -> None:
        self.source = source
        self._weight_max = _weight_max(tree)
        written, self._reads = with_variables(source, tree)
        self._program = _program(written)

    @property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """The paths of all that it looks at."""
        return tuple(read.path for read in self._reads)

    def holds(self, names: Mapping[str, Any]) -> bool:
        """Whether it holds. ConditionError if that cannot be said."""
        given = {read.variable: value for read in self._reads if (value := read.value(names)) is not NOTHING}
        try:
            weight = weight_of(given)
        except TooMuch as error:
            raise ConditionError(f"{error}") from None
        if weight > self._weight_max:
            raise ConditionError(f"there is too much data for it: {weight} values, at most {self._weight_max}")
        try:
            result = self._program.execute(given)
        except Exception as error:  # noqa: BLE001 - the package raises whatever fits; all of it is about the condition
            raise ConditionError(self._why(error, names)) from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # what a fault in the package itself is, in Python
                raise
            raise ConditionError(f"it cannot be evaluated: {error}"[:SAID_MAX]) from None
        if not isinstance(result, bool):
            raise ConditionError(f"it should be true or false, and is {_called(result)}")
        return result

    def _why(self, error: Exception, names: Mapping[str, Any]) -> str:
        """What went wrong, for people. Values are not repeated: nobody knows what is in them."""
        if found := _NO_SUCH.match(str(error)):
            read = next((read for read in self._reads if read.variable == found[1]), None)
            if read is None:  # all functions are known: it is called with what it does not take
                return f"{found[1]}() cannot take this: {self._kinds(names)}"[:SAID_MAX]
            above, value, name = read.lacks(names)
            what = "" if isinstance(value, Mapping) else f" is {_called(value)}; it"
            return f"{above}{what} has no {name!r}" if above else f"{name} is not known"
        if isinstance(error, KeyError):
            return f"there is no {error}"
        if isinstance(error, TypeError):
            return f"its values do not go together: {self._kinds(names) or error}"[:SAID_MAX]
        return str(error).partition(". ")[0][:SAID_MAX]

    def _kinds(self, names: Mapping[str, Any]) -> str:
        there = ((read, read.value(names)) for read in self._reads if not read.asks)
        return "; ".join(f"{'.'.join(read.path)} is {_called(value)}" for read, value in there if value is not NOTHING)


@functools.lru_cache(maxsize=COMPILED_MAX)
def compiled(source: str) -> Condition:
    """A condition, ready to be evaluated. ConditionError if it is none."""
    try:
        return Condition(source, _tree(source))
    except Broken as broken:
        raise ConditionError(f"{broken} (column {broken.problem.column})") from None


def check(source: str, triggers: Sequence[Trigger]) -> list[Problem]:
    """What is wrong with a condition of a rule with such triggers. What depends on data is no problem."""
    kinds = kinds_of(triggers)
    return list(_checked(_alike(source), kinds) and _checked(source, kinds))


def _alike(source: str) -> str:
    """The same with other numbers: it is right if that is right. Large sets of rules have many that are alike."""
    if len(source) > SOURCE_MAX or _HARD.search(source):
        return source
    parts = _TEXT.split(source)
    parts[::2] = [_NUMBER.sub("0", part) for part in parts[::2]]
    return "".join(parts)


@functools.lru_cache(maxsize=COMPILED_MAX)
def _checked(source: str, kinds: tuple[str, ...]) -> tuple[Problem, ...]:
    try:
        tree = _tree(source)
    except Broken as broken:
        return (broken.problem,)
    found = kinds_in(tree, names_of(kinds))
    if found.problems:
        return tuple(found.problems)
    try:
        _weight_max(tree)
        _program(source)
    except Broken as broken:
        return (broken.problem,)
    except ConditionError as error:
        return (Problem(f"{error}", 1),)
    said = [(sample, _fault(sample.source)) for sample in found.samples]
    return tuple(Problem(f"no {sample.what}: {fault}", sample.column) for sample, fault in said if fault)


@functools.lru_cache(maxsize=1)  # it is checked, then compiled
def _tree(source: str) -> Node:
    return tree_of(source)


def _weight_max(tree: Node) -> int:
    most = weight_max(tree)
    if not most:
        raise Broken("this goes over too many entries, even without data", 0)
    return most


def _program(source: str) -> Any:
    try:
        return _cel().compile(source)
    except (ValueError, UnicodeError) as error:
        found = _PLACE.search(str(error))
        if found is None:
            raise Broken(str(error)[:SAID_MAX], 0) from None
        lines = source.split("\n")[: int(found[1]) - 1]
        raise Broken(found[3][:SAID_MAX], sum(len(line) + 1 for line in lines) + int(found[2]) - 1) from None


def _fault(source: str) -> str:
    """What is wrong with an expression of literals alone."""
    try:
        _cel().compile(source).execute({})
    except Exception as error:  # noqa: BLE001 - see above
        said = str(error).partition(". Check")[0].splitlines()[-1]
        return said.rpartition("error: ")[2][:SAID_MAX]
    return ""


def _cel() -> ModuleType:
    try:
        import cel  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConditionError(
            "conditions need the package common-expression-language: pip install 'flyball-governor[rules]'",
            remedy="Install it: pip install 'flyball-governor[rules]'",
        ) from None
    return cel


def _called(value: Any) -> str:
    kinds = {bool: "a bool", int: "an int", float: "a double", str: "a string", list: "a list", dict: "a map"}
    return "null" if value is None else kinds.get(type(value), f"a {type(value).__name__}")
