"""What a condition reads, and the condition with a plain variable in place of each path: `trigger.body.amount > 10`
becomes `_1 > 10`. So a large body, or many units, cost nothing if one value of them is read: most of an evaluation is
handing values over.

A path that is not there gives no variable. That is an error where it is needed and none where it is not, as it is with
the path itself.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from flyball.config.condition_kinds import TYPES
from flyball.config.condition_tree import Node

NOTHING: Final = object()
"""What is not there."""
_KEY: Final = r"""\s*\.\s*\w+|\s*\[\s*(?:"[^"\\]*"|'[^'\\]*')\s*\]"""
_PATH: Final = re.compile(rf"(?:has\s*\(\s*)?\w+(?:{_KEY})*(?:\s*\))?")
"""A path as nearly all are written. Another one (with comments, in parts of parentheses) is left as it is."""


class Read(NamedTuple):
    """One value that a condition reads."""

    variable: str
    path: tuple[str, ...]
    asks: bool
    """Only whether it is there."""

    def value(self, names: Mapping[str, Any]) -> Any:
        """What is there; NOTHING if that is nothing."""
        value: Any = names
        *above, last = self.path
        for name in above:
            if not isinstance(value, dict | Mapping) or name not in value:
                return NOTHING
            value = value[name]
        if not isinstance(value, dict | Mapping):
            return NOTHING
        if self.asks:
            return last in value
        return value.get(last, NOTHING)

    def lacks(self, names: Mapping[str, Any]) -> tuple[str, Any, str]:
        """Where the path ends too early: so far, what is there, and the name that it does not have."""
        value: Any = names
        for place, name in enumerate(self.path):
            if not isinstance(value, Mapping) or name not in value:
                return ".".join(self.path[:place]), value, name
            value = value[name]
        return ".".join(self.path), value, ""


def with_variables(source: str, tree: Node) -> tuple[str, tuple[Read, ...]]:
    """The condition with variables, and what each stands for."""
    prefix = "_"
    while re.search(rf"\b{prefix}\d", source):
        prefix += "_"
    reads: dict[tuple[tuple[str, ...], bool], Read] = {}
    parts: list[str] = []
    at = 0
    for node, path in sorted(_paths(tree, frozenset()), key=lambda found: found[0].span):
        start, end = node.span
        asks = node.op == "has"
        if _PATH.fullmatch(source, start, end) is None:
            reads[path[:1], False] = Read(path[0], path[:1], False)
            continue
        read = reads.setdefault((path, asks), Read(f"{prefix}{len(reads)}", path, asks))
        parts += source[at:start], read.variable
        at = end
    return "".join((*parts, source[at:])), tuple(reads.values())


def _paths(node: Node, variables: frozenset[str]) -> Iterator[tuple[Node, tuple[str, ...]]]:
    """The longest paths from names on that are no variables of macros."""
    path = _path_of(node)
    if path is not None:
        if path[0] not in variables and path[0] not in TYPES:
            yield node, path
        return
    inner = variables | {node.variable} if node.op == "each" else variables
    for place, part in enumerate(node.parts):
        yield from _paths(part, inner if place else variables)


def _path_of(node: Node) -> tuple[str, ...] | None:
    """The names from a root to a value; None: it is no path, or not a fixed one."""
    if node.op == "name":
        return (node.value,)
    if node.op not in ("field", "has", "index"):
        return None
    name = node.parts[1].text if node.op == "index" else node.value
    above = _path_of(node.parts[0])
    return None if above is None or name is None else (*above, name)
