"""A daemon that has one rule with a webhook, and nothing else: to be killed. It says at which port it listens."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flyball.config import load
from flyball.config.rules import Action, Notify, Rule, Webhook
from flyball.governor import Governor
from flyball.runtimes.rule.deed import Scene
from flyball.runtimes.rule.engine import Engine
from flyball.runtimes.rule.firing import Firing
from flyball.runtimes.rule.triggers.webhooks import Webhooks
from flyball.store.sqlite import SqliteStore

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - the example of the specification
RULE = Rule(
    name="watch",
    triggers=(Webhook(hook="price", secret=SECRET),),
    actions=(Action(id="say", deed=Notify(text="hello")),),
    queue_max=10_000,
)


class NoUnits:
    """There are none."""

    async def start(self, unit: str, *, by: Firing) -> None:
        raise NotImplementedError

    async def stop(self, unit: str, *, by: Firing) -> None:
        raise NotImplementedError


class Hooked:
    """The engine and its hooks, on a store."""

    def __init__(self, store: SqliteStore, folder: Path, *, when: str = "") -> None:
        self.done: list[Any] = []
        """What the bodies were that the rule was run for."""
        self.rule = replace(RULE, when=when)
        policies = [policy for policy in load(env={}).policies("rule") if policy.name == "exclusive"]
        governor = Governor(policies, store)
        self.engine = Engine(
            governor,
            holder="host/1/1",
            folder=folder,
            units=NoUnits(),
            states=dict,
            notify=lambda *_: None,
            say=lambda *_: None,
            troubled=lambda *_: None,
            doings=lambda _: self._note,
        )
        governor.boot("host/1/1", units=1)
        self.hooks = Webhooks(self.engine, governor, "127.0.0.1:0")

    async def begin(self) -> None:
        """Listen, and run what is due."""
        await self.engine.begin([self.rule], running_max=10, queued_max=10_000, making={Webhook: lambda: self.hooks})
        async with asyncio.timeout(30):
            while not self.hooks.port:
                await asyncio.sleep(0.005)

    async def _note(self, scene: Scene, deed: Any, seconds: float) -> Mapping[str, Any]:
        self.done.append(scene.firing.data["body"])
        return {}


async def main(folder: Path) -> None:
    """Until it is killed."""
    hooked = Hooked(SqliteStore(folder / "flyball.db"), folder)
    await hooked.begin()
    print(hooked.hooks.port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
