"""Misfortune by dice: from a seed, what befalls which host when, and when it is over. Then it is carried out on a real
cluster, and at the end all is mended. The same seed gives the same plan; what comes of it is up to the machine."""

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from tests.fleet.cluster import Cluster, Host
from tests.fleet.judge import Thaw
from tests.fleet.net import STORE
from tests.fleet.witness import now

TICK: Final = 0.1
"""Seconds between looks at what is due, and at what has to be started again."""
REVIVED_AFTER: Final = 0.5
"""Seconds between the end of a host's guardian and its next start: as systemd would do it."""
FORGIVEN: Final = 0.5
"""Seconds that a unit may live on a machine that was frozen as a whole. It takes the deadman a few milliseconds, on a
machine that is not busy."""

HARMS: Final = {
    "kill daemon": 3,
    "kill guardian": 2,
    "kill deadman": 2,
    "kill units": 1,
    "kill all": 4,
    "freeze daemon": 4,
    "freeze guardian": 1,
    "freeze deadman": 1,
    "freeze group": 3,
    "freeze all": 2,
    "cut": 5,
    "deafen": 3,
    "slow": 2,
    "clock": 3,
}
"""What befalls a host, and how often in proportion."""
STORE_HARMS: Final = {"kill store": 1}
ORDERS: Final = {"pause": 3, "drain": 2, "move": 3, "restart": 2}


class Deed(NamedTuple):
    """Something that is done, and until when it stays so."""

    at: float
    what: str
    whom: str
    lasts: float

    def __str__(self) -> str:
        return f"{self.at:6.2f} {self.what} {self.whom} for {self.lasts:.2f} s"


def schedule(seed: int, hosts: Sequence[str], units: Sequence[str], *, lasts: float, lease: float) -> list[Deed]:
    """What happens. A host suffers one harm at a time, for a fraction of its lease or a few of them."""
    dice = random.Random(seed)
    free = dict.fromkeys([*hosts, STORE], 0.0)
    deeds, at = [], 0.0
    while (at := at + dice.expovariate(1 / 0.9)) < lasts:
        span = min(dice.choice((0.3, 0.6, 1.0, 1.4, 2.5)) * lease * dice.uniform(0.7, 1.3), lasts - at)
        kind = dice.choices(("harm", "store", "order"), (7, 1, 3))[0]
        if kind == "order":
            what = _one(dice, ORDERS)
            whom = dice.choice(hosts) if what == "drain" else dice.choice(units)
            deeds.append(Deed(at, what, whom, span))
            continue
        whom = STORE if kind == "store" else dice.choice(hosts)
        if free[whom] <= at:
            deeds.append(Deed(at, _one(dice, STORE_HARMS if whom == STORE else HARMS), whom, span))
            free[whom] = at + span + 0.5
    return deeds


def _one(dice: random.Random, weights: dict[str, int]) -> str:
    return dice.choices(list(weights), list(weights.values()))[0]


