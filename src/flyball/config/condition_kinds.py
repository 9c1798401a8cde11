"""What kinds of values go together in a condition, as far as that is known before there is data. What may be right is
never reported: a value that comes from outside may be anything.

CEL has no kinds of its own before it is evaluated; what goes together here is what it takes then.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from flyball.config.condition_tree import MACROS, Node
from flyball.config.rule_names import ANY, Kind, Problem, Shape, no_such_field, unknown

SHOWN_MAX: Final = 40
"""Characters of a text that are repeated in a message."""

NUMBERS: Final = frozenset((Kind.INT, Kind.UINT, Kind.DOUBLE))
ORDERED: Final = frozenset((*NUMBERS, Kind.BOOL, Kind.STRING, Kind.BYTES, Kind.TIMESTAMP, Kind.DURATION))
SUMS: Final[Mapping[tuple[str, Kind, Kind], Kind]] = {
    **{(sign, kind, kind): kind for sign in "+-*/" for kind in NUMBERS},
    **{("%", kind, kind): kind for kind in (Kind.INT, Kind.UINT)},
    **{("+", kind, kind): kind for kind in (Kind.STRING, Kind.BYTES, Kind.LIST, Kind.DURATION)},
    ("+", Kind.TIMESTAMP, Kind.DURATION): Kind.TIMESTAMP,
    ("-", Kind.TIMESTAMP, Kind.TIMESTAMP): Kind.DURATION,
    ("-", Kind.TIMESTAMP, Kind.DURATION): Kind.TIMESTAMP,
    ("-", Kind.DURATION, Kind.DURATION): Kind.DURATION,
}
"""What comes of two kinds."""


class Function(NamedTuple):
    """What a function takes and gives."""

    gives: Kind
    takes: tuple[frozenset[Kind], ...]
    """Of each argument; of a method, the value before the point first."""
    called: bool = False
    """`name(value)`."""
    method: bool = False
    """`value.name()`."""


def _kinds(*kinds: Kind) -> frozenset[Kind]:
    return frozenset(kinds)


_TEXT: Final = _kinds(Kind.STRING)
_TIME: Final = _kinds(Kind.TIMESTAMP)
_SPAN: Final = _kinds(Kind.TIMESTAMP, Kind.DURATION)
_MEASURED: Final = _kinds(Kind.STRING, Kind.BYTES, Kind.LIST, Kind.MAP)
_TO_NUMBER: Final = _kinds(*NUMBERS, Kind.STRING)
_ANYTHING: Final = frozenset(Kind)
FUNCTIONS: Final[Mapping[str, Function]] = {
    "size": Function(Kind.INT, (_MEASURED,), called=True, method=True),
    **{
        name: Function(Kind.BOOL, (_TEXT, _TEXT), method=True)
        for name in ("contains", "startsWith", "endsWith", "matches")
    },
    "string": Function(
        Kind.STRING, (_kinds(*NUMBERS, Kind.STRING, Kind.BYTES, Kind.TIMESTAMP, Kind.DURATION),), called=True
    ),
    "bytes": Function(Kind.BYTES, (_kinds(Kind.STRING, Kind.BYTES),), called=True),
    "double": Function(Kind.DOUBLE, (_TO_NUMBER,), called=True),
    "int": Function(Kind.INT, (_TO_NUMBER,), called=True),
    "uint": Function(Kind.UINT, (_TO_NUMBER,), called=True),
    "timestamp": Function(Kind.TIMESTAMP, (_kinds(Kind.STRING, Kind.TIMESTAMP),), called=True),
    "duration": Function(Kind.DURATION, (_kinds(Kind.STRING, Kind.DURATION),), called=True),
    **{
        name: Function(Kind.INT, (_TIME,), method=True)
        for name in ("getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate", "getDayOfWeek")
    },
    **{
        name: Function(Kind.INT, (_SPAN,), method=True)
        for name in ("getHours", "getMinutes", "getSeconds", "getMilliseconds")
    },
    "type": Function(Kind.TYPE, (_ANYTHING,), called=True),
    "dyn": Function(Kind.ANY, (_ANYTHING,), called=True),
}
"""All functions of a condition: those of CEL's core that the package has."""
TYPES: Final = ("bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type")
"""What `type(value)` can be compared with."""
_LITERALS: Final = {kind.value: kind for kind in Kind}
_RIGHT_WORDS: Final = {"True": "true", "False": "false", "None": "null"}


