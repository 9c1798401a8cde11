"""The world that the pages speak of: a folder with settings, programs that people would have, a past, and a daemon.

All names that pages use are there: units that run, one that is quarantined, one that is halted, sessions, a rule, a
question. Everything is real but for the user's own programs, and nothing is left of it afterwards.
"""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from flyball.control.client import connect
from flyball.core.event import Asked, Cause, Step, Stepped, Work
from flyball.core.time import HOUR, MINUTE, SECOND
from tests.control.scene import Scene, scene_in
from tests.control.work import Piece
from tests.daemon.site import QUICK, has_ended, until
from tests.docs.pages import ROOT

MARK: Final = "FLYBALL_DOCS"
"""The variable by which every process of a world is known, with its folder."""

ENDS: Final = "#!/bin/sh\necho done\n"
READS: Final = "#!/bin/sh\nexec cat > /dev/null\n"

PORTS: Final = range(10_000, 30_000)

PROGRAMS: Final = {"my-agent": ENDS, "notify-me": READS, "chown": ENDS, "browser": ENDS}
"""What the user would have. Who guards them sees them end well at once."""

FILES: Final = {
    "my-fleet.yaml": (ROOT / "examples" / "scenarios" / "spender.yaml").read_text(),
    "my.yaml": "units: {web: {command: [sleep, 1000]}}\n",
}
"""What the user would have written."""

SECRET: Final = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="  # noqa: S105 - nobody's
"""Where pages leave out what a secret is."""

LIVES: Final = "echo $FLYBALL_UNIT is up; exec sleep 1000"
TELLS: Final = 'echo {} > "$FLYBALL_CHECKPOINT"; env -0 > inside; exec sleep 1000'
SETTINGS: Final[Mapping[str, Any]] = {
    "budget": {"per_unit": 5, "per_user": 20, "per_fleet": 100, "period": "day"},
    "units": {
        **{name: {"command": ["sh", "-c", LIVES]} for name in ("web", "scraper", "shop", "nightly")},
        "digest": {"command": ["sh", "-c", TELLS], "kind": "session"},
    },
    "rules": {
        name: {"triggers": [{"every": "1h"}], "actions": [{"run": ["true"]}]} for name in ("watch-price", "inbox")
    },
}
INSIDE: Final = "inside"
"""The file in which the unit `digest` leaves its environment, for commands that are typed inside of a unit."""

FAILURE: Final = "7f3a9c2100000000"
"""The fingerprint that pages use as their example."""


def everything(scene: Scene) -> None:
    """What happened before the page is read."""
    scene.at(12 * HOUR)
    scene.quarantine("coder-3", FAILURE)
    scene.at(2 * HOUR)
    scene.flap("worker", 7)
    scene.at(HOUR)
    _failed_session(scene)
    board = Piece(scene, "board-7", kind="graph", user="ann")
    board.begin()
    board.step("persona", lasts=4 * MINUTE, used={"usd": 310_000}, gauges={"round": 6.0, "convergence": 0.4})
    board.end(Cause.TIMEOUT, error="timeout", policy="deadline", fingerprint="a" * 16)
    done = Piece(scene, "board-8", kind="graph", user="ann")
    done.begin()
    done.end(Cause.DONE, error="consensus")
    scene.at(MINUTE)
    scene.start("deployer")
    question = Asked(unit="deployer", run=_last_run(scene), id="3fa90001", text="Deploy?", choices=("yes", "no"))
    scene.governor.submit(question)
    _spend(scene, "my-agent")


def _failed_session(scene: Scene) -> None:
    piece = Piece(scene, "research-42", user="ann")
    piece.begin()
    for number in range(5):
        piece.step("draft", keeps=json.dumps({"draft": number}).encode())
    for _ in range(4):
        piece.pause()
        scene.clock.move(2 * MINUTE)
        piece.resume()


def _last_run(scene: Scene) -> str:
    return f"r{scene._runs}"


def _spend(scene: Scene, unit: str) -> None:
    scene.start(unit, labels={"user": "ann"})
    who: dict[str, Any] = {"unit": unit, "run": _last_run(scene), "labels": {"user": "ann"}}
    cost = {"usd": 100_000}
    scene.governor.submit(Step(cost=cost, **who))
    scene.clock.move(SECOND)
    scene.governor.submit(Stepped(done=(Work(reserved=cost, used=cost),), **who))
    scene.exit(unit, Cause.DONE)


