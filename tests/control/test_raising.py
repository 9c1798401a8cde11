"""`raise`: a person allows more than a budget says, and what waited for that goes on."""

from typing import Any

import pytest

from flyball.config import Settings
from flyball.control.commands import answer
from flyball.control.context import CommandError
from flyball.core.codec import decode_body
from flyball.core.event import Cause, Held, Ordered, Raised, Released, Resume
from flyball.core.time import DAY
from flyball.governor import Governor
from flyball.policies import Restart
from flyball.policies.budget import OVER_BUDGET
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene
from tests.control.work import Piece

CENT = 10_000


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore())


def budgeted(scene: Scene, **budget: Any) -> Scene:
    scene.settings = Settings.model_validate({"budget": budget})
    scene.governor = Governor(scene.settings.policies(), scene.governor.store, scene.clock)
    return scene


def bankrupt(scene: Scene, name: str = "thesis", **settings: Any) -> Piece:
    """A session that spent its dollar, and was ended for that."""
    piece = Piece(scene, name, user="ann", **settings)
    assert piece.begin().proceeds
    piece.step(used={"usd": 100 * CENT}, keeps=b'{"page": 1}')
    assert OVER_BUDGET in piece.ask().codes
    piece.end(Cause.STOPPED, error=OVER_BUDGET, policy="budget")
    return piece


def raise_(scene: Scene, more: str = "1.00", **args: Any) -> Any:
    return answer(scene.context(**args.pop("context", {})), "raise", {"more": more, **args})


def begins_by_itself(piece: Piece) -> bool:
    """Whether its supervisor, which nobody asked, may resume it now."""
    return piece.governor.look(Resume(unit=piece.name, run="next", labels=piece.labels, again=True)).proceeds


def journal(scene: Scene) -> list[Any]:
    return [decode_body(entry.body).event for entry in scene.governor.store.entries()]


def test_it_goes_on(scene: Scene) -> None:
    """Raised and resumed, in that order, the session can be resumed, and spends what was added; and not a cent more."""
    piece = bankrupt(scene)
    assert not piece.resume().proceeds
    assert not begins_by_itself(piece)
    told: list[tuple[str, str]] = []
    said = raise_(scene, unit="thesis", resume=True, context={"poke": lambda *order: told.append(order)})
    assert (said["limit"], said["raised"], said["spent"]) == (200 * CENT, 100 * CENT, 100 * CENT)
    assert (said["by"], said["resumed"]) == ("unit", ["thesis"])
    assert told == [("thesis", "resume")]
    kinds = [type(event) for event in journal(scene)]
    assert kinds.index(Raised) < kinds.index(Released) < kinds.index(Ordered)
    assert begins_by_itself(piece)
    assert piece.resume().proceeds
    assert piece.step(used={"usd": 60 * CENT}).proceeds
    assert piece.step(used={"usd": 40 * CENT}).codes == (OVER_BUDGET,)
    assert next(one for one in journal(scene) if isinstance(one, Raised)).note == "via test"


def test_without_resume(scene: Scene) -> None:
    """Then there is more money, and it still waits for a person; whoever waits for a period is told to ask again."""
    piece = bankrupt(scene)
    told: list[tuple[str, str]] = []
    assert raise_(scene, unit="thesis", context={"poke": lambda *order: told.append(order)})["resumed"] == []
    assert told == [("thesis", "raise")]
    assert not begins_by_itself(piece)
    answer(scene.context(), "resume", {"units": ["thesis"]})
    assert begins_by_itself(piece)


@pytest.mark.parametrize("died", ["before the release", "before the line of the audit trail"])
def test_killed_in_between(scene: Scene, died: str) -> None:
    """Whatever of it was written stands, and the rest can be done again: nothing is let go without money, and the money
    is there once."""
    piece = bankrupt(scene)
    scene.governor.submit(Raised(unit="thesis", more={"usd": 100 * CENT}, by="ann", note="via test"))
    if died == "before the line of the audit trail":
        scene.governor.submit(Released(unit="thesis", policies=("restart",), by="ann", note="via test"))
    scene.governor = Governor(scene.governor.panel, scene.governor.store, scene.clock)
    assert begins_by_itself(piece) is (died == "before the line of the audit trail")
    if died == "before the release":
        answer(scene.context(), "resume", {"units": ["thesis"]})
    assert piece.resume().proceeds
    assert piece.step(used={"usd": 100 * CENT}).codes == (OVER_BUDGET,)


