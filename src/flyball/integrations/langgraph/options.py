"""What is said of a graph where it is guarded, checked there and then: a limit that cannot be what was meant must not
be taken for none. No layer can be switched off; limits can be raised, but for the cap on rounds.
"""

import enum
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from flyball.config import Settings
from flyball.config.build import budget_name, get_tier_limit
from flyball.config.money import micro
from flyball.config.units import RestartWhen, Unit
from flyball.core.amounts import MONEY, amount_text
from flyball.core.name import NAME_MAX, is_name, name_from
from flyball.core.policy import AnyPolicy
from flyball.core.time import span
from flyball.errors import FlyballError
from flyball.policies import Budget, Limit, Rounds, Session, resume_limit
from flyball.policies.budget import OVER_BUDGET
from flyball.policies.rounds import ROUNDS_CAP, ROUNDS_LEAST
from flyball.policies.session import CALL
from flyball.runtimes.agent.options import GRACE, SECONDS_MAX, labels_of
from flyball.runtimes.amounts import Given, whole
from flyball.runtimes.prices import Prices

STEPS_MAX: Final = 10**9
"""More steps than this are meant to be no limit, and there is no such thing."""
RESUMES_MAX: Final = 10**6

ISOLATIONS: Final = ("process", "inline")
WORKS: Final = ("thread", "turn")
STOP_REASONS: Final = ("max_rounds", "hard_cap_15_rounds", "consensus", OVER_BUDGET, "finishing")
"""Reasons for which a graph is told to finish in order."""

OFF: Final = "no layer can be switched off"


class Default(enum.Enum):
    """What is not given is as the settings have it."""

    SETTINGS = "as the settings have it"


