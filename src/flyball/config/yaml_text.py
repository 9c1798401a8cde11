"""YAML to what was given. Events are read one by one, nothing is constructed: so every value has its line and column,
and no file can make objects.

A file may mean harm: aliases that stand for billions of values, depth without end. Both have their limits.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import yaml

from flyball.config.given import DEPTH_MAX, Given
from flyball.errors import SettingsError

VALUES_MAX: Final = 500_000
"""Values in one text, those that aliases repeat included: a few lines of aliases can stand for billions. There are not
a hundred settings; the rest is for units and rules: ten thousand rules have two hundred thousand."""

SLOW_MAX: Final = 256 * 1024
"""Characters of a text that is read once more where something is wrong, for better words: Python alone takes seconds
for that many."""

WORD_MAX: Final = 64
"""Characters of a word that may be a number or a date, and that is remembered: longer ones are too rare."""

_MERGE: Final = "tag:yaml.org,2002:merge"
_COLLECTIONS: Final = (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
"""Tags of mappings and lists that say no more than they show."""


class _Loader(yaml.SafeLoader):
    """YAML as people know it: 1e3 is a number, as it is in JSON."""


class _QuickLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # made of what is installed
    """The same, twenty times as quick where PyYAML was built with its C library. It has other words for what is wrong:
    those are left to the other one."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)
_FIRST: Final = frozenset(_Loader.yaml_implicit_resolvers)
"""How words begin that may be more than text."""


def read_yaml(text: str, name: str, *, places: bool = True) -> Given:
    """A YAML text. SettingsError with all that is wrong in it. Without places, everything stands at the name itself:
    the text is that of an environment variable."""
    try:
        return _read(text, name, places, _QuickLoader)
    except yaml.YAMLError as error:
        wrong = error
    if len(text) <= SLOW_MAX:
        try:
            return _read(text, name, places, _Loader)
        except yaml.YAMLError as error:
            wrong = error
    raise SettingsError([_not_yaml(wrong, text, name, places)])


def _read(text: str, name: str, places: bool, kind: Any) -> Given:
    loader = kind(text)
    try:
        reader = _YamlReader(iter(loader.get_event, None), name, places)
        given = reader.read()
    finally:
        loader.dispose()
    if reader.problems:
        raise SettingsError(reader.problems)
    return given


def _not_yaml(error: yaml.YAMLError, text: str, name: str, places: bool) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
    elif isinstance(error, yaml.reader.ReaderError) and error.position < len(text):
        before = text[: error.position]
        mark = yaml.Mark(name, 0, before.count("\n"), len(before) - (before.rfind("\n") + 1), None, 0)
        said = f"the character U+{ord(text[error.position]):04X}"
    else:
        mark, said = None, str(error)
    place = f"{name}:{mark.line + 1}:{mark.column + 1}" if places and mark is not None else name
    return f"{place}: not YAML: {said}"


