"""Forked runs for tests: each with a mark of its own, and gone when the test ends."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from flyball.runtimes.forked import Forked, Gone, Link
from flyball.runtimes.process import kernel

WITHIN = 20.0
"""Seconds after which what a test waits for is given up."""

Begin = Callable[..., Forked]


@contextmanager
def stage() -> Iterator[Begin]:
    """Begins runs; ends those that are left."""
    begun: list[Forked] = []

    def begin(work: Callable[[Link], None], **services: Callable[..., Any]) -> Forked:
        forked = Forked(work, services=services, unit="forked", run=secrets.token_hex(8))
        begun.append(forked)
        return forked

    try:
        yield begin
    finally:
        for forked in begun:
            forked.close()


def take(forked: Forked) -> Any:
    """Its next message, which comes soon."""
    return forked.receive(WITHIN)


def gone(forked: Forked) -> Gone:
    """How it ended, when all that it said was read."""
    with pytest.raises(Gone) as ended:
        take(forked)
    return ended.value


def lives(pid: int) -> bool:
    stat = kernel.stat(pid)
    return stat is not None and not stat.dead


def until(happened: Callable[[], object]) -> None:
    """Wait for what comes soon."""
    by = time.monotonic() + WITHIN
    while not happened():
        assert time.monotonic() < by, "it did not happen"
        time.sleep(0.005)
