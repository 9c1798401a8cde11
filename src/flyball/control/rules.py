"""What people see of rules, and what they do with what fires them. Computed, as all that people see: from the settings,
the policies' states, the queue in the store and the journal. What a trigger said is never shown: it may be secret."""

import importlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from flyball.config.rules import (
    Action,
    Browse,
    Call,
    Command,
    Cron,
    Every,
    FileChange,
    Http,
    Notify,
    Rule,
    Run,
    SetValues,
    StartUnit,
    Startup,
    StopUnit,
    Trigger,
    UnitEvent,
    Wait,
    Webhook,
)
from flyball.control.context import Args, CommandError, Context, found, unknown_unit
from flyball.control.past import RULE
from flyball.control.shapes import FiringView, RuleView, TriggerView, UnitView
from flyball.control.views import Look
from flyball.core.event import Fired
from flyball.core.policy import Key
from flyball.core.time import Instant, format_span, seconds

FORGOTTEN: Final = "forgotten"
"""Why a firing does not wait any more that a person took from the queue."""

DEEDS: Final = {
    Run: "run",
    Http: "http",
    Call: "call",
    StartUnit: "start",
    StopUnit: "stop",
    Notify: "notify",
    Wait: "wait",
    SetValues: "set",
    Browse: "browser",
}
"""What an action does, by the word that it is written with."""

TIMER: Final = "timer"
"""The name of the records that say when a rule was last due, where policies have theirs."""


class Due(msgspec.Struct, frozen=True):
    """What such a record says to whoever looks."""

    last: Instant = 0


# Commands that look.


def rules(context: Context, args: Args) -> Any:
    look = context.look()
    there = _rules(look)
    wanted = [known_rule(look, name) for name in args["rules"] or ()]
    return {"rules": [view(context, look, rule) for rule in there if not wanted or rule in wanted], "at": _at(look.now)}


def queue(context: Context, args: Args) -> Any:
    look = context.look()
    rule = known_rule(look, args["rule"])
    return {"rule": rule, "queue": _queue(look, look.unit(rule)), "at": _at(look.now)}


def view(context: Context, look: Look, rule: str) -> RuleView:
    """All that there is to see of one rule."""
    seen, defined = look.unit(rule), look.rules.get(rule)
    triggers = tuple(_triggers(look, defined)) if defined is not None else ()
    return RuleView(
        name=rule,
        state=seen.state,
        held=seen.held,
        running=seen.running,
        until=seen.until,
        reasons=seen.reasons,
        defined=defined is not None,
        triggers=triggers,
        when=defined.when if defined is not None else "",
        actions=tuple(_action(action) for action in defined.actions) if defined is not None else (),
        next=min((trigger.next for trigger in triggers if trigger.next is not None), default=None),
        queue=_queue(look, seen),
        waiting=seen.waiting,
        last_run=seen.last_exit,
        counts=dict(context.firings(rule)),
        questions=len(seen.questions),
        priority=defined.priority if defined is not None else 0,
        labels=seen.labels,
    )


def known_rule(look: Look, name: str) -> str:
    """The rule of that name. CommandError if there is none, or it is a unit of another kind."""
    there = _rules(look)
    named = found(name, there)
    if named is not None:
        return named
    if name in look.units():
        text = f"{name} is a unit, and no rule"
        raise CommandError("unknown_unit", text, remedy=f"It is started, not fired: `flyball start {name}`.")
    raise unknown_unit(name, there, text="no rule {!r}", remedy="`flyball rules` lists all rules.")


def _rules(look: Look) -> list[str]:
    return [unit for unit in look.units() if look.kind(unit) == RULE]


# Commands that order.


def trigger(context: Context, args: Args) -> Any:
    """Refused: who can fire a rule is the daemon, which answers this itself. Here nobody would run it."""
    rule = known_rule(context.look(), args["rule"])
    text = f"no daemon runs here, so there is nobody to run {rule}"
    raise CommandError("no_daemon", text, remedy="Start one: `flyball up -d`.")


def forget(context: Context, args: Args) -> Any:
    """Forget what waits in the queue of a rule. A daemon has the queue in its hands, and answers this itself."""
    look = context.look()
    rule = known_rule(look, args["rule"])
    live = {run.run for run in look.unit(rule).live}
    waits = [firing for firing in look.queue(rule) if firing.run not in live]
    for firing in waits:
        fired = Fired(unit=rule, id=firing.id, trigger=firing.trigger, depth=firing.depth, dropped=FORGOTTEN)
        context.governor.submit(fired, {firing.key: None})
    return {"rule": rule, "forgotten": len(waits)}


def refuse_restart(look: Look, units: Iterable[str]) -> None:
    """CommandError if one of them is a rule: its runs are begun by what fires it, and by nothing else."""
    for unit in units:
        if look.kind(unit) == RULE:
            text = f"{unit} is a rule: there is nothing to restart"
            raise CommandError("bad_argument", text, remedy=f"To fire it: `flyball trigger {unit}`.")


# In words.


def in_words(trigger: Trigger) -> str:
    """What fires a rule, for people."""
    match trigger:
        case Every():
            return f"every {format_span(trigger.every)}"
        case Cron():
            return f"cron {trigger.expression} {trigger.timezone}"
        case FileChange():
            return f"file {trigger.pattern} ({', '.join(trigger.on)})"
        case Webhook():
            return f"webhook {trigger.hook}"
        case UnitEvent():
            return f"event {trigger.unit} ({', '.join(trigger.on)})"
        case Command():
            return "command"
        case Startup():
            return "startup"


def _action(action: Action) -> str:
    approved = ", after approval" if action.approve is not None else ""
    deed = DEEDS[type(action.deed)]
    return f"{action.id if action.id == deed else f'{action.id}: {deed}'}{approved}"


def _triggers(look: Look, rule: Rule) -> Iterable[TriggerView]:
    places = [Key(TIMER, "unit", f"{rule.name}/{place}") for place in range(len(rule.triggers))]
    rows = look.governor.store.read(places).records
    for place, one in zip(places, rule.triggers, strict=True):
        yield TriggerView(text=in_words(one), next=_next(one, rows.get(place), look.now))


def _next(trigger: Trigger, row: bytes | None, now: Instant) -> float | None:
    """When a time comes next; None of what is no time, or where nobody has looked at it yet."""
    match trigger:
        case Every():
            due = _due(row)
            return _at(due.last + trigger.every) if due is not None else None
        case Cron():
            return _next_of(trigger, now)
    return None


def _due(row: bytes | None) -> Due | None:
    try:
        return None if row is None else msgspec.json.decode(row, type=Due)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _next_of(cron: Cron, now: Instant) -> float | None:
    try:
        cronsim = importlib.import_module("cronsim")
    except ImportError:  # rules cannot be run here, but looked at
        return None
    after = datetime.fromtimestamp(seconds(now), tz=UTC).astimezone(ZoneInfo(cron.timezone))
    coming: datetime | None = next(cronsim.CronSim(cron.expression, after), None)
    return None if coming is None else coming.timestamp()


def _queue(look: Look, rule: UnitView) -> tuple[FiringView, ...]:
    live = {run.run for run in rule.live}
    return tuple(
        FiringView(
            id=firing.id,
            trigger=firing.trigger,
            at=_at(firing.at),
            attempt=firing.attempt,
            joined=firing.joined,
            depth=firing.depth,
            running=firing.run in live,
            by_person=firing.by_person,
        )
        for firing in look.queue(rule.name)
    )


def _at(instant: Instant) -> float:
    return seconds(instant)
