"""Output: kept within its limits, whatever is printed, and never a reason for a unit to stop."""

import logging
import os
import signal
from pathlib import Path

import pytest

from flyball.config.units import OnSupervisorDeath
from flyball.core.event import DETAIL_MAX, Cause
from flyball.runtimes.process import output
from flyball.runtimes.process.output import TAIL_LINES_MAX, TAIL_MAX, LogFile, log_path
from tests.runtimes.process.stage import HANGS, Stage, run, until

KEEP = OnSupervisorDeath.KEEP


def test_both_streams_in_one_file(stage: Stage) -> None:
    """What it prints on either stream is in the file, in order; the file is its owner's alone."""
    run(stage.ending(stage.shell("echo one; echo two >&2; echo three")))
    assert stage.log == b"one\ntwo\nthree\n"
    assert (stage.logs / f"{stage.name}.log").stat().st_mode & 0o777 == 0o600
    assert stage.logs.stat().st_mode & 0o777 == 0o700


def test_runs_follow_each_other(stage: Stage) -> None:
    """The next run's output comes after the last one's; the last lines are of one run."""

    async def play() -> str:
        hands = stage.shell("echo $FLYBALL_RUN; exit 1")
        await stage.ending(hands)
        return (await stage.ending(hands)).detail

    assert run(play()) == f"{stage.name}.2"
    assert stage.log.decode().split() == [f"{stage.name}.1", f"{stage.name}.2"]


def test_listener(stage: Stage) -> None:
    """Whoever listens hears what is printed as it comes."""

    async def play() -> None:
        heard: list[bytes] = []
        life = await stage.begin(stage.shell(f"echo up; {HANGS}"))
        life.on_output = heard.append
        await until(lambda: b"".join(heard) == b"up\n")
        assert life.tail() == "up"
        await life.end(0)

    run(play())


def test_closing_its_output(stage: Stage) -> None:
    """A process that closes its output lives on, and its exit is seen all the same."""

    async def play() -> int | None:
        life = await stage.begin(stage.shell("echo last; exec >&- 2>&-; echo up > up; read x < gate; exit 8"))
        await stage.appears("up")
        assert life.ending is None
        with (stage.folder / "gate").open("w") as gate:
            gate.write("go\n")
        return (await life.ended()).code

    os.mkfifo(stage.folder / "gate")
    assert run(play()) == 8
    assert stage.log == b"last\n"


def test_no_waiting_for_who_keeps_the_pipe(stage: Stage) -> None:
    """After the exit nobody waits for the end of the pipe: what is there is read, and that is all."""
    ending = run(stage.ending(stage.shell("(setsid sleep 60 &) ; echo error: done; exit 2", grace=0)))
    assert (ending.code, ending.detail) == (2, "error: done")


def test_all_that_was_printed_before_the_exit(stage: Stage) -> None:
    """The last words are not lost, though the exit is seen first."""
    for _ in range(10):
        ending = run(stage.ending(stage.shell("i=0; while [ $i -lt 500 ]; do echo $i; i=$((i+1)); done; exit 1")))
        assert ending.detail.endswith("\n499")


def test_a_hundred_megabytes_without_a_newline(stage: Stage) -> None:
    """They fill the files to their limit and not memory, and the run ends as usual."""
    size_max = 1_000_000
    hands = stage.shell("head -c 100000000 /dev/zero; exit 3", log_bytes_max=size_max, log_files_max=3)

    async def play() -> None:
        life = await stage.begin(hands)
        ending = await life.ended()
        assert ending.code == 3
        assert len(ending.detail) <= min(DETAIL_MAX, TAIL_MAX)

    run(play())
    sizes = [path.stat().st_size for path in stage.logs.iterdir()]
    assert len(sizes) == 3
    assert max(sizes) <= size_max


def test_garbage(stage: Stage) -> None:
    """Bytes that are no text are kept as they are in the file, and are readable in the failure."""
    ending = run(
        stage.ending(stage.shell("head -c 30000 /dev/urandom; printf '\\033[31merror\\033[0m: x\\000\\n'; exit 1"))
    )
    assert ending.code == 1
    assert "error: x" in ending.detail
    assert not any(ord(letter) < 32 and letter not in "\n\t" for letter in ending.detail)
    assert len(stage.log) > 30000


def test_last_lines(stage: Stage) -> None:
    """So many lines are kept, and no more bytes than that."""
    ending = run(stage.ending(stage.shell("seq 1 1000; exit 1")))
    lines = ending.detail.splitlines()
    assert lines == [str(n) for n in range(1001 - TAIL_LINES_MAX, 1001)]


def test_turning_over(stage: Stage) -> None:
    """A full file becomes `.1`, that one `.2`; the oldest is dropped, and no byte in between is lost."""
    run(stage.ending(stage.shell("seq -w 1 9999", log_bytes_max=10_000, log_files_max=3)))
    names = sorted(path.name for path in stage.logs.iterdir())
    assert names == [f"{stage.name}.log", f"{stage.name}.log.1", f"{stage.name}.log.2"]
    kept = b"".join((stage.logs / name).read_bytes() for name in reversed(names))
    assert b"".join(b"%04d\n" % n for n in range(1, 10_000)).endswith(kept)
    assert len(kept) > 20_000
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in stage.logs.iterdir())


