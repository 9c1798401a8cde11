"""A place to run a daemon in: a settings file, a state folder, and eyes on the real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from flyball.control.client import connect
from tests.zygote import command

T = TypeVar("T")
PATIENCE = 20.0
"""Seconds for something that takes a fraction of one: this machine may be busy."""

QUICK = {
    "FLYBALL_CRASH_POLICY__TRANSIENT_DELAY_SECONDS": "0.01",
    "FLYBALL_CRASH_POLICY__FLAPPING_DELAY_SECONDS": "0.02",
    "FLYBALL_QUARANTINE__COOLDOWN_LADDER_SECONDS": "[0.02]",
    "FLYBALL_CIRCUIT_BREAKER__FAILURE_THRESHOLD": "1000000",
    "FLYBALL_SAFETY__GLOBAL_FAILURE_THRESHOLD": "1000000",
    "FLYBALL_SAFETY__MAX_BOOTS": "1000000",
}
"""Short waits, and nothing that stops a fleet: for tests about other things."""


def until(there: Callable[[], T], what: str = "it") -> T:
    """Look until there is something; what it is."""
    give_up = time.monotonic() + PATIENCE
    while True:
        found = there()
        if found:
            return found
        assert time.monotonic() < give_up, f"{what}: not within {PATIENCE:g} s"
        time.sleep(0.01)


def has_ended(pid: int) -> bool:
    """Gone, or dead and not reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class Site:
    """One daemon's place. Everything that was started here is gone after `clean`."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.file = folder / "flyball.yaml"
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("FLYBALL_")}
        # Most of them are not about the page, and there are many at the same time.
        self.env |= {"FLYBALL_STATE_DIR": str(self.state), "FLYBALL_HTTP__LISTEN": "off"}
        self.env |= {"FLYBALL_SITE": str(folder), **QUICK, **env}

    def write(self, units: Mapping[str, Any], **more: Any) -> None:
        """Make the settings file."""
        self.file.write_text(yaml.safe_dump({"units": dict(units), **more}))

    def flyball(self, *args: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run the command."""
        done = command().run("flyball", *args, cwd=self.folder, env=self.env)
        assert code is None or done.returncode == code, (args, done.returncode, done.stdout, done.stderr, self.log())
        return done

    def foreground(self) -> "subprocess.Popen[str]":
        """`flyball up`, up and running."""
        process = subprocess.Popen(
            [sys.executable, "-m", "flyball", "up"],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        until(lambda: process.poll() is not None or self.ping(), "a daemon that answers")
        return process

    def ask(self, verb: str, **args: Any) -> dict[str, Any]:
        """Ask the daemon, without the price of a command; nothing if there is none."""
        client = connect(self.state)
        if client is None:
            return {}
        with client:
            found: dict[str, Any] = client.ask(verb, args)
            return found

    def order(self, verb: str, *units: str) -> None:
        """Order something."""
        assert self.ask(verb, units=list(units))

    def status(self) -> dict[str, Any]:
        """Units by name."""
        return {unit["name"]: unit for unit in self.ask("status")["units"]}

    def ping(self) -> dict[str, Any]:
        """What the daemon says of itself; nothing if there is none."""
        return self.ask("ping")

    def down(self) -> None:
        """End all, without the price of a command."""
        told = self.ask("down")
        for pid in (told["pid"], told["guardian"]):
            until(lambda pid=pid: has_ended(pid), "the end")  # type: ignore[misc]

    def running(self) -> dict[str, list[int]]:
        """The processes that carry the mark of this place, by unit: also those that nobody looks after."""
        found: dict[str, list[int]] = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                marks = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"FLYBALL_SITE={self.folder}".encode() in marks and not has_ended(int(folder.name)):
                names = [mark.partition(b"=")[2].decode() for mark in marks if mark.startswith(b"FLYBALL_UNIT=")]
                for name in names:
                    found.setdefault(name, []).append(int(folder.name))
        return found

    def all_up(self, *names: str) -> dict[str, list[int]]:
        """Wait until these, and no others, run; each once."""
        return until(lambda: ((now := self.running()).keys() == set(names) and now) or {}, f"running: {names}")

    def gone(self) -> None:
        """Wait until nothing runs here."""
        until(lambda: not self.running(), "nothing that runs")

    def log(self) -> str:
        """What the daemon said."""
        texts = [file.read_text() for file in self.state.glob("daemon.*") if file.is_file()]
        return "\n".join(texts)

    def clean(self) -> None:
        """End whatever is left."""
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    marks = (folder / "environ").read_bytes().split(b"\0")
                    if f"FLYBALL_SITE={self.folder}".encode() in marks:
                        os.kill(int(folder.name), signal.SIGKILL)
                except OSError:
                    continue
        self.gone()
