"""The plan of a supervisor: a value that says the same in another process, which has nothing else of the settings."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flyball.config import Settings
from flyball.config.build import KINDS
from flyball.config.plan import Plan, decode
from flyball.config.planning import ask_for_plan, read_plan
from flyball.errors import FlyballError, SettingsError

TEXT = """
units:
  db: {command: [db, --port, "1"], env: {TOKEN: "${SECRET}"}, on_supervisor_death: keep}
  web: {command: web, after: [db], deadline: 1h, probe: {tcp: "localhost:80"}, labels: {user: ann}}
groups:
  site: {units: [db, web], strategy: rest-for-one}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "flyball.yaml"
    path.write_text(TEXT)
    return path


def plan_of(file: Path) -> Plan:
    return read_plan(file, {"SECRET": "s3cret"})[0]


def test_it_says_the_same_elsewhere(file: Path) -> None:
    """Units, groups and policies are equal on the other side, revisions too; and what was shared is shared."""
    plan = plan_of(file)
    there = decode(plan.encode())
    assert there == plan
    assert [unit.revision for unit in there.units] == [unit.revision for unit in plan.units]
    assert there.units[0].env == {"TOKEN": "s3cret"}
    assert [group.units for group in there.groups] == [("db", "web")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_policy_can_be_handed_over(file: Path, kind: str) -> None:
    """The safeguards of each kind of unit are the same on the other side."""
    plan = dataclasses.replace(plan_of(file), policies=Settings().policies(kind))
    assert decode(plan.encode()).policies == plan.policies


def test_another_process_reads_it(file: Path) -> None:
    """Who does not read settings itself gets the very plan of who does."""
    env = {**os.environ, "SECRET": "s3cret"}
    there, here = ask_for_plan(file, env), read_plan(file, env)[0]
    assert there == dataclasses.replace(here, read_at=there.read_at)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("units: {a: {command: x, colour: red}}\nquarantine: {no: 1}", SettingsError),
        ("units: {a: {command: x, env: {A: '${NOT_THERE_AT_ALL}'}}}", SettingsError),
        ("units: [", SettingsError),
        ("{}", FlyballError),
    ],
    ids=["unknown keys", "lacking", "not YAML", "no units"],
)
def test_another_process_says_what_is_wrong(file: Path, text: str, kind: type[FlyballError]) -> None:
    """In the same words, with the same remedy, problem by problem."""
    file.write_text(text)
    with pytest.raises(kind) as here:
        read_plan(file, os.environ)
    with pytest.raises(kind) as there:
        ask_for_plan(file, os.environ)
    assert (str(there.value), there.value.remedy) == (str(here.value), here.value.remedy)
    assert getattr(there.value, "problems", None) == getattr(here.value, "problems", None)


def test_a_daemon_has_nothing_of_what_reading_takes() -> None:
    """What a daemon imports holds no reader of settings and no command line: they would be in its memory for good."""
    script = "import flyball.daemon_main, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "flyball" in loaded
    assert not {"pydantic", "yaml", "click", "rich", "tomllib"}.intersection(loaded)
