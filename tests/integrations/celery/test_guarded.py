"""What becomes of one message, case by case: Celery's own tracer calls the task, a broker in memory takes what is sent
again, and no worker runs."""

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery, Task
from celery.app.trace import build_tracer
from celery.exceptions import Ignore, Reject, Retry
from celery.signals import worker_init, worker_process_shutdown

import flyball
from flyball.config import Settings
from flyball.core.event import Cause, Exited, Held, Released, Start
from flyball.errors import FlyballError, SettingsError, StoreFull
from flyball.guard import Guard
from flyball.integrations.celery import HELD_LOOKS, LIVE_LOOKS, STORE_WAIT, GuardedTasks, TaskOptions, TaskRefused
from flyball.runtimes.refusal import OutOfBudget

QUICK: dict[str, Any] = {
    "restart_policy": {"initial_backoff_seconds": 1e-6, "max_backoff_seconds": 1e-6},
    "crash_policy": {"transient_delay_seconds": 1e-6, "flapping_delay_seconds": 1e-6},
}
"""Waits that are over when the next message is delivered."""


class Office:
    """An app, its guard, and a way to deliver messages."""

    def __init__(self, **settings: Any) -> None:
        self.app = Celery("office", broker="memory://", backend="cache+memory://", set_as_current=False)
        self.guard: Guard = flyball.open("office", settings=Settings(**{**QUICK, **settings}), scratch=True)
        self.trouble: FlyballError | None = None
        self.tasks: GuardedTasks | None = None

    def open(self) -> Guard:
        if self.trouble is not None:
            raise self.trouble
        return self.guard

    def task(self, function: Callable[..., Any], **options: Any) -> Any:
        """Make a task of it, under the guard."""
        made = self.app.task(name="work", shared=False, **options)(function)
        if self.tasks is None:
            self.tasks = GuardedTasks(self.app, self.open)
        self.app.finalize()
        return made

    def deliver(self, task: Any, *args: object, id: str = "m1", **request: Any) -> Any:  # noqa: A002 - Celery's word
        """As a worker runs a message: what Celery makes of it, as (state, value)."""
        info = {"id": id, "delivery_info": {"exchange": "", "routing_key": "celery"}, **request}
        traced = build_tracer(task.name, task, app=self.app)(id, args, {}, info)
        if traced.info is None:
            return "SUCCESS", traced.retval
        return traced.info.state, traced.info.retval

    def sent(self) -> list[dict[str, Any]]:
        """The headers of messages that were sent."""
        found = []
        with self.app.connection_for_read() as connection, connection.SimpleQueue("celery") as queue:
            while queue.qsize():
                message = queue.get_nowait()
                message.ack()
                found.append(dict(message.headers))
        return found

    def events(self, unit: str = "work") -> list[Any]:
        return self.guard.history(unit)

    def close(self) -> None:
        if self.tasks is not None:  # other tests' workers are not told
            worker_init.disconnect(self.tasks._check)
            worker_process_shutdown.disconnect(self.tasks._shut)
        self.guard.close()
        self.app.close()


@pytest.fixture
def office() -> Iterator[Office]:
    office = Office()
    yield office
    office.close()


def seven() -> int:
    """A task that does well."""
    return 7


