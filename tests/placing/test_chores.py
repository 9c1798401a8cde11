"""What a host puts right about the placement: each case alone, and all of them together until nothing is left to do."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.placing.chores import (
    KEPT,
    STRAYED_MAX,
    STUCK_MAX,
    UNHELD_MAX,
    WAITING,
    Chores,
    Doubt,
    Placement,
    View,
    chores,
    fair_share,
)
from flyball.placing.items import FREE, Item

ME, OTHER, DEAD = "a/1/1", "b/2/2", "c/3/3"
ITEMS = {name: Item(name=name) for name in ("x", "y")} | {"pinned": Item(name="pinned", host="a")}
HERE = "host.a"


def place(item: str, status: str = WAITING, *, turn: int = 1, queue: str = FREE, holder: str = "") -> Placement:
    return Placement(item, turn, f"{item}#{turn}", status, queue, holder)


ALL = (place("x"), place("y"), place("pinned", queue=HERE))
VIEW = View(me=ME, name="a", items=ITEMS, held={}, places=ALL, live={ME: 100, OTHER: 100}, now=1000.0)


def with_x(*places: Placement, **more: object) -> View:
    return replace(VIEW, places=(*places, *ALL[1:]), **more)  # type: ignore[arg-type]  # what a test gives


def since(what: str, seconds: float) -> Mapping[str, Doubt]:
    return {"x#1": Doubt(what, VIEW.now - seconds)}


def done(todo: Chores) -> dict[str, object]:
    """What is to be done, without what is not."""
    found = {
        "put": todo.puts,
        "back": todo.backs,
        "withdraw": todo.withdrawn,
        "forget": todo.forgotten,
        "lost": todo.lost,
    }
    return {name: what for name, what in found.items() if what}


@pytest.mark.parametrize(
    ("view", "todo"),
    [
        pytest.param(VIEW, {}, id="all wait"),
        pytest.param(with_x(place("x", KEPT, holder=OTHER)), {}, id="somebody has it"),
        pytest.param(with_x(place("x", KEPT, holder=ME), held={"x": "x#1"}), {}, id="I have it"),
        pytest.param(with_x(), {"put": [("x", 1, FREE)]}, id="nowhere"),
        pytest.param(with_x(first=True), {}, id="nowhere, first look"),
        pytest.param(
            replace(VIEW, places=(), first=True), {"put": [("pinned", 1, HERE)]}, id="only mine at the first look"
        ),
        pytest.param(with_x(place("x", "SUCCESS", turn=4)), {"put": [("x", 5, FREE)]}, id="over, and wanted again"),
        pytest.param(with_x(place("x", "ERROR")), {"put": [("x", 2, FREE)]}, id="failed"),
        pytest.param(with_x(place("x", KEPT, holder=DEAD)), {"back": {FREE: ["x#1"]}}, id="of a dead host"),
        pytest.param(
            with_x(place("x", KEPT, holder=DEAD, queue=HERE)), {"back": {FREE: ["x#1"]}}, id="moved to a dead host"
        ),
        pytest.param(
            replace(VIEW, places=(*ALL[:2], place("pinned", KEPT, holder=DEAD))),
            {"back": {HERE: ["pinned#1"]}},
            id="pinned, of a dead host",
        ),
        pytest.param(with_x(place("x"), held={"x": "x#1"}), {"lost": ["x"]}, id="put back by another"),
        pytest.param(
            with_x(place("x", KEPT, holder=OTHER), held={"x": "x#1"}), {"lost": ["x"]}, id="another has it by now"
        ),
        pytest.param(
            with_x(place("x", KEPT, holder=ME), place("x", turn=2), held={"x": "x#1"}),
            {"withdraw": ["x#1"], "lost": ["x"]},
            id="put anew while I have it",
        ),
        pytest.param(with_x(place("x"), place("x", turn=2)), {"withdraw": ["x#1"]}, id="put twice"),
        pytest.param(
            with_x(place("x", KEPT, holder=OTHER), place("x", turn=2)), {}, id="put anew while another has it"
        ),
        pytest.param(with_x(place("x", "SUCCESS"), place("x", turn=2)), {"forget": ["x#1"]}, id="long over"),
        pytest.param(replace(VIEW, places=(*ALL, place("old", "SUCCESS"))), {"forget": ["old#1"]}, id="unknown, over"),
        pytest.param(replace(VIEW, places=(*ALL, place("old"))), {}, id="unknown, may be known to others"),
        pytest.param(
            replace(VIEW, places=(*ALL, place("old")), removed=("old",)), {"withdraw": ["old#1"]}, id="removed just now"
        ),
        pytest.param(with_x(place("x", queue="host.b")), {}, id="on its way to a host"),
        pytest.param(
            with_x(place("x", queue="host.b"), doubts=since("strayed", STRAYED_MAX)),
            {"back": {FREE: ["x#1"]}},
            id="on its way for too long",
        ),
        pytest.param(
            with_x(place("x", queue="host.b"), doubts=since("unheld", STRAYED_MAX)), {}, id="another doubt is none"
        ),
        pytest.param(
            with_x(place("x", queue="host.b"), reloaded=True), {"back": {FREE: ["x#1"]}}, id="pinned before the reload"
        ),
        pytest.param(with_x(place("x", KEPT, holder=ME)), {}, id="just given to me"),
        pytest.param(
            with_x(place("x", KEPT, holder=ME), doubts=since("unheld", UNHELD_MAX)),
            {"back": {FREE: ["x#1"]}},
            id="given to me, and lost on the way",
        ),
    ],
)
def test_what_is_put_right(view: View, todo: dict[str, object]) -> None:
    """What is wrong is put right; what may be right in a moment waits."""
    assert done(chores(view)) == todo


@pytest.mark.parametrize(
    ("items", "takers", "share"),
    [
        (30, [100, 100, 100], 10),
        (31, [100, 100, 100], 11),
        (30, [100], 30),
        (30, [], 1),
        (0, [100], 1),
        (30, [0, 100, 100], 15),
        (30, [4, 100, 100], 13),
        (30, [4, 5, 100], 21),
        (30, [4, 5, 6], 6),
    ],
)
def test_a_fair_share(items: int, takers: list[int], share: int) -> None:
    """As little as lets all items find a host; a host that takes few leaves more to the others."""
    assert fair_share(items, takers) == share


@given(st.integers(0, 200), st.lists(st.integers(0, 60), max_size=6))
def test_the_share_is_the_least_that_is_enough(items: int, takers: list[int]) -> None:
    """All items find a host if there is room for them, and with a smaller share they would not."""
    share = fair_share(items, takers)
    room = sum(min(taker, share) for taker in takers)
    assert room >= min(items, sum(takers))
    assert share == 1 or sum(min(taker, share - 1) for taker in takers) < min(items, sum(takers))


def test_what_waits_for_long_may_be_taken_by_any_host() -> None:
    """A host that has not its share may be unable to take more: then the others do."""
    fresh = chores(VIEW)
    assert fresh.share == 1
    stuck = chores(replace(VIEW, doubts={name: Doubt("waits", VIEW.now - STUCK_MAX) for name in fresh.doubts}))
    assert stuck.share == 2


_HOLDERS = st.sampled_from([ME, OTHER, DEAD])
_STATUS = st.sampled_from([WAITING, KEPT, "SUCCESS", "ERROR", "CANCELLED"])
_QUEUES = st.sampled_from([FREE, HERE, "host.b", "labels.gpu=yes"])


@st.composite
def views(draw: st.DrawFn) -> View:
    """Whatever hosts, reloads and kills may have left."""
    places = []
    for name in (*ITEMS, "old"):
        for turn in draw(st.sets(st.integers(1, 4), max_size=3)):
            status = draw(_STATUS)
            holder = draw(_HOLDERS) if status == KEPT else ""
            places.append(place(name, status, turn=turn, queue=draw(_QUEUES), holder=holder))
    mine = [one for one in places if one.holder == ME]
    held = {one.item: one.workflow for one in mine if draw(st.booleans())}
    held |= {name: f"{name}#9" for name in ITEMS if draw(st.integers(0, 9)) == 0}
    return replace(VIEW, places=tuple(places), held=held, first=draw(st.booleans()), reloaded=draw(st.booleans()))


@given(views())
def test_whatever_is_left_is_put_right_by_one_host(view: View) -> None:
    """After a few looks each item of the settings waits where it belongs or is had by a host that lives, once; and what
    a host has is its own."""
    for _ in range(6):
        view = obeyed(view, chores(view))
    for item in ITEMS.values():
        active = [one for one in view.places if one.item == item.name and (one.kept or one.waits)]
        current = [one for one in active if one.turn == max(other.turn for other in active)]
        (one,) = current
        assert one.holder in (ME, OTHER) if one.kept else one.queue == item.queue
        outdated = [other for other in active if other is not one]
        assert all(other.holder == OTHER for other in outdated), "that host leaves it by itself"
    for item_name, workflow in view.held.items():
        assert any(one.workflow == workflow and one.holder == ME for one in view.places), item_name
    assert done(chores(view)) == {}


def obeyed(view: View, todo: Chores) -> View:
    """The same after that was done, and a while."""
    places = {one.workflow: one for one in view.places}
    for name, turn, queue in todo.puts:
        places.setdefault(f"{name}#{turn}", place(name, turn=turn, queue=queue))
    for queue, workflows in todo.backs.items():
        for workflow in workflows:
            places[workflow] = places[workflow]._replace(status=WAITING, queue=queue, holder="")
    for workflow in todo.withdrawn:
        places[workflow] = places[workflow]._replace(status="CANCELLED", holder="")
    for workflow in todo.forgotten:
        del places[workflow]
    held = {item: workflow for item, workflow in view.held.items() if item not in todo.lost}
    later = view.now + max(STRAYED_MAX, STUCK_MAX, UNHELD_MAX)
    return replace(
        view, places=tuple(places.values()), held=held, now=later, doubts=todo.doubts, first=False, reloaded=False
    )
