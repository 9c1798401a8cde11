"""The laws of a fleet are breached by what breaches them: a judge that finds nothing has looked."""

import json
from typing import Any

import pytest

from tests.fleet import judge
from tests.fleet.judge import Thaw
from tests.fleet.schedule import HARMS, ORDERS, Deed, schedule
from tests.fleet.witness import Life


def _entry(seq: int, unit: str, event: str, run: str = "", *, verb: str = "proceed", at: int = 0, **more: Any) -> Any:
    body = json.dumps({"event": {"event": event, "unit": unit, "run": run, **more}, "decision": {}})
    return {"seq": seq, "at": at or seq, "unit": unit, "event": event, "verb": verb, "body": body}


def _exit(seq: int, unit: str, run: str, cause: str = "error") -> Any:
    return _entry(seq, unit, "exited", run, cause=cause, fingerprint="f")


GOOD = [
    _entry(1, "", "joined"),
    _entry(2, "u", "start", "one"),
    _exit(3, "u", "one", "lost"),
    _entry(4, "u", "start", "two"),
    _entry(5, "u", "start", "three", verb="wait"),
]
LIVES = [Life("u", "one", 1, 10, 20), Life("u", "two", 2, 21, 30)]


def test_nothing_to_blame() -> None:
    """A takeover in order breaches nothing."""
    assert judge.doubles(LIVES) == judge.free_starts(LIVES, GOOD) == judge.gaps(GOOD) == []
    assert (
        judge.granted_twice(GOOD)
        == judge.names_used_twice(GOOD)
        == judge.too_many_failures(GOOD, 1)
        == judge.overspent(5, 5)
        == []
    )


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (judge.doubles([LIVES[0]._replace(last=22), LIVES[1]]), "run one (pid 1) still lived"),
        (
            judge.free_starts([*LIVES, Life("u", "three", 3, 40, 50)], GOOD),
            "run three was started 1 times and granted 0 times",
        ),
        (
            judge.free_starts([*LIVES, Life("u", "two", 3, 40, 50)], GOOD),
            "run two was started 2 times and granted 1 times",
        ),
        (judge.names_used_twice([*GOOD, _entry(6, "u", "start", "two")]), "u: 2 runs are called two"),
        (judge.gaps(GOOD[:2] + GOOD[3:]), "a gap in the journal: 2, then 4"),
        (judge.gaps([*GOOD, _entry(6, "", "joined", at=4)]), "time runs back in the journal at 6"),
        (judge.granted_twice(GOOD[:2] + GOOD[3:]), "run two was granted at 4 while one lived"),
        (judge.granted_twice([*GOOD[:2], _exit(3, "u", "zero"), GOOD[3]]), "run two was granted at 4"),
        (judge.too_many_failures([_exit(1, "u", "one"), _exit(2, "u", "two")], 1), "u: failed 2 times with f, of 1"),
        (judge.overspent(6, 5), "6 credits were spent of 5"),
    ],
)
def test_breach(found: list[str], says: str) -> None:
    """Each law names what breached it."""
    assert len(found) == 1
    assert says in found[0]


@pytest.mark.parametrize(
    ("thaw", "blamed"),
    [
        (Thaw(20, frozenset({1}), 3e-9), 0),
        (Thaw(20, frozenset({1}), 1e-9), 1),
        (Thaw(20, frozenset({2}), 3e-9), 1),
    ],
    ids=["in time", "too long", "another process"],
)
def test_what_is_forgiven(thaw: Thaw, blamed: int) -> None:
    """Of a machine that was frozen as a whole its own processes are forgiven, for a moment."""
    lives = [LIVES[0]._replace(last=22), LIVES[1]]
    assert len(judge.doubles(lives, [thaw])) == blamed


def test_several_processes_of_one_run() -> None:
    """Of a unit that forks, each process belongs to its one start; but to one that was granted."""
    assert judge.free_starts([*LIVES, LIVES[1]._replace(pid=3)], GOOD, ["u"]) == []
    assert len(judge.free_starts([*LIVES, Life("u", "three", 3, 40, 50)], GOOD, ["u"])) == 1


def test_a_release_allows_more_failures() -> None:
    """Whom a person released may fail anew."""
    failures = [_exit(1, "u", "one"), _exit(2, "u", "two"), _entry(3, "u", "released")]
    assert judge.too_many_failures(failures, 1) == []


def test_schedules() -> None:
    """A seed is a plan; another is another one; every misfortune comes up in some; none outlasts its schedule, and no
    host suffers two at once."""
    made = [schedule(seed, "abc", ["u", "v"], lasts=20, lease=3) for seed in range(60)]
    assert made[3] == schedule(3, "abc", ["u", "v"], lasts=20, lease=3)
    assert made[3] != made[4]
    assert {deed.what for deeds in made for deed in deeds} == {*HARMS, *ORDERS, "kill store"}
    for deeds in made:
        assert all(deed.at + deed.lasts <= 20.001 for deed in deeds)
        harms = [deed for deed in deeds if deed.what not in ORDERS]
        assert not any(_both(one, other) for one in harms for other in harms if one < other)


def _both(one: Deed, other: Deed) -> bool:
    return one.whom == other.whom and one.at <= other.at <= one.at + one.lasts
