"""The start of a daemon, which fires rules. Those that come later, because their file changed, are not fired: nothing
started then."""

import asyncio
from collections.abc import Sequence

from flyball.config.rules import Rule, Startup
from flyball.governor import Governor
from flyball.runtimes.driver import Sleep
from flyball.runtimes.rule.firing import Bell, Spark
from flyball.runtimes.rule.triggers.striker import Striker, moment


class Startups:
    """Fires rules once."""

    def __init__(self, bell: Bell, governor: Governor, sleep: Sleep | None = None) -> None:
        self._striker = Striker(bell, governor, sleep)
        self._rules: dict[str, None] | None = None
        """Those that are still to be fired; None: it was not said yet which there are."""

    def use(self, rules: Sequence[Rule]) -> None:
        """The first time: fire these. Later: of those, the ones that are gone are not fired any more."""
        named = {rule.name: None for rule in rules if any(isinstance(trigger, Startup) for trigger in rule.triggers)}
        self._rules = named if self._rules is None else {name: None for name in self._rules if name in named}

    async def run(self) -> None:
        """Fire each, then rest until it is cancelled. Run again after it failed, it goes on with what is left."""
        at = moment(self._striker.present()).isoformat()
        while self._rules:
            rule = next(iter(self._rules))
            spark = Spark(rule=rule, trigger="startup", data={"kind": "startup", "at": at}, joins=True)
            await self._striker.strike([[spark]])
            self._rules.pop(rule, None)
        await asyncio.Event().wait()
