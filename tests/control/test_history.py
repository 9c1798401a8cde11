"""`history`: how a unit came to be what it is."""

from typing import Any

import pytest

from flyball.config import Settings
from flyball.control.commands import answer
from flyball.control.context import CommandError
from flyball.core.event import Asked, Beat, Cause, Step, Stepped
from flyball.core.policy import Key
from flyball.core.time import MINUTE, SECOND
from flyball.governor import Governor
from flyball.policies import Cooldown
from flyball.store import Draft, Line
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene

KIND = "abcdef0123456789"


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore())


def history(scene: Scene, unit: str = "web", **args: Any) -> Any:
    return answer(scene.context(), "history", {"unit": unit, **args})


def test_exits(scene: Scene) -> None:
    """How its runs ended, the oldest first, and how long each had lasted."""
    scene.fail("web", KIND, lives=5 * SECOND)
    scene.clock.move(MINUTE)
    scene.start("web", again=True)
    scene.clock.move(7 * SECOND)
    scene.exit("web", Cause.STOPPED, error="max_steps", policy="steps", code=None, signal=15)
    first, second = history(scene)["exits"]
    assert {**first, "at": 0, "seq": 0} == {
        "at": 0,
        "seq": 0,
        "cause": "error",
        "error": "exit 3",
        "code": 3,
        "signal": None,
        "fingerprint": KIND,
        "lasted": 5.0,
        "policy": "",
    }
    assert (second["cause"], second["signal"], second["lasted"], second["policy"]) == ("stopped", 15, 7.0, "steps")
    assert second["at"] == pytest.approx(scene.clock.now() / SECOND)


def test_a_run_whose_start_nobody_remembers(scene: Scene) -> None:
    """How long it lasted is not known, and not made up."""
    scene.flap("web", 1)
    assert [one["lasted"] for one in history(scene)["exits"]] == [None]


def test_ladder(scene: Scene) -> None:
    """The waits that the settings name, the number at which it is held, and how far each kind has come."""
    scene.fail("web", KIND)
    scene.clock.move(2 * SECOND)
    scene.fail("web", KIND)
    ladder = history(scene)["ladder"]
    assert (ladder["steps"], ladder["max"]) == ([1.0, 5.0, 15.0, 300.0, 1800.0], 6)
    [failure] = ladder["failures"]
    assert (failure["fingerprint"], failure["count"], failure["quarantined"]) == (KIND, 2, False)
    assert failure["until"] == pytest.approx(scene.clock.now() / SECOND + 5)
    scene.quarantine("held", KIND)
    assert [one["quarantined"] for one in history(scene, "held")["ladder"]["failures"]] == [True]


@pytest.mark.parametrize(
    ("cooldown", "waits"),
    [
        (Cooldown(ladder=()), [5, 10, 20, 40, 80, 160]),
        (Cooldown(ladder=(), longest=30 * SECOND), [5, 10, 20, 30]),
        (Cooldown(ladder=(), factor=1.0), [5]),
        (Cooldown(ladder=(SECOND,) * 9), [1, 1, 1, 1, 1, 1]),
    ],
    ids=["exponential", "up to the longest", "always the same", "longer than it is climbed"],
)
def test_other_ladders(scene: Scene, cooldown: Cooldown, waits: list[int]) -> None:
    """Where the waits are computed, they are told as they come, up to the longest, or to the quarantine."""
    policies = [cooldown if isinstance(policy, Cooldown) else policy for policy in Settings().policies()]
    scene.governor = Governor(policies, scene.governor.store, scene.clock)
    scene.start("web")
    assert history(scene)["ladder"]["steps"] == waits


def test_flaps(scene: Scene) -> None:
    """What the flapping policy knows."""
    scene.flap("web", 4)
    assert history(scene)["flaps"] == {"state": "degraded", "consecutive": 2, "in_window": 4}


def test_timeline(scene: Scene) -> None:
    """What happened, in words, with who did it and how it sounds. Steps and signs of life are left out, unless
    something was decided."""
    scene.start("web")
    live: dict[str, Any] = {"unit": "web", "run": "r1"}
    scene.governor.submit(Step(pattern="read", **live))
    scene.governor.submit(Stepped(**live))
    scene.governor.submit(Beat(stuck="here", **live))
    scene.governor.submit(Asked(id="q", text="Go?", **live))
    scene.exit("web", fingerprint=KIND)
    answer(scene.context(), "reset", {"fingerprint": KIND})
    told = history(scene)["timeline"]
    assert [(one["text"].partition(";")[0], one["by"], one["tone"]) for one in told] == [
        ("started", "", "good"),
        ("alive", "", "busy"),
        ("asks a person: Go?", "", "busy"),
        ("exited: error: exit 3 (abcdef01)", "cooldown", "bad"),
        ("released by ann via test: failure abcdef01", "ann", ""),
    ]
    assert [one["seq"] for one in told] == sorted(one["seq"] for one in told)


def test_a_start_that_is_refused_for_what_the_exit_said(scene: Scene) -> None:
    """It says nothing new, and has no line; the policy that decided is named, not the first that had a reason. A start
    that is refused for something else has one."""
    scene.quarantine("web", KIND)
    scene.start("web", again=True)
    last = history(scene)["timeline"][-1]
    assert (last["text"].partition(":")[0], last["by"]) == ("exited", "quarantine")
    answer(scene.context(), "pause", {"units": ["web"]})
    scene.start("web", again=True)
    assert history(scene)["timeline"][-1]["text"].startswith("asked to start")


def test_bounds(scene: Scene) -> None:
    """The newest so many; and what cannot be is an error."""
    scene.flap("web", 6)
    said = history(scene, limit=2)
    assert ([one["fingerprint"][-1] for one in said["exits"]], len(said["timeline"])) == (["4", "5"], 2)
    none = history(scene, limit=0)
    assert (none["exits"], none["timeline"]) == ([], [])
    for args, code in (({"limit": 501}, "bad_argument"), ({"unit": "wbe"}, "unknown_unit")):
        with pytest.raises(CommandError) as raised:
            history(scene, **args)
        assert raised.value.code == code


def test_an_entry_that_cannot_be_read(scene: Scene) -> None:
    """The others are told all the same."""
    scene.flap("web", 1)
    line = Line("web", "exited", "proceed", b'{"of": "a later version"}')
    key = Key("x", "unit", "web")
    scene.governor.store.transact([key], lambda snapshot: Draft(snapshot.at, {}, line))
    assert len(history(scene)["exits"]) == 1