SETTINGS: Final = Default.SETTINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a graph is guarded."""

    name: str
    steps: int | Default = SETTINGS
    rounds: int | Default = SETTINGS
    timeout: float | Default = SETTINGS
    budget: Given | None = None
    tier: str | None = None
    kept_back: Given | None = None
    user: str = ""
    tree: str = ""
    resumes: int | Default = SETTINGS
    costs: Mapping[str, Given] = field(default_factory=dict)
    worst_case: Given | None = None
    prices: Prices | None = None
    wrap_up: Mapping[str, str] = field(default_factory=dict)
    """Which node wraps up, by the reason; under the empty text: for all others."""
    round_key: str = "round"
    convergence_key: str = "convergence"
    agreement_key: str = "agreement"
    isolation: str = "process"
    work: str = "thread"
    wait: float = 30.0

    @property
    def gauges(self) -> dict[str, str]:
        """Which key of a state is which gauge."""
        return {self.round_key: "round", self.convergence_key: "convergence", self.agreement_key: "agreement"}

    def wraps_up_with(self, reason: str) -> str | None:
        """The node that wraps up when the graph finishes for that reason."""
        return self.wrap_up.get(reason, self.wrap_up.get(""))

    def policies(self, settings: Settings, *, once: bool = False) -> list[AnyPolicy]:
        """The safeguards that these options ask for, over those that the settings give every graph. A call without a
        thread is made `once`: when it ended there is nothing to resume, and nothing to keep for that."""
        steps = settings.graph.recursion_limit if self.steps is SETTINGS else self.steps
        own: list[AnyPolicy] = [Limit(most=steps, by="unit", over_done=self.work == "thread")]
        if self.rounds is not SETTINGS:
            own.append(Rounds(most=self.rounds, by="unit"))
        if self.resumes is not SETTINGS:
            own.append(resume_limit(self.resumes, forgives=settings.daemon.session_recovery.forgive_progress))
        if once:
            own.append(Session(pauses=span(settings.daemon.session_recovery.pause_seconds), of=CALL))
        return [*own, *self._budgets(settings)]

    def rounds_max(self, settings: Settings) -> int:
        """How many rounds there are at most."""
        return settings.graph.max_rounds if self.rounds is SETTINGS else self.rounds

    def steps_max(self, settings: Settings) -> int:
        """How many steps there are at most."""
        return settings.graph.recursion_limit if self.steps is SETTINGS else self.steps

    def unit(self, settings: Settings, thread: str) -> Unit:
        """The piece of work that a thread of the graph is."""
        name = unit_name(self.name, thread)
        timeout = settings.graph.timeout_seconds if self.timeout is SETTINGS else self.timeout
        return Unit(
            name=name,
            command=(),
            kind="graph",
            labels=labels_of(self.user, self.tree or name),
            restart=RestartWhen.NEVER,
            deadline=span(timeout),
            grace=span(GRACE),
        )

    def _budgets(self, settings: Settings) -> list[AnyPolicy]:
        limits, kept = dict(whole(self.budget)), whole(self.kept_back)
        if MONEY not in limits and (self.tier is not None or kept):
            limits[MONEY] = get_tier_limit(self.tier, settings)
        if MONEY in limits and MONEY not in kept:
            kept = {**kept, MONEY: min(limits[MONEY], micro(settings.budget.kept_back))}
        return [
            Budget(limit=limit, kept_back=kept.get(meter, 0), meter=meter, by="unit", name=budget_name(meter))
            for meter, limit in limits.items()
        ]


def unit_name(name: str, thread: str) -> str:
    """The name of the unit that a thread of a graph is. Two threads never share one: where it does not fit into a name
    as it is, a part of its hash is added."""
    plain = f"{name}@{thread}"
    if is_name(plain) and "@" not in name:
        return plain
    mark = hashlib.blake2b(f"{len(name)}:{plain}".encode(), digest_size=6).hexdigest()
    return f"{name_from(plain, 'graph')[: NAME_MAX - len(mark) - 1]}-{mark}"


def check(options: Mapping[str, Any], nodes: Iterable[str]) -> Options:
    """The options as they were given, checked. ValueError says which is wrong, and what is allowed."""
    given, known = dict(options), list(nodes)
    if not isinstance(given["name"], str) or not is_name(given["name"]):
        raise FlyballError(f"{given['name']!r} is no name for a graph", remedy='Give it one: `guard(graph, name="…")`.')
    _whole_number(given, "steps", 1, STEPS_MAX)
    _whole_number(given, "rounds", ROUNDS_LEAST, ROUNDS_CAP)
    _whole_number(given, "resumes", 0, RESUMES_MAX)
    _seconds(given, "timeout")
    _one_of(given, "isolation", ISOLATIONS)
    _one_of(given, "work", WORKS)
    if not _is_number(given["wait"]) or not 0 <= given["wait"] <= SECONDS_MAX:
        raise ValueError(f"wait is {given['wait']!r}: seconds from 0 to {SECONDS_MAX}")
    _money(given)
    for option in ("user", "tree", "round_key", "convergence_key", "agreement_key"):
        if not isinstance(given[option], str):
            raise ValueError(f"{option} is {given[option]!r}: it is a text")
    costs = dict(given["costs"] or {})
    for node, cost in costs.items():
        _known("costs", node, known)
        whole(cost, f"costs of {node!r}")
    whole(given["worst_case"], "worst_case")
    return Options(**{**given, "costs": costs, "wrap_up": _wrap_up(given["wrap_up"], known)})


def _wrap_up(given: object, nodes: list[str]) -> dict[str, str]:
    if given is None:
        return {}
    by_reason = given if isinstance(given, Mapping) else {"": given}
    for reason, node in by_reason.items():
        if reason and reason not in STOP_REASONS:
            raise ValueError(f"wrap_up has {reason!r}: {_meant(reason, STOP_REASONS)}")
        _known("wrap_up", node, nodes)
    return dict(by_reason)


def _known(option: str, node: object, nodes: list[str]) -> None:
    if node not in nodes:
        raise ValueError(f"{option} names {node!r}, which is no node of the graph: {_meant(node, nodes)}")


def _meant(given: object, known: Iterable[str]) -> str:
    near = get_close_matches(str(given), list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"


def _whole_number(given: Mapping[str, Any], option: str, least: int, most: int) -> None:
    number = given[option]
    if number is SETTINGS:
        return
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise ValueError(f"{option} is {number!r}: a whole number from {least} to {most}; {OFF}")


def _seconds(given: Mapping[str, Any], option: str) -> None:
    seconds = given[option]
    if seconds is not SETTINGS and (not _is_number(seconds) or not 0 < seconds <= SECONDS_MAX):
        raise ValueError(f"{option} is {seconds!r}: seconds above 0, up to {SECONDS_MAX}; {OFF}")


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _one_of(given: Mapping[str, Any], option: str, known: tuple[str, ...]) -> None:
    if given[option] not in known:
        raise ValueError(f"{option} is {given[option]!r}: it is one of {', '.join(known)}")


def _money(given: Mapping[str, Any]) -> None:
    limits, kept = whole(given["budget"], "budget"), whole(given["kept_back"], "kept_back")
    for meter, limit in limits.items():
        if not limit:
            raise ValueError(f"budget of {meter} is 0: an amount above 0; {OFF}")
        if kept.get(meter, 0) > limit:
            back = amount_text(meter, kept[meter])
            raise ValueError(f"kept_back is {back}, and the budget {amount_text(meter, limit)}: keep back less")
