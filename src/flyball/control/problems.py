"""Problems: what waits for a person, why, and the one safe thing to do. Computed from what is seen of units and of the
fleet; only that somebody has seen one is stored.

A problem has an id that stays the same for as long as it is the same problem: the unit, the code, and the fingerprint
where there is one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from flyball.control.hosts import LOST
from flyball.control.shapes import BudgetView, FleetView, QuestionView, ReasonView, UnitView, View, Word
from flyball.control.text import counted, short
from flyball.core.amounts import MONEY, amount_text
from flyball.core.event import PROBLEM_MAX
from flyball.core.policy import Key
from flyball.core.time import DAY, FOREVER, Instant, seconds
from flyball.policies.budget import OVER_BUDGET
from flyball.policies.restart import ENDED_BY_POLICY
from flyball.store import Store

CRITICAL: Final = "critical"
WARNING: Final = "warning"
INFO: Final = "info"
SEVERITIES: Final = (INFO, WARNING, CRITICAL)

ACKNOWLEDGED: Final = "acknowledged"
"""The name of records that say who has seen a problem."""
FLEET: Final = "fleet"
HOST: Final = "host"
"""The kind of what is about hosts."""
HOST_LOST: Final = "host_lost"
HOSTS_DIFFER: Final = "hosts_differ"
NO_HOST: Final = "no_host"
QUESTION: Final = "question"
TROUBLE: Final = "trouble"
BY_A_PERSON: Final = frozenset({"paused", "stopped", "finishing"})
"""Codes of what a person ordered: no problem, for that person knows."""
FAILED: Final = frozenset({"ended_error", "ended_timeout", "ended_lost", "ended_starved"})
"""Codes of an end without another run."""
RAISE_BY: Final = "1.00"
"""What a budget is raised by with one click: little, because it can be clicked again."""
LOST_REMEDY: Final = "Look at that machine. When it is back, it joins by itself: `flyball hosts`."
SAME_SETTINGS: Final = "Give all hosts the same settings file, then `flyball reload` on each."
NAMES_MAX: Final = 5
"""Hosts or units named in a text; of more, how many."""
CHOICES_MAX: Final = 4
"""Answers offered as buttons. A question with more is answered in words."""


class Action(View, frozen=True, kw_only=True):
    """Something that can be done about it: a verb with its arguments."""

    verb: str
    args: Mapping[str, Any]
    label: str
    destructive: bool = False
    """It takes something away, or concerns more than one unit: asked again first."""


class Problem(View, frozen=True, kw_only=True):
    """One thing that waits for a person."""

    id: str
    unit: str
    """Nothing: the fleet."""
    code: str
    kind: str
    """Of the unit: rule, session, …; `fleet`; `host`."""
    severity: str
    title: str
    """`coder-3 quarantined`."""
    text: str
    remedy: str
    fingerprint: str
    error: str
    since: float | None
    count: int
    """How often it has happened: more is worse."""
    actions: tuple[Action, ...]
    """The first is the one safe thing to do."""
    acknowledged: bool = False
    by: str = ""
    """Who has seen it."""
    snoozed_until: float | None = None


class Seen(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of who has seen a problem."""

    by: str
    at: Instant
    until: Instant = FOREVER
    count: int = 0


def of_unit(view: UnitView) -> tuple[Problem, ...]:
    """The problems of one unit."""
    found = [_of_question(view, question) for question in view.questions]
    reason = next((reason for reason in view.reasons if _is_problem(reason, view)), None)
    if reason is not None:
        found.insert(0, _of_reason(view, reason))
    return tuple(found)


def of_fleet(fleet: FleetView, trouble: str) -> tuple[Problem, ...]:
    """The problems of the fleet: what holds all of it, circuits that are open, and what troubles the daemon."""
    resume = Action(verb="resume", args={}, label="Resume the fleet", destructive=True)
    found = [
        _of_fleet(reason, FLEET, "fleet paused", CRITICAL, resume)
        for reason in fleet.reasons
        if reason.verb == "hold" and reason.code not in BY_A_PERSON
    ]
    for breaker in fleet.breakers:
        text = "Nothing that uses it is started, except for trials."
        remedy = (
            f"Look at what failing units share. It closes by itself; now: `flyball reset --breaker {breaker.name}`."
        )
        close = Action(verb="reset", args={"breaker": breaker.name}, label="Close the circuit", destructive=True)
        reason = _reason("circuit_open", text, remedy)
        found.append(_of_fleet(reason, breaker.name, f"circuit {breaker.name} {breaker.state}", WARNING, close))
    found += of_hosts(fleet)
    if trouble:
        reason = _reason(TROUBLE, trouble, "`flyball logs` without a name shows what the daemon says.")
        found.append(_of_fleet(reason, FLEET, "daemon in trouble", CRITICAL))
    return tuple(found)