class Sample(NamedTuple):
    """A text within a condition that is a language of its own: whether it is right is seen when it is evaluated."""

    source: str
    what: str
    column: int


class Found(NamedTuple):
    """What is known of a condition."""

    problems: list[Problem]
    samples: list[Sample]


def kinds_in(tree: Node, names: Mapping[str, Shape]) -> Found:
    """What is wrong with the names and kinds of a condition."""
    checking = _Checking()
    whole = checking.shape(tree, {**{name: Shape(Kind.TYPE) for name in TYPES}, **names})
    if whole.kind not in (Kind.ANY, Kind.BOOL) and not checking.found.problems:
        checking.report(f"a condition should be true or false; this is {_a(whole)}", tree)
    return checking.found


class _Checking:
    """One walk over a tree."""

    def __init__(self) -> None:
        self.found = Found([], [])

    def report(self, text: str, node: Node) -> None:
        self.found.problems.append(Problem(text, node.at + 1))

    def shape(self, node: Node, names: Mapping[str, Shape]) -> Shape:
        """What is known of a part; what is wrong with it is reported on the way."""
        match node.op:
            case "name":
                return self._name(node, names)
            case "field" | "has":
                found = self._field(node, self.shape(node.parts[0], names))
                return _BOOL if node.op == "has" else found
            case "each":
                return self._each(node, names)
            case op if op in _LITERALS and not node.parts and op not in ("list", "map"):
                return _plain(_LITERALS[op])
        parts = [self.shape(part, names) for part in node.parts]
        match node.op:
            case "index":
                return self._index(node, parts[0], parts[1])
            case "call" | "method":
                return self._call(node, parts)
            case "list":
                return Shape(Kind.LIST, each=functools.reduce(_join, parts) if parts else ANY)
            case "map":
                return _plain(Kind.MAP)
            case "&&" | "||" | "!":
                for part, shape in zip(node.parts, parts, strict=True):
                    self._is_bool(part, shape, f"`{node.op}`")
                return _BOOL
            case "neg":
                if parts[0].kind not in (Kind.ANY, Kind.INT, Kind.DOUBLE):
                    self.report(f"`-` cannot take {_a(parts[0])}", node)
                return parts[0] if parts[0].kind in (Kind.INT, Kind.DOUBLE) else ANY
            case "?:":
                self._is_bool(node.parts[0], parts[0], "`?`")
                return _join(parts[1], parts[2])
            case "==" | "!=":
                self._is_equal(node, parts[0], parts[1], node.parts[1])
                self._is_equal(node, parts[1], parts[0], node.parts[0])
                return _BOOL
            case "in":
                return self._in(node, parts[0], parts[1])
            case "<" | "<=" | ">" | ">=":
                return self._ordered(node, parts[0], parts[1])
        return self._sum(node, parts[0], parts[1])

    def _name(self, node: Node, names: Mapping[str, Shape]) -> Shape:
        found = names.get(node.value)
        if found is None:
            meant = _RIGHT_WORDS.get(node.value)
            known = [name for name in names if name not in TYPES]
            text = (
                f"unknown name {node.value!r}; write {meant}" if meant else unknown(node.value, known, "unknown name")
            )
            self.report(text, node)
        return found or ANY

    def _field(self, node: Node, of: Shape) -> Shape:
        self._is_outside(node, node.value)
        if of.kind is Kind.ANY:
            return ANY
        if of.kind is not Kind.MAP:
            self.report(f"{_a(of)} has no {node.value!r}", node)
            return ANY
        return self._entry(node, of, node.value)

    def _is_outside(self, node: Node, name: str) -> None:
        """Data has no such names: whoever writes one wants something else than data."""
        if len(name) > 4 and name.startswith("__") and name.endswith("__"):
            self.report(f"{name[:SHOWN_MAX]!r} cannot be reached: a condition sees data alone", node)

    def _entry(self, node: Node, of: Shape, name: str | None) -> Shape:
        """What a map has under a name; None: it is not known which."""
        if of.fields is None or name is None:
            return of.each or ANY
        if name not in of.fields:
            path = _path(node.parts[0])
            self.report(no_such_field(path, name, of), node)
        return of.fields.get(name, ANY)

    def _index(self, node: Node, of: Shape, key: Shape) -> Shape:
        name = node.parts[1].text
        self._is_outside(node.parts[1], name or "")
        if of.kind is Kind.LIST:
            if key.kind not in (Kind.ANY, Kind.INT, Kind.UINT):
                self.report(f"a list has places, not {_a(key)}: [0] is the first", node.parts[1])
            return of.each or ANY
        if of.kind is Kind.MAP:
            if key.kind not in (Kind.ANY, Kind.STRING) and (of.fields is not None or of.each is not None):
                self.report(f"{_path(node.parts[0])} has names, not {_a(key)}", node.parts[1])
                return ANY
            place = Node("field", node.parts[:1], node.parts[1].at)
            return self._entry(place, of, name)
        if of.kind is not Kind.ANY:
            self.report(f"{_a(of)} has no places or names", node)
        return ANY

    def _each(self, node: Node, names: Mapping[str, Shape]) -> Shape:
        over = self.shape(node.parts[0], names)
        if over.kind not in (Kind.ANY, Kind.LIST, Kind.MAP):
            self.report(f"{node.value}() goes over a list or a map, not over {_a(over)}", node)
        entry = (over.each or ANY) if over.kind is Kind.LIST else ANY
        inner = {**names, node.variable: entry}
        bodies = [self.shape(body, inner) for body in node.parts[1:]]
        tests = bodies if node.value != "map" else bodies[:-1]
        for body, shape in zip(node.parts[1:], tests, strict=False):
            self._is_bool(body, shape, f"{node.value}()")
        if node.value == "map":
            return Shape(Kind.LIST, each=bodies[-1])
        return Shape(Kind.LIST, each=entry) if node.value == "filter" else _BOOL

    def _call(self, node: Node, parts: Sequence[Shape]) -> Shape:
        function = FUNCTIONS.get(node.value)
        method = node.op == "method"
        if function is None:
            known = [name for name, one in FUNCTIONS.items() if (one.method if method else one.called)]
            self.report(unknown(node.value, [*known, *(MACROS if method else ("has",))], "unknown function"), node)
            return ANY
        fits = function.method if method else function.called
        if not fits or len(parts) != len(function.takes):
            self.report(f"{node.value} is called so: {_usage(node.value, function)}", node)
        elif not all(part.kind in (Kind.ANY, *taken) for part, taken in zip(parts, function.takes, strict=True)):
            given = ", ".join(_a(part) for part in parts)
            self.report(f"{node.value}() cannot take {given}; it is called so: {_usage(node.value, function)}", node)
        elif node.parts[-1].op == "string" and node.value in ("matches", "timestamp", "duration"):
            literal = node.parts[-1]
            source = f"''.matches({literal.value})" if method else f"{node.value}({literal.value})"
            what = "regular expression" if method else node.value
            self.found.samples.append(Sample(source, what, literal.at + 1))
        return _plain(function.gives)

    def _is_bool(self, node: Node, shape: Shape, who: str) -> None:
        if shape.kind not in (Kind.ANY, Kind.BOOL):
            self.report(f"{who} takes what is true or false, not {_a(shape)}", node)

    def _is_equal(self, node: Node, one: Shape, other: Shape, literal: Node) -> None:
        """One side, beside a literal or not. Both are asked, and only one reports."""
        if not _comparable(one, other):
            if literal is node.parts[1]:
                self.report(f"{_a(one)} and {_a(other)} are never equal", node)
            return
        self._can_be(one, literal)

    def _can_be(self, shape: Shape, literal: Node) -> None:
        text = literal.text
        if shape.words and text is not None and text not in shape.words:
            self.report(unknown(text[:SHOWN_MAX], shape.words, "this is never"), literal)

    def _in(self, node: Node, one: Shape, many: Shape) -> Shape:
        if many.kind not in (Kind.ANY, Kind.LIST, Kind.MAP):
            self.report(f"`in` looks into a list or a map, not into {_a(many)}", node)
        elif many.kind is Kind.LIST and many.each is not None and not _comparable(one, many.each):
            self.report(f"{_a(one)} is never in a list of {many.each.kind}s", node)
        elif node.parts[1].op == "list":
            for literal in node.parts[1].parts:
                self._can_be(one, literal)
        return _BOOL

    def _ordered(self, node: Node, left: Shape, right: Shape) -> Shape:
        known = [shape for shape in (left, right) if shape.kind is not Kind.ANY]
        if any(shape.kind not in ORDERED for shape in known) or not _comparable(left, right):
            self.report(f"{_a(left)} and {_a(right)} cannot be compared by `{node.op}`", node)
        return _BOOL

    def _sum(self, node: Node, left: Shape, right: Shape) -> Shape:
        gives = {
            kind
            for (sign, one, other), kind in SUMS.items()
            if sign == node.op and left.kind in (Kind.ANY, one) and right.kind in (Kind.ANY, other)
        }
        if not gives:
            hint = "; make them the same: double(...)" if {left.kind, right.kind} <= NUMBERS else ""
            hint = (
                "; make it a text: string(...)" if node.op == "+" and Kind.STRING in (left.kind, right.kind) else hint
            )
            self.report(f"`{node.op}` cannot take {_a(left)} and {_a(right)}{hint}", node)
        return _plain(gives.pop()) if len(gives) == 1 else ANY


