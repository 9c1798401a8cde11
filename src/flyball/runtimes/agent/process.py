"""Agents in a process of their own: an interpreter each, in a session of its own, which can be killed.

A process like any other unit's, run by the same hands: its output goes into a log, its end is proven. Over that, what
the worker says of itself: how its function ended, with the stack; and that it was told to end. What it says is taken
only if it says it: one that was killed, or crashed, has its exit code and its last lines for it.

The program may have children of its own. So nothing here looks at any process but those of its runs, by their marks.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from flyball.config.units import Unit
from flyball.core.decision import Decision, Verb
from flyball.core.event import Cause
from flyball.core.time import Span, seconds
from flyball.governor import Governor
from flyball.runtimes.agent import wire
from flyball.runtimes.agent.ending import ending_of_told
from flyball.runtimes.driver import Ending
from flyball.runtimes.holder import is_gone
from flyball.runtimes.lifeline import Lifeline, tied
from flyball.runtimes.process import ProcessHands, ProcessLife, kernel, strays
from flyball.runtimes.process.failure import cut
from flyball.runtimes.process.spawn import NOT_PASSED_ON, UNIT_VARIABLE, explained

WORKER: Final = "flyball.runtimes.agent.worker"
CHUNK: Final = 65_536


class WorkerHands:
    """Begins the runs of one agent."""

    def __init__(self, unit: Unit, task: bytes, *, logs: Path) -> None:
        self.unit = unit
        self._task = task
        self._means = kernel.detect(reaps=False)
        # Its own path is not looked for in the current folder (-P): there may be anything in that.
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
        command = (sys.executable, *flags, "-P", "-m", WORKER)
        self._process = ProcessHands(replace(unit, command=command), logs=logs, means=self._means)

    async def begin(self, run: str, *, again: bool) -> "ProcessLife | WorkerLife":
        """Begin a run: a new interpreter."""
        process = self._process
        job = wire.job(self._task, self.unit.name, run, again=again)
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            return process.unborn(run, explained(self.unit, "", error))
        with theirs:
            try:
                line = tied(ours)
            except OSError as error:
                ours.close()
                return process.unborn(run, explained(self.unit, "", error))
            process.stdin, process.extra_env = theirs.fileno(), _environment()
            life = await process.begin(run, again=again)
        if life.pid:
            return WorkerLife(self, life, ours, line, job)
        ours.close()
        line.close()
        return life

    def close(self) -> None:
        """Give back what is kept open between runs. A later run opens it again."""
        self._process.close()

    def clear(self, governor: Governor) -> int:
        """End what is left of runs whose program was killed; how many processes there were. They ended with it, but for
        what had left their process group."""
        name = self.unit.name
        runs = {(name, run) for _, run, live in governor.live_runs(name) if is_gone(live.holder)}
        return strays.end(runs, self._means)


class WorkerLife:
    """One run, in its process."""

    def __init__(
        self, hands: WorkerHands, process: ProcessLife, channel: socket.socket, line: Lifeline, job: bytes
    ) -> None:
        self._hands, self._unit, self._process = hands, hands.unit, process
        self._channel, self._line = channel, line
        self._loop = asyncio.get_running_loop()
        self._heard = bytearray()
        self._listens = False
        self._told: asyncio.Future[Decision] = self._loop.create_future()
        self._was = ""
        self._ended: Ending | None = None
        channel.setblocking(False)
        self._loop.add_reader(channel, self._hear)
        self._sending = self._loop.create_task(self._send(job))
        self._over = self._loop.create_task(self._stand_by())

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    async def ended(self) -> Ending:
        """Wait until it is over, or has to be ended."""
        await asyncio.wait((self._over, self._told), return_when=asyncio.FIRST_COMPLETED)
        if not self._over.done():
            if self._told.result().verb is Verb.FINISH:  # it was refused a step, and may end in order
                await asyncio.wait((self._over,), timeout=seconds(self._unit.grace))
            await self.end(self._unit.grace)
        return self._over.result()

    async def end(self, grace: Span) -> None:
        """Make it end: the worker cancels its function; what does not end is killed with all that it started. Half-way
        it is asked where it is."""
        asking = self._loop.call_later(seconds(grace) / 2, self._ask_where)
        await self._process.end(grace)
        asking.cancel()
        await asyncio.wait((self._over,))

    def _ask_where(self) -> None:
        if self._listens:
            self._process.signal(wire.DUMP_SIGNAL)

    async def _send(self, job: bytes) -> None:
        with contextlib.suppress(OSError):  # it ended before it had read it
            await self._loop.sock_sendall(self._channel, job)

    async def _stand_by(self) -> Ending:
        ending = await self._process.ended()
        while self._hear():
            pass
        self._sending.cancel()
        await asyncio.wait((self._sending,))
        self._loop.remove_reader(self._channel)
        self._channel.close()
        self._line.close()
        self._hands.close()
        return self._judge(ending)

    def _hear(self) -> bool:
        """What the worker says. False: nothing more for now."""
        try:
            data = self._channel.recv(CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._channel)
            return False
        if len(self._heard) < wire.SAID_MAX:
            self._heard += data
        while b"\n" in self._heard:
            line, _, self._heard = self._heard.partition(b"\n")
            with contextlib.suppress(msgspec.MsgspecError):  # it was not the worker who said that
                self._take(wire.decode(bytes(line)))
        return True

    def _take(self, said: wire.Said) -> None:
        match said:
            case wire.Listens():
                self._listens = True
            case wire.Told() if not self._told.done():
                self._told.set_result(said.decision)
            case wire.Was():
                self._was = said.where
            case wire.Ended() if self._ended is None:
                self._ended = said.ending

    def _judge(self, ending: Ending) -> Ending:
        """How it ended: by its own word, or else by what could be seen of it."""
        said = self._ended
        if said is not None and said.cause is Cause.DONE:
            return said
        # Its last lines come first: of what is too long the end is kept, and there is the stack.
        if said is not None:
            return replace(said, detail=cut(f"{self._process.tail()}\n{said.detail or self._was}".strip()))
        detail = cut(f"{ending.detail}\n{self._was}".strip())
        if not self._told.done():
            return replace(ending, detail=detail)
        seen = ending_of_told(self._unit.name, asyncio.CancelledError(), self._told.result(), detail)
        return replace(seen, code=ending.code, signal=ending.signal)


def _environment() -> Mapping[str, str]:
    """The program's environment as it is now: it may have changed since the first start of a process."""
    return {name: value for name, value in os.environ.items() if name not in (*NOT_PASSED_ON, UNIT_VARIABLE)}
