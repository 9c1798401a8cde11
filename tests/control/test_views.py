"""What people see is computed from states and journal."""

from collections.abc import Sequence

import pytest

from flyball.config import Settings
from flyball.control.past import ORDERS_MAX, Past
from flyball.control.shapes import FleetView, UnitView
from flyball.control.views import Gone, Look
from flyball.core.decision import Verb
from flyball.core.event import Booted, Cause, Held, Released, Resume, Revise, Step, Stepped, Work
from flyball.core.policy import Key
from flyball.core.time import HOUR, MINUTE, SECOND
from flyball.governor import Governor
from flyball.store import Draft, Line
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore())


def unit_view(governor: Governor, unit: str, *, past: Past | None = None, gone: Gone | None = None) -> UnitView:
    return Look(governor, past or Past(), gone=gone).unit(unit)


def fleet_view(governor: Governor, *, units: Sequence[str] = ()) -> tuple[FleetView, tuple[UnitView, ...]]:
    look = Look(governor, Past(), units=units)
    views = tuple(look.unit(unit) for unit in look.units())
    return look.fleet(views), views


def _states(scene: Scene) -> dict[str, str]:
    _, units = fleet_view(scene.governor)
    return {view.name: str(view.state) for view in units}


def test_every_word(scene: Scene) -> None:
    """A unit is healthy, degraded, cooling, quarantined, halted, paused, finished or stopped."""
    scene.everything()
    assert {name.removesuffix("-one"): state for name, state in _states(scene).items()} == {
        word: word
        for word in ("healthy", "degraded", "cooling", "quarantined", "halted", "paused", "finished", "stopped")
    }


def test_failed_is_out_of_resumes() -> None:
    """A session that used up its resumes has failed, and is held."""
    scene = Scene(MemoryStore(), policies=Settings().policies("session"))
    scene.start("s")
    for number in range(5):
        scene.governor.submit(Resume(unit="s", run=f"r{number}"))
        scene.clock.move(HOUR)
        scene.governor.reap()
        scene.clock.move(HOUR)
    view = unit_view(scene.governor, "s")
    assert (view.state, view.held) == ("failed", True)
    assert [reason.code for reason in view.reasons] == ["max_resume_attempts_exceeded"]
    scene.governor.submit(Released(unit="s", policies=("resumes",)))
    assert unit_view(scene.governor, "s").state == "healthy"


def test_failed_is_an_error_without_another_run() -> None:
    """A unit that is not restarted after an error has failed; nobody holds it."""
    policies = Settings.model_validate({"restart_policy": {"enabled": False}}).policies()
    scene = Scene(MemoryStore(), policies=policies)
    scene.fail("u")
    scene.clock.move(HOUR)
    view = unit_view(scene.governor, "u")
    assert (view.state, view.held) == ("failed", False)


def test_fifty_in_a_row_are_halted() -> None:
    """Too many failing runs in a row, each of another kind: halted."""
    scene = Scene(MemoryStore(), ago=0)
    for number in range(52):
        scene.clock.move(7 * MINUTE)
        scene.start("u", again=number > 0)
        scene.clock.move(2 * MINUTE)
        scene.exit("u", fingerprint=f"{number:016x}")
    view = unit_view(scene.governor, "u")
    assert (view.state, view.held, view.failures_in_a_row) == ("halted", True, 51 + 1)


def test_stopped_by_a_person(scene: Scene) -> None:
    """A unit that a person told to stop is stopped, and stays so when its run has ended."""
    scene.start("u")
    scene.governor.submit(Held(unit="u", verb=Verb.STOP, by="ann"))
    view = unit_view(scene.governor, "u")
    assert (view.state, view.running) == ("stopped", True)
    scene.exit("u", Cause.STOPPED)
    view = unit_view(scene.governor, "u")
    assert (view.state, view.running) == ("stopped", False)


def test_a_pause_hides_no_quarantine(scene: Scene) -> None:
    """Of several holds the one that needs most attention is named, and all reasons are there."""
    scene.quarantine("u")
    scene.governor.submit(Held(unit="u", by="ann"))
    view = unit_view(scene.governor, "u")
    assert view.state == "quarantined"
    assert {reason.code for reason in view.reasons if reason.verb == "hold"} == {"quarantined", "paused"}


