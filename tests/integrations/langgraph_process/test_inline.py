"""A graph in the program itself: what cannot be ended there is said, with the place."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator

import pytest

from flyball.guard import Guard
from flyball.integrations.langgraph import TimedOut, guard, inline
from tests.integrations.langgraph.scene import a_guard
from tests.integrations.langgraph_process.graphs import FOR_EVER, Notes, line_of, note
from tests.integrations.langgraph_process.scene import wait_for


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever does not end is told of soon."""
    monkeypatch.setattr(inline, "GRACE", 0.1)


@pytest.fixture
def guarding() -> Iterator[Guard]:
    with a_guard() as guard:
        yield guard


def _is_told(caplog: pytest.LogCaptureFixture) -> bool:
    return 'with `isolation="process"` it could' in caplog.text


def test_a_thread_that_blocks(guarding: Guard, caplog: pytest.LogCaptureFixture) -> None:
    """A node that blocks is not ended when its time is over, but the log says so, and where it is; the next node is
    refused (S1-21)."""
    go_on = threading.Event()

    def waits_for_somebody(state: Notes) -> Notes:
        assert go_on.wait(30)
        return {"notes": ["late"]}

    graph = guard(
        line_of(("waits", waits_for_somebody), ("next", note("next"))), guard=guarding, timeout=1, isolation="inline"
    )
    raised: list[BaseException] = []

    def run() -> None:
        try:
            graph.invoke({"notes": []})
        except TimedOut as error:
            raised.append(error)

    with caplog.at_level(logging.ERROR):
        thread = threading.Thread(target=run)
        thread.start()
        wait_for(lambda: _is_told(caplog))
    assert thread.is_alive()
    assert "waits_for_somebody" in caplog.text
    assert "node 'waits'" in caplog.text
    go_on.set()
    thread.join(30)
    assert len(raised) == 1
    assert graph.last is not None
    assert graph.last["notes"] == ["late"]


def test_a_coroutine_that_waits(guarding: Guard, caplog: pytest.LogCaptureFixture) -> None:
    """A coroutine is cancelled when its time is over: the caller has the time-out at once, and nobody is told."""

    async def sleeps_soon(state: Notes) -> Notes:
        await asyncio.sleep(FOR_EVER)
        return {}

    graph = guard(line_of(("sleeps", sleeps_soon)), guard=guarding, timeout=1, isolation="inline")
    with caplog.at_level(logging.ERROR), pytest.raises(TimedOut):
        asyncio.run(graph.ainvoke({"notes": []}))
    assert not _is_told(caplog)


@pytest.mark.parametrize("blocks", [True, False], ids=["blocks the loop", "swallows its cancellation"])
def test_a_coroutine_that_does_not_end(guarding: Guard, caplog: pytest.LogCaptureFixture, blocks: bool) -> None:
    """A coroutine that cannot be cancelled is told of, with the place."""
    told = threading.Event()

    async def is_stubborn(state: Notes) -> Notes:
        while not told.is_set():
            try:
                time.sleep(0.05) if blocks else await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue
        return {}

    graph = guard(line_of(("stubborn", is_stubborn)), guard=guarding, timeout=1, isolation="inline")

    def look() -> None:
        wait_for(lambda: _is_told(caplog))
        told.set()

    looker = threading.Thread(target=look)
    looker.start()
    with caplog.at_level(logging.ERROR), pytest.raises(TimedOut):
        asyncio.run(graph.ainvoke({"notes": []}))
    looker.join()
    assert "is_stubborn" in caplog.text
