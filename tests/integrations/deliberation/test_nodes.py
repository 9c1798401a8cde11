"""The nodes: what they say of a state, in a graph, and inside a run with a budget."""

import operator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

import flyball
from flyball.config import Settings
from flyball.integrations.deliberation import check_convergence, cost_guard, lexical
from flyball.integrations.deliberation.nodes import Node
from tests.integrations.scene import a_guard, reasons

APART = ("buy the firm", "paint every roof", "sing old songs")


def said(round_: int, *texts: str, **more: Any) -> list[dict[str, Any]]:
    return [{"round": round_, "text": text, **more} for text in texts]


def node(**options: Any) -> Node:
    return check_convergence(measure=lexical, **options)


# Rounds.


@pytest.mark.parametrize(
    ("done", "max_rounds", "expected"),
    [
        (0, 7, None),
        (5, 7, None),
        (6, 7, "max_rounds"),
        (4, 5, "max_rounds"),
        (13, 15, None),
        (14, 15, "hard_cap_15_rounds"),
    ],
)
def test_rounds(done: int, max_rounds: int, expected: str | None) -> None:
    """S1-12, S1-13, S1-14, S1-17, S1-18: a round is counted, and the last of them stops it with its reason."""
    update = node(max_rounds=max_rounds)({"round": done, "contributions": said(done, *APART)})
    assert update["round"] == done + 1
    assert (update["should_stop"], update["stop_reason"]) == (expected is not None, expected)


@pytest.mark.parametrize("max_rounds", [4, 16, 0, True])
def test_rounds_that_cannot_be(max_rounds: int) -> None:
    """S1-19: less than 5 rounds, or more than 15, are refused when the node is made."""
    with pytest.raises(ValueError, match="it goes from 5 to 15"):
        check_convergence(max_rounds=max_rounds)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"round": 7}, "round 8 is above max_rounds 7"),
        ({"round": -1}, "should be a number of rounds"),
        ({"round": "two"}, "should be a number of rounds, not 'two'"),
        ({"contributions": ["buy"]}, "mappings with a `text`"),
        ({"contributions": [{"text": "buy"}]}, "the number of a `round`"),
    ],
)
def test_broken_invariants(state: dict[str, Any], message: str) -> None:
    """S1-19: a state that cannot be is an error that says what is wrong with it."""
    with pytest.raises(ValueError, match=message):
        node()(state)


@pytest.mark.parametrize(("asked", "message"), [(20, "from 5 to 15"), ("many", "a number of rounds, not 'many'")])
def test_rounds_of_the_state(asked: Any, message: str) -> None:
    """S1-14: the number of rounds may be the session's own, within the same bounds."""
    check = node(max_rounds="asked")
    assert check({"round": 5, "asked": 6})["stop_reason"] == "max_rounds"
    assert check({"round": 5})["stop_reason"] is None
    with pytest.raises(ValueError, match=message):
        check({"round": 5, "asked": asked})


# Convergence.


def test_consensus() -> None:
    """S1-15, S1-20: voices that say the same in round 5, and said it before, end it: consensus."""
    state = {"round": 4, "contributions": said(4, *["buy it now"] * 3) + said(5, *["buy it now"] * 3)}
    update = node()(state)
    assert (update["round"], update["convergence"], update["stop_reason"]) == (5, 1.0, "consensus")


@pytest.mark.parametrize(("reading", "expected"), [(0.85, None), (0.86, "consensus"), (0.90, "consensus")])
def test_threshold(reading: float, expected: str | None) -> None:
    """S1-15: 0.85 exactly is not yet converged."""
    check = check_convergence(measure=lambda *_: reading)
    assert check({"contributions": said(1, "one", "two")})["stop_reason"] == expected


@pytest.mark.parametrize(("agree", "expected"), [(3, None), (4, "consensus"), (5, "consensus")])
def test_agreement(agree: int, expected: str | None) -> None:
    """S1-16: of five voices, four that agree are enough, whatever their words."""
    voices = [{"round": 1, "text": f"{number} {number}", "agrees": number < agree} for number in range(5)]
    update = node()({"contributions": voices})
    assert (update["agreement"], update["stop_reason"]) == (agree / 5, expected)


