"""Words for people: a line for each entry of the journal, tables, times. Plain text; colours are the caller's business.

The present is an argument here too.
"""

import signal
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from flyball.control.past import RULE, RUNTIME
from flyball.core.amounts import amounts_text
from flyball.core.codec import decode_body
from flyball.core.decision import Decision, Verb
from flyball.core.event import (
    Acknowledged,
    Answered,
    Asked,
    Beat,
    Booted,
    Cause,
    Event,
    Exited,
    Fired,
    Held,
    Joined,
    Left,
    Ordered,
    Raised,
    Released,
    Resume,
    Revise,
    Settled,
    Start,
    Step,
    Stepped,
)
from flyball.core.time import DAY, FOREVER, MILLISECOND, MINUTE, SECOND, Instant, Span, format_span, span
from flyball.policies.restart import ENDED_BY_POLICY
from flyball.store import Entry

SHORT: Final = 8
"""Digits of a fingerprint that are shown: with a thousand kinds of failures, two of them meet once in ten thousand
fleets, and then more digits are asked for."""
CELL_MAX: Final = 60
"""Characters of one cell of a table that is not the last."""
LAST_MIN: Final = 32
"""Characters that are kept for the last column where a terminal is narrow: it says why, in a few words."""
NARROW_MIN: Final = 24
"""No column is made narrower than this for it: the longest state with `(running)` fits."""


def short(fingerprint: str) -> str:
    """A fingerprint as it is shown."""
    return fingerprint[:SHORT]


# Times.


def clock_time(at: float, now: float) -> str:
    """An instant (Unix seconds) in local time; with its date if it is not of the last day."""
    when = datetime.fromtimestamp(at, tz=UTC).astimezone()
    return when.strftime("%H:%M:%S" if abs(now - at) < DAY / SECOND else "%Y-%m-%d %H:%M:%S")


def length(seconds: float) -> str:
    """A length as it is read at a glance: no more exact than it has to be."""
    whole = max(0, span(seconds))
    return format_span(_rounded(whole))


def _rounded(whole: Span) -> Span:
    if whole < 10 * MILLISECOND:
        return whole
    if whole < SECOND:
        return round(whole, -3)
    return round(whole, -5) if whole < MINUTE else whole // SECOND * SECOND


def ago(at: float | None, now: float) -> str:
    """How long since."""
    return "" if at is None else length(now - at)


def times(count: int) -> str:
    """How often: `once`, `6 times`."""
    return "once" if count == 1 else f"{count} times"


