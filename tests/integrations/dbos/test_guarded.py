"""A workflow under a guard is a session: its first execution is a start, each further one a resume, its steps ask."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from unittest.mock import patch

import pytest
from dbos import DBOS, DBOSConfiguredInstance, SetWorkflowID

import flyball
from flyball.config import Settings
from flyball.core.decision import Verb
from flyball.core.event import Cause, Exited, Held, Released, Resume, Start, Stepped
from flyball.core.time import HOUR
from flyball.errors import FlyballError, StoreError
from flyball.integrations.dbos import Guarded, WorkflowLeft
from flyball.integrations.dbos.options import Options, unit_name
from flyball.runtimes.refusal import OutOfBudget, Refused
from tests.integrations.dbos.scene import PATIENCE, QUEUE, Scene


class Workflows:
    """A workflow of three steps, as a plain function and as a coroutine. What it does next is said by the test."""

    def __init__(self, scene: Scene, *, how: str = "sync", cost: str | None = None, **options: Any) -> None:
        self.fails: list[BaseException] = []
        """What the next executions of step 1 raise."""
        self.before: Callable[[str], object] = lambda _: None
        """Called with the workflow's id before step 1, outside of any step."""
        guarded = scene.guarded

        @guarded.step(cost=cost, pattern="plain")
        def plain(number: int) -> int:
            scene.made.append(f"step {number}")
            if number == 1 and self.fails:
                raise self.fails.pop(0)
            return number

        @guarded.step(cost=cost, pattern="coroutine")
        async def coroutine(number: int) -> int:
            await asyncio.sleep(0)
            return int(plain.__wrapped__.__wrapped__(number))  # type: ignore[attr-defined]  # the function itself

        @guarded.workflow(unit="work", name=f"sync {id(scene)}", **options)
        def work() -> int:
            total = plain(0)
            self.before(str(DBOS.workflow_id))
            return total + plain(1) + plain(2)

        @guarded.workflow(unit="work", name=f"async {id(scene)}", **options)
        async def work_soon() -> int:
            total = await coroutine(0)
            await asyncio.to_thread(self.before, str(DBOS.workflow_id))
            return total + await coroutine(1) + await coroutine(2)

        self.work: Any = work if how == "sync" else work_soon


both = pytest.mark.parametrize("how", ["sync", "async"])


@both
def test_done(scene: Scene, how: str) -> None:
    """One start, its steps, one exit; and nothing is left that could be resumed."""
    handle = scene.start(Workflows(scene, how=how, allowance=1).work)
    assert scene.result(handle) == 3
    assert scene.story(handle) == ["Start", *["Step", "Stepped"] * 3, "Exited"]
    exited = scene.events(handle)[-1]
    assert isinstance(exited, Exited)
    assert exited.cause is Cause.DONE
    assert scene.guarded.resume(handle.get_workflow_id()) is False


def test_called_directly(scene: Scene) -> None:
    """A workflow that is called as a function asks like any other."""
    work = Workflows(scene).work
    with SetWorkflowID("direct"):
        assert work() == 3
    assert scene.story("direct")[0] == "Start"


def test_allowance(scene: Scene) -> None:
    """Steps that cost nothing are asked for a few at a time."""
    handle = scene.start(Workflows(scene, allowance=3).work)
    assert scene.result(handle) == 3
    assert scene.story(handle) == ["Start", "Step", "Stepped", "Exited"]


def test_steps_that_cost_are_asked_for_alone(scene: Scene) -> None:
    """What a killed worker had reserved is the worst case of one step."""
    work = Workflows(scene, cost="0.10", allowance=64, budget="1.00")
    seen: list[tuple[int, int]] = []
    work.before = lambda name: seen.append(scene.spent(name))
    handle = scene.start(work.work)
    assert scene.result(handle) == 3
    assert seen == [(100_000, 0)]
    assert scene.spent(handle) == (300_000, 0)


def test_spent(scene: Scene) -> None:
    """A step may say what it really cost."""
    guarded = scene.guarded

    @guarded.step(cost="0.10")
    def cheap() -> None:
        guarded.this_step.spent("0.02")

    @guarded.workflow(unit="work")
    def frugal() -> None:
        cheap()

    handle = scene.start(frugal)
    scene.result(handle)
    assert scene.spent(handle) == (20_000, 0)