def test_opposites_in_the_same_words() -> None:
    """S1-15: "buy it" and "do not buy it" are alike by their words; with their positions they are not."""
    words = ("we should all buy the smaller company now", "we should all not buy the smaller company now")
    bare = [{"round": 1, "text": text} for text in words]
    with_positions = [{**one, "position": side} for one, side in zip(bare, ("buy", "leave"), strict=True)]
    assert node()({"contributions": bare})["convergence"] > 0.85
    update = node()({"contributions": with_positions})
    assert (update["convergence"], update["agreement"], update["stop_reason"]) == (0.0, 0.5, None)


def test_both_at_once() -> None:
    """S1-40: the last round that is also a consensus has one reason, the one that the governor would name first."""
    update = node()({"round": 6, "contributions": said(7, *["buy it now"] * 3)})
    assert update["stop_reason"] == "consensus"


def test_novelty() -> None:
    """S1-55: a round that repeats what was said, in any round before, is not new; the first is."""
    first = said(1, *APART)
    assert node()({"contributions": first})["novelty"] == 1.0
    again = first + said(2, "plant tall trees", "dig deep wells", "fly red kites") + said(3, *APART)
    assert node()({"round": 2, "contributions": again})["novelty"] == 0.0


def test_thresholds_of_ones_own() -> None:
    """Thresholds can be given."""
    voices = [{"round": 1, "text": "x", "agrees": number < 3} for number in range(5)]
    assert node(consensus_threshold=0.6)({"contributions": voices})["stop_reason"] == "consensus"
    loose = check_convergence(convergence_threshold=0.5, measure=lambda *_: 0.6)
    assert loose({"contributions": said(1, "one", "two")})["stop_reason"] == "consensus"


@pytest.mark.parametrize("rounds", [1, 6, 7])
@pytest.mark.parametrize("reading", [0.0, 0.85, 0.9])
@pytest.mark.parametrize("agree", [0, 3, 4])
def test_governor_says_the_same(rounds: int, reading: float, agree: int) -> None:
    """S1-18: what the node says is what a governor with the settings' own defaults says of the same readings."""
    voices = [{"round": rounds, "text": "x", "agrees": number < agree} for number in range(5)]
    update = check_convergence(measure=lambda *_: reading)({"round": rounds - 1, "contributions": voices})
    own = [policy for policy in Settings().policies("graph") if policy.name in ("rounds", "convergence")]
    with a_guard() as guard:
        guard.governor.panel.put("board", own)
        gauges = {name: update[name] for name in ("round", "convergence", "agreement")}
        said = guard.governor.submit(flyball.Stepped(unit="board", run="1", done=(flyball.Work(gauges=gauges),)))
    assert update["stop_reason"] == (said.primary.code if said.primary else None)


@dataclass
class Talk:
    """A state that is no mapping."""

    question: str = ""
    round: int = 0
    contributions: Annotated[list[dict[str, Any]], operator.add] = field(default_factory=list)
    should_stop: bool = False
    stop_reason: str | None = None


class TalkDict(TypedDict, total=False):
    """The same as a mapping."""

    question: str
    round: int
    contributions: Annotated[list[dict[str, Any]], operator.add]
    should_stop: bool
    stop_reason: str | None


@pytest.mark.parametrize("schema", [Talk, TalkDict])
def test_in_a_graph(schema: Any) -> None:
    """S1-10, S1-12: in a graph of LangGraph, whatever its state is, the node ends the rounds by itself."""

    def number(state: Any) -> int:
        return int(state.round if isinstance(state, Talk) else state.get("round", 0))

    def speak(state: Any) -> dict[str, Any]:
        return {"contributions": said(number(state) + 1, *(f"{text} {number(state)}" for text in APART))}

    def route(state: Any) -> str:
        stops = state.should_stop if isinstance(state, Talk) else state["should_stop"]
        return "vote" if stops else "speak"

    graph = StateGraph(schema)
    graph.add_node("speak", speak)
    graph.add_node(node())
    graph.add_node("vote", lambda _: {"question": "voted"})
    graph.add_edge(START, "speak")
    graph.add_edge("speak", "check_convergence")
    graph.add_conditional_edges("check_convergence", route, ["speak", "vote"])
    graph.add_edge("vote", END)
    ended = graph.compile().invoke({"question": "?"})
    assert (ended["round"], ended["stop_reason"], ended["question"]) == (7, "max_rounds", "voted")


