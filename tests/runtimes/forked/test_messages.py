"""What a forked run and its program say to each other."""

import asyncio
import gc
import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flyball.errors import FlyballError
from flyball.runtimes.current import CURRENT
from flyball.runtimes.forked import CannotSend, Cut, Link, Prompt, Raised, parent
from tests.runtimes.forked.stage import WITHIN, Begin, gone, take, until


def test_life(begin: Begin) -> None:
    """A run begins at once in a process of its own, says things in order, and is gone with exit code 0."""

    def work(link: Link) -> None:
        for number in range(500):
            link.send((os.getpid(), number))

    forked = begin(work)
    assert [take(forked) for _ in range(500)] == [(forked.pid, number) for number in range(500)]
    ended = gone(forked)
    assert (ended.code, ended.signal) == (0, None)
    assert gone(forked).code == 0  # as often as somebody asks


def test_closure(begin: Begin) -> None:
    """It has what the program has: closures and locals. What it changes is changed for it alone."""
    seen = ["program"]

    def work(link: Link) -> None:
        seen.append("run")
        link.send(list(seen))

    assert take(begin(work)) == ["program", "run"]
    assert seen == ["program"]


def fails(link: Link) -> None:
    link.send("before")
    raise LookupError("nothing there")


def test_raises(begin: Begin) -> None:
    """What the work raises comes as its last message, with the stack of where it was; the exit code is 1."""
    forked = begin(fails)
    assert take(forked) == "before"
    raised = take(forked)
    assert isinstance(raised, Raised)
    assert isinstance(raised.error, LookupError)
    assert "in fails" in raised.trace
    assert "in fails" in "\n".join(raised.error.__notes__)
    assert gone(forked).code == 1


