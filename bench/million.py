"""A fleet of 10,000 hosts and 1,000,000 units, simulated: the load in a quiet hour, a tenth of the hosts dead at once,
and the herd after an outage of the database.

The policies are the real ones, asked by the real governor for every start, exit and sign of life. The database is a
line: one commit at a time, which takes what `python -m bench.postgres` measured. Time is virtual, so the figures do not
depend on the machine that this runs on.

    python -m bench.million                          all 1,000,000 units, in 40 databases: some ten minutes
    python -m bench.million --shards 2               only two of the databases
    python -m bench.million --hosts 2000 --of 1      2,000 hosts on one database: where does it break?
"""

import argparse
import heapq
import random
import statistics
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from flyball.config import Settings
from flyball.config.build import unit_policies
from flyball.config.units import Unit
from flyball.core.decision import Decision, Verb
from flyball.core.event import Beat, Cause, Event, Exited, Start
from flyball.core.failure import FINGERPRINT_VERSION, fingerprint
from flyball.core.time import SECOND, Instant
from flyball.governor import Governor
from flyball.store import Drafter, Entry
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock

GROUP_MAX: Final = 256
"""Decisions in one commit, as in the store."""
RENEWALS: Final = 5
GIVES_UP: Final = 3 / 5
"""A host that could not renew for that part of its lease ends its units."""
POLL_EVERY: Final = 0.5
"""Seconds between two looks of a host at what waits to be taken."""
TAKEN_MAX: Final = 100
"""Units that a host takes at one look."""


class Costs(NamedTuple):
    """What the database takes, in seconds."""

    commit: float = 0.0011
    """For one commit, whatever is in it."""
    decision: float = 0.00006
    """For each decision in it, on top."""


class Forgetful(MemoryStore):
    """A store that keeps no journal: a million entries are of no use here."""

    def transact(self, keys: Sequence, draft: Drafter, *, sync: bool = True) -> Entry | None:  # type: ignore[type-arg]
        entry = super().transact(keys, draft, sync=sync)
        if len(self._entries) > 1000:
            self._entries.clear()
        return entry


@dataclass
class Database:
    """One commit at a time."""

    costs: Costs
    free_at: float = 0.0
    busy: float = 0.0

    def commit(self, now: float, decisions: int) -> float:
        """When a commit that is sent now is done."""
        takes = self.costs.commit + self.costs.decision * decisions
        self.free_at = max(now, self.free_at) + takes
        self.busy += takes
        return self.free_at


@dataclass
class Host:
    """What waits to be written, and what runs."""

    name: str
    units: set[int] = field(default_factory=set)
    waiting: deque[tuple[Event | None, Callable[[Decision | None], None]]] = field(default_factory=deque)
    sending: bool = False
    alive: bool = True
    joined: bool = True
    renewed: float = 0.0
    lost: int = 0
    """How often it lost its lease: each time another daemon begins."""


