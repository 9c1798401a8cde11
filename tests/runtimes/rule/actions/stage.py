"""A stage for actions: one run of a rule in a scratch folder, without an engine. What it left can be found by marks."""

import asyncio
import uuid
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from flyball.config.rules import Action, Command, Deed, Notify, Rule
from flyball.core.failure import fingerprint
from flyball.core.time import MINUTE
from flyball.runtimes.process import kernel
from flyball.runtimes.rule.actions import DOING
from flyball.runtimes.rule.deed import ActionFailed, Scene
from flyball.runtimes.rule.firing import Firing
from tests.runtimes.process.stage import WAIT_MAX, is_alive

T = TypeVar("T")


class Others:
    """The units of a daemon that is not there."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []
        self.refuses: ActionFailed | None = None
        self.hangs = False

    async def start(self, unit: str, *, by: Firing) -> None:
        await self._tell("start", unit, by)

    async def stop(self, unit: str, *, by: Firing) -> None:
        await self._tell("stop", unit, by)

    async def _tell(self, verb: str, unit: str, by: Firing) -> None:
        if self.refuses is not None:
            raise self.refuses
        if self.hangs:
            await asyncio.Event().wait()
        self.told.append((verb, unit, by.id))


class Guard:
    """Who ends what is left when the daemon is killed."""

    def __init__(self) -> None:
        self.noted: list[int] = []
        self.known: set[int] = set()

    def note(self, group: int) -> None:
        self.noted.append(group)
        self.known.add(group)

    def forget(self, group: int) -> None:
        self.known.discard(group)


class Stage:
    """One rule; its actions are done one by one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"t-{uuid.uuid4().hex[:12]}"
        self.units = Others()
        self.told: list[tuple[str, str]] = []
        self.runs = 0

    def scene(self, data: Mapping[str, Any] | None = None, **settings: Any) -> Scene:
        """Another run."""
        self.runs += 1
        actions = (Action(id="tell", deed=Notify(text="")),)
        rule = Rule(name=self.name, triggers=(Command(),), actions=actions, timeout=MINUTE)
        firing = Firing(
            id=f"{self.name}-{self.runs}", rule=self.name, trigger="command", at=0, data=dict(data or {}), attempt=1
        )
        return Scene(
            rule=rule,
            firing=firing,
            run=firing.run,
            logs=self.folder / "logs",
            sockets=self.folder,
            units=self.units,
            notify=lambda rule, text: self.told.append((rule, text)),
            **settings,
        )

    @property
    def log(self) -> str:
        return (self.folder / "logs" / f"{self.name}.log").read_text()

    def processes(self) -> list[int]:
        """All that live and carry the rule's mark, wherever they are."""
        mark = f"FLYBALL_UNIT={self.name}".encode()
        return [pid for pid in kernel.everybody() if mark in kernel.environment(pid) and is_alive(pid)]

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path


async def do(scene: Scene, deed: Deed, seconds: float = WAIT_MAX) -> Mapping[str, Any]:
    """One attempt of one action, as a run makes it."""
    return await DOING[type(deed)](scene, deed, seconds)


async def over(scene: Scene) -> None:
    """What a run does at its end."""
    while scene.ends:
        await scene.ends.pop()()


def done(scene: Scene, deed: Deed, seconds: float = WAIT_MAX) -> Mapping[str, Any]:
    """One action, and the end of the run."""

    async def play() -> Mapping[str, Any]:
        try:
            return await do(scene, deed, seconds)
        finally:
            await over(scene)

    return run(play())


def failed(scene: Scene, deed: Deed, seconds: float = WAIT_MAX) -> ActionFailed:
    """One action that fails, and the end of the run."""
    with pytest.raises(ActionFailed) as caught:
        done(scene, deed, seconds)
    return caught.value


def mark(error: ActionFailed) -> str:
    """Its fingerprint, as a run of a rule gives it."""
    return fingerprint(
        "rule",
        error.error,
        target=error.target or "action",
        message="" if error.target else str(error),
        code=error.code,
        signal=error.signal,
        status=error.status,
        errno=error.errno,
    )


def run(play: Coroutine[Any, Any, T]) -> T:
    """Run it, and not for ever."""
    return asyncio.run(asyncio.wait_for(play, WAIT_MAX))
