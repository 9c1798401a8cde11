"""What is said of a session is checked where it is said: the error names the option, and nothing is defined."""

from typing import Any

import pytest

import flyball
from flyball.errors import FlyballError
from flyball.policies import Budget, Deadline, Limit, resume_limit
from flyball.runtimes.session.context import SessionContext
from tests.runtimes.session.scene import NAME, Scene


def function(session: SessionContext) -> None:
    pass


def generator(session: SessionContext) -> Any:
    yield


def of_nothing() -> None:
    pass


def of_two(session: SessionContext, other: int) -> None:
    pass


@pytest.mark.parametrize(
    ("name", "given", "options", "match"),
    [
        ("no name", function, {}, "'no name' is no name for a session"),
        ("", function, {}, "'' is no name"),
        (3, function, {}, "3 is no name"),
        ("x" * 65, function, {}, "is no name"),
        ("program", function, {}, "'program' is taken"),
        ("agent", function, {}, "'agent' is taken"),
        (NAME, None, {}, "None is no function"),
        (NAME, generator, {}, "generator is a generator"),
        (NAME, of_nothing, {}, "of_nothing is given the session alone"),
        (NAME, of_two, {}, "of_two is given the session alone"),
        (NAME, function, {"steps": 0}, "steps is 0"),
        (NAME, function, {"steps": 1.5}, "steps is 1.5"),
        (NAME, function, {"steps": True}, "steps is True"),
        (NAME, function, {"steps": 10**9}, "steps is 1000000000"),
        (NAME, function, {"resumes": -1}, "resumes is -1"),
        (NAME, function, {"resumes": "3"}, "resumes is '3'"),
        (NAME, function, {"deadline": 0}, "deadline is 0"),
        (NAME, function, {"deadline": -5}, "deadline is -5"),
        (NAME, function, {"deadline": float("nan")}, "deadline is nan"),
        (NAME, function, {"wait": -1}, "wait is -1"),
        (NAME, function, {"wait": None}, "wait is None"),
        (NAME, function, {"version": 2}, "version is 2"),
        (NAME, function, {"version": "x" * 201}, "version is"),
        (NAME, function, {"user": 5}, "its labels are"),
        (NAME, function, {"user": "a\nb"}, "its labels are"),
        (NAME, function, {"labels": 5}, "its labels are"),
        (NAME, function, {"labels": {"team": 5}}, "its labels are"),
        (NAME, function, {"causes": {"Broken": "error"}}, "causes has"),
        (NAME, function, {"input": ["a"]}, "its input is a list"),
        (NAME, function, {"input": {"a": object()}}, "its input cannot be kept"),
        (NAME, function, {"input": {1: {2: {3, object()}}}}, "its input cannot be kept"),
        (NAME, function, {"input": {"a": "x" * 1024 * 1024}}, "its input takes"),
        (NAME, function, {"budget": "much"}, "usd should be an amount"),
        (NAME, function, {"budget": -1}, "usd"),
    ],
)
def test_bad_options(name: Any, given: Any, options: dict[str, Any], match: str) -> None:
    """Each has its own error, which says what to do."""
    scene = Scene()
    scene.guard.agent("agent")(lambda _: None)
    with pytest.raises((FlyballError, ValueError), match=match) as raised:
        scene.guard.session(name, given, **options)
    if isinstance(raised.value, FlyballError):
        assert raised.value.remedy
    if name == NAME:
        with pytest.raises(flyball.SessionNotFound):
            scene.guard.resume(NAME)


def test_options_become_safeguards() -> None:
    """What was given is what it stands under; what was not is as the settings say."""
    scene = Scene(budget={"kept_back": "0.10"}, daemon={"sessionRecovery": {"forgiveProgress": True}})
    scene.guard.session(NAME, function, steps=9, resumes=7, deadline=5, budget={"usd": "0.30", "tokens": 100})
    policies = scene.governor.panel.policies_of(NAME)
    wanted = (
        Limit(most=9, by="unit"),
        resume_limit(7, forgives=True),
        Deadline(lasts_max=5_000_000),
        Budget(limit=300_000, kept_back=100_000, by="unit"),
        Budget(limit=100, meter="tokens", name="budget_tokens", by="unit"),
    )
    assert all(policy in policies for policy in wanted)
    scene.guard.session("plain", function)
    policies = scene.governor.panel.policies_of("plain")
    assert Limit(most=55, by="unit") in policies
    assert resume_limit(3, forgives=True) in policies


def test_a_budget_below_what_is_kept_back() -> None:
    """Such a session could make only its last step."""
    scene = Scene(budget={"kept_back": "0.10"})
    with pytest.raises(FlyballError, match="kept back"):
        scene.guard.session(NAME, function, budget="0.05")


def test_no_resumes_where_recovery_is_off() -> None:
    """The settings' switch is stronger than a program's wish."""
    scene = Scene(daemon={"sessionRecovery": {"enabled": False}})
    scene.guard.session(NAME, function, resumes=5)
    assert resume_limit(0) in scene.governor.panel.policies_of(NAME)


def test_later_safeguards_are_for_sessions_too() -> None:
    """One more policy for everything that the guard guards."""
    scene = Scene()
    scene.guard.session(NAME, function)
    scene.guard.put_policy(Limit(name="starts", most=3, by="fleet"))
    assert Limit(name="starts", most=3, by="fleet") in scene.governor.panel.policies_of(NAME)


def test_bad_stages() -> None:
    """A stage has a name."""
    scene = Scene()

    def nameless(session: SessionContext) -> None:
        with pytest.raises(FlyballError, match="no name for a stage"):
            session.stage("")
        with pytest.raises(ValueError, match="usd"):
            session.stage("s", cost="-1")

    scene.guard.session(NAME, nameless).run()
