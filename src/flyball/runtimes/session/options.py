"""What is said of a session where it is defined, checked there and then."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from flyball.config.section import COUNT_MAX
from flyball.config.units import Unit
from flyball.core.event import NAME_MAX
from flyball.core.name import IN_WORDS, is_name
from flyball.errors import FlyballError
from flyball.runtimes.agent.options import Wanted, agent_unit

KIND: Final = "session"

SESSION: Final = Wanted(
    kind=KIND,
    given="session",
    function="Give a function: `guard.session(name, function)`.",
    no_generator="Make it a function without `yield`; each part of the work is a stage: `with session.stage(…)`.",
    one_argument="Define it as `f(session)`; what it needs comes as `input`.",
)


def session_unit(
    name: str,
    *,
    deadline: float | None,
    steps: int | None,
    resumes: int | None,
    version: str,
    labels: Mapping[str, str] | None,
    user: str,
    tree: str,
    causes: Mapping[Any, Any] | None,
) -> Unit:
    """The unit that a session with these options is. FlyballError says which of them is wrong."""
    if not isinstance(name, str) or not is_name(name):
        raise FlyballError(f"{name!r} is no name for a session", remedy=f"A name has {IN_WORDS}.")
    _check_count(name, "steps", steps, least=1)
    _check_count(name, "resumes", resumes, least=0)
    if not isinstance(version, str) or len(version) > NAME_MAX:
        remedy = f"It is a text of at most {NAME_MAX} characters, such as `2`."
        raise FlyballError(f"{name}: version is {version!r}", remedy=remedy)
    unit = agent_unit(
        name,
        restart="never",
        deadline=deadline,
        budget_by="unit",
        labels=labels,
        user=user,
        tree=tree,
        causes=causes,
    )
    return dataclasses.replace(unit, kind=KIND, steps=steps or 0, resumes=resumes)


def _check_count(name: str, option: str, given: object, *, least: int) -> None:
    if given is None:
        return
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= COUNT_MAX:
        text = f"{name}: {option} is {given!r}"
        raise FlyballError(text, remedy=f"Give a whole number from {least} to {COUNT_MAX}, or leave it out.")
