"""The sections `units` and `groups`: what they become, and what is wrong with them, each with its place."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from flyball.cli import main
from flyball.config import Settings, load
from flyball.config.units import OnSupervisorDeath, Probe, RestartWhen, Strategy, Unit
from flyball.core.time import HOUR, MILLISECOND, MINUTE, SECOND
from flyball.errors import SettingsError

X = "command: x"


def _load(text: str, folder: Path, **env: str) -> Settings:
    file = folder / "f.yaml"
    file.write_text(text)
    return load(file, env=env)


def _unit(text: str, folder: Path, **env: str) -> Unit:
    (unit,) = _load(f"units: {{u: {{{text}}}}}\n", folder, **env).units
    return unit


def _problems(text: str, folder: Path) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        _load(text, folder)
    return [problem.removeprefix(f"{folder}/") for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("command: [sleep, 5]", "command", ("sleep", "5")),
        ("command: sh -c 'a b'", "command", ("sh", "-c", "a b")),
        (f"{X}, grace: 5s", "grace", 5 * SECOND),
        (f"{X}, grace: 0", "grace", 0),
        (f"{X}, grace: 2.5", "grace", 2_500 * MILLISECOND),
        (f"{X}, deadline: 1h30m", "deadline", 90 * MINUTE),
        (f"{X}, idle: 500ms", "idle", 500 * MILLISECOND),
        (f"{X}, watchdog: 1h", "watchdog", HOUR),
        (f"{X}, memory_max: 512M", "memory_max", 512 * 2**20),
        (f"{X}, memory_max: 2 GiB", "memory_max", 2 * 2**30),
        (f"{X}, memory_max: 4096", "memory_max", 4096),
        (f"{X}, budget: 0.1", "budget", 100_000),
        (f"{X}, stop_signal: INT", "stop_signal", signal.SIGINT),
        (f"{X}, stop_signal: sigquit", "stop_signal", signal.SIGQUIT),
        (f"{X}, stop_signal: 1", "stop_signal", signal.SIGHUP),
        (f"{X}, restart: always", "restart", RestartWhen.ALWAYS),
        (f"{X}, on_supervisor_death: keep", "on_supervisor_death", OnSupervisorDeath.KEEP),
        (f"{X}, continue_args: --continue", "continue_args", ("--continue",)),
        (f"{X}, env: {{A: text, B: 5, C: 0.5}}", "env", {"A": "text", "B": "5", "C": "0.5"}),
        (f"{X}, labels: {{provider: p}}", "labels", {"provider": "p"}),
        (f"{X}, kind: agent", "kind", "agent"),
        (f"{X}, kind: session", "resumes", None),
        (f"{X}, kind: session, resumes: 0", "resumes", 0),
        (f"{X}, kind: session, steps: 200", "steps", 200),
        (f"{X}, kind: session, priority: 100", "priority", 100),
        (f"{X}, probe: {{tcp: 'h:80', every: 1s}}", "probe", Probe(tcp="h:80", every=SECOND)),
    ],
)
def test_becomes(text: str, field: str, value: Any, tmp_path: Path) -> None:
    """What is written becomes the value that is meant."""
    assert getattr(_unit(text, tmp_path), field) == value


def test_defaults(tmp_path: Path) -> None:
    """A command is enough: everything else is as a unit has it by itself."""
    assert _unit(X, tmp_path) == Unit(name="u", command=("x",))


def test_groups(tmp_path: Path) -> None:
    """A group names its units in order; each unit knows its group."""
    settings = _load(
        "units: {a: {command: x}, b: {command: x}, c: {command: x}}\n"
        "groups: {g: {strategy: rest-for-one, units: [c, a]}}\n",
        tmp_path,
    )
    (group,) = settings.groups
    assert (group.name, group.strategy, group.units) == ("g", Strategy.REST_FOR_ONE, ("c", "a"))
    assert {unit.name: unit.team for unit in settings.units} == {"a": "g", "b": "", "c": "g"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("units: 5", "1:8: units is 5; allowed: names, each with a section with command,"),
        ("units: {u: 5}", "1:12: units.u is 5; allowed: a section with command,"),
        ("units: {u: {}}", "1:12: units.u: has no command"),
        ("units: {u: }", "units.u: has no command"),
        ("units: {u: {command: []}}", "1:12: units.u: has no command"),
        ("units: {u: {comand: x}}", "1:13: unknown key 'comand' in units.u; did you mean 'command'?"),
        ('units: {u: {command: "sh -c \'x"}}', "units.u.command is"),
        ("units: {u: {command: {a: b}}}", "units.u.command is a mapping; allowed: a command line"),
        ("units: {u: {command: [x, yes]}}", "units.u.command[1] is true; allowed:"),
        ("units: {u: {command: x, grace: soon}}", '1:32: units.u.grace is "soon"; it should be a length of time'),
        ("units: {u: {command: x, grace: -1}}", "units.u.grace is -1; it should be a length of time from 0"),
        ("units: {u: {command: x, grace: .nan}}", "units.u.grace is NaN; it should be"),
        ("units: {u: {command: x, grace: 1000000d}}", "units.u.grace"),
        ("units: {u: {command: x, grace: true}}", "units.u.grace is true; it should be a length of time"),
        ("units: {u: {command: x, memory_max: lots}}", "units.u.memory_max is"),
        ("units: {u: {command: x, memory_max: -1}}", "units.u.memory_max is -1; it should be from 0"),
        ("units: {u: {command: x, stop_signal: SIGFOO}}", "units.u.stop_signal is"),
        ("units: {u: {command: x, stop_signal: 0}}", "units.u.stop_signal is 0; it should be the name of a signal"),
        ("units: {u: {command: x, restart: perhaps}}", "allowed: on-failure or always or never"),
        ("units: {u: {command: x, nice: 20}}", "units.u.nice is 20; allowed: a whole number at least -20"),
        ("units: {u: {command: x, budget: -1}}", "units.u.budget is -1"),
        ("units: {u: {command: x, beat_file: b}}", "units.u.beat_file: is judged by `idle`"),
        ("units: {u: {command: x, probe: {}}}", "1:32: units.u.probe: give one of command, http and tcp"),
        ("units: {u: {command: x, probe: {tcp: 'a:1', http: 'http://a'}}}", "give one of"),
        ("units: {u: {command: x, probe: {tcp: nowhere}}}", "1:38: units.u.probe.tcp: should be a host and a port"),
        ("units: {u: {command: x, probe: {http: ftp}}}", "units.u.probe.http: should be a URL"),
        ("units: {u: {command: x, probe: {tcp: 'a:1', every: 0}}}", "units.u.probe.every: 0 is no time"),
        ("units: {u: {command: x, probe: {tpc: 'a:1'}}}", "unknown key 'tpc' in units.u.probe; did you mean 'tcp'?"),
        ("units: {u: {command: x, after: v}}", "units.u.after is"),
        ("units: {u: {command: x, after: [v]}}", "1:33: units.u.after[0]: there is no unit 'v'"),
        ("units: {a: {command: x, after: [b]}, b: {command: x, after: [a]}}", "a after b after a"),
        ("units: {a: {command: x, after: [a]}}", "they wait for each other: a after a"),
        (
            "units: {a: {command: x, host: h}, b: {command: x, after: [a], host: i}}",
            "1:69: units.b.host: is to run on 'i', and 'a', which it runs together with, on 'h'",
        ),
        (
            "units: {a: {command: x, host_labels: {z: p}}, b: {command: x, host_labels: {z: q}}}\n"
            "groups: {g: {units: [a, b]}}",
            "units.b.host_labels: needs a host with z: q, and 'a', which it runs together with, one with z: p",
        ),
        ("units: {'a b': {command: x}}", "1:16: units.a b: a name has at most 64 letters"),
        ("units: {../a: {command: x}}", "units.../a: a name has"),
        ("groups: {g: {units: [a]}}", "1:22: groups.g.units[0]: there is no unit 'a'"),
        ("units: {a: {command: x}}\ngroups: {g: {units: [a]}, h: {units: [a]}}", "'a' is in the group 'g' already"),
        ("units: {a: {command: x, ready: probe}}", "it has no `probe` to be ready by"),
        ("units: {u: {command: x, resumes: 1}}", "units.u.resumes: is for sessions only: give `kind: session`"),
        ("units: {u: {command: x, kind: agent, steps: 9}}", "1:45: units.u.steps: is for sessions only"),
        ("units: {u: {command: x, kind: session, priority: 101}}", "units.u.priority is 101; allowed:"),
        ("units: {u: {command: x, kind: session, resumes: -1}}", "units.u.resumes is -1; allowed:"),
        ("units: {u: {command: x, kind: session, restart: always}}", "units.u.restart: a session that is done stays"),
        ("units: {u: {command: x, kind: seshun}}", "allowed: process or agent or session"),
        ("groups: {g: {strategy: none}}", "allowed: one-for-one or all-for-one or rest-for-one"),
    ],
)
def test_wrong(text: str, problem: str, tmp_path: Path) -> None:
    """What is wrong is told with its place, what was given and what is allowed."""
    (found,) = _problems(text, tmp_path)
    assert problem in found
    assert found.startswith(("f.yaml:1:", "f.yaml:2:"))


def test_all_at_once(tmp_path: Path) -> None:
    """All that is wrong is told at once, in the order of the file."""
    found = _problems(
        "units:\n  a: {command: x, nice: 99}\n  b: {command: x, grace: soon}\n  c: {comand: x}\n", tmp_path
    )
    assert [problem.split(":")[1] for problem in found[:3]] == ["2", "3", "4"]


def test_secrets_are_not_repeated(tmp_path: Path) -> None:
    """Values of variables appear in no error, whatever is wrong around them."""
    for text in (
        "units: {u: {command: x, env: {KEY: [hush]}}}",
        "units: {u: {command: x, env: [hush]}}",
        "units: {u: {command: x, env: hush}}",
        "units: [{env: {KEY: hush}}]",
        "units: {u: [hush]}",
    ):
        assert "hush" not in "\n".join(_problems(text, tmp_path)), text


def test_secrets_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`flyball config` shows which variables there are, and where they come from, but not their values."""
    _load("units: {u: {command: x, env: {KEY: hush}}}", tmp_path)
    assert main(["config", "--json", "--origin", str(tmp_path / "f.yaml")]) == 0
    output = capsys.readouterr().out
    assert "hush" not in output
    assert json.loads(output)["units.u.env.KEY"]["origin"].endswith("f.yaml:1:36")


