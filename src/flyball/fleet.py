"""The fleet: all units of one settings file, each at its post; who waits for whom, and who is restarted with whom.

Where many hosts share the units, a host has a post for each, and starts those of the items that it takes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from flyball.config.plan import Plan
from flyball.config.rules import Rule
from flyball.config.units import Strategy, Unit
from flyball.control.log_lines import named
from flyball.control.news import News
from flyball.control.text import describe, one_line
from flyball.core.decision import Decision
from flyball.core.event import Beat, Booted, Cause, Event, Exited
from flyball.core.time import Span
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.placing.items import Item, items
from flyball.runtimes import kept
from flyball.runtimes.before import RESTARTS, REVISIONS, is_again, restarts_key, revised
from flyball.runtimes.bridge import bring, submit
from flyball.runtimes.flag import Flag
from flyball.runtimes.guardian import Guard
from flyball.runtimes.holder import daemon, is_gone, me
from flyball.runtimes.kept import Record
from flyball.runtimes.post import Pace, Post
from flyball.runtimes.process import ProcessHands, kernel, strays
from flyball.runtimes.rule import marks
from flyball.runtimes.session.turns import Turns
from flyball.runtimes.watched import WatchedHands

log = logging.getLogger(__name__)

STARTED_TOGETHER: Final = 100
"""Units that ask something at once, such as for their first start. More would be answered no sooner, and what each
needs for asking stays with the process for good: 2 MiB of a thousand."""


class Changes(NamedTuple):
    """What other settings changed."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: int

    def and_those(self, other: "Changes") -> "Changes":
        """Both together."""
        return Changes(
            self.added + other.added,
            self.removed + other.removed,
            self.changed + other.changed,
            self.unchanged + other.unchanged,
        )


