"""What is said of an agent where it is defined, checked there and then.

A limit that cannot be what was meant must not be taken for none, and a function that would end at once, or fail in each
run, must not be started six times to find that out.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from flyball.config.units import RestartWhen, Unit
from flyball.core.event import NAME_MAX, Cause
from flyball.core.name import IN_WORDS, is_name
from flyball.core.time import span
from flyball.errors import FlyballError

GRACE: Final = 10.0
"""Seconds that an agent has to end when it is told to."""

SECONDS_MAX: Final = 10**9
"""Thirty years. What is longer is a slip; what is to last for ever is left out."""

BUDGETS_BY: Final = ("unit", "run")


def agent_unit(
    name: str,
    *,
    every: float | None = None,
    restart: str,
    deadline: float | None,
    idle: float | None = None,
    grace: float = GRACE,
    budget_by: str,
    labels: Mapping[str, str] | None,
    user: str,
    tree: str,
    causes: Mapping[Any, Any] | None,
) -> Unit:
    """The unit that an agent with these options is. FlyballError says which of them is wrong."""
    if not isinstance(name, str) or not is_name(name):
        raise FlyballError(f"{name!r} is no name for an agent", remedy=f"A name has {IN_WORDS}.")
    for option, given in {"deadline": deadline, "idle": idle}.items():
        check_seconds(name, option, given, "above")
    for option, given in {"every": every, "grace": grace}.items():
        check_seconds(name, option, given, "from")
    _check_choice(name, "restart", restart, tuple(RestartWhen))
    _check_choice(name, "budget_by", budget_by, BUDGETS_BY)
    for kind, cause in (causes or {}).items():
        if not (isinstance(kind, type) and issubclass(kind, BaseException) and isinstance(cause, Cause)):
            text = f"{name}: causes has {kind!r}: {cause!r}"
            raise FlyballError(text, remedy="It maps exceptions to causes: `{InsufficientQuota: Cause.STARVED}`.")
    if labels is not None and not isinstance(labels, Mapping):
        raise FlyballError(f"{name}: its labels are {labels!r}", remedy='They are a dict: `{"provider": "x"}`.')
    all_labels = {**labels_of(user, tree or name), **(labels or {})}
    if not all(_is_label(part) for label in all_labels.items() for part in label):
        remedy = f"Names and values of labels are texts that can be printed, of at most {NAME_MAX} characters."
        raise FlyballError(f"{name}: its labels are {all_labels!r:.{NAME_MAX}}", remedy=remedy)
    return Unit(
        name=name,
        command=(),
        kind="agent",
        labels=all_labels,
        restart=RestartWhen(restart),
        deadline=span(deadline or 0),
        idle=span(idle or 0),
        grace=span(grace),
    )


def _is_label(part: object) -> bool:
    """They are in every line about the unit, and in the keys of states."""
    return isinstance(part, str) and len(part) <= NAME_MAX and part.isprintable()


def labels_of(user: str, tree: str) -> dict[str, str]:
    """For whom something is done, and what it is a part of, as labels; what is not said is none."""
    return {label: value for label, value in (("tree", tree), ("user", user)) if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a function has to be, in words: what it is, what it is given, and what to do if it is not that."""

    kind: str
    given: str
    function: str
    no_generator: str
    one_argument: str


AGENT: Final = Wanted(
    kind="agent",
    given="context",
    function="Put `@guard.agent(…)` on a function.",
    no_generator="Make it a loop without `yield`; each round is a step: `async with ctx.step(…)`.",
    one_argument="Define it as `f(ctx)`.",
)


def check_function(name: str, function: object, wanted: Wanted = AGENT) -> None:
    """FlyballError if it could not be run as what is wanted."""
    what = f"{wanted.kind} {name}: {getattr(function, '__qualname__', None) or repr(function)}"
    if not callable(function):
        raise FlyballError(f"{what} is no function", remedy=wanted.function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise FlyballError(f"{what} is a generator, and nobody would take its items", remedy=wanted.no_generator)
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        text = f"{what} is given the {wanted.given} alone: {error}"
        raise FlyballError(text, remedy=wanted.one_argument) from None
    except ValueError:  # some functions written in C do not say what they take
        return


def check_seconds(name: str, option: str, given: object, least: Literal["above", "from"]) -> None:
    """FlyballError if those are no seconds."""
    if given is None and option not in ("grace", "wait"):
        return
    seconds = given if isinstance(given, int | float) and not isinstance(given, bool) else -1
    if not 0 <= seconds <= SECONDS_MAX or (least == "above" and not seconds):
        remedy = f"Give seconds {least} 0 up to {SECONDS_MAX}, or leave it out."
        raise FlyballError(f"{name}: {option} is {given!r}", remedy=remedy)


def _check_choice(name: str, option: str, given: object, known: tuple[str, ...]) -> None:
    if given not in known:
        raise FlyballError(f"{name}: {option} is {given!r}", remedy=f"It is one of: {', '.join(known)}.")
