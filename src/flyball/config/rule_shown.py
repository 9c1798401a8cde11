"""Rules as they are printed: as they would stand in a file, with what holds by default, and without secrets."""

from collections.abc import Sequence
from typing import Any

from flyball.config.rules import (
    Action,
    BrowserStep,
    Call,
    Command,
    Cron,
    Deed,
    Every,
    FileChange,
    Http,
    Notify,
    Rule,
    Run,
    SetValues,
    StartUnit,
    StopUnit,
    Trigger,
    UnitEvent,
    Wait,
    Webhook,
)
from flyball.config.unit_settings import HIDDEN
from flyball.core.time import SECOND, format_span


def rules_shown(rules: Sequence[Rule]) -> dict[str, Any]:
    """As they are printed: without secrets."""
    return {rule.name: rule_shown(rule) for rule in rules}


def rule_shown(rule: Rule) -> dict[str, Any]:
    """A rule as it would stand in a file, with what holds by default, and without secrets."""
    limits = {
        "timeout": format_span(rule.timeout),
        "concurrency": rule.runs_max,
        "rate": f"{rule.pace.starts}/{format_span(rule.pace.window)}" if rule.pace is not None else None,
        "queue": rule.queue_max,
    }
    return {
        "labels": dict(rule.labels),
        "priority": rule.priority,
        "triggers": [_trigger_shown(trigger) for trigger in rule.triggers],
        "when": rule.when,
        "actions": [_action_shown(action) for action in rule.actions],
        "on_error": rule.on_error.value,
        "restart": "on-failure" if rule.runs_again else "never",
        "limits": limits,
    }


def _trigger_shown(trigger: Trigger) -> dict[str, Any]:
    match trigger:
        case Every():
            return {"every": format_span(trigger.every)}
        case Cron():
            return {"cron": trigger.expression, "timezone": trigger.timezone, "missed": trigger.missed.value}
        case FileChange():
            return {"file": trigger.pattern, "on": [*trigger.on]}
        case Webhook():
            return {"webhook": trigger.hook, "secret": HIDDEN, "tolerance": format_span(trigger.tolerance)}
        case UnitEvent():
            return {"event": trigger.unit, "on": [when.value for when in trigger.on]}
        case Command():
            return {"command": True}
    return {"startup": True}


def _action_shown(action: Action) -> dict[str, Any]:
    attempts, approve = action.attempts, action.approve
    shown: dict[str, Any] = {
        "id": action.id,
        **_deed_shown(action.deed),
        "retry": {
            "max_attempts": attempts.most,
            "base_delay_seconds": attempts.first / SECOND,
            "exponential_base": attempts.factor,
        },
        "timeout": format_span(action.timeout),
    }
    if approve is not None:
        shown["approve"] = {
            "text": approve.text,
            "timeout": format_span(approve.timeout),
            "default": approve.default,
        }
    if action.undo is not None:
        shown["undo"] = _deed_shown(action.undo)
    return shown


def _deed_shown(deed: Deed) -> dict[str, Any]:
    match deed:
        case Run():
            return {"run": [*deed.command], "cwd": deed.cwd, "env": dict.fromkeys(deed.env, HIDDEN)}
        case Http():
            hidden = dict.fromkeys(deed.headers, HIDDEN)
            request = {"url": deed.url, "method": deed.method, "headers": hidden, "expect": [*deed.expect]}
            return {"http": request | ({"text": deed.text} if deed.text else {"json": deed.json})}
        case Call():
            return {"call": deed.function, "with": dict(deed.arguments)}
        case StartUnit():
            return {"start": deed.unit}
        case StopUnit():
            return {"stop": deed.unit}
        case Notify():
            return {"notify": deed.text}
        case Wait():
            return {"wait": format_span(deed.length)}
        case SetValues():
            return {"set": dict(deed.values)}
    return {"browser": [_step_shown(step) for step in deed.steps]}


def _step_shown(step: BrowserStep) -> dict[str, Any]:
    match step.verb:
        case "fill":
            return {"fill": {"selector": step.target, "text": step.text}}
        case "extract":
            return {"extract": {"selector": step.target, "as": step.name}}
        case "wait" if not step.target:
            return {"wait": format_span(step.timeout)}
    return {step.verb: step.target}
