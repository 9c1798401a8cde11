"""What the numbers of rules multiply to: each oddity is told with its place, and the defaults have none."""

import sys
from pathlib import Path

import pytest

from flyball.config import load, rule_advice

T = "triggers: [{command: true}]"
A = "actions: [{notify: x}]"


def _warnings(text: str, folder: Path) -> list[str]:
    file = folder / "f.yaml"
    file.write_text(text)
    return [line.removeprefix(f"{folder}/") for line in load(file, env={}).warnings()]


@pytest.mark.parametrize(
    "text",
    [
        f"{T}, {A}",
        f"{T}, {A}, limits: {{rate: 34/1m}}",
        f"{T}, {A}, limits: {{rate: 10/10s}}",
        f"{T}, actions: [{{notify: x, retry: {{max_attempts: 10, base_delay_seconds: 0.1}}}}], limits: {{rate: 10/1m}}",
        f"{T}, {A}, limits: {{queue: 10000}}",
        f"{T}, actions: [{{notify: x, timeout: 90s}}]",
        f"triggers: [{{event: r, on: [failed]}}, {{event: 'u*'}}], {A}, when: 'true'",
        f"{T}, actions: [{{notify: x, undo: {{notify: y}}}}], on_error: rollback",
    ],
)
def test_nothing_odd(text: str, tmp_path: Path) -> None:
    """What is fine is not spoken of."""
    found = _warnings(f"units: {{unit: {{command: x}}}}\nrules: {{r: {{{text}}}}}\n", tmp_path)
    assert [line for line in found if "again and again" not in line] == []


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            f"{T}, {A}, limits: {{rate: 33/1m}}",
            "1:81: rules.r.limits.rate: a loop is told at 100 steps within 1 min (safety.max_loop_iterations), which"
            " are never reached: 33 runs of 3 attempts are let through; its rate alone bounds it",
        ),
        (f"{T}, {A}, limits: {{rate: 1/1h}}", "never reached: 1 runs of 3 attempts are let through"),
        (f"{T}, {A}, retry: {{max_attempts: 1}}, limits: {{rate: 16/10s}}", "96 runs of 1 attempts are let through"),
        (
            f"{T}, {A}, limits: {{queue: 10001}}",
            "1:82: rules.r.limits.queue: 10001 are never reached: of all rules together 10000 wait (rule.max_queued)",
        ),
        (
            f"{T}, actions: [{{notify: x, retry: {{max_attempts: 10}}}}]",
            "1:71: rules.r.actions[0].retry: 10 attempts are never made: the waits between them last 8 min 31 s, and a"
            " run 5 min",
        ),
        (f"{T}, {A}, retry: {{base_delay_seconds: 200}}", "rules.r.actions[0].retry: 3 attempts are never made"),
        (
            f"{T}, actions: [{{notify: x, timeout: 2m}}]",
            "1:73: rules.r.actions[0].timeout: 3 attempts of 2 min, with the waits between them, do not fit into a run"
            " of 5 min",
        ),
        (
            f"triggers: [{{event: nobody}}], {A}",
            "1:32: rules.r.triggers[0].event: no unit or rule of these settings is called 'nobody'",
        ),
        (f"triggers: [{{event: 'x*'}}], {A}", "no unit or rule of these settings is called 'x*'"),
        (
            f"{T}, {A}, on_error: rollback",
            "1:76: rules.r.on_error: nothing is taken back: none of its actions has an `undo`",
        ),
        (
            f"{T}, actions: [{{notify: x, undo: {{notify: y}}}}]",
            "1:70: rules.r.actions[0].undo: is never done: it takes `on_error: rollback`",
        ),
    ],
)
def test_odd(text: str, warning: str, tmp_path: Path) -> None:
    """What can hardly be meant is told with its place; it is no error."""
    (found,) = _warnings(f"rules: {{r: {{{text}}}}}\n", tmp_path)
    assert warning in found
    assert found.startswith("f.yaml:1:")


@pytest.mark.parametrize(
    ("module", "text", "told"),
    [
        ("watchfiles", f"triggers: [{{file: 'x*'}}], {A}", "triggers[0].file: needs the package watchfiles"),
        (
            "uvicorn",
            f"triggers: [{{webhook: w, secret: 0123456789abcdef}}], {A}",
            "triggers[0].webhook: needs the package uvicorn",
        ),
        ("httpx", f"{T}, actions: [{{http: 'http://h'}}]", "actions[0].http: needs the package httpx"),
        (
            "playwright",
            f"{T}, actions: [{{browser: [{{goto: 'http://h'}}]}}]",
            "actions[0].browser: needs the package playwright",
        ),
    ],
)
def test_missing_packages(module: str, text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule whose package is not there is fine where it is checked; what to install is told at what needs it."""
    monkeypatch.setitem(sys.modules, module, None)
    rule_advice.is_installed.cache_clear()
    try:
        (found,) = _warnings(f"rules: {{r: {{{text}}}}}\n", tmp_path)
    finally:
        rule_advice.is_installed.cache_clear()
    extra = "browser" if module == "playwright" else "rules"
    assert f"rules.r.{told}, which is not installed here: pip install 'flyball-governor[{extra}]'" in found


def test_rate_of_all_rules(tmp_path: Path) -> None:
    """Where all rules together are let through too seldom for a loop, that is told once, at the number that does it."""
    rules = f"rules: {{r: {{{T}, {A}}}, s: {{{T}, {A}, retry: {{max_attempts: 5}}}}}}\n"
    (found,) = _warnings(f"rule: {{max_runs_per_minute: 19}}\n{rules}", tmp_path)
    assert found.startswith("f.yaml:1:29: rule.max_runs_per_minute: a loop is told at 100 steps within 1 min")
    assert "19 runs of 5 attempts are let through of any rule" in found
    assert _warnings(f"rule: {{max_runs_per_minute: 20}}\n{rules}", tmp_path) == []
    assert _warnings("rule: {max_runs_per_minute: 19}\n", tmp_path) == []


def test_not_a_flood(tmp_path: Path) -> None:
    """Of many rules with the same oddity ten are told, and how many more there are."""
    rules = "".join(f"  r{number}: {{{T}, {A}, limits: {{rate: 5/1m}}}}\n" for number in range(50))
    found = _warnings(f"rules:\n{rules}", tmp_path)
    assert len(found) == 11
    assert "rules: and 40 more like: r49.limits.rate: a loop is told at" in found[-1]


def test_endless_waits(tmp_path: Path) -> None:
    """A million attempts, each wait a hundred times as long as the one before, are judged without counting them all."""
    text = "{notify: x, retry: {max_attempts: 1000000, exponential_base: 100.0}}"
    (found,) = _warnings(f"rules: {{r: {{{T}, actions: [{text}]}}}}\n", tmp_path)
    assert "attempts are never made" in found
