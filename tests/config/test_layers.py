"""Layers: which file, what lies over what, and where each value came from."""

import contextlib
import gc
from pathlib import Path
from typing import Any

import pytest

from flyball.config import Settings, get_tier_limit, load
from flyball.errors import SettingsError


def _write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)


def _origins(settings: Settings) -> dict[str, tuple[Any, str]]:
    return {value.key: (value.value, value.origin) for value in settings.effective() if value.origin != "default"}


BOOTS = {
    "flyball_yaml": "safety: {max_boots: 11}",
    "flyball_yml": "safety: {max_boots: 12}",
    "framework_yaml": "safety: {max_boots: 13}",
    "pyproject_toml": "[tool.flyball.safety]\nmax_boots = 14\n",
}


@pytest.mark.parametrize("skipped", range(4))
def test_first_file_wins(skipped: int, tmp_path: Path) -> None:
    """S0-15: files are looked for in this order; the first wins, and a warning names the others."""
    names = list(BOOTS)[skipped:]
    _write(tmp_path, **{name: BOOTS[name] for name in names})
    settings = load(env={}, cwd=tmp_path)
    assert settings.safety.max_boots == 11 + skipped
    assert settings.source == str(tmp_path / names[0].replace("_", "."))
    if skipped == 3:
        assert settings.warnings() == []
    else:
        (warning,) = settings.warnings()
        assert all(name.replace("_", ".") in warning for name in names)


def test_named_by_the_environment(tmp_path: Path) -> None:
    """FLYBALL_CONFIG comes first; an empty one is none."""
    _write(tmp_path, **BOOTS)
    (tmp_path / "mine.yaml").write_text("safety: {max_boots: 99}")
    settings = load(env={"FLYBALL_CONFIG": str(tmp_path / "mine.yaml")}, cwd=tmp_path)
    assert settings.safety.max_boots == 99
    assert "mine.yaml (FLYBALL_CONFIG)" in settings.warnings()[0]
    assert load(env={"FLYBALL_CONFIG": ""}, cwd=tmp_path).safety.max_boots == 11
    again = load(env={"FLYBALL_CONFIG": "pyproject.toml"}, cwd=tmp_path)
    assert again.safety.max_boots == 14
    assert again.warnings()[0].count("pyproject.toml") == 1
    with pytest.raises(SettingsError, match="No such file"):
        load(env={"FLYBALL_CONFIG": str(tmp_path / "nowhere.yaml")}, cwd=tmp_path)


def test_a_path_wins_over_everything(tmp_path: Path) -> None:
    """A file that is given is the one that is read, without a word about the others."""
    _write(tmp_path, **BOOTS)
    settings = load(tmp_path / "framework.yaml", env={"FLYBALL_CONFIG": str(tmp_path / "flyball.yaml")}, cwd=tmp_path)
    assert settings.safety.max_boots == 13
    assert settings.warnings() == []


def test_foreign_pyproject(tmp_path: Path) -> None:
    """A pyproject.toml that does not speak of us is not ours to judge, even if it is broken."""
    (tmp_path / "pyproject.toml").write_text("[project\n")
    assert load(env={}, cwd=tmp_path).source == ""


def test_no_file(tmp_path: Path) -> None:
    """Without any file all is at its default."""
    settings = load(env={}, cwd=tmp_path)
    assert _origins(settings) == {}
    assert settings.source == ""


