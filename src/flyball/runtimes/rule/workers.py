"""The daemon's side of workers: one process for the calls and the browser of one run, begun when it is first needed,
ended when the run is over. What it is asked takes too long, or is not wanted any more: then it is ended as well, with
all that it started, and the next attempt has a new one.
"""

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flyball.config.units import Unit
from flyball.core.event import Cause
from flyball.runtimes.lifeline import Lifeline, tied
from flyball.runtimes.process.spawn import STARVED
from flyball.runtimes.rule import marks, wire
from flyball.runtimes.rule.actions.within import timed_out
from flyball.runtimes.rule.child import Child
from flyball.runtimes.rule.deed import GRACE, ActionFailed, Scene

MODULE: Final = "flyball.runtimes.rule.worker"
CHUNK: Final = 65_536
LAST_MAX: Final = 1.0
"""Seconds between the end of what a worker says and its own. Longer only if something keeps it that is to be ended."""


async def ask(scene: Scene, verb: str, what: Mapping[str, Any], seconds: float) -> Any:
    """Have the run's worker do something; its result. ActionFailed if it failed, or took longer than so many seconds:
    then, and when this is cancelled, nothing of it is left."""
    line = msgspec.json.encode(wire.Asked(verb, dict(what), time.monotonic() + seconds), enc_hook=str) + b"\n"
    if len(line) > wire.ASKED_MAX:
        text = f"what it is given takes {len(line)} bytes; allowed: {wire.ASKED_MAX}; give the name of a file instead"
        raise ActionFailed("TooLong", text, final=True)
    if scene.worker is None or scene.worker.is_over:
        scene.worker = await Worker.begin(scene)
    return await scene.worker.ask(line, seconds)


class Worker:
    """One of them."""

    def __init__(self, child: Child, channel: socket.socket, line: Lifeline) -> None:
        self.is_over = False
        self._child, self._channel, self._line = child, channel, line
        self._heard = bytearray()

    @classmethod
    async def begin(cls, scene: Scene) -> "Worker":
        """Begin a new one, which ends with the run at the latest."""
        try:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            line = tied(ours)
        except OSError as error:
            text = f"there is no room for a process: {error.strerror}"
            raise ActionFailed("CannotStart", text, errno=error.errno, starved=error.errno in STARVED) from None
        with theirs:
            child = await Child.begin(scene, _unit(scene), marks.of_worker(scene.run), stdin=theirs.fileno())
        worker = cls(child, ours, line)
        # Nothing was waited for since it was begun: there is no moment in which nobody would end it.
        scene.ends.append(worker.end)
        if not child.life.pid:
            await worker.end()
            raise child.failure()
        return worker

    async def ask(self, line: bytes, seconds: float) -> Any:
        """Have it do one thing."""
        try:
            async with asyncio.timeout(seconds):
                answer = await self._answer(line)
        except TimeoutError:
            await self.end()
            raise timed_out(seconds, detail=self._child.last_lines) from None
        except asyncio.CancelledError:
            await self.end()
            raise
        if answer is None:
            raise await self._broke_off()
        if isinstance(answer, wire.Failed):
            raise answer.meant
        return msgspec.json.decode(answer.result)

    async def end(self) -> None:
        """End it with all that it started. Nothing happens if it is over."""
        if self.is_over:
            return
        self.is_over = True
        try:
            await self._child.end()
        finally:
            self._channel.close()
            self._line.close()

    async def _answer(self, line: bytes) -> wire.Answer | None:
        """None: it says nothing more, or nothing that could be understood."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError, msgspec.MsgspecError):
            await loop.sock_sendall(self._channel, line)
            while b"\n" not in self._heard:
                data = await loop.sock_recv(self._channel, CHUNK)
                if not data or len(self._heard) > wire.ANSWER_MAX:
                    return None
                self._heard += data
            said, _, self._heard = self._heard.partition(b"\n")
            return wire.decode(bytes(said))
        return None

    async def _broke_off(self) -> ActionFailed:
        """Why it does not answer: the function ended its process, or a signal did."""
        life = self._child.life
        await asyncio.wait((life.ended(),), timeout=LAST_MAX)
        await self.end()
        if life.ending is not None and life.ending.cause is Cause.DONE:
            text = "the function ended its process instead of returning"
            return ActionFailed("ProcessEnded", text, code=0, detail=life.tail())
        return self._child.failure()


def _unit(scene: Scene) -> Unit:
    # Its own path is not looked for in the current folder (-P): there may be anything in that.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    return Unit(name=scene.rule.name, command=(sys.executable, *flags, "-P", "-m", MODULE), grace=GRACE)
