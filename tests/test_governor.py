"""The governor: the laws of the architecture, on a store in memory and a clock that the test moves."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import pytest
from hypothesis import given, settings

from flyball.core.codec import Body, decode_body
from flyball.core.decision import PROCEED, Decision, Verb
from flyball.core.event import (
    Beat,
    Booted,
    Cause,
    Event,
    Exited,
    Held,
    Released,
    Request,
    Resume,
    Revise,
    Start,
    Step,
    Stepped,
    Work,
)
from flyball.core.panel import REFUSED
from flyball.core.policy import AnyPolicy, Gate, Key, State
from flyball.core.time import DAY, HOUR, MINUTE, SECOND, Instant
from flyball.errors import StoreClosed, StoreFull
from flyball.governor import Governor, SystemClock
from flyball.policies import (
    Breaker,
    Budget,
    Clock,
    Cooldown,
    Deadline,
    Exclusive,
    Flapping,
    Limit,
    Loop,
    Manual,
    Quarantine,
    Restart,
    Revision,
    Stall,
    Storm,
    resume_limit,
)
from flyball.replay import replay
from flyball.store import Draft, Drafter, Entry, Snapshot
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock
from flyball.testing.laws import History, histories

EVERYONE: tuple[AnyPolicy, ...] = (
    Cooldown(),
    Quarantine(),
    Breaker(),
    Storm(),
    Restart(),
    Restart(by="fleet", over=Verb.HOLD, restarts_max=1_000, row_max=0),
    Flapping(),
    Exclusive(lease=60 * SECOND),
    Manual(),
    Manual(by="fleet"),
    Revision(),
    Clock(),
    Loop(),
    Stall(),
    Limit(),
    resume_limit(),
    Budget(by="unit"),
    Deadline(),
)


class House:
    """A governor, its store and its clock."""

    def __init__(self, *policies: AnyPolicy, store: MemoryStore | None = None, clock: FakeClock | None = None) -> None:
        self.policies = policies or EVERYONE
        self.store = store or MemoryStore()
        self.clock = clock or FakeClock()
        self.governor = Governor(self.policies, self.store, self.clock)
        self.submit = self.governor.submit

    def reopened(self) -> "House":
        """Another governor on the same store, as after a restart."""
        return House(*self.policies, store=self.store, clock=self.clock)

    def known(self) -> dict[Key, bytes]:
        """All that policies know, as it is stored."""
        return {key: data for key, data in self.store.states().items() if key.policy != REFUSED}

    def journal(self) -> list[Body]:
        """What was written down."""
        return [decode_body(entry.body) for entry in self.store.entries(limit=100_000)]

    def start(self, run: str = "r1", unit: str = "shop", **more: object) -> Decision:
        """Ask for a run."""
        return self.submit(Start(unit=unit, run=run, holder="host", **more))  # type: ignore[arg-type]  # fields by name

    def fail(self, run: str = "r1", unit: str = "shop", kind: str = "broken") -> Decision:
        """A run failed."""
        return self.submit(Exited(unit=unit, run=run, cause=Cause.ERROR, fingerprint=kind, error=kind))


# Law 1: count before you act.


@pytest.mark.parametrize(
    ("request_", "key"),
    [
        (Start(unit="shop", run="r1"), Key("exclusive", "unit", "shop")),
        (Resume(unit="shop", run="r1"), Key("resumes", "unit", "shop")),
        (Step(unit="shop", run="r1"), Key("steps", "run", "shop/r1")),
        (Step(unit="shop", run="r1", cost={"usd": 5}), Key("budget", "unit", "shop")),
        (Revise(unit="shop", run="r1", revision="a"), Key("revision", "unit", "shop")),
    ],
    ids=lambda case: type(case).__name__,
)
def test_counted_before_it_acts(request_: Request, key: Key) -> None:
    """When leave is given, it is counted in the store already, in one entry with the answer."""
    house = House()
    assert house.submit(request_).proceeds
    assert key in house.known()
    assert [(body.event, body.decision.verb) for body in house.journal()] == [(request_, Verb.PROCEED)]


def test_what_was_granted_and_never_reported_counts_as_used() -> None:
    """A kill -9 between leave and act gives nothing away."""
    house = House(Limit(by="unit", most=3))
    for _ in range(3):
        assert house.reopened().submit(Step(unit="shop", run="r1")).proceeds
    assert house.reopened().submit(Step(unit="shop", run="r1")).verb is Verb.STOP


class BrokenStore(MemoryStore):
    """A store whose disk is full."""

    full = False

    def transact(self, keys: object, draft: Drafter, *, sync: bool = True) -> Entry | None:
        if self.full:
            draft(self.read(keys))  # type: ignore[arg-type]  # handed on as it came
            raise OSError("no room")
        return super().transact(keys, draft, sync=sync)  # type: ignore[arg-type]  # handed on as it came


def test_what_is_not_written_is_not_granted() -> None:
    """Where the store fails there is no answer, and later nobody remembers that it was asked."""
    store = BrokenStore()
    house = House(Limit(by="unit", most=1), store=store)
    store.full = True
    with pytest.raises(OSError, match="no room"):
        house.submit(Step(unit="shop", run="r1"))
    store.full = False
    assert house.submit(Step(unit="shop", run="r1")).proceeds
    assert len(house.journal()) == 1


# Law 2: a refused request changes no policy's state; a fact always counts.


def test_a_refusal_changes_nothing_and_is_journalled_once() -> None:
    """The first refusal with new reasons is written down; the same again is not; another one is."""
    house = House(Manual(), Deadline())
    house.submit(Held(unit="shop", by="ann"))
    known = house.known()
    for _ in range(5):
        assert house.start().verb is Verb.HOLD
        house.clock.move(SECOND)
    assert house.known() == known
    assert [type(body.event) for body in house.journal()] == [Held, Start]
    house.submit(Released(unit="shop"))
    house.start()
    house.submit(Held(unit="shop", by="ann"))
    assert not house.submit(Step(unit="shop", run="r1")).proceeds
    assert [type(body.event).__name__ for body in house.journal()[2:]] == ["Released", "Start", "Held", "Step"]


def test_other_reasons_are_journalled() -> None:
    """A unit that is refused for one more reason is news."""
    house = House(Manual(), Manual(by="fleet"), Cooldown())
    house.submit(Held(unit="shop"))
    house.start()
    house.fail()
    house.start()
    house.start()
    codes = [body.decision.codes for body in house.journal() if isinstance(body.event, Start)]
    assert codes == [("paused",), ("cooling", "paused")]


def test_a_granted_request_forgets_the_refusal() -> None:
    """After it was let through, the same refusal is news again."""
    house = House(Manual())
    for _ in range(2):
        house.submit(Held(unit="shop"))
        house.start()
        house.submit(Released(unit="shop"))
        house.start()
    assert Key(REFUSED, "unit", "shop") not in house.store.states()
    assert [body.decision.verb for body in house.journal() if isinstance(body.event, Start)] == [
        Verb.HOLD,
        Verb.PROCEED,
        Verb.HOLD,
        Verb.PROCEED,
    ]


def test_a_fact_always_counts() -> None:
    """Whatever stands against the unit, and with the answer that the runtime has to act on."""
    house = House()
    house.submit(Held(unit="shop", by="ann"))
    for number in range(6):
        assert house.fail(run=f"r{number}").verb is Verb.HOLD
    assert "quarantined" in house.governor.look(Start(unit="shop", run="r9")).codes


def test_a_beat_that_changes_nothing_is_not_written() -> None:
    """Signs of life are many."""
    house = House(Exclusive(lease=60 * SECOND))
    house.start()
    for _ in range(10):
        house.clock.move(SECOND)
        house.submit(Beat(unit="shop", run="r1"))
    assert len(house.journal()) == 1
    house.clock.move(30 * SECOND)
    house.submit(Beat(unit="shop", run="r1"))
    assert len(house.journal()) == 2


@given(histories("fleet"))
@settings(max_examples=60)
def test_no_refusal_leaves_a_trace(history: History) -> None:
    """With everybody asked at once, over made-up histories: neither a refusal nor a look changes what is known, and a
    restart changes no answer."""
    house = House()
    for now, event in history:
        house.clock.set(now)
        known = house.known()
        looked = house.governor.look(event)
        assert house.known() == known
        assert house.reopened().governor.look(event) == looked
        decision = house.submit(event)
        if "already_running" in looked.codes:
            continue
        assert decision == looked
        if event.asks and not decision.proceeds:
            assert house.known() == known


# Law 3: a decision is a function of stored state and now.


@given(histories("fleet"))
@settings(max_examples=40)
def test_replay_agrees(history: History) -> None:
    """The journal, weighed again from its beginning, gives every decision once more."""
    house = House()
    for now, event in history:
        house.clock.set(now)
        house.submit(event)
    again = list(replay(house.governor.panel, house.store.base(), house.store.entries(limit=100_000)))
    assert [each.entry.seq for each in again if not each.agrees] == []


def test_states_equal_to_the_initial_one_are_not_stored() -> None:
    """A reset is a row that vanishes."""
    house = House(Quarantine(), Cooldown())
    house.fail()
    assert len(house.known()) == 2
    house.submit(Exited(unit="shop", run="r2", cause=Cause.DONE))
    assert not house.known()


def test_opinions() -> None:
    """What each policy knows and says now, also of those that rest."""
    house = House(Quarantine(), Manual())
    house.submit(Held(unit="shop", by="ann"))
    opinions = {
        policy.name: (state, decision) for policy, state, decision in house.governor.opinions(Start(unit="shop"))
    }
    assert opinions["quarantine"] == (Quarantine().initial(), PROCEED)
    assert opinions["manual"][1].codes == ("paused",)


# Law 4: one policy that raises is answered as STOP, the others are still asked.


class Nothing(State, frozen=True):
    """Nothing."""


class Broken:
    """A policy with a bug."""

    name = "broken"
    by = "unit"
    at = Gate.STEP

    def wakes(self, event: Event) -> bool:
        return True

    def initial(self) -> Nothing:
        return Nothing()

    def evolve(self, state: Nothing, event: Event, now: Instant) -> Nothing:
        raise ZeroDivisionError("a bug")

    def decide(self, state: Nothing, now: Instant) -> Decision:
        raise AssertionError("never asked")


def test_a_bug_in_a_policy(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, written down, answered as STOP; and facts still count with the others."""
    house = House(Broken(), Quarantine())
    decision = house.fail()
    assert (decision.verb, decision.codes) == (Verb.STOP, ("policy_failed",))
    assert "ZeroDivisionError: a bug" in decision.reasons[0].text
    assert "ZeroDivisionError" in house.journal()[0].faults[0]
    assert "a policy failed on Exited of shop" in caplog.text
    assert Key("quarantine", "unit", "shop") in house.known()


