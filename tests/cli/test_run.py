"""`flyball run` with real commands: what it starts, what it says, how it ends, and what it leaves behind: nothing."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.cli import main
from flyball.runtimes import guardian
from tests.cli.running import FLYBALL, Place, until

FAILING = ("--name", "x", "--", "sh", "-c", "echo s >> starts; exit 3")
SLEEPING = ("sh", "-c", "echo $$ >> starts; exec sleep 600")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for pid in place.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLYBALL_STATE_DIR", str(tmp_path / "state"))


def test_always_fails(place: Place) -> None:
    """A command that always fails is started six times, then held: the exit code is 75, the failure is named and so is
    the command that lifts it. The same line again starts nothing; after a reset it starts again."""
    first = place.run(*FAILING)
    assert (first.returncode, len(place.lines("starts"))) == (75, 6)
    mark = re.search(r"flyball: to go on: flyball reset ([0-9a-f]{8})", first.stderr)
    assert mark is not None
    assert f"exit 3 ({mark[1]})" in first.stderr
    assert len(first.stderr.splitlines()) == 13, "a line for each start and each exit, and the last one"
    again = place.run(*FAILING)
    assert (again.returncode, len(place.lines("starts"))) == (75, 6)
    assert f"flyball reset {mark[1]}" in again.stderr
    assert place.flyball("reset", "--all", "--yes").returncode == 0
    assert place.run(*FAILING).returncode == 75
    assert len(place.lines("starts")) == 12


def test_exit_code_of_the_command(place: Place) -> None:
    """What ended by itself and is not restarted gives its own exit code, a signal as 128 + N; its output is its own."""
    killed = place.run("--restart", "never", "--name", "b", "--", "sh", "-c", "echo out; kill -9 $$")
    assert (killed.returncode, killed.stdout) == (128 + 9, "out\n")
    assert "SIGKILL" in killed.stderr


def test_streams_of_the_command(place: Place) -> None:
    """It reads what flyball was given to read; when it is started again, from where it was. Its stderr goes to stderr;
    both are in the log."""
    script = "read line; echo out $line; echo err $line >&2; [ $line = two ]"
    ended = place.run("--name", "x", "--", "sh", "-c", script, typed="one\ntwo\nthree\n")
    assert (ended.returncode, ended.stdout) == (0, "out one\nout two\n")
    assert [line for line in ended.stderr.splitlines() if not line.startswith("flyball")] == ["err one", "err two"]
    log = (place.state / "logs" / "x.log").read_text().splitlines()
    assert sorted(log) == ["err one", "err two", "out one", "out two"]


def test_streams_that_are_closed(place: Place) -> None:
    """A stream that flyball has not is nothing, for it and for the command; no other file takes its place."""
    script = "cat; echo out; readlink /proc/$$/fd/0 > stdin"
    words = [*FLYBALL, "run", "--no-tty", "--", "sh", "-c", script]
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&-', "sh", *words], check=False, env=place.env, cwd=place.folder, timeout=30
    )
    assert closed.returncode == 0
    assert place.lines("stdin") == ["/dev/null"]


def test_command_that_never_lives(place: Place) -> None:
    """What only its start can tell is said, with what to do."""
    script = place.folder / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o700)
    ended = place.run("--restart", "never", "--", "./script")
    assert ended.returncode == 126
    assert "flyball: script cannot be started: the interpreter that ./script names in its first line" in ended.stderr


@pytest.mark.slow
def test_halted_whatever_the_errors(place: Place) -> None:
    """S4: failures at once, each another one: 2 s, 2 s, then the longer delay, and halted at the seventh."""
    script = "echo s >> starts; exit $(wc -l < starts)"
    ended = place.run("--json", "--name", "x", "--", "sh", "-c", script)
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    exits = [line for line in lines if line.get("event", {}).get("event") == "exited"]
    codes = [sorted(reason["code"] for reason in line["reasons"] if reason["policy"] == "flapping") for line in exits]
    assert codes == [["restarting"], ["restarting"], *[["flapping"]] * 4, ["halted"]]
    assert (ended.returncode, lines[-1]["exit"]) == (75, 75)
    assert lines[-1]["go_on"].startswith("flyball resume x")


def test_continue_after_failure_fresh_after_done(place: Place) -> None:
    """S4: after a failure it goes on with its conversation, after a clean exit it starts anew."""
    script = 'echo "$*" >> starts; n=$(wc -l < starts); [ $n -ge 4 ] && exec sleep 600; [ $n -ne 1 ]'
    with place.running(
        "--restart", "always", "--continue-args", "--continue 'a b'", "--", "sh", "-c", script, "sh", "task"
    ) as process:
        until(lambda: len(place.lines("starts")) == 4, "the fourth start")
        assert place.lines("starts") == ["task", "task --continue a b", "task", "task"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM


def test_signal_ends_the_whole_tree(place: Place) -> None:
    """SIGTERM ends the command and all that it started, in order; a grace that is over ends it by force."""
    script = "trap '' TERM; (trap '' TERM; setsid sleep 601) & echo up >> starts; sleep 600 & wait; wait; wait"
    with place.running("--grace", "50ms", "--", "sh", "-c", script) as process:
        until(lambda: place.lines("starts"), "the start")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
        assert place.processes() == []


def test_signals_for_the_command(place: Place) -> None:
    """What means nothing to flyball reaches the command; SIGQUIT ends it in order like the others."""
    script = "trap 'echo one >> got' USR1; trap 'echo two >> got' USR2; echo up > starts; while :; do sleep 0.01; done"
    with place.running("--name", "x", "--", "sh", "-c", script) as process:
        until(lambda: place.lines("starts"), "the start")
        for number, heard in ((signal.SIGUSR1, ["one"]), (signal.SIGUSR2, ["one", "two"])):
            process.send_signal(number)
            until(lambda heard=heard: place.lines("got") == heard, "the signal")  # type: ignore[misc]
        process.send_signal(signal.SIGQUIT)
        assert process.wait(30) == 128 + signal.SIGQUIT
    assert [event["data"]["cause"] for event in place.journal("x") if event["event"] == "exited"] == ["stopped"]


def test_outlives_its_terminal(place: Place) -> None:
    """Started by nohup, it is not ended when the terminal is gone."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with place.running(
            "--", "sh", "-c", "trap 'touch got' USR1; touch up; while :; do sleep 0.01; done"
        ) as process:
            until((place.folder / "up").exists, "the start")
            for pid in (process.pid, place.supervisor(process)):
                os.kill(pid, signal.SIGHUP)
            process.send_signal(signal.SIGUSR1)
            until((place.folder / "got").exists, "what came after it")
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("whom", ["supervisor", "guardian", "supervisor without a sub-reaper above it"])
def test_killed_itself(place: Place, whom: str) -> None:
    """After kill -9 of either process of it nothing is left running, and the run is counted as a failure."""
    if "without" in whom:
        place.env["FLYBALL_WITHOUT_SUBREAPER"] = "1"
    with place.running("--name", "x", "--", *SLEEPING) as process:
        until(lambda: place.lines("starts"), "the start")
        os.kill(process.pid if whom == "guardian" else place.supervisor(process), signal.SIGKILL)
        process.wait(30)
        until(lambda: not place.processes(), "the end of everything")
    if whom == "supervisor":
        (place.folder / "starts").unlink()
        with place.running("--name", "x", "--", *SLEEPING):
            until(lambda: place.lines("starts"), "the start")
            exits = [line["data"] for line in place.journal("x") if line["event"] == "exited"]
        assert [line["cause"] for line in exits] == ["lost"]


