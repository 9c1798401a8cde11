"""The board: what is told is what changed, and together it is what anybody sees who looks anew."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.control.board import Board
from flyball.control.commands import answer
from flyball.control.past import Past
from flyball.core.event import Cause, Stepped, Work
from flyball.core.time import DAY, HOUR, SECOND
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene


class Watcher:
    """A page: it has seen a revision, and is told what changed after it."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.epoch, self.rev = "", -1
        self.units: dict[str, Any] = {}
        self.shown: dict[str, Any] = {}

    def look(self) -> dict[str, Any]:
        frame: dict[str, Any] = msgspec.json.decode(self.board.frame(self.rev, self.epoch))
        if frame["full"]:
            self.units.clear()
        self.units.update({row["name"]: row for row in frame["units"]})
        for name in frame["gone"]:
            self.units.pop(name, None)
        self.shown.update({key: frame[key] for key in ("fleet", "totals", "problems") if frame[key] is not None})
        self.epoch, self.rev = frame["epoch"], frame["rev"]
        return frame


def _board(scene: Scene) -> Board:
    past = Past()
    return Board(lambda: scene.context(past=past).look())


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore())


@pytest.fixture
def board(scene: Scene) -> Board:
    return _board(scene)


def test_first_everything_then_changes(scene: Scene, board: Board) -> None:
    """Who has seen nothing is told everything; then only the units that changed; then nothing."""
    for unit in ("a", "b", "c"):
        scene.start(unit)
    assert board.refresh()
    watcher = Watcher(board)
    first = watcher.look()
    assert first["full"]
    assert [row["name"] for row in first["units"]] == ["a", "b", "c"]
    assert first["totals"]["running"] == 3
    scene.exit("c", Cause.ERROR, "f" * 16, error="exit 3")
    assert board.refresh()
    second = watcher.look()
    assert not second["full"]
    assert [(row["name"], row["running"], row["error"]) for row in second["units"]] == [("c", False, "exit 3")]
    assert second["totals"]["running"] == 2
    assert not board.refresh()
    third = watcher.look()
    assert (third["units"], third["fleet"], third["totals"], third["problems"]) == ([], None, None, None)


def test_time_alone(scene: Scene, board: Board) -> None:
    """A wait that ends changes a row without an entry in the journal; when, is known before."""
    scene.fail("a")
    board.refresh()
    watcher = Watcher(board)
    (row,) = watcher.look()["units"]
    assert row["state"] == "cooling"
    assert board.due_in(scene.clock.now() / SECOND) == pytest.approx(row["until"] - scene.clock.now() / SECOND)
    scene.clock.move(2 * SECOND)
    assert board.refresh()
    assert watcher.look()["units"][0]["state"] == "healthy"


def test_order_for_all(scene: Scene, board: Board) -> None:
    """A pause of the fleet changes every row."""
    for unit in ("a", "b"):
        scene.start(unit)
        scene.exit(unit, Cause.DONE)
    board.refresh()
    watcher = Watcher(board)
    watcher.look()
    answer(scene.context(), "pause", {"all": True})
    board.refresh()
    assert [row["state"] for row in watcher.look()["units"]] == ["paused", "paused"]
    assert watcher.shown["fleet"]["state"] == "paused"


def test_problem_and_its_end(scene: Scene, board: Board) -> None:
    """A quarantine is one thing that somebody has to do, until it is done."""
    scene.quarantine("coder")
    board.refresh()
    watcher = Watcher(board)
    watcher.look()
    assert watcher.shown["totals"]["needs"] == 1
    assert watcher.units["coder"]["problem"] == watcher.shown["problems"][0]["id"]
    answer(scene.context(), "reset", {"all": True})
    board.refresh()
    watcher.look()
    assert (watcher.shown["totals"]["needs"], watcher.shown["problems"]) == (0, [])


