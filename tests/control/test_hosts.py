"""Hosts of a fleet as people see them, and what people order about them."""

from collections.abc import Sequence
from typing import Any

import pytest

from flyball.config import Settings
from flyball.control import hosts
from flyball.control.board import Board
from flyball.control.commands import answer
from flyball.control.context import CommandError, Right
from flyball.control.past import LOST_MAX, Past
from flyball.core.codec import decode_body
from flyball.core.event import Left, Ordered, Start
from flyball.core.host import HostRecord, decode, decode_move, encode, host_key, move_key
from flyball.core.time import DAY, HOUR, SECOND
from flyball.store.memory import MemoryStore
from tests.control.fleet import LEASE, holder_of, join, lose, record, run_on, three_hosts
from tests.control.scene import Scene

COMMAND = {"command": ["true"]}
UNITS = {
    "free": COMMAND,
    "pinned": {**COMMAND, "host": "b"},
    "labelled": {**COMMAND, "host_labels": {"gpu": "yes"}},
    "first": COMMAND,
    "second": {**COMMAND, "after": ["first"]},
}


@pytest.fixture
def scene() -> Scene:
    made = Scene(MemoryStore(), ago=0)
    made.settings = Settings.model_validate({"units": UNITS})
    return made


def _host(scene: Scene, name: str) -> HostRecord:
    return decode(scene.governor.store.states("host")[host_key(name)])


def _shown(scene: Scene) -> dict[str, dict[str, Any]]:
    return {host["name"]: host for host in answer(scene.context(), "hosts", {})["hosts"]}


def _problems(scene: Scene) -> list[dict[str, Any]]:
    """What needs a person, but for units that nobody has a host for."""
    found = answer(scene.context(), "problems", {})["problems"]
    return [problem for problem in found if problem["code"] != "no_host"]


def _ordered(scene: Scene) -> list[Ordered]:
    entries = scene.governor.store.entries(after=0, limit=1000, events=["ordered"])
    return [event for entry in entries if isinstance(event := decode_body(entry.body).event, Ordered)]


# What is seen.


def test_no_hosts(scene: Scene) -> None:
    """Where the memory is a file of one machine there are none, and nothing names one."""
    scene.start("free")
    said = answer(scene.context(), "hosts", {})
    assert said["hosts"] == said["problems"] == said["homeless"] == []
    status = answer(scene.context(), "status", {})
    assert status["fleet"]["hosts"] == []
    assert {unit["host"] for unit in status["units"]} == {""}


def test_hosts_and_what_they_run(scene: Scene) -> None:
    """Each host with its lease, and how many units its daemon holds, kept ones too; a program on it is not its."""
    three_hosts(scene, {"a": ["free"], "b": ["pinned", "first"]})
    run_on(scene.governor, "a/1/1/kept", "kept")
    scene.governor.submit(_start("program", "a/77/1"))
    scene.clock.move(5 * SECOND)
    shown = _shown(scene)
    assert {name: host["units"] for name, host in shown.items()} == {"a": 2, "b": 2, "c": 0}
    now = scene.clock.now() / SECOND
    assert shown["a"]["lease_until"] - now == pytest.approx(10)
    assert (shown["a"]["lease"], shown["a"]["state"], shown["a"]["holder"]) == (15.0, "up", "a/1/1")
    status = answer(scene.context(), "status", {})
    where = {unit["name"]: unit["host"] for unit in status["units"]}
    assert where == {
        "free": "a", "pinned": "b", "first": "b", "second": "", "labelled": "", "kept": "a", "program": "a",
    }  # fmt: skip


def test_which_one_answers(scene: Scene) -> None:
    """The host that is asked is marked."""
    three_hosts(scene)
    shown = answer(scene.context(host="b"), "hosts", {})["hosts"]
    assert [host["name"] for host in shown if host["here"]] == ["b"]


def test_lost(scene: Scene) -> None:
    """A host that was fenced is shown as lost, with what it had and who found it out, until it joins again, or for a
    day; it is a problem that can be acknowledged."""
    three_hosts(scene)
    lose(scene.governor, "b", runs=4, by="c")
    assert (_shown(scene)["b"]["state"], _shown(scene)["b"]["units"], _shown(scene)["b"]["by"]) == ("lost", 4, "c")
    [problem] = _problems(scene)
    assert (problem["id"], problem["kind"], problem["title"]) == ("host/b:host_lost", "host", "host b lost")
    assert problem["text"] == "its lease ran out, c found; it had 4 runs, which others take over"
    answer(scene.context(), "acknowledge", {"problem": "host/b:host_lost"})
    assert _problems(scene)[0]["acknowledged"]
    join(scene.governor, "b")
    assert _shown(scene)["b"]["state"] == "up"
    assert _problems(scene) == []
    lose(scene.governor, "b")
    scene.clock.move(hosts.SHOWN_FOR)
    for host in "ac":
        join(scene.governor, host)
    assert set(_shown(scene)) == {"a", "c"}


