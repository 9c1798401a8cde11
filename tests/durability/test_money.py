"""Random schedules of reserve, settle, kill -9 and restart over eight processes on one file: never overspent.

`FLYBALL_SCHEDULES` sets how many schedules there are (they end after a while in any case, unless it is set),
`FLYBALL_SEED` which ones. What happened is read from the journal, entry by entry, and from what the workers said.
"""

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from flyball.config import Settings
from flyball.control.context import Context
from flyball.control.settling import settle
from flyball.core.codec import decode_body, decode_state
from flyball.core.event import Event, Step, Stepped
from flyball.core.panel import Panel
from flyball.core.policy import Key
from flyball.governor import Governor
from flyball.policies.budget import State as BudgetState
from flyball.policies.reservations import State as Holders
from flyball.replay import replay
from flyball.runtimes.holder import is_gone
from flyball.store import Store
from flyball.store.sqlite import SqliteStore
from tests.durability import money_worker as worker

ROOT = Path(__file__).parents[2]
SCHEDULES = os.environ.get("FLYBALL_SCHEDULES", "")
SEED = os.environ.get("FLYBALL_SEED", "1")
SECONDS = 36_000 if SCHEDULES else 40
SETTLED_MAX = 100
"""Schedules whose dead are settled by a person: each is a command of its own."""

pytestmark = pytest.mark.slow


class Told(NamedTuple):
    """What the conductor says of a schedule."""

    number: int
    tree: bool
    spent: int
    refused: int
    killed: list[str]

    @property
    def key(self) -> tuple[str, str]:
        """The scope and subject of the budget that it shares."""
        return ("tree" if self.tree else "unit"), f"s{self.number}"

    @property
    def units(self) -> list[str]:
        return [f"s{self.number}.{place}" for place in range(worker.WORKERS)] if self.tree else [f"s{self.number}"]


def run(path: Path) -> list[Told]:
    """The schedules, to their end."""
    arguments = [str(path), "0", SCHEDULES or "60", SEED, str(SECONDS)]
    conductor = subprocess.run(
        [sys.executable, "-m", "tests.durability.money_worker", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=max(4 * SECONDS, 300),
        check=False,
    )
    assert conductor.returncode == 0, conductor.stderr
    return [Told(*json.loads(line)) for line in conductor.stdout.splitlines()]


def entries(store: Store) -> Iterator[tuple[str, Event, bool]]:
    """The journal: unit, event, and whether it was granted."""
    after = 0
    while several := store.entries(after=after, limit=10_000):
        for entry in several:
            yield entry.unit, decode_body(entry.body).event, entry.verb == "proceed"
        after = several[-1].seq


def spent_and_reserved(store: Store, by: str, subject: str, name: str = "budget") -> tuple[int, int]:
    key = Key(name, by, subject)
    data = store.read([key]).records.get(key)
    state = decode_state(BudgetState, data) if data else BudgetState()
    return state.spent, state.reserved


def held(store: Store, unit: str) -> Counter[str]:
    """What each run of a unit holds, in micro-dollars, as it was remembered."""
    key = Key("reservations", "unit", unit)
    data = store.read([key]).records.get(key)
    return Counter({one.run: one.amounts.get("usd", 0) for one in decode_state(Holders, data).held} if data else {})


def test_never_overspent(tmp_path: Path) -> None:
    """Spent + reserved <= limit at every entry, in money and in tokens; what was really spent is within it, too; and
    nothing is leaked but what the dead held: that is known, by run, and a person can settle it."""
    told = run(tmp_path / "state.db")
    assert len(told) >= 20
    with SqliteStore(tmp_path / "state.db") as store:
        assert store.integrity() == []
        reserved: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        settled: Counter[str] = Counter()
        tokens: Counter[str] = Counter()
        for unit, event, granted in entries(store):
            schedule = unit.partition(".")[0]
            if isinstance(event, Step) and granted:
                reserved[schedule][unit, event.run] += event.cost["usd"]
                tokens[schedule] += event.cost["tokens"]
            elif isinstance(event, Stepped):
                (work,) = event.done
                reserved[schedule][unit, event.run] -= work.reserved["usd"]
                settled[schedule] += work.used.get("usd", 0)
                tokens[schedule] += work.used.get("tokens", 0) - work.reserved["tokens"]
            assert settled[schedule] + reserved[schedule].total() <= worker.LIMIT
            assert tokens[schedule] <= worker.TOKENS
        for one in told:
            name = f"s{one.number}"
            leaked = +reserved[name]
            assert {run for _, run in leaked} <= set(one.killed)
            assert spent_and_reserved(store, *one.key) == (settled[name], leaked.total())
            assert one.spent <= settled[name] + leaked.total() <= worker.LIMIT
            assert {(unit, run): n for unit in one.units for run, n in held(store, unit).items()} == dict(leaked)
    assert sum(len(one.killed) for one in told) > len(told), "they were killed"
    assert sum(one.refused for one in told) > len(told), "the limit was reached"
    assert {one.tree for one in told} == {True, False}
    sys.stderr.write(f"{len(told)} schedules, {sum(len(one.killed) for one in told)} kills\n")
    _settle_the_dead(tmp_path / "state.db", told[:SETTLED_MAX])
    if not SCHEDULES:
        _replays(tmp_path / "state.db")


def test_the_example() -> None:
    """`python examples/agents/budget.py` ends by itself, and its exit code says that the law held."""
    example = ROOT / "examples" / "agents" / "budget.py"
    shown = subprocess.run([sys.executable, example, SEED], capture_output=True, text=True, timeout=120, check=False)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "the law held" in shown.stdout


def _settle_the_dead(path: Path, told: list[Told]) -> None:
    """A person says of some that all was spent, of others that nothing was: then nothing is reserved any more."""
    leaked = 0
    with SqliteStore(path) as store:
        governor = Governor(worker.POLICIES, store)
        context = Context(governor=governor, settings=Settings(), who="ann", channel="test", gone=is_gone)
        for one in told:
            spent, reserved = spent_and_reserved(store, *one.key)
            leaked += reserved
            nothing = one.number % 2 == 0
            for unit in one.units:
                if held(store, unit):
                    said = settle(context, {**NOTHING_SAID, "unit": unit, "nothing": nothing})
                    assert said["settled"]
                    assert not said["alive"]
            assert spent_and_reserved(store, *one.key) == (spent + (0 if nothing else reserved), 0)
            assert spent_and_reserved(store, *one.key, name="budget_tokens")[1] == 0
    assert leaked > 0, "the dead held something"


NOTHING_SAID = {"usd": None, "used": None, "run": None, "dry_run": False}


def _replays(path: Path) -> None:
    """Every decision in the journal comes out again."""
    with SqliteStore(path) as store:
        every = store.entries(limit=10_000_000)
        assert [entry.seq for entry in every] == list(range(1, len(every) + 1))
        again = replay(Panel(worker.POLICIES), store.base(), every)
        assert [one for one in again if not one.agrees] == []
