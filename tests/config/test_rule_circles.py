"""Rules that fire each other for ever: found before anything runs, and drawn."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.cli import main
from flyball.config import load
from flyball.core.preflight import find_circle
from flyball.errors import SettingsError

DONE = "triggers: [{{event: {}}}], actions: [{{notify: x}}]"
COMMAND = "triggers: [{command: true}]"
HOOK = "triggers: [{webhook: w, secret: 0123456789abcdef}]"
REMEDY = "Give one of them a condition (`when`), or let a person be asked (`approve`)."


def _file(rules: dict[str, str], folder: Path, more: str = "") -> Path:
    file = folder / "f.yaml"
    file.write_text("rules:\n" + "".join(f"  {name}: {{{text}}}\n" for name, text in rules.items()) + more)
    return file


def _problems(rules: dict[str, str], folder: Path, more: str = "") -> list[str]:
    try:
        load(_file(rules, folder, more), env={})
    except SettingsError as error:
        return [problem.removeprefix(f"{folder}/") for problem in error.problems]
    return []


def test_drawn(tmp_path: Path) -> None:
    """A circle is drawn with why each fires the next, where it begins, and with what to do about it."""
    rules = {"first": COMMAND + ", actions: [{notify: x}]", "a": DONE.format("b"), "b": DONE.format("a")}
    assert _problems(rules, tmp_path) == [
        "f.yaml:3:3: rules.a: these rules fire each other for ever:\n"
        "  a -> b  (b is fired when a is done)\n"
        "  b -> a  (a is fired when b is done)\n" + REMEDY
    ]


def test_check_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`flyball check` draws the circle and exits 2, as text and as JSON."""
    file = str(_file({"a": DONE.format("b"), "b": DONE.format("a")}, tmp_path))
    assert main(["check", file]) == 2
    assert "  a -> b  (b is fired when a is done)\n  b -> a  (" in capsys.readouterr().err
    assert main(["check", "--json", file]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert "for ever" in problem


@pytest.mark.parametrize(
    ("when", "refused"),
    [("true", True), ("1 < 2 || false", True), ("false", False), ("time.hour > 3", False), ("1 / 0 == 1", False)],
)
def test_always_holds(when: str, refused: bool, tmp_path: Path) -> None:
    """A condition that looks at nothing and holds is no way out; one that never holds is, and one that may change."""
    found = _problems({"a": f"{DONE.format('a')}, when: '{when}'"}, tmp_path)
    assert bool(found) == refused
    assert all("(a is fired when a is done)" in problem for problem in found)


START_B = COMMAND + ", actions: [{start: b}]"


def _posts(url: str) -> str:
    return COMMAND + f", actions: [{{http: {{url: '{url}', method: POST}}}}]"


@pytest.mark.parametrize(
    ("rules", "links"),
    [
        ({"a": DONE.format("a")}, ["a -> a  (a is fired when a is done)"]),
        ({"a": DONE.format("'*'")}, ["a -> a  (a is fired when a is done)"]),
        ({"a": DONE.format("a, on: [started]")}, ["a -> a  (a is fired when a has started)"]),
        ({"a": DONE.format("a, on: [failed, done]")}, ["a -> a  (a is fired when a is done)"]),
        (
            {"a": START_B, "b": DONE.format("c"), "c": DONE.format("b").replace("notify: x", "start: a")},
            ["b -> c  (c is fired when b is done)", "c -> b  (b is fired when c is done)"],
        ),
        (
            {"a": START_B, "b": COMMAND + ", actions: [{wait: 1s}, {id: go, start: a}]"},
            ["a -> b  (a starts b in its action start)", "b -> a  (b starts a in its action go)"],
        ),
        (
            {"a": HOOK + ", actions: [{start: b}]", "b": _posts("http://127.0.0.1:8787/hooks/w")},
            ["a -> b  (a starts b", "b -> a  (b sends a request to the webhook of a in its action http)"],
        ),
        (
            {"a": HOOK + ", actions: [{start: b}]", "b": _posts("http://localhost:8787/hooks/w?x=1")},
            ["b -> a  (b sends a request"],
        ),
        (
            {"a": DONE.format("'x-*'"), "x-1": DONE.format("a"), "y": DONE.format("x-2")},
            ["a -> x-1  (x-1 is fired when a is done)", "x-1 -> a  (a is fired when x-1 is done)"],
        ),
        ({"a": DONE.format("b"), "b": DONE.format("c"), "c": DONE.format("a")}, ["a -> c", "c -> b", "b -> a"]),
        (
            {"a": DONE.format("a").replace("{notify: x}", "{notify: x, approve: {text: q, default: yes}}")},
            ["a -> a"],
        ),
    ],
)
def test_certain(rules: dict[str, str], links: list[str], tmp_path: Path) -> None:
    """What happens, what is started, what is sent to a webhook of ours: all of it counts, also of a rule alone."""
    (problem,) = _problems(rules, tmp_path)
    assert all(link in problem for link in links)


@pytest.mark.parametrize(
    "rules",
    [
        {"a": DONE.format("b"), "b": DONE.format("c"), "c": COMMAND + ", actions: [{notify: x}]"},
        {"a": DONE.format("b"), "b": DONE.format("a") + ", when: values.level > 5"},
        {"a": DONE.format("a, on: [failed]")},
        {"a": DONE.format("b").replace("{notify: x}", "{notify: x, approve: sure?}"), "b": DONE.format("a")},
        {"a": COMMAND + ", actions: [{notify: x, approve: sure?}, {start: a}]"},
        {"a": COMMAND + ", actions: [{start: '{{ trigger.data.unit }}'}]"},
        {"a": HOOK + ", actions: [{http: {url: 'http://127.0.0.1:8787/hooks/w'}}]"},
        {"a": HOOK + ", actions: [{http: {url: 'http://127.0.0.1:8788/hooks/w', method: POST}}]"},
        {"a": HOOK + ", actions: [{http: {url: 'http://elsewhere:8787/hooks/w', method: POST}}]"},
        {"a": HOOK + ", actions: [{http: {url: 'http://127.0.0.1:8787/hooks/other', method: POST}}]"},
        {"a": HOOK + ", actions: [{http: {url: 'http://127.0.0.1:port/hooks/w', method: POST}}]"},
        {"a": DONE.format("'b*'"), "c": DONE.format("a")},
    ],
)
def test_no_circle(rules: dict[str, str], tmp_path: Path) -> None:
    """What has a condition in it, or a person, or does not lead back, is allowed."""
    assert _problems(rules, tmp_path) == []


def test_listen_counts(tmp_path: Path) -> None:
    """Which webhook is ours depends on where we listen."""
    rules = {"a": HOOK + ", actions: [{http: {url: 'http://10.0.0.1:99/hooks/w', method: POST}}]"}
    assert _problems(rules, tmp_path) == []
    assert len(_problems(rules, tmp_path, "rule: {listen: '10.0.0.1:99'}\n")) == 1


def test_each_circle_is_told(tmp_path: Path) -> None:
    """Circles that have nothing to do with each other are told at once, up to ten of them."""
    rules = {f"r{number}": DONE.format(f"r{number ^ 1}") for number in range(6)}
    assert [problem.split(": ")[1] for problem in _problems(rules, tmp_path)] == ["rules.r0", "rules.r2", "rules.r4"]
    rules = {f"r{number}": DONE.format(f"r{number}") for number in range(30)}
    assert len(_problems(rules, tmp_path)) == 10


@pytest.mark.parametrize(
    ("rules", "warning"),
    [
        (
            {"a": DONE.format("b"), "b": DONE.format("a") + ", when: values.level > 5"},
            "f.yaml:2:3: rules.a: may fire each other again and again: a -> b -> a "
            "(b is fired when a is done, if its condition holds; a is fired when b is done)",
        ),
        (
            {"a": DONE.format("a, on: [failed]")},
            "f.yaml:2:3: rules.a: may fire itself again and again: a -> a (a is fired when a failed)",
        ),
        (
            {"a": DONE.format("'*', on: [held]")},
            "f.yaml:2:3: rules.a: may fire itself again and again: a -> a (a is fired when a is held)",
        ),
    ],
)
def test_a_way_out_is_advice(rules: dict[str, str], warning: str, tmp_path: Path) -> None:
    """A circle that has a condition in it is told in one line, and allowed."""
    warnings = load(_file(rules, tmp_path), env={}).warnings()
    assert [line.removeprefix(f"{tmp_path}/") for line in warnings] == [warning]


def test_many(tmp_path: Path) -> None:
    """A thousand rules that all listen to all others are judged at once, not pair by pair."""
    rules = {f"r{number}": DONE.format("'*'") + ", when: values.level > 5" for number in range(1000)}
    began = time.perf_counter()
    assert _problems(rules, tmp_path) == []
    assert time.perf_counter() - began < 20


@pytest.mark.parametrize(
    ("edges", "circle"),
    [
        ({}, ()),
        ({"a": ["b"], "b": []}, ()),
        ({"a": ["b"]}, ()),
        ({"a": ["a"]}, ("a",)),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, ("b", "c")),
        ({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}, ()),
    ],
)
def test_find_circle(edges: dict[str, list[str]], circle: tuple[str, ...]) -> None:
    """Each node of the first circle once; a diamond is none."""
    assert find_circle(edges) == circle


@given(st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=4), max_size=10))
def test_a_circle_is_one(edges: dict[int, list[int]]) -> None:
    """What is found leads back to itself; where nothing is found, the nodes can be put in an order."""
    circle = find_circle(edges)
    for one, other in zip(circle, (*circle[1:], *circle[:1]), strict=True):
        assert other in edges[one]
    left = {node: set(others) & edges.keys() for node, others in edges.items()}
    while ends := [node for node, others in left.items() if not others]:
        for node in ends:
            del left[node]
        for others in left.values():
            others.difference_update(ends)
    assert bool(left) is bool(circle)