def test_a_call_inside_a_step_is_a_part_of_it(scene: Scene) -> None:
    """What is reserved inside a step is the workflow's money, and no further step."""

    @scene.guarded.step()
    def buys() -> None:
        with scene.guard.reserve("0.05") as money:
            money.settle("0.03")

    @scene.guarded.workflow(unit="work", steps=1)
    def shopper() -> None:
        buys()

    handle = scene.start(shopper)
    scene.result(handle)
    assert scene.spent(handle) == (30_000, 0)
    assert any(isinstance(event, Stepped) and event.part for event in scene.events(handle))


@both
def test_out_of_steps(scene: Scene, how: str) -> None:
    """A refused step ends the workflow with the reason; it is not made, and nobody runs the workflow again."""
    handle = scene.start(Workflows(scene, how=how, steps=2).work)
    error = scene.error(handle)
    assert isinstance(error, Refused)
    assert error.code == "max_steps"
    assert scene.made == ["step 0", "step 1"]
    assert handle.get_status().status == "ERROR"
    assert scene.guarded.resume_due() == []


@both
def test_out_of_money(scene: Scene, how: str) -> None:
    """So does a step that costs more than is left."""
    handle = scene.start(Workflows(scene, how=how, cost="0.40", budget="1.00").work)
    assert isinstance(scene.error(handle), OutOfBudget)
    assert scene.made == ["step 0", "step 1"]
    assert scene.spent(handle) == (800_000, 0)


@both
def test_goes_on_at_the_refused_step(scene: Scene, how: str) -> None:
    """What was refused and may go on is put back by its id: what was made is replayed and asks nothing."""
    handle = scene.start(Workflows(scene, how=how, steps=2).work)
    assert isinstance(scene.error(handle), Refused)
    scene.release(handle)
    asked = scene.story(handle).count("Step")
    assert scene.guarded.resume(handle.get_workflow_id())
    assert scene.result(handle) == 3
    assert scene.made == ["step 0", "step 1", "step 2"]
    assert scene.story(handle).count("Step") == asked + 1
    assert [type(event) for event in scene.events(handle) if isinstance(event, Start)] == [Start, Resume]


def test_goes_on_at_the_failed_step(scene: Scene) -> None:
    """So is what failed by itself; but only if somebody says so."""
    work = Workflows(scene)
    work.fails = [ValueError("no")]
    handle = scene.start(work.work)
    assert isinstance(scene.error(handle), ValueError)
    scene.clock.move(HOUR)
    assert scene.guarded.resume_due() == []
    assert scene.guarded.resume(handle.get_workflow_id())
    assert scene.result(handle) == 3
    assert scene.made == ["step 0", "step 1", "step 1", "step 2"]


@both
def test_resumes_are_counted_by_flyball_alone(scene: Scene, how: str) -> None:
    """DBOS' own count begins anew with each `resume_workflow`; the limit on resumes stays what it is."""
    work = Workflows(scene, how=how, resumes=2)
    work.fails = [WorkflowLeft("work", "a test") for _ in range(10)]
    handle = scene.start(work.work)
    name = handle.get_workflow_id()
    for executions in range(1, 4):
        scene.until(lambda n=executions: scene.story(handle).count("Exited") == n)  # type: ignore[misc]
        scene.clock.move(HOUR)
        DBOS.resume_workflow(name, queue_name=QUEUE)
    error = scene.error(handle)
    assert isinstance(error, flyball.SessionFailed)
    assert error.code == "max_resume_attempts_exceeded"
    assert error.metadata["resumeAttempts"] == 3
    assert scene.made == ["step 0", "step 1", "step 1", "step 1"]
    with pytest.raises(Refused) as held:
        scene.guarded.resume(name)
    assert held.value.code == "max_resume_attempts_exceeded"
    assert handle.get_status().status == "ERROR"


