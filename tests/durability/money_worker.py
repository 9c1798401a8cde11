"""Eight processes that reserve and settle on one file, and somebody who kills them: one random schedule after another.

The conductor has one thread and forks its workers, so that a new one is there within a millisecond or two of the kill.
In a schedule each worker makes a few random moves; what it really spends is a line on its pipe, written after the
reservation was granted and before it is settled, so that no kill can hide it. Schedules share nothing but the file:
each has a unit of its own, or, where sub-agents share a tree, a tree of its own with a unit for each worker.
"""

import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal

from flyball.core.amounts import MILLION
from flyball.core.policy import AnyPolicy
from flyball.governor import Governor
from flyball.policies import Budget, Reservations
from flyball.runtimes.holder import me
from flyball.runtimes.money import Purse, Reservation
from flyball.runtimes.refusal import OutOfBudget
from flyball.store.sqlite import SqliteStore

WORKERS = 8
LIMIT = 1_000_000
TOKENS = LIMIT // 1_000
WORST = LIMIT // 4
MOVES_MAX = 4
KILLS_MAX = 4
KILL_WITHIN = 0.02
"""Seconds after the beginning of a schedule: about as long as one takes."""
PATIENCE = 60
"""Seconds for one schedule, which takes a tenth of one: then something hangs."""

POLICIES: Sequence[AnyPolicy] = [
    Budget(limit=LIMIT, by="unit"),
    Budget(limit=LIMIT, by="tree"),
    Budget(limit=TOKENS, by="unit", meter="tokens", name="budget_tokens"),
    Budget(limit=TOKENS, by="tree", meter="tokens", name="budget_tokens"),
    Reservations(),
]


def names_of(schedule: int, tree: bool, place: int) -> tuple[str, dict[str, str]]:
    """The unit and the labels of a worker in a schedule."""
    return (f"s{schedule}.{place}", {"tree": f"s{schedule}"}) if tree else (f"s{schedule}", {})


# A worker.


def work(path: str, orders: int, said: int) -> None:
    """Take part in schedules until there are no more orders."""
    run = me()
    with SqliteStore(path) as store, os.fdopen(orders) as lines:
        governor = Governor(POLICIES, store)
        for line in lines:
            schedule, tree, place, seed = line.split()
            unit, labels = names_of(int(schedule), tree == "tree", int(place))
            take_part(Purse(governor, unit, run, labels), random.Random(seed), said)
            os.write(said, b"done\n")


