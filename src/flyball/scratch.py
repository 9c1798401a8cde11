"""A flyball for a while: a settings file, a state folder and a daemon of their own, all gone afterwards.

Everything here goes through the command that a user types and the socket that it asks, so that whatever is seen here is
seen in earnest. Nothing that is set outside has a say. It goes also when whoever made it is killed.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from flyball.config.layers import OTHER_VARIABLES
from flyball.control.client import connect
from flyball.errors import FlyballError
from flyball.sweeper import GONE_WITHIN, LOOK_EVERY, MARK, goes_with_us, is_alive, processes_of, sweep

COMMAND: Final = (sys.executable, "-m", "flyball")
COMMAND_MAX: Final = 120.0
"""Seconds for one command. It takes a fraction of one: a machine may be busy."""

T = TypeVar("T")


class NotSeen(FlyballError):
    """Something that was to come about did not, or not in time."""

    remedy = "On a machine that is very busy, try once more; otherwise this is a fault of flyball: tell its makers."


class Scratch:
    """One folder with a daemon in it, for as long as the block lasts."""

    def __init__(self, prefix: str, **env: str) -> None:
        # The folder's path is kept short, for it is part of the addresses of sockets.
        self.folder = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
        goes_with_us(self.folder)
        self.state = self.folder / "state"
        self.file = self.folder / "flyball.yaml"
        self.env = {name: value for name, value in os.environ.items() if not _has_a_say(name)}
        self.env |= {
            "FLYBALL_STATE_DIR": str(self.state),
            "FLYBALL_CONFIG": str(self.file),
            MARK: str(self.folder),
            # Units call `flyball` and `python3`, and mean these.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{self.env.get('PATH', os.defpath)}",
            **env,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.clean()

    def write(self, settings: Mapping[str, Any]) -> None:
        """Make the settings file. JSON is YAML, too."""
        self.file.write_text(json.dumps(settings, indent=2), encoding="utf-8")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command `flyball`; what it said, whatever its exit code."""
        return subprocess.run(  # noqa: S603 - it is ourselves
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_MAX,
            check=False,
        )

    def flyball(self, *arguments: str) -> str:
        """Run the command `flyball`; what it printed. It must end well."""
        done = self.run(*arguments)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise NotSeen(f"`flyball {' '.join(arguments)}` ended with {done.returncode}: {said}")
        return done.stdout

    def up(self) -> None:
        """Start the daemon; it is ready."""
        self.flyball("up", "--detach")

    def down(self) -> None:
        """End it in order, if there is one."""
        self.flyball("down")

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Ask the daemon, without the price of a command."""
        client = connect(self.state)
        if client is None:
            raise NotSeen("no daemon answers in the scratch folder")
        with client:
            return client.ask(verb, arguments)

    def units(self) -> dict[str, dict[str, Any]]:
        """How each unit is, by its name."""
        return {unit["name"]: unit for unit in self.ask("status")["units"]}

    def kill_daemon(self) -> None:
        """kill -9 of the supervisor; returns when its guardian has ended, too."""
        there = self.ask("ping")
        os.kill(there["pid"], signal.SIGKILL)
        wait(lambda: not is_alive(there["guardian"]), GONE_WITHIN, "the guardian's end after a kill -9")

    def processes(self) -> list[int]:
        """Whatever runs here, also what nobody looks after."""
        return processes_of(self.folder)

    def clean(self) -> None:
        """Nothing is left: no process, no folder. For who is in a hurry, or finds that something went wrong."""
        sweep(self.folder)


def wait(there: Callable[[], T | None], within: float, what: str) -> T:
    """Look until there is something; what it is. NotSeen if there is nothing in time."""
    ends = time.monotonic() + within
    while True:
        found = there()
        if found:
            return found
        if time.monotonic() >= ends:
            raise NotSeen(f"not seen within {within:g} s: {what}")
        time.sleep(LOOK_EVERY)


def _has_a_say(variable: str) -> bool:
    return variable.startswith("FLYBALL_") or variable in OTHER_VARIABLES
