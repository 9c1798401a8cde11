"""What people read: a group as a message, and what was held back as one. Nothing is decided here."""

from collections.abc import Sequence
from typing import Final

from flyball.control.alerts.channel import TEXT_MAX, TITLE_MAX, Action, ForUser, Message
from flyball.control.alerts.groups import Group, Item
from flyball.control.alerts.notices import BUDGET, KINDS, LISTED, OF_FLEET
from flyball.core.time import Instant, format_span

UNITS_MAX: Final = 5
"""Units that a message names. Of more than this it says how many."""
LINES_MAX: Final = 20
"""Lines of a summary: more is not read on a phone, and it is all in the journal."""
CHOICES_MAX: Final = 4
"""Answers offered as buttons: no channel takes many more, and one more acknowledges it."""
USERS_MAX: Final = 20
"""Users that are told by one message; the newest units beyond them are only known to whoever runs the fleet."""
USER: Final = "user"
"""The label that says whose a unit is."""
OWN: Final[dict[str, str]] = {
    "restart_storm": "the fleet",
    "clock_jumped": "the fleet",
    "too_many_restarts": "the fleet",
    "daemon_started": "flyball",
    "journal_gap": "the journal",
    "hosts_differ": "hosts",
    "test": "this channel",
}
"""Whom a title names where it is no unit."""


def message_of(group: Group, now: Instant, *, url: str = "") -> Message:
    """What people are told of a group."""
    over = bool(group.over)
    items = list((group.was if over else group.items).values())
    newest = max(items, key=lambda item: item.last, default=Item(""))
    units = list(dict.fromkeys(item.unit for item in items if item.unit))
    how_many = len(items) + group.beyond
    kind = KINDS[group.kind]
    who = _who(group, units, newest, how_many)
    title = f"{who} {kind.words}"
    if over:
        title = f"Resolved: {title}"
    return Message(
        title=_cut(title, TITLE_MAX),
        text=_cut("\n".join(_lines(group, units, how_many, now)), TEXT_MAX),
        severity="info" if over else group.severity,
        kind=group.kind,
        unit=newest.unit,
        users=_users(group, items, newest),
        url=url,
        actions=() if over else _actions(group, newest, how_many),
        count=max(group.count, how_many, 1),
        resolved=over,
        at=group.over or group.last,
        tags=(group.kind, group.severity),
        problem=newest.problem,
        group=group.key,
        # Who is told the same once more, hours later, has to see it as new: so also when it was last told anew.
        id=f"{group.key}-{group.opened}-{group.version}-{group.new_at}",
    )


def summary_of(held: Sequence[Message], more: int, now: Instant, *, url: str = "") -> Message:
    """What was held back, in one message."""
    worst = "warning" if any(message.severity != "info" for message in held) else "info"
    lines = [
        f"- {message.title}" + (f" ({message.count} times)" if message.count > 1 else "")
        for message in sorted(held, key=lambda message: (message.resolved, message.at))[:LINES_MAX]
    ]
    beyond = len(held) - LINES_MAX + more if len(held) > LINES_MAX else more
    if beyond > 0:
        lines.append(f"- and {beyond} more: `flyball alerts`")
    still = sum(not message.resolved for message in held) + more
    title = f"While it was quiet: {len(held) + more} alert{'s' * (len(held) + more != 1)}, {still} still open"
    return Message(
        title=title,
        text=_cut("\n".join(lines), TEXT_MAX),
        severity=worst,
        kind="summary",
        url=url,
        count=len(held) + more,
        at=now,
        tags=("summary",),
        group="summary",
        id=f"summary-{now}",
    )


def _users(group: Group, items: Sequence[Item], newest: Item) -> tuple[ForUser, ...]:
    """What each user whose units these are may be told. None of them reads of another's."""
    theirs: dict[str, list[str]] = {}
    for item in items:
        if item.unit and item.labels.get(USER):
            theirs.setdefault(item.labels[USER], []).append(item.unit)
    found = []
    for user, units in list(theirs.items())[:USERS_MAX]:
        who = units[0] if len(units) == 1 else f"{len(units)} of your units: {', '.join(units[:UNITS_MAX])}"
        thread = f"{group.key}-{group.opened}-{user}"
        found.append(
            ForUser(
                user=user,
                title=_cut(f"{'Resolved: ' if group.over else ''}{who} {KINDS[group.kind].words}", TITLE_MAX),
                text=group.text if not group.over and newest.labels.get(USER) == user else "",
                id=f"{thread}-{'over' if group.over else 'told'}",
                thread=thread,
            )
        )
    return tuple(found)