class Shard:
    """Some hosts on one database."""

    def __init__(self, hosts: int, units: int, *, lease: float, costs: Costs, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now = 0.0
        self.lease = lease
        self.database = Database(costs)
        self.clock = FakeClock()
        self._origin = self.clock.now()
        settings = Settings()
        self.governor = Governor(unit_policies(settings, Unit(name="u", command=("agent",))), Forgetful(), self.clock)
        self.hosts = [Host(f"h{number}") for number in range(hosts)]
        self.living = hosts
        self.units = units
        self.runs: dict[int, str] = {}
        """Of units that run."""
        self.begun = 0
        self.refused: dict[str, int] = {}
        self.waits: list[float] = []
        self.renewals: list[float] = []
        self.down_until = 0.0
        self._free: deque[int] = deque()
        """Units that wait for a host."""
        self._offered = False
        """Hosts look for them."""
        self._count: dict[int, int] = {}
        """Runs that each unit had."""
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    # Time.

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Have that happen then."""
        self._number += 1
        heapq.heappush(self._agenda, (max(when, self.now), self._number, what))

    def run(self, until: float, *, stop: Callable[[], bool] = lambda: False) -> None:
        """Let time pass."""
        while self._agenda and self._agenda[0][0] <= until and not stop():
            self.now, _, what = heapq.heappop(self._agenda)
            what()
        if not stop():
            self.now = max(self.now, until)

    def instant(self) -> Instant:
        return self._origin + round(self.now * SECOND)

    # Writing.

    def put(self, host: Host, event: Event | None, then: Callable[[Decision | None], None]) -> None:
        """Have a host write something down: an event for the governor, or a record of its own."""
        host.waiting.append((event, then))
        self._send(host)

    def _send(self, host: Host) -> None:
        if host.sending or not host.waiting or self.now < self.down_until:
            return
        host.sending = True
        group = [host.waiting.popleft() for _ in range(min(GROUP_MAX, len(host.waiting)))]
        done = self.database.commit(self.now, len(group))
        self.at(done, partial(self._committed, host, group, self.now, host.lost))

    def _committed(self, host: Host, group: list, sent: float, begun: int) -> None:  # type: ignore[type-arg]
        is_same = host.alive and host.lost == begun
        self.waits.append(self.now - sent)
        for event, then in group:
            answer = None
            if event is not None:  # what was sent is written, also if nobody waits for it any more
                self.clock.catch_up(self.instant())
                answer = self.governor.submit(event)
            if is_same:
                then(answer)
        if is_same:
            host.sending = False
            self._send(host)

    # Hosts.

    def join(self, host: Host) -> None:
        """Its lease begins, and it looks for units from now on."""
        host.alive = host.joined = True
        host.renewed = self.now
        self.at(self.now + self.dice.random() * self.lease / RENEWALS, partial(self._renew, host))
        self.at(self.now + self.dice.random() * POLL_EVERY, partial(self._look, host))

    def _renew(self, host: Host) -> None:
        if not (host.alive and host.joined):
            return
        if self.now - host.renewed > self.lease * GIVES_UP:
            self._lose(host)
            return
        asked = self.now

        def renewed(_: Decision | None) -> None:
            self.renewals.append(self.now - asked)
            if self.now - host.renewed > self.lease * GIVES_UP:
                self._lose(host)
                return
            host.renewed = asked
            self.at(max(self.now, asked + self.lease / RENEWALS), partial(self._renew, host))

        # It is at the head of what this host has to write.
        host.waiting.appendleft((None, renewed))
        self._send(host)
        before = host.renewed

        def check() -> None:
            if host.alive and host.joined and host.renewed == before:
                self._lose(host)

        self.at(before + self.lease * GIVES_UP, check)

    def _lose(self, host: Host) -> None:
        """It could not renew: what it ran is ended, and it comes back as a new one."""
        host.lost += 1
        host.joined = False
        host.waiting.clear()
        host.sending = False
        left, host.units = host.units, set()
        for unit in left:
            self.runs.pop(unit, None)
        self.at(max(self.now, self.down_until) + 1.0 + self.dice.random(), partial(self._come_back, host, left))

    def _come_back(self, host: Host, left: set[int]) -> None:
        self.put(host, None, lambda _: self._give_up(host, sorted(left), partial(self.join, host)))

    def die(self, host: Host) -> None:
        """kill -9: nobody says anything, and others find out when its lease is over."""
        host.alive = False
        self.living -= 1
        host.waiting.clear()
        left, host.units = host.units, set()
        for unit in left:
            self.runs.pop(unit, None)

        def fence() -> None:
            finders = [other for other in self.hosts if other.alive and other.joined]
            if not finders:
                self.at(self.now + 1.0, fence)
                return
            finder = self.dice.choice(finders)
            self.put(finder, None, lambda _: self._give_up(finder, sorted(left), lambda: None))

        self.at(host.renewed + self.lease, fence)

    def _give_up(self, host: Host, units: list[int], then: Callable[[], None]) -> None:
        """Report them as lost, one after the other as `reap` does, then have them wait for whoever takes them."""
        if not units:
            then()
            return
        unit, *rest = units
        if unit not in self._count:  # it was taken, and not begun yet
            self._offer([unit])
            self._give_up(host, rest, then)
            return
        name = f"u{unit}"
        lost = Exited(
            unit=name,
            run=f"{name}.{self._count[unit]}",
            cause=Cause.LOST,
            fingerprint=fingerprint(name, "lost"),
            version=FINGERPRINT_VERSION,
            error="lost",
        )

        def reported(_: Decision | None) -> None:
            self._offer([unit])
            self._give_up(host, rest, then)

        self.put(host, lost, reported)

    # Units.

    def place(self) -> None:
        """All of them wait for a host."""
        for host in self.hosts:
            self.join(host)
        self._offer(range(self.units))

    def _offer(self, units: Iterable[int]) -> None:
        self._free.extend(units)
        if not self._offered:
            self._offered = True
            for host in self.hosts:
                self.at(self.now + self.dice.random() * POLL_EVERY, partial(self._look, host))

    def _look(self, host: Host) -> None:
        if not (host.alive and host.joined and self._free):
            return
        room = -(-self.units // self.living) - len(host.units)
        taken = [self._free.popleft() for _ in range(min(room, TAKEN_MAX, len(self._free)))]
        host.units.update(taken)
        self._offered = bool(self._free)
        if taken:

            def claimed(_: Decision | None) -> None:
                for unit in taken:
                    self._start(host, unit)

            self.put(host, None, claimed)
        if self._free:
            self.at(self.now + POLL_EVERY, partial(self._look, host))

    def _start(self, host: Host, unit: int, *, first: bool = True) -> None:
        if not (host.alive and host.joined and unit in host.units):
            return
        name = f"u{unit}"
        if first:
            self._count[unit] = self._count.get(unit, 0) + 1
        run = f"{name}.{self._count[unit]}"

        def answered(decision: Decision | None) -> None:
            assert decision is not None
            if decision.proceeds:
                self.begun += 1
                self.runs[unit] = host.name
                self._beat_later(host, unit, run, decision)
                return
            for code in decision.codes:
                self.refused[code] = self.refused.get(code, 0) + 1
            if decision.verb is Verb.WAIT:
                at = (decision.until - self._origin) / SECOND
                self.at(at, lambda: self._start(host, unit, first=False))

        again = self._count[unit] > 1
        self.put(host, Start(unit=name, run=run, again=again, holder=host.name), answered)

    def _beat_later(self, host: Host, unit: int, run: str, decision: Decision) -> None:
        at = (decision.until - self._origin) / SECOND - 1.0

        def beat() -> None:
            if host.alive and host.joined and self.runs.get(unit) == host.name:
                event = Beat(unit=f"u{unit}", run=run, silent=True)
                self.put(host, event, lambda said: self._beat_later(host, unit, run, said) if said else None)

        self.at(at, beat)

    # What happens.

    def outage(self, length: float) -> None:
        """The database is away: nothing is written until it is back."""
        self.down_until = self.now + length
        self.database.free_at = self.down_until

        def back() -> None:
            for host in self.hosts:
                self._send(host)

        self.at(self.down_until, back)

    @property
    def up(self) -> int:
        return len(self.runs)


class Figures(NamedTuple):
    """What one scene of one database came to."""

    lasted: float
    """Seconds until all ran."""
    busy: float
    """Share of the time in which the database worked."""
    wait: float
    """Seconds that a commit took, of a hundred the second slowest."""
    renewal: float
    """The same of renewals: the slowest of all."""
    lost: int
    """Leases that were lost until then by hosts that lived."""


def watched(shard: Shard, lasts: float, goal: Callable[[], bool]) -> Figures:
    """Let time pass until the goal is reached, or for so long at most."""
    began, busy = shard.now, shard.database.busy
    shard.waits.clear()
    shard.renewals.clear()
    shard.run(began + lasts, stop=goal)
    waits = sorted(shard.waits) or [0.0]
    return Figures(
        shard.now - began,
        min(1.0, (shard.database.busy - busy) / max(shard.now - began, 1e-9)),
        waits[int(len(waits) * 0.99) - 1 if len(waits) > 1 else 0],
        max(shard.renewals, default=0.0),
        sum(host.lost for host in shard.hosts),
    )


def scenes(hosts: int, units: int, *, lease: float, costs: Costs, seed: int) -> dict[str, Figures]:
    """One database through all that can happen to it."""
    shard = Shard(hosts, units, lease=lease, costs=costs, seed=seed)
    shard.place()
    told = {"all start for the first time": watched(shard, 3600.0, lambda: shard.up >= units)}
    told["a quiet quarter of an hour"] = watched(shard, 900.0, lambda: False)
    dead = shard.dice.sample(shard.hosts, max(1, hosts // 10))
    for host in dead:
        shard.die(host)
    told["a tenth of the hosts is dead"] = watched(shard, 3600.0, lambda: shard.up >= units)
    shard.outage(120.0)
    shard.run(shard.now + 120.0)
    told["the database was away for 2 min"] = watched(shard, 3600.0, lambda: shard.up >= units)
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what it comes to."""
    parser = argparse.ArgumentParser(prog="python -m bench.million", description="A large fleet, simulated.")
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--units", type=int, default=0, help="100 for each host, if not given")
    parser.add_argument("--of", type=int, default=40, metavar="N", help="databases among which they are shared")
    parser.add_argument("--shards", type=int, default=0, help="simulate only so many of the databases")
    parser.add_argument("--lease", type=float, default=15.0, help="seconds")
    parser.add_argument("--commit", type=float, default=Costs().commit * 1000, help="ms of one commit")
    parser.add_argument("--decision", type=float, default=Costs().decision * 1000, help="ms of a decision in it")
    given = parser.parse_args(arguments)
    units = given.units or given.hosts * 100
    hosts, each = given.hosts // given.of, units // given.of
    costs = Costs(given.commit / 1000, given.decision / 1000)
    count = given.shards or given.of
    print(f"{given.hosts:,} hosts and {units:,} units on {given.of} databases: {hosts:,} and {each:,} on each")
    print(f"a commit {given.commit:g} ms, a decision in it {given.decision:g} ms, a lease {given.lease:g} s\n")
    all_told: dict[str, list[Figures]] = {}
    for number in range(count):
        for scene, figures in scenes(hosts, each, lease=given.lease, costs=costs, seed=number).items():
            all_told.setdefault(scene, []).append(figures)
        print(f"\r{number + 1} of {count} databases", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"{'':34}{'all run after':>15}{'database busy':>15}{'commit p99':>12}{'renewal max':>13}{'leases lost':>13}")
    for scene, told in all_told.items():
        lasted = statistics.median(one.lasted for one in told)
        busy, wait = max(one.busy for one in told), max(one.wait for one in told)
        renewal, lost = max(one.renewal for one in told), sum(one.lost for one in told)
        print(f"{scene:34}{lasted:13.1f} s{busy:14.0%}{wait * 1000:9.0f} ms{renewal:11.2f} s{lost:13}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
