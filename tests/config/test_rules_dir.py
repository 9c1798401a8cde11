"""The folder of rules: what is read of it, and what is wrong in it, each with its place."""

import os
from pathlib import Path

import pytest

from flyball.config import Settings, layers, load
from flyball.config.planning import read_plan
from flyball.config.rules import Call, FileChange, Run
from flyball.errors import SettingsError

RULE = "{triggers: [{command: true}], actions: [{notify: x}]}"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The folder, beside a file that names it."""
    (tmp_path / "flyball.yaml").write_text("rules_dir: rules\n")
    folder = tmp_path / "rules"
    folder.mkdir()
    return folder


def _load(rules: Path, **env: str) -> Settings:
    return load(rules.parent / "flyball.yaml", env=env)


def _problems(rules: Path) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        _load(rules)
    return [problem.removeprefix(f"{rules.parent}/") for problem in caught.value.problems]


def test_all_files(rules: Path) -> None:
    """Files are read in the order of their names, those of the settings file first; others are not rules."""
    (rules.parent / "flyball.yaml").write_text(f"rules_dir: rules\nrules: {{own: {RULE}}}\n")
    (rules / "b.yml").write_text(f"b: {RULE}\n")
    (rules / "a.yaml").write_text(f"z: {RULE}\ny: {RULE}\n")
    (rules / "c.json").write_text('{"c": {"triggers": [{"startup": true}], "actions": [{"wait": "1s"}]}}\n')
    (rules / "empty.yaml").write_text("# nothing yet\n")
    (rules / ".#a.yaml").write_text("an editor's")
    (rules / "README.md").write_text("not: [yaml")
    (rules / "folder.yaml").mkdir()
    os.mkfifo(rules / "pipe.yaml")
    (rules / "deeper").mkdir()
    (rules / "deeper" / "d.yaml").write_text(f"d: {RULE}\n")
    assert [rule.name for rule in _load(rules).rules] == ["own", "z", "y", "b", "c"]


def test_sources(rules: Path) -> None:
    """A plan knows the file and the folder: a file that comes later is in it."""
    (rules / "a.yaml").write_text(f"a: {RULE}\n")
    plan, _ = read_plan(rules.parent / "flyball.yaml", {})
    assert plan.sources == (str(rules.parent / "flyball.yaml"), str(rules))
    assert plan.source == str(rules.parent / "flyball.yaml")


def test_paths_are_beside_the_file_of_the_rule(rules: Path) -> None:
    """What is relative in a rule begins at the folder that the rule stands in."""
    text = "{triggers: [{file: '*.csv'}], actions: [{run: x, cwd: .}, {call: 'm:f'}]}"
    (rules.parent / "flyball.yaml").write_text(f"rules_dir: rules\nrules: {{own: {text}}}\n")
    (rules / "a.yaml").write_text(f"a: {text}\n")
    for rule, folder in zip(_load(rules).rules, (rules.parent, rules), strict=True):
        assert rule.triggers == (FileChange(pattern=f"{folder}/*.csv"),)
        assert [action.deed for action in rule.actions] == [
            Run(command=("x",), cwd=str(folder)),
            Call(function="m:f", path=str(folder)),
        ]


def test_places(rules: Path) -> None:
    """Values know the file that they stand in; the environment lies over them."""
    (rules / "a.yaml").write_text(f"a:\n  priority: 4\n  {RULE[1:-1].replace(', actions', chr(10) + '  actions')}\n")
    settings = _load(rules, FLYBALL_RULES__A__ON_ERROR="continue")
    origins = {value.key: value.origin for value in settings.effective()}
    assert origins["rules.a.priority"] == f"{rules}/a.yaml:2:13"
    assert origins["rules.a.on_error"] == "FLYBALL_RULES__A__ON_ERROR"


def test_all_problems_at_once(rules: Path) -> None:
    """One broken file makes the whole set broken; all that is wrong in any of them is told."""
    (rules / "a.yaml").write_text("a: [\n")
    (rules / "b.yaml").write_text(f"b: {RULE}\nc: {{triggers: [{{every: soon}}], actions: [{{notify: x}}]}}\n")
    (rules / "c.yaml").write_text("- 1\n")
    (rules / "d.yaml").write_bytes(b"d: \xff\n")
    (rules / "e.json").write_text('{"e": {"triggers": [], "actions": [{"notify": "x"}]}}')
    (rules / "f.yaml").write_text(f"rules:\n  f: {RULE}\n")
    found = _problems(rules)
    assert [problem.split(": ")[0] for problem in found] == [
        "rules/a.yaml:2:1",
        "rules/b.yaml:2:24",
        "rules/c.yaml:1:1",
        "rules/d.yaml:1:4",
        "rules/e.json:1:20",
        "rules/f.yaml:1:1",
    ]
    assert found[2] == "rules/c.yaml:1:1: should have rules by their names"
    assert "leave `rules:` out" in found[5]


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (
            {"a.yaml": f"x: {RULE}\n", "b.yaml": f"# twice\nx: {RULE}\n"},
            "rules/b.yaml:2:1: the rule 'x' is there already, at {}/rules/a.yaml:1:1",
        ),
        (
            {"../flyball.yaml": f"rules_dir: rules\nrules: {{x: {RULE}}}\n", "b.yaml": f"x: {RULE}\n"},
            "rules/b.yaml:1:1: the rule 'x' is there already, at {}/flyball.yaml:2:9",
        ),
        (
            {"../flyball.yaml": "rules_dir: rules\nunits: {x: {command: y}}\n", "b.yaml": f"x: {RULE}\n"},
            "rules/b.yaml:1:1: rules.x: there is a unit of that name: give one of them another",
        ),
    ],
)
def test_twice(files: dict[str, str], problem: str, rules: Path) -> None:
    """A rule that is there twice names both places."""
    for name, text in files.items():
        (rules / name).write_text(text)
    assert _problems(rules) == [problem.format(rules.parent)]


def test_no_folder(rules: Path) -> None:
    """A folder that was named has to be there, and be a folder; the rest of the file is judged all the same."""
    rules.rmdir()
    (rules.parent / "flyball.yaml").write_text("rules_dir: rules\nrule: {max_running: 0}\n")
    missing, other = _problems(rules)
    assert missing == f"flyball.yaml:1:12: rules_dir: {rules}: No such file or directory"
    assert "rule.max_running is 0" in other
    rules.write_text("x")
    assert "Not a directory" in _problems(rules)[0]


@pytest.mark.parametrize("name", ["~nobody-is-called-so/rules", '"a\\0b"', "x/" * 3000])
def test_no_such_name(name: str, rules: Path) -> None:
    """Whatever the folder is called, it is told that there is none."""
    (rules.parent / "flyball.yaml").write_text(f"rules_dir: {name}\n")
    assert _problems(rules)[0].startswith("flyball.yaml:1:12: rules_dir")


def test_a_link_to_nowhere(rules: Path) -> None:
    """A file that should be there and is not is told: its rules would be missing."""
    (rules / "a.yaml").symlink_to(rules / "gone")
    assert _problems(rules) == ["rules/a.yaml: No such file or directory"]


def test_elsewhere(rules: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An absolute folder is taken as it is, wherever the file stands."""
    there = tmp_path_factory.mktemp("there")
    (there / "a.yaml").write_text(f"a: {RULE}\n")
    (rules.parent / "flyball.yaml").write_text(f"rules_dir: {there}\n")
    assert [rule.name for rule in _load(rules).rules] == ["a"]


