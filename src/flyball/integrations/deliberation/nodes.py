"""Nodes for a graph that deliberates: one ends each round, one asks whether the next costly node can be paid.

Both answer with an update of the state (`should_stop`, `stop_reason`) for the graph to route by. They decide nothing
themselves: the verdict is that of the very policies that a guard stands under, asked here with the readings of the
state. Under `flyball.integrations.langgraph.guard` the governor reads the same update and comes to the same answer, for
a graph that does not look; without a guard they work too, and count what the state counts.

A contribution is a mapping: `text`, the `round` in which it was made, and, where there is one, a `position` or whether
its voice `agrees`.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Protocol

from flyball.core.amounts import MONEY
from flyball.core.decision import Decision
from flyball.core.event import Step, Stepped, Work
from flyball.integrations.deliberation.similarity import (
    VOICES_MAX,
    Measure,
    agreement,
    choose_measure,
    novelty,
    position,
    rounds_alike,
)
from flyball.policies import Budget, Convergence, Rounds
from flyball.policies.budget import OVER_BUDGET
from flyball.policies.budget import State as Spent
from flyball.policies.rounds import State as Round
from flyball.runtimes.agent.context import Context
from flyball.runtimes.amounts import Given, whole
from flyball.runtimes.current import running
from flyball.runtimes.refusal import Refused


class Node(Protocol):
    """A function of a state, as LangGraph takes it: what it changes of the state."""

    def __call__(self, state: Any) -> dict[str, Any]:
        """The update."""


Contribution = Mapping[str, Any]


HEARD_MAX: Final = 2 * VOICES_MAX
"""Contributions of earlier rounds, the latest, that a new one may repeat."""


def check_convergence(
    *,
    max_rounds: int | str = 7,
    contributions: str = "contributions",
    round: str = "round",  # noqa: A002 - the key of the state is called so
    convergence_threshold: float | None = None,
    consensus_threshold: float | None = None,
    measure: Measure | None = None,
) -> Node:
    """A node that ends a round: it counts the round, measures what was said, and says whether to stop and why:
    `hard_cap_15_rounds`, `max_rounds` or `consensus`.

    `contributions` and `round` are keys of the state. `max_rounds` is a number from 5 to 15, or the key of the state
    that has it. The thresholds are those of the policy (above 0.85 alike, or 80 % agreed). Its update has the round,
    `convergence`, `agreement`, `novelty`, `should_stop` and `stop_reason`; what the state does not have, LangGraph
    leaves out. ValueError if a round goes back, is above `max_rounds`, or if that is above 15.
    """
    defaults = Convergence()
    judge = Convergence(
        above=defaults.above if convergence_threshold is None else convergence_threshold,
        agreement_min=defaults.agreement_min if consensus_threshold is None else consensus_threshold,
    )
    if isinstance(max_rounds, int):
        Rounds(most=max_rounds)  # what is wrong with it is said now, not in the first round
    alike = measure or choose_measure()

    def check_convergence(state: Any) -> dict[str, Any]:
        most = (
            max_rounds if isinstance(max_rounds, int) else _whole(max_rounds, _read(state, max_rounds, Rounds().most))
        )
        before = _whole(round, _read(state, round, 0))
        said = [_contribution(contributions, one) for one in _read(state, contributions, ())]
        now, last, earlier = _by_round(said)
        readings = {
            "round": before + 1,
            "convergence": rounds_alike(now, last, lambda one, other: _alike(one, other, alike)),
            "agreement": agreement([_vote(one) for one in now]),
        }
        verdict = _verdict(Rounds(most=most), judge, before, readings)
        new = [novelty(one["text"], [old["text"] for old in earlier[-HEARD_MAX:]], alike) for one in now]
        return {
            **readings,
            round: before + 1,
            "novelty": sum(new) / len(new) if new else 0.0,
            "should_stop": not verdict.proceeds,
            "stop_reason": _code(verdict),
        }

    return check_convergence


def cost_guard(
    node_costs: Mapping[str, Given | Callable[[Any], Given]],
    *,
    following: str | None = None,
    limit: Given | None = None,
    kept_back: Given | None = None,
    spent: str = "cost",
) -> Node:
    """A node that stands before a costly one, and says whether its worst case can still be paid. If not: `should_stop`,
    with the reason `cost_budget_exceeded`. Nothing stays reserved by it: the guard does that when the node begins.

    `node_costs` has the worst case of each costly node, or a function of the state that says it (how many are asked in
    parallel). Which of them comes next is in the state, under the key `following`; without that, each of them has to
    fit. Outside of a guarded graph the state counts: what it has under `spent`, in
    dollars, against `limit` less `kept_back`; without a limit everything can be paid.
    """
    if not node_costs:
        raise ValueError("cost_guard needs the worst case of at least one node")
    for node, cost in node_costs.items():
        if not callable(cost):
            whole(cost, f"node_costs of {node!r}")  # what is wrong with it is said now
    own = None if limit is None else Budget(limit=_money(limit, "limit"), kept_back=_money(kept_back, "kept_back"))

    def cost_guard(state: Any) -> dict[str, Any]:
        chosen = _read(state, following, None) if following is not None else None
        if chosen is not None and chosen not in node_costs:
            return {}  # what costs nothing can always be paid
        costs = list(node_costs.values()) if chosen is None else [node_costs[chosen]]
        worst = [cost(state) if callable(cost) else cost for cost in costs]
        run = running()
        if isinstance(run, Context):
            run.heed(run.steps.report())  # what an allowance holds and did not use can be spent
            over = any(_refused(run, cost) for cost in worst)
        else:
            over = own is not None and any(_exceeds(own, _read(state, spent, 0), cost) for cost in worst)
        return {"should_stop": True, "stop_reason": OVER_BUDGET} if over else {}

    return cost_guard


def _verdict(rounds: Rounds, judge: Convergence, before: int, readings: Mapping[str, float]) -> Decision:
    stepped = Stepped(done=(Work(gauges=readings),))
    counted = rounds.evolve(Round(before, before), stepped, 0)
    return rounds.decide(counted, 0) | judge.decide(judge.evolve(judge.initial(), stepped, 0), 0)


def _code(verdict: Decision) -> str | None:
    return verdict.primary.code if verdict.primary is not None else None


def _refused(run: Context, worst_case: Given) -> bool:
    """Whether the run has no money for that. The answer is the governor's, and in the journal if it is a no."""
    try:
        run.reserve(worst_case).cancel()
    except Refused as refused:
        if OVER_BUDGET not in refused.decision.codes:
            return False  # not a matter of money: whatever it is, the next node will be told
        if run.steps.part:
            run.heed(refused.decision)  # whoever runs the graph leads it to its wrap-up; elsewhere it finds it itself
        return True
    return False


