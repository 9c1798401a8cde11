"""Nobody who reads slowly, or not at all, keeps the foreground waiting."""

import asyncio
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path

import pytest

from flyball.runtimes import sink as sink_module
from flyball.runtimes.sink import KEPT_MAX, WAITING_MAX, Sink
from tests.runtimes.children import WITHIN, until


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    """Both ends. The test may close the first."""
    ends = list(os.pipe())
    yield ends
    for end in ends:
        if end >= 0:
            os.close(end)


def run(play: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(play, WITHIN))


@pytest.mark.parametrize("blocking", [True, False])
def test_everything_arrives(pipe: list[int], blocking: bool) -> None:
    """What does not fit is kept, and arrives whole and in order; the descriptor is left as it was."""
    os.set_blocking(pipe[1], blocking)
    data = b"".join(b"%07d\n" % number for number in range(40_000))

    async def play() -> None:
        sink = Sink(pipe[1])
        room: list[bool] = []
        sink.on_room = lambda: room.append(sink.full)
        sink.write(data)
        assert sink.full
        got = bytearray()
        reading = asyncio.create_task(sink.written())
        while not reading.done():
            got += await asyncio.to_thread(os.read, pipe[0], 65_536)
            await asyncio.sleep(0)
        sink.write(b"end")
        got += os.read(pipe[0], 65_536)
        while len(got) < len(data) + 3:
            got += os.read(pipe[0], 65_536)
        assert bytes(got) == data + b"end"
        assert room == [False]
        assert os.get_blocking(pipe[1]) is blocking
        sink.close()

    run(play())


def test_reader_that_is_gone(pipe: list[int]) -> None:
    """It is told once; then everything goes nowhere."""

    async def play() -> None:
        sink = Sink(pipe[1])
        broken: list[OSError] = []
        sink.on_broken = broken.append
        sink.write(b"x" * (2 * WAITING_MAX))
        os.close(pipe[0])
        pipe[0] = -1
        await until(lambda: broken)
        sink.write(b"y")
        await sink.written()
        assert not sink.full
        assert len(broken) == 1
        sink.close()

    run(play())


def test_reader_that_is_stuck(pipe: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for, until the end was ordered and it takes nothing at all. What is kept for it has a limit."""
    monkeypatch.setattr(sink_module, "STUCK_AFTER", 0.05)

    async def play() -> None:
        sink = Sink(pipe[1])
        for _ in range(2 * KEPT_MAX // WAITING_MAX):
            sink.write(b"x" * WAITING_MAX)
        assert KEPT_MAX <= len(sink._waiting) <= KEPT_MAX + WAITING_MAX
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sink.written(), 0.1)
        sink.hurry()
        await sink.written()
        sink.close()

    run(play())


def test_file(tmp_path: Path) -> None:
    """In a file there is always room."""

    async def play() -> None:
        with (tmp_path / "file").open("wb") as file:
            sink = Sink(file.fileno())
            sink.write(b"x" * (3 * WAITING_MAX))
            assert not sink.full
            await sink.written()
            sink.close()

    run(play())
    assert (tmp_path / "file").stat().st_size == 3 * WAITING_MAX
