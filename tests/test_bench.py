"""The bench measures what it says: its children, its floor, its reading of notes and journals. No time is judged."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from bench import peers, processes
from bench.measure import Row
from bench.peers import Absent, Floor, Flyball, Job, Place, running, until
from bench.processes import Bench

from flyball.core.policy import Key
from flyball.store import Draft, Line, Snapshot
from flyball.store.sqlite import SqliteStore

needs_compiler = pytest.mark.skipif(not shutil.which("gcc") and not shutil.which("cc"), reason="no C compiler")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A bench without peers."""
    found = Bench(tmp_path)
    found.settle = 0
    return found


@needs_compiler
@pytest.mark.parametrize("kind", [Floor, Flyball])
def test_restarts_are_counted_by_the_children(bench: Bench, kind: type[peers.Supervisor]) -> None:
    """Of the floor and of ours, each gap lies between a last instant and the first one of the successor."""
    gaps = bench.restarts(kind, [1], 3)
    assert len(gaps) >= 3
    assert all(gap > 0 for gap in gaps)


@needs_compiler
def test_all_up_and_all_back(bench: Bench) -> None:
    """Children that were killed all at once come back all, and the rows say how long that took."""
    rows = [row for row in bench.mass_rows(12) if isinstance(row, Row)]
    assert [row.unit for row in rows] == ["s", "s", "s", "MiB", "KiB"]
    assert all(row.ours > 0 and row.theirs > 0 for row in rows[:4])


@needs_compiler
def test_adoption_is_read_from_the_log(bench: Bench) -> None:
    """Units that outlived the daemon are adopted by the next one; none is started again."""
    first, *rest = bench.adopt_rows(3)
    assert isinstance(first, Row), first
    assert first.name == "3 adopted"
    assert len(rest) == 1


@needs_compiler
def test_watchdogs_are_fed(bench: Bench) -> None:
    """The child feeds its watchdog, so what is measured as idle is not a row of restarts."""
    row = bench.idle_row(units=2, lasts=0.1)
    assert row.ours >= 0
    assert len(processes.beginnings(bench.folder / "1" / "notes")) == 2


@needs_compiler
@pytest.mark.slow
def test_starts_are_counted_before_and_after_a_kill(bench: Bench) -> None:
    """With default settings, for a moment and a moment after kill -9: nothing that the history does not allow."""
    found = list(bench.storm_rows(window=0.5))
    rows = [row for row in found if isinstance(row, Row)]
    assert len(rows) == 10
    assert all(row.ours >= 1 for row in rows[:-2]), found
    assert rows[-1].ours == 8, found
    assert all(row.met for row in rows), found


@needs_compiler
def test_nothing_is_left(bench: Bench) -> None:
    """Whatever a supervisor leaves behind is gone when its place is left."""
    folder, log = bench.place()
    with running(Floor, folder, [bench.job(log, "unit", -1)], raised=True) as supervisor:
        assert processes.wait_for(log, 1)
        os.kill(supervisor.pid(), signal.SIGKILL)
        assert supervisor.place.marked()
    assert until(lambda: not supervisor.place.marked(), 5)


def test_without_a_compiler_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an error nor silence: one line."""
    monkeypatch.setenv("PATH", str(tmp_path))
    lines = list(processes.run(["restart"]))
    assert len(lines) == 1
    assert "no C compiler" in str(lines[0])


def test_a_peer_that_cannot_be_had_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a line that says why; the others are there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found, lines = peers.installed((Floor, peers.Pm2, peers.Runit))
    assert found == [Floor]
    assert lines == ["left out: pm2: there is no npm", "left out: runit: this is no Debian: there is no apt-get"]


def test_a_failed_installation_says_its_last_line() -> None:
    """The reason is what the installer said last."""
    with pytest.raises(Absent, match="exit 1: no such package"):
        peers.run(["sh", "-c", "echo trying; echo no such package >&2; exit 1"], "installing")


@pytest.mark.parametrize("kind", peers.PEERS)
def test_settings_of_peers_name_every_job(kind: type[peers.Supervisor], tmp_path: Path) -> None:
    """Each peer is told of all jobs, by settings that are made without it being there."""
    place = Place(tmp_path)
    jobs = [Job(name, ("/bin/sleep", "1")) for name in ("one", "two")]
    for raised in (True, False):
        shutil.rmtree(tmp_path / "services", ignore_errors=True)
        assert kind(place, jobs, raised=raised).argv()
        text = " ".join(str(path) + (path.read_text() if path.is_file() else "") for path in tmp_path.rglob("*"))
        assert "one" in text
        assert "two" in text


def test_gaps_pair_each_end_with_its_successor(tmp_path: Path) -> None:
    """By unit and in order; a start without an end before it is none."""
    log = tmp_path / "notes"
    log.write_text("B 0 1 a\nB 0 2 b\nE 1000000 1 a\nE 2000000 2 b\nB 5000000 3 b\nB 2000000 4 a\n")
    assert processes.gaps(log) == [1.0, 3.0]
    assert processes.gaps(tmp_path / "none") == []


def test_starts_are_counted_from_the_first_one() -> None:
    """What lies between a window's end and the kill, or the end of it all, counts for the unit, not for the window."""
    times = (5, 6, 7, 16, 21, 32)
    begun = [processes.Note("B", at * 1_000_000_000, 1, "a") for at in times]
    assert processes.starts_of(begun, 10, 20_000_000_000) == processes.Starts(3, 1, 3, 6)
    assert processes.starts_of([], 10, 20) == processes.Starts(0, 0, 0, 0)


def test_the_table_shows_both_counts() -> None:
    """Before the kill and after it, of each supervisor."""
    starts = {("dies", "ours"): processes.Starts(4, 1, 4, 5), ("dies", "peer"): processes.Starts(1200, 0, 1200, 1200)}
    text = "\n".join(processes.table(starts, ["ours", "peer"], 60))
    assert "4 + 1" in text
    assert "1,200 + 0" in text


@pytest.mark.parametrize(
    ("verb", "until_", "started_at", "found"),
    [("wait", 10, 10, 0), ("wait", 10, 9, 1), ("hold", 0, 50, 1), ("proceed", 0, 5, 0)],
)
def test_a_start_before_its_time_is_found(tmp_path: Path, verb: str, until_: int, started_at: int, found: int) -> None:
    """The journal's own answer to an exit is what the next start is held against."""
    with SqliteStore(tmp_path / "state.db") as store:

        def write(at: int, event: str, answer: str, until: int) -> None:
            body = json.dumps({"decision": {"until": until}}).encode()

            def draft(_: Snapshot) -> Draft:
                return Draft(at, {}, Line("unit", event, answer, body))

            store.transact([Key("p", "unit", "unit")], draft)

        write(1, "start", "proceed", 0)
        write(2, "exited", verb, until_)
        write(started_at, "start", "proceed", 0)
    assert processes.not_allowed(processes.journal(tmp_path)) == found