def _who(group: Group, units: Sequence[str], newest: Item, how_many: int) -> str:
    if group.kind == "circuit_open":
        return newest.ref
    if group.kind == "channel_dead":
        return newest.ref
    if group.kind == "host_lost":
        return f"{how_many} hosts" if how_many > 1 else newest.ref.replace("/", " ")
    if group.kind in OWN:
        return OWN[group.kind]
    if len(units) > 1 or how_many > max(1, len(units)) > 1 or group.beyond:
        return f"{max(len(units), how_many) if group.beyond else len(units)} units"
    return units[0] if units else "the fleet"


def _lines(group: Group, units: Sequence[str], how_many: int, now: Instant) -> list[str]:
    lines = [group.text] if group.text else []
    if len(units) > 1:
        named = ", ".join(units[:UNITS_MAX])
        rest = max(len(units), how_many if group.beyond else 0) - UNITS_MAX
        lines.append(f"Units: {named}" + (f" and {rest} more" if rest > 0 else ""))
    if group.kind == "host_lost" and how_many > 1:
        names = [item.ref.partition("/")[2] for item in (group.was if group.over else group.items).values()]
        lines.append(
            f"Hosts: {', '.join(names[:UNITS_MAX])}" + (f" and {how_many - UNITS_MAX} more" * (how_many > UNITS_MAX))
        )
    if group.over:
        lines.append(f"It lasted {format_span(_rounded(max(0, group.over - group.opened)))}.")
        return lines
    if group.count > 1 and group.count > how_many:
        lines.append(f"{group.count} times within {format_span(_rounded(max(0, group.last - group.opened)))}.")
    seen = next((item.seen_by for item in group.items.values() if item.seen_until > now and item.seen_by), "")
    if seen:
        lines.append(f"Seen by {seen}.")
    remedy = _remedy(group)
    if remedy:
        lines.append(remedy)
    return lines


def _remedy(group: Group) -> str:
    """What to do. The same error of several units has a fingerprint in each: to reset one of them is not enough."""
    refs = list(dict.fromkeys(item.ref for item in group.items.values() if item.ref))
    if group.kind != "quarantined" or len(refs) < 2:
        return group.remedy
    more = f" and {len(refs) - UNITS_MAX} more: `flyball failures`" if len(refs) > UNITS_MAX else ""
    return f"Look into them, then `flyball reset` each: {', '.join(refs[:UNITS_MAX])}{more}."


def _actions(group: Group, item: Item, how_many: int) -> tuple[Action, ...]:
    """The one safe thing to do, where there is one and it is about one thing; and that somebody has seen it."""
    found: list[Action] = []
    if group.kind in OF_FLEET:
        found.append(Action(label="Resume the fleet", verb="resume", destructive=True))
    elif group.kind == "circuit_open":
        found.append(Action(label="Close the circuit", verb="reset", args={"breaker": item.ref}, destructive=True))
    elif how_many == 1 and item.unit:
        found.extend(_actions_of_unit(group, item))
    if group.kind in LISTED and item.problem:
        found.append(Action(label="Acknowledge", verb="acknowledge", args={"problem": item.problem}))
    return tuple(found)


def _actions_of_unit(group: Group, item: Item) -> list[Action]:
    if group.kind == "quarantined" and item.ref:
        return [Action(label=f"Reset {item.ref}", verb="reset", args={"fingerprint": item.ref})]
    if group.kind == "question":
        return [
            Action(label=choice, verb="answer", args={"unit": item.unit, "id": item.ref, "answer": choice})
            for choice in item.choices[:CHOICES_MAX]
        ]
    if group.kind in BUDGET:
        args = {"unit": item.unit, "more": "1.00", "resume": True}
        return [Action(label="Raise by 1.00 USD and resume", verb="raise", args=args)]
    if KINDS[group.kind].policy:
        return [Action(label="Resume", verb="resume", args={"units": [item.unit]})]
    return []


def _rounded(length: int) -> int:
    """To whole seconds: it is for reading."""
    return round(length / 1_000_000) * 1_000_000


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