def counted(count: int, what: str) -> str:
    """How many: `1 step`, `6 steps`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


# What happened.


def exit_text(cause: str, error: str, code: int | None, number: int | None, fingerprint: str = "") -> str:
    """How a run ended: `error: exit 3 (7f3a9c21)`."""
    how = error
    if not how and number is not None:
        how = signal_name(number)
    elif not how and code is not None:
        how = f"exit {code}"
    text = f"{cause}: {how}" if how and how != cause else cause
    return f"{text} ({short(fingerprint)})" if fingerprint and cause not in (Cause.DONE, Cause.STOPPED) else text


def signal_name(number: int) -> str:
    """`SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe(event: Event, decision: Decision, now: Instant) -> str:
    """What happened and what was decided, in one line, without the unit's name."""
    said = _said(event, decision)
    if decision.proceeds:
        nudges = [reason.text for reason in decision.reasons] if isinstance(event, Stepped) else []
        return "; ".join([said, *nudges])
    if isinstance(event, Exited) and _is_of_a_rule(event) and _only_ends(decision):
        return said  # what comes next for a rule is what fires it
    return f"{said}; {answer_text(decision, now)}" if said else answer_text(decision, now)


def _is_of_a_rule(event: Event) -> bool:
    return event.labels.get(RUNTIME) == RULE


def _action(pattern: str) -> str:
    """The action that a step of a rule is: `fetch` of `fetch:watch-price`."""
    return pattern.rpartition(":")[0] or pattern


def _only_ends(decision: Decision) -> bool:
    """Whether all that it says is that no other run follows by itself."""
    return decision.verb is Verb.FINISH and all(
        code.startswith("ended_") and code != ENDED_BY_POLICY for code in decision.codes
    )


def answer_text(decision: Decision, now: Instant) -> str:
    """A decision in one line: what follows, and why."""
    texts = [reason.text for reason in decision.reasons if reason.verb is decision.verb]
    why = f": {'; '.join(texts)}" if texts else ""
    match decision.verb:
        case Verb.WAIT if decision.until < FOREVER:
            does = f"waits {format_span(_rounded(max(0, decision.until - now)))}"
        case Verb.WAIT:
            does = "waits"
        case Verb.FINISH:
            does = "ends"
        case Verb.STOP:
            does = "is stopped"
        case Verb.HOLD:
            does = "is held"
        case _:
            return f"goes on{why}"
    return does + why


def _said(event: Event, decision: Decision) -> str:
    granted = decision.proceeds
    match event:
        case Resume():
            source = f"checkpoint {event.checkpoint}" if event.checkpoint else "a checkpoint"
            return f"resumed from {source}" if granted else "asked to resume"
        case Start(again=True):
            after = f" after {format_span(_rounded(event.down))}" if event.down else ""
            return f"started again{after}" if granted else "asked to start again"
        case Start():
            return "started" if granted else "asked to start"
        case Step() if _is_of_a_rule(event):
            return f"action {_action(event.pattern)}" if granted else f"asked to do action {_action(event.pattern)}"
        case Step():
            return (
                f"{event.steps} steps granted"
                if granted and event.steps > 1
                else "a step"
                if granted
                else "asked to step"
            )
        case Revise():
            by = f" by {event.by}" if event.by else ""
            cleared = "".join(f": {reason.text}" for reason in decision.reasons) if granted else ""
            return f"definition {short(event.revision)}{by}{cleared}"
        case Stepped() if _is_of_a_rule(event):
            return "; ".join(f"action {_action(one.pattern)} {'failed' if one.error else 'done'}" for one in event.done)
        case Stepped():
            made = sum(work.times for work in event.done)
            return f"{made} steps made" if made != 1 else "a step made"
        case Beat():
            return "alive" if granted else ""
        case Asked():
            return f"asks a person: {question_text(event.text, event.choices)}"
        case Answered():
            return _answered(event)
        case Fired():
            after = f", {counted(event.depth, 'rule')} deep" if event.depth else ""
            dropped = f"; dropped: {event.dropped}" if event.dropped else ""
            return f"fired by {event.trigger}{after}{dropped}"
        case Exited(pause=pause) if pause:
            return f"paused for {pause}"
        case Exited():
            return "exited: " + exit_text(event.cause, event.error, event.code, event.signal, event.fingerprint)
        case Booted():
            return f"a supervisor started with {event.units} units"
        case Joined():
            return f"host {event.host} joined"
        case Left(lost=True):
            by = f", found by {event.by}" if event.by else ""
            return f"host {event.host} lost with {counted(event.runs, 'run')}{by}"
        case Left():
            return f"host {event.host} left"
        case Held():
            ordered = {Verb.HOLD: "paused", Verb.STOP: "stopped", Verb.FINISH: "told to finish"}.get(event.verb, "held")
            return f"{ordered} by {_person(event)}{_scope(event)}"
        case Released():
            what = (
                f"failure {short(event.fingerprint)}" if event.fingerprint else ", ".join(event.policies) or "all holds"
            )
            return f"released by {_person(event)}{_scope(event)}: {what}"
        case Settled():
            used, reserved = amounts_text(event.used), amounts_text(event.reserved)
            return f"settled by {_person(event)}: {used} used of {reserved} reserved"
        case Raised():
            return f"budget raised by {_person(event)}{_scope(event)}: {amounts_text(event.more)} more"
        case Acknowledged():
            return _acknowledged(event)
        case Ordered():
            return ordered_text(event)
    return type(event).__name__.lower()


def question_text(text: str, choices: Sequence[str]) -> str:
    """A question with the answers that are allowed."""
    return f"{text} ({', '.join(choices)})" if choices else text


def _answered(event: Answered) -> str:
    if event.answer is None:
        return f"asks no more: {event.note}" if event.note else "asks no more"
    if not event.heard:
        return f"nobody answered: takes {event.answer}"
    return f"answered by {_person(event)}: {event.answer}"


def _acknowledged(event: Acknowledged) -> str:
    """The unit is said already: of the problem's id what follows it."""
    what = event.problem.removeprefix(f"{event.unit}:") if event.unit else event.problem
    until = "" if event.until >= FOREVER else f" until {_utc(event.until)}"
    return f"{what} {'snoozed' if until else 'seen'} by {_person(event)}{until}"


def _utc(at: Instant) -> str:
    return datetime.fromtimestamp(at / SECOND, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")


def ordered_text(event: Ordered) -> str:
    """What somebody asked for, and what came of it: a line of the audit trail."""
    asked = f" {event.asked}" if event.asked else ""
    by = f"{event.by or 'a person'} via {event.channel}" if event.channel else event.by or "a person"
    effect = f": {event.effect}" if event.effect else ""
    return f"{by} asked to {event.verb}{asked}{f'; refused ({event.refused})' if event.refused else ''}{effect}"


def _person(event: Held | Released | Answered | Settled | Raised | Acknowledged) -> str:
    return (event.by or "a person") + (f" {event.note}" if event.note else "")


def _scope(event: Held | Released | Raised) -> str:
    whose = f" {event.labels[event.scope]}" if event.scope in event.labels else ""
    return "" if event.scope == "unit" else f" for the {event.scope}{whose}"


def entry_text(event: Event, decision: Decision, at: Instant) -> str:
    """An entry of the journal in one line. What follows an order is said by the order itself."""
    told = isinstance(event, Held | Released | Raised)
    return _said(event, decision) if told else describe(event, decision, at)


def entry_data(entry: Entry) -> dict[str, Any]:
    """An entry of the journal as data: what it says, in words and in fields."""
    body = decode_body(entry.body)
    event, decision = body.event, body.decision
    return {
        "seq": entry.seq,
        "at": entry.at / SECOND,
        "unit": entry.unit,
        "event": entry.event,
        "verb": entry.verb,
        "until": None if decision.until >= FOREVER else decision.until / SECOND,
        "text": entry_text(event, decision, entry.at),
        "reasons": msgspec.to_builtins(decision.reasons),
        "data": msgspec.to_builtins(event),
    }


def event_line(data: Mapping[str, Any], now: float, *, unit: bool = True) -> str:
    """One line for an entry that was made into data."""
    who = f"{data['unit'] or 'fleet'}: " if unit else ""
    return f"{clock_time(data['at'], now)}  {who}{one_line(data['text'])}"


# Tables.


def one_line(text: str) -> str:
    """Without line breaks and other control characters: what a unit's error says must not steer a terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Lines of a table; the last column is cut off at the width. It keeps some room: before that the others but the
    first, which names what people type, are made narrower, the widest first."""
    cells = [[one_line(cell) for cell in row] for row in (head, *rows)]
    last = len(head) - 1
    widths = [min(CELL_MAX, max(len(row[place]) for row in cells)) for place in range(last)]
    wanted = min(LAST_MIN, max(len(row[last]) for row in cells))
    while width is not None and sum(widths) + 2 * last + wanted > width and max(widths[1:], default=0) > NARROW_MIN:
        widths[1 + widths[1:].index(max(widths[1:]))] -= 1
    lines = []
    for row in cells:
        line = "  ".join([*(f"{_cut(row[place], widths[place]):<{widths[place]}}" for place in range(last)), row[last]])
        lines.append((line if width is None else _cut(line, width)).rstrip())
    return lines


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(1, width - 1)] + "…"