def test_a_running_unit_is_not_cooling(scene: Scene) -> None:
    """What only concerns starts (a circuit that is open, a storm) says nothing of a run that lives."""
    scene.start("u")
    for unit in ("a", "b", "c", "d", "e"):
        scene.exit(unit, fingerprint=unit)
    fleet, units = fleet_view(scene.governor)
    states = {view.name: (str(view.state), view.running) for view in units}
    assert states["u"] == ("healthy", True)
    assert states["a"] == ("cooling", False)
    assert fleet.breaker == "open"


def test_a_lost_run(scene: Scene) -> None:
    """A run whose lease ran out, or whose holder is gone, does not run."""
    scene.start("u")
    assert unit_view(scene.governor, "u").running
    view = unit_view(scene.governor, "u", gone=lambda _: True)
    assert not view.running
    assert [live.lost for live in view.live] == [True]
    scene.clock.move(HOUR)
    assert not unit_view(scene.governor, "u").running


def test_numbers(scene: Scene) -> None:
    """Restarts, failures in a row, fingerprints with counts, the last exit, the run and its age."""
    scene.fail("u", "aaaa")
    scene.clock.move(MINUTE)
    assert scene.start("u", again=True).proceeds
    scene.clock.move(2 * MINUTE)
    scene.exit("u", fingerprint="aaaa", code=None, signal=9, error="SIGKILL")
    scene.clock.move(MINUTE)
    assert scene.start("u", labels={"user": "bob"}).proceeds
    scene.clock.move(10 * SECOND)
    view = unit_view(scene.governor, "u")
    assert (view.restarts.last_hour, view.restarts.total, view.restarts.by_hand) == (2, 1, 1)
    assert view.failures_in_a_row == 2
    assert [(kind.fingerprint, kind.count, kind.error) for kind in view.failures] == [("aaaa", 2, "SIGKILL")]
    assert view.last_exit is not None
    assert (view.last_exit.cause, view.last_exit.signal, view.last_exit.code) == ("error", 9, None)
    assert [live.age for live in view.live] == [10.0]
    assert view.labels == {"user": "bob"}
    assert view.since == (scene.clock.now() - 10 * SECOND) / SECOND


def test_until(scene: Scene) -> None:
    """A unit that waits says until when, by the reason that lasts longest."""
    scene.flap("u", 3)
    view = unit_view(scene.governor, "u")
    assert view.until == scene.clock.now() / SECOND + 30
    assert view.reasons[0].code == "flapping"
    scene.clock.move(MINUTE)
    assert unit_view(scene.governor, "u").until is None


def test_money() -> None:
    """A budget says what was spent, is reserved, and may be spent."""
    scene = Scene(MemoryStore(), policies=Settings().policies("session"))
    scene.start("s")
    cost = {"usd": 300_000}
    assert scene.governor.submit(Step(unit="s", run="r1", cost=cost)).proceeds
    scene.governor.submit(Stepped(unit="s", run="r1", done=(Work(reserved=cost, used={"usd": 200_000}),)))
    assert scene.governor.submit(Step(unit="s", run="r1", cost=cost)).proceeds
    [budget] = unit_view(scene.governor, "s").budgets
    assert (budget.spent, budget.reserved, budget.limit, budget.by) == (200_000, 300_000, 1_000_000, "unit")


def test_revision_and_orders(scene: Scene) -> None:
    """The revision in force, and the last orders with who gave them."""
    scene.governor.submit(Revise(unit="u", revision="abc", by="ann"))
    for number in range(ORDERS_MAX):
        scene.governor.submit(Held(unit="u", by=f"person {number}", note="why"))
    scene.governor.submit(Released(unit="u", by="bob"))
    scene.governor.submit(Released(unit="u", policies=("quarantine",), fingerprint="1234567890", by="bob"))
    view = unit_view(scene.governor, "u")
    assert view.revision == "abc"
    assert len(view.orders) == ORDERS_MAX
    assert [(order.order, order.by) for order in view.orders[-3:]] == [
        ("pause", "person 4"),
        ("resume", "bob"),
        ("reset 12345678", "bob"),
    ]


def test_remedies_name_the_unit(scene: Scene) -> None:
    """What a person is to type is there in full; what holds the fleet is lifted without a name."""
    scene.governor.submit(Held(unit="u", by="ann"))
    assert unit_view(scene.governor, "u").reasons[0].remedy == "To go on: `flyball resume u`."
    scene.governor.submit(Released(unit="u"))
    scene.governor.submit(Held(scope="fleet", by="ann"))
    assert unit_view(scene.governor, "u").reasons[0].remedy == "To go on: `flyball resume`."


# The fleet.