# Law 5: a hold is left only by a person, or by a change.


def held_by_quarantine(house: House) -> None:
    for number in range(6):
        house.fail(run=f"r{number}")


def held_by_flapping(house: House) -> None:
    for number in range(7):
        house.fail(run=f"r{number}", kind=f"k{number}")


def held_by_a_person(house: House) -> None:
    house.submit(Held(unit="shop", by="ann"))


def held_by_storm(house: House) -> None:
    for number in range(11):
        house.fail(unit=f"u{number}")
    house.governor.boot("host")


@pytest.mark.parametrize("held_by", [held_by_quarantine, held_by_flapping, held_by_a_person, held_by_storm])
def test_a_hold_stands(held_by: Callable[[House], None]) -> None:
    """Through clean exits, restarts of flyball, boots and years; a person leaves it."""
    house = House()
    held_by(house)
    assert house.start("late").verb is Verb.HOLD
    for _ in range(3):
        house = house.reopened()
        house.clock.move(20 * DAY)
        house.submit(Exited(unit="shop", run="old", cause=Cause.DONE))
        assert house.governor.boot("host").verb in (Verb.PROCEED, Verb.HOLD)
        assert house.start("late").verb is Verb.HOLD
        assert house.submit(Start(unit="shop", run="again", again=True)).verb is Verb.HOLD
    house.submit(Released(unit="shop", by="ann"))
    house.submit(Released(scope="fleet", by="ann"))
    assert house.start("late").proceeds


