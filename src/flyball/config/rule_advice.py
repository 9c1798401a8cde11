"""What the numbers of rules multiply to: limits that can never be reached, times that are too short, names that nobody
has, packages that are missing. Each value is fine by itself, so this is advice and not an error.
"""

import importlib.util
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache, partial
from typing import Final

from flyball.config.rule_fit import circles, deeds_of, pattern_of
from flyball.config.rules import QUEUE_MAX, Attempts, Browse, FileChange, Http, OnError, Rule, UnitEvent, Webhook
from flyball.config.section import Fault
from flyball.config.settings import Settings
from flyball.core.time import MINUTE, Span, format_span, span

SAME_MAX: Final = 10
"""Rules that are told of one kind of oddity; of further ones, how many they are."""


def rule_advice(settings: Settings) -> Iterator[Fault]:
    """All that is odd about the rules of these settings."""
    yield from _common_rate(settings)
    names = {unit.name for unit in settings.units} | {rule.name for rule in settings.rules}
    checks: tuple[Callable[[Rule], Iterator[Fault]], ...] = (
        partial(_rate, settings),
        partial(_queue, settings),
        _retry,
        partial(_events, names),
        _undo,
        _packages,
    )
    for check in checks:
        more = 0
        for count, odd in enumerate(odd for rule in settings.rules for odd in check(rule)):
            if count < SAME_MAX:
                yield odd
            else:
                more, last = count - SAME_MAX + 1, odd
        if more:
            yield Fault(("rules",), f"and {more} more like: {'.'.join(map(str, last.path[1:]))}: {last.text}")
    for circle in circles(settings.rules, settings.rule.listen, certain=False):
        around = " -> ".join([link.rule for link in circle] + [circle[0].rule])
        text = f"may fire {'itself' if len(circle) == 1 else 'each other'} again and again: {around}"
        yield Fault(("rules", circle[0].rule), f"{text} ({'; '.join(link.why for link in circle)})", at_key=True)


def _common_rate(settings: Settings) -> Iterator[Fault]:
    if not settings.rules:
        return
    most = max(_steps(rule) for rule in settings.rules)
    text = _loop_is_out_of_reach(settings, settings.rule.max_runs_per_minute, MINUTE, most)
    if text:
        yield Fault(("rule", "max_runs_per_minute"), f"{text} of any rule")


def _rate(settings: Settings, rule: Rule) -> Iterator[Fault]:
    if rule.pace is None:
        return
    text = _loop_is_out_of_reach(settings, rule.pace.starts, rule.pace.window, _steps(rule))
    if text:
        yield Fault(("rules", rule.name, "limits", "rate"), f"{text}; its rate alone bounds it")


def _steps(rule: Rule) -> int:
    """The most steps of one pattern in one run: each attempt of an action is one."""
    return max(action.attempts.most for action in rule.actions)


def _loop_is_out_of_reach(settings: Settings, starts: int, window: Span, steps: int) -> str:
    safety = settings.safety
    loop = span(safety.loop_window_seconds)
    runs = starts * math.ceil(loop / window)
    if runs * steps >= safety.max_loop_iterations:
        return ""
    text = f"a loop is told at {safety.max_loop_iterations} steps within {format_span(loop)} (safety."
    return f"{text}max_loop_iterations), which are never reached: {runs} runs of {steps} attempts are let through"


def _queue(settings: Settings, rule: Rule) -> Iterator[Fault]:
    most = settings.rule.max_queued
    if rule.queue_max > most and rule.queue_max != QUEUE_MAX:
        text = f"{rule.queue_max} are never reached: of all rules together {most} wait (rule.max_queued)"
        yield Fault(("rules", rule.name, "limits", "queue"), text)


def _retry(rule: Rule) -> Iterator[Fault]:
    for place, action in enumerate(rule.actions):
        waits = _waits(action.attempts)
        path = ("rules", rule.name, "actions", place)
        if waits >= rule.timeout:
            text = f"{action.attempts.most} attempts are never made: the waits between them last {format_span(waits)},"
            yield Fault((*path, "retry"), f"{text} and a run {format_span(rule.timeout)}")
        elif action.timeout < rule.timeout and action.attempts.most * action.timeout + waits > rule.timeout:
            text = f"{action.attempts.most} attempts of {format_span(action.timeout)}, with the waits between them,"
            yield Fault((*path, "timeout"), f"{text} do not fit into a run of {format_span(rule.timeout)}")


@lru_cache(maxsize=1_000)
def _waits(attempts: Attempts) -> Span:
    """How long the waits between all attempts last. Most rules have the same."""
    total, delay = 0, float(attempts.first)
    for _ in range(attempts.most - 1):
        total += round(min(delay, float(MINUTE * 10**9)))
        delay = min(delay * attempts.factor, float(MINUTE * 10**9))
    return total


def _events(names: Collection[str], rule: Rule) -> Iterator[Fault]:
    """A unit may be one of a program, which no settings name: so this is no error."""
    for place, trigger in enumerate(rule.triggers):
        if isinstance(trigger, UnitEvent) and not _is_there(trigger.unit, names):
            text = f"no unit or rule of these settings is called {trigger.unit!r}; fine if it is one of a program"
            yield Fault(("rules", rule.name, "triggers", place, "event"), text)


def _is_there(name: str, names: Collection[str]) -> bool:
    return name in names or ("*" in name and any(map(pattern_of(name).fullmatch, names)))


def _packages(rule: Rule) -> Iterator[Fault]:
    """It can be checked without them, on another machine than it runs on: so this is no error."""
    parts = [(("rules", rule.name, "triggers", place), trigger) for place, trigger in enumerate(rule.triggers)]
    for path, part in [*parts, *deeds_of(rule)]:
        key, modules, extra = _NEEDED.get(type(part), ("", (), ""))
        missing = next((module for module in modules if not is_installed(module)), "")
        if missing:
            text = f"needs the package {missing}, which is not installed here: pip install 'flyball-governor[{extra}]'"
            yield Fault((*path, key), text)


_NEEDED: Final[Mapping[type, tuple[str, tuple[str, ...], str]]] = {
    FileChange: ("file", ("watchfiles",), "rules"),
    Webhook: ("webhook", ("uvicorn", "starlette"), "rules"),
    Http: ("http", ("httpx",), "rules"),
    Browse: ("browser", ("playwright",), "browser"),
}
"""Of triggers and deeds: the word that they are written with, the packages they run with, and the extra that has these.
What cannot even be checked without its package, a condition and a cron, is refused without it."""


@lru_cache(maxsize=10)
def is_installed(module: str) -> bool:
    """Whether there is such a package."""
    return importlib.util.find_spec(module) is not None


def _undo(rule: Rule) -> Iterator[Fault]:
    undone = [place for place, action in enumerate(rule.actions) if action.undo is not None]
    if rule.on_error is OnError.ROLLBACK and not undone:
        yield Fault(("rules", rule.name, "on_error"), "nothing is taken back: none of its actions has an `undo`")
    if rule.on_error is not OnError.ROLLBACK and undone:
        path = ("rules", rule.name, "actions", undone[0], "undo")
        yield Fault(path, "is never done: it takes `on_error: rollback`")
