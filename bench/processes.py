"""Supervising processes, beside peers and beside a floor in C: `python -m bench.processes`.

The children are a C program that writes down its first and its last instant, so what is measured is what the child
sees, not what a supervisor says of itself. Each comparison is made in one run; floor and ours take turns.
"""

import argparse
import compileall
import contextlib
import json
import os
import re
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import flyball
from bench.measure import Row, seconds
from bench.peers import (
    PEERS,
    Absent,
    Floor,
    Flyball,
    Job,
    Runit,
    Supervisor,
    Supervisord,
    compiled,
    installed,
    running,
    until,
)
from flyball.control.client import connect
from flyball.core.decision import Verb
from flyball.runtimes.process import kernel
from flyball.store import Entry
from flyball.store.sqlite import SqliteStore

WAIT_MAX: Final = 120.0
"""Seconds for anything to come about. A supervisor that takes longer is left out of the comparison."""
LOOK: Final = 0.1
"""Seconds between looks at the children's notes: seldom enough not to disturb what is measured."""
STARTS_MAX: Final = 6
"""What a unit that always fails may be started with the default settings, in a minute and after a restart."""
SLOW_LIFE: Final = 1_100
"""Milliseconds: runit and s6 wait a second between two starts, so what lives shorter would measure that."""
LIVES_ON: Final = re.compile(r"^(\S+ \S+) \S+ lives on as process")


class Note(NamedTuple):
    """What a child wrote down: its first instant (B) or its last (E), in nanoseconds."""

    what: str
    at: int
    pid: int
    unit: str


def notes(log: Path) -> list[Note]:
    """All notes so far, in order."""
    try:
        lines = log.read_text().splitlines()
    except FileNotFoundError:
        return []
    return [Note(what, int(at), int(pid), unit) for what, at, pid, unit in map(str.split, lines)]


def beginnings(log: Path) -> list[Note]:
    """The starts among them."""
    return [note for note in notes(log) if note.what == "B"]


def gaps(log: Path) -> list[float]:
    """Milliseconds from each last instant to the first one of the successor."""
    ended: dict[str, int] = {}
    found = []
    for note in sorted(notes(log), key=lambda note: note.at):
        if note.what == "E":
            ended[note.unit] = note.at
        elif note.unit in ended:
            found.append((note.at - ended.pop(note.unit)) / 1e6)
    return found


