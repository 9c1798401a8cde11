"""What a guarded call did is seen from outside: in `flyball events`, `why` and `status`, and it obeys orders."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import assert_type

import pytest

import flyball
from flyball.cli import main
from flyball.runtimes.refusal import CircuitOpen, Refused
from tests.cli.state import alone

EXAMPLE = Path(__file__).parents[3] / "examples" / "calls.py"


Command = Callable[..., str]


@pytest.fixture
def said_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """What a command prints, in a state folder that is not there yet."""
    alone(tmp_path, monkeypatch)

    def said(*arguments: str) -> str:
        capsys.readouterr()
        assert main(arguments) == 0
        return capsys.readouterr().out

    return said


def broken(url: str, tries: int = 1) -> bytes:
    raise OSError(f"{url} is down")


def test_a_refusal_is_seen_from_outside(said_by: Command) -> None:
    """The program is known by its name, and the journal says what was refused, and why."""
    with flyball.open("shop") as guard:
        fetch = guard.call("fetch", breaker="provider:x")(broken)
        for _ in range(5):
            with pytest.raises(OSError, match="is down"):
                fetch("there")
        with pytest.raises(CircuitOpen):
            fetch("there")
    assert "shop" in said_by("status")
    for said in (said_by("why", "shop"), said_by("events")):
        assert "circuit open: 5 failures within 1 min" in said


def test_a_person_pauses_the_program(said_by: Command) -> None:
    """What a person orders holds for the next call that asks."""
    with flyball.open("shop") as guard:
        fetch = guard.call("fetch")(lambda: "well")
        assert fetch() == "well"
        said_by("pause", "shop")
        guard.call.report()
        with pytest.raises(Refused) as caught:
            fetch()
        assert caught.value.verb is flyball.Verb.HOLD
        said_by("resume", "shop")
        assert fetch() == "well"


def test_the_signature_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Type checkers see the function that was guarded: they would find these ignores superfluous otherwise."""
    alone(tmp_path, monkeypatch)
    with flyball.open("shop") as guard:

        @guard.call("fetch")
        def fetch(url: str, *, tries: int = 1) -> bytes:
            return url.encode() * tries

        @guard.call("fetch")
        async def fetch_soon(url: str) -> bytes:
            return url.encode()

        assert assert_type(fetch("x", tries=2), bytes) == b"xx"
        with pytest.raises(AttributeError):
            fetch(3)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            fetch("x", times=2)  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            asyncio.run(fetch_soon())  # type: ignore[call-arg]


@pytest.mark.slow
def test_the_example_runs() -> None:
    """It shows a provider that goes down and comes back, and a budget that is used up."""
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=60, check=True)
    assert not done.stderr
    assert "45 x CircuitOpen" in done.stdout
    assert done.stdout.count("20 x an answer") == 2
    assert "the provider was called 5 times" in done.stdout
    assert "45 x OutOfBudget" in done.stdout
