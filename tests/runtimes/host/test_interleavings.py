"""Any interleaving of joining, renewing and fencing, over links that are slow, cut, healed and mute, with clocks that
differ: no host is fenced while it may still run something, and no two of one name may at the same time."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flyball.config.plan import HostPlan
from flyball.core.codec import decode_body
from flyball.core.event import Left
from flyball.core.host import HostRecord, decode
from flyball.core.policy import Key
from flyball.core.time import SECOND, Instant, Span
from flyball.governor import Governor
from flyball.policies import Exclusive
from flyball.runtimes.host import lease
from flyball.runtimes.host.lease import Lease
from flyball.runtimes.host.others import Others
from flyball.store import Drafter, Entry
from flyball.store.memory import MemoryStore
from flyball.testing.loop import SimulatedLoop
from tests.runtimes.host.world import LEASE, Link, at_once

NAMES = ("a", "b", "c")
RATES = (1.0, 1.0001, 0.9999)
"""A clock goes wrong by less than this: by 9 s a day."""
OPENED = 3 * SECOND
"""What a host may be behind the store's clock before its first answer."""

Op = tuple[str, str, float]


async def nothing(*_: object) -> int:
    """There is nothing to be ended."""
    return 0


class Host:
    """One incarnation of a host: its lease, its look at the others, its link and its clocks."""

    def __init__(self, world: "World", name: str, number: int, rate: float) -> None:
        self.world, self.name = world, name
        self.behind: Span = OPENED
        self.killed = False
        self.rate, self.offset = rate, number * 1_000 * SECOND
        holder = f"{name}/{number}/1/daemon"
        self.link = SlowLink(self)
        governor = Governor([Exclusive()], self.link.as_store(), self)
        self.lease = Lease(governor, HostPlan(lease=LEASE), holder, clock_boot=self.boot, aside=nothing)
        # Each on a machine of its own: that a process is gone, nobody can see.
        self.lease.record = msgspec.structs.replace(self.lease.record, machine=holder)
        self.others = Others(governor, holder, clock_boot=self.boot, aside=at_once)
        self.task = asyncio.ensure_future(self.live())

    async def live(self) -> None:
        with contextlib.suppress(lease.NameTaken):
            await self.lease.join()
            watching = asyncio.ensure_future(self.others.watch(self.fenced))
            try:
                await self.lease.keep(self.losing)
            finally:
                watching.cancel()

    async def losing(self) -> None:
        await asyncio.sleep(0)

    async def fenced(self, _: HostRecord) -> None:
        await asyncio.sleep(0)

    # What it takes for the time.

    def boot(self) -> Instant:
        return self.offset + round(self.world.truth() * self.rate)

    def now(self) -> Instant:
        return self.world.truth() - self.behind

    def catch_up(self, instant: Instant) -> Instant:
        return max(instant, self.now())

    # What is true.

    @property
    def ends_at(self) -> Instant:
        """When all that it runs is dead, at the latest; 0: it runs nothing."""
        if self.killed or not self.lease.deadline:
            return 0
        return round((self.lease.deadline - self.offset) / self.rate)

    def kill(self) -> None:
        self.killed = True
        self.task.cancel()


