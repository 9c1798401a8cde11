"""The engine: all rules of a supervisor. Whatever fires one comes in by `ring`, and nothing runs beside it.

A spark becomes a firing in the queue if its rule's condition holds and there is room for it. The firing and the fact
that it fired are written in one transaction, with whatever its source has to remember: a crash loses none, and fires
none twice. Runs are the business of each rule's post.
"""

import asyncio
import contextlib
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from flyball.config import expressions
from flyball.config.expressions import ConditionError
from flyball.config.rules import Action, Rule, Startup
from flyball.core.decision import Decision
from flyball.core.event import Event, Exited, Fired, Start
from flyball.core.time import SECOND, Instant
from flyball.errors import FlyballError
from flyball.governor import NO_ROWS, Governor, Rows
from flyball.runtimes.bridge import submit, write
from flyball.runtimes.driver import Life, Sleep, doze_until
from flyball.runtimes.flag import Flag
from flyball.runtimes.guardian import Guard
from flyball.runtimes.rule.actions import DOING
from flyball.runtimes.rule.approvals import Approvals
from flyball.runtimes.rule.deed import ActionFailed, Scene, Units
from flyball.runtimes.rule.firing import DATA_MAX, DEPTH_MAX, FIRING, Fate, Firing, Looks, Source, Spark
from flyball.runtimes.rule.post import SHARED, RulePost
from flyball.runtimes.rule.queue import Queue, encode
from flyball.runtimes.rule.run import Doings, RuleRun
from flyball.runtimes.rule.slots import Slots
from flyball.runtimes.rule.values import VALUE, Values

log = logging.getLogger(__name__)

CHAINS_MAX: Final = 10_000
"""Runs whose place in a chain is remembered. What they cause follows within moments."""
UNITS_EVERY: Final = 1 * SECOND
"""How old what conditions know of units may be."""
LOOK_MAX: Final = 2.0
"""Seconds that sources have to look what is there already before other rules count as in force. A folder takes
milliseconds; a disk that does not answer is not waited for."""
SOURCE_WAIT: Final = 5.0
"""Seconds before a source of triggers is begun again that failed."""
LOST: Final = "lost"
REMOVED: Final = "rule_removed"
FORGOTTEN: Final = "forgotten"
"""Why a firing does not wait any more: its run was lost and is not to be made twice; its rule is gone; a person took it
from the queue."""

_REASONS: Final = {
    Fate.FULL: "its queue is full",
    Fate.TOO_DEEP: f"{DEPTH_MAX} rules fired each other one after the other, and this looks like a circle",
    Fate.TOO_LONG: f"it says more than {DATA_MAX // 1024} KiB",
}

Making = Callable[[], Source]
Say = Callable[[str, Event, Decision], None]
Trouble = Callable[[str, FlyballError | None], None]


