"""What a condition may cost, before it is evaluated: so much work at most for so much data. The package that evaluates
has no bound of its own, and a list that is mapped is copied for each entry, so that a long one from outside would keep
the daemon busy for minutes.

Only macros (all, exists, map, ...) cost more than their data has; without one, work grows with the text and the data.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from flyball.config.condition_tree import Node

WORK_MAX: Final = 1_000_000.0
"""Pieces of work of one evaluation. One takes a quarter of a microsecond: all others wait that long."""
WEIGHT_MAX: Final = 1 << 20
"""Values of one evaluation, where work allows them: more than all that a trigger may say."""
NESTED_MAX: Final = 100
"""Lists and maps within each other in the data. Far more would end the process."""
TEXT_WEIGHT: Final = 1_000
"""Characters that weigh as much as one value."""
REGEX_WORK: Final = 400.0
"""Work of one match: the expression is compiled each time."""
STRANGE_REGEX_WORK: Final = 100_000.0
"""Work of one match with an expression that comes from outside: a wild one takes that long to be refused."""
INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1


class TooMuch(Exception):
    """Data that a condition cannot be evaluated on."""


class _Work(NamedTuple):
    cost: float
    weight: float
    """Of the result, in values."""


def weight_max(tree: Node) -> int:
    """How many values the data of a condition may have; 0: it costs too much without any."""
    if not _goes_over(tree):
        return WEIGHT_MAX
    low, high = 0, WEIGHT_MAX + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _work(tree, middle, {}).cost <= WORK_MAX else (low, middle)
    return low


def weight_of(data: Any) -> int:
    """How many values there are, at any depth. TooMuch if one cannot be taken."""
    weight = 0
    level = [data]
    for _ in range(NESTED_MAX):
        weight += len(level)
        if weight > WEIGHT_MAX:
            raise TooMuch(f"more than {WEIGHT_MAX} values")
        below: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is str:
                weight += len(value) // TEXT_WEIGHT
            elif kind is dict:
                below.extend(value.values())
            elif kind is list or kind is tuple:
                below.extend(value)
            elif kind is int and not INT_MIN <= value <= INT_MAX:
                raise TooMuch("a whole number is beyond 64 bits; send it as a text")
            elif isinstance(value, Mapping):
                below.extend(value.values())
        if not below:
            return weight
        level = below
    raise TooMuch(f"more than {NESTED_MAX} lists and maps within each other")


def _goes_over(node: Node) -> bool:
    return node.op == "each" or any(_goes_over(part) for part in node.parts)


def _work(node: Node, data: float, entries: Mapping[str, float]) -> _Work:
    """The most that a part costs and weighs, if the data has so many values, and the variables of macros so many."""
    if node.op == "name":
        return _Work(1, entries.get(node.value, data))
    if node.op == "each":
        return _each(node, data, entries)
    parts = [_work(part, data, entries) for part in node.parts]
    cost = 1 + sum(part.cost for part in parts)
    weights = [part.weight for part in parts]
    match node.op:
        case "field" | "index":
            return _Work(cost, weights[0])
        case "list" | "map":
            return _Work(cost, 1 + sum(weights))
        case "+":
            return _Work(cost + sum(weights), sum(weights))
        case "?:":
            return _Work(cost, max(weights[1:]))
        case "==" | "!=":
            return _Work(cost + min(weights), 1)
        case "in":
            return _Work(cost + weights[1], 1)
        case "method" if node.value == "matches":
            regex = REGEX_WORK if node.parts[-1].op == "string" else STRANGE_REGEX_WORK
            return _Work(cost + regex + weights[0], 1)
        case "method" | "call" if node.value != "size":
            return _Work(cost + sum(weights), max(weights, default=1))
    return _Work(cost, 1 + len(node.value) // TEXT_WEIGHT)


def _each(node: Node, data: float, entries: Mapping[str, float]) -> _Work:
    """Entries weigh no more than the list that they are in: so its weight is counted once for all of them, and for each
    one only what it costs without."""
    over = _work(node.parts[0], data, entries)
    cost, weight = over.cost, 0.0
    for body in node.parts[1:]:
        light = _work(body, data, {**entries, node.variable: 1})
        heavy = _work(body, data, {**entries, node.variable: over.weight})
        cost += over.weight * (2 + light.cost) + heavy.cost
        weight = over.weight * light.weight + heavy.weight
    if node.value == "filter":
        weight = over.weight
    if node.value in ("filter", "map"):
        return _Work(cost + over.weight * weight / 2, weight)
    return _Work(cost, 1)
