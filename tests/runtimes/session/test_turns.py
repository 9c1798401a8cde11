"""Turns: of many sessions that may be resumed at once, the important ones first, and not all in one instant."""

import asyncio

import pytest

from flyball.runtimes.session.turns import TURN_EVERY, Turns
from flyball.testing.loop import SimulatedLoop


def turns_of(priorities: dict[str, int]) -> list[tuple[str, float]]:
    """Who has its turn when, if all ask at once."""
    loop = SimulatedLoop()
    had: list[tuple[str, float]] = []

    async def play() -> None:
        turns = Turns()

        async def wait(name: str, priority: int) -> None:
            await turns.take(name, priority)
            had.append((name, loop.time()))

        await asyncio.gather(*(wait(name, priority) for name, priority in priorities.items()))

    loop.run(play())
    return had


def test_by_priority() -> None:
    """A higher one comes first, in whichever order they asked."""
    wanted = {"low": 0, "top": 100, "mid": 10, "high": 50}
    assert [name for name, _ in turns_of(wanted)] == ["top", "high", "mid", "low"]


def test_spread() -> None:
    """One at a time, with a while between them that is not always the same; the same names give the same times."""
    wanted = {f"s{number}": 0 for number in range(100)}
    had = turns_of(wanted)
    assert sorted(name for name, _ in had) == sorted(wanted)
    times = [at for _, at in had]
    gaps = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
    assert min(gaps) >= 0.5 * TURN_EVERY - 1e-6
    assert max(gaps) <= 1.5 * TURN_EVERY + 1e-6
    assert max(gaps) - min(gaps) > 0.5 * TURN_EVERY
    assert sum(gaps) / len(gaps) == pytest.approx(TURN_EVERY, rel=0.2)
    assert had == turns_of(wanted)
    assert [name for name, _ in had] == [name for name, _ in turns_of(dict(reversed(wanted.items())))]


def test_who_does_not_wait_takes_no_turn() -> None:
    """A person's word, or the end of the supervisor, ends a wait: whoever is next does not wait for it."""
    loop = SimulatedLoop()

    async def play() -> None:
        turns = Turns()
        gone = [turns.take(f"g{number}", 100) for number in range(50)]
        last = turns.take("last", 0)
        for number, turn in enumerate(gone):
            turn.cancel() if number % 2 else turn.set_result(None)
        await last
        assert loop.time() <= 1.5 * TURN_EVERY
        # And when nobody waits any more, the next one is served as the first was.
        begun = loop.time()
        await turns.take("one more", 0)
        assert loop.time() - begun <= 1.5 * TURN_EVERY

    loop.run(play())
