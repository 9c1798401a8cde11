"""Which safeguards a unit stands under by its own definition, on top of those of its kind."""

from typing import Any

import pytest

from flyball.config import Settings
from flyball.config.build import unit_policies
from flyball.config.units import RestartWhen, Unit
from flyball.core.decision import Verb
from flyball.core.event import Cause, Exited, Start
from flyball.core.panel import Panel
from flyball.core.policy import AnyPolicy
from flyball.core.time import FOREVER, HOUR, MINUTE, SECOND
from flyball.governor import Governor
from flyball.policies import Budget, Deadline, Flapping, Limit, Restart, resume_limit
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock


def policies(settings: dict[str, Any] | None = None, budget_by: str = "run", **unit: Any) -> dict[str, AnyPolicy]:
    found = unit_policies(
        Settings.model_validate(settings or {}), Unit(name="x", command=("x",), **unit), budget_by=budget_by
    )
    return {f"{policy.name} by {policy.by}": policy for policy in found}


def test_nothing_asked_for() -> None:
    """A unit that asks for nothing stands under the safeguards of its kind, none taken away."""
    for kind in ("process", "agent", "rule", "graph", "session"):
        assert tuple(policies(kind=kind).values()) == Settings().policies(kind)


def test_limits() -> None:
    """A deadline, a time of silence and a budget are safeguards of its own; its grace goes with them."""
    found = policies(deadline=HOUR, idle=MINUTE, budget=2_000_000, grace=3 * SECOND)
    assert found["deadline by run"] == Deadline(lasts_max=HOUR, grace=3 * SECOND)
    assert found["idle by run"] == Deadline(lasts_max=MINUTE, idle=True, grace=3 * SECOND, name="idle")
    assert found["budget by run"] == Budget(limit=2_000_000)
    assert policies(budget=5, budget_by="unit")["budget by unit"] == Budget(limit=5, by="unit")


def test_limits_of_its_kind_are_replaced() -> None:
    """Where its kind has such a limit already, the unit's own number counts."""
    found = policies(kind="graph", deadline=5 * HOUR, budget=7)
    assert found["deadline by run"] == Deadline(lasts_max=5 * HOUR)
    assert found["budget by unit"] == Budget(limit=7, by="unit")
    assert "budget by run" not in found


def test_limits_of_a_session() -> None:
    """Steps and resumes of its own take the place of those of its kind, 0 resumes too; but where no session is resumed,
    none is."""
    found = policies(kind="session", steps=7, resumes=0)
    assert found["steps by unit"] == Limit(most=7, by="unit")
    assert found["resumes by unit"] == resume_limit(0)
    forgiving = {"daemon": {"sessionRecovery": {"forgiveProgress": True}}}
    assert policies(forgiving, kind="session", resumes=9)["resumes by unit"] == resume_limit(9, forgives=True)
    never = {"daemon": {"sessionRecovery": {"enabled": False}}}
    assert policies(never, kind="session", resumes=9)["resumes by unit"] == resume_limit(0)


@pytest.mark.parametrize("kind", ["process", "agent"])
def test_restart_words(kind: str) -> None:
    """never: nothing is restarted; always: what is done, too, and short clean exits count as flapping."""
    never, always = policies(kind=kind, restart=RestartWhen.NEVER), policies(kind=kind, restart=RestartWhen.ALWAYS)
    restart = never["restart by unit"]
    assert isinstance(restart, Restart)
    assert not any((restart.on_error, restart.on_timeout, restart.on_starved, restart.always))
    assert restart.starved_wait == FOREVER
    restart, flapping = always["restart by unit"], always["flapping by unit"]
    assert isinstance(restart, Restart)
    assert isinstance(flapping, Flapping)
    assert restart.always
    assert flapping.clean_counts
    assert restart.healthy_after == (0 if kind == "agent" else 24 * HOUR)


def test_settings_have_the_last_word() -> None:
    """Where the settings restart nothing, a unit that asks for it is not restarted either."""
    restart = policies({"restart_policy": {"enabled": False}}, restart=RestartWhen.ALWAYS)["restart by unit"]
    assert isinstance(restart, Restart)
    assert not any((restart.always, restart.on_error))


@pytest.mark.parametrize("cause", [Cause.DONE, Cause.ERROR])
def test_service_that_ends_at_once_is_held(cause: Cause) -> None:
    """Closed loop: restart: always does not mean for ever, also when every exit is a clean one."""
    unit = Unit(name="x", command=("x",), restart=RestartWhen.ALWAYS)
    clock = FakeClock()
    governor = Governor(Panel(unit_policies(Settings(), unit)), MemoryStore(), clock)
    starts = 0
    while starts < 100:
        decision = governor.submit(Start(unit="x", run=str(starts), again=starts > 0))
        if decision.verb is Verb.HOLD:
            break
        if decision.verb is Verb.WAIT:
            clock.set(decision.until)
            continue
        starts += 1
        governor.submit(Exited(unit="x", run=str(starts - 1), cause=cause, fingerprint="f"))
    assert starts == {Cause.DONE: 7, Cause.ERROR: 6}[cause]
