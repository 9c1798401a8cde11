"""How many rounds and how much time a question deserves: an easy one should not be talked about for an hour.

All of it is optional, and all of it is a starting point: whoever knows better gives the numbers. No question gets more
rounds than the cap.
"""

import enum
import re
from typing import Final

from flyball.core.time import MINUTE, Span, seconds
from flyball.policies.rounds import ROUNDS_LEAST

WORDS_STEP: Final = 40
"""Words that make a question one point harder, two points at most: what a person says in one breath, and in two."""

POINTS_MAX: Final = 2
"""Points for each sign of difficulty: none of them alone makes a question complex."""

COMPLEX: Final = 3
"""Points from which it is complex: at least two signs of it."""

_PARTS: Final = re.compile(r"[?？;]|^\s*(?:[-*•]|\d+[.)])\s", re.MULTILINE)
"""Ends of questions, and beginnings of items of a list."""
_WEIGHING: Final = re.compile(
    r"\b(?:or|versus|vs|whether|compared?|trade-?offs?|pros|cons|balance|instead|alternatives?|priorit\w+)\b",
    re.IGNORECASE,
)


class Complexity(enum.StrEnum):
    """How hard a question is."""

    SIMPLE = "simple"
    MODERATE = "moderate"
    COMPLEX = "complex"


ROUNDS: Final = {Complexity.SIMPLE: ROUNDS_LEAST, Complexity.MODERATE: 7, Complexity.COMPLEX: 10}
DEADLINES: Final[dict[Complexity, Span]] = {
    Complexity.SIMPLE: 15 * MINUTE,
    Complexity.MODERATE: 30 * MINUTE,
    Complexity.COMPLEX: 60 * MINUTE,
}


def rounds_for(complexity: str) -> int:
    """Rounds: simple 5, moderate 7, complex 10."""
    return ROUNDS[_known(complexity)]


def deadline_for(complexity: str) -> float:
    """Seconds: simple 900, moderate 1800, complex 3600."""
    return seconds(DEADLINES[_known(complexity)])


def complexity_of(question: str) -> Complexity:
    """A guess by the looks of the question, in points: one for every 40 words, one for every part beyond the first (a
    question mark, a semicolon, an item of a list), one for every word that weighs things up (`or`, `versus`, `whether`,
    `trade-off`, …); two at most of each. No point is simple, three are complex. The words are English; the rest holds
    in any language."""
    points = (
        min(POINTS_MAX, len(question.split()) // WORDS_STEP)
        + min(POINTS_MAX, max(0, len(_PARTS.findall(question)) - 1))
        + min(POINTS_MAX, len(_WEIGHING.findall(question)))
    )
    if points >= COMPLEX:
        return Complexity.COMPLEX
    return Complexity.MODERATE if points else Complexity.SIMPLE


def _known(complexity: str) -> Complexity:
    try:
        return Complexity(complexity)
    except ValueError:
        known = ", ".join(Complexity)
        raise ValueError(f"complexity {complexity!r} is not known; there are {known}") from None
