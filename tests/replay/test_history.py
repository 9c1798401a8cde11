"""A journal under other settings: what would have become of it."""

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flyball.control.text import entry_data
from flyball.core.event import Booted, Cause, Exited, Held, Start, Step, Stepped, Work
from flyball.core.panel import Panel
from flyball.core.policy import AnyPolicy
from flyball.core.time import DAY, FOREVER, HOUR, MINUTE, SECOND
from flyball.governor import Governor
from flyball.policies import Budget, Cooldown, Deadline, Exclusive, Quarantine, Stall
from flyball.replay import export
from flyball.replay.export import Told, told
from flyball.replay.history import Course, Record, Window
from flyball.replay.lines import Lines
from flyball.runtimes.scenarios import SCENARIOS, Options
from flyball.store.memory import MemoryStore
from flyball.testing.clock import START_OF_TIME, FakeClock
from flyball.testing.simulator import Plan, Unit, default_policies, failing, simulate, with_long_leases

ALL_MAX = 1_000_000
ALWAYS = Window(0, FOREVER)


def entries_of(store: MemoryStore) -> list[Told]:
    return [told(entry) for entry in store.entries(limit=ALL_MAX)]


def course(entries: Sequence[Told], policies: Sequence[AnyPolicy], window: Window = ALWAYS) -> Course:
    """The course that these policies give it."""
    found = Course("other", Panel(policies), MemoryStore().base(), window)
    for entry in entries:
        found.hear(entry)
    return found


def record(entries: Sequence[Told], window: Window = ALWAYS) -> Record:
    found = Record("recorded", window)
    for entry in entries:
        found.hear(entry)
    return found


class House:
    """A governor whose journal is replayed."""

    def __init__(self, *policies: AnyPolicy) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.governor = Governor(policies, self.store, self.clock)
        self.runs = 0

    def start(self, **more: Any) -> str:
        self.runs += 1
        self.governor.submit(Start(unit="u", run=str(self.runs), holder="h", **more))
        return str(self.runs)

    def step(self, call: str = "a", cost: int = 0, **more: Any) -> None:
        """A step of the last run, asked for and made."""
        money = {"usd": cost} if cost else {}
        self.governor.submit(Step(unit="u", run=str(self.runs), pattern="p", call=call, cost=money))
        self.clock.move(SECOND)
        work = Work(pattern="p", call=call, result="r", reserved=money, used=money)
        self.governor.submit(Stepped(unit="u", run=str(self.runs), done=(work,), **more))

    def exit(self, cause: Cause = Cause.DONE, fingerprint: str = "") -> None:
        self.governor.submit(Exited(unit="u", run=str(self.runs), cause=cause, fingerprint=fingerprint))

    @property
    def entries(self) -> list[Told]:
        return entries_of(self.store)


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "random-faults"])
def test_the_same_settings_change_nothing(name: str) -> None:
    """Every decision agrees, both sides come to the same sums, and nothing is saved: for every scenario."""
    scenario = SCENARIOS[name]
    policies = with_long_leases(default_policies(scenario.kind))
    store = MemoryStore()
    simulate(Panel(policies), store, scenario.plan(Options(days=3 if name == "fails-once-a-day" else None)))
    entries = entries_of(store)
    again, was = course(entries, policies), record(entries)
    assert (again.differing, again.first, again.weighed) == (0, None, len(entries))
    assert replace(again.side, name="recorded", cases=[]) == was.side
    assert again.side.cases == []


def test_fewer_starts() -> None:
    """A stricter quarantine: what would not have started is saved, with the case that says when and why."""
    policies = with_long_leases(default_policies())
    store = MemoryStore()
    simulate(policies, store, Plan(units=[Unit(name="unit", lives=failing(3 * SECOND))], lasts_max=2 * HOUR))
    stricter = [replace(policy, failures_max=3) if isinstance(policy, Quarantine) else policy for policy in policies]
    entries = entries_of(store)
    was, other = record(entries).side, course(entries, stricter).side
    assert (was.starts, other.starts, other.saved_starts, other.starts_refused) == (6, 3, 3, 3)
    assert other.reasons["quarantine", "quarantined", "hold"] > 0
    assert other.cases[0].verb == "hold"
    assert other.cases[0].at is not None
    assert START_OF_TIME < other.cases[0].at < entries[-1].at


def test_starts_that_are_put_off() -> None:
    """A longer cooldown: a start that came too soon is left out; a later one is not."""
    house = House(Exclusive(), Cooldown(ladder=(SECOND,)))
    for wait in (MINUTE, MINUTE, HOUR, MINUTE):
        house.start()
        house.exit(Cause.ERROR, "f")
        house.clock.move(wait)
    other = course(house.entries, [Exclusive(), Cooldown(ladder=(10 * MINUTE,))]).side
    assert (other.starts, other.starts_put_off, other.saved_starts, other.starts_refused) == (2, 2, 2, 0)