@pytest.mark.parametrize(
    ("held_by", "free"), [(held_by_quarantine, True), (held_by_flapping, True), (held_by_a_person, False)]
)
def test_a_change_leaves_what_is_about_failures(held_by: Callable[[House], None], free: bool) -> None:
    """A changed definition may be a fix; a person's order it is not. The same definition again is no change."""
    house = House()
    house.submit(Revise(unit="shop", revision="a"))
    held_by(house)
    assert not house.submit(Revise(unit="shop", revision="a")).proceeds
    assert house.start("late").verb is Verb.HOLD
    assert house.submit(Revise(unit="shop", revision="b")).proceeds
    assert house.start("late").proceeds is free


def test_one_units_hold_is_not_its_siblings() -> None:
    """A hold is about what failed."""
    house = House(Quarantine(), Flapping(), Restart(row_max=2))
    held_by_quarantine(house)
    assert house.start(unit="sibling").proceeds


# Lost runs.


def live(house: House, run: str = "r1", holder: str = "old") -> None:
    house.submit(Start(unit="shop", run=run, holder=holder, labels={"provider": "p"}))


def lost(house: House) -> list[Exited]:
    """The runs that were reported as lost."""
    return [event for body in house.journal() if isinstance(event := body.event, Exited) and event.cause is Cause.LOST]


