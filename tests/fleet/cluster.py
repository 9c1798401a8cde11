"""A fleet of real daemons on one real PostgreSQL, and all that can be done to it: processes killed and frozen, links
cut and slowed, clocks set wrong, the database killed. Nothing of it is left after use.

A host is a folder, a place in the network, and what `flyball up` started there. Units are witnesses.
"""

import contextlib
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from flyball.control.client import connect
from flyball.control.context import CommandError
from tests.daemon.site import Site, has_ended
from tests.fleet import witness
from tests.fleet.judge import Thaw
from tests.fleet.net import STORE, Net, net
from tests.servers.postgres import PostgresServer

LEASE: Final = float(os.environ.get("FLYBALL_FLEET_LEASE", "3"))
"""Seconds. Short, so that a test is; a machine that is very busy needs a longer one, or its hosts lose theirs."""
PATIENCE: Final = 90.0
"""Seconds for anything to come about. A daemon is up in two; but this machine may be very busy."""
ANSWER_MAX: Final = 5.0
"""Seconds for a daemon to answer, where it may be frozen or cut off: then it does not."""
WRONG_CLOCK: Final = Path(__file__).parent / "wrong_clock"
ROUNDS_MAX: Final = 200
"""Looks at a tree that is being frozen or killed: each takes those that were born meanwhile."""

Part = Literal["daemon", "guardian", "deadman", "group", "units", "all"]
"""Whom it befalls: one process; the group of `flyball up`, as a terminal would; the units; all that is there."""

GENEROUS: Final = {
    "FLYBALL_QUARANTINE__MAX_FAILURES_BEFORE_QUARANTINE": "1000",
    "FLYBALL_CRASH_POLICY__FLAP_THRESHOLD": "10",
    "FLYBALL_CRASH_POLICY__HALT_THRESHOLD": "1000",
    "FLYBALL_RESTART_POLICY__MAX_RESTARTS_PER_HOUR": "1000",
    "FLYBALL_RESTART_POLICY__MAX_RESTARTS_IN_A_ROW": "1000",
    "FLYBALL_RESTART_POLICY__MAX_TOTAL_RESTARTS_PER_HOUR": "100000",
}
"""Units that are lost again and again come back all the same: most tests are about that."""


def until(there: Callable[[], bool], what: str) -> None:
    """Look until it is so."""
    give_up = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < give_up, f"{what}: not within {PATIENCE:g} s"
        time.sleep(0.02)