def test_a_circle_that_was_let_go_on() -> None:
    """What was recorded after its end is saved: steps and money; the next start by itself is refused."""
    house = House(Exclusive(), Stall(stop_at=900, repeats_max=900))
    house.start()
    for _ in range(10):
        house.step(cost=250)
    house.exit()
    was, other = record(house.entries).side, course(house.entries, [Exclusive(), Stall()]).side
    assert (was.steps, other.steps, other.saved_steps, other.ended) == (10, 4, 6, 1)
    assert (was.spent["usd"], other.spent["usd"], other.saved["usd"]) == (2500, 1000, 1500)
    assert "a circle of one step since step 1" in other.cases[0].text
    assert other.cases[0].at == START_OF_TIME + 4 * SECOND


def test_within_an_allowance() -> None:
    """Steps that were reported together are ended at the one that closes the circle."""
    house = House(Exclusive(), Stall(stop_at=900, repeats_max=900))
    house.start()
    works = tuple(Work(pattern="p", call="a", result="r", used={"usd": 10}) for _ in range(20))
    house.governor.submit(Stepped(unit="u", run="1", done=works))
    house.exit()
    other = course(house.entries, [Exclusive(), Stall()]).side
    assert (other.steps, other.saved_steps, other.saved["usd"]) == (4, 16, 160)


def test_a_refused_call() -> None:
    """It was made in the record; here the agent is told that it was refused, and is ended for insisting."""
    house = House(Exclusive(), Stall(refuse_at=900, stop_at=900, repeats_max=900))
    house.start()
    for call in ("x", "a", "b", "a", "b", "c", "a", "a", "a", "a"):
        house.step(call)
    house.exit()
    other = course(house.entries, [Exclusive(), Stall(nudge_at=3, refuse_at=4, stop_at=6)]).side
    assert other.calls_refused == 2
    assert other.saved_steps == other.calls_refused + 1
    assert other.ended == 1


def test_a_deadline_between_two_signs_of_life() -> None:
    """A run that said nothing for an hour would have been asked, and ended, when its time was up."""
    house = House(Exclusive(lease=2 * HOUR))
    house.start()
    house.step()
    house.clock.move(HOUR)
    house.step("b")
    house.exit()
    other = course(house.entries, [Exclusive(lease=2 * HOUR), Deadline(lasts_max=10 * MINUTE)]).side
    assert (other.ended, other.steps, other.saved_steps) == (1, 1, 1)
    assert other.cases[0].at == START_OF_TIME + 10 * MINUTE


def test_laxer_settings_let_go() -> None:
    """What was refused or ended then and would not be now is counted. What would have followed is not made up."""
    house = House(Exclusive(), Stall(), Budget(limit=2_000, by="unit"))
    house.start()
    for _ in range(4):
        house.step(cost=500)
    house.exit(Cause.STOPPED)
    house.start()
    house.step("new", cost=500)
    other = course(house.entries, [Exclusive(), Stall(stop_at=900, repeats_max=900), Budget(limit=9_000, by="unit")])
    assert other.side.let_go == 2
    assert other.side.steps == record(house.entries).side.steps
    assert other.differing > 0
    assert other.first is not None
    assert other.first.seq > 1


def test_since() -> None:
    """Only what is not older is counted; what came before is known all the same."""
    policies = with_long_leases(default_policies())
    store = MemoryStore()
    simulate(policies, store, Plan(units=[Unit(name="unit", lives=failing(3 * SECOND))], lasts_max=2 * HOUR))
    entries = entries_of(store)
    window = Window([entry.at for entry in entries if isinstance(entry.event, Start)][3], entries[-1].at)
    late = course(entries, policies, window)
    assert (late.differing, late.side.starts, record(entries, window).side.starts) == (0, 3, 3)
    assert sum(late.side.slices) == 3


def test_other_entries_are_heard() -> None:
    """Orders and boots too: what a person held stays held."""
    house = House(*with_long_leases(default_policies()))
    house.governor.submit(Booted(holder="h", units=1))
    house.governor.submit(Held(unit="u", by="ann"))
    house.start()
    policies = with_long_leases(default_policies())
    found = course(house.entries, policies)
    assert found.differing == 0
    assert (found.side.starts, found.side.starts_refused) == (0, 1)


def test_written_out_and_read_back(tmp_path: Path) -> None:
    """What `flyball events --json` prints has what is needed: each entry comes back as it was, to the microsecond."""
    policies = [*with_long_leases(default_policies("agent")), Budget(limit=9_000_000)]
    house = House(*policies)
    house.clock.move(123_457)
    house.start(labels={"user": "ann"})
    for number in range(5):
        house.step(str(number), cost=1_000)
    house.clock.move(7 * DAY + 1)
    house.exit(Cause.ERROR, "f")
    house.start()
    path = tmp_path / "journal.jsonl"
    lines = [json.dumps(entry_data(entry)) for entry in house.store.entries(limit=ALL_MAX)]
    path.write_text("\n".join(lines))
    with closing(Lines(str(path))) as written:
        read = list(export.read(written))
    assert read == house.entries
    assert course(read, policies).differing == 0