@pytest.mark.parametrize("error", [SystemExit(4), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
def test_raises_anything(begin: Begin, error: BaseException) -> None:
    """Also what is no `Exception`."""

    def work(link: Link) -> None:
        raise error

    raised = take(begin(work))
    assert type(raised.error) is type(error)


def test_crash(begin: Begin) -> None:
    """One that is killed is gone with the signal, and what it said before is read."""

    def work(link: Link) -> None:
        link.send("last")
        os.kill(os.getpid(), signal.SIGKILL)

    forked = begin(work)
    assert take(forked) == "last"
    ended = gone(forked)
    assert (ended.code, ended.signal) == (None, signal.SIGKILL)
    assert "forked ended by signal SIGKILL" in str(ended)


def test_exit_code(begin: Begin) -> None:
    """One that exits by itself is gone with its code."""
    assert gone(begin(lambda _: os._exit(7))).code == 7


@pytest.mark.parametrize("size", [0, 70_000, 5_000_000, 40_000_000])
def test_sizes(begin: Begin, size: int) -> None:
    """Messages, arguments and answers of any size arrive as they were."""
    data = os.urandom(1_000) * (size // 1_000)

    def work(link: Link) -> None:
        link.send(link.call("turned", data) == data[::-1])
        link.send(data)

    forked = begin(work, turned=lambda given: given[::-1])
    assert take(forked) is True
    assert take(forked) == data


def test_unpicklable(begin: Begin) -> None:
    """What cannot be sent is an error in the run, which goes on; the same for an answer of the program."""

    def work(link: Link) -> None:
        for try_it in (lambda: link.send({"a": [threading.Lock()]}), lambda: link.call("lock")):
            try:
                try_it()
            except CannotSend as error:
                link.send(str(error))

    forked = begin(work, lock=threading.Lock)
    assert take(forked).startswith("the message['a'][0] cannot be sent")
    assert take(forked).startswith("the answer cannot be sent")
    assert gone(forked).code == 0


def test_services(begin: Begin) -> None:
    """A call returns or raises what the service did in the program: in a thread, at once, or with a future."""
    done: Future[str] = Future()
    done.set_result("future")

    def work(link: Link) -> None:
        link.send([link.call("pid", 1), link.call("prompt", 2), link.call("future")])
        for name in ("fails", "prompt_fails", "unknown"):
            try:
                link.call(name)
            except (ZeroDivisionError, FlyballError) as error:
                link.send(f"{type(error).__name__}: {error}")

    def here(given: int) -> tuple[int, int]:
        return os.getpid(), given

    forked = begin(
        work,
        pid=here,
        prompt=Prompt(here),
        future=Prompt(lambda: done),
        fails=lambda: 1 // 0,
        prompt_fails=Prompt(lambda: 1 // 0),
    )
    assert take(forked) == [(os.getpid(), 1), (os.getpid(), 2), "future"]
    assert take(forked).startswith("ZeroDivisionError: ")
    assert take(forked).startswith("ZeroDivisionError: ")
    assert take(forked) == "FlyballError: there is no service 'unknown' for forked"


def test_concurrent_calls(begin: Begin) -> None:
    """Threads and coroutines of a run call at once; each gets its own answer."""

    def work(link: Link) -> None:
        async def by_coroutines() -> list[Any]:
            return await asyncio.gather(*(link.call_soon("double", number) for number in range(1_000)))

        with ThreadPoolExecutor(16) as threads:
            by_threads = list(threads.map(lambda number: link.call("double", number), range(1_000)))
        link.send((by_threads, asyncio.run(by_coroutines())))

    doubled = [2 * number for number in range(1_000)]
    assert take(begin(work, double=lambda number: 2 * number)) == (doubled, doubled)


def test_posts(begin: Begin) -> None:
    """What is posted is not waited for, and is done in order; `posted` waits for all of it."""
    done: list[int] = []

    def work(link: Link) -> None:
        for number in range(200):
            link.post("add", number)
        link.posted()
        link.send(link.call("length"))

    forked = begin(work, add=done.append, length=lambda: len(done))
    assert take(forked) == 200
    assert done == list(range(200))


def test_posts_of_a_run_that_dies(begin: Begin) -> None:
    """What a run posted before it was killed is done, before anybody hears that it is gone."""
    done: list[int] = []
    slow = threading.Event()

    def add(number: int) -> None:
        slow.wait(WITHIN)
        done.append(number)

    def work(link: Link) -> None:
        for number in range(100):
            link.post("add", number)
        os.kill(os.getpid(), signal.SIGKILL)

    forked = begin(work, add=add)
    threading.Timer(0.2, slow.set).start()
    assert gone(forked).signal == signal.SIGKILL
    assert done == list(range(100))


def test_post_that_fails(begin: Begin) -> None:
    """What a post raises is raised by `posted`, once; the others are done all the same."""
    done: list[int] = []

    def add(number: int) -> None:
        if number == 1:
            raise LookupError("nothing there")
        done.append(number)

    def work(link: Link) -> None:
        link.post("add", 0)
        link.post("add", 1)
        try:
            link.posted()
        except LookupError as error:
            link.send(str(error))
        link.post("add", 2)
        link.posted()
        link.send("over")

    forked = begin(work, add=add)
    assert [take(forked), take(forked)] == ["nothing there", "over"]
    assert done == [0, 2]


def test_slow_service(begin: Begin) -> None:
    """A service that takes long does not hold up the other calls of the run."""
    release = threading.Event()

    def work(link: Link) -> None:
        slow = link.ask("slow")
        link.send([link.call("quick"), link.call("prompt"), slow.done()])
        link.send(slow.result())

    forked = begin(work, slow=lambda: release.wait(WITHIN), quick=lambda: "quick", prompt=Prompt(lambda: "prompt"))
    assert take(forked) == ["quick", "prompt", False]
    release.set()
    assert take(forked) is True


def test_stuck_services(begin: Begin) -> None:
    """A run whose services all hang can be ended, and the program is not held up by them."""
    release = threading.Event()

    def work(link: Link) -> None:
        for _ in range(parent.ASKED_MAX + 10):
            link.ask("stuck")
        threading.Event().wait()

    try:
        forked = begin(work, stuck=lambda: release.wait(WITHIN))
        until(lambda: forked._asked == parent.ASKED_MAX)
        forked.end(0)
        assert gone(forked).signal in (signal.SIGTERM, signal.SIGKILL)
    finally:
        release.set()


@pytest.mark.parametrize("size", [10, 1_000_000], ids=["many", "large"])
def test_back_pressure(begin: Begin, size: int) -> None:
    """A run that says more than anybody reads waits: the program keeps a bounded number of messages and bytes. When
    they are read, all of it comes."""
    many = 3 * parent.KEPT_MAX if size == 10 else 60

    def work(link: Link) -> None:
        for number in range(many):
            link.send((number, bytes(size)))

    forked = begin(work)
    until(lambda: len(forked._kept) >= parent.KEPT_MAX or forked._bytes + size > parent.KEPT_BYTES_MAX)
    time.sleep(0.2)  # a moment in which it would send more, if it could
    assert len(forked._kept) <= parent.KEPT_MAX
    assert forked._bytes <= parent.KEPT_BYTES_MAX
    assert [take(forked)[0] for _ in range(many)] == list(range(many))
    assert gone(forked).code == 0


def test_not_read(begin: Begin) -> None:
    """A run that waits to be read can be ended."""

    def work(link: Link) -> None:
        while True:
            link.send(bytes(1_000_000))

    forked = begin(work)
    until(lambda: forked._bytes + 1_000_000 > parent.KEPT_BYTES_MAX)
    forked.end(0)
    while True:
        try:
            assert len(take(forked)) == 1_000_000
        except parent.Gone:
            break


def test_told(begin: Begin) -> None:
    """What a run is told it hears in order, also what it was told before it listened; a callback that fails does not
    make it deaf."""

    def work(link: Link) -> None:
        link.call("told")
        heard: list[Any] = []
        done = threading.Event()

        def told(message: Any) -> None:
            heard.append(message)
            if message == "fail":
                raise ValueError("not my day")
            if message == "last":
                done.set()

        link.told = told
        link.send("listens")
        done.wait(WITHIN)
        link.send(heard)

    early = threading.Event()
    forked = begin(work, told=lambda: early.wait(WITHIN))
    forked.tell("first")
    forked.tell({"second": 2})
    early.set()
    assert take(forked) == "listens"
    forked.tell("fail")
    forked.tell("last")
    assert take(forked) == ["first", {"second": 2}, "fail", "last"]
    gone(forked)
    forked.tell("too late")  # nothing happens


def test_tells_a_hung_run(begin: Begin) -> None:
    """To tell a run something never waits for it: what it does not read is kept up to a maximum, then refused."""

    def work(link: Link) -> None:
        link.send("stops")
        os.kill(os.getpid(), signal.SIGSTOP)

    forked = begin(work)
    assert take(forked) == "stops"
    while len(forked._unsent) < parent.TOLD_MAX:
        forked.tell(bytes(10_000))
    with pytest.raises(CannotSend, match="forked does not read what it is told"):
        forked.tell("more")
    forked.end(0)


def test_receive_soon(begin: Begin) -> None:
    """A coroutine receives without blocking its loop; one that is cancelled takes no message with it."""
    go = threading.Event()

    def work(link: Link) -> None:
        link.call("go")
        link.send(1)
        link.send(2)

    async def receive() -> None:
        forked = await asyncio.to_thread(begin, work, go=lambda: go.wait(WITHIN))
        waiting = asyncio.ensure_future(forked.receive_soon())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not forked._bells
        go.set()
        async with asyncio.timeout(WITHIN):
            assert [await forked.receive_soon(), await forked.receive_soon()] == [1, 2]
            with pytest.raises(parent.Gone):
                await forked.receive_soon()

    asyncio.run(receive())


def test_receive_within(begin: Begin) -> None:
    """Who waits for so long and no longer is told that nothing came; the run goes on."""
    go = threading.Event()
    forked = begin(lambda link: link.send(link.call("go")), go=lambda: go.wait(WITHIN))
    with pytest.raises(TimeoutError, match=r"forked said nothing within 0.01 s"):
        forked.receive(0.01)
    go.set()
    assert take(forked) is True


def test_inside_a_loop(begin: Begin) -> None:
    """A run that is begun in the very thread of an event loop has a loop of its own, and its own signals."""

    def work(link: Link) -> None:
        async def inside() -> int:
            return await link.call_soon("double", 21)  # type: ignore[no-any-return]  # a service of this test

        link.send((asyncio.run(inside()), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, signal.set_wakeup_fd(-1)))

    async def outside() -> Any:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)
        forked = begin(work, double=lambda number: 2 * number)
        async with asyncio.timeout(WITHIN):
            return await forked.receive_soon()

    assert asyncio.run(outside()) == (42, True, -1)


def test_no_steps_of_the_program(begin: Begin) -> None:
    """A run that is begun inside a run of the program does not make steps of that: two would use one allowance."""
    token = CURRENT.set(object())  # type: ignore[arg-type]  # any run will do
    try:
        forked = begin(lambda link: link.send(CURRENT.get()))
    finally:
        CURRENT.reset(token)
    assert take(forked) is None


def test_fork_of_the_run(begin: Begin) -> None:
    """A process that the run forks off has no link: it is told so, and the run's own talk goes on."""

    def work(link: Link) -> None:
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                link.send("from the fork")
            except Cut as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.wait()
        link.send(os.read(read, 1_000).decode())
        link.send(link.call("here"))

    forked = begin(work, here=lambda: "here")
    assert take(forked) == "the program that began this run cannot be reached"
    assert take(forked) == "here"


def test_marks(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run starts has the mark of the run, and nothing that was told to the program alone."""
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
    names = ("FLYBALL_UNIT", "FLYBALL_RUN", "NOTIFY_SOCKET")
    forked = begin(lambda link: link.send([os.environ.get(name) for name in names]))
    assert take(forked) == [*forked._member.mark, None]


def test_nothing_is_left_open(begin: Begin) -> None:
    """When a run is gone, the program has as many open files and threads as before."""

    def count() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    def run() -> None:
        forked = begin(lambda link: link.send(link.call("nothing")), nothing=lambda: None)
        take(forked)
        gone(forked)

    run()  # opens what the program needs only once
    gc.collect()
    files, threads = count()
    for _ in range(5):
        run()
    # Fewer is not wrong: what tests before this one left to end by itself may end meanwhile.
    until(lambda: count()[0] <= files and count()[1] <= threads)


def test_many(begin: Begin) -> None:
    """50 runs at once: each has its own answers, and all end."""

    def work(link: Link) -> None:
        for number in range(20):
            link.send((os.getpid(), number, link.call("double", number)))

    runs = [begin(work, double=lambda number: 2 * number) for _ in range(50)]
    for forked in runs:
        assert [take(forked) for _ in range(20)] == [(forked.pid, number, 2 * number) for number in range(20)]
    assert {gone(forked).code for forked in runs} == {0}