@pytest.mark.parametrize(
    ("holder", "gone", "passed", "found"),
    [
        ("old", None, 0, False),
        ("old", lambda holder: holder == "old", 0, True),
        ("old", lambda _: False, 0, False),
        ("new", None, 0, True),
        ("old", None, MINUTE - 1, False),
        ("old", None, MINUTE, True),
    ],
)
def test_lost_at_boot(holder: str, gone: Callable[[str], bool] | None, passed: int, found: bool) -> None:
    """Runs of a dead holder, of this very holder, or with a lease that ran out; with the labels that they had. It
    counts as a failure."""
    house = House(Exclusive(lease=60 * SECOND), Quarantine(), Quarantine(by="provider"))
    live(house, holder=holder)
    house.clock.move(passed)
    house.reopened().governor.boot("new", gone=gone)
    assert [event.run for event in lost(house)] == (["r1"] if found else [])
    assert (Key("quarantine", "unit", "shop") in house.known()) is found
    assert (Key("quarantine", "provider", "p") in house.known()) is found
    assert isinstance(house.journal()[-1].event, Booted)
    if found:
        assert lost(house)[0].fingerprint
        assert "held by" in lost(house)[0].detail


@pytest.mark.parametrize(
    ("between", "found"),
    [
        ([], True),
        ([Beat(unit="shop", run="r1")], False),
        ([Step(unit="shop", run="r1")], False),
        ([Stepped(unit="shop", run="r1", done=(Work(),))], False),
        ([Exited(unit="shop", run="r1", cause=Cause.DONE)], False),
    ],
    ids=lambda case: type(case[0]).__name__ if isinstance(case, list) and case else "",
)
def test_lost_when_the_lease_ran_out(between: list[Event], found: bool) -> None:
    """Unless it was renewed or has exited in between."""
    house = House(Exclusive(lease=60 * SECOND))
    live(house)
    house.clock.move(40 * SECOND)
    for event in between:
        house.submit(event)
    house.clock.move(20 * SECOND)
    assert house.governor.reap() == found
    assert len(lost(house)) == found
    assert house.governor.reap() == 0


class RacingStore(MemoryStore):
    """A store in which something else happens just before the next transaction."""

    first: Callable[[], object] | None = None

    def transact(self, keys: object, draft: Drafter, *, sync: bool = True) -> Entry | None:
        first, self.first = self.first, None
        if first is not None:
            first()
        return super().transact(keys, draft, sync=sync)  # type: ignore[arg-type]  # handed on as it came


