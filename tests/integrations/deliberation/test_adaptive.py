"""Rounds and time by the complexity of a question."""

import pytest

from flyball.integrations.deliberation import Complexity, complexity_of, deadline_for, rounds_for
from flyball.policies import Rounds


@pytest.mark.parametrize(
    ("complexity", "rounds", "seconds"), [("simple", 5, 900), ("moderate", 7, 1800), ("complex", 10, 3600)]
)
def test_numbers(complexity: str, rounds: int, seconds: float) -> None:
    """S1-56, S1-57: an easy question gets fewer rounds and less time; each number is one that the policy takes."""
    assert rounds_for(complexity) == Rounds(most=rounds).most == rounds
    assert deadline_for(complexity) == seconds


@pytest.mark.parametrize("ask", [rounds_for, deadline_for])
def test_unknown(ask: object) -> None:
    """What is no complexity is named, with those that there are."""
    with pytest.raises(ValueError, match="'hard' is not known; there are simple, moderate, complex"):
        ask("hard")  # type: ignore[operator]  # either function


QUESTIONS = {
    "Should we hire?": Complexity.SIMPLE,
    "": Complexity.SIMPLE,
    "Sollen wir das Büro verlegen?": Complexity.SIMPLE,
    "Should we hire an engineer or a designer?": Complexity.MODERATE,
    "What does it cost? Who pays?": Complexity.MODERATE,
    "word " * 40: Complexity.MODERATE,
    "word " * 400: Complexity.MODERATE,
    "Stay, or move to the cloud? What does it cost? Who does it?": Complexity.COMPLEX,
    "Decide:\n- price\n- market versus margin\n- date": Complexity.COMPLEX,
}


@pytest.mark.parametrize(("question", "expected"), QUESTIONS.items(), ids=range(len(QUESTIONS)))
def test_guess(question: str, expected: Complexity) -> None:
    """S1-56: length, parts and words that weigh things up make a question harder; none of them alone makes it
    complex."""
    assert complexity_of(question) is expected
