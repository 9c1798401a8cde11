"""Layers: the five safeguards of which each alone ends a piece of work, and which of them a code speaks of. One table,
for whoever fires a layer and for whoever shows it."""

from collections.abc import Mapping
from typing import Final

LAYERS: Final[Mapping[int, str]] = {
    1: "steps",
    2: "preflight",
    3: "rounds and convergence",
    4: "time",
    5: "money",
}
"""What each of them bounds, for people."""

CODES: Final[Mapping[str, int]] = {
    "max_steps": 1,
    "GraphRecursionError": 1,
    "preflight": 2,
    "max_rounds": 3,
    "hard_cap_15_rounds": 3,
    "consensus": 3,
    "timeout": 4,
    "idle_timeout": 4,
    "cost_budget_exceeded": 5,
}
"""The layer that a code speaks of. What is not here (a person's order, an error, a circle) is no layer's."""


def layer_of(code: str) -> int | None:
    """The layer that fired, by the code of its reason or the name of its error; None if none did."""
    return CODES.get(code.partition(":")[0])
