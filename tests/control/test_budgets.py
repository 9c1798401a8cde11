"""`budgets` and `spend`: what each may spend, and how it was spent."""

from typing import Any

import pytest

from flyball.config import Settings
from flyball.control.commands import answer
from flyball.control.context import CommandError
from flyball.control.spending import POINTS_MAX
from flyball.core.event import Raised, Released, Step, Stepped, Work
from flyball.core.time import DAY, HOUR, MINUTE, SECOND, Span
from flyball.governor import Governor
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene

CENT = 10_000


@pytest.fixture
def scene() -> Scene:
    """Budgets of units, runs, users and the fleet; tokens, too."""
    made = Scene(MemoryStore())
    given = {
        "per_run": 2,
        "per_unit": 5,
        "per_user": 10,
        "per_fleet": 100,
        "period": "day",
        "meters": {"tokens": {"per_user": 1_000}},
    }
    made.settings = Settings.model_validate({"budget": given})
    made.governor = Governor(made.settings.policies(), made.governor.store, made.clock)
    # A day has to last for all of a test.
    made.clock.set((made.clock.now() // DAY + 1) * DAY)
    return made


def spend(scene: Scene, unit: str, cents: int, *, run: str = "r1", tokens: int = 0, after: Span = MINUTE) -> None:
    """One step that costs so much."""
    who: dict[str, Any] = {"unit": unit, "run": run, "labels": {"user": "ann"}}
    cost = {"usd": cents * CENT, **({"tokens": tokens} if tokens else {})}
    scene.clock.move(after)
    assert scene.governor.submit(Step(cost=cost, **who)).proceeds
    scene.governor.submit(Stepped(done=(Work(reserved=cost, used=cost),), **who))


def budgets(scene: Scene, **args: Any) -> Any:
    return answer(scene.context(), "budgets", args)["budgets"]


def test_everybodys(scene: Scene) -> None:
    """Each budget that anything was spent of, what is used up most first; with its period."""
    spend(scene, "shop", 180, tokens=100)
    shown = {(one["by"], one["subject"], one["meter"]): one for one in budgets(scene)}
    assert list(shown) == [
        ("run", "shop/r1", "usd"),
        ("unit", "shop", "usd"),
        ("user", "ann", "usd"),
        ("user", "ann", "tokens"),
        ("fleet", "", "usd"),
    ]
    assert [(one["unit"], one["spent"], one["limit"], one["every"]) for one in shown.values()] == [
        ("shop", 180 * CENT, 200 * CENT, 0),
        ("shop", 180 * CENT, 500 * CENT, DAY / SECOND),
        ("", 180 * CENT, 1_000 * CENT, DAY / SECOND),
        ("", 100, 1_000, 0),
        ("", 180 * CENT, 10_000 * CENT, DAY / SECOND),
    ]


def test_the_fleets_is_always_there(scene: Scene) -> None:
    """Though nothing was spent of it yet."""
    assert [(one["by"], one["spent"]) for one in budgets(scene)] == [("fleet", 0)]


def test_raised(scene: Scene) -> None:
    """The limit is the one in force; how much of it a person added is told."""
    spend(scene, "shop", 100)
    scene.governor.submit(Raised(unit="shop", more={"usd": 300 * CENT}, by="ann"))
    [shown] = [one for one in budgets(scene) if one["by"] == "unit"]
    assert (shown["limit"], shown["raised"]) == (800 * CENT, 300 * CENT)
    [view] = [one for one in answer(scene.context(), "unit", {"unit": "shop"})["budgets"] if one["by"] == "unit"]
    assert (view["limit"], view["raised"]) == (800 * CENT, 300 * CENT)


def test_another_day(scene: Scene) -> None:
    """What was spent yesterday is not spent of today's money."""
    spend(scene, "shop", 100)
    scene.clock.move(DAY)
    assert [one["spent"] for one in budgets(scene) if one["by"] == "unit"] == [0]


def test_whose_limit_nobody_knows(scene: Scene) -> None:
    """A program may have budgets that these settings do not have: what is stored is shown without a limit."""
    spend(scene, "shop", 100)
    scene.governor = Governor(Settings().policies(), scene.governor.store, scene.clock)
    assert {(one["by"], one["limit"]) for one in budgets(scene)} == {
        (by, None) for by in ("run", "unit", "user", "fleet")
    }


def test_left_out(scene: Scene) -> None:
    """So many as are asked for, and how many are not told."""
    spend(scene, "shop", 100)
    said = answer(scene.context(), "budgets", {"limit": 1})
    assert (len(said["budgets"]), said["left_out"]) == (1, 3)


# Over time.


def curve(scene: Scene, unit: str | None = "shop", **args: Any) -> Any:
    return answer(scene.context(), "spend", {"unit": unit, **args})


def points(said: Any) -> list[int]:
    return [spent // CENT for _, spent in said["points"]]


def test_a_unit(scene: Scene) -> None:
    """The counter of the budget that is used up most, as it grew, against its limit."""
    scene.start("shop")
    for cents in (10, 20, 30):
        spend(scene, "shop", cents)
    said = curve(scene)
    assert points(said) == [0, 10, 30, 60]
    assert (said["by"], said["limit"], said["spent"], said["meter"]) == ("run", 200 * CENT, 60 * CENT, "usd")


def test_the_fleet(scene: Scene) -> None:
    """All units together, against the fleet's budget."""
    spend(scene, "shop", 10)
    spend(scene, "mail", 20)
    said = curve(scene, None)
    assert (points(said), said["limit"], said["by"]) == ([10, 30], 10_000 * CENT, "fleet")


def test_another_run_begins_anew(scene: Scene) -> None:
    """Of a budget of each run, the curve falls when the run does."""
    scene.start("shop")
    spend(scene, "shop", 150)
    scene.exit("shop")
    scene.clock.move(HOUR)
    scene.start("shop")
    spend(scene, "shop", 190, run="r2")
    said = curve(scene)
    assert said["by"] == "run"
    assert [point for point in points(said) if point] == [150, 190]
    assert 0 in points(said)


def test_what_was_spent_before(scene: Scene) -> None:
    """Of a budget for ever, the curve begins with what was spent before its first hour; a release starts it anew."""
    scene.governor = Governor(
        Settings.model_validate({"budget": {"per_unit": 5}}).policies(), scene.governor.store, scene.clock
    )
    spend(scene, "shop", 100)
    spend(scene, "shop", 50, after=3 * HOUR)
    assert points(curve(scene, hours=1)) == [150]
    scene.governor.submit(Released(unit="shop", policies=("budget",), by="ann"))
    spend(scene, "shop", 20)
    assert points(curve(scene, hours=1))[-1] == 20


def test_midnight(scene: Scene) -> None:
    """Of a budget a day, the curve falls at midnight, also if nothing was spent since."""
    scene.clock.move(23 * HOUR)
    spend(scene, "mail", 100)
    scene.clock.move(2 * HOUR)
    assert points(curve(scene, None))[-1] == 0
    spend(scene, "mail", 30)
    assert points(curve(scene, None)) == [100, 30]


def test_many_points(scene: Scene) -> None:
    """No more than a screen shows, and the last one is always there."""
    scene.start("shop")
    for _ in range(400):
        spend(scene, "shop", 0)
        who: dict[str, Any] = {"unit": "shop", "run": "r1", "labels": {"user": "ann"}}
        scene.governor.submit(Stepped(done=(Work(used={"usd": 100}),), **who))
    said = curve(scene)
    assert POINTS_MAX // 3 < len(said["points"]) <= POINTS_MAX
    assert said["points"][-1][1] == 400 * 100
    instants = [at for at, _ in said["points"]]
    assert instants == sorted(instants)


@pytest.mark.parametrize(
    ("args", "code"),
    [({"unit": "shpo"}, "unknown_unit"), ({"hours": 0}, "bad_argument"), ({"hours": 745}, "bad_argument")],
    ids=str,
)
def test_wrong(scene: Scene, args: dict[str, Any], code: str) -> None:
    """What cannot be told is an error with what is allowed."""
    spend(scene, "shop", 10)
    with pytest.raises(CommandError) as raised:
        answer(scene.context(), "spend", args)
    assert (raised.value.code, bool(raised.value.remedy)) == (code, True)


def test_nothing_was_spent(scene: Scene) -> None:
    """Then there is no curve yet, and that is no error."""
    scene.start("shop")
    said = curve(scene)
    assert (said["points"], said["spent"], said["limit"]) == ([], 0, 500 * CENT)