def test_fleet_at_rest(scene: Scene) -> None:
    """A fleet that nobody holds runs, even an empty one; units of the settings are there before they ran."""
    fleet, units = fleet_view(scene.governor, units=["never-ran"])
    assert (fleet.state, fleet.held, fleet.breaker, fleet.storm) == ("running", False, "closed", False)
    assert [(view.name, view.state, view.since) for view in units] == [("never-ran", "healthy", None)]
    assert fleet.counts == {"healthy": 1}


def test_fleet_paused_by_a_storm(scene: Scene) -> None:
    """A storm at boot pauses the fleet, and every unit that does not run."""
    scene.flap("u", 11)
    scene.governor.submit(Booted(holder="h"))
    fleet, [view] = fleet_view(scene.governor)
    assert (fleet.state, fleet.storm, fleet.held) == ("paused", True, True)
    assert "restart_storm_detected" in [reason.code for reason in fleet.reasons]
    assert view.held


def test_fleet_drains(scene: Scene) -> None:
    """A fleet that was told to finish drains while something runs, and is paused then."""
    scene.start("u")
    scene.governor.submit(Held(scope="fleet", verb=Verb.FINISH, by="ann"))
    assert fleet_view(scene.governor)[0].state == "draining"
    scene.exit("u", Cause.STOPPED)
    assert fleet_view(scene.governor)[0].state == "paused"


def test_breakers(scene: Scene) -> None:
    """The circuit is open, then half-open; one of a label is shown beside the fleet's."""
    policies = Settings.model_validate({"circuit_breaker": {"labels": ["provider"]}}).policies()
    scene = Scene(MemoryStore(), policies=policies)
    for unit in ("a", "b", "c", "d", "e"):
        scene.exit(unit, fingerprint=unit, labels={"provider": "acme"})
    fleet, _ = fleet_view(scene.governor)
    assert fleet.breaker == "open"
    assert {(one.by, one.subject, one.state) for one in fleet.breakers} == {
        ("fleet", "", "open"),
        ("provider", "acme", "open"),
    }
    scene.clock.move(2 * MINUTE)
    assert fleet_view(scene.governor)[0].breaker == "half-open"


# What the flapping policy knows.


def test_policy_state(scene: Scene) -> None:
    """S4-18, S4-20: `state` answers healthy, degraded or halted with flaps in a row and failing exits in the window."""
    said = []
    for _ in range(7):
        scene.flap("u", 1)
        state = Look(scene.governor, Past()).policy_state("u")
        said.append((state.state, state.consecutive_flaps, state.exits_in_window))
    assert said == [
        ("healthy", 0, 1),
        ("healthy", 0, 2),
        ("degraded", 1, 3),
        ("degraded", 2, 4),
        ("degraded", 3, 5),
        ("degraded", 4, 6),
        ("halted", 5, 7),
    ]
    unknown = Look(scene.governor, Past()).policy_state("nobody")
    assert (unknown.state, unknown.consecutive_flaps, unknown.exits_in_window) == ("healthy", 0, 0)


# The past.


def test_the_past_goes_on_where_it_stopped(scene: Scene) -> None:
    """A past that is kept reads only what is new, and comes to the same as one that is read anew."""
    past = Past()
    for number in range(4):
        scene.fail("u", f"f{number}")
        scene.clock.move(HOUR)
        kept = unit_view(scene.governor, "u", past=past)
        assert kept == unit_view(scene.governor, "u")
    assert kept.restarts.by_hand == 3


def test_a_state_that_cannot_be_read(scene: Scene) -> None:
    """A damaged state is shown as a reason; everything else is there all the same."""
    scene.quarantine("u")
    keys = [Key("quarantine", "unit", "u"), Key("exclusive", "unit", "u"), Key("breaker", "fleet", "")]
    changes: dict[Key, bytes | None] = dict.fromkeys(keys, b'{"failures": 7, "runs": 7}')
    line = Line("u", "broken", "proceed", b'{"event":{"event":"beat"},"decision":{}}')
    scene.governor.store.transact(keys, lambda seen: Draft(seen.at, changes, line))
    view = unit_view(scene.governor, "u")
    assert "policy_failed" in [reason.code for reason in view.reasons]
    assert view.last_exit is not None


def test_units_are_known_by_settings_states_and_journal(scene: Scene) -> None:
    """Whoever was named once is listed."""
    scene.start("started")
    scene.governor.submit(Held(unit="held"))
    assert Look(scene.governor, Past(), units=["set"]).units() == ["held", "set", "started"]
