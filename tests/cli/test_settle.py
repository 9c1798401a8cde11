"""`flyball settle`: a person settles what a process held that was killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flyball.cli import main
from flyball.core.event import Cause, Exited, Start, Step
from flyball.runtimes.holder import me, start_of
from tests.cli.state import alone, scene

RESERVES = """
import sys, time
from flyball.app import open_governor
from flyball.config import load
from flyball.runtimes.holder import me
from flyball.runtimes.money import Purse
import os
governor = open_governor(load(), os.environ)
money = Purse(governor, "shop", me()).reserve("0.30")
print("reserved", flush=True)
time.sleep(600)
"""


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "flyball.yaml").write_text("budget: {per_unit: 1.00}\n", encoding="utf-8")
    return alone(tmp_path, monkeypatch)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["settle", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("states")
def test_a_process_that_was_killed(capsys: pytest.CaptureFixture[str]) -> None:
    """While it lives nothing is settled; when it is killed, what it held is listed, and settled as the person says."""
    program = subprocess.Popen([sys.executable, "-c", RESERVES], stdout=subprocess.PIPE, text=True, env=os.environ)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "reserved\n"
        assert said(capsys, "shop") == (
            f"shop: 0.30 USD held by the run {_holder(program.pid)}\nNo run that died holds anything.\n"
        )
    finally:
        program.send_signal(signal.SIGKILL)
        program.communicate()
    dead = said(capsys)
    assert dead.startswith("shop: 0.30 USD held by the dead run ")
    assert said(capsys, "shop", "--usd", "0.12", "--dry-run").endswith(": would be settled as 0.12 USD\n")
    assert said(capsys, "shop", "--usd", "0.12").endswith(": settled as 0.12 USD\n")
    assert said(capsys) == "No run that died holds anything.\n"
    assert main(["why", "shop"]) == 0
    assert "Budget:     0.12 USD spent, 0.00 USD reserved, of 1.00 USD per unit" in capsys.readouterr().out
    assert main(["events", "shop"]) == 0
    assert "via cli: 0.12 USD used of 0.30 USD reserved" in capsys.readouterr().out


def _holder(pid: int) -> str:
    return f"{me().partition('/')[0]}/{pid}/{start_of(pid)}"


def test_json(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts get the same as data."""
    with scene(states) as made:
        made.at(0)
        made.governor.submit(Start(unit="shop", run="r1", holder=me()))
        made.governor.submit(Step(unit="shop", run="r1", cost={"usd": 5}))
        made.governor.submit(Exited(unit="shop", run="r1", cause=Cause.ERROR))
    data = json.loads(said(capsys, "shop", "--nothing", "--json"))
    assert data["settled"] == [{"unit": "shop", "run": "r1", "labels": {}, "reserved": {"usd": 5}, "used": {}}]
    assert (data["alive"], data["dry_run"], data["unit"]["name"]) == ([], False, "shop")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["shpo"], "no unit 'shpo'"), (["--nothing"], "needs the name of the unit"), (["x", "--usd", "y"], "amount")],
)
@pytest.mark.usefixtures("states")
def test_bad_input(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Said clearly; the exit code is 2."""
    assert main(["settle", *arguments]) == 2
    assert says in capsys.readouterr().err