def take_part(purse: Purse, dice: random.Random, said: int) -> None:
    """A few moves; at most two reservations at a time."""
    held: list[Reservation] = []
    for _ in range(dice.randint(1, MOVES_MAX)):
        amount = dice.randint(1, WORST)
        try:
            held.append(purse.reserve({"usd": Decimal(amount) / MILLION, "tokens": amount // 1_000}))
        except OutOfBudget:
            os.write(said, b"refused\n")
        if held and (len(held) == 2 or dice.random() < 0.8):
            close(held.pop(dice.randrange(len(held))), dice, said)
    for money in held:
        close(money, dice, said)


def close(money: Reservation, dice: random.Random, said: int) -> None:
    """Spend, and say so; or let it be."""
    worst = money.reserved["usd"]
    match dice.randrange(4):
        case 0:
            money.cancel()
        case 1:
            os.write(said, f"spent {worst}\n".encode())
            with suppress(KeyError), money:
                raise KeyError("the call failed, and nobody knows what it cost")
        case _:
            used = dice.randint(0, worst)
            os.write(said, f"spent {used}\n".encode())
            money.settle({"usd": Decimal(used) / MILLION, "tokens": used // 1_000})


# The conductor.


@dataclass
class Worker:
    """A process, and the pipes to it."""

    pid: int
    run: str
    orders: int
    said: int
    rest: bytes = b""
    busy: bool = False


@dataclass
class Schedule:
    """What happened in one."""

    number: int
    tree: bool
    spent: int = 0
    refused: int = 0
    killed: list[str] = field(default_factory=list)


class Conductor:
    """Forks, orders and kills."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._crew: list[Worker] = []

    def run(self, number: int, seed: str) -> Schedule:
        """One schedule, to its end."""
        dice = random.Random(f"{seed} {number}")
        schedule = Schedule(number, dice.random() < 0.5)
        while len(self._crew) < WORKERS:
            self._crew.append(self._fork())
        for place in range(WORKERS):
            self._order(schedule, place, dice)
        began = time.monotonic()
        kills = sorted(began + dice.random() * KILL_WITHIN for _ in range(dice.randint(0, KILLS_MAX)))
        while any(worker.busy for worker in self._crew):
            now = time.monotonic()
            assert now < began + PATIENCE, f"schedule {number} of seed {seed} hangs"
            if kills and now >= kills[0]:
                kills.pop(0)
                self._kill(schedule, dice)
            self._hear(schedule, max(0.0, kills[0] - now) if kills else PATIENCE)
        return schedule

    def close(self) -> None:
        """No more orders: the workers end."""
        for worker in self._crew:
            os.close(worker.orders)
            os.close(worker.said)
            os.waitpid(worker.pid, 0)

    def _order(self, schedule: Schedule, place: int, dice: random.Random) -> None:
        worker = self._crew[place]
        tree = "tree" if schedule.tree else "unit"
        os.write(worker.orders, f"{schedule.number} {tree} {place} {dice.getrandbits(60)}\n".encode())
        worker.busy = True

    def _kill(self, schedule: Schedule, dice: random.Random) -> None:
        """Kill one, hear what it had said, and put another in its place, which takes part, too."""
        place = dice.randrange(WORKERS)
        worker = self._crew[place]
        os.kill(worker.pid, signal.SIGKILL)
        os.waitpid(worker.pid, 0)
        while data := os.read(worker.said, 65_536):
            self._heard(schedule, worker, data)
        os.close(worker.said)
        os.close(worker.orders)
        schedule.killed.append(worker.run)
        self._crew[place] = self._fork()
        self._order(schedule, place, dice)

    def _hear(self, schedule: Schedule, timeout: float) -> None:
        workers = {worker.said: worker for worker in self._crew if worker.busy}
        for ready in select.select(list(workers), [], [], timeout)[0]:
            data = os.read(ready, 65_536)
            assert data, f"worker {workers[ready].run} ended by itself"
            self._heard(schedule, workers[ready], data)

    def _heard(self, schedule: Schedule, worker: Worker, data: bytes) -> None:
        *lines, worker.rest = (worker.rest + data).split(b"\n")
        for line in lines:
            match line.split():
                case [b"spent", amount]:
                    schedule.spent += int(amount)
                case [b"refused"]:
                    schedule.refused += 1
                case [b"done"]:
                    worker.busy = False

    def _fork(self) -> Worker:
        orders, order = os.pipe()
        hear, said = os.pipe()
        ready, is_ready = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                for other in (order, hear, ready, *(fd for one in self._crew for fd in (one.orders, one.said))):
                    with suppress(OSError):
                        os.close(other)
                os.write(is_ready, me().encode())
                os.close(is_ready)
                work(self._path, orders, said)
            finally:
                os._exit(0)
        for other in (orders, said, is_ready):
            os.close(other)
        run = os.read(ready, 1_000).decode()
        os.close(ready)
        return Worker(pid, run, order, hear)


def main() -> None:
    path, first, count, seed, seconds = sys.argv[1:]
    conductor = Conductor(path)
    ends = time.monotonic() + float(seconds)
    for number in range(int(first), int(first) + int(count)):
        if time.monotonic() > ends:
            break
        done = conductor.run(number, seed)
        sys.stdout.write(json.dumps([done.number, done.tree, done.spent, done.refused, done.killed]) + "\n")
    sys.stdout.flush()
    conductor.close()


if __name__ == "__main__":
    main()