def _exceeds(budget: Budget, spent: Given, worst_case: Given) -> bool:
    cost = whole(worst_case, "the worst case")
    asked = budget.evolve(Spent(_money(spent, "what the state says was spent")), Step(cost=cost), 0)
    return not budget.decide(asked, 0).proceeds


def _by_round(said: Sequence[Contribution]) -> tuple[list[Contribution], list[Contribution], list[Contribution]]:
    """Those of the round that ends, of the one before, and of all before. From which number rounds are counted is the
    graph's own business: the highest is the one that ends."""
    numbers = sorted({one["round"] for one in said})
    if not numbers:
        return [], [], []
    now = [one for one in said if one["round"] == numbers[-1]]
    last = [one for one in said if one["round"] == numbers[-2]] if len(numbers) > 1 else []
    return now, last, [one for one in said if one["round"] != numbers[-1]]


def _alike(one: Contribution, other: Contribution, measure: Measure) -> float:
    """Contributions with different positions are not alike, whatever their words."""
    ours, theirs = position(_vote(one)), position(_vote(other))
    if ours is not None and theirs is not None and ours != theirs:
        return 0.0
    return measure(one["text"], other["text"])


def _vote(one: Contribution) -> Hashable:
    agrees: Hashable = one.get("agrees")
    return agrees if agrees is not None else one.get("position")


def _contribution(key: str, given: Any) -> Contribution:
    if isinstance(given, Mapping) and isinstance(given.get("text"), str) and isinstance(given.get("round"), int):
        return given
    raise ValueError(
        f"what is in {key!r} of the state should be mappings with a `text` and the number of a `round`, "
        f"not {type(given).__name__}"
    )


def _whole(key: str, given: Any) -> int:
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    raise ValueError(f"{key!r} of the state should be a number of rounds, not {str(given)[:40]!r}")


def _money(given: Given | None, where: str) -> int:
    return whole(given, where).get(MONEY, 0)


def _read(state: Any, key: str, default: Any) -> Any:
    """A state is a mapping, or an object with attributes: a dataclass, a model."""
    found = state.get(key, default) if isinstance(state, Mapping) else getattr(state, key, default)
    return default if found is None else found
