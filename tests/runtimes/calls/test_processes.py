"""Guarded calls of several processes on one file: what one learns the others know, also after it is gone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flyball.core.codec import decode_state
from flyball.core.policy import Key
from flyball.policies.budget import State as Spent
from flyball.store.sqlite import SqliteStore

PROGRAM = Path(__file__).with_name("program.py")
WAIT_MAX = 30


def arguments(folder: Path, options: dict[str, Any], *commands: str) -> list[str]:
    return [sys.executable, str(PROGRAM), str(folder), json.dumps(options), *commands]


def run(folder: Path, options: dict[str, Any], *commands: str) -> list[str]:
    """What a process said, which made these calls and ended."""
    done = subprocess.run(
        arguments(folder, options, *commands), capture_output=True, text=True, timeout=WAIT_MAX, check=True
    )
    assert not done.stderr
    return done.stdout.split()


@contextmanager
def started(folder: Path, options: dict[str, Any], *commands: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that makes these calls meanwhile. Killed in the end, if it is still there."""
    command = arguments(folder, options, *commands)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: "subprocess.Popen[str]", word: str) -> list[str]:
    """What it said, up to that word."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line.strip())
        if said[-1] == word:
            return said
    raise AssertionError(f"it ended without {word!r}: {said}")


def money(folder: Path) -> Spent:
    with SqliteStore(folder / "state.db") as store:
        data = store.states().get(Key("call_budget", "call:fetch", "program"))
    return decode_state(Spent, data) if data is not None else Spent()


SAFEGUARDS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"breaker": "provider:x"}, "fail:5", "broken", "circuit_open"),
    ({"loop": [10, 3600]}, "well:9", "well", "loop_detected"),
    ({"cost": "0.10", "budget": "0.50"}, "well:5", "well", "cost_budget_exceeded"),
    ({"cost": {"tokens": 10}, "budget": {"tokens": 50}}, "fail:5", "broken", "cost_budget_exceeded"),
]


@pytest.mark.parametrize(("options", "command", "outcome", "code"), SAFEGUARDS)
def test_it_survives_a_restart(tmp_path: Path, options: dict[str, Any], command: str, outcome: str, code: str) -> None:
    """Each safeguard fires through the decorator, and fires again in the next process. Taken out, it does not."""
    assert set(run(tmp_path, options, command)) == {outcome}
    assert run(tmp_path, options, "well:3") == [code] * 3
    without = {"cost": options["cost"]} if "cost" in options else {}
    assert run(tmp_path, without, "well:3") == ["well"] * 3


def test_five_failures_in_one_process_open_it_for_another(tmp_path: Path) -> None:
    """Both live at the same time, on one file."""
    options = {"breaker": "provider:x"}
    with started(tmp_path, options, "fail:5", "stay") as one:
        assert until(one, "staying") == ["broken"] * 5 + ["staying"]
        assert run(tmp_path, options, "well:2") == ["circuit_open"] * 2


def test_failures_of_several_processes_are_counted_together(tmp_path: Path) -> None:
    """Two there, two here, and one more."""
    options = {"breaker": "provider:x"}
    assert run(tmp_path, options, "fail:2") == ["broken"] * 2
    assert run(tmp_path, options, "fail:2") == ["broken"] * 2
    assert run(tmp_path, options, "fail:1", "well") == ["broken", "circuit_open"]


def test_what_is_held_is_given_back_at_the_end(tmp_path: Path) -> None:
    """Nobody closes anything, and the interpreter's end gives back what was not used."""
    options = {"cost": "0.01", "budget": 100}
    assert run(tmp_path, options, "well:30") == ["well"] * 30
    assert money(tmp_path) == Spent(300_000)


def test_a_killed_process_has_used_what_it_held(tmp_path: Path) -> None:
    """kill -9 in the middle of an attempt: what was reserved stays reserved, and never is more spent than allowed."""
    options = {"cost": "0.10", "budget": "1.00"}
    with started(tmp_path, options, "well:3", "hang") as process:
        until(process, "hanging")
        os.kill(process.pid, signal.SIGKILL)
        process.wait(WAIT_MAX)
    # The attempts that were made, and the one that was being made.
    assert (money(tmp_path).spent, money(tmp_path).reserved) == (300_000, 100_000)
    assert run(tmp_path, options, "well:10") == ["well"] * 6 + ["cost_budget_exceeded"] * 4


@pytest.mark.slow
def test_no_schedule_overspends(tmp_path: Path) -> None:
    """Four processes at once, again and again, some killed: the budget is never exceeded, and what the living did not
    use is there for the next."""
    options = {"cost": "0.01", "budget": "4.00"}
    made = 0
    for _ in range(3):
        with started(tmp_path, options, "well:40") as one, started(tmp_path, options, "well:40") as two:
            with started(tmp_path, options, "well:40", "hang") as three:
                assert three.stdout is not None
                until(three, "hanging")
                os.kill(three.pid, signal.SIGKILL)
                three.wait(WAIT_MAX)
            for process in (one, two):
                said, _ = process.communicate(timeout=WAIT_MAX)
                made += said.split().count("well")
        made += 40
        state = money(tmp_path)
        assert state.spent + state.reserved <= 4_000_000
        assert state.spent <= made * 10_000 <= state.spent + state.reserved
    rest = run(tmp_path, options, "well:400")
    assert money(tmp_path).spent + money(tmp_path).reserved == 4_000_000
    assert rest.count("well") > 0