def test_ran_out_and_nobody_took_over(scene: Scene) -> None:
    """A lease that ran out makes its host lost, also while nobody has fenced it."""
    three_hosts(scene)
    scene.clock.move(LEASE)
    join(scene.governor, "a")
    assert {name: host["state"] for name, host in _shown(scene).items()} == {"a": "up", "b": "lost", "c": "lost"}


def test_left_in_order_is_no_problem(scene: Scene) -> None:
    """Whoever leaves in order is not there any more, and nobody is told."""
    three_hosts(scene)
    scene.governor.submit(Left(host="b", holder=holder_of("b")), {host_key("b"): None})
    assert set(_shown(scene)) == {"a", "c"}
    assert _problems(scene) == []


def test_remembered_are_bounded() -> None:
    """Of hosts that are lost and never come back, the oldest are forgotten."""
    scene = Scene(MemoryStore(), ago=0)
    for number in range(LOST_MAX + 2):
        scene.governor.submit(Left(host=f"h{number}", lost=True))
    past = Past()
    past.catch_up(scene.governor.store)
    assert len(past.lost_hosts) == LOST_MAX
    assert "h1" not in past.lost_hosts


def test_unreadable_record(scene: Scene) -> None:
    """A record that cannot be read hides one host and no other."""
    three_hosts(scene)
    scene.governor.submit(Ordered(), {host_key("b"): b'{"name": 7}'})
    assert set(_shown(scene)) == {"a", "c"}


@pytest.mark.parametrize(
    ("settings", "odd"),
    [
        (("x", "x", "x"), ""),
        (("x", "x", "y"), "c"),
        (("y", "x", "x"), "a"),
        (("x", "y", "z"), "abc"),
        (("x", "", "x"), ""),
        (("x", "", "y"), "ac"),
    ],
)
def test_different_settings(scene: Scene, settings: Sequence[str], odd: str) -> None:
    """Hosts whose units and rules are not those of most stand out, and that is a problem; without a most, all do."""
    for host, digest in zip("abc", settings, strict=True):
        join(scene.governor, host, settings=digest)
    assert "".join(name for name, host in _shown(scene).items() if host["differs"]) == odd
    problems = answer(scene.context(), "hosts", {})["problems"]
    assert [problem["code"] for problem in problems if problem["code"] != "no_host"] == ["hosts_differ"] * bool(odd)


def test_homeless(scene: Scene) -> None:
    """Units that no host may run as they are now are named: pinned to one that is away or drains, or asking for what
    none has."""
    join(scene.governor, "a")
    said = answer(scene.context(), "hosts", {})
    assert said["homeless"] == ["labelled", "pinned"]
    assert said["problems"][0]["title"] == "2 units without a host"
    join(scene.governor, "b", labels={"gpu": "yes"})
    assert answer(scene.context(), "hosts", {})["homeless"] == []
    join(scene.governor, "b", labels={"gpu": "yes"}, draining=True)
    assert answer(scene.context(), "status", {})["fleet"]["homeless"] == ["labelled", "pinned"]


def test_board(scene: Scene) -> None:
    """The board has the hosts with how many units each runs, and each unit's host; a lease that is renewed changes
    nothing there."""
    context = scene.context()
    board = Board(context.look)
    three_hosts(scene, {"a": ["free"], "b": ["pinned"]})
    board.refresh()
    assert {host.name: host.units for host in board.hosts()} == {"a": 1, "b": 1, "c": 0}
    assert {row.name: row.host for row in board.rows() if row.host} == {"free": "a", "pinned": "b"}
    rev = board.rev
    scene.governor.submit(
        Ordered(), {host_key("a"): encode(record("a", scene.clock.now() + SECOND, since=_since(scene)))}
    )
    board.refresh()
    assert board.rev == rev
    lose(scene.governor, "c")
    board.refresh()
    assert {host.name: host.state for host in board.hosts()} == {"a": "up", "b": "up", "c": "lost"}
    assert [problem.code for problem in board.problems()] == ["no_host", "host_lost"]


