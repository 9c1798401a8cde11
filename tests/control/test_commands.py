"""The registry, looking, and one JSON request a line; with a real socket."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flyball.control.client import SOCKET, connect
from flyball.control.commands import COMMANDS, LINE_MAX, answer, serve_line
from flyball.control.context import CommandError, Context, Right
from flyball.core.event import Stepped, Work
from flyball.core.time import HOUR, SECOND
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore())


def test_every_verb_explains_itself() -> None:
    """The verbs are those that people know, each with its help."""
    looks = "status unit why sessions session events rules queue questions state problems failures budgets spend"
    orders = "pause resume reset stop start restart kill answer approve acknowledge snooze trigger forget_firings"
    admin = "raise settle reload down login_link token_add token_remove"
    rights = {Right.LOOK: f"{looks} history logs audit ping", Right.OPERATE: orders, Right.ADMIN: admin}
    for right, names in rights.items():
        assert {COMMANDS[name].right for name in names.split()} == {right}
    assert all(command.help for command in COMMANDS.values())
    assert all(argument.help for command in COMMANDS.values() for argument in command.arguments)


# Looking.


def test_status(scene: Scene) -> None:
    """The fleet and its units, or those that are asked for; the fleet is always whole."""
    scene.everything()
    said = answer(scene.context(), "status", {})
    assert said["fleet"]["units"] == len(said["units"]) == 8
    some = answer(scene.context(), "status", {"units": ["paused-one"]})
    assert [unit["name"] for unit in some["units"]] == ["paused-one"]
    assert some["fleet"]["units"] == 8


def test_why(scene: Scene) -> None:
    """Every policy's opinion, what a start would be answered, the last entries, the end of the last failure."""
    scene.quarantine("u")
    scene.fail("u", "abcdef0123456789", detail="Traceback: it broke")
    said = answer(scene.context(), "why", {"unit": "u", "limit": 3})
    verbs = {(one["policy"], one["by"]): one["verb"] for one in said["opinions"]}
    assert verbs["quarantine", "unit"] == "hold"
    assert verbs["breaker", "fleet"] == "proceed"
    assert said["start"]["verb"] == "hold"
    assert "quarantined" in said["start"]["codes"]
    assert len(said["events"]) == 3
    assert said["detail"] == "Traceback: it broke"


def test_events(scene: Scene) -> None:
    """The newest, or those after a number; of all or of one unit; not older than asked for."""
    for number in range(6):
        scene.fail(f"u{number % 2}", f"f{number}")
        scene.clock.move(60 * SECOND)
    context = scene.context()
    last = answer(context, "events", {"limit": 3})
    assert [data["seq"] for data in last["events"]] == [10, 11, 12]
    assert last["last"] == 12
    after = answer(context, "events", {"after": 9, "limit": 2})
    assert ([data["seq"] for data in after["events"]], after["last"]) == ([10, 11], 11)
    of_one = answer(context, "events", {"unit": "u1"})
    assert {data["unit"] for data in of_one["events"]} == {"u1"}
    recent = answer(context, "events", {"since": (scene.clock.now() - 90 * SECOND) / SECOND})
    assert [data["seq"] for data in recent["events"]] == [11, 12]
    nothing = answer(context, "events", {"after": 12})
    assert nothing == {"events": [], "last": 12}


def test_events_say_it_in_words_and_fields(scene: Scene) -> None:
    """An entry has its text and everything that was reported and decided."""
    scene.fail("u", "abcdef0123456789")
    [data] = answer(scene.context(), "events", {"limit": 1})["events"]
    assert data["text"].startswith("exited: error: exit 3 (abcdef01); waits 2 s: failure 1 of exit 3")
    assert (data["event"], data["verb"], data["unit"]) == ("exited", "wait", "u")
    assert data["data"]["code"] == 3
    assert {reason["code"] for reason in data["reasons"]} == {"cooling", "restarting"}


def test_looking_leaves_no_trace(scene: Scene) -> None:
    """No look changes a state or adds to the journal."""
    scene.everything()
    store = scene.governor.store
    before = (store.read(()).seq, dict(store.states()))
    context = scene.context()
    for verb, args in (
        ("status", {}),
        ("unit", {"unit": "halted-one"}),
        ("why", {"unit": "cooling-one"}),
        ("events", {}),
        ("state", {"unit": "halted-one"}),
        ("reset", {"all": True, "dry_run": True}),
    ):
        answer(context, verb, args)
    assert (store.read(()).seq, dict(store.states())) == before


def test_steps_do_not_hide_the_past(scene: Scene) -> None:
    """A unit that makes many steps still knows when it was started."""
    scene.start("u")
    started = scene.clock.now()
    for _ in range(200):
        scene.governor.submit(Stepped(unit="u", run="r1", done=(Work(),)))
    assert answer(scene.context(), "unit", {"unit": "u"})["since"] == started / SECOND


# One request a line.


def _line(**request: Any) -> bytes:
    return json.dumps(request).encode() + b"\n"


