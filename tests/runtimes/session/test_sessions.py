"""`guard.session`: work in stages goes on from where it was, whatever ended it; and what is wrong is said before
anything is counted."""

import asyncio
import functools
import logging
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import flyball
from flyball.core.decision import Verb
from flyball.core.event import Cause, Exited, Held, Released, Start, Step, Stepped
from flyball.core.time import MINUTE, SECOND
from flyball.errors import FlyballError
from flyball.runtimes.agent.memory import MemoryRefused
from flyball.runtimes.current import CURRENT
from flyball.runtimes.refusal import OutOfBudget, Refused
from flyball.runtimes.session import block
from flyball.runtimes.session.context import SessionContext
from flyball.store import Draft, checkpoints
from tests.runtimes.session.scene import NAME, Scene, either

KINDS = ("thread", "coroutine")
WAIT_MAX = 30.0
"""Seconds for what takes milliseconds."""


class Broken(Exception):
    """The work fails."""


class Reading:
    """Reads sources one by one; fails before those that it is told to, each once."""

    def __init__(self, *fails: str) -> None:
        self.fails = list(fails)
        self.read: list[str] = []
        self.seen: list[SessionContext] = []

    def __call__(self, session: SessionContext) -> list[str]:
        self.seen.append(session)
        notes: list[str] = session.checkpoint.get("notes", [])
        for source in session.input["sources"][len(notes) :]:
            with session.stage(source):
                notes.append(source)
                session.checkpoint["notes"] = notes
                if source in self.fails:
                    self.fails.remove(source)
                    raise Broken(source)
                self.read.append(source)
        return notes


SOURCES = {"sources": ["a", "b", "c"]}


def work(scene: Scene, function: Any, **options: Any) -> flyball.Session:
    return scene.guard.session(NAME, function, **options)


def put(scene: Scene, rows: checkpoints.Rows) -> None:
    scene.store.transact([], lambda snapshot: Draft(snapshot.at, rows, None))


# It goes on from where it was.


@pytest.mark.parametrize("kind", KINDS)
def test_whole(kind: str) -> None:
    """Work that nothing disturbs is begun once and done; a checkpoint is kept with each stage."""
    scene = Scene()
    session = work(scene, either(kind, Reading()), input=SOURCES)
    assert session.run() == ["a", "b", "c"]
    assert (scene.starts(), scene.exits()) == (["start"], ["done"])
    assert [kept.stage for kept in session.checkpoints] == ["a", "b", "c"]
    assert (session.result, session.status) == (["a", "b", "c"], "completed")


@pytest.mark.parametrize("kind", KINDS)
def test_goes_on_from_the_last_stage_that_was_made(kind: str) -> None:
    """What was made is not made again, what failed is; each run after the first is a resume and is counted."""
    scene, reading = Scene(), Reading("b", "c")
    session = work(scene, either(kind, reading), input=SOURCES)
    for number in (0, 1):
        with pytest.raises(Broken):
            session.run()
        assert scene.count("resumes") == number
    assert session.run() == ["a", "b", "c"]
    assert reading.read == ["a", "b", "c"]
    assert scene.starts() == ["start", "resume", "resume"]
    assert [(seen.again, seen.resumed) for seen in reading.seen] == [(False, 0), (True, 1), (True, 2)]
    assert scene.count("resumes") == 0  # it is done


def test_another_program_goes_on() -> None:
    """The input is kept with the work: whoever resumes it needs its name and its function alone."""
    scene, reading = Scene(), Reading("b")
    with pytest.raises(Broken):
        work(scene, reading, input=SOURCES).run()
    assert work(scene.again(), reading).run() == ["a", "b", "c"]


def test_the_same_input_may_be_given_again_and_another_may_not() -> None:
    """Work that was begun with one input is not silently done with another: nothing is asked for, nothing counted."""
    scene, reading = Scene(), Reading("b")
    with pytest.raises(Broken):
        work(scene, reading, input=SOURCES).run()
    before = scene.known()
    with pytest.raises(FlyballError, match="begun with another input") as raised:
        work(scene, reading, input={"sources": ["x"]}).run()
    assert "Leave `input` out" in raised.value.remedy
    assert scene.known() == before
    assert work(scene, reading, input={"sources": ["a", "b", "c"]}).run() == ["a", "b", "c"]


