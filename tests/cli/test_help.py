"""The command itself: its help, its errors, its exit codes, and what it costs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flyball.cli import COMMANDS, main
from flyball.errors import FlyballError

PYTHON = sys.executable


def _run(*arguments: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [PYTHON, "-m", "flyball", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--help", "check"]])
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Help lists every command with what it does, and gives examples."""
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "Examples:" in shown
    for name, (_, does) in COMMANDS.items():
        assert f"  {name}" in shown
        assert does in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command of the list is there and explains itself."""
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: flyball {name}")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is that of the distribution."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("flyball 0.")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["chekc"], "no command 'chekc'; did you mean check?"),
        (["xyz"], "no command 'xyz'; there are run, "),
        (["check", "--jsno"], "--json"),
        (["check", "a", "b"], "unexpected extra argument"),
        (["completion", "tcsh"], "'bash', 'zsh', 'fish'"),
        ([], "Usage: flyball"),
    ],
)
def test_bad_usage(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad usage says what was meant, on stderr, and exits 2."""
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert says in shown.err
    assert shown.out == ""


def test_errors_have_no_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person can put right is printed with its remedy, without a traceback."""

    def fail(_: object) -> int:
        raise FlyballError("the disk is full", remedy="Free some space.")

    monkeypatch.setattr("flyball.cli.group.run", fail)
    assert main(["check"]) == 2
    assert capsys.readouterr().err == "error: the disk is full\nFree some space.\n"


@pytest.mark.parametrize("raised", [KeyboardInterrupt, BrokenPipeError])
def test_interrupts_are_quiet(
    raised: type[BaseException], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C inside a command is quiet, and so is a reader that went away."""

    def interrupted(*_: object) -> None:
        raise raised

    monkeypatch.setattr("flyball.cli.check.load", interrupted)
    keep = os.dup(1)
    try:
        assert main(["check"]) == {KeyboardInterrupt: 130, BrokenPipeError: 141}[raised]
    finally:
        os.dup2(keep, 1)
        os.close(keep)
    assert capfd.readouterr().err.strip() == ""


@pytest.mark.parametrize("arguments", [["config"], ["schema"], ["--help"]])
def test_a_reader_that_went_away(arguments: list[str]) -> None:
    """`flyball config | true` prints no traceback."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [PYTHON, "-m", "flyball", *arguments], stdout=write, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(write)
    assert done.stderr == ""
    assert done.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [["schema"], ["--help"]])
def test_output_that_cannot_be_written(arguments: list[str]) -> None:
    """A full disk is an error in one line, and one that says what to do."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [PYTHON, "-m", "flyball", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    said = "error: [Errno 28] No space left on device\nFree some disk space, then try again.\n"
    assert done.stderr == said
    assert done.returncode == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """There is a script for each shell."""
    assert main(["completion", shell]) == 0
    assert "_FLYBALL_COMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "offers"), [("flyball c", {"check", "completion", "config"}), ("flyball check --j", {"--json"})]
)
def test_completion(words: str, offers: set[str]) -> None:
    """The shell is offered commands and options."""
    env = {"_FLYBALL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = _run(env=env)
    assert {line.split(",")[1] for line in done.stdout.splitlines()} == offers


IMPORTED_BY_HELP = """
import sys
from flyball.cli import main
main(["--help"])
print(",".join(name for name in sys.modules if "." not in name), file=sys.stderr)
"""


def test_help_imports_nothing_heavy() -> None:
    """`flyball --help` imports neither click nor pydantic nor yaml nor a store."""
    done = subprocess.run([PYTHON, "-c", IMPORTED_BY_HELP], capture_output=True, text=True, check=True)
    imported = set(done.stderr.strip().split(","))
    assert not imported & {"click", "pydantic", "yaml", "rich", "apsw", "msgspec"}


@pytest.mark.parametrize("module", ["flyball.core", "flyball.policies", "flyball.governor", "flyball.store.sqlite"])
def test_pydantic_stays_out_of_the_heart(module: str) -> None:
    """Only settings need pydantic."""
    code = f"import sys, {module}; sys.exit('pydantic' in sys.modules or 'yaml' in sys.modules)"
    assert subprocess.run([PYTHON, "-c", code], check=False).returncode == 0


def test_windows_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows every command says that it cannot run there, and what to do; the help still helps."""
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(["status"]) == 2
    said = capsys.readouterr().err
    assert "not on Windows" in said
    assert "WSL" in said
    assert main(["--help"]) == 0
