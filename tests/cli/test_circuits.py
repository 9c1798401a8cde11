"""`flyball reset --breaker`, on the store of a program whose calls fail."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import flyball
from flyball.cli import main
from flyball.guard import Guard
from flyball.runtimes.calls.call import Call
from tests.cli.state import alone


@pytest.fixture
def guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guard]:
    alone(tmp_path, monkeypatch)
    with flyball.open("program") as opened:
        yield opened


def _broken(guard: Guard) -> Call:
    """A call whose circuit is open."""
    call = guard.call("fetch", breaker="provider:x")
    for _ in range(5):
        with pytest.raises(OSError, match="down"), call:
            raise OSError("down")
    with pytest.raises(flyball.CircuitOpen), call:
        pass
    return call


def test_close_it(guard: Guard, capsys: pytest.CaptureFixture[str]) -> None:
    """A circuit of guarded calls is shown by `status`, closed by its name, and the program's next call is made."""
    call = _broken(guard)
    assert main(["status"]) == 0
    assert "; circuit provider:x open" in capsys.readouterr().out
    assert main(["reset", "--breaker", "provider:x", "--dry-run"]) == 0
    assert capsys.readouterr().out == "circuit provider:x (open): would be closed, and its failures forgotten\n"
    with pytest.raises(flyball.CircuitOpen), call:
        pass
    assert main(["reset", "--breaker", "provider:x"]) == 0
    assert capsys.readouterr().out == "circuit provider:x (open): closed, and its failures forgotten\n"
    made = []
    with call:
        made.append("made")
    assert made
    assert main(["status"]) == 0
    assert "circuit" not in capsys.readouterr().out


def test_it_replays_alike(guard: Guard, capsys: pytest.CaptureFixture[str]) -> None:
    """The order is in the journal so that the same history comes to the same decisions."""
    call = _broken(guard)
    assert main(["reset", "--breaker", "provider:x"]) == 0
    with call:
        pass
    guard.call.report()
    capsys.readouterr()
    assert main(["replay", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["differing"], said["decisions"] > 0) == (0, True)


def test_unknown(guard: Guard, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is not there: what was meant, exit 2, and nothing changes."""
    _broken(guard)
    before = guard.governor.store.read(()).seq
    assert main(["reset", "--breaker", "provider:y"]) == 2
    shown = capsys.readouterr().err
    assert "error: no circuit 'provider:y'; did you mean provider:x?" in shown
    assert "Traceback" not in shown
    assert main(["reset", "abc", "--breaker", "provider:x"]) == 2
    assert guard.governor.store.read(()).seq == before


def test_json(guard: Guard, capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts: what was closed, as it was."""
    _broken(guard)
    assert main(["reset", "--breaker", "provider:x", "--json"]) == 0
    [closed] = json.loads(capsys.readouterr().out)["closed"]
    assert (closed["name"], closed["by"], closed["subject"], closed["state"]) == ("provider:x", "provider", "x", "open")