def test_variables(tmp_path: Path) -> None:
    """${NAME} is filled in from the environment, $${NAME} is not; `env` wins over `env_file`."""
    (tmp_path / "my.env").write_text("# mine\n\nA=file\nexport B = 'b c'\nC=\"$x\"\nEMPTY=\n")
    unit = _unit(f"{X}, env: {{A: '1 ${{ONE}} ${{ONE}}', D: '$${{ONE}}'}}, env_file: my.env", tmp_path, ONE="one")
    assert unit.env == {"A": "1 one one", "B": "b c", "C": "$x", "EMPTY": "", "D": "${ONE}"}


def test_lacking(tmp_path: Path) -> None:
    """A variable or file that is not there is told, with its place; whoever only looks is not stopped by it."""
    (tmp_path / "bad.env").write_text("no value here\n")
    lines = [
        f"a: {{{X}, env: {{K: '${{NONE}}'}}}}",
        f"b: {{{X}, env_file: none.env}}",
        f"c: {{{X}, env_file: bad.env}}",
    ]
    settings = _load("units:\n" + "".join(f"  {line}\n" for line in lines), tmp_path)
    found = [problem.removeprefix(f"{tmp_path}/") for problem in settings.lacking]
    assert found == [
        "bad.env:1: should be NAME=VALUE",
        "f.yaml:2:28: units.a.env.K: there is no variable NONE",
        f"f.yaml:3:29: units.b.env_file: {tmp_path}/none.env: No such file or directory",
    ]
    assert set(settings.lacking) <= set(settings.warnings())