class Host(Site):
    """One host."""

    def __init__(self, folder: Path, name: str, network: Net, **env: str) -> None:
        folder.mkdir()
        super().__init__(folder, **env)
        self.name = name
        self._network = network
        self._clock = folder / "clock"
        self._clock.write_bytes(bytes(8))
        self.env |= {
            "FLYBALL_HOST__NAME": name,
            "FLYBALL_WRONG_CLOCK": str(self._clock),
            "PYTHONPATH": os.pathsep.join([str(WRONG_CLOCK), *filter(None, [self.env.get("PYTHONPATH", "")])]),
        }
        self.process: subprocess.Popen[bytes] | None = None
        self._frozen: set[int] = set()

    # Life.

    def start(self) -> None:
        """`flyball up`, as what starts at boot would do it. Whether it comes up is another question."""
        assert not self.is_up
        with self._network.at(self.name), (self.folder / "said").open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flyball", "up"],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    @property
    def is_up(self) -> bool:
        """Its guardian is there: nobody has to start it."""
        return self.process is not None and self.process.poll() is None

    @property
    def is_frozen(self) -> bool:
        """Something of it was frozen, and not thawed."""
        return bool(self._frozen)

    def answers(self, *, patience: float = ANSWER_MAX) -> bool:
        """Its daemon answers."""
        return bool(self.asked("ping", patience=patience))

    def asked(self, verb: str, *, patience: float = ANSWER_MAX, **args: Any) -> dict[str, Any]:
        """Ask its daemon; nothing if it does not answer, or refuses."""
        with contextlib.suppress(CommandError, OSError, ValueError):
            client = connect(self.state)
            if client is not None:
                with client:
                    found: dict[str, Any] = client.ask(verb, args, timeout=patience)
                    return found
        return {}

    def said(self) -> str:
        """What it told on its terminal and in its log."""
        files = [self.folder / "said", *sorted(self.state.glob("daemon.*"))]
        return "\n".join(file.read_text(errors="replace") for file in files if file.is_file())

    # Its processes.

    def pids(self, part: Part) -> list[int]:
        """Those of a part, as they are now."""
        found = self._processes()
        guardian = self.process.pid if self.process is not None and self.process.poll() is None else 0
        if part == "guardian":
            return [guardian] if guardian else []
        if part == "group":
            return [pid for pid in found if guardian and _group(pid) == guardian]
        if part == "units":
            return [pid for pid, (unit, _) in found.items() if unit]
        if part == "all":
            return list(found)
        daemon = [pid for pid, (unit, line) in found.items() if not unit and b"flyball.daemon_main" in line]
        daemon = [pid for pid in daemon if pid != guardian and b"guardian.py" not in found[pid][1]]
        if part == "daemon":
            return daemon
        return [pid for pid, (unit, _) in found.items() if not unit and pid not in (guardian, *daemon)]

    def kill(self, part: Part) -> None:
        """kill -9. Of all: as if it had lost its power, none sees another one die."""
        if part == "all":
            self._all(signal.SIGSTOP)
            self._all(signal.SIGKILL)
            until(lambda: all(has_ended(pid) for pid in self.pids("all")), f"the end of {self.name}")
        else:
            for pid in self.pids(part):
                _signal(pid, signal.SIGKILL)
        self._reap()

    def freeze(self, part: Part) -> None:
        """They do nothing any more until they are thawed."""
        if part == "all":
            self._frozen.update(self._all(signal.SIGSTOP))
            return
        for pid in self.pids(part):
            _signal(pid, signal.SIGSTOP)
            self._frozen.add(pid)

    def thaw(self) -> None:
        """They go on as if nothing had been."""
        for pid in sorted(self._frozen, reverse=True):
            _signal(pid, signal.SIGCONT)
        self._frozen.clear()
        self._reap()

    def clock(self, hours: float) -> None:
        """Its clock shows another time from now on."""
        with self._clock.open("r+b") as file:
            file.write(struct.pack("=q", round(hours * 3_600_000_000_000)))

    def clean(self) -> None:
        """End whatever is left."""
        super().clean()
        if self.process is not None:
            self.process.wait(PATIENCE)

    def _all(self, number: signal.Signals) -> set[int]:
        """Until there is none that has not got it: what is born meanwhile gets it, too."""
        done: set[int] = set()
        for _ in range(ROUNDS_MAX):
            left = set(self.pids("all")) - done
            if not left:
                return done
            for pid in left:
                _signal(pid, number)
            done |= left
        raise AssertionError(f"{self.name} makes processes quicker than they can be reached")

    def _processes(self) -> dict[int, tuple[str, bytes]]:
        """The living ones that bear the mark of this host: the unit that each is of, and its command line."""
        mark = f"FLYBALL_SITE={self.folder}".encode()
        found = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                words = (folder / "environ").read_bytes().split(b"\0")
                if mark not in words or has_ended(int(folder.name)):
                    continue
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            units = [word.partition(b"=")[2].decode() for word in words if word.startswith(b"FLYBALL_UNIT=")]
            found[int(folder.name)] = (units[0] if units else "", line)
        return found

    def _reap(self) -> None:
        if self.process is not None:
            self.process.poll()