class Run:
    """One schedule, carried out."""

    def __init__(self, cluster: Cluster, deeds: Sequence[Deed], seed: int) -> None:
        self._cluster = cluster
        self._dice = random.Random(seed)
        self._due = sorted(deeds)
        self._ends: list[Deed] = []
        self._frozen: dict[str, frozenset[int]] = {}
        self._dead_since: dict[str, float] = {}
        self._people = ThreadPoolExecutor(4)
        self.thaws: list[Thaw] = []
        self.told: list[str] = []
        """What was done, for whoever has to find out why."""

    def go(self) -> None:
        """Carry all of it out, and mend everything at the end."""
        begun = time.monotonic()
        while self._due or self._ends:
            passed = time.monotonic() - begun
            while self._due and self._due[0].at <= passed:
                deed = self._due.pop(0)
                self._tell(str(deed))
                self._do(deed)
                self._ends.append(deed)
            for deed in [deed for deed in self._ends if deed.at + deed.lasts <= passed]:
                self._ends.remove(deed)
                self._undo(deed)
            self._revive()
            time.sleep(TICK)
        self._people.shutdown()
        self._tell("mended")

    def all_run(self, patience: float, *, but: Sequence[str]) -> float:
        """Wait until every unit runs, and all hosts are up again; seconds until every unit ran."""
        begun = time.monotonic()
        took = 0.0
        before: set[str] = set()
        cluster = self._cluster
        undone: set[str] = set()
        while True:
            self._revive()
            self._take_back(undone)
            missing = set(cluster.units) - set(but) - cluster.alive().keys()
            took = 0.0 if missing else took or time.monotonic() - begun
            if missing and missing != before:
                self._tell(f"missing: {', '.join(sorted(missing))}")
            before = missing
            if not missing and len(undone) == len(cluster.hosts) + 1:
                return took
            if time.monotonic() > begun + patience:
                raise AssertionError(f"{sorted(missing)} do not run after {patience:g} s; taken back: {sorted(undone)}")
            time.sleep(TICK)

    def _do(self, deed: Deed) -> None:
        verb, _, part = deed.what.partition(" ")
        cluster = self._cluster
        if deed.whom == STORE:
            cluster.kill_store()
        elif deed.whom not in cluster.hosts:
            self._order(deed)
        elif deed.what == "drain":
            self._soon("drain", host=deed.whom, force=True)
        else:
            self._harm(cluster.hosts[deed.whom], verb, part)

    def _harm(self, host: Host, verb: str, part: str) -> None:
        network = self._cluster.network
        match verb:
            case "kill":
                host.kill(part)  # type: ignore[arg-type]  # one of HARMS
            case "freeze":
                host.freeze(part)  # type: ignore[arg-type]  # the same
                if part == "all":
                    self._frozen[host.name] = frozenset(host.pids("units"))
            case "cut":
                network.cut(host.name)
            case "deafen":
                network.deafen(host.name)
            case "slow":
                network.slow(host.name)
            case "clock":
                host.clock(self._dice.choice((-1, 1, 24)))

    def _undo(self, deed: Deed) -> None:
        verb, _, part = deed.what.partition(" ")
        cluster = self._cluster
        if deed.whom == STORE:
            cluster.start_store()
        elif deed.what == "pause":
            self._soon("resume", units=[deed.whom])
        elif deed.what == "drain":
            self._soon("undrain", host=deed.whom)
        elif deed.whom in cluster.hosts:
            host = cluster.hosts[deed.whom]
            if verb == "freeze":
                at = now()
                host.thaw()
                if part == "all":
                    self.thaws.append(Thaw(at, self._frozen.pop(host.name), FORGIVEN))
            elif verb == "clock":
                host.clock(0)
            elif verb != "kill":
                cluster.network.heal(host.name)
        self._tell(f"over: {deed}")

    def _order(self, deed: Deed) -> None:
        if deed.what == "move":
            self._soon("move", unit=deed.whom, host=self._dice.choice(list(self._cluster.hosts)))
        else:
            self._soon(deed.what, units=[deed.whom])

    def _soon(self, verb: str, **args: Any) -> None:
        """Ask without waiting: who is cut off answers late, and what is next is due at its time."""
        self._people.submit(self._ordered, verb, **args)

    def _ordered(self, verb: str, **args: Any) -> None:
        done = self._ask(verb, **args)
        self._tell(f"{verb} {args}: {'done' if done else 'not done'}")

    def _ask(self, verb: str, **args: Any) -> bool:
        """Ask hosts until one answers."""
        hosts = list(self._cluster.hosts.values())
        random.Random(len(self.told)).shuffle(hosts)
        return any(not host.is_frozen and host.asked(verb, **args) for host in hosts)

    def _take_back(self, undone: set[str]) -> None:
        """What was ordered while nobody could hear that it is over."""
        for host in self._cluster.hosts.values():
            if host.name not in undone and host.answers() and self._ask("undrain", host=host.name):
                undone.add(host.name)
        if "" not in undone and self._ask("resume", units=sorted(self._cluster.units)):
            undone.add("")

    def _revive(self) -> None:
        """Start what is down, as whatever starts at boot would do."""
        for host in self._cluster.hosts.values():
            if host.is_up:
                self._dead_since.pop(host.name, None)
            elif time.monotonic() - self._dead_since.setdefault(host.name, time.monotonic()) > REVIVED_AFTER:
                del self._dead_since[host.name]
                self._tell(f"start {host.name}")
                host.start()

    def _tell(self, text: str) -> None:
        self.told.append(f"{now() / 1e9:.3f} {text}")