@pytest.mark.parametrize("event", [Beat(unit="shop", run="r1"), Exited(unit="shop", run="r1", cause=Cause.DONE)])
def test_not_lost_if_it_was_heard_of_at_the_last_moment(event: Event) -> None:
    """Whether it is lost is decided inside the transaction: who renews or exits in between is not."""
    store = RacingStore()
    house = House(Exclusive(lease=60 * SECOND), store=store)
    live(house)
    house.clock.move(2 * MINUTE)
    store.first = lambda: house.submit(event)
    assert house.governor.reap() == 0
    assert not lost(house)


def test_a_second_start_waits_for_the_first() -> None:
    """While one is live another waits; once its lease ran out the first is lost, and the second is admitted."""
    house = House(Exclusive(lease=60 * SECOND))
    live(house)
    refused = house.start("r2")
    assert (refused.verb, refused.codes) == (Verb.WAIT, ("already_running",))
    house.clock.set(refused.until - 1)
    assert house.start("r2").verb is Verb.WAIT
    house.clock.set(refused.until)
    assert house.start("r2").proceeds
    assert [event.run for event in lost(house)] == ["r1"]


def test_a_lost_run_is_a_failure_like_any_other() -> None:
    """A unit that dies without a word is not admitted at once: it cools down first."""
    house = House(Exclusive(lease=60 * SECOND), Cooldown())
    live(house)
    house.clock.move(2 * MINUTE)
    assert house.start("r2").codes == ("cooling",)


def test_who_wakes_up_after_it_was_lost_is_stopped() -> None:
    """Two runs of one unit never both go on."""
    house = House(Exclusive(lease=60 * SECOND))
    live(house)
    house.clock.move(2 * MINUTE)
    assert house.start("r2").proceeds
    assert house.submit(Step(unit="shop", run="r1")).codes == ("run_not_live",)
    assert house.submit(Step(unit="shop", run="r2")).proceeds


def test_who_was_lost_keeps_nothing_over_what_another_kept() -> None:
    """A process may sleep between any two instructions: whether its run lives is looked at in the transaction."""
    kept = Key("memory", "unit", "shop")
    house = House(Exclusive(lease=60 * SECOND))
    live(house)
    house.submit(Stepped(unit="shop", run="r1"), {kept: b"first"})
    house.clock.move(2 * MINUTE)
    assert house.start("r2").proceeds
    house.submit(Stepped(unit="shop", run="r2"), {kept: b"second"})
    house.submit(Stepped(unit="shop", run="r1"), {kept: b"late"})
    assert house.store.states()[kept] == b"second"


@pytest.mark.parametrize("rows_of", [Stepped(unit="shop", run="r1"), Released(unit="shop")], ids=["run", "order"])
def test_where_nobody_knows_of_leases_all_is_kept(rows_of: Event) -> None:
    """What is no run's, or is of a run that no policy watches, is written as it is given."""
    kept = Key("memory", "unit", "shop")
    house = House(Cooldown()) if rows_of.run else House()
    house.submit(rows_of, {kept: b"1"})
    assert house.store.states()[kept] == b"1"


def test_who_was_lost_does_not_end_once_more() -> None:
    """S2-20: work whose run was given up is not done because that run wakes up and says so: nothing starts anew."""
    house = House(Exclusive(lease=60 * SECOND), resume_limit())
    live(house)
    house.clock.move(2 * MINUTE)
    assert house.submit(Resume(unit="shop", run="r2", holder="host")).proceeds
    assert house.governor.submit_living(Exited(unit="shop", run="r1", cause=Cause.DONE)) is None
    assert Key("resumes", "unit", "shop") in house.known()
    assert house.governor.submit_living(Exited(unit="shop", run="r2", cause=Cause.DONE)) is not None
    assert Key("resumes", "unit", "shop") not in house.known()


