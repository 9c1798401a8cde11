"""The life of a forked run, from the fork to its exit. Only `Forked` begins it, in the child.

The child has a copy of the whole program, and must use nothing of it that the program goes on using: no store, no event
loop, no threads (there are none in a fork), no signal handlers. What it needs of these it gets over the link.

It dies with the program, whatever it does. When its work is over so is the process, at once: nothing at exit is run,
because that is the program's, and no thread that goes on can hold it up.
"""

import contextlib
import faulthandler
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

from flyball.runtimes.calls import books
from flyball.runtimes.current import CURRENT
from flyball.runtimes.forked import inherited
from flyball.runtimes.forked.link import Link
from flyball.runtimes.lifeline import die_with
from flyball.runtimes.process import kernel
from flyball.runtimes.process.spawn import NOT_PASSED_ON, PYTHONS_SIGNALS, RUN_VARIABLE, UNIT_VARIABLE

FLUSH_MAX: Final = 2.0
"""Seconds to write what was printed and logged. It takes milliseconds."""

LEAVES_MAX: Final = 10.0
"""Seconds to be killed after its end, where something is left. It takes milliseconds."""

DUMP_SIGNAL: Final = signal.SIGUSR2
"""Asks for the stacks of all threads. They are written by a handler in C, also when the interpreter is stuck."""

OWN_THREADS: Final = 3
"""The main one, the link's and the lifeline's."""

_link: list[Link] = []
"""The link of this process, if it is a forked run."""


class Ends(NamedTuple):
    """What a child has of the program."""

    channel: socket.socket
    line: int
    """Its lifeline."""
    stacks: int
    """Where it shows its stacks."""


def live(work: Callable[[Link], None], ends: Ends, unit: str, run: str) -> NoReturn:
    """Do the work, say how it ended, and be gone. All signals are blocked when this is called."""
    code = 1
    try:
        link, knows_all = _begin(ends, unit, run)
        try:
            work(link)
            code = 0
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is how the run ended
            link.raised(error)
        books.close_all()
        _flush_in_time()
        if knows_all and not kernel.children(os.getpid()) and threading.active_count() <= OWN_THREADS:
            link.clean()
        else:
            # While it lives all that it left can be found: so it waits to be killed with that.
            link.leaves(code)
            time.sleep(LEAVES_MAX)
    finally:
        os._exit(code)


def _begin(ends: Ends, unit: str, run: str) -> tuple[Link, bool]:
    # What the program has is neither collected nor finalized here: it is in use there.
    gc.freeze()
    inherited.forget_imports()
    inherited.renew_streams()
    inherited.cut_connections(ends.channel)
    os.setsid()
    for name in NOT_PASSED_ON:
        os.environ.pop(name, None)
    # By this mark is found what it starts, wherever that goes.
    os.environ[UNIT_VARIABLE], os.environ[RUN_VARIABLE] = unit, run
    # Steps of the program's run are not for two to make.
    CURRENT.set(None)
    _reset_signals()
    os.set_blocking(ends.stacks, False)
    faulthandler.register(DUMP_SIGNAL, file=ends.stacks, all_threads=True)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # What it starts is below it as long as it lives, so nothing is missed when it is killed.
    knows_all = kernel.become_subreaper()
    die_with(ends.line)
    link = Link(ends.channel)
    _link[:] = [link]
    return link, knows_all


def _reset_signals() -> None:
    """No handler of the program runs here. To interrupt a run is the program's business: who presses Ctrl-C means the
    program. Not ignored, because what the run starts would ignore it, too."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and number not in PYTHONS_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _flush_in_time() -> None:
    # In a thread: one of the work's own, which hangs, may hold the locks that this needs.
    flushing = threading.Thread(target=_flush, daemon=True)
    flushing.start()
    flushing.join(FLUSH_MAX)


def _flush() -> None:
    """Not `logging.shutdown`: that closes what the program goes on using."""
    for handler in inherited.handlers():
        with contextlib.suppress(Exception):
            handler.flush()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # it may have been closed or replaced
            stream.flush()


def _forks() -> None:
    """The run forks. A signal to end that comes before the fork has its own handlers must not be lost there."""
    if _link:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))


def _has_forked() -> None:
    mask = _forking.__dict__.pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forked_off() -> None:
    """In a fork of the run: it has no link."""
    while _link:
        _link.pop().forget()
    _has_forked()


_forking = threading.local()
os.register_at_fork(before=_forks, after_in_parent=_has_forked, after_in_child=_forked_off)
