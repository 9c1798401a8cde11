"""The command that tells how a unit came to be what it is: its last exits, where it stands on the ladder of waits, how
it flaps, and what happened, in words. From its entries in the journal and the states of its own policies."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from flyball.control.context import Args, Context, bounded, known_unit
from flyball.control.text import entry_text
from flyball.control.views import Look
from flyball.core.codec import Body, decode_body
from flyball.core.decision import Decision, Reason, Verb
from flyball.core.event import (
    Acknowledged,
    Answered,
    Asked,
    Beat,
    Event,
    Exited,
    Held,
    Ordered,
    Raised,
    Released,
    Settled,
    Start,
    Step,
    Stepped,
)
from flyball.core.time import Instant, seconds
from flyball.errors import StoreCorrupt
from flyball.policies import Cooldown, Quarantine
from flyball.store import Entry

EXITS_MAX: Final = 500
"""Exits in one answer, and as many moments of the timeline."""
ENTRIES_MAX: Final = 5_000
"""Entries of the unit that are read: the newest. What lies before them is in the journal."""
RUNGS_MAX: Final = 32
"""Waits of a ladder that are shown, where no quarantine ends it."""

GOOD: Final = "good"
BUSY: Final = "busy"
BAD: Final = "bad"
PLAIN: Final = ""
TONES: Final = {Verb.PROCEED: PLAIN, Verb.WAIT: BUSY, Verb.FINISH: BUSY, Verb.STOP: BAD, Verb.HOLD: BAD}
"""How what was decided sounds. The page has a colour for each."""


def history(context: Context, args: Args) -> Any:
    """One unit's past and where it stands."""
    limit = bounded(args, "limit", EXITS_MAX)
    look = context.look()
    unit = known_unit(look, args["unit"])
    told = list(_told(context.governor.store.last_entries(limit=ENTRIES_MAX, unit=unit)))
    flaps = look.policy_state(unit)
    moments = _without_echoes([(entry, body) for entry, body in told if _is_a_moment(body.event, body)])
    return {
        "unit": unit,
        "exits": _exits(told)[-limit:] if limit else [],
        "ladder": _ladder(look, unit),
        "flaps": {
            "state": flaps.state,
            "consecutive": flaps.consecutive_flaps,
            "in_window": flaps.exits_in_window,
        },
        "timeline": [_moment(entry, body) for entry, body in moments[-limit:]] if limit else [],
        "at": seconds(look.now),
    }


def _told(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Body]]:
    """What can be read of them: who looks at the rest is not kept from it by one that cannot."""
    for entry in entries:
        try:
            yield entry, decode_body(entry.body)
        except StoreCorrupt:
            continue


def _exits(told: Sequence[tuple[Entry, Body]]) -> list[dict[str, Any]]:
    """How its runs ended, the oldest first."""
    began: dict[str, Instant] = {}
    found = []
    for entry, body in told:
        match body.event:
            case Start(run=run) if body.decision.proceeds:
                began[run] = entry.at
            case Exited() as ended:
                start = began.pop(ended.run, None)
                found.append(
                    {
                        "at": seconds(entry.at),
                        "seq": entry.seq,
                        "cause": str(ended.cause),
                        "error": ended.error,
                        "code": ended.code,
                        "signal": ended.signal,
                        "fingerprint": ended.fingerprint,
                        "lasted": None if start is None else seconds(entry.at - start),
                        "policy": ended.policy,
                    }
                )
    return found


def _ladder(look: Look, unit: str) -> dict[str, Any]:
    """What each further failure of one kind costs, and which kinds have come how far."""
    policies = look.governor.panel.policies_of(unit)
    most = next((policy.failures_max for policy in policies if isinstance(policy, Quarantine)), 0)
    cooldown = next((policy for policy in policies if isinstance(policy, Cooldown)), None)
    return {
        "steps": [] if cooldown is None else [seconds(wait) for wait in cooldown.waits(most or RUNGS_MAX)],
        "max": most,
        "failures": [
            {
                "fingerprint": failure.fingerprint,
                "error": failure.error,
                "count": failure.count,
                "until": failure.until,
                "quarantined": failure.quarantined,
            }
            for failure in look.failures(unit)
        ],
    }


def _is_a_moment(event: Event, body: Body) -> bool:
    """Whether it is worth a line: steps and signs of life are not, unless something was decided, or it is stuck."""
    return not isinstance(event, Step | Stepped | Beat) or bool(body.decision.reasons or getattr(event, "stuck", ""))


def _without_echoes(moments: Sequence[tuple[Entry, Body]]) -> list[tuple[Entry, Body]]:
    """Without the starts that were refused for what the exit before them said already."""
    befores = [None, *(body for _, body in moments)]
    return [moment for before, moment in zip(befores, moments, strict=False) if not _is_echo(before, moment[1])]


def _is_echo(before: Body | None, body: Body) -> bool:
    if before is None or not isinstance(before.event, Exited) or not isinstance(body.event, Start):
        return False
    return not body.decision.proceeds and _decisive(before.decision) == _decisive(body.decision)


def _moment(entry: Entry, body: Body) -> dict[str, Any]:
    event, decision = body.event, body.decision
    by = getattr(event, "by", "") or next((reason.policy for reason in _decisive(decision) or decision.reasons), "")
    return {
        "at": seconds(entry.at),
        "seq": entry.seq,
        "text": entry_text(event, decision, entry.at),
        "by": by,
        "tone": _tone(event, decision.verb),
    }


def _decisive(decision: Decision) -> list[Reason]:
    """Of its reasons those that were as strict as what was decided."""
    return [reason for reason in decision.reasons if reason.verb is decision.verb]


def _tone(event: Event, verb: Verb) -> str:
    match event:
        case Exited(cause=cause) if cause.failed:
            return BAD
        case Exited(cause=cause) if cause.done:
            return GOOD
        case Start() if verb is Verb.PROCEED:
            return GOOD
        case Asked() | Beat():
            return BUSY
        case Held() | Released() | Answered() | Settled() | Raised() | Acknowledged() | Ordered():
            return PLAIN  # what people did is no trouble, whatever was decided on it
    return TONES[verb]