def _since(scene: Scene) -> int:
    return _host(scene, "a").since


def _start(unit: str, holder: str) -> Start:
    return Start(unit=unit, run=f"{unit}-1", holder=holder)


# Draining.


def test_drain_and_undrain(scene: Scene) -> None:
    """It is marked in the host's record, and only that is changed; the line of the audit trail is written with it, and
    once. Undone alike."""
    three_hosts(scene, {"b": ["free", "pinned"]})
    before = _host(scene, "b")
    said = answer(scene.context(), "drain", {"host": "b"})
    assert (said["moves"], said["waits"]) == (["free"], ["pinned"])
    assert said["effect"] == "b drains: 1 unit left to others, 1 unit without a host until then"
    assert said["host"]["state"] == "draining"
    assert _host(scene, "b") == HostRecord(**{**_fields(before), "draining": True})
    [line] = _ordered(scene)
    assert (line.verb, line.asked, line.effect, line.by) == ("drain", "host=b", said["effect"], "ann")
    assert answer(scene.context(), "undrain", {"host": "b"})["effect"] == "b takes units again"
    assert _host(scene, "b") == before
    assert [line.verb for line in _ordered(scene)] == ["drain", "undrain"]
    assert answer(scene.context(), "undrain", {"host": "b"})["effect"] == "b took units all the time"


