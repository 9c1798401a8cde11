"""A person, a terminal, `flyball run`, and a child that thinks that the terminal is its own."""

import asyncio
import contextlib
import os
import select
import signal
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.runtimes.terminal import Terminal
from tests.cli.running import FLYBALL, Place, Screen, until

LOCAL_MODES = 3
RAW_LACKS = termios.ICANON | termios.ECHO | termios.ISIG

CHILD = """
import os, signal, sys, threading
TOLD = (signal.SIGWINCH, signal.SIGINT)
def size():
    found = os.get_terminal_size(0)
    return f"{found.lines}x{found.columns}"
def watch():
    while True:
        resized = signal.sigwait(TOLD) is signal.SIGWINCH
        print(f"resized {size()}" if resized else "interrupted", flush=True)
# Not by handlers: a signal that comes just before `input` waits for a line would be told with that line.
signal.pthread_sigmask(signal.SIG_BLOCK, TOLD)
threading.Thread(target=watch, daemon=True).start()
os.close(os.open("/dev/tty", os.O_RDWR))
print("began", size(), os.isatty(1), sys.argv[1:], flush=True)
while (line := input()) != "bye":
    print("heard", line, flush=True)
    if line.startswith("exit"):
        sys.exit(int(line.split()[1]))
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    (tmp_path / "child.py").write_text(CHILD)
    yield place
    for pid in place.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def child(*words: str) -> tuple[str, ...]:
    return (*words, "--", sys.executable, "child.py")


def test_keys_size_and_question(place: Place) -> None:
    """The child has a terminal of its own, of the person's size, also when that changes; every key is the child's,
    Ctrl-C and Ctrl-Z too; after a clean exit the person is asked: Enter starts it anew, q ends it, all else asks again.
    The person's terminal is raw as long as the child lives, and as it was before and after."""
    with Screen(place, *child("--continue-args", "--continue")) as screen:
        before = screen.mode()
        screen.shows(r"began 33x101 True \[\]\r\n")
        assert screen.mode()[LOCAL_MODES] & RAW_LACKS == 0
        screen.resize(40, 120)
        screen.shows("resized 40x120")
        screen.type("\x03")
        screen.shows("interrupted")
        screen.type("\x1ahallo\r")
        screen.shows("heard hallo")
        screen.type("bye\r")
        screen.shows("exited: done")
        screen.shows("Enter to restart, q to quit: ")
        assert screen.mode() == before
        screen.type("what\r")
        screen.shows("Enter to restart, q to quit: ")
        screen.type("\r")
        screen.shows(r"began 40x120 True \[\]\r\n")
        screen.type("bye\r")
        screen.shows("Enter to restart, q to quit: ")
        screen.type("q\r")
        assert screen.code() == 0
        assert screen.mode() == before


def test_failure_on_a_terminal(place: Place) -> None:
    """S4: a failure is not asked about: it is restarted after the delay, with the conversation kept. What was on the
    screen names it."""
    with Screen(place, *child("--continue-args", "--continue", "--name", "x")) as screen:
        screen.shows("began")
        screen.type("exit 1\r")
        screen.shows(r"flyball: x exited: error: exit 1 \([0-9a-f]{8}\); waits")
        screen.shows(r"began 33x101 True \['--continue'\]")
        screen.type("bye\r")
        screen.shows("Enter to restart")
        screen.type("\x04")
        assert screen.code() == 0
    assert "heard exit 1" in (place.state / "logs" / "x.log").read_text()


def test_ctrl_c_that_ends_it(place: Place) -> None:
    """A child that ends because the person typed Ctrl-C was stopped by the person: it is not restarted."""
    with Screen(place, "--name", "x", "--", "sh", "-c", "echo up; exec sleep 600") as screen:
        screen.shows("up")
        screen.type("\x03")
        assert screen.code() == 130
        screen.shows("exited: stopped")
    with Screen(place, "--name", "y", "--", sys.executable, "-c", "print('up'); input()") as screen:
        screen.shows("up")
        screen.type("\x03")
        assert screen.code() == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_mode_is_put_back_when_it_is_ended(place: Place, number: signal.Signals) -> None:
    """A signal ends the child, and the person's terminal is as it was."""
    with Screen(place, *child()) as screen:
        before = screen.mode()
        screen.shows("began")
        os.kill(screen.process.pid, number)
        assert screen.code() == 128 + number
        assert screen.mode() == before
    assert place.processes() == []


def test_signal_while_it_asks_or_waits(place: Place) -> None:
    """Ctrl-C at the question, and in a wait, ends it: there the terminal is the person's."""
    place.env["FLYBALL_CRASH_POLICY__TRANSIENT_DELAY_SECONDS"] = "3600"
    with Screen(place, "--name", "x", "--", "true") as screen:
        screen.shows("Enter to restart")
        screen.type("\x03")
        assert screen.code() == 130
    with Screen(place, "--name", "y", "--", "false") as screen:
        screen.shows("waits")
        screen.type("\x03")
        assert screen.code() == 130