@both
def test_held_and_released(scene: Scene, how: str) -> None:
    """What a person holds ends at its next step, and is refused until it is released; then it is put back."""
    work = Workflows(scene, how=how, allowance=1)
    work.before = lambda name: scene.hold(name) if scene.story(name).count("Exited") == 0 else None
    handle = scene.start(work.work)
    error = scene.error(handle)
    assert isinstance(error, Refused)
    assert error.code == "paused"
    assert scene.guarded.resume_due() == []
    with pytest.raises(Refused):
        scene.guarded.resume(handle.get_workflow_id())
    scene.release(handle)
    assert scene.guarded.resume_due() == [handle.get_workflow_id()]
    assert scene.result(handle) == 3
    assert scene.made == ["step 0", "step 1", "step 2"]


def test_resumed_by_itself(scene: Scene) -> None:
    """What is released goes on without anybody but the person."""
    work = Workflows(scene, allowance=1)
    work.before = lambda name: scene.hold(name) if scene.story(name).count("Exited") == 0 else None
    handle = scene.start(work.work)
    assert isinstance(scene.error(handle), Refused)
    scene.guarded.resume_by_itself(every=0.01)
    scene.release(handle)
    scene.until(lambda: handle.get_status().status == "SUCCESS")


def test_put_back_by_two(scene: Scene) -> None:
    """Of two who put the same workflow back, one does."""
    work = Workflows(scene)
    work.fails = [ValueError("no")]
    handle = scene.start(work.work)
    scene.error(handle)
    found = handle.get_status()
    assert scene.guarded._put_back(found)
    assert not scene.guarded._put_back(found)


@both
def test_waits_in_place(scene: Scene, how: str) -> None:
    """A cooldown is waited for where the workflow is: its caller notices nothing but the time."""
    work = Workflows(scene, how=how)
    work.fails = [ValueError("no")]
    handle = scene.start(work.work)
    assert isinstance(scene.error(handle), ValueError)
    assert scene.guarded.resume(handle.get_workflow_id())
    scene.until(lambda: handle.get_status().status == "PENDING")
    assert scene.story(handle).count("Resume") == 0
    scene.clock.move(HOUR)
    assert scene.result(handle) == 3
    assert scene.story(handle).count("Resume") == 1


@both
def test_waits_no_longer_than_was_said(scene: Scene, how: str) -> None:
    """What would take longer ends with the refusal, and is put back when the time has come."""
    work = Workflows(scene, how=how, wait=0)
    work.fails = [ValueError("no")]
    handle = scene.start(work.work)
    assert isinstance(scene.error(handle), ValueError)
    assert scene.guarded.resume(handle.get_workflow_id())
    scene.until(lambda: isinstance(scene.error(handle), Refused))
    assert scene.guarded.resume_due() == []
    scene.clock.move(HOUR)
    assert scene.guarded.resume_due() == [handle.get_workflow_id()]
    assert scene.result(handle) == 3
    assert scene.made == ["step 0", "step 1", "step 1", "step 2"]


@both
def test_closed_while_it_waits(scene: Scene, how: str) -> None:
    """A program that ends leaves what waits as it is: it is recovered by the next one."""
    work = Workflows(scene, how=how)
    work.fails = [ValueError("no")]
    handle = scene.start(work.work)
    scene.error(handle)
    scene.guarded.resume(handle.get_workflow_id())
    scene.until(lambda: handle.get_status().status == "PENDING")
    scene.guarded.close()
    scene.until(lambda: scene.guarded._left)
    assert handle.get_status().status == "PENDING"
    assert scene.story(handle).count("Resume") == 0


@both
def test_cancelled(scene: Scene, how: str) -> None:
    """What a person cancels in DBOS was stopped, and did not fail; to resume it is a resume."""
    work = Workflows(scene, how=how)
    reached, cancelled = threading.Event(), threading.Event()

    def reaches(_: str) -> None:
        reached.set()
        cancelled.wait(PATIENCE)

    work.before = reaches
    handle = scene.start(work.work)
    assert reached.wait(PATIENCE)
    DBOS.cancel_workflow(handle.get_workflow_id())
    cancelled.set()
    scene.until(lambda: "Exited" in scene.story(handle))
    exited = scene.events(handle)[-1]
    assert isinstance(exited, Exited)
    assert (exited.cause, exited.error) == (Cause.STOPPED, "cancelled")
    assert scene.guarded.resume(handle.get_workflow_id())
    assert scene.result(handle) == 3
    assert scene.story(handle).count("Resume") == 1


