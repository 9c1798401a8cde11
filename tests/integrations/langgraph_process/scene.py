"""What the tests of graphs in processes share."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig

import flyball
from flyball.config import Settings
from flyball.core.event import AnyEvent, Exited, Resume, Start
from flyball.guard import Guard

WITHIN = 30.0
"""Seconds that anything here is waited for: far more than it takes."""


@contextmanager
def a_guard(**settings: Any) -> Iterator[Guard]:
    """A guard whose store is gone after the block."""
    with flyball.open("program", settings=Settings(**settings), scratch=True) as guard:
        yield guard


def of_thread(thread: str, **more: Any) -> RunnableConfig:
    """The config of a thread."""
    return {"configurable": {"thread_id": thread, **more}}


def history(guard: Guard, unit: str) -> list[AnyEvent]:
    """What happened to a piece of work, as the journal has it."""
    from flyball.core.codec import decode_body

    bodies = [decode_body(entry.body) for entry in guard.governor.store.last_entries(limit=1000, unit=unit)]
    return [body.event for body in bodies if not body.event.asks or body.decision.proceeds]


def exits(guard: Guard, unit: str) -> list[Exited]:
    """How its runs ended."""
    return [event for event in history(guard, unit) if isinstance(event, Exited)]


def starts(guard: Guard, unit: str) -> list[type[AnyEvent]]:
    """How its runs began."""
    return [type(event) for event in history(guard, unit) if isinstance(event, Start | Resume)]


def children() -> set[int]:
    """The processes that this one has started and that are not gone."""
    found: set[int] = set()
    for thread in Path(f"/proc/{os.getpid()}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.update(int(pid) for pid in (thread / "children").read_text().split())
    return found


def wait_for(true: Callable[[], object]) -> None:
    """Wait for an event that this process is not told of."""
    by = time.monotonic() + WITHIN
    while not true():
        assert time.monotonic() < by, "it does not come"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether that process is there, and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