def test_done_work_is_begun_anew() -> None:
    """A new start has its own input, no checkpoint of the old work, and all its resumes."""
    scene, reading = Scene(), Reading("b")
    session = work(scene, reading, input=SOURCES)
    with pytest.raises(Broken):
        session.run()
    session.run()
    anew = work(scene, reading, input={"sources": ["x"]})
    assert anew.run() == ["x"]
    assert scene.starts() == ["start", "resume", "start"]
    assert [kept.number for kept in anew.checkpoints] == [1]


def test_killed_in_the_middle() -> None:
    """A run that nobody will report is found, and counted: the next one is a resume, after its cooldown."""
    scene, reading = Scene(), Reading("b")
    session = work(scene, reading, input=SOURCES)
    with pytest.raises(Broken):
        session.run()
    scene.clock.move(MINUTE)
    gone = f"{socket.gethostname()}/4194305/1"
    assert scene.governor.submit(flyball.Resume(unit=NAME, run="lost", holder=gone)).proceeds
    assert session.run() == ["a", "b", "c"]
    assert scene.exits() == ["error", "lost", "done"]
    assert scene.starts() == ["start", "resume", "resume"]
    assert scene.slept  # its cooldown


def test_a_cooldown_that_is_too_long_is_not_waited_for() -> None:
    """It says when to come back."""
    scene, reading = Scene(), Reading("b", "c")
    with pytest.raises(Broken):
        work(scene, reading, input=SOURCES).run()
    with pytest.raises(Refused) as raised:
        work(scene, reading, wait=0.5).run()
    assert raised.value.verb is Verb.WAIT
    assert raised.value.retry_after
    assert scene.slept == []
    assert scene.starts() == ["start"]


# Stages.


def test_stages_are_counted_over_all_runs() -> None:
    """The limit belongs to the work: a resume does not begin at zero, and a stage that was asked for counts."""
    scene, reading = Scene(), Reading("b")
    with pytest.raises(Broken):
        work(scene, reading, input=SOURCES, steps=3).run()
    assert scene.count("steps") == 2
    with pytest.raises(Refused) as raised:
        work(scene, reading, steps=3).run()
    assert raised.value.code == "max_steps"
    assert reading.read == ["a", "b"]
    assert work(scene, reading, steps=5, wait=3600).run() == ["a", "b", "c"]


def test_what_is_called_in_a_stage_is_a_part_of_it() -> None:
    """Calls and reservations inside a stage cost, but are no more stages; outside of any they are steps of their
    own."""
    scene = Scene()

    @scene.guard.call("fetch")
    def fetch() -> None:
        pass

    def function(session: SessionContext) -> None:
        with session.stage("one"):
            assert CURRENT.get() is not None
            for _ in range(5):
                fetch()
            with session.reserve("0.02") as money:
                money.settle("0.01")
            with scene.guard.reserve("0.02") as money:
                money.settle("0.01")
        assert scene.count("steps") == 1
        with session.reserve("0.02") as money:
            money.settle("0.01")
        assert scene.count("steps") == 2
        raise Broken

    session = work(scene, function)
    with pytest.raises(Broken):
        session.run()
    assert session.show().budget.spent == 30_000
    assert CURRENT.get() is None


def test_each_stage_is_on_record_before_the_next() -> None:
    """Nothing is asked for in advance: a kill costs at most the stage in work."""
    scene = Scene()
    with pytest.raises(Broken):
        work(scene, Reading("c"), input=SOURCES).run()
    steps = [event for event in scene.events(Step) if isinstance(event, Step)]
    assert [step.steps for step in steps] == [1, 1, 1]
    assert len(scene.events(Stepped)) == 3


def test_a_failed_stage_keeps_nothing() -> None:
    """What it changed is taken back; the checkpoint is that of the stage before."""
    scene = Scene()

    def function(session: SessionContext) -> Any:
        if session.again:
            return dict(session.checkpoint)
        with session.stage("one"):
            session.checkpoint["kept"] = [1]
        try:
            with session.stage("two"):
                session.checkpoint["kept"].append(2)
                raise Broken
        finally:
            assert session.checkpoint["kept"] == [1]

    session = work(scene, function)
    with pytest.raises(Broken):
        session.run()
    assert session.run() == {"kept": [1]}


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (object(), "Encoding objects"),
        ("x" * (1024 * 1024), "would take"),
        (float("nan"), "'n' has something in it that would not come back"),
        ({1: "key"}, "'n' has something in it that would not come back"),
    ],
    ids=["not JSON", "too large", "no number", "another key"],
)
def test_what_cannot_be_kept_fails_its_stage(bad: object, match: str) -> None:
    """Never half a checkpoint: the last good one stands."""
    scene = Scene()

    def function(session: SessionContext) -> Any:
        if session.again:
            return dict(session.checkpoint)
        with session.stage("one"):
            session.checkpoint["n"] = 1
        with session.stage("two"):
            session.checkpoint["n"] = bad
        raise AssertionError

    session = work(scene, function)
    with pytest.raises(MemoryRefused, match=f"the checkpoint of work .*{match}"):
        session.run()
    assert session.run() == {"n": 1}