def test_one_that_runs(scene: Scene) -> None:
    """It gets more while it runs; there is nothing to resume, and that is no error."""
    piece = Piece(scene, "thesis")
    piece.begin()
    piece.step(used={"usd": 100 * CENT})
    assert raise_(scene, unit="thesis", resume=True)["resumed"] == []
    assert piece.ask().proceeds


def test_the_run_that_lives(scene: Scene) -> None:
    """Where each run has its budget, the one that lives gets more, and the next one has what the settings say."""
    budgeted(scene, per_run=1)
    scene.start("shop")
    said = raise_(scene, unit="shop")
    assert (said["by"], said["limit"]) == ("run", 200 * CENT)
    scene.exit("shop", Cause.DONE)
    with pytest.raises(CommandError, match=r"does not run, and each run of it has 1\.00 USD") as raised:
        raise_(scene, unit="shop")
    assert "flyball resume shop" in raised.value.remedy


def test_a_users(scene: Scene) -> None:
    """More for a day; of his units those go on that ended for want of money, and no others."""
    budgeted(scene, per_user=2, period="day")
    scene.clock.set((scene.clock.now() // DAY + 1) * DAY)
    poor = bankrupt(scene, "poor", budget={"per_user": 2, "period": "day"})
    held = bankrupt(scene, "held", budget={"per_user": 2, "period": "day"})
    scene.governor.submit(Held(unit="held", by="bob"))
    said = raise_(scene, user="ann", resume=True)
    assert (said["by"], said["subject"], said["limit"]) == ("user", "ann", 300 * CENT)
    assert said["resumed"] == ["held", "poor"]
    assert (poor.resume().codes, held.resume().codes) == ((OVER_BUDGET,), ("cost_budget_exceeded", "paused"))
    raise_(scene, unit="poor")
    assert poor.resume().proceeds, "both budgets have room now"
    scene.clock.move(DAY)
    assert answer(scene.context(), "unit", {"unit": "poor"})["budgets"][0]["raised"] == 100 * CENT


def test_the_fleets(scene: Scene) -> None:
    """More for all; of another meter than money, too."""
    budgeted(scene, per_fleet=5, meters={"tokens": {"per_fleet": 100}})
    assert raise_(scene, fleet=True)["limit"] == 600 * CENT
    assert raise_(scene, "50", fleet=True, meter="tokens")["limit"] == 150
    assert raise_(scene, "0.000001", fleet=True)["limit"] == 600 * CENT + 1


def test_the_one_that_is_used_up(scene: Scene) -> None:
    """Of several budgets of a unit, the one that is used up most is raised."""
    budgeted(scene, per_run=2, per_unit=1)
    scene.start("shop")
    scene.governor.submit(Raised(unit="shop", more={"usd": 1}, by="ann"))
    assert raise_(scene, unit="shop")["by"] in ("run", "unit")
    piece = Piece(scene, "mail", budget={"per_run": 2, "per_unit": 1})
    piece.begin()
    piece.step(used={"usd": 90 * CENT})
    assert raise_(scene, unit="mail")["by"] == "unit"


def test_not_its_own_budget_holds_it_back(scene: Scene) -> None:
    """A unit with money of its own, whose user has none left: it is said whose budget that is."""
    budgeted(scene, per_user=1)
    piece = Piece(scene, "thesis", user="ann", budget={"per_user": 1, "max_cost_per_session": 5})
    piece.begin()
    piece.step(used={"usd": 100 * CENT})
    with pytest.raises(CommandError) as raised:
        raise_(scene, unit="thesis")
    assert (raised.value.code, raised.value.remedy) == (
        "no_budget",
        "Raise that of its user: `flyball raise --user ann AMOUNT`.",
    )
    piece.end(Cause.STOPPED, error=OVER_BUDGET, policy="budget")
    [problem] = answer(scene.context(), "problems", {})["problems"]
    [action] = problem["actions"]
    assert (action["args"], action["destructive"]) == ({"user": "ann", "more": "1.00", "resume": True}, True)
    assert action["label"] == "Raise the user’s budget by 1.00 USD and resume"
    assert answer(scene.context(), action["verb"], action["args"])["resumed"] == ["thesis"]
    assert answer(scene.context(), "problems", {})["problems"] == []
    assert begins_by_itself(piece)


def test_what_the_problem_offers(scene: Scene) -> None:
    """The one safe thing to do about a session without money is what helps."""
    piece = bankrupt(scene)
    [problem] = answer(scene.context(), "problems", {})["problems"]
    [action] = problem["actions"]
    assert (action["label"], action["destructive"]) == ("Raise by 1.00 USD and resume", False)
    answer(scene.context(), action["verb"], action["args"])
    assert begins_by_itself(piece)


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ({"more": "1"}, "bad_argument", "needs a unit, a user, or the fleet"),
        ({"more": "1", "unit": "thesis", "fleet": True}, "bad_argument", "one of them"),
        ({"more": "1", "unit": "thesis", "user": "ann"}, "bad_argument", "one of them"),
        ({"unit": "thesis"}, "bad_argument", "more is ''"),
        ({"unit": "thesis", "more": "0"}, "bad_argument", "more than nothing"),
        ({"unit": "thesis", "more": "-1"}, "bad_argument", "from 0 to 1000000000"),
        ({"unit": "thesis", "more": "1e12"}, "bad_argument", "from 0 to 1000000000"),
        ({"unit": "thesis", "more": "NaN"}, "bad_argument", "from 0 to"),
        ({"unit": "thesis", "more": "0.0000001"}, "bad_argument", "finer than a millionth"),
        ({"unit": "thesis", "more": "lots"}, "bad_argument", "an amount such as 0.50"),
        ({"unit": "thesis", "more": 1}, "bad_argument", "more has to be a text"),
        ({"unit": "thesis", "more": "1.5", "meter": "tokens"}, "bad_argument", "a whole number above 0"),
        ({"unit": "thesis", "more": "5", "meter": "tokens"}, "no_budget", "no budget of tokens"),
        ({"unit": "thesiss", "more": "1"}, "unknown_unit", "did you mean thesis?"),
        ({"unit": "plain", "more": "1"}, "no_budget", "plain has no budget of usd of its own"),
        ({"user": "ann", "more": "1"}, "no_budget", "the user ann has no budget of usd; none is set"),
        ({"user": "anne", "more": "1"}, "unknown_user", "did you mean ann?"),
        ({"fleet": True, "more": "1"}, "no_budget", "the fleet has no budget of usd"),
        ({"unit": "thesis", "more": "1", "note": "x" * 501}, "bad_argument", "a note of 501 characters"),
    ],
    ids=lambda case: str(case)[:60],
)
def test_refused(scene: Scene, args: dict[str, Any], code: str, says: str) -> None:
    """What cannot be raised is refused with what to do, and nothing changed."""
    bankrupt(scene)
    scene.start("plain")
    before = scene.governor.store.states(), len(scene.governor.store.entries())
    with pytest.raises(CommandError) as raised:
        answer(scene.context(), "raise", args)
    assert (raised.value.code, bool(raised.value.remedy)) == (code, True)
    assert says in str(raised.value)
    assert (scene.governor.store.states(), len(scene.governor.store.entries())) == before


def test_what_waits_for_a_person_for_another_reason_stays(scene: Scene) -> None:
    """A raise is about money: a quarantine is not lifted by it."""
    piece = bankrupt(scene)
    for _ in range(6):
        scene.governor.submit(Released(unit="thesis", policies=(Restart().name, "resumes"), by="ann"))
        scene.clock.move(DAY // 30)
        piece.resume()
        piece.end(Cause.ERROR, error="exit 3", fingerprint="f" * 16)
    raise_(scene, unit="thesis", resume=True)
    assert "quarantined" in piece.resume().codes
    assert answer(scene.context(), "unit", {"unit": "thesis"})["state"] == "quarantined"