class Engine:
    """Looks after the rules."""

    def __init__(
        self,
        governor: Governor,
        *,
        holder: str,
        folder: Path,
        units: Units,
        states: Callable[[], Mapping[str, Any]],
        notify: Callable[[str, str], None],
        say: Say,
        troubled: Trouble,
        guard: Guard | None = None,
        sleep: Sleep | None = None,
        doings: Doings = DOING.__getitem__,
    ) -> None:
        """`folder` is the state folder. `states` says of all units how they are; it may take its time. `say` is told of
        every answer of the governor, `notify` tells people, `troubled` is told when the store cannot be written."""
        self.governor = governor
        self.holder = holder
        self.rules: dict[str, Rule] = {}
        self.posts: dict[str, RulePost] = {}
        self.queue = Queue(0)
        self.slots = Slots(0)
        self.values = Values()
        self.counts: dict[str, Counter[str]] = {}
        """Of each rule, what became of what fired it since the daemon began."""
        self.troubled = troubled
        self._logs, self._sockets = folder / "logs", folder / "notify"
        self._units, self._states, self._notify, self._say, self._guard = units, states, notify, say, guard
        self._sleep: Sleep = sleep or partial(doze_until, now=governor.clock.now)
        self._doings = doings
        self._approvals = Approvals(governor, lambda text: notify("", text), sleep=self._sleep)
        self._sources: dict[Making, tuple[Source, asyncio.Task[None]]] = {}
        self._making: Mapping[type, Making] = {}
        self._chains: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._about_units: set[str] = set()
        """Rules that have to know how units are."""
        self._units_at: Instant = 0
        self._units_known: Mapping[str, Any] = {}
        self._in_line: set[RulePost] = set()
        """Rules that wait for what the runs of others share with them."""
        self._full: set[str] = set()
        """Rules whose queue was full when they were fired last: it is said once."""

    # The beginning, other rules, and the end.

    async def begin(
        self, rules: Sequence[Rule], *, running_max: int, queued_max: int, making: Mapping[type, Making]
    ) -> None:
        """Go on with what waits in the queue, then listen to what fires rules. `making` makes the sources of triggers,
        by the kind of trigger that each of them is for."""
        self._making = making
        self.resize(running_max, queued_max)
        self.rules = {rule.name: rule for rule in rules}
        self.posts = {rule.name: RulePost(rule, self, self._sleep) for rule in rules}
        self.values = Values(await asyncio.to_thread(self.governor.store.states, VALUE))
        await self._load()
        self._listen(rules)
        # A rule that comes later is not fired by the start of the daemon: nothing starts then.
        self._making = {kind: make for kind, make in making.items() if kind is not Startup}
        for name in self.queue.rules():
            if name in self.posts:
                self.posts[name].wake()
        await self._settled()

    def resize(self, running_max: int, queued_max: int) -> None:
        """Other limits for all rules together."""
        self.queue.most = queued_max
        self.slots.resize(running_max)

    async def _load(self) -> None:
        damaged = self.queue.load(await asyncio.to_thread(self.governor.store.states, FIRING))
        for key in damaged:
            log.error("a firing of %s cannot be read, and is forgotten", key.subject)
        if damaged:
            await self._write(dict.fromkeys(damaged))
        for name in self.queue.rules():
            rule = self.rules.get(name)
            for firing in self.queue.of(name):
                if rule is None:
                    await self._forget(firing, REMOVED)
                elif firing.attempt and not rule.runs_again:
                    await self._forget(firing, LOST)
                elif firing.attempt:
                    text = "%s: what %s fired was begun (attempt %d) and not brought to its end; it is tried again"
                    log.warning(text, name, firing.trigger, firing.attempt)

    async def change(self, rules: Sequence[Rule]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Other rules: which were added, removed, changed. What did not change is not touched."""
        after = {rule.name: rule for rule in rules}
        added = tuple(name for name in after if name not in self.rules)
        removed = tuple(name for name in self.rules if name not in after)
        changed = tuple(name for name, rule in after.items() if name in self.rules and rule != self.rules[name])
        self.rules = after
        gone = [self.posts.pop(name) for name in removed]
        for name in added:
            self.posts[name] = RulePost(after[name], self, self._sleep)
        for name in changed:
            self.posts[name].change(after[name])
        self._listen(rules)
        await self._settled()
        # Last, because it takes its time, and can go wrong: the other rules are in force by then.
        await asyncio.gather(*(post.end() for post in gone))
        for name in removed:
            self.counts.pop(name, None)
            await self._forget_all(name)
        return added, removed, changed

    async def _forget_all(self, removed: str) -> None:
        """Nobody is left to run what waits for that rule. What cannot be written down now is when a daemon starts."""
        for firing in self.queue.of(removed):
            try:
                await self._forget(firing, REMOVED)
            except FlyballError as error:
                log.error("%s is removed, but what waits for it cannot be forgotten: %s", removed, error)

    async def end(self) -> None:
        """End all runs, and listen no more."""
        for _, task in self._sources.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in self._sources.values()), return_exceptions=True)
        self._sources.clear()
        await asyncio.gather(*(post.end() for post in self.posts.values()))

    # Sources.

    def _listen(self, rules: Sequence[Rule]) -> None:
        """Have a source for every kind of trigger that there is. Those that are there are told of all rules before
        they run."""
        self._about_units = {rule.name for rule in rules if rule.asks_for_units}
        kinds = {type(trigger) for rule in rules for trigger in rule.triggers}
        makings = {self._making[kind] for kind in kinds if kind in self._making}
        for source, _ in self._sources.values():
            source.use(rules)
        for make in makings - self._sources.keys():
            try:
                source = make()
            except FlyballError as error:
                log.error("%s. %s", error, error.remedy)
                continue
            source.use(rules)
            self._sources[make] = source, asyncio.get_running_loop().create_task(self._keep(source))

    async def _settled(self) -> None:
        """Returns when what happens from now on fires rules: whoever is told that they are in force may rely on it."""
        looks = [source.settled() for source, _ in self._sources.values() if isinstance(source, Looks)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_MAX):
                await asyncio.gather(*looks)

    async def _keep(self, source: Source) -> None:
        kind = type(source).__name__
        while True:
            try:
                await source.run()
            except FlyballError as error:
                log.error("triggers (%s): %s. %s", kind, error, error.remedy)
            except Exception:
                log.exception("triggers (%s): begun again in %g s", kind, SOURCE_WAIT)
            else:
                return
            await asyncio.sleep(SOURCE_WAIT)

    def chain_of(self, unit: str, run: str) -> tuple[str, int]:
        """Which chain of rules a run belongs to, and its place in that."""
        return self._chains.get(f"{unit}/{run}", ("", -1))

    # What fires.

    async def ring(self, spark: Spark) -> Fate:
        """Take a spark. When this returns, what became of it is on disk."""
        fate, _ = await self.fire(spark)
        return fate

    async def fire(self, spark: Spark) -> tuple[Fate, str]:
        """The same; and the id of the firing, where there is one."""
        rule = self.rules.get(spark.rule)
        if rule is None:
            await self._write(spark.rows)
            return Fate.UNKNOWN, ""
        fate, firing = await self._judge(rule, spark)
        self.counts.setdefault(rule.name, Counter())[fate] += 1
        return fate, firing

    async def _judge(self, rule: Rule, spark: Spark) -> tuple[Fate, str]:
        now = self.governor.clock.now()
        id_ = secrets.token_hex(6)
        firing = Firing(
            id=id_,
            rule=rule.name,
            trigger=spark.trigger,
            at=now,
            data=dict(spark.data),
            tree=spark.tree or id_,
            depth=spark.depth,
            by_person=spark.by_person,
        )
        data = encode(firing)
        if len(data) > DATA_MAX:
            return await self._drop(firing, Fate.TOO_LONG, spark), ""
        if spark.depth > DEPTH_MAX:
            return await self._drop(firing, Fate.TOO_DEEP, spark), ""
        if await self.holds(rule, firing) is False:
            await self._write(spark.rows, sync=False)
            return Fate.SKIPPED, ""
        twin = self.queue.waits(rule.name, spark.trigger, spark.data.get("path")) if spark.joins else None
        if twin is not None:
            twin = msgspec.structs.replace(twin, joined=twin.joined + 1)
            self.queue.replace(twin)
            await self._write({**spark.rows, twin.key: encode(twin)})
            return Fate.JOINED, twin.id
        if not self.queue.has_room(rule, len(data)):
            return await self._drop(firing, Fate.FULL, spark), ""
        self.queue.take_room(rule.name, len(data))
        self._full.discard(rule.name)
        fired = Fired(unit=rule.name, id=id_, trigger=spark.trigger, depth=spark.depth)
        try:
            decision = await submit(self.governor, fired, {**spark.rows, firing.key: data})
        except BaseException:
            self.queue.give_room_back(rule.name, len(data))
            raise
        self.queue.put(firing, len(data))
        self._say(rule.name, fired, decision)
        if rule.name not in self.posts:  # it was removed meanwhile
            await self._forget(firing, REMOVED)
            return Fate.UNKNOWN, ""
        self.posts[rule.name].wake(firing)
        return Fate.QUEUED, id_

    async def _drop(self, firing: Firing, why: Fate, spark: Spark) -> Fate:
        """It does not wait for a run. People are told, of a queue that stays full once."""
        rows = NO_ROWS if spark.comes_again else spark.rows
        if why is Fate.FULL and firing.rule in self._full:
            await self._write(rows)
            return why
        if why is Fate.FULL:
            self._full.add(firing.rule)
        fired = Fired(unit=firing.rule, id=firing.id, trigger=firing.trigger, depth=firing.depth, dropped=why)
        await submit(self.governor, fired, rows)
        log.warning("%s was fired by %s, which is dropped: %s", firing.rule, firing.trigger, _REASONS[why])
        return why

    async def _forget(self, firing: Firing, why: str) -> bool:
        """It waited, and is not to be run any more; False if somebody has it. Until that is on disk nobody takes it,
        and nothing joins it."""
        if not self.queue.claim(firing):
            return False
        fired = Fired(unit=firing.rule, id=firing.id, trigger=firing.trigger, depth=firing.depth, dropped=why)
        try:
            await submit(self.governor, fired, {firing.key: None})
        except BaseException:
            self.queue.leave(firing)
            raise
        self.queue.drop(firing)
        log.warning("%s was fired by %s, which is dropped: %s", firing.rule, firing.trigger, why)
        return True

    async def forget(self, rule: str, by: str) -> int:
        """A person forgets what waits for that rule; how many. What is being run is brought to its end."""
        forgotten = 0
        for firing in self.queue.of(rule):
            forgotten += await self._forget(firing, f"{FORGOTTEN} by {by}")
        return forgotten

    async def _write(self, rows: Rows, *, sync: bool = True) -> None:
        if rows:
            await write(self.governor, rows, sync=sync)

    # Conditions, and what they and templates may name.

    async def holds(self, rule: Rule, firing: Firing) -> bool | Exception:
        """Whether the rule's condition holds now; or why that cannot be said."""
        if rule.name in self._about_units:
            await self._know_units()
        if not rule.when:
            return True
        try:
            return expressions.compiled(rule.when).holds(self._names(rule, firing))
        except ConditionError as error:
            return error

    async def _know_units(self) -> None:
        now = self.governor.clock.now()
        if not self._units_at or now - self._units_at > UNITS_EVERY:
            self._units_known = await asyncio.to_thread(self._states)
            self._units_at = now

    def _names(self, rule: Rule, firing: Firing) -> dict[str, Any]:
        now = datetime.fromtimestamp(self.governor.clock.now() / SECOND, UTC)
        return {
            "trigger": firing.data,
            "rule": {"name": rule.name, "labels": dict(rule.labels), "priority": rule.priority},
            "firing": {
                "id": firing.id,
                "attempt": firing.attempt,
                "joined": firing.joined,
                "at": datetime.fromtimestamp(firing.at / SECOND, UTC).isoformat(),
            },
            "units": self._units_known,
            "values": self.values.now,
            "time": {
                "now": now,
                "hour": now.hour,
                "minute": now.minute,
                "weekday": now.strftime("%a").lower(),
                "date": now.date().isoformat(),
                "unix": now.timestamp(),
            },
        }

    # What posts ask and tell.

    async def skip(self, firing: Firing) -> None:
        """Its condition does not hold any more: it is over."""
        await self._write({firing.key: None})
        self.queue.drop(firing)
        self.counts.setdefault(firing.rule, Counter())[Fate.SKIPPED] += 1

    def begin_run(self, rule: Rule, firing: Firing, labels: Mapping[str, str], condition: Exception | None) -> Life:
        """Begin a run."""
        self._chains[f"{rule.name}/{firing.run}"] = firing.tree, firing.depth
        if len(self._chains) > CHAINS_MAX:
            self._chains.popitem(last=False)
        scene = Scene(
            rule=rule,
            firing=firing,
            run=firing.run,
            logs=self._logs,
            sockets=self._sockets,
            units=self._units,
            values=self.values,
            notify=self._notify,
            guard=self._guard,
        )

        async def approve(action: Action, text: str) -> bool:
            asks = action.approve
            assert asks is not None  # noqa: S101 - it is asked for those alone
            try:
                return await self._approvals.approved(
                    rule.name,
                    firing.run,
                    labels,
                    action=action.id,
                    text=text,
                    timeout=asks.timeout,
                    default=asks.default,
                )
            except FlyballError as error:
                if hasattr(error, "decision"):
                    raise
                raise ActionFailed("CannotAsk", str(error), target=action.id, final=True) from None

        async def until(instant: Instant) -> None:
            await self._sleep(Flag(), instant)

        return RuleRun(
            scene=scene,
            governor=self.governor,
            labels=labels,
            doings=self._doings,
            names=lambda steps: {**self._names(rule, firing), "steps": steps},
            approve=approve,
            until=until,
            heard=lambda event, decision: self._say(rule.name, event, decision),
            troubled=lambda error: self.troubled(rule.name, error),
            condition=condition,
        )

    def heard(self, post: RulePost, event: Event, decision: Decision) -> None:
        """The governor answered about a rule: say so, and let those ask again who waited for others."""
        asyncio.get_running_loop().call_soon(self._say, post.rule.name, event, decision)
        if isinstance(event, Start) and SHARED.intersection(decision.codes):
            self._in_line.add(post)
        elif isinstance(event, Exited):
            waiting, self._in_line = self._in_line, set()
            for other in waiting:
                other.ask_again()

    async def ordered(self, unit: str, verb: str) -> None:
        """Somebody gave an order, to that rule or to all."""
        posts = [self.posts[unit]] if unit in self.posts else list(self.posts.values()) if not unit else []
        for post in posts:
            await post.order(verb)