def _fields(record: HostRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def test_dry_run(scene: Scene) -> None:
    """Only said, nothing done."""
    three_hosts(scene, {"b": ["free"]})
    before = scene.governor.store.read(()).seq
    assert answer(scene.context(), "drain", {"host": "b", "dry_run": True})["moves"] == ["free"]
    assert answer(scene.context(), "move", {"unit": "free", "host": "c", "dry_run": True})["moves"] == ["free"]
    assert answer(scene.context(), "undrain", {"host": "b", "dry_run": True})["dry_run"]
    assert scene.governor.store.read(()).seq == before


def test_the_last_host(scene: Scene) -> None:
    """The last host that takes units is drained only if somebody insists. One that drains already may be told again."""
    three_hosts(scene, {"a": ["free"]})
    answer(scene.context(), "drain", {"host": "b"})
    answer(scene.context(), "drain", {"host": "c"})
    with pytest.raises(CommandError, match="the only host that takes units: free would be ended and run nowhere") as no:
        answer(scene.context(), "drain", {"host": "a"})
    assert no.value.code == "last_host"
    assert "--force" in no.value.remedy
    assert not _host(scene, "a").draining
    assert answer(scene.context(), "drain", {"host": "a", "force": True})["waits"] == ["free"]
    assert _host(scene, "a").draining
    assert answer(scene.context(), "drain", {"host": "a"})["host"]["state"] == "draining"


def test_a_host_that_was_started_anew_meanwhile(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the order the host left and came back as another daemon: that one was not meant."""
    three_hosts(scene)
    context = scene.context()
    look = context.look()
    assert look.hosts["b"].holder == "b/1/1"
    join(scene.governor, "b", holder="b/2/2")
    monkeypatch.setattr(type(context), "look", lambda _: look)
    with pytest.raises(CommandError, match="has just left, or was started anew"):
        answer(context, "drain", {"host": "b"})
    assert not _host(scene, "b").draining
    assert _ordered(scene) == []


# Moving.


def test_move(scene: Scene) -> None:
    """A record says where it goes, with whoever runs on one host together; the line of the trail comes with it."""
    three_hosts(scene, {"a": ["first", "second"]})
    said = answer(scene.context(), "move", {"unit": "second", "host": "c"})
    assert said["moves"] == ["first", "second"]
    [(key, data)] = scene.governor.store.states("move").items()
    assert key == move_key("second")
    assert (decode_move(data).to, decode_move(data).by) == ("c", "ann")
    [line] = _ordered(scene)
    assert (line.unit, line.verb, line.effect) == ("second", "move", "first, second to c")
    back = answer(scene.context(), "move", {"unit": "second", "host": "a"})
    assert (back["moves"], back["effect"]) == ([], "first, second on a already")
    assert scene.governor.store.states("move") == {}, "it is to stay"


@pytest.mark.parametrize(
    ("verb", "args", "code", "text"),
    [
        ("drain", {"host": "d"}, "unknown_host", "no host 'd'; there are a, b, c"),
        ("drain", {"host": "cc"}, "unknown_host", "no host 'cc'; did you mean c?"),
        ("drain", {}, "unknown_host", "the name of a host is missing; there are a, b, c"),
        ("undrain", {"host": "d"}, "unknown_host", "no host 'd'"),
        ("move", {"unit": "fre", "host": "a"}, "unknown_unit", "no unit 'fre'; did you mean free?"),
        ("move", {"unit": "free", "host": "d"}, "unknown_host", "no host 'd'"),
        ("move", {"unit": "pinned", "host": "a"}, "does_not_fit", "a does not fit: pinned asks for the host b"),
        ("move", {"unit": "labelled", "host": "a"}, "does_not_fit", "labelled asks for a host with gpu: yes"),
        ("move", {"unit": "program", "host": "a"}, "not_placed", "program cannot be moved: it is no unit of"),
    ],
)  # fmt: skip
def test_wrong_input(scene: Scene, verb: str, args: dict[str, Any], code: str, text: str) -> None:
    """What is wrong is said, with what may have been meant; nothing is written, not even to the audit trail."""
    three_hosts(scene)
    scene.governor.submit(_start("program", "a/77/1"))
    before = scene.governor.store.read(()).seq
    with pytest.raises(CommandError) as wrong:
        answer(scene.context(), verb, args)
    assert wrong.value.code == code
    assert text in str(wrong.value)
    assert wrong.value.remedy
    assert scene.governor.store.read(()).seq == before


def test_pinned_with_others(scene: Scene) -> None:
    """What stands after a pinned unit is pinned with it, and is told why; and where it may run."""
    units = {**UNITS, "behind": {**COMMAND, "after": ["pinned"]}}
    three_hosts(scene, settings=Settings.model_validate({"units": units}))
    with pytest.raises(CommandError, match="behind runs together with pinned, and they ask for the host b") as wrong:
        answer(scene.context(), "move", {"unit": "behind", "host": "a"})
    assert wrong.value.remedy.startswith("It may run on b. ")


@pytest.mark.parametrize(("verb", "args"), [("drain", {"host": "c"}), ("move", {"unit": "free", "host": "c"})])
def test_lost_and_draining(scene: Scene, verb: str, args: dict[str, Any]) -> None:
    """Nothing is ordered of a host that is lost, and nothing is moved to one that drains."""
    three_hosts(scene)
    if verb == "move":
        answer(scene.context(), "drain", {"host": "c"})
        with pytest.raises(CommandError, match="c is being drained"):
            answer(scene.context(), verb, args)
    lose(scene.governor, "c")
    with pytest.raises(CommandError, match="the host c is lost"):
        answer(scene.context(), verb, args)


@pytest.mark.parametrize("verb", ["drain", "undrain", "move"])
def test_without_hosts(scene: Scene, verb: str) -> None:
    """Where there are no hosts, nothing is drained or moved, and it is said what makes some."""
    given = {"unit": "free", "host": "a"} if verb == "move" else {"host": "a"}
    with pytest.raises(CommandError, match="this fleet has no hosts") as wrong:
        answer(scene.context(), verb, given)
    assert (wrong.value.code, "postgresql://" in wrong.value.remedy) == ("no_hosts", True)


@pytest.mark.parametrize("verb", ["drain", "undrain", "move"])
def test_who_may(scene: Scene, verb: str) -> None:
    """Whoever may only look orders no host; that they tried is on the trail."""
    three_hosts(scene)
    given = {"unit": "free", "host": "a"} if verb == "move" else {"host": "a"}
    with pytest.raises(CommandError, match=f"may look, but not `{verb}`"):
        answer(scene.context(right=Right.LOOK), verb, given)
    assert [line.refused for line in _ordered(scene)] == ["forbidden"]


def test_started_from_a_machine_without_a_daemon(scene: Scene) -> None:
    """Where there are hosts, an order to start needs no daemon here: the journal takes it to whoever runs the unit."""
    scene.start("free")
    with pytest.raises(CommandError, match="no daemon runs here"):
        answer(scene.context(), "restart", {"units": ["free"]})
    three_hosts(scene)
    assert not answer(scene.context(), "restart", {"units": ["free"]})["daemon"]


def test_a_day_is_more_than_an_hour() -> None:
    """A host that is lost is shown for long enough to be looked into in the morning."""
    assert HOUR < hosts.SHOWN_FOR <= DAY