def test_stages_at_once_in_threads() -> None:
    """All of them are kept, in whatever order they end. One that finds its work kept by another makes no checkpoint."""
    scene = Scene()
    together = threading.Barrier(4)

    def function(session: SessionContext) -> None:
        def stage(name: str) -> None:
            with session.stage(name):
                together.wait(WAIT_MAX)
                session.checkpoint[name] = True

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(stage, "abcd"))
        raise Broken

    session = work(scene, function)
    with pytest.raises(Broken):
        session.run()
    found = checkpoints.load(scene.store, NAME)
    assert found is not None
    assert found.values == dict.fromkeys("abcd", True)
    numbers = [kept.number for kept in session.checkpoints]
    assert numbers == list(range(1, len(numbers) + 1))
    assert 1 <= len(numbers) <= 4


@pytest.mark.parametrize("_again", range(20))
def test_stage_ends_while_others_go_on(_again: int) -> None:
    """What one of them changes while another is being kept is no fault of that one."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that they come between each other, and not only on a bad day
    try:
        test_stages_at_once_in_threads()
    finally:
        sys.setswitchinterval(before)


def test_stages_at_once_in_tasks() -> None:
    """The same; and one that fails does not take back what the others did."""
    scene = Scene()

    async def function(session: SessionContext) -> None:
        async def stage(name: str) -> None:
            async with session.stage(name):
                session.checkpoint[name] = True
                await asyncio.sleep(0)
                if name == "b":
                    raise Broken

        results = await asyncio.gather(*(stage(name) for name in "abcd"), return_exceptions=True)
        assert [type(result) for result in results if result is not None] == [Broken]
        raise Broken

    with pytest.raises(Broken):
        work(scene, function).run()
    found = checkpoints.load(scene.store, NAME)
    assert found is not None
    assert {"a", "c", "d"} <= set(found.values)


@pytest.mark.parametrize("stages", [1, 2])
def test_a_run_that_was_given_up_keeps_nothing(stages: int) -> None:
    """A process that slept through its lease does not write over what the run in its place has kept, is refused its
    next stage, and does not say how the work ended."""
    scene = Scene()
    other = scene.again()
    made: list[int] = []

    def late(session: SessionContext) -> None:
        for number in range(stages):
            with session.stage("mine"):
                if not number:
                    scene.clock.move(60 * MINUTE)
                    work(other, Reading()).run()
                session.checkpoint["mine"] = number
                made.append(number)

    with pytest.raises(Refused) as raised:
        work(scene, late, input=SOURCES).run()
    assert raised.value.code == "run_not_live"
    assert made == [0]
    assert scene.exits() == ["lost", "done"]
    found = checkpoints.load(scene.store, NAME)
    assert found is not None
    assert found.values == {"notes": ["a", "b", "c"]}


# Checkpoints that cannot be used.


def broken_off(scene: Scene, **options: Any) -> flyball.Session:
    """A session that failed in its third stage."""
    session = work(scene, Reading("c"), input=SOURCES, **options)
    with pytest.raises(Broken):
        session.run()
    scene.clock.move(MINUTE)
    return session


def test_damaged_newest_checkpoint(caplog: pytest.LogCaptureFixture) -> None:
    """The last good one is used, and that is said: one stage is made again."""
    scene = Scene()
    session = broken_off(scene)
    put(scene, {checkpoints.data_key(NAME, 2): b"{}"})
    with caplog.at_level(logging.WARNING):
        assert session.run() == ["a", "b", "c"]
    assert "checkpoint 2 of work is damaged" in caplog.text


def test_nothing_is_begun_where_all_are_damaged() -> None:
    """It is an error; nothing is counted, nothing is lost, and a repaired store goes on."""
    scene = Scene()
    session = broken_off(scene)
    good = dict(scene.store.states("checkpoint"))
    put(scene, dict.fromkeys(good, b"{}"))
    before = scene.known()
    for call in (session.run, session.resume):
        with pytest.raises(flyball.CheckpointDamaged, match="all checkpoints"):
            call()
    assert scene.known() == before
    put(scene, good)
    assert session.run() == ["a", "b", "c"]


def test_another_version_of_the_work() -> None:
    """Its checkpoints are not for this one: an error before anything is counted; the right version goes on."""
    scene = Scene()
    session = broken_off(scene, version="1")
    before = scene.known()
    newer = work(scene, Reading(), version="2")
    for call in (newer.run, newer.resume):
        with pytest.raises(flyball.CheckpointChanged):
            call()
    assert scene.known() == before
    assert session.run() == ["a", "b", "c"]


def test_a_named_checkpoint() -> None:
    """It goes on from that one; what is not there is an error, and nothing is counted."""
    scene = Scene()
    session = broken_off(scene)
    before = scene.known()
    with pytest.raises(flyball.CheckpointNotFound):
        session.resume("9")
    assert scene.known() == before
    assert session.resume("1")
    assert session.result == ["a", "b", "c"]
    assert [kept.stage for kept in session.checkpoints] == ["a", "b", "b", "c"]
    resumes = [event for event in scene.events(flyball.Resume) if isinstance(event, flyball.Resume)]
    assert [resume.checkpoint for resume in resumes] == ["1"]


def test_a_chosen_checkpoint_is_used_once() -> None:
    """What a person chose on the command line is where the next resume goes on from, and only that one."""
    scene, reading = Scene(), Reading("c", "c")
    session = work(scene, reading, input=SOURCES)
    with pytest.raises(Broken):
        session.run()
    put(scene, checkpoints.choose(NAME, "1"))
    with pytest.raises(Broken):
        session.run()
    assert reading.read == ["a", "b", "b"]
    assert checkpoints.chosen(scene.store, NAME) is None
    assert session.run() == ["a", "b", "c"]
    assert reading.read == ["a", "b", "b", "c"]


# How it ends otherwise.


def test_money_belongs_to_the_work() -> None:
    """What was spent before a resume is spent; the stage that would go over the budget is not begun."""
    scene = Scene()

    def function(session: SessionContext) -> None:
        for number in range(session.checkpoint.get("n", 0), 9):
            with session.stage("model", cost="0.20") as stage:
                stage.spent("0.20")
                session.checkpoint["n"] = number + 1
            if number == 0:
                raise Broken

    session = work(scene, function, budget="0.50")
    with pytest.raises(Broken):
        session.run()
    with pytest.raises(OutOfBudget):
        session.run()
    assert session.show().budget.spent == 400_000
    assert session.checkpoints[-1].number == 2
    assert session.status == "budget_exceeded"
    assert scene.exits() == ["error", "stopped"]


@pytest.mark.parametrize(("tier", "limit"), [("free", 500_000), ("pro", 2_000_000), (None, 1_000_000)])
def test_tiers(tier: str | None, limit: int) -> None:
    """The budget is that of the tier."""
    session = work(Scene(), Reading(), input=SOURCES, tier=tier, user="ann")
    session.run()
    assert session.show().budget.limit == limit
    assert session.show().user == "ann"


def test_deadline_of_a_coroutine() -> None:
    """It is cancelled; it is timed out, and goes on from its last checkpoint."""
    scene = Scene()

    async def function(session: SessionContext) -> str:
        if session.again:
            return str(session.checkpoint["said"])
        async with session.stage("one"):
            session.checkpoint["said"] = "hello"
        scene.clock.move(MINUTE)
        await asyncio.Event().wait()
        raise AssertionError

    session = work(scene, function, deadline=0.05)
    with pytest.raises(Refused) as raised:
        session.run()
    assert raised.value.code == "timeout"
    assert session.status == "timed_out"
    assert session.resume()
    assert session.result == "hello"


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_by_its_program(kind: str) -> None:
    """A coroutine is cancelled, a thread is refused its next stage; it is not done, and can be resumed."""
    scene = Scene()
    sessions: list[flyball.Session] = []

    def plain(session: SessionContext) -> str:
        if not session.again:
            assert sessions[0].stop()
            with session.stage("next"):
                raise AssertionError
        return "done"

    async def coroutine(session: SessionContext) -> str:
        if not session.again:
            assert sessions[0].stop()
            await asyncio.Event().wait()
        return "done"

    sessions.append(work(scene, plain if kind == "thread" else coroutine))
    with pytest.raises(Refused):
        sessions[0].run()
    assert scene.exits() == ["stopped"]
    assert not sessions[0].stop()
    assert sessions[0].run() == "done"
    assert scene.starts() == ["start", "resume"]


def test_a_persons_order_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person stops from another process ends soon, also in the middle of a long stage; it can be resumed when
    the person takes that back."""
    monkeypatch.setattr(block, "HEARS_EVERY", 0.01)
    scene = Scene()

    async def function(session: SessionContext) -> str:
        if session.again:
            return "done"
        async with session.stage("long"):
            scene.governor.submit(Held(unit=NAME, verb=Verb.STOP, by="ann"))
            await asyncio.Event().wait()
        raise AssertionError

    session = work(scene, function)
    with pytest.raises(Refused) as raised:
        session.run()
    assert raised.value.reason.policy == "manual"
    assert scene.exits() == ["stopped"]
    scene.governor.submit(Released(unit=NAME, policies=("manual",), by="ann"))
    assert session.run() == "done"


