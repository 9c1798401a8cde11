"""The worker: a process in which one run of one agent lives. Only flyball starts it.

Its standard input is a socket to the program. There it gets what to run, and says how it ended. Steps, memory and money
go straight to the store. It dies with its program, whatever it is doing: the program holds one end of a pipe, and when
that is closed the kernel kills the whole process group (Linux), or a thread does.

When the function has ended so does the process, at once: no thread that goes on, and nothing at exit, can hold it up.
"""

import asyncio
import contextlib
import faulthandler
import importlib
import io
import logging
import os
import pickle
import signal
import socket
import sys
import threading
import types
from collections.abc import Collection
from typing import Final, NoReturn

from flyball.core.codec import encode
from flyball.core.decision import Decision
from flyball.core.event import DETAIL_MAX
from flyball.core.panel import Panel
from flyball.governor import Governor
from flyball.runtimes.agent import wire
from flyball.runtimes.agent.ending import ending_of, ending_of_stopped, ending_of_told
from flyball.runtimes.agent.inline import InlineHands, InlineLife
from flyball.runtimes.agent.iteration import repeated
from flyball.runtimes.driver import Ending
from flyball.runtimes.lifeline import connected, die_with

STDERR: Final = 2
SAYS_MAX: Final = 5.0
"""Seconds to get a message out. It is taken at once, unless the program hangs: then its end is what matters."""
FLUSH_MAX: Final = 2.0
"""Seconds to write what was printed and logged. It takes milliseconds."""
NOBODY: Final = 3
"""The exit code of a worker that nobody gave a job."""


class Channel:
    """The socket to the program."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def say(self, message: wire.Said) -> None:
        """Say it, from any thread. If the program does not listen any more, it is about to end this process. A fork of
        the worker has nothing to say."""
        if os.getpid() != self._pid:
            return
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(encode(message) + b"\n")

    def job(self) -> wire.Job:
        """What to run."""
        (length,) = wire.LENGTH.unpack(self._receive(wire.LENGTH.size))
        job: wire.Job = pickle.loads(self._receive(length))  # noqa: S301 - our own program made it
        self._connection.settimeout(SAYS_MAX)
        return job

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._connection.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)


class _Life(InlineLife):
    """A run that has a process for itself."""

    def __init__(self, hands: InlineHands, job: wire.Job, channel: Channel) -> None:
        self._channel = channel
        super().__init__(hands, job.run, job.again)

    def _tell(self, decision: Decision) -> None:
        # Said here and now, not by the loop: the function may never let that go round again.
        self._channel.say(wire.Told(decision))
        super()._tell(decision)


def main() -> NoReturn:
    """One run, from the socket on the standard input to the exit."""
    given = connected()
    if given is None:
        os._exit(NOBODY)
    channel = Channel(given[0])
    die_with(given[1])
    forking = _Forking()
    os.register_at_fork(before=forking.before, after_in_parent=forking.after, after_in_child=forking.in_child)
    faulthandler.register(wire.DUMP_SIGNAL, file=STDERR, all_threads=True)
    channel.say(wire.Listens())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what was printed before it was killed is what tells why
    try:
        job = channel.job()
    except (EOFError, OSError):
        os._exit(NOBODY)
    try:
        asyncio.run(_live(_load(job), job, channel))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is how the run ended
        _leave(channel, ending_of(job.unit, error, {}))


class _Forking(threading.local):
    """What a fork of the worker is told by a signal is for the fork alone, though they share the files by which the
    loop hears of signals. So the signal waits until the fork has let go of these."""

    mask: Collection[int] = ()

    def before(self) -> None:
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def after(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    def in_child(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.after()


def _load(job: wire.Job) -> wire.Task:
    """Import what the program is made of, without running it."""
    sys.path[:] = job.path
    sys.argv[:] = job.argv
    with wire.loading():
        if job.main_name:
            _be_main(importlib.import_module(job.main_name))
        elif job.main_file:
            main = types.ModuleType(wire.MAIN)
            main.__file__ = job.main_file
            _be_main(main)
            with io.open_code(job.main_file) as file:
                code = compile(file.read(), job.main_file, "exec")
            exec(code, main.__dict__)  # noqa: S102 - it is the program itself
        task: wire.Task = pickle.loads(job.task)  # noqa: S301 - our own program made it
    return task


def _be_main(main: types.ModuleType) -> None:
    _mains.append(sys.modules["__main__"])
    sys.modules["__main__"] = sys.modules[wire.MAIN] = main


_mains: Final[list[types.ModuleType]] = []
"""This very module, when another took its name: it has to live on."""


async def _live(task: wire.Task, job: wire.Job, channel: Channel) -> NoReturn:
    governor = Governor(Panel(task.policies), task.store())

    def stuck(life: InlineLife, where: str) -> None:
        """It does not end though it was told to, and its grace is over: here it is not waited for."""
        if life.told is not None:
            _leave(channel, ending_of_told(job.unit, asyncio.CancelledError(), life.told, where))
        _leave(channel, ending_of_stopped(job.unit, where))

    hands = InlineHands(task.unit, repeated(task.function, task.every), governor, task.causes, stuck)
    ending: set[asyncio.Task[None]] = set()

    def end() -> None:
        channel.say(wire.Was(life.where()[-DETAIL_MAX:]))
        ending.add(asyncio.ensure_future(life.end(task.unit.grace)))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)  # before the function can do anything
    life = _Life(hands, job, channel)
    _leave(channel, await life.ended())


def _leave(channel: Channel, ending: Ending) -> NoReturn:
    """Say how it ended, and be gone."""
    # In a thread: one of the function's own, which hangs, may hold the locks that this needs.
    flushing = threading.Thread(target=_flush, daemon=True)
    flushing.start()
    flushing.join(FLUSH_MAX)
    channel.say(wire.Ended(ending))
    os._exit(0)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # it may have been closed or replaced
            stream.flush()


if __name__ == "__main__":
    main()
