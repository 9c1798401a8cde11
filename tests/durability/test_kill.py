"""kill -9 of processes that ask for leave in a loop, at random instants, several of them on one file.

Whatever the instant: never more is granted than the settings allow, the journal has no gap, replay agrees, the file is
sound. `FLYBALL_KILLS` sets how many kills each test makes, `FLYBALL_SEED` which ones.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from flyball.core.codec import decode_body, decode_state
from flyball.core.event import Step, Stepped
from flyball.core.panel import Panel
from flyball.core.policy import Key
from flyball.policies.budget import State as BudgetState
from flyball.replay import replay
from flyball.store import Entry
from flyball.store.sqlite import SqliteStore
from tests.durability import worker
from tests.zygote import Forked, Zygote

KILLS = int(os.environ.get("FLYBALL_KILLS", "24"))
SEED = int(os.environ.get("FLYBALL_SEED", "1"))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    """Hundreds of processes are made here, and killed."""
    zygote = Zygote("flyball.governor", "flyball.store.sqlite")
    yield zygote
    zygote.close()


class Campaign:
    """Some processes doing one job on one file; each is killed after a random number of acts, and replaced."""

    def __init__(self, zygote: Zygote, job: str, path: Path, processes: int, acts_max: int) -> None:
        self._zygote = zygote
        self.job, self.path = job, path
        self.dice = random.Random(f"{SEED} {job}")
        self.acts: list[str] = []
        self.killed: set[str] = set()
        self._born = 0
        self._acts_max = acts_max
        self._processes = processes

    def run(self, kills: int) -> "Campaign":
        crew = [self._spawn() for _ in range(self._processes)]
        while kills:
            name, process = crew.pop(self.dice.randrange(len(crew)))
            for _ in range(self.dice.randint(0, self._acts_max)):
                if not self._hear(process):
                    break
            process.kill()
            self.killed.add(name)
            kills -= 1
            self._hear_out(process)
            crew.append(self._spawn())
        for _, process in crew:
            self._hear_out(process)
        return self

    def _spawn(self) -> tuple[str, Forked]:
        self._born += 1
        name = f"w{self._born}"
        seed = str(self.dice.randrange(1 << 30))
        process = self._zygote.start("tests.durability.worker", self.job, str(self.path), name, seed)
        process.stdin.close()
        return name, process

    def _hear(self, process: Forked) -> bool:
        line = process.stdout.readline().strip()
        if line:
            self.acts.append(line)
        return bool(line) and line != "refused"

    def _hear_out(self, process: Forked) -> None:
        while self._hear(process):
            pass
        process.stdout.close()
        assert process.wait() in (0, -9)


def all_entries(store: SqliteStore) -> Sequence[Entry]:
    return store.entries(limit=10_000_000)


def check_sound(campaign: Campaign) -> list[Entry]:
    """The file is sound, the journal without a gap, and every decision in it comes out again."""
    with SqliteStore(campaign.path) as store:
        assert store.integrity() == []
        entries = list(all_entries(store))
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        panel = Panel(worker.POLICIES[campaign.job])
        differing = [again for again in replay(panel, store.base(), entries) if not again.agrees]
        assert differing == []
    return entries


@pytest.mark.parametrize(
    ("job", "acts_max", "most"),
    [
        ("steps", 40, worker.STEPS_MAX),
        ("allowance", 40, worker.STEPS_MAX),
        ("resumes", 3, worker.RESUMES_MAX),
        ("starts", 4, worker.ROW_MAX + 1),
    ],
)
def test_never_more_acts_than_allowed(zygote: Zygote, job: str, acts_max: int, most: int, tmp_path: Path) -> None:
    """Law 1: a kill -9 at any instant gives nothing a free attempt, with three processes on one file."""
    campaign = Campaign(zygote, job, tmp_path / "state.db", processes=3, acts_max=acts_max).run(KILLS)
    made = Counter(campaign.acts)
    acts = made.total() - made["refused"]
    assert 0 < acts <= most
    assert made["refused"] >= 1, "the limit was reached"
    entries = check_sound(campaign)
    granted = sum(_granted(entry) for entry in entries)
    assert acts <= granted


def test_budget_is_never_overspent_by_eight_processes(zygote: Zygote, tmp_path: Path) -> None:
    """Decided point 9: spent + reserved never above the limit at any entry; nothing leaks but what the dead held."""
    campaign = Campaign(zygote, "budget", tmp_path / "state.db", processes=8, acts_max=60).run(KILLS)
    entries = check_sound(campaign)
    spent = sum(int(line.split()[1]) for line in campaign.acts if line.startswith("spent"))
    assert 0 < spent <= worker.LIMIT

    settled, reserved = 0, Counter[str]()
    for entry in entries:
        event = decode_body(entry.body).event
        if isinstance(event, Step) and entry.verb == "proceed":
            reserved[event.run] += event.cost["usd"]
        elif isinstance(event, Stepped):
            reserved[event.run] -= event.done[0].reserved["usd"]
            settled += event.done[0].used["usd"]
        assert settled + reserved.total() <= worker.LIMIT
    leaked = +reserved
    assert {run.split(".")[0] for run in leaked} <= campaign.killed
    assert all(amount <= worker.WORST for amount in leaked.values()), "one reservation each at most"

    with SqliteStore(campaign.path) as store:
        for by, subject in (("unit", "u"), ("tree", "t")):
            key = Key("budget", by, subject)
            state = decode_state(BudgetState, store.read([key]).records[key])
            assert (state.spent, state.reserved) == (settled, leaked.total())
    assert spent <= settled + leaked.total()


def _granted(entry: Entry) -> int:
    event = decode_body(entry.body).event
    if entry.verb != "proceed" or not event.asks:
        return 0
    return event.steps if isinstance(event, Step) else 1