@both
def test_dispatched_twice(scene: Scene, how: str) -> None:
    """Whoever puts back what is running has it run once: the second execution waits for the first, which DBOS ends at
    its next step, and is a resume."""
    work = Workflows(scene, how=how, allowance=1)
    reached, twice = threading.Event(), threading.Event()

    def waits(_: str) -> None:
        reached.set()
        twice.wait(PATIENCE)

    work.before = waits
    handle = scene.start(work.work)
    assert reached.wait(PATIENCE)
    DBOS.resume_workflow(handle.get_workflow_id(), queue_name=QUEUE)
    scene.until(lambda: handle.get_status().status == "PENDING")
    assert scene.story(handle).count("Resume") == 0
    twice.set()
    assert scene.result(handle) == 3
    starts = [event for event in scene.story(handle) if event in ("Start", "Resume", "Exited")]
    assert starts == ["Start", "Exited", "Resume", "Exited"]
    first = next(event for event in scene.events(handle) if isinstance(event, Exited))
    assert (first.cause, first.error) == (Cause.STOPPED, "taken_over")


@both
def test_store_away(scene: Scene, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever cannot be asked has refused nothing: the workflow is left as it is, and goes on when that is over."""
    work = Workflows(scene, how=how, allowance=1)
    submit = scene.guard.governor.submit
    away: list[bool] = [True]

    def broken(event: Any, *rows: Any) -> Any:
        if away and "step 0" in scene.made:
            raise StoreError("the disk is gone")
        return submit(event, *rows)

    monkeypatch.setattr(scene.guard.governor, "submit", broken)
    monkeypatch.setattr(scene.guard.governor, "submit_soon", lambda event, rows: _soon(lambda: broken(event, rows)))
    handle = scene.start(work.work)
    scene.until(lambda: scene.guarded._left)
    assert scene.made == ["step 0"]
    assert handle.get_status().status == "PENDING"
    away.clear()
    scene.clock.move(HOUR)
    assert scene.guarded.resume_due() == [handle.get_workflow_id()]
    assert scene.result(handle) == 3
    assert scene.made == ["step 0", "step 1", "step 2"]


def _soon(call: Any) -> Any:
    future: Future[Any] = Future()
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - the future carries it
        future.set_exception(error)
    return future


def test_given_up_as_lost(scene: Scene) -> None:
    """An execution that slept for longer than its lease makes no further step, and its result is not the workflow's."""
    work = Workflows(scene, allowance=1)

    def sleeps(name: str) -> None:
        scene.clock.move(24 * HOUR)
        scene.guard.governor.reap(unit=f"work@{name}")

    work.before = sleeps
    handle = scene.start(work.work)
    scene.until(lambda: scene.guarded._left)
    assert scene.made == ["step 0"]
    assert handle.get_status().status == "PENDING"
    exits = [event.cause for event in scene.events(handle) if isinstance(event, Exited)]
    assert exits == [Cause.LOST]


class TestRetries:
    """DBOS tries a step again, if that is wanted: each attempt asks, and a refusal is not tried again."""

    def test_each_attempt_asks(self, scene: Scene) -> None:
        tries: list[int] = []

        @scene.guarded.step(retries_allowed=True, interval_seconds=0.001, max_attempts=5)
        def flaky() -> int:
            tries.append(1)
            if len(tries) < 3:
                raise ValueError("not yet")
            return len(tries)

        @scene.guarded.workflow(unit="work", allowance=1)
        def patient() -> int:
            return flaky()

        handle = scene.start(patient)
        assert scene.result(handle) == 3
        assert scene.story(handle).count("Step") == 3

    def test_a_refusal_is_final(self, scene: Scene) -> None:
        tries: list[int] = []

        @scene.guarded.step(retries_allowed=True, interval_seconds=30, max_attempts=5)
        def once() -> None:
            tries.append(1)

        @scene.guarded.workflow(unit="work", steps=1)
        def greedy() -> None:
            once()
            once()

        assert isinstance(scene.error(scene.start(greedy)), Refused)
        assert tries == [1]

    def test_what_is_not_to_be_retried(self, scene: Scene) -> None:
        tries: list[int] = []

        @scene.guarded.step(
            retries_allowed=True, interval_seconds=30, should_retry=lambda error: not isinstance(error, KeyError)
        )
        def picky() -> None:
            tries.append(1)
            raise KeyError("x")

        @scene.guarded.workflow(unit="work")
        def lost() -> None:
            picky()

        assert isinstance(scene.error(scene.start(lost)), KeyError)
        assert tries == [1]


def test_run_step(scene: Scene) -> None:
    """A function without a decorator asks, too, where it is wrapped."""

    def plain(number: int) -> int:
        return number + 1

    @scene.guarded.workflow(unit="work", steps=1)
    def runs() -> int:
        number = DBOS.run_step(None, scene.guarded.asking(plain), 1)
        return DBOS.run_step(None, scene.guarded.asking(plain), number)

    assert isinstance(scene.error(scene.start(runs)), Refused)


def test_wraps_up_with_the_last_step(scene: Scene) -> None:
    """A workflow that is out of money can catch that, and deliver what there is."""
    guard = flyball.open("program", settings=Settings.model_validate({"budget": {"kept_back": 0.2}}), scratch=True)
    guarded = Guarded(guard)

    @guarded.step(cost="0.30")
    def costs() -> None: ...

    @guarded.step(cost="0.20", last=True)
    def delivers() -> str:
        return "what there is"

    @guarded.workflow(unit="work", budget="1.00")
    def careful() -> str:
        try:
            while True:
                costs()
        except OutOfBudget:
            return delivers()

    assert scene.result(scene.start(careful)) == "what there is"
    guard.close()


class TestBadInput:
    """What is wrong is said where it is defined or called, with what to do."""

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"unit": "a b"}, "is no name"),
            ({"steps": 0}, "steps is 0"),
            ({"resumes": -1}, "resumes is -1"),
            ({"wait": -1}, "wait is -1"),
            ({"allowance": 0}, "allowance is 0"),
            ({"allowance": 65}, "allowance is 65"),
            ({"deadline": 0}, "deadline is 0"),
            ({"budget": "much"}, "budget"),
        ],
    )
    def test_options(self, scene: Scene, options: dict[str, Any], says: str) -> None:
        with pytest.raises(FlyballError, match=says) as raised:
            scene.guarded.workflow(**{"unit": "work", **options})(lambda: None)
        assert raised.value.remedy

    def test_a_step_outside_of_a_workflow(self, scene: Scene) -> None:
        @scene.guarded.step()
        def alone() -> None: ...

        with pytest.raises(FlyballError, match="outside of any workflow under a guard"):
            alone()
        with pytest.raises(FlyballError, match="no step"):
            _ = scene.guarded.this_step

    def test_a_cost_that_is_none(self, scene: Scene) -> None:
        with pytest.raises(FlyballError):
            scene.guarded.step(cost="-1")(lambda: None)

    def test_resume(self, scene: Scene) -> None:
        @DBOS.workflow()
        def unguarded() -> None: ...

        with SetWorkflowID("unguarded"):
            unguarded()
        with pytest.raises(FlyballError, match="there is no workflow 'nothing'"):
            scene.guarded.resume("nothing")
        with pytest.raises(FlyballError, match="not under this guard"):
            scene.guarded.resume("unguarded")

    def test_take_over_from_oneself(self, scene: Scene) -> None:
        with pytest.raises(FlyballError, match="and it lives"):
            scene.guarded.take_over("here")