def test_paths(tmp_path: Path) -> None:
    """Relative paths are beside the file, wherever flyball is started."""
    unit = _unit(f"{X}, cwd: sub/../work, beat_file: beat, idle: 1m", tmp_path)
    assert (unit.cwd, unit.beat_file) == (f"{tmp_path}/work", f"{tmp_path}/beat")
    assert _unit(f"{X}, cwd: /srv", tmp_path).cwd == "/srv"


def test_revision(tmp_path: Path) -> None:
    """The revision is that of the definition: the same text gives the same, any change another."""
    revisions = [
        _unit(text, tmp_path).revision for text in (X, f"{X}, grace: 10s", f"{X}, nice: 1", f"{X}, env: {{A: b}}")
    ]
    assert revisions[0] == revisions[1]
    assert len(set(revisions)) == 3


def test_many(tmp_path: Path) -> None:
    """A thousand units fit into a file."""
    text = "units:\n" + "".join(f"  u{number}: {{command: [sleep, '1000'], after: []}}\n" for number in range(1000))
    assert len(_load(text, tmp_path).units) == 1000


def test_from_toml(tmp_path: Path) -> None:
    """Units can stand in pyproject.toml, with places."""
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.flyball.units.web]\ncommand = ["serve"]\ngrace = "5s"\n')
    (unit,) = load(file, env={}).units
    assert (unit.name, unit.grace) == ("web", 5 * SECOND)
    file.write_text('[tool.flyball.units.web]\ncommand = ["serve"]\ngrace = "soon"\n')
    with pytest.raises(SettingsError, match=r"pyproject.toml:3:9: units.web.grace"):
        load(file, env={})
