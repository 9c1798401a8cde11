"""What is said of a graph where it is guarded: no layer can be switched off, and a slip is found at once."""

from typing import Any

import pytest

from flyball.core.name import is_name
from flyball.errors import FlyballError
from flyball.integrations.langgraph import guard
from flyball.integrations.langgraph.options import unit_name
from flyball.policies import Budget, Deadline, Limit, Rounds
from tests.integrations.langgraph.scene import a_guard, endless

OFF = "no layer can be switched off"

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    **{
        f"{option} {value!r}": ({option: value}, f"{option} is {value!r}.*{OFF}")
        for option in ("steps", "rounds", "timeout")
        for value in (0, None, -1, True, "7")
    },
    "S1-13: more than 15 rounds": ({"rounds": 16}, "from 5 to 15"),
    "fewer than 5 rounds": ({"rounds": 4}, "from 5 to 15"),
    "no limit on steps": ({"steps": float("inf")}, OFF),
    "no limit on time": ({"timeout": float("inf")}, OFF),
    "not a number": ({"timeout": float("nan")}, OFF),
    "no money": ({"budget": 0}, OFF),
    "no tokens": ({"budget": {"tokens": 0}}, OFF),
    "a debt": ({"budget": -1}, "from 0 to"),
    "resumes below none": ({"resumes": -1}, "resumes is -1"),
    "more kept back than there is": ({"budget": "0.50", "kept_back": "0.60"}, "keep back less"),
    "an unknown node that costs": ({"costs": {"pin": 1}}, "did you mean 'ping'"),
    "a cost that is none": ({"costs": {"ping": "much"}}, "costs of 'ping'"),
    "an unknown node that wraps up": ({"wrap_up": "emd"}, "did you mean 'end'"),
    "nothing near": ({"wrap_up": "synthesise"}, "there are ping, pong, end"),
    "an unknown reason": ({"wrap_up": {"max_round": "end"}}, "did you mean 'max_rounds'"),
    "an isolation": ({"isolation": "thread"}, "one of process, inline"),
    "a work": ({"work": "day"}, "one of thread, turn"),
    "a wait": ({"wait": -1}, "wait is -1"),
    "a key": ({"round_key": 3}, "round_key is 3"),
    "a worst case": ({"worst_case": "much"}, "usd"),
}


@pytest.mark.parametrize(("options", "says"), WRONG.values(), ids=WRONG.keys())
def test_wrong(options: dict[str, Any], says: str) -> None:
    """S1-13, S1-14, S1-64: a ValueError says which option is wrong, and what is allowed."""
    with a_guard() as opened, pytest.raises(ValueError, match=says):
        guard(endless(), guard=opened, **options)


def test_no_graph() -> None:
    """What is no graph is said to be none."""
    with a_guard() as opened, pytest.raises(ValueError, match="function is no graph"):
        guard(lambda state: state, guard=opened)


def test_no_name() -> None:
    """A name that is none is refused."""
    with a_guard() as opened, pytest.raises(FlyballError, match="no name for a graph"):
        guard(endless(), guard=opened, name="a/b")


def policies(options: dict[str, Any], **settings: Any) -> dict[tuple[str, str], Any]:
    """The safeguards that a thread with these options stands under."""
    with a_guard(**settings) as opened:
        graph = guard(endless(), guard=opened, **options)
        unit = graph.unit_of("7")
        graph.define(unit)
        return {(policy.name, policy.by): policy for policy in opened.governor.panel.policies_of(unit.name)}


GIVEN: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int, int, int, int, int]]] = {
    "by default": ({}, {}, (55, 7, 3600, 1_000_000, 3)),
    "by the settings": (
        {},
        {
            "graph": {"recursion_limit": 40, "max_rounds": 9, "timeout_seconds": 60},
            "budget": {"max_cost_per_session": "3.00"},
            "daemon": {"session_recovery": {"max_resume_attempts": 5}},
        },
        (40, 9, 60, 3_000_000, 5),
    ),
    "by options": (
        {"steps": 90, "rounds": 10, "timeout": 90, "budget": "0.20", "resumes": 0},
        {"graph": {"recursion_limit": 40}},
        (90, 10, 90, 200_000, 0),
    ),
    "S1-29: a tier": ({"tier": "pro"}, {}, (55, 7, 3600, 2_000_000, 3)),
    "S1-32: an unknown tier": ({"tier": "gold"}, {}, (55, 7, 3600, 1_000_000, 3)),
    "both: the budget wins": ({"tier": "pro", "budget": "0.30"}, {}, (55, 7, 3600, 300_000, 3)),
}


@pytest.mark.parametrize(("options", "settings", "numbers"), GIVEN.values(), ids=GIVEN.keys())
def test_limits(options: dict[str, Any], settings: dict[str, Any], numbers: tuple[int, ...]) -> None:
    """S1-03, S1-14, S1-22, S1-28, S1-29, S1-30: the limits are those of the options, else those of the settings."""
    found = policies(options, **settings)
    steps, rounds, deadline, budget, resumes = (
        found["steps", "unit"],
        found["rounds", "unit"],
        found["deadline", "run"],
        found["budget", "unit"],
        found["resumes", "unit"],
    )
    assert isinstance(steps, Limit)
    assert isinstance(rounds, Rounds)
    assert isinstance(deadline, Deadline)
    assert isinstance(budget, Budget)
    assert isinstance(resumes, Limit)
    assert (steps.most, rounds.most, deadline.lasts_max // 10**6, budget.limit, resumes.most) == numbers


def test_money_kept_back() -> None:
    """S1-35: what is kept back is kept of the limit, by option or setting."""
    assert policies({"budget": "0.50", "kept_back": "0.10"})["budget", "unit"].kept_back == 100_000
    by_setting = policies({"tier": "free"}, budget={"kept_back": "0.05"})
    assert by_setting["budget", "unit"].kept_back == 50_000
    assert policies({"kept_back": "0.10"})["budget", "unit"].limit == 1_000_000


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("board", "a/b"), ("board", "a-b")),
        (("board", "a" * 200), ("board", "a" * 201)),
        (("a@b", "c"), ("a", "b@c")),
        (("board", "Zürich"), ("board", "Z-rich")),
        (("board", ""), ("board", "-")),
    ],
    ids=["signs", "length", "the seam", "letters", "nothing"],
)
def test_threads_never_share_a_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    """S1-43: whatever a thread is called, its name is one, and no other thread has it."""
    assert is_name(unit_name(*one))
    assert is_name(unit_name(*other))
    assert unit_name(*one) != unit_name(*other)


def test_a_plain_thread_keeps_its_name() -> None:
    """A thread is found by its name."""
    assert unit_name("board", "42") == "board@42"
