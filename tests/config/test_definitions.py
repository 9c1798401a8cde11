"""Definitions in the store: whoever looks at a unit that no settings name judges it by its own safeguards."""

import pytest

from flyball.config import Settings
from flyball.config.build import KINDS
from flyball.config.definitions import NAME, Definitions, decode, encode, keep
from flyball.core.decision import Verb
from flyball.core.event import Resume, Start, Step
from flyball.core.policy import Key
from flyball.governor import Governor
from flyball.policies import Breaker, Budget, Cooldown, Limit, Loop
from flyball.store import Snapshot
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock


@pytest.mark.parametrize("kind", KINDS)
def test_every_safeguard_comes_back(kind: str) -> None:
    """What is kept comes back as it was, for every kind of unit."""
    policies = Settings().policies(kind)
    assert decode(encode(policies)) == policies


def test_numbers_come_back() -> None:
    """Also what is not as by default: numbers, verbs, ladders, kinds of events."""
    policies = (
        Budget(limit=5, meter="tokens", over=Verb.WAIT, every=7, name="budget_tokens", by="unit"),
        Cooldown(ladder=(1, 2, 3)),
        Limit(of=Resume, most=9, name="resumes", by="unit", verb=Verb.HOLD),
        Breaker(by="provider"),
        Loop(repeats_max=3, by="call:x"),
    )
    assert decode(encode(policies)) == policies


def test_others_judge_by_it() -> None:
    """A second process that only knows the settings refuses what the program's own budget refuses."""
    store, clock = MemoryStore(), FakeClock()
    program = Governor(Settings().policies(), store, clock)
    program.panel.put("agent", (*Settings().policies("agent"), Budget(limit=10, by="unit")))
    keep(program, "agent")
    seq = store.read(()).seq
    keep(program, "agent")
    assert store.read(()).seq == seq
    other = Governor(Settings().policies(), store, clock)
    step = Step(unit="agent", run="r", cost={"usd": 11})
    assert other.look(step).proceeds
    Definitions().learn(other, named=())
    assert other.look(step).codes == program.look(step).codes == ("cost_budget_exceeded",)


@pytest.mark.parametrize(
    "damaged",
    [
        b"{{",
        b"[1,2]",
        b"7",
        b'[{"kind":"Budget"}]',
        b'[{"policy":"Limit","of":"Nope"}]',
        b'[{"policy":"Budget","over":77}]',
    ],
)
def test_a_damaged_definition_is_one_units_trouble(damaged: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """It is said, that unit is judged by the settings until its program runs again, and all others are as they were."""
    store, clock = MemoryStore(), FakeClock()
    program = Governor(Settings().policies(), store, clock)
    for unit in ("fine", "spoilt"):
        program.panel.put(unit, (Budget(limit=10, by="unit"),))
        keep(program, unit)
    records = {**store.states(), Key(NAME, "unit", "spoilt"): damaged}
    other = Governor(Settings().policies(), MemoryStore(Snapshot(1, 1, records)), clock)
    Definitions().learn(other, named=())
    assert other.panel.policies_of("fine") == program.panel.policies_of("fine")
    assert other.panel.policies_of("spoilt") == Settings().policies()
    assert "the definition of spoilt cannot be read" in caplog.text


def test_the_settings_win() -> None:
    """A unit that the settings name is not judged by what a program left behind."""
    store, clock = MemoryStore(), FakeClock()
    program = Governor(Settings().policies(), store, clock)
    program.panel.put("web", (Budget(limit=10, by="unit"),))
    keep(program, "web")
    other = Governor(Settings().policies(), store, clock)
    Definitions().learn(other, named=["web"])
    assert other.look(Start(unit="web", run="r")).proceeds
    assert ("budget", "unit") not in {(policy.name, policy.by) for policy in other.panel.policies_of("web")}


def test_another_version_is_no_trouble() -> None:
    """A kind of safeguard, or a number of one, that is not known here is left out."""
    assert decode(b'[{"policy": "Oracle"}, {"policy": "Budget", "limit": 5, "mood": "good"}]') == (Budget(limit=5),)


def test_what_is_not_ours_is_left_out() -> None:
    """Somebody's own safeguard cannot be kept: it is code."""

    class Own(Budget):
        pass

    assert encode([Own(), Loop()]) == b'[{"policy":"Loop"}]'
