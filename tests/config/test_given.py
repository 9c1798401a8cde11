"""Reading files: places of values, and files that mean harm."""

import contextlib
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flyball.config import load, yaml_text
from flyball.config.toml_text import read_toml
from flyball.config.yaml_text import read_yaml
from flyball.errors import SettingsError


def _problems(data: str | bytes, folder: Path, name: str = "flyball.yaml") -> list[str]:
    file = folder / name
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(SettingsError) as caught:
        load(file, env={})
    return [problem.removeprefix(f"{folder}/") for problem in caught.value.problems]


def test_places() -> None:
    """Each value knows its line and column, and that of its key."""
    tree = read_yaml("a:\n  b: [1, 2]\nc: x\n", "f")
    found = tree.find(("a", "b", 1))
    assert found is not None
    assert found.at == "f:2:10"
    outer = tree.find(("a", "b"))
    assert outer is not None
    assert (outer.key_at, outer.at) == ("f:2:3", "f:2:6")
    assert tree.plain() == {"a": {"b": [1, 2]}, "c": "x"}
    assert tree.find(("a", "b", 2)) is None
    assert tree.find(("c", "x")) is None


@pytest.mark.skipif(not hasattr(yaml, "CSafeLoader"), reason="PyYAML was built without its C library")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "a:\nb: ~\nc: ''\n",
        "a: {b: [1, 2.5, 1e3, -1e-3, 0x1f, yes, on, 2026-01-01, 1:30]}\n",
        "a: &x {y: 1}\nb: *x\nc: {<<: *x, z: 2}\n",
        "a: |\n  one\n  two\nb: >-\n  one\n  two\n",
        "é: [ü, '\U0001f600', x]\nafter: {ß: 1}\n",
        "- a\n-   b: 1\n    c:\n    - 2\n",
        "a: !!str 1\nb: !own 2\n",
        "a: !!map {b: !!seq [1]}\nc: !own [2]\n",
        "# only a note\n",
        "a: 'it''s'\n\"b c\": \"x\\ty\"\n",
        "? a\n: 1\n",
    ],
)
def test_both_readers_see_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read quickly has the same values at the same places as what is read by Python alone."""

    def seen() -> object:
        try:
            return read_yaml(text, "f")
        except SettingsError as error:
            return error.problems

    quick = seen()
    monkeypatch.setattr(yaml_text, "_QuickLoader", yaml_text._Loader)
    assert quick == seen()


def test_aliases_and_merges() -> None:
    """An alias stands where its anchor stands; a merge gives way to what is written out."""
    text = "a: &a {x: 1, y: 2}\nb: *a\nc: {<<: *a, y: 3}\nd: {<<: [{x: 9}, *a]}\n"
    tree = read_yaml(text, "f")
    assert tree.plain() == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 2},
        "c": {"x": 1, "y": 3},
        "d": {"x": 9, "y": 2},
    }
    found = tree.find(("c", "x"))
    assert found is not None
    assert found.at == "f:1:11"


@pytest.mark.parametrize(
    ("data", "place", "says"),
    [
        ("quarantine:\n\tx: 1\n", "flyball.yaml:2:1:", "'\\t'"),
        ("a: [1\nb: 2\n", "flyball.yaml:2:2:", "not YAML"),
        ("a: 'x\n", "flyball.yaml:2:1:", "quoted scalar"),
        ("a: 1\n---\nb: 2\n", "flyball.yaml:2:1:", "single document"),
        ("a: *nobody\n", "flyball.yaml:1:4:", "undefined alias"),
        ("- 1\n- 2\n", "flyball.yaml:1:1:", "the file is [1, 2]; allowed: a section with quarantine"),
        ("just words\n", "flyball.yaml:1:1:", 'the file is "just words"'),
        ("42\n", "flyball.yaml:1:1:", "the file is 42"),
        ("rule:\n  timeout_seconds: 5\x00\n", "flyball.yaml:2:21:", "U+0000"),
        (b"rule:\n  timeout_seconds: \xff\n", "flyball.yaml:2:20:", "not UTF-8 text (byte 0xff)"),
        ("rule: {}\n".encode("utf-16"), "flyball.yaml:1:1:", "not UTF-8"),
        ("rule: {}\nsafety: {}\nrule: {}\n", "flyball.yaml:3:1:", "'rule' is there twice; the first is at"),
        ("{? [a] : 1}\n", "flyball.yaml:1:4:", "a key has to be a word"),
        ("rule: {<<: 5}\n", "flyball.yaml:1:8:", "`<<` takes a mapping"),
        ("rule: !!python/object/apply:os.system [echo]\n", "flyball.yaml:1:7:", "os.system' means nothing here"),
        ("rules: {r: !mine {when: x}}\n", "flyball.yaml:1:12:", "the tag '!mine' means nothing here; leave it out"),
        ("rule:\n  timeout_seconds: !mine 5\n", "flyball.yaml:2:20:", "!mine"),
        ("rule:\n  timeout_seconds: 2024-99-99\n", "flyball.yaml:2:20:", "month"),
        (f"rule:\n  timeout_seconds: {'9' * 5000}\n", "flyball.yaml:2:20:", "digits"),
        ("a: &a [*a]\n", "flyball.yaml:1:4:", "too deep"),
        ("x: " + "[" * 50 + "]" * 50, "flyball.yaml:1:20:", "too deep"),
        ("x: " + "[" * 100_000, "flyball.yaml:", "too deep"),
    ],
)
def test_bad_yaml(data: str | bytes, place: str, says: str, tmp_path: Path) -> None:
    """Whatever is wrong with the file itself is said in one line with its place."""
    problem = _problems(data, tmp_path)[0]
    assert problem.startswith(place)
    assert says in problem
    assert "\n" not in problem


def test_billion_laughs(tmp_path: Path) -> None:
    """A few lines of aliases that stand for billions of values are refused, and quickly."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    began = time.perf_counter()
    (problem,) = _problems("\n".join(lines), tmp_path)
    assert "more than 500000 values" in problem
    assert time.perf_counter() - began < 10