class Bench:
    """A folder with the compiled child, and the peers that are there."""

    def __init__(self, folder: Path, peers: Sequence[type[Supervisor]] = ()) -> None:
        self.folder, self.peers = folder, peers
        self.program = compiled(folder)
        # An installed package has its bytecode, as those of the peers have; without it each start compiles it anew.
        compileall.compile_dir(Path(flyball.__file__).parent, quiet=2)
        self.settle = 2.0
        """Seconds after which what a supervisor put off is done."""
        self._number = 0

    def place(self) -> tuple[Path, Path]:
        """A new folder, and the file for the notes of the children in it."""
        self._number += 1
        folder = self.folder / str(self._number)
        folder.mkdir()
        return folder, folder / "notes"

    def job(self, log: Path, unit: str, lives: int, *, code: int = 3, first: int | None = None, **more: object) -> Job:
        """A child that lives so many milliseconds (-1: until it is killed)."""
        words = [str(self.program), "child", str(log), unit, str(lives), str(code)]
        if first is not None:
            words.append(str(first))
        return Job(unit, tuple(words), tuple(more.items()))

    # How long until the successor is there?

    def restarts(self, kind: type[Supervisor], lives: Sequence[int], count: int) -> list[float]:
        """The gaps of so many restarts, in milliseconds."""
        folder, log = self.place()
        jobs = [self.job(log, f"unit{place}", length) for place, length in enumerate(lives)]
        with running(kind, folder, jobs, raised=True):
            wait_for(log, count + 2 * len(jobs))
        return gaps(log)[len(jobs) :]  # the first one of each warms it up

    def restart_rows(self, rounds: int = 5, restarts: int = 60) -> Iterator[Row]:
        """Floor and ours take turns, so that a slow moment of the machine hits both."""
        floor: list[float] = []
        ours: list[float] = []
        for _ in range(rounds):
            floor += self.restarts(Floor, [20], restarts)
            ours += self.restarts(Flyball, [20], restarts)
        mine, least = statistics.median(ours), statistics.median(floor)
        name = f"death to the successor's first instruction ({len(ours)})"
        yield Row(name, mine, Floor.name, least, "ms", "<= 2.5 x", mine <= 2.5 * least)
        yield Row("the same, the best", min(ours), Floor.name, min(floor), "ms", "for scale", True)

    def peer_rows(self, units: int = 8, restarts: int = 40) -> Iterator[Row | str]:
        """All with the same children, which live long enough for those that wait a second between starts."""
        lives = [SLOW_LIFE + 13 * place for place in range(units)]
        found: dict[str, float] = {}
        kinds: list[type[Supervisor]] = [Floor, Flyball, *self.peers]
        for kind in kinds:
            times = self.restarts(kind, lives, restarts)
            if times:
                found[kind.name] = statistics.median(times)
            else:
                yield f"left out: {kind.name}: it restarted nothing"
        if Flyball.name not in found:
            return
        mine = found.pop(Flyball.name)
        for name, theirs in found.items():
            met = name == Floor.name or mine <= theirs
            goal = "for scale" if name == Floor.name else "at most"
            yield Row(f"the same, {units} that live {SLOW_LIFE / 1000:g} s", mine, name, theirs, "ms", goal, met)

    # Many at once.

    def up_and_back(self, kind: type[Supervisor], units: int) -> "Mass | None":
        """All up, all killed at once, all back. None if that takes too long."""
        folder, log = self.place()
        jobs = [self.job(log, f"unit{place}", -1) for place in range(units)]
        asked = time.monotonic_ns()
        with running(kind, folder, jobs, raised=True) as supervisor:
            if not wait_for(log, units):
                return None
            there = beginnings(log)
            time.sleep(self.settle)
            size = resident(supervisor)
            killed = time.monotonic_ns()
            for note in there:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(note.pid, signal.SIGKILL)
            if not wait_for(log, 2 * units):
                return None
            back = beginnings(log)
        up, again = max(note.at for note in there), max(note.at for note in back)
        return Mass((up - asked) / 1e9, (up - min(note.at for note in there)) / 1e9, (again - killed) / 1e9, size)

    def mass_rows(self, units: int = 1_000) -> Iterator[Row | str]:
        """Many children: time and memory."""
        floor, ours = self.up_and_back(Floor, units), self.up_and_back(Flyball, units)
        few = max(1, units // 10)
        small = self.up_and_back(Flyball, few)
        if floor is None or ours is None or small is None:
            yield f"left out: {units} children: not all were up and back within {WAIT_MAX:g} s"
            return
        name = f"{units:,} children"
        yield Row(f"{name}: all up", ours.up, Floor.name, floor.up, "s", "<= 3 x", ours.up <= 3 * floor.up)
        yield Row("the same, from the first to the last", ours.span, Floor.name, floor.span, "s", "for scale", True)
        met = ours.back <= 3 * floor.back
        yield Row(f"{name}: all killed, all back", ours.back, Floor.name, floor.back, "s", "<= 3 x", met)
        size = ours.size / 2**20
        yield Row(f"{name}: memory of the supervisor", size, "limit", 60.0, "MiB", "below", size < 60)
        each = (ours.size - small.size) / (units - few) / 1024
        yield Row(f"{name}: memory per further child", each, "limit", 10.0, "KiB", "below", each < 10)
        for kind in (peer for peer in self.peers if peer in (Runit, Supervisord)):
            theirs = self.up_and_back(kind, units)
            if theirs is None:
                yield f"left out: {kind.name}: {units} children are not up and back within {WAIT_MAX:g} s"
                continue
            yield Row(f"{name}: all up", ours.up, kind.name, theirs.up, "s", "at most", ours.up <= theirs.up)
            met = ours.back <= theirs.back
            yield Row(f"{name}: all killed, all back", ours.back, kind.name, theirs.back, "s", "at most", met)

    def idle_row(self, units: int = 10, lasts: float = 30.0) -> Row:
        """What it costs that nothing happens, with watchdogs that are fed twice in their time."""
        folder, log = self.place()
        jobs = [self.job(log, f"unit{place}", -1, watchdog="10s") for place in range(units)]
        with running(Flyball, folder, jobs, raised=True) as supervisor:
            wait_for(log, units)
            time.sleep(self.settle)
            before = used(supervisor)
            took = seconds(lambda: time.sleep(lasts))
            share = (used(supervisor) - before) / took * 100
        return Row(f"idle, {units} watchdogs of 10 s armed", share, "limit", 0.02, "% CPU", "<=", share <= 0.02)

    def adopt_rows(self, units: int = 1_000) -> Iterator[Row | str]:
        """Units that outlive the daemon, and the next daemon that takes them over."""
        folder, log = self.place()
        jobs = [self.job(log, f"unit{place}", -1, on_supervisor_death="keep") for place in range(units)]
        with running(Detached, folder, jobs, raised=True) as supervisor:
            wait_for(log, units)
            until(lambda: len(list((folder / "state/kept").glob("*.json"))) >= units, WAIT_MAX)
            supervisor.crash()
            ready = seconds(supervisor.begin)
            text = (folder / "state/daemon.log").read_text()
        times = [datetime.fromisoformat(found[1]) for line in text.splitlines() if (found := LIVES_ON.match(line))]
        if len(times) < units or len(beginnings(log)) > units:
            yield f"of {units} units {len(times)} were adopted, {len(beginnings(log)) - units} were started again"
        if times:
            took = (times[-1] - times[0]).total_seconds()
            yield Row(f"{len(times):,} adopted", took, "limit", 0.2, "s", "within", took <= 0.2)
            yield Row("the same, with the start of the daemon", ready, "limit", 0.2, "s", "for scale", True)

    # How often is something started that always fails?

    def storm_rows(self, window: float = 60.0) -> Iterator[Row | str]:
        """Everything side by side, with default settings, for so many seconds; then kill -9 of the supervisors, start
        them again, and as long once more."""
        kinds: list[type[Supervisor]] = [Flyball, *self.peers]
        starts: dict[tuple[str, str], Starts] = {}
        forbidden = boots = 0
        with contextlib.ExitStack() as stack:
            begun = []
            for scenario, (units, lives, first) in scenarios(window).items():
                for kind in kinds:
                    folder, log = self.place()
                    jobs = [self.job(log, f"unit{place}", lives, first=first) for place in range(units)]
                    supervisor = stack.enter_context(running(kind, folder, jobs, raised=False))
                    begun.append((scenario, supervisor, log))
            for _, _, log in begun:
                wait_for(log, 1)
            time.sleep(window)
            for _, supervisor, _ in begun:
                supervisor.crash()
            killed = time.monotonic_ns()
            for _, supervisor, _ in begun:
                supervisor.begin()
            for _, supervisor, _ in begun:
                if isinstance(supervisor, Flyball):
                    until(supervisor.answers, WAIT_MAX)
            time.sleep(window)
            for scenario, supervisor, log in begun:
                supervisor.end()
                starts[scenario, supervisor.name] = starts_of(beginnings(log), window, killed)
                if isinstance(supervisor, Flyball):
                    entries = journal(supervisor.state)
                    forbidden += not_allowed(entries)
                    boots += sum(entry.event == "booted" for entry in entries)
        yield from table(starts, [kind.name for kind in kinds], window)
        for scenario in scenarios(window):
            found = starts[scenario, Flyball.name]
            name = f"starts per unit, {window:g} s: {scenario}"
            yield Row(name, found.most, "limit", STARTS_MAX, "starts", "at most", found.most <= STARTS_MAX)
            name, most = "the same with kill -9, restart, as long again", found.most_in_all
            yield Row(name, most, "limit", STARTS_MAX, "starts", "at most", most <= STARTS_MAX)
        yield Row("starts that the history did not allow", forbidden, "limit", 0, "starts", "none", not forbidden)
        # Without this, one that does not come back at all would look like one that holds its units back.
        wanted = 2 * len(scenarios(window))
        yield Row(
            "boots of ours, before the kill and after it", boots, "wanted", wanted, "boots", "all", boots == wanted
        )


class Mass(NamedTuple):
    """Seconds from the order to the last child's first instant, from the first child's to the last's, and from the
    first kill to the last successor's; and the bytes of the supervisor."""

    up: float
    span: float
    back: float
    size: int


class Detached(Flyball):
    """`flyball up -d`: its log says when."""

    def argv(self) -> list[str]:
        return [*super().argv(), "--detach"]

    def begin(self) -> None:
        super().begin()
        assert self.process is not None
        if self.process.wait(WAIT_MAX):
            raise Absent((self.place.folder / "supervisor.out").read_text())

    def pids(self) -> tuple[int, int]:
        client = connect(self.state)
        assert client is not None
        with client:
            told = client.ask("ping", timeout=None)
        return told["pid"], told["guardian"]

    def pid(self) -> int:
        return self.pids()[0]

    def crash(self) -> None:
        daemon, guardian = self.pids()
        os.kill(daemon, signal.SIGKILL)
        until(lambda: is_gone(guardian), WAIT_MAX)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not: who looks may be its reaper, and not know."""
    stat = kernel.stat(pid)
    return stat is None or stat.dead


def wait_for(log: Path, starts: int) -> bool:
    """Wait until so many children have begun; whether they have."""
    give_up = time.monotonic() + WAIT_MAX
    while len(beginnings(log)) < starts:
        if time.monotonic() > give_up:
            return False
        time.sleep(LOOK)
    return True


def supervising(supervisor: Supervisor) -> set[int]:
    """The processes that supervise: the one that was started, and what does its work."""
    assert supervisor.process is not None
    return {supervisor.process.pid, supervisor.pid()}


def resident(supervisor: Supervisor) -> int:
    """Bytes of memory, the guardian's included."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in supervising(supervisor))
    return pages * os.sysconf("SC_PAGE_SIZE")


def used(supervisor: Supervisor) -> float:
    """Seconds of CPU, to the nanosecond, of all threads that live."""
    files = [file for pid in supervising(supervisor) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def scenarios(window: float) -> dict[str, tuple[int, int, int | None]]:
    """Units, milliseconds that they live, and that they live the first time."""
    return {
        "dies at once": (1, 0, None),
        "lives 3 s each time": (1, 3_000, None),
        f"healthy for {window / 3:g} s, then dies at once": (1, 0, round(window / 3 * 1000)),
        "100 broken at once": (100, 0, None),
    }


class Starts(NamedTuple):
    """Of all units together within the window and after the kill; and the most of one unit, in the window and ever."""

    before: int
    after: int
    most: int
    most_in_all: int


def starts_of(begun: Sequence[Note], window: float, killed: int) -> Starts:
    """Each window is counted from its first start, because supervisors take their time to be there."""

    def within(notes: list[Note]) -> Counter[str]:
        end = min((note.at for note in notes), default=0) + window * 1e9
        return Counter(note.unit for note in notes if note.at <= end)

    before = within([note for note in begun if note.at <= killed])
    after = within([note for note in begun if note.at > killed])
    in_all = Counter(note.unit for note in begun)
    return Starts(before.total(), after.total(), max(before.values(), default=0), max(in_all.values(), default=0))


def table(starts: Mapping[tuple[str, str], Starts], names: Iterable[str], window: float) -> Iterator[str]:
    """Starts of all units together, of all supervisors."""
    names = list(names)
    yield f"starts in {window:g} s, and in {window:g} s after kill -9 and restart of the supervisor (default settings)"
    yield " " * 36 + "".join(f"{name:>16}" for name in names)
    for scenario in dict.fromkeys(scenario for scenario, _ in starts):
        cells = (starts[scenario, name] for name in names)
        row = "".join(f"{f'{each.before:,} + {each.after:,}':>16}" for each in cells)
        yield f"{scenario:<36}{row}"


def journal(state: Path) -> Sequence[Entry]:
    """All that a flyball wrote down there."""
    with SqliteStore(state / "state.db") as store:
        return store.entries(limit=1_000_000)


def not_allowed(entries: Sequence[Entry]) -> int:
    """How many starts the journal grants that its own answer to the exit before them did not allow yet."""
    answers: dict[str, tuple[str, int]] = {}
    found = 0
    for entry in entries:
        if entry.event == "exited":
            answers[entry.unit] = entry.verb, json.loads(entry.body)["decision"].get("until", 0)
        elif entry.event == "start" and entry.verb == "proceed" and entry.unit in answers:
            verb, at = answers.pop(entry.unit)
            found += verb not in (Verb.PROCEED.name.lower(), Verb.WAIT.name.lower()) or entry.at < at
    return found


PARTS: Final = ("restart", "peers", "mass", "idle", "adopt", "storm")


def run(parts: Sequence[str] = PARTS, *, window: float = 60.0, units: int = 1_000) -> Iterator[Row | str]:
    """All comparisons of the supervision of processes; lines of text between them say what was left out."""
    peers, left_out = installed(PEERS) if {"peers", "mass", "storm"}.intersection(parts) else ([], [])
    yield from left_out
    with tempfile.TemporaryDirectory(prefix="flyball-bench-") as name:
        try:
            bench = Bench(Path(name), peers)
        except Absent as absent:
            yield f"left out: processes: {absent}"
            return
        if "restart" in parts:
            yield from bench.restart_rows()
        if "peers" in parts:
            yield from bench.peer_rows()
        if "mass" in parts:
            yield from bench.mass_rows(units)
        if "idle" in parts:
            yield bench.idle_row()
        if "adopt" in parts:
            yield from bench.adopt_rows(units)
        if "storm" in parts:
            yield from bench.storm_rows(window)


def main() -> None:
    """Print the rows as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which of them; none given: all")
    parser.add_argument("--window", type=float, default=60.0, help="seconds for counting starts")
    parser.add_argument("--units", type=int, default=1_000, help="children that are run at once")
    given = parser.parse_args()
    for row in run(given.parts or PARTS, window=given.window, units=given.units):
        print(row, flush=True)


if __name__ == "__main__":
    main()
