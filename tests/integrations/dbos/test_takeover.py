"""To take over from a dead executor: one at a time, and only what is guarded. (With real processes: test_lives.)"""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from dbos import DBOS

from flyball.config import Settings
from flyball.core.event import Cause, Start
from flyball.core.policy import Key
from flyball.governor import Governor
from flyball.integrations.dbos import takeover
from flyball.integrations.dbos.takeover import CLAIM, Claim, take_over
from flyball.runtimes.holder import me
from flyball.store import Draft
from flyball.store.sqlite import SqliteStore
from flyball.testing.clock import FakeClock

pytestmark = pytest.mark.slow  # real servers, and workers that are killed

KEY = Key("dbos_takeover", "executor", "dead")
GONE = "nowhere/1/1"


class Engine:
    """DBOS, as far as it is asked here: which workflows are pending, and where they were put back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pending = {"w1": None, "w2": "slow"}
        self.put_back: list[tuple[str, str | None]] = []
        self.mutex = threading.Lock()
        monkeypatch.setattr(DBOS, "list_workflows", self._list)
        monkeypatch.setattr(DBOS, "resume_workflows", self._resume)

    def _list(self, **how: Any) -> list[Any]:
        assert (how["status"], how["executor_id"], how["name"]) == ("PENDING", "dead", ["work"])
        with self.mutex:
            return [SimpleNamespace(workflow_id=name, queue_name=queue) for name, queue in self.pending.items()]

    def _resume(self, ids: list[str], *, queue_name: str | None) -> None:
        with self.mutex:
            for name in ids:
                self.put_back.append((name, queue_name))
                self.pending.pop(name, None)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(monkeypatch)


@pytest.fixture
def governor(tmp_path: Path) -> Any:
    with SqliteStore(tmp_path / "state.db") as store:
        yield Governor(Settings().policies("session"), store, FakeClock())


def test_one_winner(engine: Engine, governor: Governor) -> None:
    """Of many who notice it at once one takes all over, each workflow to the queue that it was on."""
    ready = threading.Barrier(8)

    def race(_: int) -> list[str]:
        ready.wait()
        return take_over(governor, "dead", ["work"])

    with ThreadPoolExecutor(8) as racers:
        taken = list(racers.map(race, range(8)))
    assert sorted(name for names in taken for name in names) == ["w1", "w2"]
    assert sum(bool(names) for names in taken) == 1
    assert sorted(engine.put_back) == [("w1", None), ("w2", "slow")]
    assert KEY not in governor.store.read([KEY]).records


def claim(governor: Governor, holder: str, until: int) -> None:
    """Another one takes over already."""
    data = msgspec.json.encode(Claim(holder, until))
    governor.store.transact([KEY], lambda _: Draft(governor.clock.now(), {KEY: data}, None))


@pytest.mark.parametrize(
    ("holder", "left", "taken"),
    [
        (GONE, CLAIM, []),
        (GONE, 0, ["w1", "w2"]),
        (me(), CLAIM, []),
        (f"{me().partition('/')[0]}/1/1", CLAIM, ["w1", "w2"]),
    ],
    ids=["of another host", "run out", "of a living process", "of a dead process"],
)
def test_claims(engine: Engine, governor: Governor, holder: str, left: int, taken: list[str]) -> None:
    """Whoever died while it took over keeps nobody from it for long."""
    claim(governor, holder, governor.clock.now() + left)
    assert sorted(take_over(governor, "dead", ["work"])) == taken


def test_its_runs_are_lost(engine: Engine, governor: Governor) -> None:
    """They end at once, though their leases have not run out and their host cannot be seen; others go on."""
    for unit, executor in (("a", "dead"), ("b", "alive")):
        labels = {"executor": executor}
        assert governor.submit(Start(unit=unit, run=unit, holder=f"{GONE}{executor}", labels=labels)).proceeds
    take_over(governor, "dead", ["work"])
    assert [unit for unit, _, _ in governor.live_runs()] == ["b"]
    last = governor.store.last_entries(unit="a", limit=1)[0]
    assert last.event == "exited"
    assert Cause.LOST in last.body.decode()


def test_it_runs_out_while_it_is_made(engine: Engine, governor: Governor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was frozen for longer than its claim lasts puts nothing back: another one did."""
    report = takeover._report_lost

    def frozen(*args: Any) -> None:
        report(*args)
        governor.clock.move(CLAIM)  # type: ignore[attr-defined]  # a fake one

    monkeypatch.setattr(takeover, "_report_lost", frozen)
    assert take_over(governor, "dead", ["work"]) == []
    assert engine.put_back == []