def test_often(scene: Scene, board: Board) -> None:
    """A unit that restarts often stands out."""
    for number in range(6):
        scene.fail("a", f"{number}" * 16)
        scene.clock.move(HOUR // 10)
        scene.start("a", again=True)
        scene.exit("a", Cause.DONE)
    scene.start("b")
    board.refresh()
    assert {row.name: row.often for row in board.rows()} == {"a": True, "b": False}


def test_over_the_budget_of_a_run(board: Board, scene: Scene) -> None:
    """A unit that ended for want of money is over its budget, also where that budget is gone with its run."""
    scene.start("a")
    scene.exit("a", Cause.STOPPED, error="cost_budget_exceeded", policy="budget")
    scene.start("b")
    board.refresh()
    assert {row.name: (row.code, row.limit) for row in board.rows()} == {"a": ("cost_budget_exceeded", 0), "b": ("", 0)}
    assert msgspec.json.decode(board.frame())["totals"]["over_budget"] == 1


def test_money_of_today(scene: Scene, board: Board) -> None:
    """What was spent since midnight is counted, also what was before the board; the next day begins with nothing."""
    scene.clock.set(scene.clock.now() // DAY * DAY + HOUR)
    scene.start("a")
    _spend(scene, 200_000)
    board.refresh()
    watcher = Watcher(board)
    assert watcher.look()["totals"]["spent_day"] == 200_000
    _spend(scene, 50_000)
    board.refresh()
    assert watcher.look()["totals"]["spent_day"] == 250_000
    scene.clock.move(DAY)
    board.refresh()
    assert watcher.look()["totals"]["spent_day"] == 0


def _spend(scene: Scene, amount: int) -> None:
    scene.governor.submit(Stepped(unit="a", run="r1", done=(Work(used={"usd": amount}),)))


def test_another_epoch(scene: Scene, board: Board) -> None:
    """Whoever saw another daemon's board is told everything, whatever revision that was."""
    scene.start("a")
    board.refresh()
    for rev, epoch in ((0, "other"), (10_000, board.epoch), (-5, board.epoch)):
        assert msgspec.json.decode(board.frame(rev, epoch))["full"]


def test_one_frame_for_all(scene: Scene, board: Board) -> None:
    """Who saw the same is told the very same bytes: they are made once."""
    scene.start("a")
    board.refresh()
    assert board.frame() is board.frame()
    rev = board.rev
    scene.start("b")
    board.refresh()
    assert board.frame(rev, board.epoch) is board.frame(rev, board.epoch)


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["start", "fail", "done", "pause", "resume", "reset", "pause all", "wait", "look", "refresh"]),
        st.sampled_from(["a", "b", "c"]),
    ),
    max_size=40,
)


@settings(max_examples=30, deadline=None)
@given(_STEPS)
def test_told_by_changes_is_seen_anew(steps: list[tuple[str, str]]) -> None:
    """Whatever happened, and whenever somebody looked: what a watcher was told by changes is what a board that is made
    anew shows."""
    scene = Scene(MemoryStore())
    board = _board(scene)
    board.refresh()
    watcher = Watcher(board)
    for step, unit in steps:
        _do(scene, step, unit)
        if step == "refresh":
            board.refresh()
        if step == "look":
            watcher.look()
    board.refresh()
    watcher.look()
    anew = Watcher(_board(scene))
    anew.board.refresh()
    anew.look()
    assert watcher.units == anew.units
    assert watcher.shown == anew.shown


def _do(scene: Scene, step: str, unit: str) -> None:
    known = scene.context().look().units()
    match step:
        case "start":
            scene.start(unit, again=True)
        case "fail":
            scene.fail(unit)
        case "done":
            scene.start(unit)
            scene.exit(unit, Cause.DONE)
        case "pause" | "resume" if unit in known:
            answer(scene.context(), step, {"units": [unit]})
        case "reset":
            answer(scene.context(), "reset", {"all": True})
        case "pause all":
            answer(scene.context(), "pause", {"all": True})
        case "wait":
            scene.clock.move(10 * SECOND)