def of_hosts(fleet: FleetView) -> list[Problem]:
    """The problems of the hosts: those that are lost, that have other settings, and units that none of them may run."""
    found = []
    for host in fleet.hosts:
        if host.state == LOST:
            text = lost_text(host.units, host.by)
            reason = _reason(HOST_LOST, text, LOST_REMEDY)
            one = _of_fleet(reason, host_ref(host.name), f"host {host.name} lost", WARNING)
            found.append(msgspec.structs.replace(one, since=host.since))
    odd = [host.name for host in fleet.hosts if host.differs]
    if odd:
        reason = _reason(HOSTS_DIFFER, differ_text(odd), SAME_SETTINGS)
        found.append(_of_fleet(reason, FLEET, "hosts with different settings", WARNING))
    if fleet.homeless:
        more = f" and {len(fleet.homeless) - NAMES_MAX} more" if len(fleet.homeless) > NAMES_MAX else ""
        text = f"{', '.join(fleet.homeless[:NAMES_MAX])}{more}: no host that takes units is what they ask for"
        remedy = "Start that host, or `flyball drain --undo` it; or change `host` and `host_labels` of the unit."
        title = f"{counted(len(fleet.homeless), 'unit')} without a host"
        found.append(_of_fleet(_reason(NO_HOST, text, remedy), FLEET, title, WARNING))
    return [msgspec.structs.replace(one, kind=HOST) for one in found]


def host_ref(name: str) -> str:
    """What stands for a host in the id of a problem: no unit is called so."""
    return f"host/{name}"


def lost_text(runs: int, by: str) -> str:
    """What became of what a host ran that is lost."""
    had = f"it had {counted(runs, 'run')}" if runs else "it ran nothing"
    after = ", which others take over" if runs else ""
    return f"its lease ran out{f', {by} found' if by else ''}; {had}{after}"


def differ_text(names: Sequence[str]) -> str:
    """Who has other settings than most."""
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"the units or rules of {', '.join(names[:NAMES_MAX])}{more} are not those of the other hosts"


def listed(problems: Iterable[Problem], seen: Mapping[str, Seen], now: Instant) -> list[Problem]:
    """All of them, the worst and oldest first, those that somebody has seen last."""
    known = [_marked(problem, seen.get(problem.id), now) for problem in problems]
    return sorted(
        known,
        key=lambda one: (
            one.acknowledged or one.snoozed_until is not None,
            -SEVERITIES.index(one.severity),
            one.since or 0.0,
            one.id,
        ),
    )


def seen_by_people(store: Store) -> dict[str, Seen]:
    """Who has seen which problem."""
    found = {}
    for key, data in store.states(ACKNOWLEDGED).items():
        try:
            found[key.subject] = msgspec.json.decode(data, type=Seen)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue  # then it is told of again
    return found


def record(problem: str) -> Key:
    """Where it is kept that somebody has seen a problem."""
    return Key(ACKNOWLEDGED, "problem", problem[:PROBLEM_MAX])


def _marked(problem: Problem, seen: Seen | None, now: Instant) -> Problem:
    if seen is None or seen.until <= now or problem.count > seen.count or _came_later(problem, seen, now):
        return problem
    forever = seen.until >= FOREVER
    until = None if forever else seconds(seen.until)
    return msgspec.structs.replace(problem, acknowledged=forever, by=seen.by, snoozed_until=until)


def _came_later(problem: Problem, seen: Seen, now: Instant) -> bool:
    """Whether it is another one of the same name: what was put right and came back is told of anew. Of what nobody
    knows the beginning, what was seen is forgotten after a day."""
    return now - seen.at > DAY if problem.since is None else problem.since > seconds(seen.at)