class SlowLink(Link):
    """Requests and answers take their time, and may be kept back or lost."""

    def __init__(self, host: Host) -> None:
        super().__init__(host.world.store)
        self.host = host

    def transact_soon(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> "Future[Entry | None]":
        future: Future[Entry | None] = Future()
        host = self.host
        host.world.send(host, partial(self._arrive, keys, draft, future))
        return future

    def _arrive(self, keys: Sequence[Key], draft: Drafter, future: "Future[Entry | None]") -> None:
        host = self.host
        before = host.world.store.read(()).seq
        entry = host.world.store.transact(keys, draft)
        try:
            host.world.check(before)
        except AssertionError as error:  # the loop would only print it
            host.world.broken.append(error)
        if host.name in host.world.mute:
            return
        delay = host.world.delay

        def answered() -> None:
            if not future.done() and not host.killed:
                host.behind = min(host.behind, delay)
                future.set_result(entry)

        host.world.loop.call_later(delay / SECOND, answered)


class World:
    """The store, the links, and all that must hold."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.store = MemoryStore()
        self.hosts: list[Host] = []
        self.cut: set[str] = set()
        self.mute: set[str] = set()
        self.delay: Span = 0
        self.kept_back: list[tuple[Host, Callable[[], None]]] = []
        self.fenced_at: dict[str, Instant] = {}
        self.broken: list[AssertionError] = []

    def truth(self) -> Instant:
        return self.loop.now()

    def send(self, host: Host, arrive: Callable[[], None]) -> None:
        if host.name in self.cut:
            self.kept_back.append((host, arrive))
            host.link.trouble = "away"
        else:
            self.loop.call_later(self.delay / SECOND, arrive)

    def check(self, seen: int = -1) -> None:
        """Called at every commit and after every step."""
        now = self.truth()
        for entry in self.store.entries(after=max(seen, 0)):
            event = decode_body(entry.body).event
            if isinstance(event, Left) and event.lost:
                self.fenced_at.setdefault(event.holder, now)
        records = [decode(data) for data in self.store.states("host").values()]
        for host in self.hosts:
            holder = host.lease.holder
            if holder in self.fenced_at:
                assert host.ends_at <= self.fenced_at[holder], f"{holder} was fenced while it could run something"
            for record in records:
                if record.holder == holder:
                    assert host.ends_at <= record.until, f"{holder} takes its lease for longer than it is"
        for name in NAMES:
            alive = [host.lease.holder for host in self.hosts if host.name == name and host.ends_at > now]
            assert len(alive) <= 1, f"{alive} at the same time"

    # What happens.

    async def play(self, ops: Sequence[Op]) -> None:
        try:
            for name in NAMES:
                self.begin(name, 1.0)
            for op, name, amount in ops:
                await self.do(op, name, amount)
                for error in self.broken:
                    raise error
                self.check()
        finally:
            for host in self.hosts:
                host.kill()
            await asyncio.gather(*(host.task for host in self.hosts), return_exceptions=True)

    def begin(self, name: str, rate: float) -> None:
        self.hosts.append(Host(self, name, len(self.hosts) + 1, rate))

    async def do(self, op: str, name: str, amount: float) -> None:
        match op:
            case "pass":
                await asyncio.sleep(amount)
            case "cut":
                self.cut.add(name)
            case "mute":
                self.mute.add(name)
            case "heal":
                self.heal(name)
            case "slow":
                self.delay = round(amount * SECOND / 10)
            case "kill":
                for host in self.hosts:
                    if host.name == name:
                        host.kill()
            case "begin":  # also where one of that name lives: on another machine, or because somebody erred
                self.begin(name, RATES[round(amount) % 3])
            case "jolt":
                for host in self.hosts:
                    host.others.poke()
        await asyncio.sleep(0)

    def heal(self, name: str) -> None:
        """What was kept back arrives now, however late."""
        self.cut.discard(name)
        self.mute.discard(name)
        for host, arrive in [kept for kept in self.kept_back if kept[0].name == name]:
            host.link.trouble = ""
            self.loop.call_soon(arrive)
        self.kept_back = [kept for kept in self.kept_back if kept[0].name != name]
        for host in self.hosts:
            if host.name == name:
                host.link.trouble = ""


seconds = st.sampled_from([0.1, 1.0, 1.9, 2.1, 4.0, 5.9, 6.1, 7.9, 8.1, 9.9, 10.0, 10.1, 14.1, 30.0])
ops = st.tuples(
    st.sampled_from(["pass", "pass", "pass", "cut", "mute", "heal", "heal", "slow", "kill", "begin", "begin", "jolt"]),
    st.sampled_from(NAMES),
    seconds,
)


def run(history: Sequence[Op]) -> World:
    """Play it; an error if something that must hold does not."""
    world = World()

    async def main() -> None:
        await world.play(history)

    world.loop.run(main())
    return world


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ops, max_size=30))
@example([("slow", "a", 10.0), ("cut", "a", 0.1), ("pass", "a", 30.0), ("heal", "a", 0.1), ("pass", "a", 30.0)])
@example([("pass", "a", 1.9), ("mute", "a", 0.1), ("pass", "a", 30.0), ("begin", "a", 1.0), ("pass", "a", 30.0)])
def test_never_two(history: list[Op]) -> None:
    """Whatever happens: a host is fenced only when all that it ran is dead; the deadline is never after the end that
    the store has; and no two of one name may run something at the same time."""
    run(history)


def test_they_are_fenced() -> None:
    """The same world does fence, so that the law above is one."""
    world = run([("pass", "a", 5.9), ("cut", "a", 0.1), ("kill", "b", 0.1), ("pass", "a", 30.0)])
    assert {holder[0] for holder in world.fenced_at} == {"a", "b"}


@pytest.mark.parametrize("fault", ["early fence", "late deadline"])
def test_the_law_can_be_broken(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock ahead of the store's, or a deadline from when the answer came, is found."""
    if fault == "early fence":
        monkeypatch.setattr(Host, "now", lambda host: host.world.truth() + (host.name != "a") * SECOND)
        history = [("pass", "a", 5.9), ("cut", "a", 0.1), ("pass", "a", 30.0)]
    else:
        monkeypatch.setattr(Lease, "_extended", _extended_from_the_answer)
        history = [("slow", "a", 10.0), ("pass", "a", 30.0)]
    with pytest.raises(AssertionError, match=r"fenced while|takes its lease"):
        run(history)


def _extended_from_the_answer(self: Lease, _before: Instant) -> None:
    self._renewed_at = self._clock()
    self.deadline = self._clock() + self.length
