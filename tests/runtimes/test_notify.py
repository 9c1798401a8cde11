"""The notify socket: what a run's own processes say is heard, what anybody else says is not."""

import asyncio
import itertools
import os
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.errors import FlyballError
from flyball.runtimes import notify as notify_module
from flyball.runtimes.notify import LINES_MAX, MESSAGE_BYTES_MAX, Message, Notify
from tests.runtimes.children import command, python, say_from_here, until

RUN = "host/1/2.7"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: pytest's own can be too long for a socket."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name) / "notify"


@pytest.fixture
def notify(folder: Path) -> Iterator[Notify]:
    opened = Notify.open(folder, "u")
    opened.expect(RUN)
    yield opened
    opened.close()


def hear(notify: Notify, text: str, *, messages: int = 1) -> list[Message]:
    """What is heard of a Python child that runs this text, until there are so many messages and it has ended."""
    heard: list[Message] = []

    async def listen() -> None:
        with python(text, notify.env(RUN)) as child:
            notify.listen(child.pid, heard.append)
            await until(lambda: len(heard) >= messages and child.poll() is not None)
            notify.rest()

    asyncio.run(listen())
    return heard


def hear_here(notify: Notify, *lines: str, pid: int = 1) -> list[Message]:
    """What is heard of what this process says, while the run is another process."""
    heard: list[Message] = []

    async def listen() -> None:
        notify.listen(pid, heard.append)
        say_from_here(notify.path, *lines)
        notify.rest()

    asyncio.run(listen())
    return heard


def test_a_child_that_speaks_sd_notify_is_heard(notify: Notify) -> None:
    """Several KEY=VALUE in one message, as existing software sends them, with the pid by the kernel's word."""
    (message,) = hear(notify, 'say("READY=1", "STATUS=a=b, ü", f"MAINPID={os.getpid()}")')
    assert message.get("READY") == "1"
    assert message.get("STATUS") == "a=b, ü"
    assert str(message.pid) == message.get("MAINPID")
    assert message.answer is None


@pytest.mark.skipif(shutil.which("systemd-notify") is None, reason="needs systemd's own program")
def test_systemds_own_program_is_heard_and_gets_its_barrier(notify: Notify) -> None:
    """systemd-notify sends BARRIER=1 with a file and waits until we close it: it exits 0, and its READY=1 was heard."""
    heard: list[Message] = []

    async def listen() -> None:
        with command("sh", "-c", "systemd-notify --ready --status=up", env=notify.env(RUN)) as child:
            notify.listen(child.pid, heard.append)
            await until(lambda: child.poll() is not None)
            assert child.returncode == 0

    asyncio.run(listen())
    assert heard[0].get("READY") == "1"
    assert heard[0].get("STATUS") == "up"


def test_a_barrier_is_reached_after_what_came_before_it(notify: Notify) -> None:
    """The file of BARRIER=1 is closed once all earlier messages were heard; files are never kept."""
    text = """
    ours, theirs = os.pipe()
    say("STATUS=before")
    say("BARRIER=1", files=[theirs])
    os.close(theirs)
    assert os.read(ours, 1) == b""
    say("STATUS=after")
    """
    before = set(Path("/proc/self/fd").iterdir())
    heard = hear(notify, text, messages=3)
    assert [message.pairs[0] for message in heard] == [("STATUS", "before"), ("BARRIER", "1"), ("STATUS", "after")]
    assert len(set(Path("/proc/self/fd").iterdir()) - before) == 0


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("""if os.fork() == 0: say("STATUS=here")\nelse: os.wait()""", id="a child of it"),
        pytest.param(
            """if os.fork() == 0:
                os.setsid()
                if os.fork() == 0: say("STATUS=here")\nelse: os.wait(); sys.stdin.read(1)""",
            id="a daemon of its own session, by the run's name in its environment",
        ),
    ],
)
def test_descendants_are_heard(notify: Notify, text: str) -> None:
    """Whoever descends from the run's process, is of its session, or was started with the run's name, belongs to it."""
    heard: list[Message] = []

    async def listen() -> None:
        with python(text, notify.env(RUN)) as child:
            notify.listen(child.pid, heard.append)
            await until(lambda: heard)

    asyncio.run(listen())
    assert heard[0].get("STATUS") == "here"


def test_a_stranger_is_not_heard(notify: Notify) -> None:
    """A process that has nothing to do with the run cannot feed its watchdog."""
    with command("cat") as other:
        assert hear_here(notify, "WATCHDOG=1", pid=other.pid) == []


def test_the_runs_name_makes_a_stranger_one_of_its_own(notify: Notify) -> None:
    """What names the run is heard, wherever it comes from: an agent's tool in a container, say."""
    with command("cat") as other:
        assert hear_here(notify, "X_FLYBALL_SPENT=1", f"X_FLYBALL_RUN={RUN}", pid=other.pid)
        notify.expect("the next run")
        assert not hear_here(notify, "X_FLYBALL_SPENT=1", f"X_FLYBALL_RUN={RUN}", pid=other.pid)


