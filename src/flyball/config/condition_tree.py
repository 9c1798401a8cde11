"""The text of a condition as a tree, with the place of each part: what checks need and the package that evaluates does
not show. It reads what that package reads; where the two disagree, the package decides.

Limits are kept here, before anything else sees the text: a deep one can end the process inside the package.
"""

import re
from dataclasses import dataclass
from typing import Final

from flyball.config.rule_names import Problem

SOURCE_MAX: Final = 4_000
"""Characters of a condition. What is longer belongs into a program."""
TOKENS_MAX: Final = 1_000
"""Names, numbers, texts and signs of a condition."""
NESTING_MAX: Final = 24
"""Parentheses, lists, calls and choices within each other. The package bears about a hundred."""
DEPTH_MAX: Final = 100
"""Parts of parts of the tree, such as the fields of one path or the terms of one sum."""
EACH_MAX: Final = 4
"""Macros over lists (all, exists, map, ...) within each other."""

MACROS: Final = {"all": (2,), "exists": (2,), "exists_one": (2,), "existsOne": (2,), "filter": (2,), "map": (2, 3)}
"""What goes over a list: with how many arguments, the variable first."""
WORDS: Final = {"true": "bool", "false": "bool", "null": "null"}
_RESERVED: Final = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "namespace"}
    | {"package", "return", "var", "void", "while"}
)
_LEVELS: Final = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
}
_MEANT: Final = {"and": "&&", "or": "||", "not": "!", "=": "==", "is": "==", "&": "&&", "|": "||"}
"""What people write who come from other languages."""

