"""A guarded call in every form in which code can be called: the same laws hold for all of them."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest

from flyball.core.time import SECOND
from flyball.policies import Limit
from flyball.runtimes.calls import Call, Retry
from flyball.runtimes.refusal import CircuitOpen, OutOfBudget, Refused
from tests.runtimes.calls.stage import Broken, Fickle, Stage

Form = Callable[[Call, Fickle], Callable[[], Any]]


def function(call: Call, work: Fickle) -> Callable[[], Any]:
    @call
    def made() -> int:
        return work()

    return made


def coroutine(call: Call, work: Fickle) -> Callable[[], Any]:
    @call
    async def made() -> int:
        await asyncio.sleep(0)
        return work()

    return lambda: asyncio.run(made())


def generator(call: Call, work: Fickle) -> Callable[[], Any]:
    @call
    def made() -> Iterator[int]:
        yield work()

    return lambda: next(iter(list(made())))


def async_generator(call: Call, work: Fickle) -> Callable[[], Any]:
    @call
    async def made() -> AsyncIterator[int]:
        await asyncio.sleep(0)
        yield work()

    async def all_of_it() -> int:
        items = [item async for item in made()]
        return items[0]

    return lambda: asyncio.run(all_of_it())


def loop(call: Call, work: Fickle) -> Callable[[], Any]:
    def made() -> int | None:
        for attempt in call:
            with attempt:
                return work()
        return None

    return made


def async_loop(call: Call, work: Fickle) -> Callable[[], Any]:
    async def made() -> int | None:
        async for attempt in call:
            async with attempt:
                return work()
        return None

    return lambda: asyncio.run(made())


def block(call: Call, work: Fickle) -> Callable[[], Any]:
    def made() -> int:
        with call:
            return work()

    return made


def async_block(call: Call, work: Fickle) -> Callable[[], Any]:
    async def made() -> int:
        async with call:
            return work()

    return lambda: asyncio.run(made())


RETRIED = (function, coroutine, generator, async_generator, loop, async_loop)
FORMS = (*RETRIED, block, async_block)


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.calls.close()


@pytest.mark.parametrize("form", FORMS)
def test_the_result_comes_through(stage: Stage, form: Form) -> None:
    """On the healthy path nobody notices the guard."""
    made = form(stage.calls("fetch", breaker="provider:x", loop=(50, 60), cost="0.01", budget=10), Fickle())
    assert [made() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert not stage.slept


@pytest.mark.parametrize("form", FORMS)
def test_five_failures_open_the_circuit(stage: Stage, form: Form) -> None:
    """The error comes through as it is; after five of them the call is refused at once, with when to try again."""
    work = Fickle(99)
    made = form(stage.calls("fetch", breaker="provider:x"), work)
    for _ in range(5):
        with pytest.raises(Broken):
            made()
    with pytest.raises(CircuitOpen, match="fetch: circuit open: 5 failures within 1 min") as caught:
        made()
    assert work.made == 5
    assert caught.value.retry_after == 60
    assert caught.value.code == "circuit_open"
    assert caught.value.remedy


@pytest.mark.parametrize("form", FORMS)
def test_without_a_breaker_nothing_opens(stage: Stage, form: Form) -> None:
    """It is the breaker that refuses: take it out, and a hundred failures are a hundred attempts."""
    made = form(stage.calls("fetch"), Fickle(100))
    for _ in range(100):
        with pytest.raises(Broken):
            made()


@pytest.mark.parametrize("form", FORMS)
def test_half_open_then_closed(stage: Stage, form: Form) -> None:
    """After a minute trials are let through; three that succeed close it, one that fails opens it again."""
    work = Fickle(6)
    made = form(stage.calls("fetch", breaker="provider:x"), work)
    for _ in range(5):
        with pytest.raises(Broken):
            made()
    stage.clock.move(60 * SECOND)
    with pytest.raises(Broken):
        made()
    with pytest.raises(CircuitOpen):
        made()
    stage.clock.move(60 * SECOND)
    for _ in range(2):
        made()
    assert stage.state("call_breaker", "provider", "x") is not None
    made()
    assert stage.state("call_breaker", "provider", "x") is None
    assert made() == 10


@pytest.mark.parametrize("form", FORMS)
def test_a_budget_is_never_exceeded(stage: Stage, form: Form) -> None:
    """The attempt whose worst case does not fit any more is not made."""
    work = Fickle()
    made = form(stage.calls("fetch", cost="0.10", budget="1.00"), work)
    for _ in range(10):
        made()
    with pytest.raises(OutOfBudget, match=r"fetch: 1.00 USD spent and 0.10 USD reserved of 1.00 USD per call:fetch"):
        made()
    assert work.made == 10


@pytest.mark.parametrize("form", FORMS)
def test_a_loop_is_stopped(stage: Stage, form: Form) -> None:
    """The tenth of the same within a minute is not made."""
    work = Fickle()
    made = form(stage.calls("fetch", loop=(10, 60)), work)
    for _ in range(9):
        made()
    with pytest.raises(Refused, match="Loop detected: fetch 10 times") as caught:
        made()
    assert caught.value.code == "loop_detected"
    assert work.made == 9
    stage.clock.move(61 * SECOND)
    assert made() == 10


@pytest.mark.parametrize("form", RETRIED)
def test_retried_until_it_works(stage: Stage, form: Form) -> None:
    """Each attempt asks and counts; in between it waits, longer each time."""
    made = form(stage.calls("fetch", retry=Retry(attempts=4, jitter=0), breaker="provider:x"), Fickle(3))
    assert made() == 4
    assert stage.slept == [1.0, 2.0, 4.0]
    assert [work.error for event in stage.events("stepped") for work in event.done] == [True] * 3


@pytest.mark.parametrize("form", RETRIED)
def test_the_last_error_is_raised_as_it_is(stage: Stage, form: Form) -> None:
    """With a note of what was tried."""
    work = Fickle(9)
    made = form(stage.calls("fetch", retry=3), work)
    with pytest.raises(Broken) as caught:
        made()
    assert work.made == 3
    assert caught.value.__notes__ == ["flyball: fetch was tried 3 times; 3 are allowed"]


@pytest.mark.parametrize("form", RETRIED)
def test_nobody_waits_for_an_attempt_that_will_be_refused(stage: Stage, form: Form) -> None:
    """The failure that opens the circuit is the last attempt, though more are allowed."""
    work = Fickle(99)
    made = form(stage.calls("fetch", retry=Retry(attempts=9, jitter=0), breaker="provider:x"), work)
    with pytest.raises(Broken) as caught:
        made()
    assert work.made == 5
    assert "not again: circuit open" in caught.value.__notes__[0]
    assert stage.slept == [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize("form", RETRIED)
def test_with_patience_the_circuit_is_waited_for(stage: Stage, form: Form) -> None:
    """`wait` is how long a call waits for leave that will be given: here, over the minute that the circuit is open."""
    made = form(
        stage.calls("fetch", retry=Retry(attempts=9, first=0, jitter=0), breaker="provider:x", wait=61), Fickle(5)
    )
    assert made() == 6
    assert stage.slept == [0, 0, 0, 0, 0, 60.0]


@pytest.mark.parametrize(("wait", "passes"), [(59.9, False), (60, True)])
def test_who_would_wait_too_long_does_not_wait_at_all(stage: Stage, wait: float, passes: bool) -> None:
    """What is not given within the time agreed on is refused at once."""
    made = function(stage.calls("fetch", breaker="provider:x", wait=wait), Fickle(5))
    for _ in range(5):
        with pytest.raises(Broken):
            made()
    if passes:
        assert made() == 6
    else:
        with pytest.raises(CircuitOpen):
            made()
    assert stage.slept == ([60.0] if passes else [])


@pytest.mark.parametrize("form", FORMS)
def test_errors_that_are_ones_own_fault_do_not_count(stage: Stage, form: Form) -> None:
    """What is called has answered: that speaks for it, not against it."""
    made = form(stage.calls("fetch", breaker="provider:x", failures=OSError), Fickle(9))
    for _ in range(9):
        with pytest.raises(Broken):
            made()
    assert made() == 10


@pytest.mark.parametrize("form", FORMS)
def test_failures_by_a_function(stage: Stage, form: Form) -> None:
    """Which errors count can be said of each: a 404 is no outage, a 503 is."""
    statuses = iter([404] * 9 + [503] * 5)
    work = Fickle(99, lambda: Broken(next(statuses)))
    made = form(stage.calls("fetch", breaker="provider:x", failures=lambda error: error.args[0] >= 500), work)
    for _ in range(14):
        with pytest.raises(Broken):
            made()
    with pytest.raises(CircuitOpen):
        made()


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError, SystemExit])
@pytest.mark.parametrize("form", [function, loop, block])
def test_what_was_cut_short_says_nothing(stage: Stage, form: Form, error: type[BaseException]) -> None:
    """Neither does it open the circuit, nor is it tried again; a trial that is cut short gives its place back."""
    retry = None if form is block else Retry(attempts=3, on=BaseException)
    work = Fickle(9, error)
    made = form(stage.calls("fetch", breaker="provider:x", retry=retry), work)
    for _ in range(9):
        with pytest.raises(error):
            made()
    work.failures, work.error = 5, Broken
    other = function(stage.calls("fetch", breaker="provider:x"), work)
    for _ in range(5):
        with pytest.raises(Broken):
            other()
    stage.clock.move(60 * SECOND)
    work.failures, work.error = 9, error
    for _ in range(9):
        with pytest.raises(error):
            made()
    work.failures = 0
    for _ in range(3):
        made()
    assert stage.state("call_breaker", "provider", "x") is None


def test_a_refusal_inside_is_no_failure(stage: Stage) -> None:
    """A guarded call inside a guarded one: that the inner one is refused says nothing of what the outer one calls."""
    inner = function(stage.calls("inner", loop=(2, 60)), Fickle())

    @stage.calls("outer", breaker="provider:x", retry=3)
    def outer() -> None:
        inner()

    outer()
    for _ in range(9):
        with pytest.raises(Refused, match="inner"):
            outer()
    assert not stage.slept


@pytest.mark.parametrize("seen", [0, 1, 2])
def test_a_generator_is_retried_until_its_first_item(stage: Stage, seen: int) -> None:
    """Who has seen an item must not see it twice."""
    tries = []

    @stage.calls("stream", retry=Retry(jitter=0), breaker="provider:x")
    def stream() -> Iterator[int]:
        tries.append(1)
        yield from range(seen if len(tries) == 1 else 3)
        if len(tries) == 1:
            raise Broken

    found: list[int] = []
    if seen:
        with pytest.raises(Broken):
            found.extend(stream())
    else:
        found.extend(stream())
    assert len(tries) == (1 if seen else 2)
    assert stage.events("stepped")[0].done[0].error


def test_a_generator_is_sent_to_and_thrown_into(stage: Stage) -> None:
    """The whole protocol of generators passes through."""

    @stage.calls("talk")
    def talk() -> Generator[Any, Any, str]:
        got = yield "first"
        try:
            yield got
        except ValueError as error:
            yield f"caught {error}"
        return "end"

    made: Any = talk()
    assert next(made) == "first"
    assert made.send("hello") == "hello"
    assert made.throw(ValueError("this")) == "caught this"
    with pytest.raises(StopIteration) as end:
        next(made)
    assert end.value.value == "end"


def test_an_async_generator_is_sent_to_and_thrown_into(stage: Stage) -> None:
    """The same, awaited."""

    @stage.calls("talk")
    async def talk() -> AsyncIterator[Any]:
        got = yield "first"
        try:
            yield got
        except ValueError as error:
            yield f"caught {error}"

    async def all_of_it() -> None:
        made: Any = talk()
        assert await anext(made) == "first"
        assert await made.asend("hello") == "hello"
        assert await made.athrow(ValueError("this")) == "caught this"
        with pytest.raises(StopAsyncIteration):
            await anext(made)

    asyncio.run(all_of_it())


@pytest.mark.parametrize("how", ["closed", "dropped"])
@pytest.mark.parametrize("budget", ["0.01", "1"])
def test_a_generator_that_is_left_early_went_well(stage: Stage, how: str, budget: str) -> None:
    """Whoever stops reading a stream has had what he wanted of it: it is reported, and closed inside; granted by
    itself, or with others."""
    closed = []

    @stage.calls("stream", cost="0.01", budget=budget)
    def stream() -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            closed.append(1)

    made: Any = stream()
    assert next(made) == 0
    if how == "closed":
        made.close()
    del made
    gc.collect()
    assert closed == [1]
    stage.calls.report()
    assert stage.events("stepped")[-1].done[0].used == {"usd": 10_000}


def test_an_async_generator_that_is_left_early_went_well(stage: Stage) -> None:
    """The same, awaited."""
    closed = []

    @stage.calls("stream", cost="0.01", budget=1)
    async def stream() -> AsyncIterator[int]:
        try:
            for number in range(100):
                yield number
        finally:
            closed.append(1)

    async def a_bit_of_it() -> None:
        made: Any = stream()
        assert await anext(made) == 0
        await made.aclose()

    asyncio.run(a_bit_of_it())
    assert closed == [1]
    stage.calls.report()
    assert stage.events("stepped")[-1].done[0].used == {"usd": 10_000}


def test_names_and_signatures_stay(stage: Stage) -> None:
    """A guarded function still says what it is; methods are guarded like functions."""

    class Client:
        @stage.calls("fetch")
        def fetch(self, url: str) -> str:
            """Fetches."""
            return f"{type(self).__name__} {url}"

    assert Client.fetch.__name__ == "fetch"
    assert Client.fetch.__doc__ == "Fetches."
    assert Client().fetch("x") == "Client x"


def test_an_object_that_is_called_is_guarded_by_its_colour(stage: Stage) -> None:
    """Not only functions are called."""

    class Fetch:
        async def __call__(self) -> str:
            return "fetched"

    fetch = Fetch()
    fetch.__dict__["__name__"] = "fetch"
    assert asyncio.run(stage.calls("fetch")(fetch)()) == "fetched"


def test_a_limit_of_the_program_holds_for_its_calls(stage: Stage) -> None:
    """A guarded call is a step: whatever limits the steps of the unit limits its calls, exactly."""
    stage.put(Limit(most=100, by="unit"))
    one, two = Fickle(), Fickle()
    first, second = function(stage.calls("one"), one), function(stage.calls("two"), two)
    for _ in range(50):
        first()
        second()
    for made in (first, second):
        with pytest.raises(Refused, match="Step limit reached"):
            made()
    assert one.made + two.made == 100


@pytest.mark.parametrize("budget", ["0.01", "1"])
def test_a_coroutine_that_is_thrown_away_was_cut_short(stage: Stage, budget: str) -> None:
    """Its loop is gone: what it was doing is reported without waiting, and says nothing."""
    inside = asyncio.Event()

    @stage.calls("fetch", cost="0.01", budget=budget)
    async def fetch() -> None:
        inside.set()
        await asyncio.Event().wait()

    made = fetch()

    async def until_inside() -> None:
        """Drive it by hand, as nobody does any more later."""
        while not inside.is_set():
            made.send(None)
            await asyncio.sleep(0)

    asyncio.run(until_inside())
    made.close()
    stage.calls.report()
    assert [work.cut for event in stage.events("stepped") for work in event.done] == [True]