def test_second_one_is_refused(place: Place) -> None:
    """While one lives, a second one of the same name is refused at once, with who has it; another name runs."""
    with place.running("--name", "x", "--", *SLEEPING) as process:
        until(lambda: place.lines("starts"), "the start")
        second = place.run("--name", "x", "--", "true")
        assert second.returncode == 75
        assert f"process {place.supervisor(process)}" in second.stderr
        assert "another --name" in second.stderr
        assert place.run("--name", "y", "--", "true").returncode == 0
        assert process.poll() is None


@pytest.mark.slow
def test_order_is_obeyed_at_once(place: Place) -> None:
    """Without a daemon: a pause ends it, a reset in the middle of a long wait starts it."""
    with place.running("--name", "x", "--", *SLEEPING) as process:
        until(lambda: place.lines("starts"), "the start")
        assert place.flyball("pause", "x").returncode == 0
        assert process.wait(30) == 75
        assert process.stderr is not None
        assert "flyball resume x" in process.stderr.read()
    assert place.run("--name", "x", "--", *SLEEPING).returncode == 75
    assert place.flyball("resume", "x").returncode == 0
    long = {"FLYBALL_QUARANTINE__COOLDOWN_LADDER_SECONDS": "[3600]"}
    (place.folder / "starts").unlink()
    script = "echo s >> starts; [ $(wc -l < starts) -gt 1 ] && exec sleep 600; exit 3"
    with place.running("--name", "w", "--", "sh", "-c", script, env=long) as process:
        assert process.stderr is not None
        until(lambda: "waits" in process.stderr.readline(), "the wait")  # type: ignore[union-attr]
        assert place.flyball("reset", "--all", "--yes").returncode == 0
        until(lambda: len(place.lines("starts")) == 2, "the second start")