@pytest.mark.parametrize(
    ("limit", "value", "problem"),
    [
        ("FILES_MAX", 1, "flyball.yaml:1:12: rules_dir: {}/rules: more than 1 files"),
        ("FOLDER_MAX", 100, "flyball.yaml:1:12: rules_dir: {}/rules: longer than 0 MiB in all"),
        ("FILE_MAX", 80, "rules/a.yaml: longer than 0 MiB: this is no settings file"),
    ],
)
def test_limits(limit: str, value: int, problem: str, rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder has its limits: files, their length, and the length of all together."""
    (rules / "a.yaml").write_text(f"a: {RULE}\n# {'x' * 40}\n")
    (rules / "b.yaml").write_text(f"b: {RULE}\n")
    monkeypatch.setattr(layers, limit, value)
    assert _problems(rules) == [problem.format(rules.parent)]


def test_aliases_do_not_reach_into_other_files(rules: Path) -> None:
    """Each file stands for itself; within one, what aliases share is filled in once."""
    text = "{triggers: [{webhook: NAME, secret: &s '$${A}-0123456789012'}], actions: &a [{run: x, env: {A: '$${A}'}}]}"
    (rules / "a.yaml").write_text(
        f"a: {text.replace('NAME', 'a')}\nb: {{triggers: [{{webhook: b, secret: *s}}], actions: *a}}\n"
    )
    one, other = _load(rules, A="no").rules
    assert one.actions == other.actions
    assert one.actions[0].deed == Run(command=("x",), env={"A": "${A}"})
    (rules / "b.yaml").write_text("c: {triggers: [{command: true}], actions: *a}\n")
    assert _problems(rules) == ["rules/b.yaml:1:43: not YAML: found undefined alias 'a'"]
