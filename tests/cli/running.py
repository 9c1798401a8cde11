"""A real `flyball run` for tests: in a folder of its own, with short delays, and nothing left running afterwards."""

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flyball.cli.ask import Asking

WAIT_MAX = 30.0
"""Seconds for anything to happen. Far more than it takes, also on a busy machine."""

FLYBALL = (sys.executable, "-P", "-m", "flyball")
SHORT = {
    "FLYBALL_QUARANTINE__COOLDOWN_LADDER_SECONDS": "[0.02]",
    "FLYBALL_CRASH_POLICY__TRANSIENT_DELAY_SECONDS": "0.02",
    "FLYBALL_CRASH_POLICY__FLAPPING_DELAY_SECONDS": "0.03",
}
TERMINAL = ("/bin/sh", "-c", 'exec "$@" <>"$0" >&0 2>&0')
"""Makes the terminal that it is given the controlling one of a new session."""


def until(happened: Callable[[], Any], what: str = "it") -> Any:
    """Wait until it happened, and return what it is."""
    end = time.monotonic() + WAIT_MAX
    while not (found := happened()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {WAIT_MAX:g} s")
        time.sleep(0.01)
    return found


class Place:
    """A state folder, a working folder, and an environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("FLYBALL_")}
        self.env = {**clean, **SHORT, "FLYBALL_STATE_DIR": str(self.state), "TERM": "xterm"}

    def flyball(self, *words: str, typed: str = "", **env: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        return subprocess.run(
            [*FLYBALL, *words],
            cwd=self.folder,
            env={**self.env, **env},
            input=typed,
            capture_output=True,
            text=True,
            timeout=WAIT_MAX,
            check=False,
        )

    def run(self, *words: str, typed: str = "", **env: str) -> "subprocess.CompletedProcess[str]":
        """`flyball run --no-tty`, to its end."""
        return self.flyball("run", "--no-tty", *words, typed=typed, **env)

    @contextlib.contextmanager
    def running(self, *words: str, env: Mapping[str, str] | None = None) -> "Iterator[subprocess.Popen[str]]":
        """`flyball run --no-tty`, meanwhile."""
        process = subprocess.Popen(
            [*FLYBALL, "run", "--no-tty", *words],
            cwd=self.folder,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            self.end(process)

    def end(self, process: "subprocess.Popen[Any]") -> None:
        """Nothing of it is left afterwards, also when a test failed."""
        for pid in (*self.processes(), process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(WAIT_MAX)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()

    def lines(self, name: str) -> list[str]:
        """What the children wrote into a file."""
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    def processes(self) -> list[int]:
        """Every process that has this place's state folder in its environment."""
        mark = f"FLYBALL_STATE_DIR={self.state}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (folder / "environ").read_bytes().split(b"\0"):
                        found.append(int(folder.name))
        return found

    def supervisor(self, process: "subprocess.Popen[Any]") -> int:
        """The process that the guardian guards."""
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return int(children[0])

    def journal(self, unit: str) -> list[dict[str, Any]]:
        """What the journal says, as `flyball events --json` has it, without the price of a command."""
        with Asking(self.env) as ask:
            events: list[dict[str, Any]] = ask("events", unit=unit)["events"]
        return events


class Screen:
    """A person at a terminal, in front of a real command."""

    def __init__(
        self, place: Place, *words: str, command: Sequence[str] = (*FLYBALL, "run"), rows: int = 33, columns: int = 101
    ) -> None:
        self.place = place
        self.master, self.slave = os.openpty()
        self.resize(rows, columns)
        self.seen = b""
        self.process = subprocess.Popen(
            [*TERMINAL, os.ttyname(self.slave), *command, *words],
            cwd=place.folder,
            env=place.env,
            start_new_session=True,
        )

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, *_: object) -> None:
        self.place.end(self.process)
        self.hang_up()
        os.close(self.slave)

    def hang_up(self) -> None:
        """The person closes the window."""
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def resize(self, rows: int, columns: int) -> None:
        """The person changes the window."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def mode(self) -> list[Any]:
        """How the terminal is set."""
        return termios.tcgetattr(self.slave)

    def type(self, text: str) -> None:
        """The person types."""
        os.write(self.master, text.encode())

    def shows(self, pattern: str) -> "re.Match[bytes]":
        """Wait until this is on the screen; what is after it is left to be seen."""
        end = time.monotonic() + WAIT_MAX
        while not (found := re.search(pattern.encode(), self.seen)):
            ready, _, _ = select.select([self.master], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"{pattern!r} is not on the screen after {WAIT_MAX:g} s: {self.seen!r}")
            self.seen += os.read(self.master, 65_536)
        self.seen = self.seen[found.end() :]
        return found

    def code(self) -> int:
        """Its exit code."""
        return self.process.wait(WAIT_MAX)
