"""What must hold of a fleet whatever was done to it, judged by two independent witnesses: what processes told of
themselves, and what the journal says was granted. Each law gives its breaches as texts, with the runs named."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tests.fleet.witness import Life, overlaps

Entry = Mapping[str, Any]
"""A line of the journal: seq, at, unit, event, verb, body."""
STARTS = ("start", "resume")


class Thaw(NamedTuple):
    """A whole machine that went on, units and all, after its lease was over. Nothing in it can know that before it
    runs again: so its units live until the deadman has had its turn, and no longer."""

    at: int
    pids: frozenset[int]
    lasts_max: float
    """Seconds that are forgiven."""

    def forgives(self, life: Life) -> bool:
        return life.pid in self.pids and life.last <= self.at + self.lasts_max * 1e9


def doubles(lives: Sequence[Life], thaws: Sequence[Thaw] = ()) -> list[str]:
    """At no instant two live runs of a unit."""
    return [str(pair) for pair in overlaps(lives) if not any(thaw.forgives(pair.older) for thaw in thaws)]


def free_starts(lives: Sequence[Life], journal: Sequence[Entry], several: Collection[str] = ()) -> list[str]:
    """Every process belongs to a start that was granted, and no grant was used twice; but for units of which one run is
    `several` processes."""
    granted = Counter((entry["unit"], event(entry)["run"]) for entry in journal if is_granted_start(entry))
    used = Counter((life.unit, life.run) for life in lives)
    return [
        f"{unit}: run {run} was started {times} times and granted {granted[unit, run]} times"
        for (unit, run), times in used.items()
        if times > granted[unit, run] and not (unit in several and granted[unit, run])
    ]


def names_used_twice(journal: Sequence[Entry]) -> list[str]:
    """No two runs have one name."""
    granted = Counter((entry["unit"], event(entry)["run"]) for entry in journal if is_granted_start(entry))
    return [f"{unit}: {times} runs are called {run}" for (unit, run), times in granted.items() if times > 1]


def gaps(journal: Sequence[Entry]) -> list[str]:
    """Numbers rise by one, instants never fall."""
    found = []
    for before, after in pairwise(journal):
        if after["seq"] != before["seq"] + 1:
            found.append(f"a gap in the journal: {before['seq']}, then {after['seq']}")
        if after["at"] < before["at"]:
            found.append(f"time runs back in the journal at {after['seq']}: {before['at']}, then {after['at']}")
    return found


def granted_twice(journal: Sequence[Entry]) -> list[str]:
    """By the journal alone: no start is granted while another run of the unit lives."""
    live: dict[str, str] = {}
    found = []
    for entry in journal:
        unit, run = entry["unit"], event(entry).get("run", "")
        if is_granted_start(entry):
            if unit in live:
                found.append(f"{unit}: run {run} was granted at {entry['seq']} while {live[unit]} lived")
            live[unit] = run
        elif entry["event"] == "exited" and live.get(unit) == run:
            del live[unit]
    return found


def too_many_failures(journal: Sequence[Entry], quarantined_at: int) -> list[str]:
    """No unit failed more often in one way than its quarantine allows, if nobody released it."""
    released = {entry["unit"] for entry in journal if entry["event"] == "released"}
    failures = Counter(
        (entry["unit"], event(entry).get("fingerprint", ""))
        for entry in journal
        if entry["event"] == "exited" and event(entry)["cause"] not in ("done", "stopped")
    )
    return [
        f"{unit}: failed {times} times with {fingerprint}, of {quarantined_at}"
        for (unit, fingerprint), times in failures.items()
        if times > quarantined_at and unit not in released and "" not in released
    ]


def overspent(spent: int, limit: int) -> list[str]:
    """What was really spent is never above the budget."""
    return [f"{spent} credits were spent of {limit}"] if spent > limit else []


def is_granted_start(entry: Entry) -> bool:
    """A start that was granted."""
    return entry["event"] in STARTS and entry["verb"] == "proceed"


def event(entry: Entry) -> dict[str, Any]:
    """What happened, as the journal has it."""
    found: dict[str, Any] = json.loads(entry["body"])["event"]
    return found


def all_of(*laws: Iterable[str]) -> list[str]:
    """Every breach of every law."""
    return [breach for law in laws for breach in law]
