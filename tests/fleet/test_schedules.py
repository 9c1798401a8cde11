"""Many misfortunes at once, by dice: three hosts, a dozen units, half a minute of kills, freezes, cuts, wrong clocks, a
database that dies, and people who give orders meanwhile. Whatever comes: at no instant two runs of a unit, no start
that was not granted, no failure too many, no budget overspent, no gap in the journal, all back when it is over.

`FLYBALL_FLEET_SEEDS=100` runs so many seeds, `FLYBALL_FLEET_SEEDS=41,73` these; `FLYBALL_FLEET_LASTS=60` for longer.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fleet import judge
from tests.fleet.cluster import PATIENCE, Cluster, cluster, unit, until
from tests.fleet.schedule import Run, schedule
from tests.fleet.witness import now, spent

LASTS = float(os.environ.get("FLYBALL_FLEET_LASTS", "10"))
"""Seconds of misfortune."""
CREDITS = 1_500
QUARANTINED_AT = 25
CRASHER, SPENDERS, FORKS, RULE = "crasher", ("spender1", "spender2"), "child", "tick"

UNITS = {
    **{f"w{number}": unit() for number in range(4)},
    "stubborn": unit("--stubborn", grace="6s"),
    FORKS: unit("--child"),
    "kept": unit(on_supervisor_death="keep"),
    "first": unit(),
    "second": unit(after=["first"]),
    "pinned": unit(host="b"),
    "zoned": unit(host_labels={"zone": "x"}),
    CRASHER: unit("--fails-after", "0.3"),
    **{name: unit("--spends", "3", kind="agent", labels={"tree": "money"}) for name in SPENDERS},
}
SETTINGS = {
    "quarantine": {"max_failures_before_quarantine": QUARANTINED_AT},
    "safety": {"max_loop_iterations": 1_000_000},
    "budget": {"meters": {"credits": {"per_tree": CREDITS}}},
    "rules": {RULE: {"triggers": [{"every": 1.5}], "actions": [{"run": unit("--ends-after", "1")["command"]}]}},
}


def _seeds() -> Sequence[int]:
    asked = os.environ.get("FLYBALL_FLEET_SEEDS", "2")
    return [int(seed) for seed in asked.split(",") if seed] if "," in asked else range(int(asked))


@pytest.mark.slow
@pytest.mark.parametrize("seed", _seeds())
def test_schedule(seed: int, tmp_path: Path) -> None:
    """Any misfortunes, in any order, and nothing that may not happen happens."""
    with cluster(tmp_path) as fleet:
        for host in fleet.hosts.values():
            del host.env["FLYBALL_QUARANTINE__MAX_FAILURES_BEFORE_QUARANTINE"]
            if host.name != "c":
                host.env["FLYBALL_HOST__LABELS"] = "{zone: x}"
        fleet.write(UNITS, **SETTINGS)
        fleet.up()
        fleet.run_all(PATIENCE, but=[CRASHER, *SPENDERS])
        run = Run(fleet, schedule(seed, list(fleet.hosts), list(UNITS), lasts=LASTS, lease=fleet.lease), seed)
        complaint = ""
        try:
            run.go()
            mended = now()
            took = run.all_run(PATIENCE, but=[CRASHER, *SPENDERS])
            until(
                lambda: any(life.unit == RULE and life.first > mended for life in fleet.lives()), "the rule fires again"
            )
            print(f"seed {seed}: {len(run.told)} things happened, all ran again {took:.1f} s after the last")
        except AssertionError as error:
            complaint = str(error)
        fleet.down()
        breaches = [*filter(None, [complaint]), *_breaches(fleet, run)]
        story = "\n".join(
            ["", f"seed {seed}, {fleet.network.kind}", *breaches, "", *run.told, fleet.past(), fleet.says()]
        )
        assert not breaches, story


def _breaches(fleet: Cluster, run: Run) -> list[str]:
    journal, lives = fleet.journal(), fleet.lives()
    return judge.all_of(
        judge.doubles(lives, run.thaws),
        judge.free_starts(lives, journal, several=[FORKS, RULE]),
        judge.gaps(journal),
        judge.granted_twice(journal),
        judge.names_used_twice(journal),
        judge.too_many_failures(journal, QUARANTINED_AT),
        judge.overspent(spent(fleet.notes), CREDITS),
        [f"{unit} still runs" for unit in fleet.alive()],
        [] if any(life.unit == CRASHER for life in lives) and spent(fleet.notes) else ["nobody crashed, or spent"],
    )