def test_a_crash_uses_up_a_small_part_of_the_steps() -> None:
    """What is asked for at once is counted as used when the worker dies."""
    settings = Settings()
    at_once = {steps: Options(name="w", steps=steps).steps_at_once(settings) for steps in (1, 55, 320, 10_000)}
    assert at_once == {1: 1, 55: 3, 320: 20, 10_000: 64}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b/c"), ("a", "b c")),
        (("a@b", "c"), ("a", "b@c")),
        (("a", "x" * 100), ("a", "x" * 101)),
        (("a", "ä"), ("a", "ö")),
    ],
)
def test_two_workflows_never_share_a_session(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Also where their ids do not fit into a name."""
    assert unit_name(*one) != unit_name(*other)


def test_second_belt(scene: Scene) -> None:
    """DBOS' own limit on recoveries lies above ours, so that ours is the one that is met."""
    asked: dict[str, Any] = {}
    with patch.object(DBOS, "workflow", lambda **how: asked.update(how) or (lambda function: function)):
        scene.guarded.workflow(unit="work", resumes=7)(lambda: None)
    assert asked["max_recovery_attempts"] == 12


def test_out_of_resumes_and_all_forgotten(scene: Scene) -> None:
    """A person who makes everything about it forgotten lets it begin once more: that is a start, and what DBOS has kept
    is replayed all the same."""
    work = Workflows(scene, resumes=0)
    work.fails = [ValueError("no")]
    handle = scene.start(work.work)
    name = handle.get_workflow_id()
    assert isinstance(scene.error(handle), ValueError)
    scene.clock.move(HOUR)
    with pytest.raises(Refused, match="Maximum resume attempts exceeded"):
        scene.guarded.resume(name)
    scene.guard.governor.submit(Released(unit=f"work@{name}", by="ann"))
    assert scene.guarded.resume(name)
    assert scene.result(handle) == 3
    assert scene.made == ["step 0", "step 1", "step 1", "step 2"]
    assert [type(event) for event in scene.events(handle) if isinstance(event, Start)] == [Start, Start]


def test_stopped_in_the_middle_of_a_step(scene: Scene) -> None:
    """A coroutine is cancelled where it is; the workflow ends with the reason, and DBOS keeps nothing of that step."""
    reached = threading.Event()

    @scene.guarded.step()
    async def hangs() -> None:
        reached.set()
        await asyncio.Event().wait()

    @scene.guarded.workflow(unit="work")
    async def stuck() -> None:
        await hangs()

    handle = scene.start(stuck)
    assert reached.wait(PATIENCE)
    scene.guard.governor.submit(Held(unit=f"work@{handle.get_workflow_id()}", verb=Verb.STOP, by="ann"))
    error = scene.error(handle)
    assert isinstance(error, Refused)
    assert error.reason.policy == "manual"
    assert DBOS.list_workflow_steps(handle.get_workflow_id()) == []


def test_a_workflow_in_a_workflow(scene: Scene) -> None:
    """Each is a session of its own; after the inner one, steps are the outer one's again."""
    guarded = scene.guarded

    @guarded.step()
    def one(name: str) -> str:
        return name

    @guarded.workflow(unit="inner", steps=1)
    def inner() -> str:
        return one("inner")

    @guarded.workflow(unit="work", steps=2, allowance=1)
    def outer() -> list[str]:
        return [one("before"), inner(), one("after")]

    handle = scene.start(outer)
    assert scene.result(handle) == ["before", "inner", "after"]
    assert scene.story(handle).count("Step") == 2
    child = next(step for step in DBOS.list_workflow_steps(handle.get_workflow_id()) if step["child_workflow_id"])
    assert scene.story(str(child["child_workflow_id"]), "inner").count("Exited") == 1


def test_methods(scene: Scene) -> None:
    """Methods of a class that DBOS knows are decorated as functions are."""
    guarded = scene.guarded

    @DBOS.dbos_class()
    class Adder(DBOSConfiguredInstance):
        def __init__(self, name: str, more: int) -> None:
            super().__init__(config_name=name)
            self.more = more

        @guarded.step()
        def add(self, number: int) -> int:
            return number + self.more

        @guarded.workflow(unit="work", steps=1)
        def work(self, number: int) -> int:
            return self.add(number)

    handle = scene.start(Adder("three", 3).work, 4)
    assert scene.result(handle) == 7
    assert scene.story(handle)[:2] == ["Start", "Step"]
