"""The deadman, with real processes: whatever becomes of a daemon on a lease, what it started is dead in time."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flyball.runtimes import guardian
from tests.cli.running import until
from tests.daemon.site import has_ended

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]

LEASE = 1.6
"""Seconds."""
STARTED = ("plain", "left", "kept")


def children_of(pid: int) -> list[int]:
    """Its children."""
    tasks = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in tasks.read_text().split()] if tasks.exists() else []


class Stand:
    """A guardian over a stub of a daemon."""

    def __init__(self, folder: Path, *, lease: bool = True, env: dict[str, str] | None = None) -> None:
        self.folder = folder
        plan = os.memfd_create("plan", 0)
        os.write(plan, b"the plan")
        os.lseek(plan, 0, os.SEEK_SET)
        stub = [sys.executable, "-m", "tests.runtimes.host.stub", str(folder), str(LEASE)]
        (folder / "records").mkdir()
        self.mark = f"FLYBALL_SITE={folder}"
        self.process = subprocess.Popen(
            guardian.command(stub, kept=str(folder / "records"), lease=lease),
            env={**os.environ, guardian.PLAN: str(plan), "FLYBALL_SITE": str(folder), **(env or {})},
            pass_fds=[plan],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        os.close(plan)
        self.guardian = self.process.pid
        self.ready(1)

    def begun(self) -> list[list[str]]:
        """Of each beginning its pid, whether it was told that it is one anew, and its plan."""
        file = self.folder / "begun"
        return [line.split(maxsplit=2) for line in file.read_text().splitlines()] if file.exists() else []

    def ready(self, times: int) -> int:
        """The pid of the stub, when it was begun so often."""
        begun: list[list[str]] = until(lambda: len(self.begun()) >= times and self.begun(), f"beginning {times}")
        until(lambda: all((self.folder / name).exists() for name in STARTED), "witnesses")
        return int(begun[times - 1][0])

    @property
    def stub(self) -> int:
        return int(self.begun()[-1][0])

    @property
    def deadman(self) -> int:
        """Its pid; 0: there is none."""
        for pid in children_of(self.guardian):
            with contextlib.suppress(OSError):
                if pid != self.stub and b"guardian.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        return 0

    def order(self, what: str) -> None:
        (self.folder / "order").write_text(what)

    def living(self, *, guards: bool = False) -> set[int]:
        """All processes of this place; those of the guardian and the deadman only if they are asked for."""
        found = set()
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and not has_ended(int(folder.name)):
                try:
                    inside = self.mark.encode() in (folder / "environ").read_bytes().split(b"\0")
                    if inside and (guards or b"guardian.py" not in (folder / "cmdline").read_bytes()):
                        found.add(int(folder.name))
                except OSError:
                    continue
        return found

    def last_words(self) -> dict[str, int]:
        """When each witness was last alive."""
        return {name: int((self.folder / name).read_text().split()[-1]) for name in STARTED}

    def deadline(self) -> int:
        return int((self.folder / "deadline").read_text())

    def clean(self) -> None:
        """End whatever is left, also what is just being begun."""
        while left := self.living(guards=True):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        self.process.communicate(timeout=20)


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Callable[..., Stand]]:
    made: list[Stand] = []

    def make(**how: object) -> Stand:
        made.append(Stand(tmp_path, **how))  # type: ignore[arg-type]  # passed on as it is
        return made[-1]

    yield make
    for one in made:
        one.clean()


def freeze(stand: Stand) -> None:
    os.kill(stand.stub, signal.SIGSTOP)


def freeze_group(stand: Stand) -> None:
    os.killpg(stand.guardian, signal.SIGSTOP)


def hang(stand: Stand) -> None:
    stand.order("hang")


def kill_deadman_and_freeze(stand: Stand) -> None:
    first = stand.deadman
    os.kill(first, signal.SIGKILL)
    until(lambda: stand.deadman not in (0, first), "another deadman")
    freeze(stand)


@pytest.mark.parametrize(
    ("fault", "reaps"),
    [(freeze, True), (freeze_group, True), (hang, True), (kill_deadman_and_freeze, True), (freeze, False)],
)
def test_dead_in_time(stand: Callable[..., Stand], fault: Callable[[Stand], None], reaps: bool) -> None:
    """Frozen or hung, with or without its guardian: all that it started, kept or gone from its group, is dead before
    the lease ends; then it is begun anew, with its plan."""
    there = stand(env={} if reaps else {guardian.WITHOUT: "1"})
    first = there.stub
    fault(there)
    until(lambda: has_ended(first), "the end of the stub")
    names = STARTED if reaps else ("plain", "kept")
    if fault is freeze_group:
        until(lambda: not (there.living() - {first}) or not reaps, "the end of all")
        assert len(there.begun()) == 1, "nothing is begun while the guardian is frozen"
        os.killpg(there.guardian, signal.SIGCONT)
    words, deadline = there.last_words(), there.deadline()
    assert all(words[name] < deadline for name in names), (words, deadline)
    assert there.ready(2) != first
    assert there.begun()[1][1:] == ["1", "the plan"]
    assert there.begun()[0][1:] == ["0", "the plan"]


def test_lost_by_its_own_word(stand: Callable[..., Stand]) -> None:
    """A daemon that says that it lost its lease is begun anew, not sooner than a second after its last beginning; what
    it left, kept or not, is ended before that."""
    there = stand()
    first, before = there.stub, there.living()
    began = time.monotonic()
    there.order("lost")
    until(lambda: has_ended(first), "its end")
    second = there.ready(2)
    assert time.monotonic() - began > 0.5, "at most once a second"
    assert not before & there.living()
    there.order("leave")
    until(lambda: has_ended(second), "its end")
    _, said = there.process.communicate(timeout=20)
    assert there.process.returncode == 0
    assert "lost its lease" in said
    assert "begun anew" in said
    assert not there.living()


def test_left_in_order(stand: Callable[..., Stand]) -> None:
    """A daemon that left the fleet and ended is not begun anew, and no deadman is left."""
    there = stand()
    deadman = there.deadman
    assert deadman
    there.order("leave")
    _, said = there.process.communicate(timeout=20)
    assert (there.process.returncode, said) == (0, "")
    assert has_ended(deadman)


def test_killed(stand: Callable[..., Stand]) -> None:
    """kill -9 of the daemon is no lost lease: it is not begun anew, and what is kept lives on, but not longer than the
    lease."""
    there = stand()
    deadman = there.deadman
    os.kill(there.stub, signal.SIGKILL)
    assert there.process.wait(timeout=20) == 128 + signal.SIGKILL
    assert len(there.living()) == 1, "the kept one"
    until(lambda: not there.living(), "its end")
    words, deadline = there.last_words(), there.deadline()
    assert words["kept"] < deadline
    assert words["kept"] > deadline - LEASE * 1_000_000 * 0.9, "it lived on"
    until(lambda: has_ended(deadman), "the end of the deadman")


def test_all_killed_but_the_deadman(stand: Callable[..., Stand]) -> None:
    """kill -9 of guardian and daemon at once: the deadman ends what they left, the kept one when the lease ends."""
    there = stand()
    deadman, stub = there.deadman, there.stub
    for pid in (there.guardian, stub):
        os.kill(pid, signal.SIGSTOP)
    for pid in (there.guardian, stub):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not there.living(), "the end of all")
    words, deadline = there.last_words(), there.deadline()
    assert words["plain"] < words["kept"] < deadline
    until(lambda: has_ended(deadman), "the end of the deadman")


def test_guardian_killed_and_daemon_hangs(stand: Callable[..., Stand]) -> None:
    """Nobody is left to begin it anew; but all of it is dead in time."""
    there = stand()
    deadman, stub = there.deadman, there.stub
    freeze(there)
    os.kill(there.guardian, signal.SIGKILL)
    until(lambda: has_ended(stub) and not there.living(), "the end of all")
    assert max(there.last_words().values()) < there.deadline()
    until(lambda: has_ended(deadman), "the end of the deadman")


def test_something_kills_every_deadman(stand: Callable[..., Stand]) -> None:
    """If no deadman stays alive the daemon is told to end: nobody would end its units in time."""
    there = stand()
    stub, died = there.stub, 0
    while not has_ended(stub) and died < 1_000:
        if deadman := there.deadman:
            died += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(deadman, signal.SIGKILL)
            until(lambda gone=deadman: has_ended(gone), "its end")  # type: ignore[misc]  # as it is now
    assert died == guardian.DEATHS_MAX + 1
    assert there.process.wait(timeout=20) == 0


def test_told_to_end_and_lost(stand: Callable[..., Stand]) -> None:
    """One that lost its lease while it ended as it was told is not begun anew, nor does it count as failed."""
    there = stand()
    there.order("lost at its end")
    assert there.process.wait(timeout=20) == 0
    assert len(there.begun()) == 1


@pytest.mark.parametrize("signalled", [True, False])
def test_told_to_end(stand: Callable[..., Stand], signalled: bool) -> None:
    """One that was told to end, and hangs at that, is killed in time, and not begun anew."""
    there = stand()
    if signalled:
        os.kill(there.stub, signal.SIGSTOP)
        os.kill(there.guardian, signal.SIGTERM)
    else:
        there.order("hang at its end")
    assert there.process.wait(timeout=20) == 128 + signal.SIGKILL
    assert not there.living()
    assert len(there.begun()) == 1


def test_without_a_lease(stand: Callable[..., Stand]) -> None:
    """Where none was asked for there is no deadman, no file of one, and the exit code is like any other."""
    there = stand(lease=False)
    assert not there.deadman
    there.order("lost")
    assert there.process.wait(timeout=20) == guardian.LEASE_LOST
    assert len(there.begun()) == 1
