"""The rules beside the fleet: one engine, with everything that it needs of the daemon. What rules do to units goes
through the fleet, and what holds a unit holds it for rules, too: only what a rule ordered is taken back by a rule."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flyball.config.plan import Plan
from flyball.config.rules import Cron, Every, FileChange, Startup, UnitEvent, Webhook
from flyball.control.past import RULE, Past
from flyball.control.views import Look
from flyball.core.codec import readable_state
from flyball.core.decision import Verb
from flyball.core.event import Held, Ordered, Released, Start
from flyball.core.policy import Key
from flyball.fleet import Changes, Fleet
from flyball.governor import Governor
from flyball.policies.manual import Manual
from flyball.policies.manual import State as Orders
from flyball.runtimes.bridge import submit
from flyball.runtimes.guardian import Guard
from flyball.runtimes.rule.deed import ActionFailed
from flyball.runtimes.rule.engine import Engine, Making
from flyball.runtimes.rule.firing import Fate, Firing, Source, Spark

if TYPE_CHECKING:
    from flyball.runtimes.rule.triggers.webhooks import Webhooks

log = logging.getLogger(__name__)

BY_A_RULE: Final = "rule "
"""What the name of whoever ordered something begins with, where a rule did."""


class Rulebook:
    """The rules of one daemon."""

    def __init__(
        self,
        fleet: Fleet,
        governor: Governor,
        folder: Path,
        guard: Guard | None,
        *,
        changes: Path,
        tell: Callable[[str, str], None] = lambda _rule, _text: None,
    ) -> None:
        """`folder` is the state folder, `changes` the file in it that every commit changes. `tell` takes to people what
        a rule wants them to know; in no rule's name, what rules ask them."""
        self._tell = tell
        self._fleet, self._governor, self._changes = fleet, governor, changes
        self._past = Past()
        self._listen = fleet.plan.limits.listen
        self._webhooks: Webhooks | None = None
        self._engine = Engine(
            governor,
            holder=fleet.holder,
            folder=folder,
            units=self,
            states=self._states,
            notify=self._notify,
            say=fleet.say,
            troubled=fleet.troubled,
            guard=guard,
        )

    @property
    def names(self) -> Collection[str]:
        """All rules."""
        return self._engine.rules.keys()

    async def begin(self, *, booting: bool) -> None:
        """Begin with the rules of the fleet's plan, after the fleet has: what was lost is judged by then. `booting`:
        the daemon starts; otherwise it is told of its first rules later."""
        plan = self._fleet.plan
        await self._fleet.revise(plan.rules)
        limits = plan.limits
        await self._engine.begin(
            plan.rules, running_max=limits.running_max, queued_max=limits.queued_max, making=self._making(booting)
        )

    async def change(self, plan: Plan) -> Changes:
        """Apply the rules of that plan, under whose safeguards everybody is already."""
        before = self._engine.rules
        after = {rule.name: rule for rule in plan.rules}
        await self._fleet.revise(rule for name, rule in after.items() if rule != before.get(name))
        limits = plan.limits
        if limits.listen != self._listen:
            text = "webhooks still come in at %s; restart the daemon to listen at %s"
            log.warning(text, self._listen, limits.listen)
        self._engine.resize(limits.running_max, limits.queued_max)
        added, removed, changed = await self._engine.change(plan.rules)
        return Changes(added, removed, changed, len(after) - len(added) - len(changed))

    async def end(self) -> None:
        """End all runs of rules."""
        await self._engine.end()

    async def trigger(self, rule: str, data: Any, by: str, *, unit: str = "", run: str = "") -> tuple[Fate, str]:
        """A person fires a rule, or a command that a unit runs: what became of that, and the id of the firing. What a
        unit does is no person's word, and a link of the chain that its run belongs to."""
        given = {"kind": "command", "by": by, "data": data}
        tree, depth = self._engine.chain_of(unit, run)
        spark = Spark(rule=rule, trigger="command", data=given, by_person=not unit, tree=tree, depth=depth + 1)
        return await self._engine.fire(spark)

    async def forget(self, rule: str, by: str) -> int:
        """A person forgets what waits for a rule; how many."""
        return await self._engine.forget(rule, by)

    def says(self, rule: str) -> str:
        """What the firings of a rule wait for, if they wait for anything."""
        post = self._engine.posts.get(rule)
        return post.says if post is not None else ""

    def counts(self, rule: str) -> Mapping[str, int]:
        """What became of what fired it, since the daemon began."""
        counts = Counter(self._engine.counts.get(rule, {}))
        triggers = self._engine.rules[rule].triggers if rule in self._engine.rules else ()
        for hook in {trigger.hook for trigger in triggers if isinstance(trigger, Webhook)}:
            refused: Mapping[str, int] = self._webhooks.counts.get(hook, {}) if self._webhooks is not None else {}
            counts.update({f"refused: {code}": number for code, number in refused.items()})
        return counts

    def _making(self, booting: bool) -> Mapping[type, Making]:
        """How the source of each kind of trigger is made. Most of them need packages that are extras."""
        engine, governor = self._engine, self._governor

        def timers(kind: type[Every | Cron]) -> Source:
            from flyball.runtimes.rule.triggers.timers import Timers  # noqa: PLC0415 - only where it serves

            return Timers(engine, governor, kind)

        def files() -> Source:
            from flyball.runtimes.rule.triggers.files import Files  # noqa: PLC0415 - as above

            return Files(engine, governor)

        def events() -> Source:
            from flyball.runtimes.rule.triggers.events import Events  # noqa: PLC0415 - as above

            return Events(engine, governor, engine.chain_of, self._changes)

        def startup() -> Source:
            from flyball.runtimes.rule.triggers.startup import Startups  # noqa: PLC0415 - as above

            return Startups(engine, governor)

        def webhooks() -> Source:
            from flyball.runtimes.rule.triggers.webhooks import Webhooks  # noqa: PLC0415 - as above

            self._webhooks = Webhooks(engine, governor, self._listen)
            return self._webhooks

        making: dict[type, Making] = {
            Every: partial(timers, Every),
            Cron: partial(timers, Cron),
            FileChange: files,
            UnitEvent: events,
            Webhook: webhooks,
        }
        return making | {Startup: startup} if booting else making

    def _states(self) -> Mapping[str, Any]:
        plan = self._fleet.plan
        names = [unit.name for unit in plan.units]
        look = Look(self._governor, self._past, units=names, rules=plan.rules, gone=self._fleet.gone)
        views = [look.unit(name) for name in look.units()]
        return {view.name: {"state": str(view.state), "failures": view.failures_in_a_row} for view in views}

    # What rules do to units.

    async def start(self, unit: str, *, by: Firing) -> None:
        """Start a unit or fire a rule."""
        if unit in self.names:
            await self._fire(unit, by)
            return
        if unit not in self._fleet.posts:
            raise ActionFailed("UnknownUnit", f"there is no unit {unit!r}", target=unit, final=True)
        order = await asyncio.to_thread(self._order, unit)
        if order.ordered_by.startswith(BY_A_RULE):
            released = Released(unit=unit, policies=(Manual().name,), by=BY_A_RULE + by.rule)
            await submit(self._governor, released)
        labels = self._fleet.posts[unit].unit.labels
        decision = await asyncio.to_thread(self._governor.look, Start(unit=unit, run=by.run, labels=labels))
        if decision.verb > Verb.WAIT and decision.primary is not None:
            text = f"{unit} is not started: {decision.primary.text}"
            raise ActionFailed("UnitHeld", text, target=unit, final=True)
        if not self._fleet.is_here(unit):  # whoever runs it hears of it by the journal
            await submit(self._governor, Ordered(unit=unit, verb="start", by=BY_A_RULE + by.rule, channel=RULE))
        await self._fleet.ordered(unit, "start")

    async def _fire(self, rule: str, by: Firing) -> None:
        data = {"kind": "rule", "rule": by.rule, "run": by.run}
        spark = Spark(rule=rule, trigger=f"rule {by.rule}", data=data, tree=by.tree, depth=by.depth + 1)
        fate = await self._engine.ring(spark)
        if fate not in (Fate.QUEUED, Fate.JOINED, Fate.SKIPPED):
            raise ActionFailed(
                "NotFired", f"{rule} could not be fired: {fate}", target=rule, final=fate is not Fate.FULL
            )

    async def stop(self, unit: str, *, by: Firing) -> None:
        """Stop a unit, unless somebody did."""
        if unit not in self._fleet.posts and unit not in self.names:
            raise ActionFailed("UnknownUnit", f"there is no unit {unit!r}", target=unit, final=True)
        order = await asyncio.to_thread(self._order, unit)
        if order.verb >= Verb.STOP:
            return
        await submit(self._governor, Held(unit=unit, verb=Verb.STOP, by=BY_A_RULE + by.rule, note=f"run {by.run}"))
        await self._fleet.ordered(unit, "stop")
        await self.ordered(unit, "stop")

    async def ordered(self, unit: str, verb: str) -> None:
        """Somebody gave an order, to that rule or to all."""
        await self._engine.ordered(unit, verb)

    def _order(self, unit: str) -> Orders:
        """What stands for that unit by order."""
        key = Key(Manual().name, "unit", unit)
        data = self._governor.store.read([key]).records.get(key)
        return (readable_state(Orders, data) if data is not None else None) or Orders()

    def _notify(self, rule: str, text: str) -> None:
        """Tell people. The daemon's log is what they all have."""
        log.warning("%s says: %s" if rule else "%s%s", rule, text)
        self._tell(rule, text)
