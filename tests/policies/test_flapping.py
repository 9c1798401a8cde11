"""Flapping: a unit that keeps exiting soon after each start is slowed down, then held."""

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Cause
from flyball.core.time import DAY, MINUTE, SECOND
from flyball.policies.flapping import Flapping
from tests.policies.walk import Walk

PROCEEDS = "proceeds"
TWO = "2 s"
THIRTY = "30 s"
HALTED = "halted"


def fed(*exits: tuple[int, float], policy: Flapping | None = None) -> tuple[Walk, str]:
    """Exits (code, second), as the documents feed them: without starts. The walk, and the action after the last."""
    walk = Walk(policy or Flapping())
    for code, second in exits:
        walk.at(second)
        decision = walk.fail() if code else walk.end()
    if decision.verb is Verb.HOLD:
        return walk, HALTED
    if decision.proceeds:
        return walk, PROCEEDS
    return walk, {2 * SECOND: TWO, 30 * SECOND: THIRTY}[decision.until - walk.now]


@pytest.mark.parametrize(
    ("exits", "action", "flaps"),
    [
        ([(0, 0)], PROCEEDS, 0),
        ([(1, 0)], TWO, 0),
        ([(1, 0), (1, 10), (1, 20)], THIRTY, 1),
        ([(1, 0), (1, 1), (1, 2)], THIRTY, 1),
        ([(1, n) for n in range(6)], THIRTY, 4),
        ([(1, n) for n in range(7)], HALTED, 5),
        ([*((1, n) for n in range(7)), (1, 8)], HALTED, 5),
        ([*((1, n) for n in range(7)), (0, 8)], HALTED, 5),
        ([(1, 0), (1, 1), (1, 2), (0, 3)], PROCEEDS, 0),
        ([(1, 0), (1, 1), (1, 2), (1, 120)], TWO, 0),
        ([(1, 0), (1, 1), (0, 2), (1, 3)], THIRTY, 1),
        ([(1, 0), (1, 110), (1, 120)], TWO, 0),
    ],
    ids=str,
)
def test_the_documents_cases(exits: list[tuple[int, float]], action: str, flaps: int) -> None:
    """The table of cases, exit by exit. (S4-02 to S4-16)"""
    walk, done = fed(*exits)
    assert done == action
    assert walk.state.flaps == flaps


def test_ten_exits_are_kept() -> None:
    """Of fifteen exits ten are kept. (S4-12)"""
    walk, _ = fed(*((1, n * 100) for n in range(15)))
    assert len(walk.state.exits) == 10


@pytest.mark.parametrize(("lived", "within"), [(60, 2), (60.000001, 1)])
def test_boundary_is_inclusive(lived: float, within: int) -> None:
    """A failing exit of exactly 60 s ago, of lived time, still counts. (S4-14)"""
    policy = Flapping()
    walk = Walk(policy)
    walk.start()
    walk.fail()
    walk.pass_(100)
    walk.start()
    walk.pass_(lived)
    walk.fail()
    assert policy.failing_within_window(walk.state, walk.state.exits[-1][0]) == within


def closed_loop(uptime: int, policy: Flapping | None = None, starts: int = 30) -> int:
    """Always failing, waiting as told: how many starts until it is held; `starts` if never."""
    walk = Walk(policy or Flapping())
    for made in range(starts):
        if walk.says().verb is Verb.HOLD:
            return made
        walk.now = max(walk.now, walk.state.until)
        assert walk.start(again=True).proceeds
        walk.pass_span(uptime)
        walk.fail()
    return starts


@pytest.mark.parametrize(
    ("uptime", "starts"), [(0, 7), (SECOND, 7), (29 * SECOND, 7), (30 * SECOND, 7), (30 * SECOND + 1, 30)]
)
def test_delays_do_not_age_the_history(uptime: int, starts: int) -> None:
    """With the delays really applied, a child that lives up to 30 s is held after 7 starts: the window counts lived
    time. One that lives longer is no flapping unit, and is the business of others."""
    assert closed_loop(uptime) == starts


def test_halted_is_sticky() -> None:
    """No exit, clean or not, no time and no release of another leaves it; a person does, with an empty history."""
    walk, _ = fed(*((1, n) for n in range(7)))
    walk.pass_span(30 * DAY)
    walk.end()
    walk.end(cause=Cause.STOPPED)
    walk.fail()
    walk.release(scope="fleet")
    walk.release(fingerprint="broken")
    walk.release(policies=["quarantine"])
    assert walk.start().verb is Verb.HOLD
    assert walk.says().codes == ("halted",)
    walk.release()
    assert walk.forgot()


def test_a_change_leaves_it() -> None:
    """A changed definition may be a fix."""
    walk, _ = fed(*((1, n) for n in range(7)))
    walk.revise("b")
    assert walk.forgot()


@pytest.mark.parametrize(("early", "verb"), [(1, Verb.WAIT), (0, Verb.PROCEED)])
@pytest.mark.parametrize(("exits", "delay", "code"), [(1, 2 * SECOND, "restarting"), (3, 30 * SECOND, "flapping")])
def test_the_delay_is_kept(early: int, verb: Verb, exits: int, delay: int, code: str) -> None:
    """2 s after a failing exit, 30 s after a flap; a microsecond early is refused. (S4-10)"""
    walk, _ = fed(*((1, n) for n in range(exits)))
    walk.pass_span(delay - early)
    decision = walk.start(again=True)
    assert decision.verb is verb
    assert decision.codes == ((code,) if early else ())


def test_a_stop_says_nothing() -> None:
    """Being stopped is neither a flap nor a success, and the time lived before it counts."""
    walk, _ = fed((1, 0), (1, 1), (1, 2))
    walk.end(cause=Cause.STOPPED)
    assert walk.state.flaps == 1


@pytest.mark.parametrize(
    ("clean_counts", "uptime", "held"), [(True, 10 * SECOND, True), (True, MINUTE, False), (False, 10 * SECOND, False)]
)
def test_short_clean_exits_count_where_they_are_restarted(clean_counts: bool, uptime: int, held: bool) -> None:
    """A unit that is restarted after clean exits too can run away without ever failing."""
    walk = Walk(Flapping(clean_counts=clean_counts))
    for _ in range(30):
        walk.now = max(walk.now, walk.state.until)
        if not walk.start(again=True).proceeds:
            break
        walk.pass_span(uptime)
        walk.end()
    assert (walk.says().verb is Verb.HOLD) is held


def test_a_release_while_it_runs_does_not_count_its_clean_exit() -> None:
    """How long that run lived is not known any more, so it is not taken for short."""
    walk = Walk(Flapping(clean_counts=True))
    walk.start()
    walk.release()
    walk.pass_(3_600).end()
    assert walk.says().proceeds


def test_clean_exits_only_are_forgotten() -> None:
    """When the last failing exit has left the ten that are kept, nothing is known of the unit."""
    walk, _ = fed((1, 0))
    for _ in range(10):
        walk.pass_(5)
        walk.start()
        walk.end()
    assert walk.forgot()


@pytest.mark.parametrize(("uptime", "short"), [(MINUTE - 1, True), (MINUTE, False)])
def test_how_short_is_short(uptime: int, short: bool) -> None:
    """A clean exit within a window of its start counts as failing; one at its end does not."""
    walk = Walk(Flapping(clean_counts=True))
    walk.start()
    assert walk.pass_span(uptime).end().proceeds is not short
