"""Actions that need nothing but the daemon itself: start and stop others, tell people, wait, remember."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from flyball.config.rules import Notify, SetValues, StartUnit, StopUnit, Wait
from flyball.core.time import seconds as in_seconds
from flyball.runtimes.rule.actions.within import timed_out, within
from flyball.runtimes.rule.deed import ActionFailed, Scene
from flyball.runtimes.rule.values import Unkept

TOLD_MAX: Final = 4_000
"""Characters that people are told at once: what a message on a phone holds. Of a longer text the beginning is told."""

NOTHING: Final[Mapping[str, Any]] = {}


async def start(scene: Scene, deed: StartUnit, seconds: float) -> Mapping[str, Any]:
    """Start a unit, or fire a rule."""
    async with within(seconds, deed.unit):
        await scene.units.start(deed.unit, by=scene.firing)
    return NOTHING


async def stop(scene: Scene, deed: StopUnit, seconds: float) -> Mapping[str, Any]:
    """Stop a unit."""
    async with within(seconds, deed.unit):
        await scene.units.stop(deed.unit, by=scene.firing)
    return NOTHING


async def notify(scene: Scene, deed: Notify, _seconds: float) -> Mapping[str, Any]:
    """Tell people."""
    text = deed.text if len(deed.text) <= TOLD_MAX else f"{deed.text[: TOLD_MAX - 1]}…"
    scene.notify(scene.rule.name, text)
    return NOTHING


async def wait(
    _scene: Scene, deed: Wait, seconds: float, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> Mapping[str, Any]:
    """Do nothing for so long. What is longer than the action may take is not begun."""
    length = in_seconds(deed.length)
    if length > seconds:
        failed = timed_out(seconds)
        failed.final = True
        raise failed
    await sleep(length)
    return NOTHING


async def remember(scene: Scene, deed: SetValues, _seconds: float) -> Mapping[str, Any]:
    """Set values, all or none. They are there for others as soon as the report that this was done is written."""
    try:
        rows = scene.values.encoded(deed.values)
    except Unkept as unkept:
        raise ActionFailed("ValueNotKept", str(unkept), final=True) from None
    scene.rows.update(rows)
    scene.kept.append(partial(scene.values.take, rows))
    return NOTHING