@pytest.mark.slow
def test_deadline_and_silence(place: Place) -> None:
    """A run that lasts too long, or falls silent, is ended; the exit code is 124."""
    late = place.run("--restart", "never", "--deadline", "300ms", "--name", "a", "--", "sleep", "600")
    assert late.returncode == 124
    assert "300 ms are allowed" in late.stderr
    script = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.2; done; sleep 600"
    silent = place.run("--restart", "never", "--idle", "1s", "--name", "b", "--", "sh", "-c", script)
    assert silent.returncode == 124
    assert silent.stdout.split() == list("12345678")
    assert "no sign of life" in silent.stderr


@pytest.mark.slow
def test_budget(place: Place) -> None:
    """What the command reports as spent is bounded over all its restarts; then the exit code is 69. Whoever runs it
    again gives it its money again."""
    flyball = f"{sys.executable} -P -m flyball"
    script = f"echo s >> starts; {flyball} report spend 0.30 >&2; exit 3"
    words = ("--budget", "0.50", "--name", "x", "--", "sh", "-c", script)
    spent = place.run(*words)
    assert (spent.returncode, len(place.lines("starts"))) == (69, 2), spent.stderr
    assert "of 0.50 USD" in spent.stderr
    assert "--budget" in spent.stderr.splitlines()[-1]
    assert place.run(*words).returncode == 69
    assert len(place.lines("starts")) == 4


def test_reader_that_stops(place: Place) -> None:
    """Whoever does not read its output holds the command up, and nothing else: it is not silent then (`--idle`), and a
    signal ends it in order. Nothing is lost for one who reads late."""
    with place.running("--restart", "never", "--idle", "500ms", "--name", "x", "--", "yes") as process:
        log = place.state / "logs" / "x.log"
        until(lambda: log.exists() and log.stat().st_size >= 100_000, "output")
        time.sleep(1.2)  # time enough for a gigabyte, if nothing held it up, and for silence, if it were one
        assert process.poll() is None
        assert log.stat().st_size < 1_000_000
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    with place.running("--name", "y", "--", "sh", "-c", "yes | head -c 150000; echo $$ > over") as process:
        pid = int(until(lambda: place.lines("over"), "the end")[0])
        until(lambda: not Path(f"/proc/{pid}").exists(), "the end")
        assert process.poll() is None
        assert len(process.communicate(timeout=30)[0]) == 150_000
        assert process.returncode == 0


def test_nobody_reads_it_any_more(place: Place) -> None:
    """When whoever read its output went away, it is ended, as it would be in any pipe."""
    with place.running("--", "yes") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "y\n"
        process.stdout.close()
        assert process.wait(30) == 128 + signal.SIGPIPE
        assert place.processes() == []


def test_reader_that_went_first(place: Place) -> None:
    """Ctrl-C ends the reader as well, and sooner: what is told to end still has all of its grace."""
    script = (
        "trap 'echo bye; sleep 0.2; echo in order > over; exit' TERM; echo $$ > starts; while :; do sleep 0.01; done"
    )
    with place.running("--", "sh", "-c", script) as process:
        until(lambda: place.lines("starts"), "the start")
        assert process.stdout is not None
        process.stdout.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 128 + signal.SIGINT
    assert place.lines("over") == ["in order"]