class World:
    """One folder, for as long as the block lasts."""

    def __init__(self) -> None:
        # Its path is part of the addresses of sockets, which may not be long.
        self.folder = Path(tempfile.mkdtemp(prefix="fb-docs-")).resolve()
        self.state = self.folder / "state"
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        for name in ("examples", "deploy", "tests"):
            (self.folder / name).symlink_to(ROOT / name)
        ports = free_ports(4)
        self.instead = {
            r"127\.0\.0\.1:8910\b": f"127.0.0.1:{ports[0]}",
            r"127\.0\.0\.1:80\b": f"127.0.0.1:{ports[1]}",
            r"127\.0\.0\.1:8787\b": f"127.0.0.1:{ports[2]}",
            r"\b8099\b": str(ports[3]),
            "whsec_…": SECRET,
            "postgresql://…": "sqlite:///dbos.sqlite",  # where DBOS takes either
            r"/etc/prometheus\b": str(self.folder),
            r"/var/lib/flyball\b": str(self.state),
        }
        mine = {name: value for name, value in os.environ.items() if not name.startswith("FLYBALL_")}
        self.env = {
            **mine,
            **QUICK,
            MARK: str(self.folder),
            "FLYBALL_STATE_DIR": str(self.state),
            "FLYBALL_HTTP__LISTEN": f"127.0.0.1:{ports[0]}",
            "FLYBALL_RULE__LISTEN": f"127.0.0.1:{ports[2]}",
            "BROWSER": "browser",
            "TERM": "xterm",
            "HOME": str(self.folder),
            "PATH": f"{self.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        until(lambda: not self._kill(), "nothing that runs")
        shutil.rmtree(self.folder)

    def here(self, text: str) -> str:
        """What a page says, with the addresses and folders of this world in it."""
        for theirs, ours in self.instead.items():
            text = re.sub(theirs, ours, text)
        return text

    def has(self, programs: Mapping[str, str]) -> None:
        """These programs are on the PATH."""
        for name, text in programs.items():
            file = self.programs / name
            file.write_text(text)
            file.chmod(0o755)

    def settle(self, *settings: Mapping[str, Any]) -> None:
        """Make the settings file: these, the later ones over the earlier ones, section by section."""
        whole: dict[str, Any] = {}
        for given in settings:
            for section, value in given.items():
                old = whole.get(section)
                whole[section] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
        (self.folder / "flyball.yaml").write_text(yaml.safe_dump(whole))

    def past(self) -> Scene:
        """Make what happened. To be closed before a daemon starts."""
        return scene_in(self.state)

    def inside(self) -> dict[str, str]:
        """The environment of the unit `digest`, which runs."""
        file = self.folder / INSIDE
        until(lambda: file.exists() and file.read_bytes().endswith(b"\0"), "a unit that runs")
        pairs = [pair.partition("=") for pair in file.read_text().split("\0") if pair]
        return {name: value for name, _, value in pairs if "FLYBALL" in name or name == "NOTIFY_SOCKET"}

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Ask the daemon; nothing if there is none."""
        client = connect(self.state)
        if client is None:
            return None
        with client:
            return client.ask(verb, arguments)

    def down(self) -> None:
        """End the daemon in order, if there is one."""
        told = self.ask("down")
        if told:
            for pid in (told["pid"], told["guardian"]):
                until(lambda pid=pid: has_ended(pid), "the end of the daemon")  # type: ignore[misc]

    def processes(self) -> list[int]:
        """Whatever runs here, also what nobody looks after."""
        mark = f"{MARK}={self.folder}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    marks = (folder / "environ").read_bytes().split(b"\0")
                except OSError:
                    continue
                if mark in marks and not has_ended(int(folder.name)):
                    found.append(int(folder.name))
        return found

    def _kill(self) -> list[int]:
        """kill -9 of whatever there is; what there was. What is killed may have been starting something."""
        found = self.processes()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return found

    def left(self) -> Sequence[str]:
        """What still runs a moment after it all should have ended."""
        ends = time.monotonic() + 10
        while self.processes() and time.monotonic() < ends:
            time.sleep(0.02)
        return [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in self.processes()]


def free_ports(count: int) -> list[int]:
    """So many that nobody listens on. Below those that the system gives out: nobody gets one of them meanwhile."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            break
    return found