def test_one_file(stage: Stage) -> None:
    """With one file only, a full one begins anew."""
    run(stage.ending(stage.shell("seq -w 1 9999", log_bytes_max=10_000, log_files_max=1)))
    assert [path.name for path in stage.logs.iterdir()] == [f"{stage.name}.log"]
    assert stage.log.endswith(b"9999\n")


def test_full_disk(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """A disk that is full does not stop the unit. It is said once; the last lines are still there."""
    stage.logs.mkdir()
    (stage.logs / f"{stage.name}.log").symlink_to("/dev/full")
    with caplog.at_level(logging.WARNING):
        ending = run(stage.ending(stage.shell("for i in 1 2 3; do echo line $i; sleep 0.01; done; exit 4")))
    assert (ending.code, ending.detail) == (4, "line 1\nline 2\nline 3")
    assert [record.getMessage() for record in caplog.records].count(
        f"{stage.logs / stage.name}.log: No space left on device; output is dropped until it can be written again"
    ) == 1


def test_a_log_that_cannot_be_written(stage: Stage) -> None:
    """A folder that cannot be made does not stop the unit, kept or not."""
    stage.logs.touch()
    assert run(stage.ending(stage.shell("echo x; exit 5"))).code == 5
    assert run(stage.ending(stage.shell("echo x; exit 5", on_supervisor_death=KEEP))).code == 5


def test_writing_again(tmp_path: Path) -> None:
    """When it can be written again, the gap is named."""
    file = LogFile(tmp_path / "sub" / "x.log", 1000, 2)
    (tmp_path / "sub").touch()
    file.write(b"lost")
    (tmp_path / "sub").unlink()
    file.write(b"kept\n")
    file.close()
    assert (tmp_path / "sub" / "x.log").read_bytes() == b"\n[flyball: 4 bytes of output were lost here]\nkept\n"


def test_no_name_leads_out_of_the_folder(tmp_path: Path) -> None:
    """A unit's name is a file's name, whatever it is."""
    assert log_path(tmp_path, "agent-1.x_y") == tmp_path / "agent-1.x_y.log"
    for name in ("../x", "a/b", "..", "", "\n"):
        assert log_path(tmp_path, name).parent == tmp_path


def test_kept_units_write_by_themselves(stage: Stage) -> None:
    """The output of a unit that may outlive us goes to the file without us; its last lines are still known."""

    async def play() -> None:
        script = "readlink /proc/$$/fd/1; echo error: three >&2; exit 3"
        ending = await stage.ending(stage.shell(script, on_supervisor_death=KEEP))
        assert ending.detail == f"{stage.logs}/{stage.name}.log\nerror: three"
        ending = await stage.ending(stage.shell("echo two; exit 3", on_supervisor_death=KEEP))
        assert ending.detail == "two"

    run(play())


def test_kept_output_is_cut_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the unit writes by itself does not grow for ever: its end becomes `.1`, and it begins anew."""
    monkeypatch.setattr(output, "CHECK_EVERY", 0.01)

    async def play() -> None:
        heard: list[bytes] = []
        script = f"head -c 50000 /dev/zero; echo up > up; read x < gate; echo after; {HANGS}"
        hands = stage.shell(script, on_supervisor_death=KEEP, log_bytes_max=10_000, log_files_max=2)
        hands.on_output = heard.append
        life = await stage.begin(hands)
        await stage.appears("up")
        old = stage.logs / f"{stage.name}.log.1"
        await until(lambda: old.exists() and old.stat().st_size == 10_000 and stage.log == b"")
        with (stage.folder / "gate").open("w") as gate:
            gate.write("go\n")
        await until(lambda: b"after\n" in b"".join(heard))
        assert stage.log == b"after\n"
        assert life.tail() == "after"
        await life.end(0)

    os.mkfifo(stage.folder / "gate")
    run(play())


def test_who_prints_without_end_is_ended(stage: Stage) -> None:
    """A flood does not keep the loop from anything else."""

    async def play() -> None:
        life = await stage.begin(stage.hands("/usr/bin/yes", log_bytes_max=100_000, log_files_max=2))
        await until((stage.logs / f"{stage.name}.log.1").exists)
        await life.end(0)
        assert (await life.ended()).signal in (signal.SIGKILL, signal.SIGTERM)
        assert (await life.ended()).cause is Cause.STOPPED

    run(play())


def test_a_listener_that_fails(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Who listens and fails is told nothing more; the run ends as usual, and its output is kept."""

    async def play() -> int | None:
        hands = stage.shell("echo one; exit 3")
        hands.on_output = lambda _: 1 // 0  # type: ignore[assignment]
        return (await stage.ending(hands)).code

    assert run(play()) == 3
    assert stage.log == b"one\n"
    assert "not told any more" in caplog.text


def test_a_file_that_was_removed(stage: Stage) -> None:
    """Whoever removes the file gets a new one with the next run."""

    async def play() -> None:
        hands = stage.shell("echo $FLYBALL_RUN")
        await stage.ending(hands)
        (stage.logs / f"{stage.name}.log").unlink()
        await stage.ending(hands)

    run(play())
    assert stage.log.decode() == f"{stage.name}.2\n"
