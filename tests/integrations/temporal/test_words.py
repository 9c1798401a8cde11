"""How activities are called, how refusals are said to Temporal, and what is wrong with limits: no server is needed."""

import dataclasses
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment

from flyball.core.decision import Decision, Reason, finish, hold, stop, wait
from flyball.core.name import NAME_MAX, is_name
from flyball.core.time import FOREVER, SECOND, Instant
from flyball.errors import FlyballError, StoreTooNew
from flyball.integrations import temporal
from flyball.integrations.temporal import ASKS_AGAIN, GuardInterceptor, Limits, unit_of
from flyball.runtimes.refusal import refusal
from tests.integrations.scene import a_guard

NOW: Instant = 1_000 * SECOND
LATER = NOW + 30 * SECOND


def an_activity(**fields: Any) -> Any:
    """What Temporal says of an activity."""
    usual = {"activity_type": "charge", "workflow_id": "order-17", "activity_id": "1", "namespace": "default"}
    return dataclasses.replace(ActivityEnvironment.default_info(), **{**usual, **fields})


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "charge@order-17.1"),
        ({"workflow_id": None}, "charge@1"),
        ({"workflow_run_id": "another", "attempt": 7}, "charge@order-17.1"),
    ],
    ids=["in a workflow", "alone", "tried again"],
)
def test_a_name_is_that_of_the_workflow(fields: dict[str, Any], name: str) -> None:
    """It says which activity of which workflow it is, and is the same for each attempt and each run of the workflow."""
    assert unit_of(an_activity(**fields)) == name


def test_no_two_share_a_name() -> None:
    """What does not fit into a name as it is, or could be another's, has a part of its hash in it."""
    others = [
        an_activity(),
        an_activity(namespace="other"),
        an_activity(activity_id="2"),
        an_activity(workflow_id="order-17.1", activity_id="1"),
        an_activity(workflow_id="order-17", activity_id="1.1"),
        an_activity(workflow_id="order 17"),
        an_activity(workflow_id="order/17"),
        an_activity(activity_type="charge@order", workflow_id="17"),
        an_activity(activity_type="charge", workflow_id="order@17"),
        an_activity(workflow_id="x" * 300),
        an_activity(workflow_id="x" * 301),
        an_activity(workflow_id="\n"),
        an_activity(activity_type="訂單"),
        an_activity(workflow_id=None, activity_id="order-17.1"),
    ]
    names = [unit_of(one) for one in others]
    assert len(set(names)) == len(names)
    assert all(is_name(name) and len(name) <= NAME_MAX for name in names)


def reason(code: str = "some_code") -> Reason:
    return Reason("policy", code, "so it is", "Do this.")


@pytest.mark.parametrize(
    ("decision", "delay", "again"),
    [
        (wait(LATER, reason()), 30.0, True),
        (wait(NOW - SECOND, reason()), 0.0, True),
        (wait(FOREVER, reason()), None, False),
        (wait(LATER, reason("already_running")), ASKS_AGAIN, True),
        (wait(NOW + SECOND, reason("already_running")), 1.0, True),
        (hold(reason("other")) | wait(LATER, reason("already_running")), ASKS_AGAIN, True),
        (finish(reason()), None, False),
        (stop(reason(), by=LATER), None, False),
        (stop(reason("timeout"), by=LATER), None, True),
        (stop(reason("idle_timeout")), None, True),
        (hold(reason()), None, False),
        (hold(reason(), until=LATER), 30.0, True),
        (hold(reason()) | wait(LATER, reason("other")), None, False),
    ],
)
def test_a_refusal_is_said_in_temporals_words(decision: Decision, delay: float | None, again: bool) -> None:
    """What comes is waited for by Temporal until that instant; a run whose time was over may be tried again; nothing
    else is."""
    said = temporal._Rules(Limits(), {}, None, None, {}, None).failure(refusal(decision, NOW, "x may not"), "x", NOW)
    assert (said.next_retry_delay.total_seconds() if said.next_retry_delay is not None else None) == delay
    assert said.non_retryable is not again
    assert (said.category is ApplicationErrorCategory.BENIGN) == (delay is not None)
    assert decision.primary is not None
    assert said.type == decision.primary.code
    assert said.message == "x: so it is. Do this."
    assert said.details == ({"unit": "x", "verb": decision.verb.name.lower(), "codes": list(decision.codes)},)


@pytest.mark.parametrize(
    ("decision", "delay"),
    [
        (hold(reason()), 7.0),
        (hold(reason(), until=LATER), 7.0),
        (hold(reason(), until=NOW + SECOND), 1.0),
        (stop(reason()), None),
        (wait(LATER, reason()), 30.0),
    ],
)
def test_only_a_hold_asks_again(decision: Decision, delay: float | None) -> None:
    """With `asks_again` what waits for a person asks now and then; what is over does not."""
    rules = temporal._Rules(Limits(), {}, None, None, {}, 7.0)
    said = rules.failure(refusal(decision, NOW), "x", NOW)
    assert (said.next_retry_delay.total_seconds() if said.next_retry_delay is not None else None) == delay


def test_a_store_out_of_reach_is_said() -> None:
    """It is tried again after a while, also where it is this worker's own trouble: another may have none."""
    said = temporal._out_of_reach(StoreTooNew("it is newer"))
    assert (said.type, said.non_retryable) == ("StoreTooNew", False)
    assert said.next_retry_delay == timedelta(seconds=5)
    assert "it is newer. Upgrade flyball" in said.message


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"attempts": 0}, "attempts is 0"),
        ({"attempts": True}, "attempts is True"),
        ({"attempts": "3"}, "attempts is '3'"),
        ({"steps": -1}, "steps is -1"),
        ({"deadline": 0}, "deadline is 0"),
        ({"asks_again": 0}, "asks_again is 0"),
        ({"asks_again": float("nan")}, "asks_again is nan"),
        ({"workflow_attempts": 0}, "workflow_attempts is 0"),
        ({"budget": "0"}, "budget is 0.00 USD"),
        ({"budget": "much"}, "budget is 'much'"),
        ({"workflow_budget": -1}, "workflow_budget is -1"),
        ({"activities": {"charge": 3}}, "activities has 3 for 'charge'"),
        ({"labels": "user"}, "labels is 'user'"),
    ],
)
def test_wrong_limits_are_said_at_once(given: dict[str, Any], text: str) -> None:
    """A limit that cannot be what was meant is not taken for none."""
    with a_guard() as guard, pytest.raises(FlyballError, match=text) as raised:
        GuardInterceptor(guard, **given)
    assert raised.value.remedy


def test_labels_that_are_none_are_refused() -> None:
    """Labels that somebody's function makes are checked for each activity."""
    with a_guard() as guard:
        interceptor = GuardInterceptor(guard, labels=lambda *_: {"user": "\n"})
        with pytest.raises(FlyballError, match="labels"):
            interceptor._rules.unit(an_activity(), ())


def test_there_is_a_run_only_in_an_activity() -> None:
    """Elsewhere somebody is told."""
    with pytest.raises(FlyballError, match="no guarded activity"):
        temporal.current()


WITHOUT = """
import sys
sys.modules["temporalio"] = None
from flyball.errors import FlyballError
try:
    import flyball.integrations.temporal
except FlyballError as error:
    print(error, error.remedy)
"""


def test_temporal_is_not_installed() -> None:
    """Then it is said what to install."""
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert "Temporal, which is not installed Install it: pip install 'flyball-governor[temporal]'" in done.stdout
