"""Rules beside each other, and beside units: names that are there twice, units that are not there, waits that do not
fit, and rules that fire each other for ever.

A rule fires another one by what happens to it, by starting it, or by a request to its webhook. Where the other one has
no condition, or one that always holds, and nobody has to be asked before, that is certain: a circle of such is
refused. Any other circle has a way out, and is advice.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from flyball.config.expressions import ConditionError, compiled
from flyball.config.rule_names import ROOTS
from flyball.config.rules import (
    Action,
    Browse,
    Deed,
    Http,
    Rule,
    StartUnit,
    StopUnit,
    UnitEvent,
    Wait,
    Webhook,
    When,
)
from flyball.config.section import Fault
from flyball.core.name import IN_WORDS, is_name
from flyball.core.preflight import find_circle
from flyball.core.time import Span, format_span

CIRCLES_MAX: Final = 10
"""Circles that are told at once. Whoever has more has one cause for them."""
CERTAIN: Final = frozenset({When.STARTED, When.DONE})
"""What happens to every rule that nothing is wrong with."""
HERE: Final = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1", "::"})  # noqa: S104 - compared with, not bound
"""Names of this machine."""
HOOKS: Final = "/hooks/"
REMEDY: Final = "a condition (`when`), or let a person be asked (`approve`)."

Path = tuple[str | int, ...]


def faults(rules: Sequence[Rule], units: Collection[str], listen: str) -> list[Fault]:
    """All that is wrong with rules beside each other."""
    found: list[Fault] = []
    names = {rule.name for rule in rules}
    hooks: dict[str, tuple[str, str]] = {}
    secrets: set[tuple[str, str]] = set()
    for rule in rules:
        found += _names(rule, units)
        for place, trigger in enumerate(rule.triggers):
            if isinstance(trigger, Webhook):
                here = f"rules.{rule.name}.triggers[{place}]"
                owner, first = hooks.setdefault(trigger.hook, (rule.name, here))
                # A rule has a hook twice while its secret is changed.
                is_known = owner != rule.name or (trigger.hook, trigger.secret) in secrets
                secrets.add((trigger.hook, trigger.secret))
                if is_known:
                    path = ("rules", rule.name, "triggers", place, "webhook")
                    found.append(Fault(path, f"there is a webhook {trigger.hook!r} already, in {first}"))
        found += _units(rule, names, units)
        found += _waits(rule)
    return found or [_drawn(circle) for circle in circles(rules, listen)]


def _names(rule: Rule, units: Collection[str]) -> Iterator[Fault]:
    if not is_name(rule.name):
        yield Fault(("rules", rule.name), f"a name has {IN_WORDS}", at_key=True)
    if rule.name in units:
        yield Fault(("rules", rule.name), "there is a unit of that name: give one of them another", at_key=True)


def _units(rule: Rule, rules: Collection[str], units: Collection[str]) -> Iterator[Fault]:
    for path, deed in deeds_of(rule):
        if isinstance(deed, StartUnit | StopUnit) and "{{" not in deed.unit:
            if deed.unit in units or deed.unit in rules:
                continue
            near = get_close_matches(deed.unit, [*units, *rules], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            key = "start" if isinstance(deed, StartUnit) else "stop"
            yield Fault((*path, key), f"there is no unit or rule {deed.unit!r}{hint}")


def deeds_of(rule: Rule) -> Iterator[tuple[Path, Deed]]:
    """What it does and what takes that back, each with its path."""
    for place, action in enumerate(rule.actions):
        yield ("rules", rule.name, "actions", place), action.deed
        if action.undo is not None:
            yield ("rules", rule.name, "actions", place, "undo"), action.undo


def _waits(rule: Rule) -> Iterator[Fault]:
    """Waits are certain, so a time that is shorter than they are is never enough."""
    total = 0
    for place, action in enumerate(rule.actions):
        waited = waits_of(action.deed)
        if waited > action.timeout:
            path = ("rules", rule.name, "actions", place, "timeout")
            text = f"{format_span(action.timeout)} are shorter than its waits, {format_span(waited)}"
            yield Fault(path, text)
            return
        total += waited
    if total > rule.timeout:
        text = f"{format_span(rule.timeout)} are shorter than the waits of its actions, {format_span(total)} in all"
        yield Fault(("rules", rule.name, "limits", "timeout"), text)


def waits_of(deed: Deed) -> Span:
    """How long it lasts at least."""
    if isinstance(deed, Wait):
        return deed.length
    if isinstance(deed, Browse):
        return sum(step.timeout for step in deed.steps if step.verb == "wait" and not step.target)
    return 0


# Who fires whom.


class Link(NamedTuple):
    """One rule fires another one."""

    rule: str
    fires: str
    why: str


def circles(rules: Sequence[Rule], listen: str, *, certain: bool = True) -> list[tuple[Link, ...]]:
    """Rules that fire each other, each circle as its links. Certain ones, or also those that have a way out."""
    if not any(_is_link(rule) for rule in rules):
        return []
    named = {rule.name: rule for rule in rules}
    found: list[tuple[Link, ...]] = []
    while len(found) < CIRCLES_MAX:
        web = _Web(named, listen, certain)
        circle = [node for node in find_circle(web.edges) if node in named]
        if not circle:
            break
        found.append(tuple(web.link(one, other) for one, other in zip(circle, [*circle[1:], circle[0]], strict=True)))
        for name in circle:
            del named[name]
    return found


def _drawn(circle: Sequence[Link]) -> Fault:
    first = circle[0].rule
    what, whom = (
        ("this rule fires itself", "it") if len(circle) == 1 else ("these rules fire each other", "one of them")
    )
    lines = [f"  {link.rule} -> {link.fires}  ({link.why})" for link in circle]
    return Fault(("rules", first), "\n".join([f"{what} for ever:", *lines, f"Give {whom} {REMEDY}"]), at_key=True)


def _is_link(rule: Rule) -> bool:
    return any(isinstance(trigger, UnitEvent) for trigger in rule.triggers) or any(
        isinstance(deed, StartUnit | Http) for _, deed in deeds_of(rule)
    )


@dataclass(slots=True)
class _Web:
    """All rules, and whom each of them fires. A pattern of names is a node between those that it matches and those who
    have it: a thousand rules on `*` are two thousand edges, not a million."""

    rules: Mapping[str, Rule]
    listen: str
    certain: bool
    edges: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        hooks = {
            trigger.hook: rule.name
            for rule in self.rules.values()
            for trigger in rule.triggers
            if isinstance(trigger, Webhook)
        }
        for rule in self.rules.values():
            fires = self.edges.setdefault(rule.name, [])
            if not self.certain or not _asks(rule.actions):
                fires.append(_done(rule.name))
            for action in self._sure(rule.actions):
                other = _started(action.deed) or hooks.get(_posted(action.deed, self.listen), "")
                if other in self.rules and self._may_fire(other):
                    fires.append(other)
            for trigger in rule.triggers:
                if isinstance(trigger, UnitEvent) and self._may_fire(rule.name) and self._counts(trigger):
                    self.edges.setdefault(_done(trigger.unit), []).append(rule.name)
        for node in [node for node in self.edges if "*" in node]:
            matches = pattern_of(node.removeprefix(_done(""))).fullmatch
            for name in self.rules:
                if matches(name) and _done(name) in self.edges[name]:
                    self.edges[name].append(node)

    def _may_fire(self, rule: str) -> bool:
        return not self.certain or _always_holds(self.rules[rule].when)

    def _counts(self, trigger: UnitEvent) -> bool:
        return not self.certain or not CERTAIN.isdisjoint(trigger.on)

    def _sure(self, actions: Sequence[Action]) -> Iterable[Action]:
        """Those before which nobody has to be asked."""
        for action in actions:
            if self.certain and _asks((action,)):
                return
            yield action

    def link(self, one: str, other: str) -> Link:
        """Why the one fires the other."""
        rule, fired = self.rules[one], self.rules[other]
        condition = "" if _always_holds(fired.when) else ", if its condition holds"
        for trigger in fired.triggers:
            if isinstance(trigger, UnitEvent) and self._counts(trigger) and pattern_of(trigger.unit).fullmatch(one):
                on = next((when for when in trigger.on if when in CERTAIN), trigger.on[0])
                happens = f"{'has ' if on is When.STARTED else 'is '}{on.value}" if on is not When.FAILED else "failed"
                return Link(one, other, f"{other} is fired when {one} {happens}{condition}")
        for action in rule.actions:
            if _started(action.deed) == other:
                return Link(one, other, f"{one} starts {other} in its action {action.id}{condition}")
        hook = next(trigger.hook for trigger in fired.triggers if isinstance(trigger, Webhook))
        action = next(action for action in rule.actions if _posted(action.deed, self.listen) == hook)
        return Link(one, other, f"{one} sends a request to the webhook of {other} in its action {action.id}{condition}")


def _done(name: str) -> str:
    """The node of what happens to a rule. No rule is called so."""
    return f"event {name}"


def _always_holds(when: str) -> bool:
    """Whether it is none, or looks at nothing that could change: such as `true`."""
    if not when:
        return True
    if "trigger" in when or any(root in when for root in ROOTS):  # quickly said of nearly all
        return False
    try:
        condition = compiled(when)
        return not condition.reads and condition.holds({})
    except ConditionError:  # then its runs fail, and a failure is a way out
        return False


def _asks(actions: Sequence[Action]) -> bool:
    """Whether a person may say no, or say nothing."""
    return any(action.approve is not None and not action.approve.default for action in actions)


def _started(deed: Deed) -> str:
    return deed.unit if isinstance(deed, StartUnit) else ""


def _posted(deed: Deed, listen: str) -> str:
    """The name of our own webhook that a request goes to; none: empty."""
    if not isinstance(deed, Http) or deed.method != "POST" or HOOKS not in deed.url:
        return ""
    try:
        url, ours = urlsplit(deed.url), urlsplit(f"http://{listen}")
        same = url.port == ours.port and (url.hostname == ours.hostname or {url.hostname, ours.hostname} <= HERE)
    except ValueError:
        return ""
    return url.path.removeprefix(HOOKS) if same and url.path.startswith(HOOKS) else ""


def pattern_of(name: str) -> re.Pattern[str]:
    """Names that are meant by one in which `*` stands for any letters."""
    return re.compile(".*".join(re.escape(part) for part in name.split("*")))