def test_a_request_and_its_answer(scene: Scene) -> None:
    """The answer is one line with the request's number."""
    scene.start("u")
    said = serve_line(scene.context(), _line(v=1, id=7, verb="state", args={"unit": "u"}))
    assert said.endswith(b"\n")
    assert said.count(b"\n") == 1
    data = {"state": "healthy", "consecutive_flaps": 0, "exits_in_window": 0}
    assert json.loads(said) == {"id": 7, "ok": True, "data": data}


@pytest.mark.parametrize(
    ("line", "number", "code"),
    [
        (b"", 0, "bad_request"),
        (b"\n", 0, "bad_request"),
        (b"{", 0, "bad_request"),
        (b"[]", 0, "bad_request"),
        (b"\xff\xfe", 0, "bad_request"),
        (b'{"v":1,"id":1,"verb":"\xff"}', 0, "bad_request"),
        (b"[" * 20_000, 0, "bad_request"),
        (_line(v=1, id="x", verb="status"), 0, "bad_request"),
        (_line(v=1, id=3, verb="status", more=1), 0, "bad_request"),
        (_line(v=1, id=3, verb="status", args=[]), 0, "bad_request"),
        (b" " * (LINE_MAX + 1), 0, "bad_request"),
        (_line(v=2, id=3, verb="status"), 3, "bad_version"),
        (_line(v=1, id=3, verb="nothing"), 3, "unknown_verb"),
        (_line(v=1, id=3, verb="pause", args={"units": ["x"]}), 3, "unknown_unit"),
        (_line(v=1, id=3, verb="pause", args={"units": {}}), 3, "bad_argument"),
    ],
)
def test_whatever_is_wrong_is_an_answer(scene: Scene, line: bytes, number: int, code: str) -> None:
    """No line raises; the answer says what is wrong."""
    said = json.loads(serve_line(scene.context(), line))
    assert (said["id"], said["ok"], said["error"]["code"]) == (number, False, code)
    assert said["error"]["text"]


# The client.

Serve = Callable[[bytes], bytes | None]


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[Callable[[Serve, Path], None]]:
    """Listens on the socket of a folder, one client at a time, until the test ends."""
    opened: list[tuple[socket.socket, threading.Thread]] = []

    def start(serve: Serve, folder: Path) -> None:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        here = os.open(folder, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{here}/{SOCKET}")
        os.close(here)
        server.listen()

        def run() -> None:
            try:
                while True:
                    connection, _ = server.accept()
                    with connection, connection.makefile("rb") as lines:
                        for line in lines:
                            said = serve(line)
                            if said is None:
                                break
                            connection.sendall(said)
            except OSError:
                return

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        opened.append((server, thread))

    yield start
    for server, thread in opened:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


def test_client(scene: Scene, tmp_path: Path, listen: Callable[[Serve, Path], None]) -> None:
    """S4-23: a request to resume over the local socket; answers and errors come as if it were done here."""
    scene.flap("u", 7)
    scene.clock.move(HOUR)
    context = scene.context(channel="socket")
    listen(lambda line: serve_line(context, line), tmp_path)
    client = connect(tmp_path)
    assert client is not None
    with client:
        assert client.ask("state", {"unit": "u"})["state"] == "halted"
        assert client.ask("resume", {"units": ["u"]})["units"][0]["state"] == "healthy"
        with pytest.raises(CommandError, match="no unit 'x'") as raised:
            client.ask("unit", {"unit": "x"})
        assert raised.value.code == "unknown_unit"
        assert client.ask("unit", {"unit": "u"})["orders"][0]["note"] == "via socket"


def test_client_of_a_long_path(scene: Scene, tmp_path: Path, listen: Callable[[Serve, Path], None]) -> None:
    """A state folder with a name longer than a socket's address is reached all the same."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    context: Context = scene.context()
    listen(lambda line: serve_line(context, line), folder)
    client = connect(folder)
    assert client is not None
    with client:
        assert client.ask("status")["units"] == []


def test_nobody_listens(tmp_path: Path) -> None:
    """No folder, no socket, or one that was left behind: nobody, and no error."""
    assert connect(tmp_path / "nowhere") is None
    assert connect(tmp_path) is None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(tmp_path / SOCKET))
    assert connect(tmp_path) is None


def test_a_daemon_that_goes_away(tmp_path: Path, listen: Callable[[Serve, Path], None]) -> None:
    """A connection that ends without an answer is said to be so."""
    listen(lambda _: None, tmp_path)
    client = connect(tmp_path)
    assert client is not None
    with client, pytest.raises(CommandError, match="the daemon went away") as raised:
        client.ask("status")
    assert raised.value.code == "no_answer"


def test_a_daemon_that_is_silent(tmp_path: Path) -> None:
    """An answer is not waited for without end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(tmp_path / SOCKET))
        server.listen()
        client = connect(tmp_path)
        assert client is not None
        with client, pytest.raises(CommandError, match=r"did not answer `status` within 0\.05 s"):
            client.ask("status", timeout=0.05)
