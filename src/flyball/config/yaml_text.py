"""YAML to what was given. Nodes are composed, not constructed: so every value has its line and column, and no file can
make objects.

A file may mean harm: aliases that stand for billions of values, depth without end. Both have their limits.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import yaml

from flyball.config.given import DEPTH_MAX, Given
from flyball.errors import SettingsError

VALUES_MAX: Final = 50_000
"""Values in one text, those that aliases repeat included: a few lines of aliases can stand for billions. There are not
a hundred settings; the rest is for units."""


class _Loader(yaml.SafeLoader):
    """YAML as people know it: 1e3 is a number, as it is in JSON."""


class _QuickLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # made of what is installed
    """The same, twenty times as quick where PyYAML was built with its C library. It overflows the stack on what lies
    deep, and has other words for what is wrong: both are left to the other one."""


for _loader in (_Loader, _QuickLoader):
    _loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )


def read_yaml(text: str, name: str, *, places: bool = True) -> Given:
    """A YAML text. SettingsError with all that is wrong in it. Without places, everything stands at the name itself:
    the text is that of an environment variable."""

    def place(mark: yaml.Mark) -> str:
        return f"{name}:{mark.line + 1}:{mark.column + 1}" if places else name

    try:
        root = _composed(text)
        reader = _YamlReader(place)
        given = reader.read(root, name) if root is not None else Given(None, name, name)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise SettingsError([f"{place(mark) if mark else name}: not YAML: {said}"]) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        mark = yaml.Mark(name, 0, before.count("\n"), len(before) - (before.rfind("\n") + 1), None, 0)
        raise SettingsError([f"{place(mark)}: not YAML: the character U+{ord(text[error.position]):04X}"]) from None
    except RecursionError:
        raise SettingsError([f"{name}: values lie too deep in each other (at most {DEPTH_MAX})"]) from None
    if reader.problems:
        raise SettingsError(reader.problems)
    return given


def _composed(text: str) -> yaml.Node | None:
    root: yaml.Node | None
    try:
        root = yaml.compose(text, Loader=_QuickLoader if _is_shallow(text) else _Loader)
    except yaml.YAMLError:
        root = yaml.compose(text, Loader=_Loader)
    return root


def _is_shallow(text: str) -> bool:
    """Whether nothing lies too deep: found out without going there."""
    depth = 0
    for event in yaml.parse(text, Loader=_QuickLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                return False
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return True


class _YamlReader:
    """Walks the nodes of a YAML text once, and gives each value its place."""

    def __init__(self, place: Callable[[yaml.Mark], str]) -> None:
        self.problems: list[str] = []
        self._place = place
        self._left = VALUES_MAX
        self._scalars = yaml.constructor.SafeConstructor()

    def read(self, node: yaml.Node, key_at: str, depth: int = 0) -> Given:
        at = self._place(node.start_mark)
        self._left -= 1
        if self._left < 0:
            raise SettingsError([f"{at}: more than {VALUES_MAX} values, those that aliases repeat included"])
        if depth > DEPTH_MAX:
            raise SettingsError([f"{at}: values lie too deep in each other (at most {DEPTH_MAX})"])
        if isinstance(node, yaml.MappingNode):
            return Given(self._mapping(node, depth), at, key_at)
        if isinstance(node, yaml.SequenceNode):
            return Given([self.read(item, at, depth + 1) for item in node.value], at, key_at)
        return Given(self._scalar(node, at), at, key_at)

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Given]:
        own: dict[str, Given] = {}
        merged: dict[str, Given] = {}
        for key_node, value_node in node.value:
            key_at = self._place(key_node.start_mark)
            if key_node.tag == "tag:yaml.org,2002:merge":
                for key, value in self._merged(value_node, key_at, depth):
                    merged.setdefault(key, value)
            elif not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(f"{key_at}: a key has to be a word")
            elif key_node.value in own:
                first = own[key_node.value].key_at
                self.problems.append(f"{key_at}: the key {key_node.value!r} is there twice; the first is at {first}")
            else:
                own[key_node.value] = self.read(value_node, key_at, depth + 1)
        return {**merged, **own}

    def _merged(self, node: yaml.Node, key_at: str, depth: int) -> Iterator[tuple[str, Given]]:
        """What `<<` brings in: a mapping, or several of which the first wins."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in sources:
            if isinstance(source, yaml.MappingNode):
                yield from self.read(source, key_at, depth + 1).value.items()
            else:
                self.problems.append(f"{key_at}: `<<` takes a mapping, or a list of mappings")

    def _scalar(self, node: yaml.Node, at: str) -> Any:
        try:
            return self._scalars.construct_object(node)
        except yaml.MarkedYAMLError as error:
            self.problems.append(f"{at}: {error.problem}")
        except ValueError as error:
            self.problems.append(f"{at}: {error}")
        return None