@functools.cache
def _plain(kind: Kind) -> Shape:
    return Shape(kind) if kind is not Kind.ANY else ANY


_BOOL: Final = _plain(Kind.BOOL)


def _join(one: Shape, other: Shape) -> Shape:
    """What is known of a value that is one or the other."""
    if one == other:
        return one
    return _plain(one.kind) if one.kind is other.kind else ANY


def _comparable(one: Shape, other: Shape) -> bool:
    kinds = {one.kind, other.kind}
    return len(kinds) == 1 or bool(kinds & {Kind.ANY, Kind.NULL}) or kinds <= NUMBERS


def _a(shape: Shape) -> str:
    """A kind, with its article."""
    if shape.kind is Kind.ANY:
        return "anything"
    return f"{'an' if shape.kind in (Kind.INT,) else 'a'} {shape.kind}"


def _usage(name: str, function: Function) -> str:
    first, *others = ("any" if len(kinds) == len(Kind) else " or ".join(sorted(kinds)) for kinds in function.takes)
    forms = []
    if function.called:
        forms.append(f"{name}({', '.join((first, *others))})")
    if function.method:
        forms.append(f"({first}).{name}({', '.join(others)})")
    return " or ".join(forms)


def _path(node: Node) -> str:
    """What people call a part: its names, or that it is a value."""
    if node.op == "name":
        return node.value
    if node.op == "field":
        return f"{_path(node.parts[0])}.{node.value}"
    if node.op == "index" and node.parts[1].text is not None:
        return f'{_path(node.parts[0])}["{node.parts[1].text[:SHOWN_MAX]}"]'
    return "this"