def test_output_that_cannot_be_written(place: Place) -> None:
    """It is ended, and the reason is said."""
    with Path("/dev/full").open("w") as full:
        words = [*FLYBALL, "run", "--no-tty", "--name", "x", "--", "yes"]
        ended = subprocess.run(
            words, check=False, env=place.env, stdout=full, stderr=subprocess.PIPE, text=True, timeout=30
        )
    assert ended.returncode == 128 + signal.SIGPIPE
    assert "x prints what cannot be written (No space left on device)" in ended.stderr


@pytest.mark.slow
def test_changed_command_clears(place: Place) -> None:
    """A person who runs another command under the name of a held one has changed it: its failures are cleared."""
    assert place.run(*FAILING).returncode == 75
    changed = place.run("--name", "x", "--", "true")
    assert changed.returncode == 0
    assert changed.stderr.count("failures cleared by change") == 1
    said = [event["text"] for event in place.journal("x") if event["event"] == "revise"]
    assert ["cleared" in text for text in said] == [False, True], "the first definition clears nothing"


def test_values_of_variables_are_not_shown(place: Place) -> None:
    """The value of a variable reaches the command, and nobody else: no process list, no line, no journal."""
    script = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c hunter2hunter2; echo $SECRET; echo $SECRET >&2; exit 3"
    words = ("--restart", "never", "--name", "x", "--env", "SECRET=hunter2hunter2", "--", "sh", "-c")
    ended = place.run(*words, script.replace("hunter2hunter2", "hunter2hunter[2]"))
    assert ended.stdout.splitlines() == ["0", "hunter2hunter2"]
    assert [line for line in ended.stderr.splitlines() if "hunter2" in line] == ["hunter2hunter2"]
    assert "hunter2" not in json.dumps(place.journal("x"))


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "nothing to run"),
        (["--", ""], 2, "nothing to run"),
        (["--", "no-such-command"], 127, "there is no no-such-command in PATH"),
        (["--", "./nothing"], 127, "there is no ./nothing"),
        (["--", "./plain"], 126, "cannot be executed"),
        (["--", "./folder"], 126, "cannot be executed"),
        (["--deadline", "soon", "--", "true"], 2, "'soon' is not a length of time"),
        (["--deadline", "0s", "--", "true"], 2, "not above 0"),
        (["--idle", "99999d", "--", "true"], 2, "up to 3650 days"),
        (["--restart", "sometimes", "--", "true"], 2, "on-failure"),
        (["--name", "a/b", "--", "true"], 2, "is no name"),
        (["--label", "provider", "--", "true"], 2, "is not KEY=VALUE"),
        (["--env", "NO_SUCH_VARIABLE", "--", "true"], 2, "is not set here"),
        (["--env", "=hunter2hunter2", "--", "true"], 2, "one of them has no name"),
        (["--continue-args", "'", "--", "true"], 2, "No closing quotation"),
        (["--cwd", "nowhere", "--", "true"], 2, "nowhere is no folder"),
        (["--tty", "--", "true"], 2, "--tty needs a terminal"),
        (["--unknown", "--", "true"], 2, "--unknown"),
    ],
)
@pytest.mark.usefixtures("_elsewhere")
def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str) -> None:
    """What cannot be run is said, with an exit code of the table; no store is made."""
    (tmp_path / "plain").write_text("no program")
    (tmp_path / "folder").mkdir()
    assert main(["run", *words]) == code
    said = capsys.readouterr().err
    assert says in said
    assert "hunter2" not in said
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--budget", "cheap"], "amount such as 0.50"),
        (["--budget", "0"], "0 would let nothing run"),
        (["--config", "bad.yaml"], "bad.yaml:2"),
        (["--config", "none.yaml"], "none.yaml: No such file"),
    ],
)
@pytest.mark.usefixtures("_elsewhere")
def test_bad_input_of_a_guarded_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    """So it is with what only the guarded process can tell."""
    (tmp_path / "bad.yaml").write_text("quarantine:\n  nonsense: 1\n")
    monkeypatch.setenv(guardian.VARIABLE, "pipe=0")
    assert main(["run", *words, "--", "true"]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "state").exists()
