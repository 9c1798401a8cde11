"""`flyball problems`, `failures`, `budgets`, `audit`, `ack`, `snooze`, `raise`, `approve`; and `why` and `events` with
what they leave on the audit trail."""

import json
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from flyball.cli import main
from flyball.cli.group import flyball
from flyball.cli.problems import command_of, what_to_type
from flyball.control.commands import answer
from flyball.core.event import Asked, Held, Ordered, Start
from flyball.runtimes.holder import me
from tests.cli.state import alone, ended, scene, spawn
from tests.cli.test_orders import daemon
from tests.control.scene import Scene
from tests.control.test_raising import bankrupt

ME = pwd.getpwuid(os.getuid()).pw_name
KIND = "abcdef0123456789"


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


@pytest.fixture
def fleet(states: Path) -> Iterator[Scene]:
    """A unit for each word, seen at the present."""
    with scene(states) as made:
        made.everything()
        made.at(0)
        yield made


def _seq(fleet: Scene) -> int:
    return fleet.governor.store.read(()).seq


# Problems.


def test_problems(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """S0-39: What waits for a person: its reason, what to type, its id; what somebody has seen comes last."""
    assert main(["problems"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Needs you (2):\n")
    assert "    $ flyball reset abcdef01\n    quarantined-one:quarantined:abcdef01\n" in shown
    assert main(["ack", "quarantined-one", "--note", "on it"]) == 0
    said = "quarantined-one:quarantined:abcdef01: seen; it is told of again if it gets worse\n"
    assert capsys.readouterr().out == said
    assert main(["problems"]) == 0
    new, _, seen = capsys.readouterr().out.partition("Somebody has seen (1):")
    assert "Needs you (1):" in new
    assert f"(seen by {ME})" in seen


def test_nothing_needs_you(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing ran yet nothing needs anybody, and no files are made."""
    for command, said in (
        ("problems", "Nothing needs you.\n"),
        ("failures", "No failures are remembered.\n"),
        ("budgets", "Nothing is spent of any budget.\n"),
        ("audit", ""),
    ):
        assert main([command]) == 0
        assert capsys.readouterr().out == said
    assert not states.exists()


@pytest.mark.parametrize(
    "given", ["quarantined-one", "quarantined-one:quarantined:abcdef01", "quarantined-one:q", "abcd"]
)
def test_snooze(fleet: Scene, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By its unit, its id, the beginning of that, or of its fingerprint; for so long, and then no more."""
    assert main(["snooze", given, "1h", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["problem"]["unit"] == "quarantined-one"
    assert said["problem"]["snoozed_until"] == pytest.approx(said["at"] + 3600, abs=60)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["ack", "nobody"], "no problem 'nobody'"),
        (["snooze", "halted-one", "soon"], "'soon' is not a length of time"),
        (["snooze", "halted-one", "90d"], "can be snoozed for up to"),
        (["failures", "zz"], "no failure has a fingerprint that begins with 'zz'"),
        (["budgets", "nobody"], "no unit 'nobody'"),
        (["audit", "--verb", "rest"], "is no verb that leaves a line"),
        (["raise", "halted-one", "1.00"], "no budget of usd of its own"),
        (["raise", "halted-one", "much"], "more is 'much'"),
        (["raise", "1.00"], "it takes a UNIT and an AMOUNT"),
        (["raise", "halted-one", "1", "--fleet"], "one of them"),
        (["approve", "halted-one"], "halted-one asks nothing"),
        (["approve"], "nobody waits for a yes"),
        (["events", "--kind", "exit"], "'exit'"),
    ],
)
def test_mistakes_change_nothing(
    fleet: Scene, command: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake says what is wrong, exits 2, and leaves everything as it was."""
    before = _seq(fleet)
    assert main(command) == 2
    assert says in capsys.readouterr().err
    assert _seq(fleet) == before


@pytest.mark.parametrize(
    ("action", "typed"),
    [
        ({"verb": "reset", "args": {"fingerprint": KIND}}, "flyball reset abcdef01"),
        ({"verb": "reset", "args": {"breaker": "provider:x"}}, "flyball reset --breaker provider:x"),
        ({"verb": "raise", "args": {"unit": "a", "more": "1.00", "resume": True}}, "flyball raise a 1.00 --resume"),
        ({"verb": "raise", "args": {"user": "ann", "more": "1.00"}}, "flyball raise --user ann 1.00"),
        ({"verb": "raise", "args": {"fleet": True, "more": "1.00"}}, "flyball raise --fleet 1.00"),
        ({"verb": "answer", "args": {"unit": "a", "id": "q", "answer": "a b"}}, "flyball answer a --id q 'a b'"),
        ({"verb": "start", "args": {"units": ["x y"]}}, "flyball start 'x y'"),
        ({"verb": "resume", "args": {}}, "flyball resume"),
    ],
)
def test_what_to_type(action: dict[str, Any], typed: str) -> None:
    """Each action as a person types it, so that a shell takes it as it is."""
    assert command_of(action) == typed


def test_what_to_type_for_a_question() -> None:
    """The first answer as a command, the others besides; nothing where there are none."""
    actions = [{"verb": "answer", "label": a, "args": {"unit": "u", "id": "q", "answer": a}} for a in ("yes", "no")]
    assert what_to_type(actions) == "flyball answer u --id q yes   # or: no"
    assert what_to_type([]) == ""


# Failures and budgets.


def test_failures(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """By fingerprint, what is quarantined first; one by its first digits in full."""
    assert main(["failures"]) == 0
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["FINGERPRINT", "TIMES", "LAST", "STATE", "UNITS", "ERROR"]
    assert first.startswith("abcdef01")
    assert first.split()[-4:] == ["quarantined", "quarantined-one", "exit", "3"]
    assert main(["failures", "ABCD"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{KIND} exit 3, 6 times, quarantined\n")
    assert "`flyball reset abcdef01`" in shown
    assert main(["failures", "abcd", "--json"]) == 0
    assert [one["fingerprint"] for one in json.loads(capsys.readouterr().out)["failures"]] == [KIND]


@pytest.fixture
def spender(states: Path) -> Iterator[Scene]:
    """A session that spent its dollar, and was ended for that; and a fleet with a budget of its own."""
    Path("flyball.yaml").write_text("budget: {per_fleet: 10}\n")
    with scene(states) as made:
        made.at(0)
        bankrupt(made)
        yield made


def test_budgets(spender: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """Whose they are, and how much of them is used; what is used up most first."""
    assert main(["budgets"]) == 0
    _, first, *_ = capsys.readouterr().out.splitlines()
    assert first.split()[:6] == ["thesis", "100%", "1.00", "USD", "-", "1.00"]
    assert main(["budgets", "thesis", "--json"]) == 0
    assert [one["unit"] for one in json.loads(capsys.readouterr().out)["budgets"]] == ["thesis"]


def test_raise(spender: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """What is over budget says what to type; a dry run says what it comes to; then it is raised, and goes on."""
    assert main(["problems"]) == 0
    assert "$ flyball raise thesis 1.00 --resume\n" in capsys.readouterr().out
    before = _seq(spender)
    assert main(["raise", "thesis", "1.00", "--resume", "--dry-run"]) == 0
    would = "thesis: 1.00 USD more, 2.00 USD in all, 1.00 USD of it spent (nothing was done)\n"
    assert capsys.readouterr().out == would
    assert _seq(spender) == before
    assert main(["raise", "thesis", "1.00", "--resume", "--note", "nearly done"]) == 0
    said = "thesis: 1.00 USD more, 2.00 USD in all; 1 unit resumed, 1.00 USD of it spent\n"
    assert capsys.readouterr().out == said
    assert main(["budgets", "thesis"]) == 0
    assert " 50% " in capsys.readouterr().out
    assert main(["problems"]) == 0
    assert capsys.readouterr().out == "Nothing needs you.\n"


@pytest.mark.parametrize(("typed", "code"), [("y", 0), ("n", 2), ("", 2)])
def test_raise_for_all_asks(spender: Scene, typed: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What concerns more than one unit is asked first, and no is the answer of whoever only presses Enter."""
    before = _seq(spender)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: typed)
    assert main(["raise", "--fleet", "5.00"]) == code
    assert (_seq(spender) > before) is (code == 0)


def test_raise_for_all_without_a_terminal(
    spender: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a terminal it takes --yes."""
    before = _seq(spender)
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr("sys.stdin", nobody)
        assert main(["raise", "--fleet", "5.00"]) == 2
        assert "Add --yes" in capsys.readouterr().err
        assert _seq(spender) == before
        assert main(["raise", "--fleet", "5.00", "--yes"]) == 0
    assert capsys.readouterr().out.startswith("the fleet: 5.00 USD more, 15.00 USD in all")


# Approvals.


def _ask(made: Scene, unit: str, number: str) -> None:
    run = f"{unit}-run"
    made.governor.submit(Start(unit=unit, run=run, holder=me()))
    made.governor.submit(Asked(unit=unit, run=run, id=number, text="Deploy?", choices=("Yes", "no")))


def test_approve(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """A yes to the question of a unit, in the word that it offers; it is in the journal with who gave it."""
    _ask(fleet, "deployer", "3fa9")
    assert main(["problems"]) == 0
    assert "$ flyball answer deployer --id 3fa9 Yes   # or: no\n" in capsys.readouterr().out
    assert main(["approve", "deployer", "3f"]) == 0
    assert capsys.readouterr().out == "deployer: answered Yes: Deploy?\n"
    assert main(["audit", "--verb", "approve", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["by"] == ME


def test_approve_the_only_one(
    fleet: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a unit it asks first; of several it says which there are."""
    _ask(fleet, "deployer", "3fa9")
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr("sys.stdin", nobody)
        assert main(["approve"]) == 2
        assert "`flyball approve deployer 3fa9`" in capsys.readouterr().err
    _ask(fleet, "payer", "77")
    assert main(["approve", "--yes"]) == 2
    assert "2 wait for a yes: deployer 3fa9: Deploy?; payer 77: Deploy?" in capsys.readouterr().err
    assert main(["approve", "payer"]) == 0
    capsys.readouterr()
    assert main(["approve", "--yes"]) == 0
    assert capsys.readouterr().out == "deployer: answered Yes: Deploy?\n"


# The audit trail.


def test_audit(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """S0-41: Who asked for what, through which channel, and what came of it; of one person, of one verb."""
    main(["reset", "abcd"])
    main(["pause", "degraded-one"])
    capsys.readouterr()
    assert main(["audit", "-n", "2"]) == 0
    reset, pause = capsys.readouterr().out.splitlines()
    assert f"  {ME} via cli  reset fingerprint=abcd: forgot 1 kind of failure of 1 unit" in reset
    assert f"  {ME} via cli  pause units=degraded-one: degraded-one paused" in pause
    assert main(["audit", "--verb", "reset", "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert json.loads(line)["verb"] == "reset"
    assert main(["audit", "--who", "nobody"]) == 0
    assert capsys.readouterr().out == ""


def test_follow_the_trail(states: Path, fleet: Scene) -> None:
    """What comes is printed when it comes."""
    process = spawn("audit", "--follow", "--json")
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["unit"] == "paused-one"
        answer(fleet.context(), "pause", {"units": ["degraded-one"]})
        assert json.loads(process.stdout.readline())["unit"] == "degraded-one"
    finally:
        ended(process)


@pytest.mark.parametrize("command", [["events", "-n", "2"], ["why", "degraded-one", "-n", "2"]])
def test_an_order_is_told_once(fleet: Scene, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The line of the audit trail behind its own order is not shown; as JSON it is. So many lines as were asked for are
    shown all the same."""
    main(["pause", "degraded-one", "--note", "for the night"])
    main(["resume", "degraded-one"])
    capsys.readouterr()
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "asked to" not in shown
    assert f"paused by {ME} via cli: for the night" in shown
    assert f"released by {ME} via cli" in shown
    assert main([*command, "--json"]) == 0
    assert "asked to resume units=degraded-one" in capsys.readouterr().out


def test_what_has_no_order_is_told(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """What was refused is told by its line alone; so is what two people did, each."""
    fleet.governor.submit(Held(unit="web", by="ann", note="via page"))
    told: dict[str, Any] = {"unit": "web", "verb": "pause", "asked": "units=web"}
    fleet.governor.submit(Ordered(by="eve", channel="page", refused="forbidden", **told))
    fleet.governor.submit(Ordered(by="ann", channel="telegram", **told))
    fleet.governor.submit(Ordered(by="ann", channel="page", **told))
    assert main(["events", "web"]) == 0
    lines = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "web: paused by ann via page",
        "web: eve via page asked to pause units=web; refused (forbidden)",
        "web: ann via telegram asked to pause units=web",
    ]


def test_kinds(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """Only events of the kinds that are asked for."""
    assert main(["events", "--kind", "held", "--kind", "start", "--json"]) == 0
    found = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert set(found) == {"held", "start"}


# With a daemon, and in a shell.


def test_with_a_daemon(states: Path, fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """S0-37, S0-38, S0-39, S0-40, S4-17: With a daemon the same words go to it, and the trail says who it was."""
    with daemon(states, fleet):
        for command in (["problems"], ["failures"], ["budgets"], ["ack", "halted-one"], ["snooze", "abcd", "1h"]):
            assert main(command) == 0
        assert main(["status", "--check"]) == 1
        assert main(["reset", "abcd"]) == 0
        assert main(["resume", "halted-one"]) == 0
        assert main(["reset", "--all", "--yes"]) == 0
        capsys.readouterr()
        assert main(["problems"]) == 0
        assert capsys.readouterr().out == "Nothing needs you.\n"
        assert main(["audit"]) == 0
        verbs = [line.split("  ")[2].split()[0] for line in capsys.readouterr().out.splitlines()]
    assert verbs[-5:] == ["acknowledge", "snooze", "reset", "resume", "reset"]


@pytest.mark.parametrize(
    ("words", "begun", "offers"),
    [
        (["reset"], "ab", [KIND]),
        (["failures"], "ab", [KIND]),
        (["ack"], "quar", ["quarantined-one:quarantined:abcdef01"]),
        (["snooze"], "halted", ["halted-one:halted"]),
        (["approve"], "", ["deployer"]),
        (["approve", "deployer"], "", ["3fa9"]),
        (["audit", "--verb"], "rese", ["reset"]),
        (["events", "--kind"], "exi", ["exited"]),
        (["status", "--state"], "quar", ["quarantined"]),
        (["budgets"], "deg", ["degraded-one"]),
    ],
)
def test_completion(fleet: Scene, words: list[str], begun: str, offers: list[str]) -> None:
    """A shell completes names of units, fingerprints, ids of problems and of questions, verbs, kinds and states."""
    _ask(fleet, "deployer", "3fa9")
    shell = ShellComplete(flyball, {}, "flyball", "_FLYBALL_COMPLETE")
    assert [item.value for item in shell.get_completions(words, begun)] == offers


# Logs.


def test_logs_for_scripts(states: Path, fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object a line, also for a last one without its end; and what the daemon says, without a name."""
    (states / "logs").mkdir(exist_ok=True)
    (states / "logs" / "healthy-one.log").write_bytes(b"one\ntw\xff")
    assert main(["logs", "healthy-one", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"unit": "healthy-one", "line": "one"}, {"unit": "healthy-one", "line": "tw\ufffd"}]
    assert main(["logs"]) == 0
    assert capsys.readouterr().err == "No daemon ran here in the background.\n"
    (states / "daemon.log").write_text("started\n")
    assert main(["logs"]) == 0
    assert capsys.readouterr().out == "started\n"