def test_the_process_s_own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is said, it is the environment and the folder of this process."""
    _write(tmp_path, **BOOTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLYBALL_CONFIG", raising=False)
    monkeypatch.setenv("FLYBALL_RULE__TIMEOUT_SECONDS", "7")
    settings = load()
    assert settings.source == "flyball.yaml"
    assert _origins(settings) == {
        "safety.max_boots": (11, "flyball.yaml:1:21"),
        "rule.timeout_seconds": (7.0, "FLYBALL_RULE__TIMEOUT_SECONDS"),
    }
    monkeypatch.setenv("MAX_COST_PER_SESSION", "0.75")
    assert get_tier_limit(None) == 750_000


@pytest.mark.parametrize(
    ("env", "key", "value", "origin"),
    [
        ({}, "graph.timeout_seconds", 100.0, "flyball.yaml:1:26"),
        (
            {"DELIBERATION_TIMEOUT_SECONDS": "300"},
            "graph.timeout_seconds",
            300.0,
            "DELIBERATION_TIMEOUT_SECONDS",
        ),
        (
            {"DELIBERATION_TIMEOUT_SECONDS": "300", "FLYBALL_GRAPH__TIMEOUT_SECONDS": "400"},
            "graph.timeout_seconds",
            400.0,
            "FLYBALL_GRAPH__TIMEOUT_SECONDS",
        ),
        ({"DELIBERATION_TIMEOUT_SECONDS": " "}, "graph.timeout_seconds", 100.0, "flyball.yaml:1:26"),
        ({"MAX_COST_PER_SESSION": "5.00"}, "budget.max_cost_per_session", "5.0", "MAX_COST_PER_SESSION"),
        (
            {"FLYBALL_QUARANTINE__COOLDOWN_LADDER_SECONDS": "[0.05]"},
            "quarantine.cooldown_ladder_seconds",
            [0.05],
            "FLYBALL_QUARANTINE__COOLDOWN_LADDER_SECONDS",
        ),
        (
            {"FLYBALL_DAEMON__SESSION_RECOVERY__MAX_RESUME_ATTEMPTS": "0"},
            "daemon.sessionRecovery.maxResumeAttempts",
            0,
            "FLYBALL_DAEMON__SESSION_RECOVERY__MAX_RESUME_ATTEMPTS",
        ),
        (
            {"FLYBALL_DAEMON__SESSIONRECOVERY__MAXRESUMEATTEMPTS": "1"},
            "daemon.sessionRecovery.maxResumeAttempts",
            1,
            "FLYBALL_DAEMON__SESSIONRECOVERY__MAXRESUMEATTEMPTS",
        ),
        (
            {"FLYBALL_RESTART_POLICY__MAX_RESTARTS": "4"},
            "restart_policy.max_restarts_per_hour",
            4,
            "FLYBALL_RESTART_POLICY__MAX_RESTARTS",
        ),
        (
            {"FLYBALL_BUDGET__TIERS": "{free: 3, pro: 4}", "FLYBALL_BUDGET__TIERS__FREE": "1"},
            "budget.tiers.free",
            "1",
            "FLYBALL_BUDGET__TIERS__FREE",
        ),
        ({"FLYBALL_STALL__PROFILE": "cautious"}, "stall.profile", "cautious", "FLYBALL_STALL__PROFILE"),
        ({"FLYBALL_SUPERVISOR__ENABLED": "false"}, "supervisor.enabled", False, "FLYBALL_SUPERVISOR__ENABLED"),
    ],
)
def test_layers(env: dict[str, str], key: str, value: Any, origin: str, tmp_path: Path) -> None:
    """S1-22, S1-30: the environment lies over the file, the FLYBALL_ name over the others, and every value knows it."""
    (tmp_path / "flyball.yaml").write_text("graph: {timeout_seconds: 100}\n")
    found_value, found_origin = _origins(load(env=env, cwd=tmp_path))[key]
    assert found_value == value
    assert found_origin.removeprefix(f"{tmp_path}/") == origin


def test_a_layer_adds_to_a_section(tmp_path: Path) -> None:
    """A variable changes its own key and leaves the rest of the section as the file has it."""
    (tmp_path / "flyball.yaml").write_text("budget: {tiers: {gold: 5}, kept_back: 0.1}\n")
    budget = load(env={"FLYBALL_BUDGET__TIERS__FREE": "0.4"}, cwd=tmp_path).budget
    assert {tier: str(amount) for tier, amount in budget.tiers.items()} == {
        "free": "0.4",
        "pro": "2.00",
        "enterprise": "10.00",
        "gold": "5",
    }
    assert str(budget.kept_back) == "0.1"


@pytest.mark.parametrize(
    "name", ["FLYBALL_STATE_DIR", "FLYBALL_CONFIG", "FLYBALL_NO_COLOUR", "_FLYBALL_COMPLETE", "FLYBALLOON__X", "X__Y"]
)
def test_names_that_are_no_settings(name: str, tmp_path: Path) -> None:
    """Only FLYBALL_SECTION__KEY is a setting."""
    assert _origins(load(env={name: ""}, cwd=tmp_path)) == {}
    if name != "FLYBALL_CONFIG":
        assert _origins(load(env={name: "whatever: ["}, cwd=tmp_path)) == {}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("FLYBALL_QUARENTINE__X", "1", "unknown key 'quarentine'; did you mean 'quarantine'?"),
        ("FLYBALL_RULE__TIMEOUT", "1", "unknown key 'timeout' in rule; did you mean 'timeout_seconds'?"),
        ("FLYBALL_RULE__TIMEOUT_SECONDS", "soon", 'rule.timeout_seconds is "soon"; allowed: a number at least'),
        ("FLYBALL_RULE__TIMEOUT_SECONDS", "[", "not YAML"),
        ("FLYBALL_RULE__TIMEOUT_SECONDS__X", "1", 'rule.timeout_seconds is {"x": 1}; allowed: a number at least'),
        ("FLYBALL_RULE__", "1", "unknown key '' in rule"),
        ("FLYBALL___RULE", "1", "unknown key ''"),
        ("FLYBALL_STALL__NUDGE_AT", "7", "nudge_at 7, refuse_at 5, stop_at 6 must not fall"),
        ("DELIBERATION_TIMEOUT_SECONDS", "-1", "graph.timeout_seconds is -1; allowed: a number at least"),
        ("MAX_COST_PER_SESSION", "free", "budget.max_cost_per_session is"),
    ],
)
def test_bad_variables(name: str, value: str, says: str, tmp_path: Path) -> None:
    """A wrong variable is named as the place of the problem."""
    with pytest.raises(SettingsError) as caught:
        load(env={name: value}, cwd=tmp_path)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{name}: ")
    assert says in problem


def test_the_environment_does_not_hide_a_bad_file(tmp_path: Path) -> None:
    """What is wrong in the file is wrong also where a variable lies over it."""
    (tmp_path / "flyball.yaml").write_text("rule: {timeout_seconds: soon}\n")
    with pytest.raises(SettingsError) as caught:
        load(env={"FLYBALL_RULE__TIMEOUT_SECONDS": "5"}, cwd=tmp_path)
    assert len(caught.value.problems) == 1


def test_layers_contradict_each_other_only_together(tmp_path: Path) -> None:
    """What a value says of another is judged on what is in force: a variable can put a file right, or wrong."""
    (tmp_path / "flyball.yaml").write_text("crash_policy: {flap_threshold: 11}\n")
    assert load(env={"FLYBALL_CRASH_POLICY__RING_BUFFER_CAP": "20"}, cwd=tmp_path).crash_policy.ring_buffer_cap == 20
    with pytest.raises(SettingsError, match=r"flyball.yaml:1:32: crash_policy.flap_threshold"):
        load(env={}, cwd=tmp_path)


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("text", ["rule: {timeout_seconds: 5}", "rule: 5"])
def test_the_collector_is_left_as_it_was(collects: bool, text: str, tmp_path: Path) -> None:
    """Reading does without the collector of garbage; afterwards it is as it was, whatever came of it."""
    (tmp_path / "f.yaml").write_text(text)
    was = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with contextlib.suppress(SettingsError):
            load(tmp_path / "f.yaml", env={})
        assert gc.isenabled() is collects
    finally:
        (gc.enable if was else gc.disable)()
