"""Agents for processes of their own: at the top level of a module, where a worker finds them. Each hangs, fails or ends
in its own way, and says before that it has begun."""

import asyncio
import contextlib
import ctypes
import logging
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flyball.errors import FlyballError
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.ending import Starved
from flyball.runtimes.refusal import Refused

FOLDER = "FLYBALL_TEST_CREW"
"""Names the folder where they say that they have begun."""


class QuotaGone(Exception):
    """A provider's word for it."""


def begun(ctx: Context, *parts: str) -> None:
    """Say so, with a file that is there when it is whole."""
    path = Path(os.environ[FOLDER]) / ".".join([ctx.unit, *parts])
    new = path.with_suffix(".new")
    new.write_text(str(os.getpid()))
    new.rename(path)


# Those that hang.


async def spins(ctx: Context) -> None:
    begun(ctx)
    while True:
        pass


def spins_in_a_thread(ctx: Context) -> None:
    begun(ctx)
    while True:
        pass


async def blocks_the_loop(ctx: Context) -> None:
    begun(ctx)
    time.sleep(3600)


def blocks_in_c(ctx: Context) -> None:
    begun(ctx)
    ctypes.CDLL(None).sleep(3600)


def holds_the_interpreter(ctx: Context) -> None:
    begun(ctx)
    ctypes.PyDLL(None).sleep(3600)


async def backtracks(ctx: Context) -> None:
    begun(ctx)
    re.match(r"(a+)+$", "a" * 64 + "b")


def reads_for_ever(ctx: Context) -> None:
    end, _held = os.pipe()
    begun(ctx)
    os.read(end, 1)


async def swallows_cancellation(ctx: Context) -> None:
    begun(ctx)
    while True:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(3600)


async def waits_for_a_thread(ctx: Context) -> None:
    begun(ctx)
    await asyncio.to_thread(threading.Event().wait)


async def ignores_the_signal(ctx: Context) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    begun(ctx)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(3600)
    while True:
        time.sleep(0.01)


async def stops_itself(ctx: Context) -> None:
    begun(ctx)
    os.kill(os.getpid(), signal.SIGSTOP)
    await asyncio.sleep(3600)


def forks(ctx: Context) -> None:
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        begun(ctx)
        while True:
            time.sleep(0.01)
    time.sleep(3600)


def forks_away(ctx: Context) -> None:
    """Twice, into a session of its own: nobody's child, and in nobody's group."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            begun(ctx)
            while True:
                time.sleep(0.01)
        os._exit(0)
    time.sleep(3600)


async def starts_a_program(ctx: Context) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    begun(ctx)
    await asyncio.to_thread(child.wait)
    await asyncio.Event().wait()  # the program may be ended first, and then it must not be done


HANGS: list[Callable[[Context], Any]] = [
    spins,
    spins_in_a_thread,
    blocks_the_loop,
    blocks_in_c,
    holds_the_interpreter,
    backtracks,
    reads_for_ever,
    swallows_cancellation,
    waits_for_a_thread,
    ignores_the_signal,
    stops_itself,
    forks,
    forks_away,
    starts_a_program,
]


# Those that end.


async def returns(ctx: Context) -> None:
    print("all is well")


def returns_from_a_thread(ctx: Context) -> None:
    print("all is well")


async def leaves_a_thread(ctx: Context) -> None:
    threading.Thread(target=threading.Event().wait).start()


async def leaves_a_held_lock(ctx: Context) -> None:
    """A thread hangs while it logs: nobody else can, nor end what is logged."""

    def hang() -> None:
        with handler.lock or threading.Lock():
            held.set()
            threading.Event().wait()

    handler, held = logging.StreamHandler(), threading.Event()
    threading.Thread(target=hang).start()
    held.wait()


async def ends_a_fork(ctx: Context) -> None:
    """A fork of its own is ended by a signal, and is: the signal is not for the agent."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
    child.start()
    child.terminate()
    await asyncio.to_thread(child.join)
    await asyncio.sleep(0.05)


async def lets_a_fork_out(ctx: Context) -> None:
    """A fork returns from the function, too: only the agent itself has ended when that has."""
    if os.fork() == 0:
        return
    await asyncio.sleep(0.2)
    raise ValueError("this is the agent")


async def raises(ctx: Context) -> None:
    print("this was printed last")
    raise ValueError("boom")


async def gives_up(ctx: Context) -> None:
    ctx.give_up("nothing left to do")


async def starves(ctx: Context) -> None:
    raise Starved("no quota")


def is_out_of_quota(ctx: Context) -> None:
    raise QuotaGone("come back tomorrow")


async def exits(ctx: Context) -> None:
    sys.exit(3)


async def leaves_the_hard_way(ctx: Context) -> None:
    print("error: cannot go on", flush=True)
    os._exit(7)


def crashes(ctx: Context) -> None:
    print("error: about to crash", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(3600)


# Those that work.


async def counts(ctx: Context) -> None:
    """A step a run, and the first two runs fail after it."""
    async with ctx.step("count", cost="0.01"):
        ctx.memory["runs"] = ctx.memory.get("runs", 0) + 1
        ctx.memory["again"] = ctx.again
    if ctx.memory["runs"] < 3:
        raise ValueError("boom")


async def iterates(ctx: Context) -> None:
    ctx.memory["iterations"] = ctx.memory.get("iterations", 0) + 1
    if ctx.memory["iterations"] == 3:
        ctx.save()
        ctx.give_up("enough")


async def spends(ctx: Context) -> None:
    begun(ctx)
    while True:
        async with ctx.step("model", cost="0.02"):
            pass


async def spends_and_does_not_listen(ctx: Context) -> None:
    """Refused, it goes on without asking, and lets nothing else happen in its process."""
    with contextlib.suppress(Refused):
        await spends(ctx)
    while True:
        time.sleep(0.01)


async def ends_in_order(ctx: Context) -> None:
    begun(ctx)
    try:
        await the_place_where_it_waits()
    finally:
        await asyncio.sleep(0)
        begun(ctx, "ended")


async def the_place_where_it_waits() -> None:
    await asyncio.Event().wait()


async def looks_around(ctx: Context) -> None:
    ctx.memory["env"] = os.environ["FLYBALL_TEST_LATER"]
    ctx.memory["stdin"] = sys.stdin.read()
    ctx.memory["leads"] = os.getsid(0) == os.getpgrp() == os.getpid()
    ctx.save()


async def asks(ctx: Context) -> None:
    ctx.memory["answer"] = await ctx.ask_human("Go on?")
    ctx.save()


class Bad(FlyballError):
    """Cannot be given to another process."""

    def __reduce__(self) -> str:
        raise TypeError("not to be copied")