# Money.

STOPS = {"should_stop": True, "stop_reason": "cost_budget_exceeded"}


@pytest.mark.parametrize(
    ("spent", "expected"), [("0", {}), ("0.20", {}), ("0.35", {}), ("0.350001", STOPS), ("0.40", STOPS), (0.5, STOPS)]
)
def test_cost_without_a_guard(spent: Any, expected: dict[str, Any]) -> None:
    """S1-28, S1-38: on 0.50, a node that may cost 0.15 is refused before it is begun, not after."""
    assert cost_guard({"persona": "0.15"}, limit="0.50")({"cost": spent}) == expected


def test_money_kept_back() -> None:
    """S1-35: what is kept back for the end is not spent before it."""
    guard = cost_guard({"persona": "0.15"}, limit="0.50", kept_back="0.10")
    assert guard({"cost": "0.25"}) == {}
    assert guard({"cost": "0.26"}) == STOPS


def test_next_node() -> None:
    """S1-34: it is about the node that comes next; where nobody says which, about the costliest."""
    guard = cost_guard({"cheap": "0.01", "dear": "0.40"}, limit="0.50", following="next")
    state = {"cost": "0.30"}
    assert guard({**state, "next": "cheap"}) == {}
    assert guard({**state, "next": "dear"}) == STOPS
    assert guard({**state, "next": "free of charge"}) == {}
    assert guard(state) == STOPS


def test_cost_by_the_state() -> None:
    """S1-28: voices that are asked in parallel are paid together."""
    guard = cost_guard({"persona": lambda state: state["voices"] * 0.10}, limit="0.50")
    assert guard({"voices": 5}) == {}
    assert guard({"voices": 6}) == STOPS


def test_no_limit_known() -> None:
    """Without a guard and without a limit there is nothing to hold it against."""
    assert cost_guard({"persona": "9.99"})({"cost": "100"}) == {}


@pytest.mark.parametrize("costs", [{}, {"persona": "-1"}, {"persona": "much"}])
def test_costs_that_cannot_be(costs: Any) -> None:
    """Wrong amounts are refused when the node is made."""
    with pytest.raises(ValueError, match=r"at least one node|usd"):
        cost_guard(costs)


def test_cost_in_a_run() -> None:
    """S1-28, S1-34: in a run it is the governor that knows what is left; nothing is spent or reserved by asking."""
    guard = cost_guard({"persona": "0.15"})
    with a_guard() as flyball_guard, flyball_guard.watch("board", budget="0.50") as run:
        assert guard({}) == {}
        with run.reserve("0.35") as money:
            assert guard({}) == {}
            money.settle("0.30")
        with run.reserve("0.06") as money:
            assert guard({}) == STOPS
            money.cancel()
        assert guard({}) == {}
        assert reasons(flyball_guard, "cost_budget_exceeded", "board")


def test_an_allowance_is_given_back_first() -> None:
    """S1-28: what steps may still use without asking is not yet spent."""
    guard = cost_guard({"persona": "0.15"})
    with a_guard() as flyball_guard, flyball_guard.watch("board", budget="0.50") as run:
        for _ in range(3):
            with run.step("call", cost="0.10") as step:
                step.spent("0.01")
        assert guard({}) == {}
        with run.step("call", cost="0.32") as step:
            step.spent("0.32")
        assert guard({}) == {}
        with run.step("call", cost="0.01"):
            pass
        assert guard({}) == STOPS


def test_other_refusals_are_the_governors() -> None:
    """S1-28: what is refused for another reason is no matter of money, and is left to the guard."""
    with a_guard() as flyball_guard, flyball_guard.watch("board", budget="0.50") as run:
        flyball_guard.governor.submit(flyball.Held(unit="board", verb=flyball.Verb.STOP, by="ann"))
        with pytest.raises(flyball.Refused, match="ann"):
            run.reserve("0.01")
        assert cost_guard({"persona": "0.15"})({}) == {}
