"""No policy's decision gets laxer because another policy was added."""

import random

import pytest

from flyball.core.decision import Decision, Verb
from flyball.core.event import Beat, Cause, Event, Exited, Held, Released, Resume, Start, Step, Stepped, Work
from flyball.core.failure import fingerprint
from flyball.core.panel import Panel
from flyball.core.policy import AnyPolicy, weigh
from flyball.core.time import HOUR, MINUTE, SECOND
from flyball.governor import Governor
from flyball.policies import Loop
from flyball.store.memory import MemoryStore
from flyball.testing.simulator import SimulatedClock, default_policies

UNITS = ("a", "b", "c", "d")


def everything() -> list[AnyPolicy]:
    """Every policy that any kind of unit stands under, once."""
    found: dict[tuple[str, str], AnyPolicy] = {(Loop().name, Loop().by): Loop()}
    for kind in ("session", "rule", "process"):
        for policy in default_policies(kind):
            found.setdefault((policy.name, policy.by), policy)
    return list(found.values())


def random_event(dice: random.Random) -> Event:
    unit, run = dice.choice(UNITS), str(dice.randrange(3))
    labels = {"user": dice.choice("xy")}
    error = f"Error{dice.randrange(3)}"
    call, result = f"call {dice.randrange(3)}", f"result {dice.randrange(2)}"
    work = Work(pattern="p", call=call, result=result, error=dice.random() < 0.3, used={"usd": dice.randrange(50_000)})
    cause = dice.choice(list(Cause))
    name = fingerprint(unit, error) if cause.failed else ""
    steps = dice.choice((1, 1, 8))
    choices: list[Event] = [
        Start(unit=unit, run=run, labels=labels, again=dice.random() < 0.5),
        Resume(unit=unit, run=run, labels=labels),
        Step(unit=unit, run=run, labels=labels, pattern="p", call=call, cost={"usd": 50_000}, steps=steps),
        Stepped(unit=unit, run=run, labels=labels, done=(work,)),
        Beat(unit=unit, run=run, labels=labels),
        Exited(unit=unit, run=run, labels=labels, cause=cause, fingerprint=name, error=error),
    ]
    if dice.random() < 0.03:
        return dice.choice(
            (
                Held(unit=unit, verb=dice.choice((Verb.HOLD, Verb.STOP, Verb.FINISH))),
                Released(unit=unit),
                Released(scope="fleet"),
            )
        )
    return dice.choice(choices)


def strictness(decision: Decision) -> tuple[int, int]:
    lasting = decision.verb in (Verb.WAIT, Verb.HOLD)
    return decision.verb, decision.until if lasting else -decision.until


@pytest.mark.parametrize("seed", range(12))
def test_over_random_histories(seed: int) -> None:
    """At every event of a random history: a random part of the policies is never stricter than all of them, all their
    reasons are among those of all, and what all of them grant is never more."""
    dice = random.Random(seed)
    clock, store, policies = SimulatedClock(), MemoryStore(), everything()
    panel = Panel(policies)
    governor = Governor(panel, store, clock)
    now, refused = clock.now(), 0
    for _ in range(400):
        now = clock.catch_up(now + dice.choice((0, SECOND, SECOND, MINUTE, HOUR)))
        event = random_event(dice)
        docket = panel.concerning(event)
        states = governor.states_in(docket, store.read(docket.keys))
        part = [place for place in range(len(docket.policies)) if dice.random() < 0.5]
        some = weigh([docket.policies[place] for place in part], [states[place] for place in part], event, now)
        every = weigh(docket.policies, states, event, now)
        assert strictness(every.decision) >= strictness(some.decision)
        assert set(some.decision.reasons) <= set(every.decision.reasons)
        assert not every.faults
        if every.decision.allowance is not None:
            assert some.decision.allowance is not None
            assert every.decision.allowance.steps <= some.decision.allowance.steps
        decision = governor.submit(event)
        # A start that finds a run whose lease ran out reports that as lost, and is weighed again.
        assert decision == every.decision or "already_running" in every.decision.codes
        refused += every.decision.verb > Verb.PROCEED
    assert 20 < refused < 400
