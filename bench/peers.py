"""The supervisors that are measured: where each comes from, how it is told what to run, how it is started and ended.

Peers are installed for the purpose into a folder of their own, never into this project's environment. Whatever cannot
be had is `Absent`, with the reason. Every process that comes of this carries a mark, and none outlives its `Place`.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from flyball.control.client import connect

SOURCE: Final = Path(__file__).with_name("floor.c")
MARK: Final = "FLYBALL_BENCH"
INSTALL_MAX: Final = 300.0
"""Seconds for one installation: a slow network is no reason to wait for ever."""
END_MAX: Final = 20.0
"""Seconds for a supervisor to end by itself before it is killed with all that it started."""
LOOK: Final = 0.02
"""Seconds between looks at what has no event for us."""

RAISED: Final = {
    "quarantine": {"cooldown_ladder_seconds": [0.000001], "max_failures_before_quarantine": 1_000_000},
    "circuit_breaker": {"failure_threshold": 1_000_000},
    "safety": {"global_failure_threshold": 1_000_000, "max_boots": 1_000_000},
    "restart_policy": {
        "max_restarts_per_hour": 1_000_000,
        "max_restarts_in_a_row": 1_000_000,
        "max_total_restarts_per_hour": 1_000_000,
        "jitter": 0.0,
    },
    "crash_policy": {
        "halt_threshold": 1_000_000,
        "transient_delay_seconds": 0.000001,
        "flapping_delay_seconds": 0.000001,
    },
}
"""Nothing waits and nothing is held: what is left is the price of asking."""


class Absent(Exception):
    """This one cannot be measured here; the text says why."""


@dataclass(frozen=True, slots=True)
class Job:
    """One unit: its name, its command, and what else flyball is told of it."""

    name: str
    argv: tuple[str, ...]
    more: tuple[tuple[str, Any], ...] = ()


def cache() -> Path:
    """Where the peers are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flyball-bench"


