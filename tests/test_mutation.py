"""Each safeguard earns its place: taken out of the set, an acceptance test fails.

The tests run in a process of their own, on the store in memory, without the policy that FLYBALL_TEST_WITHOUT names. For
each policy one test is named here that is enough to miss it: to run them all each time would show the same, later.
"""

import os
import subprocess
from collections.abc import Iterator

import pytest

from flyball.policies import ALL
from tests.acceptance.harness import WITHOUT
from tests.zygote import ROOT, Zygote

SECONDS_MAX = 120
"""For one run of a few tests, which takes a second or two: long enough for a machine that is busy."""

MISSED_BY = {
    "Anomaly": "test_layers.py::test_unusual_spend_is_told",
    "Breaker": "test_anti_loop.py::test_cascade_in_eight_steps",
    "Budget": "test_layers.py::test_free_tier_ends_before_it_is_overspent",
    "Clock": "test_anti_loop.py::test_clock_jump_is_confirmed_by_a_person",
    "Convergence": "test_layers.py::test_consensus",
    "Cooldown": "test_anti_loop.py::test_ladder",
    "Deadline": "test_layers.py::test_deadline",
    "Exclusive": "test_resume_limit.py::test_two_resumes_at_once",
    "Flapping": "test_crash_policy.py::test_crash_loop_is_halted_though_it_is_slowed_down",
    "Limit": "test_resume_limit.py::test_fourth_resume_is_refused",
    "Loop": "test_anti_loop.py::test_loop_at_the_hundredth",
    "Manual": "test_layers.py::test_all_sessions_of_a_user_are_ended",
    "Quarantine": "test_anti_loop.py::test_quarantine_at_the_sixth_failure",
    "Question": "test_auto_restart.py::test_open_question_waits_for_a_person",
    "Rate": "test_rules.py::test_starts_beyond_the_rate_wait",
    "Reservations": "test_layers.py::test_person_settles_what_the_dead_held",
    "Restart": "test_auto_restart.py::test_eleventh_restart_within_an_hour_waits",
    "Revision": "test_anti_loop.py::test_changes_that_nobody_made_clear_only_so_often",
    "Rounds": "test_layers.py::test_rounds",
    "Session": "test_resume_limit.py::test_nobody_gets_round_the_counter",
    "Stall": "test_layers.py::test_rehashing_is_noticed",
    "Storm": "test_anti_loop.py::test_restart_storm_in_seven_steps",
}


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    """To import pytest and flyball takes longer than the tests."""
    zygote = Zygote("pytest", "hypothesis", "flyball.config", "flyball.store.postgres", "flyball.store.sqlite")
    yield zygote
    zygote.close()


def acceptance(zygote: Zygote, *tests: str, without: str = "") -> subprocess.CompletedProcess[str]:
    """Run acceptance tests without a policy, up to the first that fails."""
    options = ("-x", "-q", "-p", "no:cacheprovider", "-k", "not sqlite and not postgres")
    return zygote.run(
        "pytest",
        *options,
        *(f"tests/acceptance/{test}" for test in tests),
        cwd=ROOT,
        # Plugins that these tests do not need take longer to import than the tests to run.
        env={**os.environ, WITHOUT: without, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        timeout=SECONDS_MAX,
    )


@pytest.mark.slow
@pytest.mark.parametrize("policy", [policy.__name__ for policy in ALL])
def test_policy_is_missed(zygote: Zygote, policy: str) -> None:
    """Without this policy an acceptance test fails."""
    run = acceptance(zygote, MISSED_BY[policy], without=policy)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr


@pytest.mark.slow
def test_nothing_is_missed_when_nothing_is_left_out(zygote: Zygote) -> None:
    """With all policies the same tests pass: it is the missing one that makes them fail."""
    run = acceptance(zygote, *MISSED_BY.values())
    assert run.returncode == pytest.ExitCode.OK, run.stdout + run.stderr