class Cluster:
    """Hosts, the database, and the notes of all witnesses."""

    def __init__(
        self, folder: Path, network: Net, server: PostgresServer, names: Sequence[str], *, lease: float = LEASE
    ) -> None:
        self.folder, self.network, self.server = folder, network, server
        self.lease = lease
        self.notes = folder / "notes"
        self.notes.mkdir()
        with network.at(STORE):
            self.dsn = server.database()
        self.hosts: dict[str, Host] = {}
        for name in names:
            env = {
                **GENEROUS,
                "FLYBALL_STORE": network.reach(name, self.dsn),
                "FLYBALL_HOST__LEASE_SECONDS": str(lease),
                witness.NOTES: str(self.notes),
            }
            self.hosts[name] = Host(folder / name, name, network, **env)
        self.units: dict[str, Any] = {}
        self.thaws: list[Thaw] = []

    def write(self, units: Mapping[str, Any], **more: Any) -> None:
        """The same settings for all hosts."""
        self.units = dict(units)
        for host in self.hosts.values():
            host.write(units, **more)

    def up(self, *names: str) -> None:
        """Start these hosts, or all, and wait until each answers."""
        chosen = [self.hosts[name] for name in names or self.hosts]
        for host in chosen:
            host.start()
        for host in chosen:
            until(lambda host=host: host.answers() or not host.is_up, f"{host.name} up")  # type: ignore[misc]
            assert host.is_up, host.said()[-4000:]

    def run_all(self, patience: float, *, but: Sequence[str] = ()) -> float:
        """Wait until every unit that is to run is seen to, one run each; seconds that it took."""
        begun, wanted = time.monotonic(), set(self.units) - set(but)
        while True:
            missing = wanted - self.alive().keys()
            if not missing:
                return time.monotonic() - begun
            if time.monotonic() > begun + patience:
                raise AssertionError(f"not running after {patience:g} s: {sorted(missing)}\n{self.says()}")
            time.sleep(0.02)

    def alive(self) -> dict[str, tuple[str, int]]:
        """The host and the pid of each unit that runs now, by its real process: one that is not frozen."""
        found = {}
        for host in self.hosts.values():
            for unit, pids in host.running().items():
                living = [pid for pid in pids if not _is_frozen(pid)]
                if living:
                    found[unit] = (host.name, min(living))
        return found

    def mend(self) -> None:
        """Whatever was done to any of it is over, and every host is up."""
        if not self.server.is_up:
            self.start_store()
        for host in self.hosts.values():
            host.thaw()
            self.network.heal(host.name)
            host.clock(0)
        for host in self.hosts.values():
            until(lambda host=host: self._is_back(host), f"{host.name} up again")  # type: ignore[misc]

    @staticmethod
    def _is_back(host: Host) -> bool:
        """It answers; if it is down it is started, as often as needed: what is left of it may still be ending."""
        if not host.is_up:
            host.start()
        return host.answers()

    def lives(self) -> list[witness.Life]:
        """What the witnesses said so far."""
        return witness.lives(self.notes)

    def kill_store(self) -> None:
        """kill -9 of PostgreSQL."""
        self.server.kill()

    def start_store(self) -> None:
        """And here it is again."""
        with self.network.at(STORE):
            self.server.start()

    def journal(self) -> list[dict[str, Any]]:
        """The whole of it, as it is in the database."""
        name = self.dsn.rpartition("/")[2]
        select = "SELECT seq, at, unit, event, verb, body FROM flyball.journal ORDER BY seq"
        with self.network.at(STORE):
            rows = self.server.sql(select, database=name)
        keys = ("seq", "at", "unit", "event", "verb", "body")
        return [dict(zip(keys, row, strict=True)) for row in rows]

    def down(self) -> None:
        """End all hosts in order, and wait until all is gone."""
        for host in self.hosts.values():
            host.thaw()
            if host.is_up:
                _signal(host.pids("guardian")[0], signal.SIGTERM)
        for host in self.hosts.values():
            until(lambda host=host: not host.pids("all"), f"{host.name} down")  # type: ignore[misc]
            host.clean()

    def past(self) -> str:
        """The end of the journal of each unit."""
        lines: dict[str, list[str]] = {}
        for entry in self.journal():
            body = entry["body"][:300]
            lines.setdefault(entry["unit"], []).append(f"{entry['seq']} {entry['at']} {entry['verb']} {body}")
        return "\n".join(f"--- {unit}\n" + "\n".join(last[-8:]) for unit, last in lines.items())

    def says(self) -> str:
        """The last that each host said."""
        return "\n".join(f"--- {host.name}\n{host.said()[-3000:]}" for host in self.hosts.values())

    def clean(self) -> None:
        """Nothing of it is left, whatever was done to it."""
        for host in self.hosts.values():
            host.clean()


@contextlib.contextmanager
def cluster(
    folder: Path, names: Sequence[str] = ("a", "b", "c"), *, lease: float = LEASE, server: PostgresServer | None = None
) -> Iterator[Cluster]:
    """A cluster for as long as the block lasts, with a PostgreSQL of its own unless one is given."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(net(names))
        if server is None:
            with network.at(STORE):
                server = PostgresServer(host=network.address)
            stack.callback(server.clean)
        made = Cluster(folder, network, server, names, lease=lease)
        stack.callback(made.clean)
        yield made


def unit(*options: str, **more: Any) -> dict[str, Any]:
    """The settings of a unit that is a witness."""
    return {"command": [sys.executable, "-I", "-S", str(Path(witness.__file__)), *options], **more}


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _group(pid: int) -> int:
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid)
    return 0


def _is_frozen(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False
