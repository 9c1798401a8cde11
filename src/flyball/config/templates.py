"""Templates: `{{ trigger.body.amount }}` in the texts of actions stands for a value. A path is all that can stand
there: names, `["key"]` and `[0]`, through mappings and lists. Nothing is called, nothing of an object is reached, and
what was filled in is never read as a template again.

A text that is one template alone becomes the value itself, with its type, where any JSON may stand; in a longer text,
and where only a text may stand, a value is written as text, and what is no text as JSON. `{{{{` stands for `{{` itself.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

from flyball.config.rule_names import (
    Kind,
    Problem,
    Shape,
    kinds_of,
    names_of,
    no_such_field,
    steps_shape,
    unknown,
)
from flyball.config.rules import Deed, Trigger
from flyball.errors import FlyballError

FILLED_MAX: Final = 1024 * 1024
"""Characters of all that is filled into one deed. The words of a command have to fit into 2 MiB."""
DEPTH_MAX: Final = 100
"""Lists and mappings within each other that are filled in or written as text. Real ones have five or six."""
PATH_MAX: Final = 500
"""Characters of one template."""
PARSED_MAX: Final = 10_000
"""Texts whose parts are remembered: as many as large sets of rules have."""
SHOWN_MAX: Final = 60
"""Characters of a template that are repeated in a message."""

_ANY_JSON: Final = frozenset(("json", "arguments", "values"))
"""The fields of deeds where any JSON may stand; all others are texts, or made of texts."""
_OPEN: Final = "{{"
_CLOSE: Final = "}}"
_STEP: Final = re.compile(
    r"""\s*(?:
        (?:(?P<dot>\.)\s*)?(?P<name>[A-Za-z_][A-Za-z0-9_-]*)
        |\[\s*(?:"(?P<double>[^"\\]*)"|'(?P<single>[^'\\]*)'|(?P<place>[0-9]{1,9}))\s*\]
    )\s*""",
    re.VERBOSE,
)

_D = TypeVar("_D", bound=Deed)


class TemplateError(FlyballError):
    """A template cannot be filled in: it is not one, or what it names is not there."""

    remedy = "Correct the template, or give it what it names."


class Path(NamedTuple):
    """One template: which value it stands for."""

    steps: tuple[str | int, ...]
    column: int
    """Where its first name stands in the text, from 1."""
    columns: tuple[int, ...]
    """Where each step stands."""

    def __str__(self) -> str:
        return dotted(self.steps)


class _Broken(Exception):
    """A text is not a template; where."""

    def __init__(self, text: str, column: int) -> None:
        super().__init__(text)
        self.problem = Problem(text, column)


def escaped(text: str) -> str:
    """A text that stands for itself: whatever looks like a template in it is none."""
    return text.replace(_OPEN, _OPEN * 2)


def parse(text: str) -> tuple[str | Path, ...]:
    """The parts of a text: what stands there as it is, and paths. TemplateError if a template is not one."""
    try:
        return _parts(text)
    except _Broken as broken:
        raise TemplateError(f"{broken} (column {broken.problem.column})") from None


def check(text: str, triggers: Sequence[Trigger], steps: Sequence[tuple[str, str]]) -> list[Problem]:
    """What is wrong with the templates of a text in a rule with such triggers, after such actions (the id of each, and
    its kind: `run`, `http`, ...). What depends on data is no problem."""
    if _OPEN not in text:
        return []
    try:
        parts = _parts(text)
    except _Broken as broken:
        return [broken.problem]
    names = {**names_of(kinds_of(triggers)), "steps": steps_shape(steps)}
    return [problem for part in parts if isinstance(part, Path) for problem in _wrong(part, names)]


def fill(value: Any, names: Mapping[str, Any]) -> Any:
    """The same with all templates in its texts filled in, at any depth. TemplateError says which, and why not."""
    return _Filling(names).fill(value, 0)


def fill_text(text: str, names: Mapping[str, Any]) -> str:
    """A text with its templates filled in, which stays a text."""
    return str(_Filling(names, texts=True).fill(text, 0))


def filled(deed: _D, names: Mapping[str, Any]) -> _D:
    """A deed with all templates in its texts filled in. What has to be a text stays one."""
    filling = _Filling(names)
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(deed):
        filling.texts = field.name not in _ANY_JSON
        changed[field.name] = filling.fill(getattr(deed, field.name), 0)
    return dataclasses.replace(deed, **changed)


def dotted(steps: Sequence[str | int]) -> str:
    """A path as people write it."""
    first, *others = steps
    return str(first) + "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" if _is_word(step) else f"[{json.dumps(step)}]"
        for step in others
    )


def _is_word(step: str) -> bool:
    found = _STEP.fullmatch(step)
    return found is not None and found["name"] == step


# Reading.


@functools.lru_cache(maxsize=PARSED_MAX)
def _parts(text: str) -> tuple[str | Path, ...]:
    parts: list[str | Path] = []
    literal, at = "", 0
    while (found := text.find(_OPEN, at)) >= 0:
        literal += text[at:found]
        if text.startswith(_OPEN * 2, found):
            literal, at = literal + _OPEN, found + 4
            continue
        end = text.find(_CLOSE, found + 2)
        if end < 0:
            raise _Broken("a template is not closed: `}}` is missing; `{{{{` stands for `{{` itself", found + 1)
        if literal:
            parts.append(literal)
        parts.append(_path(text[found + 2 : end], found + 2))
        literal, at = "", end + 2
    literal += text[at:]
    if literal or not parts:
        parts.append(literal)
    return tuple(parts)


def _path(source: str, start: int) -> Path:
    """What stands between the braces."""
    shown = source.strip()[:SHOWN_MAX]
    if not shown:
        raise _Broken("a template is empty; name a value, such as {{ trigger.kind }}", start + 1)
    if len(source) > PATH_MAX:
        raise _Broken(f"a template is longer than {PATH_MAX} characters", start + 1)
    steps: list[str | int] = []
    columns: list[int] = []
    at = 0
    while at < len(source):
        found = _STEP.match(source, at)
        if found is None or not _follows(found, first=not steps):
            column = start + at + 1 + len(source[at:]) - len(source[at:].lstrip())
            text = f'{{{{ {shown} }}}} is no path: names, ["key"] and [0] can stand there, and nothing is computed'
            raise _Broken(text, column)
        name = next(group for group in ("name", "double", "single", "place") if found[group] is not None)
        steps.append(int(found[name]) if name == "place" else found[name])
        columns.append(start + found.start(name) + (1 if name in ("name", "place") else 0))
        at = found.end()
    return Path(tuple(steps), columns[0], tuple(columns))


def _follows(found: re.Match[str], *, first: bool) -> bool:
    """A path begins with a name; each further name has a point before it."""
    return found["name"] is not None and found["dot"] is None if first else found["name"] is None or bool(found["dot"])


# Checking.


def _wrong(path: Path, names: Mapping[str, Shape]) -> list[Problem]:
    first, *others = path.steps
    shape = names.get(str(first))
    if shape is None:
        return [Problem(unknown(str(first), names, "unknown name"), path.column)]
    for place, step in enumerate(others, 1):
        above = dotted(path.steps[:place])
        column = path.columns[place]
        if shape.kind is Kind.ANY:
            return []
        if isinstance(step, int) and shape.kind is not Kind.LIST:
            return [Problem(f"{above} is {_called(shape)}; it has no place [{step}]", column)]
        if isinstance(step, str) and shape.kind is not Kind.MAP:
            return [Problem(f"{above} is {_called(shape)}; it has no {step!r}", column)]
        if shape.fields is not None and step not in shape.fields:
            text = (
                unknown(str(step), shape.fields, "no earlier action is called")
                if above == "steps"
                else no_such_field(above, str(step), shape)
            )
            return [Problem(text, column)]
        below = shape.fields[str(step)] if shape.fields is not None else shape.each
        if below is None:
            return []
        shape = below
    return []


def _called(shape: Shape) -> str:
    return {Kind.STRING: "a text", Kind.INT: "a number", Kind.DOUBLE: "a number", Kind.BOOL: "true or false"}.get(
        shape.kind, f"a {shape.kind}"
    )


# Filling in.


class _Written(NamedTuple):
    value: Any
    text: str


class _Filling:
    """One deed, or one value: what was filled in so far is counted."""

    def __init__(self, names: Mapping[str, Any], *, texts: bool = False) -> None:
        self.names = names
        self.texts = texts
        """What is one template alone becomes a text too."""
        self.left = FILLED_MAX

    def fill(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if depth > DEPTH_MAX:
            raise TemplateError(f"more than {DEPTH_MAX} lists and mappings within each other cannot be filled in")
        if isinstance(value, tuple | list):
            return type(value)([self.fill(part, depth + 1) for part in value])
        if isinstance(value, Mapping):
            return {key: self.fill(part, depth + 1) for key, part in value.items()}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changed = {
                field.name: self.fill(getattr(value, field.name), depth + 1) for field in dataclasses.fields(value)
            }
            return dataclasses.replace(value, **changed)
        return value

    def _text(self, text: str) -> Any:
        if _OPEN not in text:
            return text
        parts = [part if isinstance(part, str) else self._written(part) for part in parse(text)]
        if len(parts) == 1 and not self.texts:
            return parts[0] if isinstance(parts[0], str) else parts[0].value
        return "".join(part if isinstance(part, str) else part.text for part in parts)

    def _written(self, path: Path) -> "_Written":
        """A value, and how it is written."""
        value = _plain(path, self._value(path), 0)
        written = value if isinstance(value, str) else _json(path, value)
        self.left -= len(written)
        if self.left < 0:
            raise TemplateError(f"more than {FILLED_MAX // 1024} KiB would be filled in")
        return _Written(value, written)

    def _value(self, path: Path) -> Any:
        value: Any = self.names
        for place, step in enumerate(path.steps):
            if isinstance(step, str) and isinstance(value, Mapping):
                if step not in value:
                    raise _missing(path, place, f"has no {step!r}" if place else "is not known")
            elif isinstance(step, int) and isinstance(value, list | tuple):
                if step >= len(value):
                    raise _missing(path, place, f"has {len(value)} entries, so no [{step}]")
            else:
                wanted = f"has no {step!r}" if isinstance(step, str) else f"has no place [{step}]"
                raise _missing(path, place, f"is {_named(value)}; it {wanted}")
            value = value[step]
        return value


def _missing(path: Path, place: int, what: str) -> TemplateError:
    of = dotted(path.steps[: place or 1])
    return TemplateError(f"{{{{ {str(path)[:SHOWN_MAX]} }}}}: {of[:SHOWN_MAX]} {what}")


def _named(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, Mapping):
        return "a mapping"
    kinds = {str: "a text", int: "a number", float: "a number", list: "a list", tuple: "a list"}
    return kinds.get(type(value), "something else")


def _plain(path: Path, value: Any, depth: int) -> Any:
    """A value as JSON has it: what is filled in may be sent, and kept."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if depth <= DEPTH_MAX:
        if isinstance(value, Mapping):
            return {str(key): _plain(path, part, depth + 1) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [_plain(path, part, depth + 1) for part in value]
        raise TemplateError(f"{{{{ {str(path)[:SHOWN_MAX]} }}}}: this is nothing that JSON has")
    raise TemplateError(
        f"{{{{ {str(path)[:SHOWN_MAX]} }}}}: more than {DEPTH_MAX} lists and mappings within each other"
    )


def _json(path: Path, value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except ValueError:  # a number with more digits than Python writes
        raise TemplateError(f"{{{{ {str(path)[:SHOWN_MAX]} }}}}: this number is too long to be written") from None