def test_screen_of_a_crashed_child(place: Place) -> None:
    """A child that drew its own screen and crashed leaves the person with the usual one: no mouse, no other screen."""
    draw = "import os; os.write(1, b'\\x1b[?1049h\\x1b[?1000;1006h\\x1b[?2004h\\x1b[?2004l'); os.abort()"
    with Screen(place, "--restart", "never", "--name", "x", "--", sys.executable, "-c", draw) as screen:
        screen.shows(r"\x1b\[\?1000l\x1b\[\?1006l\x1b\[\?1049lflyball: x exited: error: SIGABRT")
        assert screen.code() == 128 + signal.SIGABRT


def test_much_output_and_much_input(place: Place) -> None:
    """Nothing is lost on the way, in either direction, and the last of it is shown before the end is told."""
    count = (
        "import sys; print(sum(len(sys.stdin.readline()) for _ in range(200)), 'read'); print('x' * 300_000 + 'end')"
    )
    with Screen(place, "--name", "x", "--", sys.executable, "-c", f"print('up'); {count}") as screen:
        screen.shows("up")
        for _ in range(200):
            screen.type("y" * 99 + "\r")
            screen.shows("y" * 99)
        screen.shows("20000 read")
        screen.shows("x" * 300_000 + "end\r\n")
        screen.shows("exited: done")
        screen.shows("Enter to restart")
        screen.type("q\r")
        assert screen.code() == 0


def test_question_to_a_terminal_that_is_full() -> None:
    """A question is shown when the terminal takes it, and is not lost: nobody would know that an answer is wanted."""
    master, slave = os.openpty()
    terminal = Terminal(slave, slave)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(terminal.shown, b"x" * 4096)

    async def converse() -> str | None:
        asked = asyncio.ensure_future(terminal.ask("more? "))
        await asyncio.sleep(0)
        seen = b""
        while not seen.endswith(b"more? "):
            ready, _, _ = await asyncio.to_thread(select.select, [master], [], [], 10)
            assert ready, "the question does not come"
            seen += os.read(master, 65_536)
        os.write(master, b"yes\n")
        return await asyncio.wait_for(asked, 30)

    try:
        assert asyncio.run(converse()) == "yes"
    finally:
        terminal.close()
        os.close(master)
        os.close(slave)


def test_no_terminal_for_the_child(place: Place) -> None:
    """With --no-tty on a terminal the child has none, and after a clean exit nobody is asked."""
    script = "import os; print('tty', os.isatty(1))"
    with Screen(place, "--no-tty", "--", sys.executable, "-c", script) as screen:
        screen.shows("tty False")
        assert screen.code() == 0


def test_killed_on_a_terminal(place: Place) -> None:
    """After kill -9 of the supervisor nothing is left running, and the person's terminal is as it was."""
    with Screen(place, *child()) as screen:
        before = screen.mode()
        screen.shows("began")
        os.kill(place.supervisor(screen.process), signal.SIGKILL)
        assert screen.code() == 128 + signal.SIGKILL
        assert screen.mode() == before
        until(lambda: not place.processes(), "the end of everything")


@pytest.mark.parametrize("words", [child(), ("--no-tty", "--", "sh", "-c", "echo began; exec sleep 600")])
def test_window_is_closed(place: Place, words: tuple[str, ...]) -> None:
    """When the terminal is gone, so is the child, in order: also one that had nothing to do with the terminal."""
    with Screen(place, "--name", "x", *words) as screen:
        screen.shows("began")
        screen.hang_up()
        screen.code()
        until(lambda: not place.processes(), "the end of everything")
    exits = [line["data"] for line in place.journal("x") if line["event"] == "exited"]
    assert [line["cause"] for line in exits] == ["stopped"]


def test_keys_without_a_terminal_for_the_child(place: Place) -> None:
    """With --no-tty the child still reads what is typed; in the background it does not, as that is for the shell."""
    with Screen(place, "--no-tty", "--", "sh", "-c", "read line; echo got $line") as screen:
        screen.shows("started")
        screen.type("this\r")
        screen.shows("got this")
        assert screen.code() == 0
    script = 'set -m; "$@" & wait $!; echo code $?'
    flyball = (*FLYBALL, "run", "--no-tty", "--name", "y", "--", "sh", "-c", "read line; echo got $line")
    with Screen(place, command=("bash", "-c", script, "bash", *flyball)) as screen:
        screen.type("this\r")
        screen.shows("got\r\n")
        screen.shows("code 0")


def test_suspended(place: Place) -> None:
    """Without a terminal for the child, Ctrl-Z stops it together with flyball, and both go on together."""
    with Screen(place, "--no-tty", "--", "sh", "-c", "echo $$ > pid; exec sleep 600") as screen:
        pid = int(until(lambda: place.lines("pid"), "the start")[0])
        supervisor = place.supervisor(screen.process)
        screen.type("\x1a")
        until(lambda: (state_of(pid), state_of(supervisor)) == ("T", "T"), "the stop")
        os.kill(supervisor, signal.SIGCONT)
        until(lambda: (state_of(pid), state_of(supervisor)) == ("S", "S"), "going on")
        screen.type("\x03")
        assert screen.code() == 130


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