def test_a_persons_order_stands() -> None:
    """What a person paused is not resumed by its program."""
    scene = Scene()
    session = broken_off(scene)
    scene.governor.submit(Held(unit=NAME, verb=Verb.HOLD, by="ann"))
    for call in (session.run, session.resume):
        with pytest.raises(Refused) as raised:
            call()
        assert raised.value.verb is Verb.HOLD
    assert scene.count("resumes") == 0


def test_one_at_a_time() -> None:
    """What runs is neither run nor resumed once more."""
    scene = Scene()

    def function(session: SessionContext) -> None:
        other = work(scene.again(), Reading())
        for call in (other.run, other.resume):
            with pytest.raises(Refused) as raised:
                call()
            assert raised.value.code == "already_running"

    work(scene, function).run()
    assert scene.count("resumes") == 0
    assert scene.exits() == ["done"]


class Called:
    """An object that is called, as a coroutine."""

    async def __call__(self, session: SessionContext) -> str:
        async with session.stage("one"):
            return "done"


def test_what_is_a_coroutine() -> None:
    """Whatever is one by its definition is awaited; a plain function that only makes one has done nothing, and says
    so instead of being done."""
    scene = Scene()
    called = Called()
    for function in (called, called.__call__, functools.partial(Called.__call__, called)):
        assert work(scene, function).run() == "done"
    with pytest.raises(FlyballError, match="returned a coroutine") as raised:
        work(scene, lambda session: called(session)).run()  # noqa: PLW0108 - a plain function that makes one
    assert "async def" in raised.value.remedy
    assert scene.exits()[-1] == "error"


