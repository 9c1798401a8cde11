"""What a program and the worker of one of its agents say to each other, and nothing else that both need.

The program says once what to run: a `Job`, pickled, because it names a function, exceptions and policies; it goes to a
child of the program's own, over a socket that nobody else has. The worker answers in lines of JSON: that it can show
its stacks, what it was told by the governor, where it was when it was told, and how it ended.
"""

import pickle
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from flyball.config.units import Unit
from flyball.core.decision import Decision
from flyball.core.policy import AnyPolicy
from flyball.errors import FlyballError
from flyball.runtimes.agent.ending import Causes
from flyball.runtimes.driver import Ending
from flyball.store import Store

TASK_MAX: Final = 1024 * 1024
"""Bytes of a task. It is a few kilobytes: names, and the settings of the policies."""
SAID_MAX: Final = 256 * 1024
"""Bytes of one line that a worker says. The longest has a stack, of at most 16,384 characters."""
LENGTH: Final = struct.Struct("!I")
"""Sent before a job."""

DUMP_SIGNAL: Final = signal.SIGUSR2
"""Asks a worker for the stacks of its threads."""

MAIN: Final = "__mp_main__"
"""The name of a script when it is imported instead of run, as `multiprocessing` has it, too."""

_TOP_LEVEL: Final = (
    "Define the function at the top level of a module or script, with `@guard.agent` as its outermost decorator."
)


# What the program says.


@dataclass(frozen=True, slots=True)
class Task:
    """What all runs of one agent share."""

    unit: Unit
    function: Callable[..., Any]
    every: float | None
    causes: Causes
    policies: tuple[AnyPolicy, ...]
    store: Callable[[], Store]
    """Opens the program's store once more."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker needs for one run."""

    unit: str
    run: str
    again: bool
    path: tuple[str, ...]
    argv: tuple[str, ...]
    main_name: str
    """The program's main module, to be imported before the task is read; empty: it is not needed, or is a file."""
    main_file: str
    task: bytes


def check_function(name: str, function: object) -> None:
    """FlyballError if it can be seen already that another process cannot find that function."""
    place = getattr(function, "__qualname__", "")
    if not place or "<" in place or not getattr(function, "__module__", ""):
        what = place or type(function).__name__
        raise FlyballError(f"agent {name}: {what} cannot be found by another process", remedy=_TOP_LEVEL)


def packed(task: Task) -> bytes:
    """The task as bytes. FlyballError if another process could not read it."""
    name = task.unit.name
    check_function(name, task.function)
    try:
        data = pickle.dumps(task)
    except Exception as error:
        text = f"agent {name} cannot be given to another process: {error}"
        raise FlyballError(text, remedy=f"{_TOP_LEVEL} Its policies and causes have to be plain values.") from error
    if len(data) > TASK_MAX:
        text = f"agent {name} would be given to another process as {len(data)} bytes; allowed: {TASK_MAX}"
        raise FlyballError(text, remedy="Keep data out of its policies and labels.")
    if _needs_main(data) and not any(_main()):
        text = f"agent {name}: the program is no file, so another process cannot import it"
        raise FlyballError(text, remedy="Put the agent into a module or a script.")
    return data


def job(task: bytes, unit: str, run: str, *, again: bool) -> bytes:
    """One run of a task, with its length before it."""
    main_name, main_file = _main() if _needs_main(task) else ("", "")
    path = tuple(str(Path(place).absolute()) for place in sys.path)
    data = pickle.dumps(Job(unit, run, again, path, tuple(sys.argv), main_name, main_file, task))
    return LENGTH.pack(len(data)) + data


def _needs_main(task: bytes) -> bool:
    """Something in it is named as a part of the program's main module."""
    return b"__main__" in task or MAIN.encode() in task


def _main() -> tuple[str, str]:
    """The name of the program's main module, or else its file; both empty if it has neither."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in ("__main__", MAIN):
        return spec.name, ""
    file = getattr(main, "__file__", None)
    return "", str(Path(file).absolute()) if file else ""


# What the worker says.


class Listens(msgspec.Struct, frozen=True, tag="listens"):
    """It shows its stacks when it is asked. The signal would end a process that does not expect it."""


class Told(msgspec.Struct, frozen=True, tag="told"):
    """The governor told the run to end: the program has to see to it, whatever the function does now."""

    decision: Decision


class Was(msgspec.Struct, frozen=True, tag="was"):
    """Where the function was when the worker was told to end it: it may not live to say more."""

    where: str


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """How the function ended."""

    ending: Ending


Said = Listens | Told | Was | Ended
decode: Final[Callable[[bytes], Said]] = msgspec.json.Decoder[Said](Said).decode


# While a worker imports the program.

_loading = False


@contextmanager
def loading() -> Iterator[None]:
    """The program is imported, not run: what it does when it is run must not happen."""
    global _loading  # noqa: PLW0603 - it is the process that does so
    _loading = True
    try:
        yield
    finally:
        _loading = False


def refuse_while_loading() -> None:
    """FlyballError if a program that is only imported starts to supervise its agents once more."""
    if _loading:
        raise FlyballError(
            "the program is imported by the process of one of its agents, and would start all agents once more",
            remedy='Call `guard.run()` under `if __name__ == "__main__":`.',
        )
