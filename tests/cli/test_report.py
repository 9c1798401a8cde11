"""`flyball report` for sessions: what is refused before anybody is told, and what is sent."""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flyball.cli.report import report
from flyball.runtimes.notify import Message, Notify

RUN = "host/1/1.1"


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path: a socket is made in it."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def told(folder: Path, *args: str, answer: dict[str, Any]) -> tuple[Message, "subprocess.CompletedProcess[str]"]:
    """What the supervisor of a run is told by that command, and what becomes of the command when it answers so."""
    heard: list[Message] = []

    async def supervise() -> "subprocess.CompletedProcess[str]":
        notify = Notify.open(folder, "work")
        try:
            notify.expect(RUN)

            def hear(message: Message) -> None:
                heard.append(message)
                assert message.answer is not None
                message.answer(json.dumps(answer).encode())

            notify.listen(1, hear)
            command = [sys.executable, "-m", "flyball", "report", *args]
            return await asyncio.to_thread(
                subprocess.run,
                command,
                env=dict(notify.env(RUN)),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        finally:
            notify.close()

    done = asyncio.run(supervise())
    return heard[0], done


@pytest.mark.parametrize(("given", "after"), [((), None), (("--after", "90"), 90), (("--after", "1m30s"), 90)])
def test_pause(given: tuple[str, ...], after: float | None, folder: Path) -> None:
    """The reason and the seconds; the exit code is the answer's."""
    message, done = told(folder, "pause", "rate_limit", *given, answer={"verb": "proceed", "reasons": []})
    assert json.loads(message.get("X_FLYBALL_PAUSE") or "") == {"reason": "rate_limit", "after": after}
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_checkpoint(folder: Path) -> None:
    """The stage alone is sent: the supervisor reads the file itself. What ends the run is an exit code and a text."""
    reason = {"policy": "steps", "code": "max_steps", "text": "Step limit reached (56/55)", "remedy": "Split it."}
    answer = {"verb": "stop", "reasons": [reason]}
    message, done = told(folder, "checkpoint", "--stage", "fetch", answer=answer)
    assert json.loads(message.get("X_FLYBALL_CHECKPOINT") or "") == {"stage": "fetch"}
    assert (done.returncode, done.stdout) == (12, "")
    assert "stop: Step limit reached (56/55)" in done.stderr


def test_refused(folder: Path) -> None:
    """What cannot be kept is an error with what is wrong, exit code 2."""
    _, done = told(folder, "checkpoint", answer={"error": "the checkpoint is empty"})
    assert done.returncode == 2
    assert "the supervisor refused the report: the checkpoint is empty" in done.stderr


@pytest.mark.parametrize("given", ["soon", "-5", "1.5.5"])
def test_a_time_that_is_none(given: str) -> None:
    """It is refused before anybody is told."""
    done = CliRunner().invoke(report, ["pause", "rate_limit", "--after", given])
    assert done.exit_code == 2
    assert "--after" in done.output