def test_leases_that_cannot_be_read_are_one_units_trouble(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever looks after lost runs finds those of all others; the unit itself is refused, with the reason."""
    spoilt = Snapshot(0, 0, {Key("exclusive", "unit", "shop"): b"{{"})
    house = House(Exclusive(lease=60 * SECOND), store=MemoryStore(spoilt))
    assert house.start("r1", unit="other").proceeds
    assert [unit for unit, _, _ in house.governor.live_runs()] == ["other"]
    house.clock.move(2 * MINUTE)
    assert house.governor.reap() == 1
    assert "policy_failed" in house.start().codes


def test_one_of_two_starts_at_once() -> None:
    """Two that ask for the same run at the same time: one is admitted. (S2-37)"""
    house = House(Exclusive(lease=60 * SECOND))
    answers = [house.submit(Resume(unit="shop", run="same", holder=holder)).verb for holder in ("one", "two")]
    assert answers == [Verb.PROCEED, Verb.WAIT]


# Time.


@pytest.mark.parametrize("back", [SECOND, HOUR, 900 * DAY])
def test_a_clock_set_back(back: int) -> None:
    """The journal's time never runs back, and a wait does not become longer than it was."""
    house = House(Cooldown(ladder=(MINUTE,)))
    house.start()
    until = house.fail().until
    house.clock.move(-back)
    refused = house.start("r2", again=True)
    assert refused.until == until
    assert until - house.clock.now() <= MINUTE
    house.clock.move(MINUTE)
    assert house.start("r2", again=True).proceeds
    instants = [entry.at for entry in house.store.entries()]
    assert instants == sorted(instants)


@pytest.mark.parametrize(("jump", "held"), [(29 * DAY, False), (400 * DAY, True), (-4 * MINUTE, False), (-HOUR, True)])
def test_a_clock_that_jumped_is_noticed_at_boot(jump: int, held: bool) -> None:
    """Far ahead or back: the fleet is held until a person has looked at the clock."""
    house = House(Clock())
    house.submit(Exited(unit="shop", run="r1", cause=Cause.DONE))
    house.clock.move(jump)
    decision = house.reopened().governor.boot("host")
    assert (decision.codes == ("clock_jumped",)) is held
    assert house.start().proceeds is not held
    house.reopened().governor.boot("host")
    assert house.start().proceeds is not held, "another boot does not confirm it"
    house.submit(Released(scope="fleet", by="ann"))
    assert house.start().proceeds


def test_the_first_boot_has_nothing_to_compare_with() -> None:
    """An empty journal says nothing of the clock."""
    assert House(Clock()).governor.boot("host").proceeds


class Times:
    """The machine's clocks, as the test sets them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.steady = 1_000_000_000 * SECOND, 500 * SECOND
        monkeypatch.setattr(time, "time_ns", lambda: self.wall * 1_000)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.steady * 1_000)

    def passed(self, length: int) -> None:
        self.wall += length
        self.steady += length


def test_the_systems_clock_never_runs_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set back by hours, time goes on by the steady clock; when the wall has caught up it leads again."""
    times, clock = Times(monkeypatch), SystemClock()
    began = clock.now()
    assert began == times.wall
    times.wall -= 2 * HOUR
    assert clock.now() == began
    times.passed(MINUTE)
    assert clock.now() == began + MINUTE
    times.passed(SECOND)
    assert clock.now() == began + MINUTE + SECOND
    times.wall += 5 * HOUR
    assert clock.now() == times.wall


def test_the_systems_clock_loses_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set back by two hours and read again only three hours later, three hours have passed: how long a wait is does
    not depend on how often somebody asks."""
    times, clock = Times(monkeypatch), SystemClock()
    began = clock.now()
    times.wall -= 2 * HOUR
    times.passed(3 * HOUR)
    assert clock.now() == began + 3 * HOUR


def test_the_systems_clock_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the journal, it goes on from there; ahead of it, nothing changes."""
    times, clock = Times(monkeypatch), SystemClock()
    assert clock.catch_up(times.wall - HOUR) == times.wall
    ahead = times.wall + HOUR
    assert clock.catch_up(ahead) == ahead
    times.passed(SECOND)
    assert clock.now() == ahead + SECOND


@pytest.mark.parametrize("wall_moves", [-9, -1, 0, 1, 7])
def test_the_systems_clock_is_monotonic(monkeypatch: pytest.MonkeyPatch, wall_moves: int) -> None:
    """Whatever the wall clock does between two readings."""
    times, clock = Times(monkeypatch), SystemClock()
    last = clock.now()
    for number in range(50):
        times.wall += wall_moves * number * SECOND
        times.steady += number
        now = clock.now()
        assert now >= last
        last = now


# Callers that must not block.


def test_submit_soon() -> None:
    """The same answer, in a future; a store that fails is told there."""
    house = House()
    assert house.governor.submit_soon(Start(unit="shop", run="r1")).result(timeout=5).proceeds
    assert Key("exclusive", "unit", "shop") in house.known()
    store = BrokenStore()
    broken = House(Limit(), store=store)
    store.full = True
    with pytest.raises(OSError, match="no room"):
        broken.governor.submit_soon(Step(unit="shop", run="r1")).result(timeout=5)


class SlowStore(MemoryStore):
    """A store that commits when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], None]] = []

    def transact_soon(self, keys: object, draft: Drafter, *, sync: bool = True) -> "Future[Entry | None]":
        future: Future[Entry | None] = Future()
        self.waiting.append(lambda: future.set_result(self.transact(keys, draft, sync=sync)))  # type: ignore[arg-type]  # handed on as it came
        return future


def test_submit_soon_answers_when_it_is_committed() -> None:
    """Not before: until then nothing may happen."""
    store = SlowStore()
    answer = House(store=store).governor.submit_soon(Start(unit="shop", run="r1"))
    assert not answer.done()
    store.waiting.pop()()
    assert answer.result(timeout=5).proceeds


def test_submit_soon_finds_lost_runs_too() -> None:
    """A caller in an event loop is not left waiting for a run that nobody will report."""
    house = House(Exclusive(lease=60 * SECOND))
    live(house)
    house.clock.move(2 * MINUTE)
    assert house.governor.submit_soon(Start(unit="shop", run="r2")).result(timeout=5).proceeds


# Robustness.


def test_a_state_that_cannot_be_read_is_a_fault_of_its_policy(caplog: pytest.LogCaptureFixture) -> None:
    """One row that is no state of its policy stops the unit with a reason, and does not silence the other policies."""
    spoilt = Snapshot(0, 0, {Key("quarantine", "unit", "shop"): b'{"failures":7}'})
    house = House(Quarantine(), Cooldown(), store=MemoryStore(spoilt))
    decision = house.fail()
    assert "policy_failed" in decision.codes
    assert Key("cooldown", "unit", "shop") in house.known()


def test_a_competitor_that_keeps_asking_does_not_fill_the_journal() -> None:
    """While one run makes its steps, another is refused its start again and again: that is one refusal."""
    house = House(Exclusive(lease=60 * SECOND))
    live(house)
    for _ in range(5):
        house.submit(Step(unit="shop", run="r1"))
        house.start("r2")
    assert sum(isinstance(body.event, Start) for body in house.journal()) == 2


@pytest.mark.parametrize("steps", [0, -5])
def test_no_step_is_free(steps: int) -> None:
    """A request for no steps, or for fewer, takes nothing off the count."""
    house = House(Limit(by="unit", most=3))
    answers = [house.submit(Step(unit="shop", run="r1", steps=steps)).verb for _ in range(4)]
    assert answers[-1] is Verb.STOP


def test_a_negative_cost_makes_no_money() -> None:
    """What is asked for is never less than nothing."""
    house = House(Budget(by="unit"))
    house.submit(Step(unit="shop", run="r1", cost={"usd": -10_000_000}))
    assert not house.submit(Step(unit="shop", run="r1", cost={"usd": 1_000_001})).proceeds


def test_texts_in_states_are_bounded() -> None:
    """An error of a megabyte is not kept, nor written again with every change."""
    house = House(Cooldown(), Quarantine(), Manual())
    house.submit(Exited(unit="shop", run="r1", cause=Cause.ERROR, fingerprint="f", error="x" * 1_000_000))
    house.submit(Held(unit="shop", note="x" * 1_000_000))
    assert sum(len(data) for data in house.known().values()) < 100_000


def test_draft_is_never_before_the_journal() -> None:
    """Each draft is dated not before the last entry, so a store can insist on it."""

    class Strict(MemoryStore):
        def transact(self, keys: object, draft: Drafter, *, sync: bool = True) -> Entry | None:
            def checked(snapshot: Snapshot) -> Draft | None:
                made = draft(snapshot)
                assert made is None or made.at >= snapshot.at
                return made

            return super().transact(keys, checked, sync=sync)  # type: ignore[arg-type]  # handed on as it came

    house = House(store=Strict())
    for number in range(5):
        house.clock.move(-HOUR)
        house.fail(run=f"r{number}")
    assert len(house.journal()) == 5


# A fact, and what comes next.


def followed(house: House, cause: Cause = Cause.ERROR, run: str = "r1") -> tuple[Decision, Decision | None]:
    """Report the end of a run and ask for the next one."""
    exited = Exited(unit="shop", run=run, cause=cause, fingerprint="f", error="broken")
    return house.governor.report_and_ask_soon(exited, Start(unit="shop", run="r2", again=True)).result()


def verbs(house: House) -> list[tuple[str, Verb]]:
    return [(type(body.event).__name__, body.decision.verb) for body in house.journal()]


def test_what_may_follow_at_once_is_asked_at_once() -> None:
    """The exit's answer leaves nothing to wait for: the next start is weighed on it, and both are in the journal."""
    house = House(Exclusive(), Restart())
    house.start()
    answer, leave = followed(house)
    assert answer.proceeds
    assert leave is not None
    assert leave.proceeds
    assert verbs(house) == [("Start", Verb.PROCEED), ("Exited", Verb.PROCEED), ("Start", Verb.PROCEED)]
    assert [run for _, run, _ in house.governor.live_runs()] == ["r2"]


@pytest.mark.parametrize(
    ("policy", "cause", "verb"),
    [
        (Cooldown(), Cause.ERROR, Verb.WAIT),
        (Restart(), Cause.DONE, Verb.FINISH),
        (Quarantine(failures_max=1), Cause.ERROR, Verb.HOLD),
    ],
)
def test_what_has_to_wait_is_not_asked(policy: AnyPolicy, cause: Cause, verb: Verb) -> None:
    """It leaves no trace: neither a run nor a refusal."""
    house = House(Exclusive(), policy)
    house.start()
    answer, leave = followed(house, cause)
    assert (answer.verb, leave) == (verb, None)
    assert verbs(house) == [("Start", Verb.PROCEED), ("Exited", verb)]
    assert not house.governor.live_runs()


def test_a_wait_that_is_over_is_none() -> None:
    """A wait that ends by the time the next start is weighed does not keep it from being asked."""
    house = House(Exclusive(), Cooldown(ladder=(0,)))
    house.start()
    _, leave = followed(house)
    assert leave is not None
    assert leave.proceeds


def test_where_another_run_lives_it_is_asked_by_itself() -> None:
    """Whether that other run is lost takes a look at the store: that is for `submit`."""
    house = House(Exclusive())
    house.start("other")
    _, leave = followed(house, run="r0")
    assert leave is None


def test_a_fact_that_cannot_be_written_is_followed_by_nothing() -> None:
    """The caller gets the error, and no run was granted."""
    house = House(Exclusive(), Restart())
    house.start()
    house.store.close()
    with pytest.raises(StoreClosed):
        followed(house)


def test_a_request_that_cannot_be_written_is_not_granted() -> None:
    """The fact before it is written: it is answered, and not to be reported again."""

    class Full(MemoryStore):
        full = False

        def transact_soon(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> "Future[Entry | None]":
            if self.full:
                failed: Future[Entry | None] = Future()
                failed.set_exception(StoreFull("no room"))
                return failed
            self.full = True
            return super().transact_soon(keys, draft, sync=sync)

    house = House(Exclusive(), Restart(), store=Full())
    house.start()
    answer, leave = followed(house)
    assert answer.proceeds
    assert leave is None
    assert verbs(house) == [("Start", Verb.PROCEED), ("Exited", Verb.PROCEED)]