def test_of_a_sender_that_has_ended_only_signs_of_life_are_taken(notify: Notify) -> None:
    """It cannot be traced any more. It had to be the unit's user to reach the socket; for money that is not enough."""
    script = """
    say("READY=1")
    say("X_FLYBALL_SPENT=1")
    say("X_FLYBALL_SPENT=2", "X_FLYBALL_RUN=" + os.environ["FLYBALL_RUN"])
    """
    heard: list[Message] = []

    async def listen() -> None:
        with command("cat") as main:
            with python(script, notify.env(RUN)) as child:
                child.communicate()
            notify.listen(main.pid, heard.append)
            notify.rest()

    asyncio.run(listen())
    assert [message.pairs[0] for message in heard] == [("READY", "1"), ("X_FLYBALL_SPENT", "2")]


@pytest.mark.parametrize("missing", ["credentials", "proc"])
def test_where_the_system_does_not_tell_who_sent(
    folder: Path, missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without SO_PASSCRED or /proc signs of life are heard, and steps and money that name the run."""
    if missing == "credentials":
        monkeypatch.setattr(notify_module, "_tells_sender", lambda: False)
    else:
        monkeypatch.setattr(notify_module, "PROC", tmp_path)
    notify = Notify.open(folder, "u")
    notify.expect(RUN)
    try:
        assert hear_here(notify, "READY=1")
        assert not hear_here(notify, "X_FLYBALL_SPENT=1")
        notify.expect(RUN)
        assert hear_here(notify, "X_FLYBALL_SPENT=1", f"X_FLYBALL_RUN={RUN}")
        assert not hear_here(notify, "READY=1", "X_FLYBALL_RUN=another")
    finally:
        notify.close()


def test_mainpid_names_a_descendant_or_nobody(notify: Notify) -> None:
    """MAINPID of a stranger is ignored; of a descendant it is taken."""
    text = """
    child = os.fork()
    if child == 0: sys.stdin.read(1); os._exit(0)
    say("MAINPID=1"); say("MAINPID=99999999999999"); say("MAINPID=x"); say(f"MAINPID={child}")
    sys.stdin.read(1)
    """
    seen: list[int] = []

    async def listen() -> None:
        with python(text, notify.env(RUN)) as child:
            notify.listen(child.pid, lambda _: seen.append(notify.main_pid))
            await until(lambda: len(seen) == 4)
            assert seen[:3] == [child.pid] * 3
            assert seen[3] not in (child.pid, 1)

    asyncio.run(listen())


def test_no_run_is_heard_for_another(notify: Notify) -> None:
    """What was said before a run was expected is thrown away; what its first instruction says is not."""
    heard: list[Message] = []

    async def listen() -> None:
        say_from_here(notify.path, "READY=1", f"X_FLYBALL_RUN={RUN}")
        notify.expect(RUN)
        with python('say("STATUS=first")', notify.env(RUN)) as child:
            child.communicate()
            notify.listen(child.pid, heard.append)
            await until(lambda: heard)

    asyncio.run(listen())
    assert [message.pairs for message in heard] == [(("STATUS", "first"),)]


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_garbage_never_raises(lines: list[bytes]) -> None:
    """Whatever bytes come: no exception, and no pair without a key."""
    pairs = notify_module._pairs(b"\n".join(lines))
    assert all(key for key, _ in pairs)
    assert len(pairs) <= LINES_MAX


def test_what_is_too_long_or_says_nothing_is_not_heard(notify: Notify) -> None:
    """A message that does not fit is not read in part: half a message may say something else."""
    assert not hear_here(notify, "STATUS=" + "x" * MESSAGE_BYTES_MAX)
    notify.expect(RUN)
    assert not hear_here(notify, "no pair in here")
    notify.expect(RUN)
    assert not hear_here(notify, "")
    notify.expect(RUN)
    (message,) = hear_here(notify, *["A=1"] * 1_000, pid=os.getpid())
    assert len(message.pairs) == LINES_MAX


def test_a_thousand_messages_do_not_keep_the_loop_busy(notify: Notify) -> None:
    """One unit that talks without end is heard a message at a time; others get their turn in between."""
    heard: list[Message] = []
    counts: list[int] = []

    async def listen() -> None:
        with python('while True: say("STATUS=x")', notify.env(RUN)) as child:
            notify.listen(child.pid, heard.append)
            while len(heard) < 500:
                await asyncio.sleep(0)
                counts.append(len(heard))

    asyncio.run(listen())
    assert max(after - before for before, after in itertools.pairwise(counts)) == 1


def test_while_paused_nothing_is_read_and_nothing_is_lost(notify: Notify) -> None:
    """Paused, messages wait in the socket; they are heard afterwards in their order."""
    heard: list[Message] = []

    async def listen() -> None:
        with python("sys.stdin.read(1)") as child:
            notify.listen(child.pid, heard.append)
            notify.pause(True)
            for number in range(5):
                say_from_here(notify.path, f"STATUS={number}", f"X_FLYBALL_RUN={RUN}")
            await asyncio.sleep(0.01)
            assert not heard
            notify.pause(False)
            await until(lambda: len(heard) == 5)

    asyncio.run(listen())
    assert [message.get("STATUS") for message in heard] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("name", ["", "answer.sock"])
def test_an_answer_reaches_a_sender_with_an_address(notify: Notify, folder: Path, name: str) -> None:
    """A sender whose socket has a name, of the kernel's or a file's, gets answers; that one left is no error."""

    async def listen() -> None:
        heard: list[Message] = []
        notify.listen(os.getpid(), heard.append)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
            asking.bind(os.fspath(folder / name) if name else "")
            asking.connect(os.fspath(notify.path))
            asking.send(b"X_FLYBALL_STEP={}")
            await until(lambda: heard)
            assert heard[0].answer is not None
            heard[0].answer(b"yes")
            assert asking.recv(100) == b"yes"
        heard[0].answer(b"too late")

    asyncio.run(listen())


def test_only_its_user_can_reach_it(notify: Notify) -> None:
    """The socket has mode 0600, in a folder with mode 0700; it is gone when it is closed."""
    assert stat.S_IMODE(notify.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(notify.path.parent.stat().st_mode) == 0o700
    notify.close()
    assert not notify.path.exists()


def test_a_stale_socket_is_replaced_a_live_one_never(folder: Path) -> None:
    """What a killed supervisor left is replaced; a second live supervisor is refused with a word on what to do."""
    first = Notify.open(folder, "u")
    with pytest.raises(FlyballError, match="another supervisor listens"):
        Notify.open(folder, "u")
    assert first._socket is not None
    first._socket.close()
    second = Notify.open(folder, "u")
    assert second.path == first.path
    second.close()


@pytest.mark.parametrize("unit", ["a/b", "..", "ü" * 40, "x" * 300])
def test_any_name_of_a_unit_gives_a_socket(folder: Path, unit: str) -> None:
    """Names that are no plain file names do not lead out of the folder."""
    opened = Notify.open(folder, unit)
    assert opened.path.parent == folder
    opened.close()


def test_a_long_path_is_replaced_by_a_short_one_always_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a state folder that is too deep the socket is elsewhere, and there the next supervisor finds it."""
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    deep = folder / ("d" * 200)
    first = Notify.open(deep, "u")
    assert first.path.parent == folder / f"flyball-{os.geteuid()}"
    assert stat.S_IMODE(first.path.parent.stat().st_mode) == 0o711
    path = first.path
    first.close()
    again = Notify.open(deep, "u")
    assert again.path == path
    again.close()


def test_a_folder_that_is_not_ours_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else may have made a folder or link of that name where everybody may: a clear error."""
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    (folder / f"flyball-{os.geteuid()}").symlink_to("/")
    with pytest.raises(FlyballError, match="not a folder of this user"):
        Notify.open(folder / ("d" * 200), "u")


def test_a_folder_that_cannot_be_made_is_a_clear_error(folder: Path) -> None:
    """No traceback of an OSError: what, where, what to do."""
    folder.parent.joinpath("notify").write_text("a file")
    with pytest.raises(FlyballError, match="notify"):
        Notify.open(folder, "u")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_a_unit_of_another_user_reaches_its_socket_and_others_do_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit that runs as another user can speak; a third user cannot."""
    folder.parent.chmod(0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(folder.parent))
    notify = Notify.open(folder, "u", uid=65534)
    notify.expect(RUN)
    heard: list[Message] = []
    script = (
        "import os, socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); "
        "s.connect(os.environ['NOTIFY_SOCKET']); s.send(b'READY=1')"
    )

    def speak(uid: int) -> subprocess.CompletedProcess[bytes]:
        # The system's own interpreter: another user may not be able to reach this one.
        return subprocess.run(
            ["setpriv", f"--reuid={uid}", "--clear-groups", "/usr/bin/python3", "-c", script],
            env={**os.environ, **notify.env(RUN)},
            capture_output=True,
            check=False,
            cwd="/",
        )

    async def listen() -> None:
        with command("cat") as main:
            notify.listen(main.pid, heard.append)
            assert speak(65534).returncode == 0
            assert speak(65533).returncode != 0
            notify.rest()

    try:
        asyncio.run(listen())
    finally:
        notify.close()
    assert [message.get("READY") for message in heard] == ["1"]


def test_units_do_not_inherit_the_supervisors_own_supervisor(notify: Notify) -> None:
    """flyball may itself run under systemd: what that told it must not reach a unit, so its name is here."""
    assert {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", *notify.env(RUN)} <= set(notify_module.INHERITED)