def raises(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


# Which calls are guarded.


def test_a_message_is_a_run(office: Office) -> None:
    """A message is asked for, run, and reported, under the task's name and with its own id."""
    task = office.task(seven)
    assert office.deliver(task) == ("SUCCESS", 7)
    start, exited = office.events()
    assert isinstance(start, Start)
    assert isinstance(exited, Exited)
    assert start.labels["message"] == "m1"
    assert exited.cause is Cause.DONE


def test_a_direct_call_is_none(office: Office) -> None:
    """Whoever calls a task as a function calls a function."""
    assert office.task(seven)() == 7
    assert office.events() == []


def test_a_call_inside_a_run_is_part_of_it(office: Office) -> None:
    """A task that calls itself as a function makes one run, not two."""

    def work(self: Any, depth: int) -> int:
        return depth if depth else int(self(1)) + 1

    assert office.deliver(office.task(work, bind=True), 0) == ("SUCCESS", 2)
    assert [type(event) for event in office.events()] == [Start, Exited]


def test_a_task_with_its_own_call_is_guarded(office: Office) -> None:
    """A base class that overrides `__call__` does not take its tasks out of the guard."""

    class Base(Task):  # type: ignore[misc]  # Celery has no types
        abstract = True

        def __call__(self, *args: object, **kwargs: object) -> Any:
            return super().__call__(*args, **kwargs)

    assert office.deliver(office.task(seven, base=Base)) == ("SUCCESS", 7)
    assert [type(event) for event in office.events()] == [Start, Exited]


def test_an_eager_call_is_guarded(office: Office) -> None:
    """`apply` runs a message here and now: what would have to wait is refused."""
    task = office.task(seven)
    assert task.apply().get() == 7
    office.guard.governor.submit(Held(unit="work", by="ann"))
    with pytest.raises(TaskRefused, match="paused by ann"):
        task.apply().get()


# What becomes of it.


@pytest.mark.parametrize(
    ("error", "state", "cause", "told"),
    [
        (ValueError("no"), "FAILURE", Cause.ERROR, "ValueError: no"),
        (TimeoutError("slow"), "FAILURE", Cause.TIMEOUT, "TimeoutError: slow"),
        (Ignore(), "IGNORED", Cause.STOPPED, "ignore"),
        (Reject("no"), "REJECTED", Cause.STOPPED, "reject"),
        (Retry("later"), "RETRY", Cause.STOPPED, "retry"),
        (Retry("later", exc=ValueError("no")), "RETRY", Cause.ERROR, "ValueError: no"),
        (flyball.GaveUp("enough"), "FAILURE", Cause.STOPPED, "gave_up"),
    ],
    ids=lambda case: type(case).__name__ if isinstance(case, BaseException) else str(case),
)
def test_an_end_has_a_cause(office: Office, error: BaseException, state: str, cause: Cause, told: str) -> None:
    """Celery makes of an exception what it always makes; the journal has its cause. One that no process of Celery's
    would survive becomes a failure of the task."""
    assert office.deliver(office.task(raises(error)))[0] == state
    exited = office.events()[-1]
    assert (exited.cause, exited.error) == (cause, told)


def test_what_waits_is_sent_again_as_it_is(office: Office) -> None:
    """A message of which another run is live waits, however often the broker delivers it: it is sent again with the
    same id, the same retries, and a countdown. When the other is over, it may begin."""
    inside, leave = threading.Event(), threading.Event()

    def work(waits: bool) -> str:
        if waits:
            inside.set()
            assert leave.wait(30)
        return "done"

    task = office.task(work)
    first = threading.Thread(target=office.deliver, args=(task, True))
    first.start()
    assert inside.wait(30)
    state, retry = office.deliver(task, True, retries=2)
    leave.set()
    first.join()
    assert state == "RETRY"
    assert retry.when == pytest.approx(LIVE_LOOKS)
    [again] = office.sent()
    assert (again["id"], again["retries"]) == ("m1", 2)
    assert again["eta"]
    assert office.deliver(task, False) == ("SUCCESS", "done")


@pytest.mark.parametrize(("held", "state"), [("fail", "FAILURE"), ("keep", "RETRY")])
def test_messages_of_a_held_task(office: Office, held: Any, state: str) -> None:
    """While a task is held its messages fail, or are kept and ask again in a while; as the app was told."""
    office.tasks = GuardedTasks(office.app, office.open, held=held)
    task = office.task(seven)
    office.guard.governor.submit(Held(unit="work", by="ann"))
    found, value = office.deliver(task)
    assert found == state
    if held == "keep":
        assert value.when == HELD_LOOKS
        assert len(office.sent()) == 1
    else:
        assert value.code == "paused"
        assert office.sent() == []


def test_a_held_message_fails_also_where_messages_are_kept(office: Office) -> None:
    """A message that failed too often is never kept: nobody would ever let it go. Its task goes on with others, until a
    person releases that message."""
    office.tasks = GuardedTasks(office.app, office.open, held="keep")
    task = office.task(raises(Retry("later", exc=ValueError("no"))), flyball=TaskOptions(starts=2))
    assert [office.deliver(task)[0] for _ in range(3)] == ["RETRY", "RETRY", "FAILURE"]
    assert office.deliver(task, id="m2")[0] == "RETRY"
    office.tasks.release("m1", "work", by="ann")
    assert office.deliver(task)[0] == "RETRY"


def test_a_message_that_was_done_with_is_forgotten(office: Office) -> None:
    """Nothing is kept of a message that ended, well or not, because it never comes again; of one that comes again its
    failures are."""
    endings: list[BaseException | None] = [Retry("later", exc=ValueError("no")), None, ValueError("no")]
    known: list[int] = []

    def work() -> None:
        error = endings.pop(0)
        if error is not None:
            raise error

    task = office.task(work)
    for _ in range(3):
        office.deliver(task)
        known.append(len(office.guard.governor.store.states("redelivery")))
    assert known == [1, 0, 0]


def test_a_store_that_is_away_lets_nothing_begin(office: Office) -> None:
    """Where leave cannot be asked, the message is sent again and its code does not begin; when the store is back, it
    does."""
    ran: list[int] = []

    def work() -> None:
        ran.append(1)

    task = office.task(work)
    office.trouble = StoreFull("no room")
    state, retry = office.deliver(task)
    assert (state, retry.when, ran) == ("RETRY", STORE_WAIT, [])
    assert len(office.sent()) == 1
    office.trouble = None
    assert office.deliver(task)[0] == "SUCCESS"
    assert ran == [1]


def test_what_cannot_be_sent_again_is_put_back(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not take the message gets it back unacknowledged: it is not lost."""
    task = office.task(seven)
    office.trouble = StoreFull("no room")

    def away(*_: object, **__: object) -> None:
        raise ConnectionError("the broker is away")

    monkeypatch.setattr("celery.canvas.Signature.apply_async", away)
    state, rejected = office.deliver(task)
    assert (state, rejected.requeue) == ("REJECTED", True)


def test_an_end_that_cannot_be_written_undoes_nothing(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    """What a task did is done, and its result stands, also where the store fails meanwhile. Its run is still live in
    the journal, and so will be found as lost."""

    def work() -> int:
        office.guard.governor.store.close()
        return 7

    assert office.deliver(office.task(work)) == ("SUCCESS", 7)
    assert "cannot be written" in caplog.text


# As for any unit.


def test_a_budget_is_of_one_run(office: Office) -> None:
    """A task's money is reserved on the account of its run: what is too much is refused, and the next run has all of it
    again."""

    def work(costs: str) -> str:
        with office.guard.reserve(costs) as money:
            money.settle(costs)
        return costs

    task = office.task(work, flyball=TaskOptions(budget="0.05"))
    assert office.deliver(task, "0.04") == ("SUCCESS", "0.04")
    state, error = office.deliver(task, "0.06", id="m2")
    assert state == "FAILURE"
    assert isinstance(error, OutOfBudget)
    assert office.events()[-1].cause is Cause.STARVED


def test_a_breaker_opens_for_the_provider() -> None:
    """Tasks that call what is down open its circuit: the next message waits, and its code does not begin."""
    office = Office(circuit_breaker={"failure_threshold": 2, "min_units": 1, "labels": ["provider"]})
    try:
        task = office.task(raises(ValueError("down")), flyball=TaskOptions(labels={"provider": "x"}))
        assert [office.deliver(task, id=f"m{number}")[0] for number in range(3)] == ["FAILURE", "FAILURE", "RETRY"]
        assert sum(isinstance(event, Start) for event in office.events()) == 2
        office.guard.governor.submit(Released(scope="provider", labels={"provider": "x"}, by="ann"))
        office.guard.governor.submit(Released(scope="fleet", by="ann"))
        assert office.deliver(task, id="m3")[0] == "FAILURE"
    finally:
        office.close()


# Bad input.


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"flyball": True}, "flyball is True"),
        ({"flyball": TaskOptions(starts=0)}, "starts is 0"),
        ({"flyball": TaskOptions(at_once=True)}, "at_once is True"),
        ({"flyball": TaskOptions(deadline=-1)}, "deadline is -1"),
        ({"flyball": TaskOptions(budget="much")}, "budget"),
        ({"flyball": TaskOptions(unit="two words")}, "'two words' is no name"),
    ],
    ids=lambda case: str(case) if isinstance(case, str) else "",
)
def test_an_option_that_is_wrong_lets_nothing_begin(office: Office, options: Any, says: str) -> None:
    """What cannot be meant is told with the task's name: its worker does not start, and where there is none, as for an
    eager call, the task is refused. Others are guarded all the same."""
    task = office.task(seven, **options)
    with pytest.raises(SystemExit, match=says) as ended:
        worker_init.send(sender=None)
    assert "task work" in str(ended.value)
    with pytest.raises(FlyballError, match=says):
        task.apply().get()
    assert office.events() == []


@pytest.mark.parametrize("trouble", [SettingsError(["flyball.yaml:1:1: no such setting"]), StoreFull("no room")])
def test_a_guard_that_cannot_be_opened_stops_the_worker(office: Office, trouble: FlyballError) -> None:
    """A worker whose settings are wrong, or whose store cannot be opened, does not start: it says what and where."""
    office.task(seven)
    office.trouble = trouble
    with pytest.raises(SystemExit, match=f"flyball: {trouble}"):
        worker_init.send(sender=None)


def test_held_is_one_of_two(office: Office) -> None:
    """Any other word is refused, and nothing is wrapped."""
    with pytest.raises(FlyballError, match="held is 'drop'"):
        GuardedTasks(office.app, office.open, held="drop")  # type: ignore[arg-type]  # that is the case


def test_a_refusal_crosses_to_whoever_waits(office: Office) -> None:
    """A refusal is stored as a result and made of it again, as JSON or pickled: text, code and remedy."""
    told = TaskRefused("message 7: no", "paused", "Wait.")
    stored = office.app.backend.prepare_exception(told, serializer="json")
    for back in (office.app.backend.exception_to_python(stored), pickle.loads(pickle.dumps(told))):  # noqa: S301 - ours
        assert isinstance(back, TaskRefused)
        assert (str(back), back.code, back.remedy) == ("message 7: no. Wait.", "paused", "Wait.")


def test_without_celery_it_says_what_to_install() -> None:
    """The adapter's import says what is missing, and how to get it."""
    code = "import sys; sys.modules['celery'] = None; import flyball.integrations.celery"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "the adapter for Celery needs Celery, which is not installed" in done.stderr