def compiled(folder: Path) -> Path:
    """The floor and the child, compiled into that folder."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise Absent("there is no C compiler (gcc or cc), so there is neither the floor nor the child")
    program = folder / "floor"
    run([compiler, "-O2", "-o", str(program), str(SOURCE)], "compiling floor.c")
    return program


def run(argv: Sequence[str], what: str, *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    """Run a command to its end. Absent, with the last line that it said, if it fails."""
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            timeout=INSTALL_MAX,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Absent(f"{what}: {type(error).__name__}") from None
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no word"]
        raise Absent(f"{what}: exit {done.returncode}: {last[0][:200]}")


def until(there: Callable[[], object], seconds: float) -> bool:
    """Look until it is so, or the time is over; whether it is."""
    give_up = time.monotonic() + seconds
    while not there():
        if time.monotonic() > give_up:
            return False
        time.sleep(LOOK)
    return True


class Place:
    """A folder in which one supervisor runs. Everything that was started in it is gone when it is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._mark = f"{MARK}={uuid.uuid4().hex}".encode()
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("FLYBALL_")}
        self.env[MARK] = self._mark.decode().partition("=")[2]

    def __enter__(self) -> "Place":
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def popen(self, argv: Sequence[str], **more: str) -> "subprocess.Popen[bytes]":
        """Start something here. What it says goes to a file."""
        with (self.folder / "supervisor.out").open("ab") as out:
            return subprocess.Popen(
                argv,
                cwd=self.folder,
                env={**self.env, **more},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def marked(self) -> list[int]:
        """The processes that came of this place and live."""
        found = []
        for name in os.listdir("/proc"):  # noqa: PTH208 - numbers are wanted, not paths
            with contextlib.suppress(OSError):
                if name.isdigit() and self._mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.append(int(name))
        return found

    def clear(self) -> None:
        """Kill whatever is left, until nothing is."""
        give_up = time.monotonic() + END_MAX
        while (left := self.marked()) and time.monotonic() < give_up:
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            reap()
            time.sleep(LOOK)


def reap() -> None:
    """Take note of children that have ended and that nobody waits for."""
    for process in list(_begun):
        if process.poll() is not None:
            _begun.remove(process)


_begun: "list[subprocess.Popen[bytes]]" = []


class Supervisor(ABC):
    """One of those that are compared. `raised`: as quick to restart as its settings allow; otherwise its defaults."""

    name = ""

    def __init__(self, place: Place, jobs: Sequence[Job], *, raised: bool) -> None:
        self.place, self.jobs, self.raised = place, jobs, raised
        self.process: subprocess.Popen[bytes] | None = None
        self.prepare()

    @classmethod
    def install(cls) -> None:
        """Make sure that it is there. Absent if it cannot be."""
        return

    @abstractmethod
    def prepare(self) -> None:
        """Write its settings."""

    @abstractmethod
    def argv(self) -> list[str]:
        """The command that starts it in the foreground."""

    def environment(self) -> dict[str, str]:
        """Besides the mark."""
        return {}

    def begin(self) -> None:
        """Start it; a second time after `crash`."""
        self.process = self.place.popen(self.argv(), **self.environment())
        _begun.append(self.process)

    def pid(self) -> int:
        """The process that supervises."""
        assert self.process is not None
        return self.process.pid

    def crash(self) -> None:
        """kill -9 of the process that supervises; returns when it is gone."""
        os.kill(self.pid(), signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def end(self) -> None:
        """End it in order; what does not end is killed."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_MAX)
        self.place.clear()
        reap()


class Floor(Supervisor):
    """A C loop."""

    name = "floor (C)"

    def prepare(self) -> None:
        (self.place.folder / "jobs").write_text("".join(" ".join(job.argv) + "\n" for job in self.jobs))

    def argv(self) -> list[str]:
        return [self.jobs[0].argv[0], "supervise", "jobs"]


class Flyball(Supervisor):
    """Ours: the guardian and the daemon."""

    name = "flyball"

    def prepare(self) -> None:
        units = {job.name: {"command": list(job.argv), **dict(job.more)} for job in self.jobs}
        text = yaml.safe_dump({"units": units, **(RAISED if self.raised else {})})
        (self.place.folder / "flyball.yaml").write_text(text)

    def argv(self) -> list[str]:
        return [sys.executable, "-m", "flyball", "up", "--config", "flyball.yaml"]

    def environment(self) -> dict[str, str]:
        return {"FLYBALL_STATE_DIR": str(self.state)}

    @property
    def state(self) -> Path:
        """Its state folder."""
        return self.place.folder / "state"

    def answers(self) -> bool:
        """Whether its daemon is there."""
        client = connect(self.state)
        if client is not None:
            client.close()
        return client is not None

    def pid(self) -> int:
        """The daemon, which is the guardian's child."""
        guardian = super().pid()

        def daemon() -> list[str]:
            with contextlib.suppress(OSError):
                return Path(f"/proc/{guardian}/task/{guardian}/children").read_text().split()
            return []

        until(daemon, END_MAX)
        return int(daemon()[0])


class Supervisord(Supervisor):
    """From PyPI."""

    name = "supervisord"

    @classmethod
    def install(cls) -> None:
        _pip("supervisor", "supervisord")

    def prepare(self) -> None:
        quick = "autorestart=true\nstartsecs=0\nstartretries=1000000\n" if self.raised else ""
        parts = ["[supervisord]\nnodaemon=true\nuser=root\nminfds=8192\nlogfile=log\npidfile=pid\nchildlogdir=.\n"]
        if os.geteuid():
            parts[0] = parts[0].replace("user=root\n", "")
        for job in self.jobs:
            parts.append(f"[program:{job.name}]\ncommand={shlex.join(job.argv)}\nstdout_logfile=%(program_name)s.out\n")
            parts[-1] += quick
        (self.place.folder / "supervisord.conf").write_text("\n".join(parts))

    def argv(self) -> list[str]:
        return [str(cache() / "venv/bin/supervisord"), "-c", "supervisord.conf"]


class Circus(Supervisor):
    """From PyPI."""

    name = "circus"

    @classmethod
    def install(cls) -> None:
        _pip("circus", "circusd")

    def prepare(self) -> None:
        quick = "max_retry = -1\nwarmup_delay = 0\n" if self.raised else ""
        ends = "".join(
            f"{name} = ipc://{self.place.folder}/{name}\n" for name in ("endpoint", "pubsub_endpoint", "stats_endpoint")
        )
        parts = [f"[circus]\n{ends}" + ("check_delay = 0.01\n" if self.raised else "")]
        for job in self.jobs:
            parts.append(f"[watcher:{job.name}]\ncmd = {shlex.join(job.argv)}\ncopy_env = True\n{quick}")
            parts[-1] += f"stdout_stream.class = FileStream\nstdout_stream.filename = {job.name}.out\n"
        (self.place.folder / "circus.ini").write_text("\n".join(parts))

    def argv(self) -> list[str]:
        return [str(cache() / "venv/bin/circusd"), "circus.ini"]


class Pm2(Supervisor):
    """From npm. It puts itself into the background."""

    name = "pm2"

    @classmethod
    def install(cls) -> None:
        npm = shutil.which("npm")
        if npm is None or shutil.which("node") is None:
            raise Absent("there is no npm")
        if not cls._program().exists():
            run([npm, "install", "--prefix", str(cache() / "npm"), "--no-audit", "--no-fund", "pm2"], "npm install pm2")

    @staticmethod
    def _program() -> Path:
        return cache() / "npm/node_modules/.bin/pm2"

    def prepare(self) -> None:
        quick = {"max_restarts": 1_000_000, "min_uptime": 100, "restart_delay": 0} if self.raised else {}
        apps = [
            {
                "name": job.name,
                "script": job.argv[0],
                "args": list(job.argv[1:]),
                "interpreter": "none",
                "out_file": f"{job.name}.out",
                "error_file": f"{job.name}.err",
                **quick,
            }
            for job in self.jobs
        ]
        (self.place.folder / "apps.json").write_text(json.dumps({"apps": apps}))

    def argv(self) -> list[str]:
        return [str(self._program()), "start", "apps.json"]

    def environment(self) -> dict[str, str]:
        return {"PM2_HOME": str(self.place.folder / "pm2")}

    def pid(self) -> int:
        """It says so in a file."""
        file = self.place.folder / "pm2/pm2.pid"
        if not until(lambda: file.exists() and file.read_text().strip(), END_MAX):
            raise Absent("pm2 did not say its pid")
        return int(file.read_text())

    def crash(self) -> None:
        pid = self.pid()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{pid}").exists(), END_MAX)
        (self.place.folder / "pm2/pm2.pid").unlink(missing_ok=True)


class Runit(Supervisor):
    """From Debian."""

    name = "runit"
    packages: tuple[str, ...] = ("runit",)
    program = "runsvdir"

    @classmethod
    def install(cls) -> None:
        _debian(cls.packages, cls.program)

    def prepare(self) -> None:
        for job in self.jobs:
            folder = self.place.folder / "services" / job.name
            folder.mkdir(parents=True)
            script = folder / "run"
            script.write_text(f"#!/bin/sh\nexec {shlex.join(job.argv)} >>{self.place.folder}/{job.name}.out\n")
            script.chmod(0o700)

    def argv(self) -> list[str]:
        return [str(cache() / "debian/usr/bin/runsvdir"), "services"]

    def environment(self) -> dict[str, str]:
        root = cache() / "debian/usr"
        return {
            "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": ":".join(map(str, sorted(root.glob("lib/*-linux-gnu*")))),
        }


class S6(Runit):
    """From Debian. Its scanner wants to be installed into the system, so each of its supervisors is started by hand."""

    name = "s6"
    packages = ("s6", "libs6-2.11", "libskarnet2.13", "libexecline2.9")
    program = "s6-supervise"

    def prepare(self) -> None:
        """It waits a second before it restarts what never said that it is ready."""
        super().prepare()
        for job in self.jobs if self.raised else ():
            folder = self.place.folder / "services" / job.name
            (folder / "notification-fd").write_text("3\n")
            script = folder / "run"
            script.write_text(script.read_text().replace("exec ", "echo >&3; exec ", 1))

    def argv(self) -> list[str]:
        return ["/bin/sh", "-c", "for service in services/*; do s6-supervise $service & done; wait"]

    def crash(self) -> None:
        """Every service has a supervisor of its own."""
        for pid in self.place.marked():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == self.program:
                    os.kill(pid, signal.SIGKILL)
        super().crash()


PEERS: Final[tuple[type[Supervisor], ...]] = (Runit, S6, Pm2, Circus, Supervisord)


def installed(peers: Sequence[type[Supervisor]] = PEERS) -> "tuple[list[type[Supervisor]], list[str]]":
    """Those that are there, or could be had; and a line for each that could not."""
    found, lines = [], []
    for peer in peers:
        try:
            peer.install()
            found.append(peer)
        except Absent as absent:
            lines.append(f"left out: {peer.name}: {absent}")
    return found, lines


def _pip(package: str, program: str) -> None:
    venv = cache() / "venv"
    if (venv / "bin" / program).exists():
        return
    if not (venv / "bin/pip").exists():
        run([sys.executable, "-m", "venv", str(venv)], "a virtual environment for the peers")
    run([str(venv / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", package], f"pip install {package}")


def _debian(packages: Sequence[str], program: str) -> None:
    """Unpacked beside the system, not installed into it."""
    root = cache() / "debian"
    if (root / "usr/bin" / program).exists():
        return
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or dpkg is None:
        raise Absent("this is no Debian: there is no apt-get")
    folder = cache() / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        run([apt, "download", package], f"apt-get download {package}", cwd=folder)
        for file in folder.glob(f"{package}_*.deb"):
            run([dpkg, "-x", str(file), str(root)], f"unpacking {package}")


@contextlib.contextmanager
def running(kind: type[Supervisor], folder: Path, jobs: Sequence[Job], *, raised: bool) -> Iterator[Supervisor]:
    """A supervisor at work; nothing of it is left afterwards."""
    with Place(folder) as place:
        supervisor = kind(place, jobs, raised=raised)
        supervisor.begin()
        try:
            yield supervisor
        finally:
            supervisor.end()