def _is_problem(reason: ReasonView, view: UnitView) -> bool:
    """Whether it waits for a person: a hold of its own that none ordered, or an end after which nothing follows by
    itself though its work is not done."""
    if reason.code in BY_A_PERSON or reason.by == FLEET:
        return False
    if reason.verb == "hold":
        return True
    return not view.running and (reason.code in (OVER_BUDGET, ENDED_BY_POLICY) or reason.code in FAILED)


def _of_reason(view: UnitView, reason: ReasonView) -> Problem:
    last = view.last_exit
    code, text, remedy = reason.code, reason.text, reason.remedy
    if code == ENDED_BY_POLICY and last is not None and last.error:
        code = last.error
    fingerprint, error, count = "", last.error if last is not None else "", view.failures_in_a_row
    if reason.code == "quarantined":
        failure = next((one for one in view.failures if one.quarantined), None)
        if failure is not None:
            fingerprint, error, count = failure.fingerprint, failure.error, failure.count
    parts = [view.name, code, *([short(fingerprint)] if fingerprint else [])]
    return Problem(
        id=":".join(parts)[:PROBLEM_MAX],
        unit=view.name,
        code=code,
        kind=view.kind,
        severity=CRITICAL if reason.verb == "hold" else WARNING,
        title=f"{view.name} {'over budget' if code == OVER_BUDGET else view.state}",
        text=text,
        remedy=remedy,
        fingerprint=fingerprint,
        error=error,
        since=view.since,
        count=count,
        actions=_actions(view, code, fingerprint),
    )


def _actions(view: UnitView, code: str, fingerprint: str) -> tuple[Action, ...]:
    if fingerprint:
        return (Action(verb="reset", args={"fingerprint": fingerprint}, label=f"Reset {short(fingerprint)}"),)
    whose = _whose_money(view) if code == OVER_BUDGET else None
    if whose is not None:
        more, shared = amount_text(MONEY, 1_000_000), "unit" not in whose
        label = f"Raise {'the ' + next(iter(whose)) + '’s budget ' if shared else ''}by {more} and resume"
        return (
            Action(verb="raise", args={**whose, "more": RAISE_BY, "resume": True}, label=label, destructive=shared),
        )
    if view.state is Word.FAILED and not view.held:
        return (Action(verb="start", args={"units": [view.name]}, label="Start again"),)
    return (Action(verb="resume", args={"units": [view.name]}, label="Resume"),)


def _whose_money(view: UnitView) -> dict[str, Any] | None:
    """Whose budget is to be raised: that which says so, its own or one that it shares. None: what a run may spend was
    spent, and the next run has its own."""
    match next((reason.by for reason in view.reasons if reason.code == OVER_BUDGET), ""):
        case "unit" | "run":
            return {"unit": view.name}
        case "user" if view.labels.get("user"):
            return {"user": view.labels["user"]}
        case "fleet":
            return {"fleet": True}
    return None


def nearest(budgets: Sequence[BudgetView]) -> BudgetView | None:
    """The budget of money that is used up most."""
    money = [budget for budget in budgets if budget.meter == MONEY and budget.limit]
    return max(money, key=lambda budget: (budget.spent + budget.reserved) / budget.limit, default=None)


def _of_question(view: UnitView, question: QuestionView) -> Problem:
    return Problem(
        id=f"{view.name}:{QUESTION}:{question.id}"[:PROBLEM_MAX],
        unit=view.name,
        code=QUESTION,
        kind=view.kind,
        severity=WARNING,
        title=f"{view.name} asks",
        text=question.text,
        remedy=f"Answer it: `flyball answer {view.name} ANSWER`.",
        fingerprint="",
        error="",
        since=question.at,
        count=0,
        actions=tuple(
            Action(verb="answer", args={"unit": view.name, "id": question.id, "answer": choice}, label=choice)
            for choice in question.choices[:CHOICES_MAX]
        ),
    )


def _of_fleet(reason: ReasonView, subject: str, title: str, severity: str, *actions: Action) -> Problem:
    return Problem(
        id=f"{subject}:{reason.code}"[:PROBLEM_MAX],
        unit="",
        code=reason.code,
        kind=FLEET,
        severity=severity,
        title=title,
        text=reason.text,
        remedy=reason.remedy,
        fingerprint="",
        error="",
        since=None,
        count=0,
        actions=actions,
    )


def _reason(code: str, text: str, remedy: str) -> ReasonView:
    return ReasonView(policy="", by=FLEET, verb="", code=code, text=text, remedy=remedy, until=None)
