"""`flyball sessions`, `session show`, and what other commands say of sessions: the real commands on a real store."""

import json
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from flyball.cli import main
from flyball.config import Settings
from flyball.core.event import Cause
from flyball.core.time import HOUR, MINUTE, SECOND
from flyball.store import checkpoints
from tests.cli.state import alone, scene
from tests.cli.test_orders import daemon
from tests.control.scene import Scene
from tests.control.work import Piece, every_status

FIELDS = {
    "id", "kind", "status", "held", "stop_reason", "failure_reason", "layer", "resumes", "steps", "rounds", "budget",
    "deadline", "pause", "checkpoints", "user", "tree", "started", "ended",
}  # fmt: skip


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


@pytest.fixture
def work(states: Path) -> Iterator[Scene]:
    """A session for each status, a minute ago."""
    with scene(states) as made:
        made.at(MINUTE)
        every_status(made)
        yield made


def _out_of_resumes(made: Scene) -> None:
    piece = Piece(made, "research-42", user="ann")
    piece.begin()
    piece.step("outline", keeps=b'{"n": 1}')
    piece.pause()
    for _ in range(4):
        made.clock.move(2 * MINUTE)
        if piece.resume().proceeds:
            piece.step("draft", keeps=b'{"n": 2}')
            piece.pause()


def _journal(made: Scene) -> int:
    return made.governor.store.read(()).seq


# The list.


