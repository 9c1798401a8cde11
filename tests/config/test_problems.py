"""What is wrong with a value: where, what was given, what is allowed. All of it at once."""

from pathlib import Path

import pytest

from flyball.config import Settings, load
from flyball.errors import SettingsError

SECTIONS = ", ".join(Settings.model_fields)


def _problems(text: str, folder: Path) -> list[str]:
    file = folder / "f.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(file, env={})
    return [problem.removeprefix(f"{folder}/") for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "quarentine: {}\n",
            f"f.yaml:1:1: unknown key 'quarentine'; did you mean 'quarantine'? allowed: {SECTIONS}",
        ),
        (
            "supervisor:\n  enable: true\n",
            "f.yaml:2:3: unknown key 'enable' in supervisor; did you mean 'enabled'? allowed: enabled",
        ),
        ("exclusive: {5: 5}\n", "f.yaml:1:13: unknown key '5' in exclusive; allowed: lease_seconds"),
        (
            "max_rounds: 7\n",
            f"f.yaml:1:1: unknown key 'max_rounds'; did you mean 'graph.max_rounds'? allowed: {SECTIONS}",
        ),
        (
            "daemon: {sessionrecovery: {}}\n",
            "f.yaml:1:10: unknown key 'sessionrecovery' in daemon; did you mean 'sessionRecovery'? "
            "allowed: sessionRecovery",
        ),
        (
            "daemon: {sessionRecovery: {max_resumes: 1}}\n",
            "f.yaml:1:28: unknown key 'max_resumes' in daemon.sessionRecovery; did you mean 'maxResumeAttempts'? "
            "allowed: enabled, maxResumeAttempts, forgiveProgress, pauseSeconds",
        ),
        (
            "graph: {max_rounds: 4}\n",
            "f.yaml:1:21: graph.max_rounds is 4; allowed: a whole number at least 5 and at most 15",
        ),
        (
            "graph: {max_rounds: 16}\n",
            "f.yaml:1:21: graph.max_rounds is 16; allowed: a whole number at least 5 and at most 15",
        ),
        (
            "graph: {max_rounds: 7.5}\n",
            "f.yaml:1:21: graph.max_rounds is 7.5; allowed: a whole number at least 5 and at most 15",
        ),
        (
            "graph: {max_rounds: '7'}\n",
            'f.yaml:1:21: graph.max_rounds is "7"; allowed: a whole number at least 5 and at most 15',
        ),
        (
            "graph: {max_rounds: true}\n",
            "f.yaml:1:21: graph.max_rounds is true; allowed: a whole number at least 5 and at most 15",
        ),
        (
            "graph: {max_rounds: }\n",
            "f.yaml:1:21: graph.max_rounds is null; allowed: a whole number at least 5 and at most 15",
        ),
        (
            "graph: {convergence_threshold: 1}\n",
            "f.yaml:1:32: graph.convergence_threshold is 1; allowed: a number above 0 and below 1",
        ),
        (
            "graph: {consensus_threshold: 0}\n",
            "f.yaml:1:30: graph.consensus_threshold is 0; allowed: a number above 0 and at most 1",
        ),
        (
            "rule: {timeout_seconds: .nan}\n",
            "f.yaml:1:25: rule.timeout_seconds is NaN; allowed: a number at least 0.000001 and at most 315360000",
        ),
        (
            "rule: {timeout_seconds: .inf}\n",
            "f.yaml:1:25: rule.timeout_seconds is Infinity; allowed: a number at least 0.000001 and at most 315360000",
        ),
        (
            "rule: {timeout_seconds: 0}\n",
            "f.yaml:1:25: rule.timeout_seconds is 0; allowed: a number at least 0.000001 and at most 315360000",
        ),
        (
            "rule: {timeout_seconds: 1.0e-7}\n",
            "f.yaml:1:25: rule.timeout_seconds is 1e-07; allowed: a number at least 0.000001 and at most 315360000",
        ),
        (
            "supervisor: {enabled: 1}\n",
            "f.yaml:1:23: supervisor.enabled is 1; allowed: true or false",
        ),
        ("stall: {profile: wild}\n", 'f.yaml:1:18: stall.profile is "wild"; allowed: default or cautious'),
        (
            "stall: {stop_at: 0}\n",
            "f.yaml:1:18: stall.stop_at is 0; allowed: a whole number at least 1 and at most 1000000, or null",
        ),
        (
            "quarantine:\n  cooldown_ladder_seconds: [1, -1]\n",
            "f.yaml:2:32: quarantine.cooldown_ladder_seconds[1] is -1; "
            "allowed: a number at least 0.000001 and at most 315360000",
        ),
        (
            "quarantine: {cooldown_ladder_seconds: 5}\n",
            "f.yaml:1:39: quarantine.cooldown_ladder_seconds is 5; "
            "allowed: a list of at most 32, each a number at least 0.000001 and at most 315360000",
        ),
        (
            f"quarantine: {{cooldown_ladder_seconds: {[1] * 33}}}\n",
            "f.yaml:1:39: quarantine.cooldown_ladder_seconds: has 33 entries; allowed: at most 32",
        ),
        (
            "circuit_breaker: {labels: [two words]}\n",
            'f.yaml:1:28: circuit_breaker.labels[0] is "two words"; allowed: a name of letters, digits and _ . -',
        ),
        ("budget: {per_user: free}\n", 'f.yaml:1:20: budget.per_user is "free"; it should be an amount such as 0.50'),
        (
            "budget: {tiers: 5}\n",
            "f.yaml:1:17: budget.tiers is 5; allowed: names, each with an amount such as 0.50, exact to a millionth",
        ),
        (
            "budget: {tiers: {free: -1}}\n",
            "f.yaml:1:24: budget.tiers.free is -1; it should be an amount from 0 to 1000000000",
        ),
        ("exclusive: 5\n", "f.yaml:1:12: exclusive is 5; allowed: a section with lease_seconds"),
        (
            "restart_policy: {max_restarts: 3, max_restarts_per_hour: 4}\n",
            "f.yaml:1:35: 'max_restarts_per_hour' is there already, at f.yaml:1:18",
        ),
    ],
)
def test_problem(text: str, problem: str, tmp_path: Path) -> None:
    """One line says where, what was given, and what is allowed."""
    assert [found.replace(f"{tmp_path}/", "") for found in _problems(text, tmp_path)] == [problem]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("crash_policy: {flap_threshold: 11}\n", "1:32: crash_policy.flap_threshold: 11 exits are never seen"),
        ("crash_policy: {ring_buffer_cap: 2}\n", "1:15: crash_policy.flap_threshold: 3 exits are never seen"),
        ("restart_policy: {max_backoff_seconds: 1}\n", "1:39: restart_policy.max_backoff_seconds: 1 is below"),
        ("stall: {nudge_at: 9}\n", "1:19: stall.nudge_at: nudge_at 9, refuse_at 5, stop_at 6 must not fall"),
        ("stall: {refuse_at: 3}\n", "1:20: stall.refuse_at: nudge_at 4, refuse_at 3"),
        ("circuit_breaker: {labels: [fleet]}\n", "1:27: circuit_breaker.labels: 'fleet' is a scope"),
        ("circuit_breaker: {labels: [a, a]}\n", "1:27: circuit_breaker.labels: 'a' is named twice"),
        ("budget: {kept_back: 1}\n", "1:9: budget.tiers: free has 0.50, of which 1 is kept back"),
        (
            "budget: {kept_back: 0.5, max_cost_per_session: 0.5, tiers: {free: 1}}\n",
            "1:21: budget.kept_back: 0.5 of 0.5",
        ),
        ("budget: {per_fleet: 0}\n", "1:21: budget.per_fleet: 0 would let nothing run"),
        ("budget: {max_cost_per_session: 0}\n", "1:32: budget.max_cost_per_session: 0 would let nothing run"),
    ],
)
def test_contradiction(text: str, problem: str, tmp_path: Path) -> None:
    """Values that contradict each other are errors: the safeguard could never speak."""
    (found,) = _problems(text, tmp_path)
    assert found.startswith(f"f.yaml:{problem}")


def test_all_at_once(tmp_path: Path) -> None:
    """Every problem of every section is reported, in the order of the file, each once."""
    text = (
        "rule: {timeout_seconds: never}\n"
        + "graph: {max_rounds: 1, max_rundes: 2}\n"
        + "crash_policy: {flap_threshold: 99}\n"
        + "budget: {kept_back: -1}\n"
        + "\n" * 5
        + "saftey: {}\n"
    )
    places = [problem.split(": ")[0] for problem in _problems(text, tmp_path)]
    assert places == ["f.yaml:1:25", "f.yaml:2:21", "f.yaml:2:24", "f.yaml:3:32", "f.yaml:4:21", "f.yaml:10:1"]


def test_long_values_are_cut(tmp_path: Path) -> None:
    """A wrong value of any length gives a short line."""
    (problem,) = _problems(f"stall: {{profile: {'x' * 5000}}}\n", tmp_path)
    assert len(problem) < 150