_TOKEN: Final = re.compile(
    r"""(?P<gap>[ \t\r\n\f]+|//[^\r\n]*)
    |(?P<raw>[bB]?[rR](?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\r\n]*"|'[^'\r\n]*'))
    |(?P<text>[bB]?(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\r\n]|\\[^\r\n])*"|'(?:[^'\\\r\n]|\\[^\r\n])*'))
    |(?P<double>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>&&|\|\||==|!=|<=|>=|[-<>+*/%!?:.,()\[\]{}])
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class Node:
    """One part of a condition."""

    op: str
    """A sign; or name, field, index, call, method, has, each, list, map, or a literal's kind."""
    parts: tuple["Node", ...]
    at: int
    """Where it stands, from 0: its name, its sign, its first letter."""
    value: str = ""
    """A name, a function, or a literal as it is written."""
    variable: str = ""
    """Of a macro: what each entry is called in it."""
    depth: int = 1
    span: tuple[int, int] = (0, 0)
    """Of names, fields, index and has: from the first letter of the path up to what follows it."""

    @property
    def text(self) -> str | None:
        """What a literal text says; None: it is none, or has escapes."""
        if self.op != "string":
            return None
        raw = self.value[0] in "rR"
        inner = self.value[1:] if raw else self.value
        width = 3 if inner[:3] in ('"""', "'''") and len(inner) > 5 else 1
        inner = inner[width:-width]
        return None if "\\" in inner and not raw else inner


class Broken(Exception):
    """A text that is no condition; where."""

    def __init__(self, text: str, at: int) -> None:
        super().__init__(text)
        self.problem = Problem(text, at + 1)


def tree_of(source: str) -> Node:
    """The tree of a condition. Broken says what is wrong, and where."""
    if len(source) > SOURCE_MAX:
        raise Broken(f"longer than {SOURCE_MAX} characters", SOURCE_MAX)
    return _Reader(source).whole()


class _Reader:
    """Reads one condition, one token ahead."""

    def __init__(self, source: str) -> None:
        self.tokens = _tokens(source)
        self.next = 0
        self.nesting = 0
        self.each = 0
        self.before = 0
        self.kind, self.text, self.at = self.tokens[0]

    def whole(self) -> Node:
        node = self.expression()
        if self.kind != "end":
            raise self.unexpected("the end")
        return node

    def expression(self) -> Node:
        self.nesting += 1
        if self.nesting > NESTING_MAX:
            raise Broken(f"more than {NESTING_MAX} levels within each other", self.at)
        node = self.operation(1)
        if self.text == "?" and self.kind == "sign":
            at = self.step()
            then = self.operation(1)
            self.sign(":")
            node = _node("?:", (node, then, self.expression()), at)
        self.nesting -= 1
        return node

    def operation(self, least: int) -> Node:
        """Terms with signs between them, those that bind at least so tightly."""
        left = self.unary()
        while self.kind == "sign" and (level := _LEVELS.get(self.text, 0)) >= least and level:
            sign = self.text
            at = self.step()
            right = self.operation(level + 1)
            if level <= 2 and left.op == sign:
                left = _node(sign, (*left.parts, right), left.at)
            else:
                left = _node(sign, (left, right), at)
        return left

    def unary(self) -> Node:
        if self.kind != "sign" or self.text not in ("!", "-"):
            return self.member()
        sign, signs = self.text, []
        while self.kind == "sign" and self.text == sign:
            signs.append(self.step())
        node = self.member(signed=sign == "!")
        for at in reversed(signs):
            node = _node("!" if sign == "!" else "neg", (node,), at)
        return node

    def member(self, *, signed: bool = False) -> Node:
        if signed and self.text == "-" and self.tokens[self.next + 1][0] in ("int", "double"):
            at = self.step()
            node = _node("neg", (self.primary(),), at)
        else:
            node = self.primary()
        while self.kind == "sign":
            if self.text == ".":
                self.step()
                name, at = self.name(selects=True)
                if self.is_sign("("):
                    node = self.method(node, name, at)
                else:
                    node = _node("field", (node,), at, name, (node.span[0], at + len(name)))
            elif self.text == "[":
                at = self.step()
                key = self.expression()
                node = _node("index", (node, key), at, "", (node.span[0], self.sign("]") + 1))
            elif self.text == "{" and node.op in ("name", "field"):
                raise Broken("messages cannot be made; a map is written {'key': value}", self.at)
            else:
                break
        return node

    def method(self, of: Node, name: str, at: int) -> Node:
        if name not in MACROS:
            return _node("method", (of, *self.arguments()), at, name)
        self.each += 1
        if self.each > EACH_MAX:
            raise Broken(f"more than {EACH_MAX} of {', '.join(MACROS)} within each other", at)
        arguments = self.arguments()
        self.each -= 1
        if len(arguments) not in MACROS[name]:
            raise Broken(f"{name}() takes the name of each entry and an expression", at)
        variable, *bodies = arguments
        if variable.op != "name":
            raise Broken(f"the first argument of {name}() is what each entry is called: a simple name", variable.at)
        node = _node("each", (of, *bodies), at, name)
        node.variable = variable.value
        return node

    def primary(self) -> Node:
        kind, text, at = self.kind, self.text, self.at
        if kind in ("string", "bytes", "int", "uint", "double", "bool", "null"):
            self.step()
            return _node(kind, (), at, text)
        if kind == "name" or (kind == "sign" and text == "."):
            if text == ".":
                self.step()
            name, at = self.name()
            if not self.is_sign("("):
                return _node("name", (), at, name, (at, at + len(name)))
            arguments = self.arguments()
            if name == "has" and len(arguments) == 1:
                return self.has(arguments[0], at)
            return _node("call", tuple(arguments), at, name)
        if kind == "sign" and text == "(":
            self.step()
            node = self.expression()
            self.sign(")")
            return node
        if kind == "sign" and text == "[":
            self.step()
            return _node("list", tuple(self.several("]")), at)
        if kind == "sign" and text == "{":
            self.step()
            return _node("map", tuple(self.several("}", pairs=True)), at)
        raise self.unexpected("a value")

    def has(self, argument: Node, at: int) -> Node:
        if argument.op != "field":
            raise Broken("has() takes a field, such as has(trigger.body.amount)", at)
        return _node("has", argument.parts, argument.at, argument.value, (at, self.before + 1))

    def arguments(self) -> list[Node]:
        self.sign("(")
        found: list[Node] = []
        while not self.is_sign(")"):
            if found:
                self.sign(",")
            found.append(self.expression())
        self.step()
        return found

    def several(self, end: str, *, pairs: bool = False) -> list[Node]:
        """The entries of a list or a map. A comma may follow the last one."""
        found: list[Node] = []
        while not self.is_sign(end):
            found.append(self.expression())
            if pairs:
                self.sign(":")
                found.append(self.expression())
            if not self.is_sign(","):
                break
            self.step()
        self.sign(end)
        return found

    def name(self, *, selects: bool = False) -> tuple[str, int]:
        if self.kind != "name":
            raise self.unexpected("a name")
        if self.text in _RESERVED and not selects:
            raise Broken(f"{self.text!r} is a reserved word", self.at)
        return self.text, self.step()

    def is_sign(self, sign: str) -> bool:
        return self.kind == "sign" and self.text == sign

    def sign(self, sign: str) -> int:
        if not self.is_sign(sign):
            raise self.unexpected(f"`{sign}`")
        return self.step()

    def step(self) -> int:
        """Go on; where the token stood that was left."""
        self.before = self.at
        self.next += 1
        self.kind, self.text, self.at = self.tokens[self.next]
        return self.before

    def unexpected(self, wanted: str) -> Broken:
        found = "the end" if self.kind == "end" else f"`{self.text[:20]}`"
        hint = f"; write `{_MEANT[self.text]}`" if self.text in _MEANT else ""
        return Broken(f"expected {wanted}, found {found}{hint}", self.at)


def _tokens(source: str) -> list[tuple[str, str, int]]:
    """Kind, text and place of each, and the end."""
    tokens: list[tuple[str, str, int]] = []
    for found in _TOKEN.finditer(source):
        kind, text, at = str(found.lastgroup), found[0], found.start()
        if kind == "gap":
            continue
        if kind == "name":
            kind = WORDS.get(text, "sign" if text == "in" else kind)
        elif kind in ("raw", "text"):
            kind = "bytes" if text[0] in "bB" else "string"
        elif kind == "other":
            if text in "'\"":
                raise Broken("a text is not closed", at)
            hint = f"; write `{_MEANT[text]}`" if text in _MEANT else ""
            raise Broken(f"{text!r} does not belong into a condition{hint}", at)
        tokens.append((kind, text, at))
        if len(tokens) > TOKENS_MAX:
            raise Broken(f"more than {TOKENS_MAX} names, values and signs", at)
    tokens.append(("end", "", len(source)))
    return tokens


def _node(op: str, parts: tuple[Node, ...], at: int, value: str = "", span: tuple[int, int] = (0, 0)) -> Node:
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > DEPTH_MAX:
        raise Broken(f"more than {DEPTH_MAX} terms or fields in a row", at)
    return Node(op, parts, at, value, "", depth, span)