def test_list(work: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """One line a session: how far it is, its last checkpoint, what paused or ended it; and a line for all."""
    assert main(["sessions"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("9 sessions: 1 budget_exceeded, 1 completed, 1 failed, 1 lost, 1 paused, 1 pending, ")
    assert lines[0].endswith(
        "ended by layer 1 (steps) 1x, layer 3 (rounds and convergence) 1x, layer 4 (time) 1x, layer 5 (money) 1x"
    )
    rows = {line.split()[0]: line for line in lines[3:]}
    assert len(rows) == 9
    for name, parts in {
        "completed-one": (" completed ", " 1 of 55 ", " 2 of 7 ", "0.10 USD of 1.00 USD", "consensus (layer 3: "),
        "timed_out-one": (" timed_out ", "timeout (layer 4: time)"),
        "budget_exceeded-one": (" budget_exceeded ", "cost_budget_exceeded (layer 5: money)"),
        "failed-one": (" failed ", "ValueError"),
        "paused-one": (" paused ", " 0 of 3 ", " 2 fetch (", "usage_limit, until "),
        "running-one": (" running ", " 1 read ("),
    }.items():
        for part in parts:
            assert part in rows[name]


def test_json(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts: fields that stay; a session that was resumed too often has failed, with 3 of 3."""
    with scene(states) as made:
        made.at(HOUR)
        _out_of_resumes(made)
    assert main(["sessions", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said) == {"sessions", "layers", "costly", "counts", "left_out", "at"}
    [one] = said["sessions"]
    assert set(one) == FIELDS
    assert (one["id"], one["status"], one["failure_reason"], one["resumes"]) == (
        "research-42",
        "failed",
        "max_resume_attempts_exceeded",
        {"used": 3, "max": 3},
    )
    assert set(one["rounds"]) == {"reached", "max", "convergence", "agreement"}
    assert set(one["budget"]) == {"spent", "reserved", "limit"}
    assert set(one["deadline"]) == {"started", "lasted", "limit"}
    assert set(one["pause"]) == {"reason", "since", "resume_at"}
    assert [set(kept) for kept in one["checkpoints"]] == [{"id", "stage", "at", "bytes"}] * 4


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--status", "paused"], ["paused-one"]),
        (["--user", "bob"], ["paused-one"]),
        (["--user", "ann", "--status", "failed"], ["failed-one"]),
        (["--user", "nobody"], []),
    ],
)
def test_filters(work: Scene, options: list[str], names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Only those of a user, or of a status."""
    assert main(["sessions", *options, "--json"]) == 0
    assert [one["id"] for one in json.loads(capsys.readouterr().out)["sessions"]] == names
    assert main(["sessions", *options]) == 0
    assert (capsys.readouterr().out == "No such session.\n") is (not names)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("pending", 0),
        ("running", 0),
        ("paused", 0),
        ("completed", 0),
        ("stopped", 0),
        ("failed", 1),
        ("timed_out", 1),
        ("budget_exceeded", 1),
        ("lost", 1),
    ],
)
def test_check(work: Scene, status: str, code: int) -> None:
    """`--check` exits 1 if a person should look at one of them."""
    assert main(["sessions", "--check", "--status", status]) == code


def test_very_many(work: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many those are shown that changed last, and how many were left out; whoever looks for one finds it."""
    monkeypatch.setattr("flyball.cli.sessions.SHOWN_MAX", 2)
    assert main(["sessions"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[3:5]] == ["lost-one", "stopped-one"]
    assert lines[5:] == ["7 that did not change for longer are not shown: `flyball sessions --all`."]
    for options, shown in ((["--all"], 9), (["--status", "paused"], 1), (["--check"], 9), (["--user", "bob"], 1)):
        main(["sessions", "--json", *options])
        said = json.loads(capsys.readouterr().out)
        assert (len(said["sessions"]), said["left_out"]) == (shown, 0)


def test_nothing_yet(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing ran yet it says so, and makes no files."""
    assert main(["sessions"]) == 0
    assert capsys.readouterr().out == "There is no session yet.\n"
    assert main(["session", "show", "x"]) == 2
    assert "Session not found: x; nothing ran here yet" in capsys.readouterr().err
    assert not states.exists()


# One session.


def test_show(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All there is to see: limits, pause, checkpoints, what to do; with --checkpoint what is in one."""
    with scene(states) as made:
        made.at(HOUR)
        _out_of_resumes(made)
    assert main(["session", "show", "research-42", "--checkpoint", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("research-42 (session) is failed: max_resume_attempts_exceeded\n")
    for part in (
        "  Maximum resume attempts exceeded (4/3)\n",
        "User:       ann\n",
        "Resumes:    3 of 3\n",
        "Steps:      4 of 55\n",
        "Money:      0.00 USD of 1.00 USD\n",
        "Paused:     rate_limit, ",
        "Checkpoints, the newest first:\n",
        "  4   draft    ",
        "  1   outline  ",
        "Checkpoint 2 after draft, kept ",
        '  {\n    "n": 2\n  }\n',
        "What to do:\n  Split the work into smaller subtasks; or raise `sessionRecovery.maxResumeAttempts`; or ",
    ):
        assert part in shown


def test_show_json(work: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts: these keys."""
    assert main(["session", "show", "paused-one", "--checkpoint", "2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said) == {"session", "reasons", "chosen", "checkpoint", "at"}
    assert set(said["session"]) == FIELDS
    assert said["checkpoint"]["content"] == {"page": 2}


def test_content_does_not_steer_a_terminal(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters in a checkpoint or a stage are not printed as such."""
    with scene(states) as made:
        piece = Piece(made, "s")
        piece.begin()
        piece.step("st\x1bage", keeps=b"\x1b[2Jtext")
    assert main(["session", "show", "s", "--checkpoint", "1"]) == 0
    shown = capsys.readouterr().out
    assert "[2Jtext" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    "command",
    [["sessions"], ["session", "show", "s"], ["why", "s"], ["status"], ["pause", "s"], ["kill", "--user", "nobody"]],
    ids=" ".join,
)
def test_what_it_is_called_does_not_steer_a_terminal(
    states: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor do stages, reasons of pauses and users: none of them makes a line of its own, on either stream."""
    with scene(states) as made:
        piece = Piece(made, "s", user="us\x1b]0;x\x07er\nFAKE")
        piece.begin()
        piece.step("st\x1b]0;x\x07age\nFAKE", keeps=b"{}")
        piece.pause("re\x1b]0;x\x07ason\nFAKE")
    main(command)
    shown = "".join(capsys.readouterr())
    assert "\x1b" not in shown
    assert not [line for line in shown.splitlines() if line.removeprefix("error: ").startswith("FAKE")]


def test_a_journal_that_cannot_be_read_keeps_nobody_from_orders(
    states: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One entry that somebody spoilt, or that a later version wrote: it is named, and what does not need it goes on."""
    with scene(states) as made:
        piece = Piece(made, "s")
        piece.begin()
        piece.pause()
    spoilt = apsw.Connection(str(states / "state.db"))
    spoilt.execute("UPDATE journal SET body = '{{' WHERE event = 'exited'")
    spoilt.close()
    for command in (["sessions"], ["status"], ["session", "show", "s"], ["pause", "s"], ["resume", "s"]):
        assert main(command) == 0
    capsys.readouterr()
    assert main(["events"]) == 2
    shown = capsys.readouterr()
    assert "error: an entry of the journal cannot be read" in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["session", "show", "paused-on"], "Session not found: paused-on; did you mean paused-one"),
        (["session", "show", "paused-one", "--checkpoint", "9"], "paused-one has no checkpoint '9'"),
        (["session", "show"], "Missing argument 'ID'"),
        (["session", "list"], "No such command 'list'"),
        (["sessions", "--status", "dead"], "'dead' is not one of 'pending', 'running'"),
        (["resume", "paused-on"], "no unit 'paused-on'; did you mean paused-one"),
        (["resume", "running-one"], "running-one is running: there is nothing to resume"),
        (["resume", "completed-one"], "completed-one is done: there is nothing to resume"),
        (["resume", "paused-one", "--checkpoint", "x"], "paused-one has no checkpoint 'x'"),
        (["resume", "--checkpoint", "1"], "a checkpoint is of one session"),
        (["kill", "--user", "amn"], "no unit of the user 'amn'; did you mean ann?"),
        (["kill", "--user", "ann", "paused-one"], "not both"),
        (["pause", "--user", "ann", "--all"], "not both"),
    ],
)
def test_bad_input(work: Scene, command: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong, on stderr, exit 2, no traceback, and nothing changes."""
    before = (_journal(work), dict(work.governor.store.states()))
    assert main(command) == 2
    shown = capsys.readouterr()
    assert says in shown.err
    assert "Traceback" not in shown.err
    assert (_journal(work), dict(work.governor.store.states())) == before


# Orders.


def test_resume(work: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """A session that a program runs goes on when that program runs again: that is said, with the resumes left."""
    assert main(["resume", "paused-one", "--checkpoint", "1"]) == 0
    assert capsys.readouterr().out == (
        "paused-one: paused: it goes on when its program runs again, 3 of 3 resumes left\n"
    )
    assert checkpoints.chosen(work.governor.store, "paused-one") == "1"
    main(["session", "show", "paused-one"])
    assert "it goes on from checkpoint 1, which a person chose" in capsys.readouterr().out


def test_resume_by_the_daemon(states: Path, work: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """A session of the daemon's own settings is resumed by the daemon; a program's is not, though there is one."""
    work.settings = Settings.model_validate({"units": {"paused-one": {"command": ["true"], "kind": "session"}}})
    with daemon(states, work) as poked:
        assert main(["resume", "paused-one", "timed_out-one"]) == 0
    mine, other = capsys.readouterr().out.splitlines()
    assert mine == "paused-one: the daemon was told to resume it"
    assert other == "timed_out-one: timed_out: it goes on when its program runs again, 3 of 3 resumes left"
    assert poked == [("paused-one", "resume"), ("timed_out-one", "resume")]


@pytest.mark.parametrize("verb", ["pause", "stop", "kill"])
def test_resume_what_is_held(work: Scene, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What an order for its user holds is still held: exit 1, and how to lift that."""
    assert main([verb, "--user", "bob"]) == 0
    capsys.readouterr()
    assert main(["resume", "paused-one"]) == 1
    assert "To go on: `flyball resume --user bob`." in capsys.readouterr().err
    assert main(["resume", "--user", "bob"]) == 0
    assert capsys.readouterr().out.startswith("paused-one: paused: it goes on when its program runs again")


@pytest.mark.parametrize("verb", ["pause", "resume", "stop", "kill"])
def test_dry_run(work: Scene, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What would be done to whom; nothing is done, and where nothing ran yet no files are made."""
    before = _journal(work)
    assert main([verb, "--user", "ann", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    done = {"pause": "paused", "resume": "resumed", "stop": "stopped", "kill": "killed"}[verb]
    assert f"running-one: would be {done} (healthy, running)\n" in shown
    assert shown.endswith("Nothing was done: 7 units, 1 run.\n")
    assert _journal(work) == before


def test_dry_run_makes_no_files(states: Path) -> None:
    """An order that is only tried out leaves nothing behind, also where nothing ran yet."""
    Path("flyball.yaml").write_text("units: {web: {command: [sleep, '1']}}\n")
    assert main(["kill", "web", "--dry-run"]) == 0
    assert not states.exists()


@pytest.mark.parametrize(("said", "code"), [("y", 0), ("n", 2), ("", 2)])
def test_kill_of_a_user_on_a_terminal(
    work: Scene, said: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S1-61: on a terminal it says how many that would end, and asks; who only presses Enter says no."""
    asked: list[str] = []

    def answered(text: str) -> str:
        asked.append(text)
        return said

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.termui.visible_prompt_func", answered)
    before = _journal(work)
    assert main(["kill", "--user", "ann"]) == code
    assert "End all 7 units of ann at once (1 of them run)?" in capsys.readouterr().err + "".join(asked)
    assert _journal(work) - before == (2 if code == 0 else 0)  # the order, and its line of the audit trail


@pytest.mark.parametrize("options", [["--yes"], []])
def test_kill_of_a_user_in_a_script(work: Scene, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, or with --yes, nobody is asked; the order is in the journal."""
    assert main(["kill", "--user", "ann", *options, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["units"]) == 7
    main(["events", "-n", "1"])
    assert capsys.readouterr().out.rstrip().endswith("via cli: kill for the user ann")


# Afterwards.


def test_why(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S1-62: the post-mortem of a session that ran out of time, in words."""
    with scene(states) as made:
        made.at(HOUR)
        piece = Piece(made, "board", kind="graph", user="ann")
        piece.begin()
        piece.step("persona", lasts=20 * SECOND, used={"usd": 310_000}, gauges={"round": 1.0, "convergence": 0.62})
        piece.step("model", lasts=SECOND, part=True, error=True)
        made.clock.move(10 * MINUTE)
        piece.end(Cause.TIMEOUT, error="timeout", policy="deadline", fingerprint="f" * 16, detail="at persona.py:7")
    assert main(["why", "board"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("board is timed_out since ")
    for part in (
        "Graph:      timed_out: timeout (layer 4: time)\n",
        "  1 steps: 1 of 55 steps\n",
        "  3 rounds and convergence: 1 of 7 rounds, convergence 0.62\n",
        "  4 time: its last run took 10 min 21 s of 1 h  <- this one ended it\n",
        "  5 money: 0.31 USD spent of 1.00 USD\n",
        "Its story:\n",
        "  began\n",
        "  layer 4 (time): after 10 min 21 s, 1 step, 0.31 USD: exited: timeout (ffffffff)",
        "Where the time went:\n",
        "  persona           once  20 s  20 s     -       0.31 USD\n",
        "    in them: model  once  1 s   1 s      1       -\n",
        "  outside of them, or in one that did not end: 10 min 1 s\n",
        "Why it may have taken so long:\n",
        "  Retries over a bad network? 1 of its steps and calls failed.\n",
        "  at persona.py:7\n",
        "How to go on:\n",
        "`flyball resume board` (3 of 3 resumes are left).\n",
    ):
        assert part in shown, part


def test_why_json(work: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts: the session as in the list, and its story."""
    assert main(["why", "paused-one", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said["session"]) == FIELDS
    assert set(said["post_mortem"]) == {"timeline", "whole", "times", "between", "layers", "causes", "ways_on"}


def test_status_says_paused(work: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """A session that waits to be resumed is paused in the list of units, too."""
    assert main(["status", "paused-one"]) == 0
    assert "paused-one  paused " in capsys.readouterr().out