class Fleet:
    """Looks after the units."""

    def __init__(
        self,
        plan: Plan,
        governor: Governor,
        folder: Path,
        guard: Guard | None,
        *,
        placed: bool = False,
        may_begin: Callable[[], bool] = lambda: True,
        gone: Callable[[str], bool] = is_gone,
    ) -> None:
        """`placed`: many hosts share the units, and this one starts what it takes. `may_begin` is asked right before
        each start."""
        self.plan = plan
        self.governor = governor
        self.holder = daemon(plan.host.name) if placed else me()
        self._placed, self._may_begin = placed, may_begin
        self.gone = gone
        """Says of a holder of runs whether it is certainly no more."""
        self._taken: dict[str, asyncio.Event] = {}
        """Items that this host has: set when they are left."""
        self._item_of = _items_of(plan)
        self.posts: dict[str, Post] = {}
        self._kept, self._logs, self._sockets = folder / kept.FOLDER, folder / "logs", folder / "notify"
        self._sessions = folder / "sessions"
        self._guard = guard
        self._pace = Pace(plan.jitter)
        self._turns = Turns()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._numbers: dict[str, Iterator[int]] = {}
        """Of each unit's runs, for as long as this daemon lives: a unit that comes back is called on."""
        self._ups: dict[str, asyncio.Event] = {}
        self._leaders: dict[str, str] = {}
        """Of groups that are being restarted: the one that failed, and that the others wait for."""
        self._news = News()
        self._troubled: set[str] = set()
        self.trouble = ""
        """Why what happens cannot be written down; nothing if it can be."""

    # The beginning.

    async def begin(self, *, others: int = 0) -> None:
        """Find out what lives and what was lost, have the governor judge that, then start the units. `others` are hosts
        on which the fleet runs already."""
        for unit in self.plan.units:
            self._put(unit)
        for rule in self.plan.rules:  # what was lost of theirs is judged by their own safeguards, too
            self.governor.panel.put(rule.name, self.plan.own[rule.name])
        records = list(kept.read(self._kept))
        lost = await self._adopt(records)
        await asyncio.to_thread(self._end_strays, {(record.unit, record.run) for record in records})
        decision = await asyncio.to_thread(
            self.governor.boot,
            self.holder,
            units=len(self.posts) + len(self.plan.rules),
            others=others,
            gone=lambda holder: holder in lost or self.gone(holder),
        )
        if not decision.proceeds:
            said = "; ".join(f"{reason.code}: {reason.text}" for reason in decision.reasons)
            log.warning("nothing is started: %s", said, extra=named("", Booted(), decision))
        changed = await self.revise(self.plan.units)
        if self._placed:
            return
        restarts = await asyncio.to_thread(self.governor.store.states, RESTARTS)
        for place, (name, post) in enumerate(list(self.posts.items()), 1):
            if self.posts.get(name) is not post:  # other settings came meanwhile
                continue
            if name in changed and post.is_adopting:
                post.begin_again()
            post.again = is_again(restarts.get(restarts_key(name)), after_done=True)
            self._start(name)
            if place % STARTED_TOGETHER == 0:
                await self._asked()

    async def _asked(self) -> None:
        """Return when what was started until now has asked, and was answered."""
        await asyncio.sleep(0)
        with contextlib.suppress(FlyballError):  # each of them notices by itself that the store fails
            await bring(self.governor.store.transact_soon((), lambda _: None, sync=False))

    def _end_strays(self, spared: AbstractSet[tuple[str, str]]) -> None:
        """End what still runs of a supervisor that was killed together with its guardian."""
        runs = {(unit, run) for unit, run, live in self.governor.live_runs() if self.gone(live.holder)}
        runs |= {(unit, marks.of_worker(run)) for unit, run in runs}
        ended = strays.end(runs - spared, kernel.detect())
        if ended:
            log.warning("%d processes were left by a supervisor that was killed with its guardian: ended", ended)

    async def _adopt(self, records: Sequence[Record]) -> set[str]:
        """Take over what outlived another supervisor; the holders of what did not. Its lease is renewed before runs are
        judged by their leases."""
        lost: set[str] = set()
        beats: list[Beat] = []
        for record in records:
            post = self.posts.get(record.unit)
            if post is not None and not self._placed and post.adopt(record):
                beats.append(Beat(unit=record.unit, run=record.run, labels=post.unit.labels, silent=True))
                log.info("%s lives on as process %d", record.unit, record.pid, extra={"unit": record.unit})
                continue
            if post is None:
                await self._end_stranger(record, "removed", "is in the settings no more")
            elif self._placed:  # it lived on under a lease that is over: another host may have the unit by now
                await self._end_stranger(record, "lease", "lived on, and may be another host's by now")
            lost.add(record.holder)
            kept.forget(self._kept, record.unit)
        # Many at once and after all are watched: few commits, and none of them takes time from the watching.
        await self._submit(beats)
        return lost

    async def _submit(self, events: Sequence[Event]) -> list[Decision]:
        """Put them all to the governor; its answers, in their order."""
        answers: list[Decision] = []
        for first in range(0, len(events), STARTED_TOGETHER):
            some = events[first : first + STARTED_TOGETHER]
            answers += await asyncio.gather(*[submit(self.governor, event) for event in some])
        return answers

    async def _end_stranger(self, record: Record, error: str, why: str) -> None:
        """It outlived its supervisor, and nobody wants it any more."""
        unit = Unit(name=record.unit, command=("",))
        life = ProcessHands(unit, logs=self._logs).adopt(record.pid, record.started, record.run)
        if life is not None:
            log.info("%s %s: ended", record.unit, why, extra={"unit": record.unit})
            await life.end(unit.grace)
            exited = Exited(unit=record.unit, run=record.run, cause=Cause.STOPPED, error=error)
            await submit(self.governor, exited)

    # Where many hosts share the units.

    async def take(self, item: Item) -> None:
        """Start the units of an item; returns when they were left, and nothing of them runs here any more."""
        left = self._taken[item.name] = asyncio.Event()
        for place, name in enumerate(self._names_of(item.name), 1):
            if self._taken.get(item.name) is not left:  # it is being left already
                break
            if self._item_of.get(name) == item.name and name not in self._tasks:  # other settings may have come
                self._start(name)
            if place % STARTED_TOGETHER == 0:
                await self._asked()
        await left.wait()

    async def leave(self, item: Item) -> None:
        """End the units of an item, in order, so that another host may take it."""
        left = self._taken.pop(item.name, None)
        if left is None:
            return
        names = [name for name in self._names_of(item.name) if name in self._tasks]
        await self._end_in_order(names)
        for name in names:
            self._forget(name)
            if name in self.posts:
                self._put(self.posts[name].unit)
        left.set()

    def _names_of(self, item: str) -> list[str]:
        return [name for name in self.posts if self._item_of.get(name) == item]

    def is_here(self, name: str) -> bool:
        """Whether it is this host that runs that unit, or would."""
        return not self._placed or self._item_of.get(name) in self._taken

    async def revise(self, units: Iterable[Unit | Rule]) -> set[str]:
        """Tell the governor of definitions that changed: that may clear failures. Those that did."""
        known = await asyncio.to_thread(self.governor.store.states, REVISIONS)
        asked = revised(((unit, unit.revision) for unit in units), known)
        answers = await self._submit([revise for revise, _ in asked])
        for (revise, changed), decision in zip(asked, answers, strict=True):
            if changed:
                self.say(revise.unit, revise, decision)
        return {revise.unit for revise, changed in asked if changed}

    def _put(self, unit: Unit) -> Post:
        self.governor.panel.put(unit.name, self.plan.own[unit.name])
        hands = WatchedHands(unit, self.governor, logs=self._logs, sockets=self._sockets, sessions=self._sessions)
        post = Post(
            unit=unit,
            hands=hands,
            governor=self.governor,
            holder=self.holder,
            others=self,
            pace=self._pace,
            kept_folder=self._kept,
            guard=self._guard,
            turns=self._turns,
            numbers=self._numbers.setdefault(unit.name, count(1)),
            may_begin=self._may_begin,
        )
        self.posts[unit.name] = post
        return post

    def _start(self, name: str) -> None:
        self._tasks[name] = asyncio.get_running_loop().create_task(self.posts[name].keep())

    # Other settings.

    async def change(self, plan: Plan) -> Changes:
        """Apply what is different in these settings; what is not is not touched. What can go wrong comes first: if it
        does, the settings that are in force stay."""
        before = {name: post.unit for name, post in self.posts.items()}
        after = {unit.name: unit for unit in plan.units}
        removed = tuple(name for name in before if name not in after)
        added = tuple(name for name in after if name not in before)
        changed = tuple(name for name, unit in after.items() if name in before and unit != before[name])
        await self.revise(after[name] for name in (*added, *changed))
        self.governor.panel.replace(plan.policies, plan.own)
        self.plan, self._item_of = plan, _items_of(plan)
        self._pace.jitter = plan.jitter
        strangers = [name for name in self._tasks if name in after and not self.is_here(name)]
        await asyncio.gather(*(self._end(name) for name in {*removed, *changed, *strangers}))
        for name in {*removed, *strangers}:
            self._forget(name)
        for name in removed:
            del self.posts[name]
        for name in (*added, *changed):
            self._put(after[name])
        for name in set(strangers).difference(changed):
            self._put(after[name])
        joined = [name for name in after if self._placed and name not in self._tasks]
        for name in dict.fromkeys((*added, *changed, *joined)):
            if self.is_here(name):
                self._start(name)
        return Changes(added, removed, changed, len(after) - len(added) - len(changed))

    # The end.

    async def end(self, *, spare_kept: bool = False) -> None:
        """End all units: each after those that need it."""
        await self._end_in_order([name for name, post in self.posts.items() if not (spare_kept and post.is_kept)])

    async def _end_in_order(self, names: Sequence[str]) -> None:
        needed_by: dict[str, list[asyncio.Event]] = {name: [] for name in self.posts}
        ended = {name: asyncio.Event() for name in names}
        for name in names:
            for other in self.posts[name].unit.after:
                needed_by[other].append(ended[name])

        async def end(name: str) -> None:
            for other in needed_by[name]:
                await other.wait()
            await self._end(name)
            ended[name].set()

        await asyncio.gather(*map(end, names))

    def _forget(self, name: str) -> None:
        """It is not looked after any more."""
        self._tasks.pop(name, None)
        self._ups.pop(name, None)
        self._troubled.discard(name)
        for group, leader in list(self._leaders.items()):
            if leader == name:
                del self._leaders[group]

    async def abandon(self, grace: Span) -> None:
        """End every process, and nothing more: whoever takes over tells what became of the runs."""
        await asyncio.gather(*(post.abandon(grace) for post in self.posts.values()))

    def hurry(self) -> None:
        """End without grace what is being ended."""
        for post in self.posts.values():
            post.hurry()

    async def _end(self, name: str) -> None:
        task = self._tasks.get(name)
        if task is not None:
            self.posts[name].quit()
            await asyncio.gather(task, return_exceptions=True)

    # Orders.

    async def ordered(self, unit: str, verb: str) -> None:
        """Somebody gave an order, to that unit or to all."""
        names = [unit] if unit else list(self.posts)
        posts = [self.posts[name] for name in names if name in self.posts and self.is_here(name)]
        await asyncio.gather(*(post.order(verb) for post in posts))

    # What posts ask and tell.

    def up(self, unit: str) -> asyncio.Event:
        """Set while that unit counts as up."""
        return self._ups.setdefault(unit, Flag())

    def heard(self, post: Post, event: Event, decision: Decision) -> None:
        """The governor answered about a unit: say so, and restart whom that concerns. It is said after what follows
        from it was done: a start does not wait for a line of the log."""
        asyncio.get_running_loop().call_soon(self.say, post.unit.name, event, decision)
        if isinstance(event, Exited) and event.cause.failed:
            self._restart_mates(post)

    def came_up(self, post: Post) -> None:
        """A unit is up: whoever waited for it goes on by itself."""
        if self._leaders.get(post.unit.team) == post.unit.name:
            del self._leaders[post.unit.team]

    def troubled(self, name: str, error: FlyballError | None) -> None:
        """The store cannot be written, or can be again. Many units notice that; it is said once."""
        before = self.trouble
        if error is None:
            self._troubled.discard(name)
        else:
            self._troubled.add(name)
            self.trouble = f"{error}. {error.remedy} What runs goes on; nothing is begun until then."
        if error is None and not self._troubled:
            self.trouble = ""
            log.warning("what happens can be written down again")
        elif not before:
            log.error("%s", self.trouble)

    def says(self, unit: str) -> str:
        """What a unit last said about itself."""
        return self.posts[unit].hands.says if unit in self.posts else ""

    def _restart_mates(self, failed: Post) -> None:
        """One of a group failed. The first one leads: what fails while the group is being restarted changes nothing."""
        group = next((group for group in self.plan.groups if group.name == failed.unit.team), None)
        if group is None or group.strategy is Strategy.ONE_FOR_ONE or group.name in self._leaders:
            return
        name = failed.unit.name
        place = group.units.index(name)
        mates = group.units if group.strategy is Strategy.ALL_FOR_ONE else group.units[place:]
        self._leaders[group.name] = name
        for mate in mates:
            if mate != name and mate in self.posts and self.posts[mate].pid:
                log.info("%s is restarted with %s (%s)", mate, name, group.strategy, extra={"unit": mate})
                self.posts[mate].begin_again(after=(name,))

    def say(self, name: str, event: Event, decision: Decision) -> None:
        """One line, if it is news."""
        if self._news.hear(name, event, decision):
            text = one_line(describe(event, decision, self.governor.clock.now()))
            number = self._news.number(name, event, decision)
            log.info("%s %s%s", name, text, number, extra=named(name, event, decision))


def _items_of(plan: Plan) -> dict[str, str]:
    """The item that each unit belongs to."""
    return {unit: item.name for item in items(plan) for unit in item.units}


def pids(posts: Mapping[str, Post]) -> dict[str, int]:
    """The processes that run, by unit."""
    return {name: post.pid for name, post in posts.items() if post.pid}
