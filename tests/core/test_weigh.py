"""Weigh: everybody is asked, whoever raises included; a refused request changes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from flyball.core.decision import PROCEED, Allowance, Decision, Reason, Verb, hold, proceed, stop, wait
from flyball.core.event import Beat, Event, Revise, Start, Step
from flyball.core.policy import Gate, State, weigh
from flyball.core.time import Instant

REASON = Reason("p", "code", "text", "remedy")


class Count(State, frozen=True):
    """How often it heard something."""

    heard: int = 0


@dataclass(frozen=True, kw_only=True)
class Says:
    """Counts what it hears, and says what it is told to say."""

    says: Decision = PROCEED
    raises: str = ""
    name: str = "p"
    by: str = "unit"
    at: Gate = Gate.STEP

    def wakes(self, event: Event) -> bool:
        return True

    def initial(self) -> Count:
        return Count()

    def evolve(self, state: Count, event: Event, now: Instant) -> Count:
        if self.raises == "evolve":
            raise RuntimeError("out of order")
        return Count(state.heard + 1)

    def decide(self, state: Count, now: Instant) -> Decision:
        if self.raises == "decide":
            raise RuntimeError("out of order")
        return self.says


def weighed(
    event: Event, *policies: Says, states: Sequence[Count | None] | None = None
) -> tuple[Decision, dict[int, State]]:
    """The decision and what changed."""
    outcome = weigh(policies, states or [Count()] * len(policies), event, 5)
    return outcome.decision, dict(outcome.changed)


def test_nobody_objects() -> None:
    """With no policies, or none that objects, it goes on."""
    assert weighed(Start()) == (PROCEED, {})
    assert weighed(Start(), Says(), Says()) == (PROCEED, {0: Count(1), 1: Count(1)})


def test_one_objects() -> None:
    """One is enough, and the request has changed nobody."""
    decision, changed = weighed(Start(), Says(), Says(says=wait(9, REASON)), Says())
    assert decision == wait(9, REASON)
    assert changed == {}


def test_a_fact_counts_whatever_is_said() -> None:
    """What has happened has happened."""
    decision, changed = weighed(Beat(), Says(), Says(says=hold(REASON)))
    assert decision.verb is Verb.HOLD
    assert changed == {0: Count(1), 1: Count(1)}


@pytest.mark.parametrize("where", ["evolve", "decide"])
@pytest.mark.parametrize("event", [Start(), Beat()], ids=["request", "fact"])
def test_one_that_raises_is_a_stop(where: str, event: Event) -> None:
    """It is answered as STOP with a reason that names it, and the others are still asked."""
    broken = Says(raises=where, name="broken")
    outcome = weigh([Says(), broken, Says(says=hold(REASON))], [Count()] * 3, event, 5)
    assert outcome.decision.verb is Verb.HOLD
    assert set(outcome.decision.codes) == {"policy_failed", "code"}
    assert "broken policy itself failed: RuntimeError: out of order" in str(outcome.decision.reasons)
    assert len(outcome.faults) == 1
    assert "Traceback" in outcome.faults[0]
    alone = weigh([broken], [Count()], event, 5)
    assert alone.decision.verb is Verb.STOP
    if isinstance(event, Beat):
        assert {0, 2} <= set(outcome.changed)
        assert (1 in outcome.changed) is (where == "decide")
    else:
        assert not outcome.changed


def test_one_at_rest_is_not_asked() -> None:
    """Whoever has no state here neither hears nor says anything."""
    assert weighed(Start(), Says(says=hold(REASON)), Says(), states=[None, Count()]) == (PROCEED, {1: Count(1)})


def test_what_did_not_change_is_not_written() -> None:
    """An equal state is no change, even as another object."""

    class Still(Says):
        def evolve(self, state: Count, event: Event, now: Instant) -> Count:
            return Count(state.heard)

    assert weighed(Beat(), Still())[1] == {}


def test_a_change_is_judged_by_those_at_change_alone() -> None:
    """Everybody hears of it; a hold of another policy is no reason to refuse it."""
    decision, changed = weighed(Revise(revision="a"), Says(says=hold(REASON)), Says(at=Gate.CHANGE))
    assert decision.proceeds
    assert set(changed) == {0, 1}
    refused, unchanged = weighed(Revise(revision="a"), Says(), Says(at=Gate.CHANGE, says=wait(9, REASON)))
    assert refused.verb is Verb.WAIT
    assert not unchanged


@pytest.mark.parametrize(
    ("asked", "cost", "rooms", "steps"),
    [
        (10, {}, [], 10),
        (10, {}, [Allowance(99)], 10),
        (10, {}, [Allowance(4)], 4),
        (10, {}, [Allowance(4), Allowance(3)], 3),
        (10, {"usd": 5}, [Allowance(99, {"usd": 24})], 4),
        (10, {"usd": 5}, [Allowance(99, {"usd": 25})], 5),
        (10, {"usd": 5}, [Allowance(99, {"tokens": 1})], 10),
        (10, {"usd": 0}, [Allowance(99, {"usd": 0})], 10),
        (10, {"usd": 5, "tokens": 1}, [Allowance(9, {"usd": 100}), Allowance(99, {"tokens": 7})], 7),
        (10, {}, [Allowance(0)], 1),
    ],
)
def test_an_allowance_is_cut_to_the_room(asked: int, cost: dict[str, int], rooms: list[Allowance], steps: int) -> None:
    """As many steps are granted as every policy has room for; never fewer than the one that is refused or granted."""
    policies = [Says(says=proceed(allowance=room)) for room in rooms]
    outcome = weigh(policies, [Count()] * len(policies), Step(steps=asked, cost=cost), 5)
    assert isinstance(outcome.event, Step)
    assert outcome.event.steps == steps
    granted = Allowance(steps, {meter: amount * steps for meter, amount in cost.items()})
    assert outcome.decision.allowance == (granted if steps > 1 else None)


def test_a_single_step_has_no_allowance() -> None:
    """Headroom is not leave: only what was asked for is granted."""
    assert weighed(Step(), Says(says=proceed(allowance=Allowance(9))))[0].allowance is None
    assert weighed(Start(), Says(says=proceed(allowance=Allowance(9))))[0].allowance is None


def test_a_refused_allowance_is_none() -> None:
    """What is refused grants nothing and changes nothing."""
    decision, changed = weighed(Step(steps=9), Says(says=proceed(allowance=Allowance(9))), Says(says=stop(REASON)))
    assert decision.verb is Verb.STOP
    assert decision.allowance is None
    assert not changed


def test_one_that_raises_does_not_widen_an_allowance() -> None:
    """Its room is not known, so it is refused; the others' room still counts."""
    outcome = weigh(
        [Says(raises="decide"), Says(says=proceed(allowance=Allowance(3)))], [Count()] * 2, Step(steps=9), 5
    )
    assert outcome.decision.verb is Verb.STOP
    assert isinstance(outcome.event, Step)
    assert outcome.event.steps == 3
