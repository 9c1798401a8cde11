"""An engine for tests: real safeguards, a store in memory, simulated time, and actions that do as they are told."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from flyball.config.build import rule_policies
from flyball.config.rules import Action, Attempts, Command, Rule, Run, SetValues, StartUnit
from flyball.config.settings import Settings
from flyball.core.codec import decode_body
from flyball.core.decision import Decision
from flyball.core.event import Event, Exited, Fired, Start
from flyball.governor import Governor
from flyball.runtimes.rule.actions import simple
from flyball.runtimes.rule.deed import Doing, Scene
from flyball.runtimes.rule.engine import Engine, Making
from flyball.runtimes.rule.firing import Fate, Firing, Spark
from flyball.store import Store
from flyball.store.memory import MemoryStore
from flyball.testing.loop import SimulatedLoop

HOLDER = "host/1/1"

Does = Callable[[Scene, Any], Awaitable[Mapping[str, Any]]]


async def nothing(scene: Scene, deed: Any) -> Mapping[str, Any]:
    """What an action does that nobody told anything."""
    return {}


def rule(name: str = "rule", **more: Any) -> Rule:
    """A rule with one action, fired by a person."""
    given: dict[str, Any] = {"triggers": (Command(),), "actions": (act(),)}
    return Rule(name=name, **{**given, **more})


def act(name: str = "act", **more: Any) -> Action:
    """An action, tried once."""
    given: dict[str, Any] = {"deed": Run(command=(name,)), "attempts": Attempts(most=1)}
    return Action(id=name, **{**given, **more})


class Stage:
    """One daemon after another, on the same store."""

    def __init__(self, settings: Mapping[str, Any] | None = None, store: Store | None = None) -> None:
        self.loop = SimulatedLoop()
        self.settings = Settings.model_validate(settings or {})
        self.store = store or MemoryStore()
        self.does: Does = nothing
        self.done: list[tuple[str, str]] = []
        """What was done: the command's first word, and the run."""
        self.told: list[str] = []
        self.engine: Engine
        self.governor: Governor

    def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a test, in simulated time."""

        async def main() -> None:
            try:
                await work()
            finally:
                await self.down()

        self.loop.run(main())

    async def up(self, *rules: Rule, making: Mapping[type, Making] = {}, boots: bool = True) -> Engine:
        """Begin."""
        self.governor = Governor(self.settings.policies(), self.store, self.loop)
        for name, own in rule_policies(self.settings, rules).items():
            self.governor.panel.put(name, own)
        if boots:
            self.governor.boot(HOLDER, units=len(rules))
        self.engine = Engine(
            self.governor,
            holder=HOLDER,
            folder=Path("/nowhere"),
            units=self,
            states=dict,
            notify=lambda _, text: self.told.append(text),
            say=lambda *_: None,
            troubled=lambda *_: None,
            sleep=self.loop.sleep,
            doings=self._doing,
        )
        await self.engine.begin(rules, running_max=10, queued_max=10_000, making=making)
        return self.engine

    async def down(self) -> None:
        """End in order."""
        await self.engine.end()

    def _doing(self, kind: type) -> Doing:
        if kind is StartUnit:
            return simple.start
        if kind is SetValues:
            return simple.remember

        async def do(scene: Scene, deed: Any, seconds: float) -> Mapping[str, Any]:
            self.done.append((deed.command[0], scene.run))
            return await self.does(scene, deed)

        return do

    # What actions do to units.

    async def start(self, unit: str, *, by: Firing) -> None:
        data = {"kind": "rule", "rule": by.rule, "run": by.run}
        await self.engine.ring(Spark(rule=unit, trigger=f"rule {by.rule}", data=data, tree=by.tree, depth=by.depth + 1))

    async def stop(self, unit: str, *, by: Firing) -> None:
        raise NotImplementedError

    # What a test sees.

    async def fire(self, name: str = "rule", data: Any = None, *, by_person: bool = False) -> Fate:
        """Fire a rule."""
        given = {"kind": "command", "by": "test", "data": data}
        return await self.engine.ring(Spark(rule=name, trigger="command", data=given, by_person=by_person))

    async def pass_by(self, seconds: float) -> None:
        """Let so much time pass."""
        await asyncio.sleep(seconds)

    def journal(self, *kinds: type[Event]) -> list[tuple[Event, Decision]]:
        """What is in the journal of such events."""
        names = tuple(kind.__name__.lower() for kind in kinds)
        bodies = [decode_body(entry.body) for entry in self.store.entries(events=names, limit=100_000)]
        return [(body.event, body.decision) for body in bodies]

    def starts(self, name: str = "rule") -> list[Start]:
        """The starts of a rule that were granted."""
        return [
            event
            for event, decision in self.journal(Start)
            if isinstance(event, Start) and event.unit == name and decision.proceeds
        ]

    def exits(self, name: str = "rule") -> list[Exited]:
        return [event for event, _ in self.journal(Exited) if isinstance(event, Exited) and event.unit == name]

    def fired(self, name: str = "rule") -> list[Fired]:
        return [event for event, _ in self.journal(Fired) if isinstance(event, Fired) and event.unit == name]