def test_nothing_is_done_after_the_end() -> None:
    """A context that was kept is of no use: neither stages, nor money, nor a pause."""
    scene = Scene()
    kept: list[SessionContext] = []
    work(scene, kept.append).run()
    entries = len(scene.store.entries())
    with pytest.raises(Refused) as raised, kept[0].stage("late"):
        pass
    assert "its run has ended" in str(raised.value)
    with pytest.raises(Refused):
        kept[0].pause("late")
    with pytest.raises(Refused):
        kept[0].reserve("0.01")
    assert len(scene.store.entries()) == entries


def test_a_session_in_a_session() -> None:
    """Each has its own stages and checkpoints; after the inner one, the outer one goes on in its stage."""
    scene = Scene()

    def outer(session: SessionContext) -> list[str]:
        with session.stage("ask"):
            inner = scene.guard.session("inner", Reading(), input=SOURCES)
            session.checkpoint["answer"] = inner.run()
            with scene.guard.reserve("0.02") as money:
                money.settle("0.01")
        return list(session.checkpoint["answer"])

    session = work(scene, outer)
    assert session.run() == ["a", "b", "c"]
    assert session.show().budget.spent == 10_000
    assert [kept.stage for kept in session.checkpoints] == ["ask"]
    assert scene.exits("inner") == scene.exits() == ["done"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_every_run_has(kind: str) -> None:
    """Money that is spent already, signs of life, waiting, and a person to ask: as for any agent."""
    with flyball.open("program", scratch=True) as guard:

        def plain(session: SessionContext) -> str:
            session.beat()
            session.wait(0.001)
            with session.stage("one"):
                session.spend("0.01")
            return session.ask_human_and_wait("go on?", choices=("yes", "no"), timeout=0.001, default="yes")

        async def coroutine(session: SessionContext) -> str:
            session.beat()
            await session.sleep(0.001)
            async with session.stage("one"):
                session.spend("0.005")
                async with session.reserve_soon("0.02") as money:
                    await money.settle_soon("0.005")
            return await session.ask_human("go on?", choices=("yes", "no"), timeout=0.001, default="yes")

        session = guard.session(NAME, plain if kind == "thread" else coroutine)
        assert session.run() == "yes"
        assert session.show().budget.spent == 10_000
        assert session.show().steps.used == 1


def test_the_last_stage_has_what_was_kept_back() -> None:
    """Out of money, it wraps up with what is kept back for that; so it is done, and says why."""
    scene = Scene(budget={"kept_back": "0.10"})

    def function(session: SessionContext) -> str:
        try:
            for number in range(100):
                with session.stage(f"read {number}", cost="0.20"):
                    pass
        except OutOfBudget:
            with session.stage("sum up", cost="0.10", last=True):
                session.checkpoint["summary"] = "of what there is"
        return str(session.checkpoint["summary"])

    session = work(scene, function, budget="0.50")
    assert session.run() == "of what there is"
    assert session.show().budget.spent == 500_000


# In an event loop.


def test_a_loop_is_not_blocked() -> None:
    """Whoever is in an event loop is told what to call instead."""

    async def main() -> None:
        session = work(Scene(), Reading(), input=SOURCES)
        for call in (session.run, session.resume):
            with pytest.raises(FlyballError, match="would block") as raised:
                call()
            assert "run_soon" in raised.value.remedy
        assert await session.run_soon() == ["a", "b", "c"]
        assert not await session.resume_soon()

    asyncio.run(asyncio.wait_for(main(), WAIT_MAX))


@pytest.mark.parametrize("error", [Broken("no"), StopIteration("no"), SystemExit(3)], ids=repr)
def test_what_a_plain_function_raises_comes_through(error: BaseException) -> None:
    """Out of its thread, to whoever awaits."""

    def function(_: SessionContext) -> None:
        raise error

    async def main() -> None:
        with pytest.raises(BaseException, match=r"no|3"):
            await work(Scene(), function).run_soon()

    asyncio.run(asyncio.wait_for(main(), WAIT_MAX))


def test_cancelled_while_a_thread_works() -> None:
    """The thread is told, and its next stage is refused; whoever cancelled does not wait for it."""
    scene = Scene()
    begun, told, over = threading.Event(), threading.Event(), threading.Event()

    def function(session: SessionContext) -> None:
        begun.set()
        assert told.wait(WAIT_MAX)
        try:
            with session.stage("next"):
                raise AssertionError
        finally:
            over.set()

    async def main() -> None:
        running = asyncio.create_task(work(scene, function).run_soon())
        assert await asyncio.to_thread(begun.wait, WAIT_MAX)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        told.set()
        assert await asyncio.to_thread(over.wait, WAIT_MAX)

    asyncio.run(asyncio.wait_for(main(), WAIT_MAX))
    for thread in threading.enumerate():
        if thread.name.startswith("flyball"):
            thread.join(WAIT_MAX)
    assert scene.exits() == ["stopped"]


def test_cancelled_coroutine() -> None:
    """It was stopped, and can be resumed."""
    scene = Scene()

    async def function(session: SessionContext) -> str:
        if not session.again:
            await asyncio.Event().wait()
        return "done"

    async def main() -> None:
        session = work(scene, function)
        running = asyncio.create_task(session.run_soon())
        while not scene.starts():
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await session.run_soon() == "done"

    asyncio.run(asyncio.wait_for(main(), WAIT_MAX))
    assert scene.exits() == ["stopped", "done"]


def test_exits_say_whether_there_was_progress() -> None:
    """A run that kept a new checkpoint made progress; one that did not, did not."""
    scene, reading = Scene(), Reading("b", "b")
    session = work(scene, reading, input=SOURCES)
    for _ in range(2):
        with pytest.raises(Broken):
            session.run()
    session.run()
    exits = [event for event in scene.events(Exited) if isinstance(event, Exited)]
    assert [event.progress for event in exits] == [True, False, True]
    assert [event.cause for event in exits] == [Cause.ERROR, Cause.ERROR, Cause.DONE]


def test_labels() -> None:
    """Its user and tree go with every event: what they share is counted there."""
    scene = Scene()
    work(scene, Reading(), input=SOURCES, user="ann", tree="family", labels={"team": "a"}).run()
    wanted = {"user": "ann", "tree": "family", "team": "a"}
    assert all(event.labels == wanted for event in scene.events())
    assert isinstance(scene.events()[0], Start)
    assert scene.clock.now() % SECOND == 0