def test_endless_file(tmp_path: Path) -> None:
    """A file of 10 MB is refused by its length, before it is parsed; so is one without an end."""
    assert _problems("# " + "x" * 10_000_000, tmp_path) == ["flyball.yaml: longer than 4 MiB: this is no settings file"]
    with pytest.raises(SettingsError, match="longer than"):
        load(Path("/dev/zero"), env={})


@pytest.mark.parametrize(("name", "says"), [("nowhere.yaml", "No such file"), (".", "directory")])
def test_unreadable(name: str, says: str, tmp_path: Path) -> None:
    """A file that was named has to be there."""
    with pytest.raises(SettingsError, match=says):
        load(tmp_path / name, env={})


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# nothing\n", "---\n", "\ufeffrule:\n", "quarantine:\nrule: {}\n", "null\n"]
)
def test_empty_files_are_good(text: str, tmp_path: Path) -> None:
    """An empty file, or one with empty sections, is all defaults."""
    file = tmp_path / "flyball.yaml"
    file.write_text(text)
    found = load(file, env={})
    assert {value.origin for value in found.effective()} == {"default"}
    assert found.source == str(file)


def test_numbers_as_json_has_them() -> None:
    """1e3 is a number, in files and in variables."""
    assert read_yaml("[1e3, -2E+2, 1.e1, 1e, e1]", "f").plain() == [1000.0, -200.0, 10.0, "1e", "e1"]


def test_too_many_problems(tmp_path: Path) -> None:
    """A file that is wrong all over is reported up to a hundred lines."""
    problems = _problems("".join(f"k{number}: 1\n" for number in range(1500)), tmp_path)
    assert len(problems) == 101
    assert problems[9].startswith("flyball.yaml:10:1: unknown key 'k9'")
    assert problems[-1] == "and 1400 more"


@pytest.mark.parametrize("name", ["f.yaml", "f.toml"])
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200) | st.text(alphabet="ab:{}[]&*<>!|'\"\\n\t -,#?=.01e_", max_size=80).map(str.encode))
def test_any_file(name: str, data: bytes, tmp_path: Path) -> None:
    """Whatever is in a file, it is read, or refused as bad settings: nothing else can come of it."""
    file = tmp_path / name
    file.write_bytes(data)
    with contextlib.suppress(SettingsError):
        load(file, env={})


TOML = """\
[project]
name = "x"

[tool.flyball.rule]
timeout_seconds = 5

[tool.flyball]
safety.max_boots = 9
quarantine = { max_failures_before_quarantine = 4 }
circuit_breaker.labels = ["provider"]
"""


def test_toml_places() -> None:
    """In TOML a value stands on the line of its key; one in an inline table, where the table does."""
    tree = read_toml(TOML, "p", ("tool", "flyball"))
    assert tree is not None
    places = {
        ("rule",): "p:4:2",
        ("rule", "timeout_seconds"): "p:5:19",
        ("safety", "max_boots"): "p:8:20",
        ("quarantine", "max_failures_before_quarantine"): "p:9:14",
        ("circuit_breaker", "labels"): "p:10:26",
        ("circuit_breaker", "labels", 0): "p:10:26",
    }
    found = {path: tree.find(path) for path in places}
    assert {path: value.at for path, value in found.items() if value} == places
    assert read_toml("[tool.other]\n", "p", ("tool", "flyball")) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[tool.flyball\n", "pyproject.toml:1:14: not TOML: Expected ']' at the end of a table declaration"),
        ("[tool.flyball]\nx = {a = 1\n", "pyproject.toml:2:11: not TOML: Unclosed inline table"),
        ("[tool.flyball.rule]\ntimeout_seconds = 1979-05-27\n", "pyproject.toml:2:19: rule.timeout_seconds is"),
        ("[tool.flyball.ruels]\n", "pyproject.toml:1:2: unknown key 'ruels'; did you mean 'rules' or 'rule'?"),
        ("[tool]\nflyball = 5\n", "pyproject.toml:2:11: the file is 5"),
        ("[tool.x]\n", "pyproject.toml: there is no table [tool.flyball] in it"),
        (f"x = {'[' * 100_000}", "pyproject.toml: values lie too deep"),
    ],
)
def test_bad_toml(text: str, problem: str, tmp_path: Path) -> None:
    """TOML that is wrong is reported like YAML."""
    (found,) = _problems(text, tmp_path, "pyproject.toml")
    assert found.startswith(problem)