class _YamlReader:
    """Reads the events of a YAML text once, and gives each value its place."""

    def __init__(self, events: Iterator[Any], name: str, places: bool) -> None:
        self.problems: list[str] = []
        self._events = events
        self._name = name
        self._places = places
        self._left = VALUES_MAX
        self._anchors: dict[str, tuple[Given, int]] = {}
        self._open: dict[str, str] = {}

    def read(self) -> Given:
        """The one document of the text."""
        events = self._events
        next(events)  # The stream begins.
        if isinstance(next(events), yaml.StreamEndEvent):
            return Given(None, self._name, self._name)
        given = self._value(next(events), self._name, 0)
        next(events)  # The document ends.
        after = next(events)
        if not isinstance(after, yaml.StreamEndEvent):
            said = "expected a single document in the stream, but found another document"
            raise SettingsError([f"{self._place(after.start_mark)}: not YAML: {said}"])
        return given

    def _place(self, mark: Any) -> str:
        return f"{self._name}:{mark.line + 1}:{mark.column + 1}" if self._places else self._name

    def _value(self, event: Any, key_at: str, depth: int) -> Given:
        kind = type(event)
        if kind is yaml.AliasEvent:
            return self._alias(event, key_at, depth)
        before = self._left
        at = self._place(event.start_mark)
        self._left -= 1
        if self._left < 0:
            self._take(0, at)
        if depth > DEPTH_MAX:
            raise SettingsError([f"{at}: values lie too deep in each other (at most {DEPTH_MAX})"])
        anchor = event.anchor
        if anchor is not None:
            self._open[anchor] = at
        if kind is not yaml.ScalarEvent and event.tag not in _COLLECTIONS:
            self.problems.append(f"{at}: the tag {event.tag!r} means nothing here; leave it out")
        if kind is yaml.ScalarEvent:
            given = Given(self._scalar(event, at), at, key_at, _lead(event))
        elif kind is yaml.MappingStartEvent:
            given = Given(self._mapping(depth), at, key_at)
        else:
            given = Given(self._list(at, depth), at, key_at)
        if anchor is not None:
            self._open.pop(anchor, None)
            self._anchors[anchor] = given, before - self._left
        return given

    def _take(self, count: int, at: str) -> None:
        self._left -= count
        if self._left < 0:
            raise SettingsError([f"{at}: more than {VALUES_MAX} values, those that aliases repeat included"])

    def _alias(self, event: Any, key_at: str, depth: int) -> Given:
        """An alias stands where its anchor stands."""
        at = self._open.get(event.anchor)
        if at is None and event.anchor not in self._anchors:
            said = f"found undefined alias {event.anchor!r}"
            raise SettingsError([f"{self._place(event.start_mark)}: not YAML: {said}"])
        if at is None:
            given, size = self._anchors[event.anchor]
            self._take(size, given.at)
            if depth + _height(given) <= DEPTH_MAX:
                return given._replace(key_at=key_at)
            at = given.at
        raise SettingsError([f"{at}: values lie too deep in each other (at most {DEPTH_MAX})"])

    def _list(self, at: str, depth: int) -> list[Given]:
        values: list[Given] = []
        for event in self._events:
            if type(event) is yaml.SequenceEndEvent:
                break
            values.append(self._value(event, at, depth + 1))
        return values

    def _mapping(self, depth: int) -> dict[str, Given]:
        own: dict[str, Given] = {}
        merged: dict[str, Given] = {}
        events = self._events
        for event in events:
            kind = type(event)
            if kind is yaml.MappingEndEvent:
                break
            key_at = self._place(event.start_mark)
            is_word = kind is yaml.ScalarEvent and event.anchor is None
            word = event.value if is_word else self._word(event, key_at, depth)
            value = self._value(next(events), key_at, depth + 1)
            if word is None:
                self.problems.append(f"{key_at}: a key has to be a word")
            elif word == "<<" and _is_plain(event):
                for key, inner in self._merged(value, key_at):
                    merged.setdefault(key, inner)
            elif word in own:
                first = own[word].key_at
                self.problems.append(f"{key_at}: the key {word!r} is there twice; the first is at {first}")
            else:
                own[word] = value
        return {**merged, **own} if merged else own

    def _word(self, event: Any, key_at: str, depth: int) -> str | None:
        """A key with an anchor, or one that is an alias; None: it is no word."""
        given = self._value(event, key_at, depth + 1)
        word = event.value if type(event) is yaml.ScalarEvent else given.value
        return word if isinstance(word, str) else None

    def _merged(self, given: Given, key_at: str) -> Iterator[tuple[str, Given]]:
        """What `<<` brings in: a mapping, or several of which the first wins."""
        for source in given.value if isinstance(given.value, list) else [given]:
            if isinstance(source.value, dict):
                yield from source.value.items()
            else:
                self.problems.append(f"{key_at}: `<<` takes a mapping, or a list of mappings")

    def _scalar(self, event: Any, at: str) -> Any:
        text: str = event.value
        tag = None if event.tag == "!" else event.tag
        if tag is None and (not event.implicit[0] or (text and text[0] not in _FIRST)):
            return text
        try:
            return _constructed(text, tag) if tag is not None or len(text) > WORD_MAX else _known(text)
        except yaml.MarkedYAMLError as error:
            self.problems.append(f"{at}: {error.problem}")
        except ValueError as error:
            self.problems.append(f"{at}: {error}")
        return None


def _is_plain(event: Any) -> bool:
    return type(event) is yaml.ScalarEvent and (event.tag == _MERGE or (event.tag is None and event.implicit[0]))


def _height(given: Given) -> int:
    """How deep the values in it lie. As many are looked at as were taken for it."""
    inner = given.value.values() if isinstance(given.value, dict) else given.value
    return 1 + max(map(_height, inner), default=0) if isinstance(given.value, dict | list) and inner else 0


def _lead(event: Any) -> int:
    """How many columns its text begins after its place; -1: it does not stand there as it is."""
    start, end = event.start_mark, event.end_mark
    if start.line != end.line or event.style in ("|", ">"):
        return -1
    lead = 1 if event.style else 0
    return lead if end.column - start.column - 2 * lead == len(event.value) else -1


_RESOLVER: Final = _Loader("")


def _constructed(text: str, tag: str | None = None) -> Any:
    """A word as what it means: a number, a date, yes or no, nothing, or text."""
    meant = tag or _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]  # of PyYAML
    return yaml.constructor.SafeConstructor().construct_object(yaml.ScalarNode(meant, text))


_known = lru_cache(maxsize=4_096)(_constructed)
