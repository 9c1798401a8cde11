"""The driver: what it makes of each answer, on a clock that the test moves. Nothing sleeps."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from flyball.config import load
from flyball.core.codec import Body, decode_body
from flyball.core.decision import PROCEED, Decision, Verb
from flyball.core.event import Beat, Cause, Event, Exited, Held, Released, Start
from flyball.core.policy import AnyPolicy, Key
from flyball.core.time import FOREVER, HOUR, MINUTE, SECOND, Instant, Span
from flyball.errors import StoreCorrupt, StoreError, StoreFull, StoreUnsure
from flyball.governor import NO_ROWS, Governor, Rows
from flyball.policies import Deadline
from flyball.runtimes.driver import Driver, Ending, NotBegun
from flyball.runtimes.session.opening import opening
from flyball.store import Drafter, Entry
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock


class Time:
    """Virtual time: when everybody waits, the clock is moved to the earliest instant that somebody waits for."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self._sleepers: list[tuple[Instant, asyncio.Event]] = []

    async def sleep(self, poked: asyncio.Event, until: Instant) -> None:
        woken = asyncio.Event()
        sleeper = (until, woken)
        self._sleepers.append(sleeper)
        waits = [asyncio.ensure_future(poked.wait()), asyncio.ensure_future(woken.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)

    async def play(self, work: Coroutine[Any, Any, Decision]) -> Decision:
        task = asyncio.ensure_future(work)
        while not task.done():
            for _ in range(25):
                await asyncio.sleep(0)
            due = [until for until, _ in self._sleepers]
            if not task.done() and due and min(due) < FOREVER - HOUR:
                self.clock.catch_up(min(due))
                for until, woken in list(self._sleepers):
                    if until <= self.clock.now():
                        woken.set()
        return task.result()


class FakeLife:
    """A life that lasts so long, unless it is ended."""

    def __init__(self, time: Time, uptime: Span, ending: Ending) -> None:
        self.time, self.ending = time, ending
        self.over_at = time.clock.now() + uptime if uptime < FOREVER else FOREVER
        self.told = asyncio.Event()
        self.ends = 0

    async def ended(self) -> Ending:
        while self.time.clock.now() < self.over_at and not self.told.is_set():
            await self.time.sleep(self.told, self.over_at)
        return self.ending

    async def end(self, grace: Span) -> None:
        self.ends += 1
        self.told.set()


class FakeHands:
    """Begins lives as told, and remembers when."""

    def __init__(self, time: Time, uptime: Span = 0, cause: Cause = Cause.ERROR, error: str = "exit 3") -> None:
        self.time, self.uptime = time, uptime
        self.ending = Ending(cause, fingerprint="f" if cause.failed else "", error=error if cause.failed else "")
        self.begun: list[tuple[Instant, bool]] = []
        self.lives: list[FakeLife] = []

    async def begin(self, run: str, *, again: bool) -> FakeLife:
        self.begun.append((self.time.clock.now(), again))
        self.lives.append(FakeLife(self.time, self.uptime, self.ending))
        return self.lives[-1]


class Disk(MemoryStore):
    """A store whose disk is full from one instant to another."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.full_from, self.full_to = FOREVER, FOREVER
        self.error: StoreError = StoreFull("no room")

    def transact(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> Entry | None:
        if self.full_from <= self.clock.now() < self.full_to:
            draft(self.read(keys))
            raise self.error
        return super().transact(keys, draft, sync=sync)


class House:
    """A driver on default settings, with fake hands."""

    def __init__(self, *more: AnyPolicy, **hands: Any) -> None:
        self.time = Time()
        self.store = Disk(self.time.clock)
        self.governor = Governor([*load(env={}).policies("process"), *more], self.store, self.time.clock)
        self.hands = FakeHands(self.time, **hands)
        self.seen: list[tuple[str, Verb]] = []
        self.on_answer: Callable[[Event, Decision], None] | None = None
        self.driver = Driver("u", self.hands, self.governor, "host/1/1", listener=self._listen, sleep=self.time.sleep)
        self.troubles: list[StoreError | None] = []
        self.driver.troubled = self.troubles.append

    def _listen(self, driver: Driver, event: Event, decision: Decision) -> None:
        self.seen.append((type(event).__name__, decision.verb))
        if self.on_answer is not None:
            self.on_answer(event, decision)

    def play(self) -> Decision:
        return asyncio.run(self.time.play(self.driver.drive()))

    def bodies(self, kind: type[Event]) -> list[Body]:
        bodies = [decode_body(entry.body) for entry in self.store.entries(limit=10_000)]
        return [body for body in bodies if isinstance(body.event, kind)]

    def exits(self) -> list[Exited]:
        return [body.event for body in self.bodies(Exited) if isinstance(body.event, Exited)]

    def order(self, event: Event) -> None:
        self.governor.submit(event)
        self.driver.poke()


def test_what_always_fails_is_held() -> None:
    """Closed loop: the delays that the policies return are waited for; six starts, then it is held."""
    house = House()
    decision = house.play()
    assert decision.verb is Verb.HOLD
    assert "quarantined" in decision.codes
    waits = [later[0] - earlier[0] for earlier, later in zip(house.hands.begun, house.hands.begun[1:], strict=False)]
    assert [wait // SECOND for wait in waits] == [2, 5, 30, 300, 1800]
    assert [again for _, again in house.hands.begun] == [False, True, True, True, True, True]


@pytest.mark.parametrize(("cause", "code"), [(Cause.DONE, "ended_done"), (Cause.STOPPED, "ended_stopped")])
def test_what_is_done_is_over(cause: Cause, code: str) -> None:
    """No other run follows by itself."""
    house = House(cause=cause, uptime=5 * SECOND)
    decision = house.play()
    assert (decision.verb, decision.codes) == (Verb.FINISH, (code,))
    assert len(house.hands.begun) == 1


def test_order_during_a_wait_is_obeyed_at_once() -> None:
    """A pause given while it cools down ends the wait: no time passes."""
    house = House()
    waited_since: list[Instant] = []

    def pause(event: Event, decision: Decision) -> None:
        if isinstance(event, Exited) and len(house.hands.begun) == 5:
            waited_since.append(house.time.clock.now())
            asyncio.get_running_loop().call_soon(house.order, Held(unit="u", by="ann"))

    house.on_answer = pause
    decision = house.play()
    assert "paused" in decision.codes
    assert house.time.clock.now() == waited_since[0]
    assert len(house.hands.begun) == 5


def test_pause_ends_a_run() -> None:
    """A pause given while it runs ends it, and it did not fail by itself: it was stopped."""
    house = House(uptime=FOREVER)

    def pause(event: Event, decision: Decision) -> None:
        if isinstance(event, Beat) and len(house.bodies(Held)) == 0:
            house.order(Held(unit="u", by="ann"))

    house.on_answer = pause
    decision = house.play()
    assert "paused" in decision.codes
    assert house.hands.lives[0].ends == 1
    assert [(left.cause, left.error) for left in house.exits()] == [(Cause.STOPPED, "paused")]


def test_order_that_comes_with_the_answer_is_not_lost() -> None:
    """The race: a pause is committed after leave was given and before the run begins. The run is ended at once."""
    house = House(uptime=FOREVER)

    def pause(event: Event, decision: Decision) -> None:
        if isinstance(event, Start) and decision.proceeds:
            house.order(Held(unit="u", by="ann"))

    house.on_answer = pause
    began = house.time.clock.now()
    decision = house.play()
    assert "paused" in decision.codes
    assert house.time.clock.now() == began
    assert house.hands.lives[0].ends == 1


def test_deadline_ends_what_hangs() -> None:
    """A run that hangs is ended when its time is over, with cause timeout, and counts as a failure."""
    house = House(Deadline(lasts_max=10 * MINUTE), uptime=FOREVER, cause=Cause.STOPPED)
    began = house.time.clock.now()
    exits: list[Instant] = []

    def note(event: Event, decision: Decision) -> None:
        if isinstance(event, Exited):
            exits.append(house.time.clock.now() - began)
            house.order(Held(unit="u"))

    house.on_answer = note
    house.play()
    assert [(left.cause, left.error) for left in house.exits()] == [(Cause.TIMEOUT, "timeout")]
    assert 10 * MINUTE <= exits[0] <= 10 * MINUTE + SECOND


def test_silence_is_not_hidden_by_the_drivers_own_beats() -> None:
    """The driver renews the lease; that is no sign of life of the run, so the idle deadline still ends it."""
    house = House(Deadline(lasts_max=5 * MINUTE, idle=True, name="idle"), uptime=FOREVER, cause=Cause.STOPPED)

    def pause(event: Event, decision: Decision) -> None:
        if isinstance(event, Exited):
            house.order(Held(unit="u"))

    house.on_answer = pause
    house.play()
    assert [left.cause for left in house.exits()] == [Cause.TIMEOUT]


def test_lease_is_renewed_for_as_long_as_it_lives() -> None:
    """A run of six hours is never lost: the driver asks before each lease ends."""
    house = House(uptime=6 * HOUR, cause=Cause.DONE)
    house.play()
    assert [left.cause for left in house.exits()] == [Cause.DONE]
    beats = house.bodies(Beat)
    assert beats
    assert all(isinstance(body.event, Beat) and body.event.silent for body in beats)


def test_resumed_by_a_person_it_goes_on() -> None:
    """A driver that is over can drive again: after a release it starts where the history allows."""
    house = House()
    assert house.play().verb is Verb.HOLD
    house.governor.submit(Released(unit="u", by="ann"))
    house.hands.ending = Ending(Cause.DONE)
    assert house.play().codes == ("ended_done",)
    assert len(house.hands.begun) == 7


def test_cancelled_it_leaves_nothing_running() -> None:
    """A supervisor that goes down ends its runs, and they are journalled as stopped."""
    house = House(uptime=FOREVER)

    async def cut_short() -> None:
        driving = asyncio.ensure_future(house.driver.drive())
        while not house.hands.lives:
            await asyncio.sleep(0)
        driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving

    asyncio.run(cut_short())
    assert house.hands.lives[0].ends == 1
    assert [left.cause for left in house.exits()] == [Cause.STOPPED]


def test_left_before_it_was_begun() -> None:
    """What was granted in the moment in which it is left is not begun, and that is journalled before any wait: at the
    first one its driver leaves, and until the lease is over nobody could start the unit."""
    house = House()

    class Left(Exception):
        pass

    async def leave(_: asyncio.Event, __: Instant) -> None:
        raise Left

    async def not_begun(run: str, *, again: bool) -> NotBegun:
        return NotBegun()

    house.hands.begin = not_begun  # type: ignore[method-assign, assignment]  # it begins nothing
    house.driver.sleep = leave
    with contextlib.suppress(Left):
        asyncio.run(house.driver.drive())
    assert [(left.cause, left.error) for left in house.exits()] == [(Cause.STOPPED, "not begun")]
    assert house.governor.live_runs("u") == []


def test_none_waits_for_another() -> None:
    """Two drivers: while one cools down for half an hour, the other runs its hundred lives."""
    house = House()
    other = FakeHands(house.time, uptime=SECOND, cause=Cause.DONE)
    lives: list[Instant] = []

    async def again_and_again() -> None:
        for _ in range(100):
            driver = Driver("other", other, house.governor, "host/1/2", sleep=house.time.sleep)
            await driver.drive()
            lives.append(house.time.clock.now())

    async def both() -> Decision:
        decision, _ = await asyncio.gather(house.driver.drive(), again_and_again())
        return decision

    began = house.time.clock.now()
    asyncio.run(house.time.play(both()))
    assert lives[-1] - began == 100 * SECOND


def test_full_disk_while_it_runs() -> None:
    """What runs goes on while its lease cannot be renewed; somebody is told, once; its exit is written down as it was
    when there is room, and only then anything follows."""
    house = House(uptime=100 * SECOND)
    began = house.time.clock.now()
    house.store.full_from, house.store.full_to = began + 10 * SECOND, began + 201 * SECOND
    assert "quarantined" in house.play().codes
    assert house.hands.lives[0].ends == 0
    assert {(left.cause, left.error) for left in house.exits()} == {(Cause.ERROR, "exit 3")}
    assert len(house.exits()) == len(house.hands.begun) == 6, "none was lost, and none was counted twice"
    assert house.hands.begun[1][0] >= house.store.full_to
    assert house.troubles == [house.store.error, None]


def test_full_disk_at_the_start() -> None:
    """Nothing is begun that cannot be counted before."""
    house = House(cause=Cause.DONE)
    began = house.time.clock.now()
    house.store.full_from, house.store.full_to = began, began + MINUTE
    assert house.play().codes == ("ended_done",)
    assert [at >= began + MINUTE for at, _ in house.hands.begun] == [True]


def test_full_disk_and_a_deadline() -> None:
    """A deadline holds also while nothing can be written down."""
    house = House(Deadline(lasts_max=MINUTE), uptime=FOREVER)
    began = house.time.clock.now()
    house.store.full_from, house.store.full_to = began + 10 * SECOND, began + HOUR
    ended: list[Instant] = []

    async def ended_at() -> Decision:
        while not house.hands.lives or not house.hands.lives[0].ends:
            await asyncio.sleep(0)
        ended.append(house.time.clock.now())
        house.driver.hands = FakeHands(house.time, cause=Cause.DONE)
        return PROCEED

    async def both() -> Decision:
        return (await asyncio.gather(house.driver.drive(), ended_at()))[0]

    assert asyncio.run(house.time.play(both())).codes == ("ended_done",)
    assert ended[0] - began == MINUTE
    assert [left.cause for left in house.exits()] == [Cause.TIMEOUT, Cause.DONE]


@pytest.mark.parametrize("how", ["told to give up", "a broken store"])
def test_store_that_is_not_waited_for(how: str) -> None:
    """Whoever has to end does not wait for room on the disk; what does not pass is not waited for at all."""
    house = House()
    house.store.full_from = house.time.clock.now()
    if how == "a broken store":
        house.store.error = StoreCorrupt("damaged")
    else:
        house.driver.troubled = lambda _: house.driver.give_up()
    with pytest.raises(type(house.store.error)):
        house.play()
    assert house.hands.begun == []


# Sessions: what a start is, is found out before each.


class Cut(Disk):
    """A store whose link breaks in mid-commit, now and then: of the answer nothing is heard."""

    def __init__(self, clock: FakeClock, *, every: int, written: bool) -> None:
        super().__init__(clock)
        self.every, self.written, self.calls = every, written, 0

    def transact(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> Entry | None:
        self.calls += 1
        if self.calls % self.every:
            return super().transact(keys, draft, sync=sync)
        if self.written:
            super().transact(keys, draft, sync=sync)
        raise StoreUnsure("the connection was lost in mid-commit")


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("every", [2, 3, 5, 7])
def test_answers_that_are_never_heard(every: int, written: bool) -> None:
    """Whether it was written or not, nothing is counted twice and nothing is forgotten: as many starts and exits as
    there were lives, and as many lives as with a link that never breaks."""
    house = House()
    house.governor.store = house.store = Cut(house.time.clock, every=every, written=written)
    decision = house.play()
    assert (decision.verb, len(house.hands.begun)) == (Verb.HOLD, 6)
    granted = [body.event.run for body in house.bodies(Start) if body.decision.proceeds]
    assert len(granted) == len(set(granted)) == 6
    assert [exited.run for exited in house.exits()] == granted


class SessionHouse(House):
    """The same, with a session: each of its runs ends as the next ending says."""

    def __init__(self, *endings: Ending) -> None:
        super().__init__(uptime=SECOND)
        self.governor.panel.replace(load(env={}).policies("session"), {})
        self.driver.opening = self._open
        self._endings = list(endings)

    async def _open(self, start: Start) -> tuple[Start, Rows]:
        self.hands.ending = self._endings[min(len(self.hands.begun), len(self._endings) - 1)]
        return opening(self.governor, start), {}

    def starts(self) -> list[tuple[str, bool]]:
        """Which were granted, and whether nobody asked for them."""
        return [
            (type(body.event).__name__, body.event.again)
            for body in self.bodies(Start)
            if isinstance(body.event, Start) and body.decision.proceeds
        ]


def test_what_was_paused_is_resumed_in_its_time() -> None:
    """After a pause it waits as long as the pause lasts, and goes on: a resume, which is no restart. After a failure it
    is one, too. When it is done, it is over."""
    house = SessionHouse(
        Ending(Cause.STOPPED, pause="rate_limit", resume_at=FakeClock().now() + HOUR),
        Ending(Cause.ERROR, fingerprint="f"),
        Ending(Cause.DONE),
    )
    began = house.time.clock.now()
    assert house.play().codes == ("ended_done",)
    assert house.starts() == [("Start", False), ("Resume", False), ("Resume", True)]
    assert house.hands.begun[1][0] == began + HOUR
    assert [left.pause for left in house.exits()] == ["rate_limit", "", ""]


@pytest.mark.parametrize("ending", [Ending(Cause.STOPPED, pause="x", resume_at=1), Ending(Cause.ERROR)])
def test_resumes_end(ending: Ending) -> None:
    """S2-32: what always pauses, or always fails, is resumed three times by itself, and then held."""
    house = SessionHouse(ending)
    assert "max_resume_attempts_exceeded" in house.play().codes
    assert [kind for kind, _ in house.starts()] == ["Start", "Resume", "Resume", "Resume"]


def test_what_is_told_to_end_is_not_paused() -> None:
    """It said that it pauses, and then hung until its time was over: that is a failure like any other."""
    house = SessionHouse(Ending(Cause.STOPPED, pause="rate_limit"))
    house.hands.uptime = FOREVER
    house.play()
    assert {(left.cause, left.error, left.pause) for left in house.exits()} == {(Cause.TIMEOUT, "timeout", "")}


@pytest.mark.parametrize("is_full", [True, False])
def test_cancelled_while_a_session_exits(is_full: bool) -> None:
    """Its exit is written down all the same, once; if that cannot be, whoever has to end does not wait for it."""
    house = SessionHouse(Ending(Cause.ERROR))

    async def drive() -> Decision:
        task = asyncio.ensure_future(house.driver.drive())
        submit_soon = house.governor.submit_soon

        def cancel(event: Event, rows: Rows = NO_ROWS) -> "Future[Decision]":
            if isinstance(event, Exited):
                if is_full:
                    house.store.full_from = house.time.clock.now()
                asyncio.get_running_loop().call_soon(task.cancel)
            return submit_soon(event, rows)

        house.governor.submit_soon = cancel  # type: ignore[method-assign]
        await asyncio.wait((task,))
        assert task.cancelled() is not is_full
        assert isinstance(None if task.cancelled() else task.exception(), StoreFull) is is_full
        return PROCEED

    asyncio.run(house.time.play(drive()))
    assert len(house.exits()) == (0 if is_full else 1)
    assert len(house.hands.begun) == 1
