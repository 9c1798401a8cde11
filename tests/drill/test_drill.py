"""The fire drill: every safeguard is provoked, and a missing one is found."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from click.shell_completion import ShellComplete

from flyball.cli.drill import drill as command
from flyball.config import Settings
from flyball.drill import running
from flyball.drill.exercise import Exercise, Seen
from flyball.drill.exercises import ALL, people, supervisor
from flyball.drill.fleet import Fleet
from flyball.drill.numbers import FLEETS, settings_of
from flyball.drill.running import Outcome, Row
from flyball.policies import ALL as POLICIES
from flyball.runtimes import guardian
from flyball.sweeper import MARK
from tests.acceptance.harness import settings_of as given
from tests.zygote import command as forked

WITHOUT: Final = Path(__file__).parent / "without"
"""The folder that takes a policy out of every Python that finds it on its path."""
LONGEST: Final = 300.0
"""Seconds for one drill, on a machine that does much else."""


class Place:
    """Where a drill is held: a folder for all that it makes, so that what is left over can be seen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("FLYBALL_")}
        self.env |= {"TMPDIR": str(folder), "HOME": str(folder)}

    def drill(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return forked().run("flyball", "drill", *words, cwd=self.folder, env=self.env | env, timeout=LONGEST)

    def left(self) -> tuple[list[str], list[int]]:
        """Scratch folders, and processes with the mark of one."""
        mark = f"{MARK}={self.folder}".encode()
        pids = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if mark in (entry / "environ").read_bytes():
                        pids.append(int(entry.name))
                except OSError:
                    continue
        return [found.name for found in self.folder.glob("fb*")], pids


@pytest.fixture
def place() -> Iterator[Place]:
    # Not pytest's own folder: its path is part of the addresses of sockets, and those are short.
    folder = Path(tempfile.mkdtemp(prefix="t-")).resolve()
    yield Place(folder)
    shutil.rmtree(folder)


def _names(policy: type[Any]) -> list[str]:
    return [exercise.name for exercise in ALL if exercise.policy is policy]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_every_policy_has_an_exercise(policy: type[Any]) -> None:
    """No safeguard goes without one."""
    assert _names(policy)


def test_names_and_fleets() -> None:
    """Each exercise has a name of its own, a sentence, and a fleet that there is."""
    assert len({exercise.name for exercise in ALL}) == len(ALL)
    assert {exercise.fleet for exercise in ALL} == set(FLEETS)
    assert all(exercise.how for exercise in ALL)


@pytest.mark.slow
def test_all_fire(place: Place) -> None:
    """Everything fires with the defaults; the exit code says so; nothing is left, neither process nor folder."""
    done = place.drill("--json")
    said = json.loads(done.stdout)
    assert [row for row in said["safeguards"] if row["outcome"] != "fired"] == []
    assert (done.returncode, done.stderr) == (0, "")
    assert (said["ok"], said["fired"], said["not_fired"], said["left_out"]) == (True, len(ALL), 0, 0)
    assert [row["name"] for row in said["safeguards"]] == [exercise.name for exercise in ALL]
    assert all(row["after_seconds"] >= 0 and row["seen"] for row in said["safeguards"])
    assert place.left() == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_without(policy: type[Any], place: Place) -> None:
    """Without a policy its rows do not fire, and the drill fails. That is found out, not waited for."""
    names = _names(policy)
    only = [word for name in names for word in ("--only", name)]
    began = time.monotonic()
    done = place.drill("--json", *only, PYTHONPATH=str(WITHOUT), TEST_WITHOUT_POLICY=policy.__name__)
    took = time.monotonic() - began
    rows = json.loads(done.stdout)["safeguards"]
    assert [(row["name"], row["outcome"]) for row in rows] == [(name, "not fired") for name in names]
    assert done.returncode == 1
    assert not any("not seen within" in row["seen"] or "not reachable" in row["seen"] for row in rows), rows
    assert took < running.CAP
    assert place.left() == ([], [])


@pytest.mark.slow
def test_own_numbers(place: Place) -> None:
    """The user's numbers count, also from the environment; what cannot be reached with them is told and is a failure;
    what the user runs, and where it is kept, is left alone."""
    (place.folder / "flyball.yaml").write_text(
        json.dumps(
            {
                "quarantine": {"max_failures_before_quarantine": 4},
                "safety": {"max_loop_iterations": 1_000_000},
                "store": "postgresql://nobody@127.0.0.1:1/nothing",
                "units": {"mine": {"command": ["touch", str(place.folder / "touched")]}},
            }
        )
    )
    only = ("--only", "quarantine", "--only", "loop", "--only", "steps")
    done = place.drill("--json", *only, FLYBALL_GRAPH__RECURSION_LIMIT="7", DELIBERATION_TIMEOUT_SECONDS="0.001")
    held, steps, loop = json.loads(done.stdout)["safeguards"]
    assert (held["outcome"], held["seen"].partition(" ")[0]) == ("fired", "4")
    assert (steps["outcome"], steps["seen"]) == ("fired", "Step limit reached (8/7)")
    assert loop["outcome"] == "not fired"
    assert loop["seen"].startswith("not reachable with your settings: safety.max_loop_iterations asks for 1,000,000")
    assert done.returncode == 1
    assert not (place.folder / "touched").exists()


@pytest.mark.slow
def test_nothing_is_restarted(place: Place) -> None:
    """Where nothing is restarted by itself, a person starts what has to fail again."""
    (place.folder / "flyball.yaml").write_text('{"supervisor": {"enabled": false}}')
    only = [word for name in ("quarantine", "flapping", "restart", "cooldown") for word in ("--only", name)]
    done = place.drill(*only)
    assert (done.returncode, done.stdout.splitlines()[-1].partition(",")[0]) == (0, "4 of 4 fired")


def half_way(place: Place) -> "subprocess.Popen[bytes]":
    """A drill that is at work in several folders."""
    process = subprocess.Popen(
        [sys.executable, "-m", "flyball", "drill"],
        cwd=place.folder,
        env=place.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    ends = time.monotonic() + LONGEST
    while len(place.left()[1]) < 6 and time.monotonic() < ends:
        time.sleep(0.02)
    return process


@pytest.mark.slow
def test_killed(place: Place) -> None:
    """A kill -9 of the drill leaves nothing, either: somebody sweeps."""
    process = half_way(place)
    process.kill()
    process.communicate(timeout=LONGEST)
    ends = time.monotonic() + LONGEST
    while place.left() != ([], []):
        assert time.monotonic() < ends, place.left()
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_interrupted(number: signal.Signals, place: Place) -> None:
    """Whoever ends it half-way finds nothing left."""
    process = half_way(place)
    # As a terminal does it: everybody in the foreground hears it, and a second one follows.
    os.killpg(process.pid, number)
    time.sleep(0.05)
    os.kill(process.pid, number)
    _, complained = process.communicate(timeout=LONGEST)
    assert (process.returncode, complained.strip()) == (130, b"")
    assert place.left() == ([], [])


class _Lacking(Exercise):
    name = "lacking"
    how = "it is not"
    needs = ("no_such_module_anywhere", "rules")


class _Broken(Exercise):
    name = "broken"
    how = "it breaks"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        raise RuntimeError("out of order")

    def watch(self, fleet: Fleet) -> Seen:
        raise NotImplementedError


class _Unreaped(Fleet):
    """Nobody looks after what runs away from its unit."""

    def up(self) -> None:
        self.scratch.env[guardian.WITHOUT] = "1"
        super().up()


class _Forgetful(Fleet):
    """A daemon that finds nothing of what was before."""

    def up(self) -> None:
        shutil.rmtree(self.scratch.state, ignore_errors=True)
        super().up()


class _Mute(Fleet):
    """Nobody is told anything."""

    def add(self, settings: Mapping[str, Any]) -> None:
        super().add({key: value for key, value in settings.items() if key != "alerts"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "exercise", "says"),
    [
        (_Unreaped, supervisor.Gone, "still there after the daemon: 1 processes"),
        (_Forgetful, supervisor.Counted, "starts were counted"),
        (_Mute, people.Alerted, "not seen within 3 s: the message"),
    ],
    ids=["nothing-left", "count-before-act", "alert"],
)
def test_what_is_no_policy_can_fail(
    broken: type[Fleet], exercise: type[Exercise], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is relied on beside the policies is found missing, too."""
    monkeypatch.setattr(running, "Fleet", broken)
    monkeypatch.setattr(running, "CAP", 3.0)
    (row,) = running.run([exercise], given({}), lambda _: None)
    assert row.outcome is Outcome.NOT_FIRED
    assert says in row.text


def test_left_out() -> None:
    """What needs an extra that is not installed is listed with what to install."""
    told: list[Row] = []
    (row,) = running.run([_Lacking], given({}), told.append)
    assert told == [row]
    assert (row.outcome, row.text) == (Outcome.LEFT_OUT, "pip install 'flyball-governor[rules]'")


def test_a_broken_exercise_has_its_row() -> None:
    """Whatever goes wrong in a drill is told in the rows that it concerns: nobody waits for them."""
    (row,) = running.run([_Broken], given({}), lambda _: None)
    assert (row.outcome, row.text) == (Outcome.NOT_FIRED, "RuntimeError: out of order")


def test_list(place: Place) -> None:
    """Which safeguards there are, and how each is provoked."""
    done = place.drill("--list")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [exercise.name for exercise in ALL]
    listed = json.loads(place.drill("--list", "--json").stdout)
    assert {row["policy"] for row in listed} == {policy.__name__ for policy in POLICIES} | {None}


def test_unknown_name(place: Place) -> None:
    """A name that there is not is told, with those that are near, before anything is started."""
    done = place.drill("--only", "quarantin")
    assert done.returncode == 2
    assert "no safeguard 'quarantin'; did you mean quarantine?" in done.stderr


def test_bad_settings(place: Place) -> None:
    """Settings that are wrong are told as everywhere."""
    (place.folder / "flyball.yaml").write_text("quarantine: {max_failures_before_quarantine: 0}")
    done = place.drill()
    assert done.returncode == 2
    assert "max_failures_before_quarantine" in done.stderr


def test_completion() -> None:
    """A shell completes the names."""
    found = ShellComplete(command, {}, "flyball-drill", "_X").get_completions(["--only", "flapping"], "--only")
    assert found
    offered = ShellComplete(command, {}, "flyball-drill", "_X").get_completions(["--only"], "re")
    assert {item.value for item in offered} == {name for exercise in ALL if (name := exercise.name).startswith("re")}


@pytest.mark.parametrize("fleet", FLEETS)
def test_numbers_are_kept(fleet: str) -> None:
    """What is no time is as the user has it, in every fleet; and the file is a good one."""
    user = given(
        {
            "quarantine": {"max_failures_before_quarantine": 4, "cooldown_ladder_seconds": [1, 60]},
            "safety": {"global_failure_threshold": 3, "storm_while_running": True},
            "budget": {"per_fleet": "1.50", "kept_back": "0.25", "meters": {"tokens": {"per_run": 10}}},
            "daemon": {"sessionRecovery": {"maxResumeAttempts": 9, "forgiveProgress": True}},
            "rule": {"listen": "127.0.0.1:9999"},
            "units": {"mine": {"command": "true"}},
        }
    )
    kept = given(settings_of(user, fleet))
    assert (kept.units, kept.alerts.channels, kept.store, kept.http.listen) == ((), {}, "", "off")
    assert len(kept.quarantine.cooldown_ladder_seconds) == 2
    for section in ("quarantine", "circuit_breaker", "safety", "restart_policy", "crash_policy", "stall", "budget"):
        mine, theirs = getattr(kept, section), getattr(user, section)
        for key in type(mine).model_fields:
            if not key.endswith("_seconds"):
                assert getattr(mine, key) == getattr(theirs, key), key
    assert kept.daemon.session_recovery.max_resume_attempts == 9
    assert kept.daemon.session_recovery.forgive_progress
