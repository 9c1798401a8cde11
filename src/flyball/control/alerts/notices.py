"""What of all that happens is news for people who are not looking: an entry of the journal to notices, and to what they
end with. A function of the entry alone."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from flyball.control.problems import LOST_REMEDY, host_ref, lost_text
from flyball.core.codec import Body
from flyball.core.decision import Decision, Reason, Verb
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
    Joined,
    Left,
    Raised,
    Released,
    Start,
    Step,
    Stepped,
)
from flyball.core.failure import normalise
from flyball.core.layers import CODES, layer_of
from flyball.core.time import DAY, FOREVER, MINUTE, Instant, Span

INFO, WARNING, CRITICAL = "info", "warning", "critical"
SUBJECT_MAX: Final = 120
"""Characters of what a group is about: an error's name and the beginning of its message."""
LABELS_MAX: Final = 16
"""Labels that a notice keeps: rules look at them."""


class Kind(NamedTuple):
    """One kind of alert."""

    severity: str
    words: str
    """After the name of the unit, in a title."""
    stands: bool
    """It lasts until it is over; otherwise it happened, and that is all."""
    policy: str = ""
    """Whoever releases this one ends it."""
    passes: Span = 30 * MINUTE
    """What happened, and does not stand, is over for us when it has not happened again for so long."""
    named: bool = False
    """Only rules that name it send it."""


KINDS: Final[Mapping[str, Kind]] = {
    "quarantined": Kind(CRITICAL, "quarantined", True, "quarantine"),
    "halted": Kind(CRITICAL, "halted", True, "flapping"),
    "restarts_in_a_row": Kind(CRITICAL, "held: too many failing runs in a row", True, "restart"),
    "max_resume_attempts_exceeded": Kind(CRITICAL, "failed: resumed too often", True, "resumes"),
    "restart_storm": Kind(CRITICAL, "paused: a restart storm", True, "storm"),
    "too_many_restarts": Kind(CRITICAL, "held: too many restarts", True, "restart"),
    "clock_jumped": Kind(CRITICAL, "held: the clock jumped", True, "clock"),
    "policy_failed": Kind(CRITICAL, "stopped: a safeguard failed", True),
    "stuck": Kind(CRITICAL, "stuck, and does not end", True),
    "waits_for_person": Kind(WARNING, "waits for a person", True, "session"),
    "question": Kind(WARNING, "asks", True),
    "circuit_open": Kind(WARNING, "circuit open", True, "breaker"),
    "restarts_often": Kind(WARNING, "restarts often", True, "restart"),
    "cost_budget_exceeded": Kind(WARNING, "over its budget", True, "budget"),
    "budget_near": Kind(WARNING, "near its budget", False, "budget", passes=1 * DAY),
    "starved": Kind(WARNING, "out of a resource", True, "restart"),
    "spend_anomaly": Kind(WARNING, "spends far more than usual", False),
    "failed": Kind(WARNING, "failed", False),
    "failure": Kind(INFO, "failed, and goes on", False),
    "timeout": Kind(WARNING, "timed out", False),
    "idle_timeout": Kind(WARNING, "timed out: no sign of life", False),
    "hard_cap_15_rounds": Kind(WARNING, "ended at the hard cap of 15 rounds", False),
    "max_rounds": Kind(WARNING, "ended at its limit of rounds", False),
    "max_steps": Kind(WARNING, "ended at its limit of steps", False),
    "preflight": Kind(WARNING, "refused: it could not end", False),
    "loop_detected": Kind(WARNING, "stopped: a loop", False),
    "stalled": Kind(WARNING, "stopped: it went in circles", False),
    "lost": Kind(WARNING, "lost", False),
    "firing_dropped": Kind(WARNING, "dropped a firing", False),
    "message": Kind(WARNING, "says", False),
    "restarts": Kind(INFO, "restarted", False, named=True),
    "daemon_started": Kind(INFO, "started", False),
    "channel_dead": Kind(CRITICAL, "does not work: an alert channel", True),
    "journal_gap": Kind(WARNING, "has a gap: some alerts may be missing", False),
    "host_lost": Kind(WARNING, "lost", True),
    "hosts_differ": Kind(WARNING, "have different settings", True),
    "store_away": Kind(CRITICAL, "cannot be used", True),
    "test": Kind(INFO, "is tested", False, named=True),
}
"""Every kind of alert, for rules, docs and texts."""

OF_FLEET: Final = frozenset({"restart_storm", "clock_jumped", "too_many_restarts"})
"""Kinds that are about all units together: a unit that is let go shows that they are over."""
BUDGET: Final = frozenset({"cost_budget_exceeded", "budget_near"})
STANDING: Final = frozenset(
    name
    for name, kind in KINDS.items()
    if kind.stands
    and name not in ("question", "circuit_open", "channel_dead", "host_lost", "hosts_differ", "store_away")
)
"""Kinds that a unit which was let go, or is done, has not any more."""

_HOLDS: Final[Mapping[str, str]] = {
    "quarantined": "quarantined",
    "halted": "halted",
    "restarts_in_a_row": "restarts_in_a_row",
    "max_resume_attempts_exceeded": "max_resume_attempts_exceeded",
    "restart_storm_detected": "restart_storm",
    "clock_jumped": "clock_jumped",
    "policy_failed": "policy_failed",
    "waits_for_person": "waits_for_person",
    "cost_budget_exceeded": "cost_budget_exceeded",
}
"""Codes of reasons that are alerts, whatever event they are answered to."""
LISTED: Final = frozenset(
    {*_HOLDS.values(), "too_many_restarts", "question", "circuit_open", "host_lost", "hosts_differ"}
)
"""Kinds that are on the list of problems while they stand, so that people can say there that they have seen them."""
_ENDS: Final[Mapping[str, str]] = {
    **{code: code for code in CODES},
    "GraphRecursionError": "max_steps",
    "loop_detected": "loop_detected",
    "going_in_circles": "stalled",
    "polled_too_long": "stalled",
}
"""Codes that runs end with."""
_QUARANTINED: Final = re.compile(r"failures of (?P<error>.*) \((?P<fingerprint>[0-9a-f]+)\) within", re.DOTALL)

ALSO: Final[Mapping[str, tuple[str, ...]]] = {
    "restart_storm": ("restart_storm_detected",),
    "failed": ("ended_error",),
    "timeout": ("ended_timeout",),
    "lost": ("ended_lost",),
    "starved": ("ended_starved",),
    "stalled": ("going_in_circles", "polled_too_long"),
    "max_steps": ("GraphRecursionError",),
}
"""Kinds that are called otherwise where problems are listed: by the code of their reason."""

READ: Final = (
    "start",
    "resume",
    "step",
    "stepped",
    "beat",
    "asked",
    "answered",
    "fired",
    "exited",
    "booted",
    "joined",
    "left",
    "released",
    "raised",
    "acknowledged",
)
"""Kinds of events that can be news."""


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that people may want to know."""

    kind: str
    severity: str
    at: Instant
    unit: str = ""
    """Nothing: the fleet, or flyball itself."""
    subject: str = ""
    """What it is about, beside its kind: those with the same are told together."""
    ref: str = ""
    """What tells it apart from others of the same unit and kind."""
    text: str = ""
    remedy: str = ""
    run: str = ""
    labels: Mapping[str, str] = {}
    choices: tuple[str, ...] = ()
    """Of a question."""
    counts: bool = True
    """It is one more time; otherwise it only says that it is so."""

    @property
    def problem(self) -> str:
        """By which people name it."""
        code = ALSO.get(self.kind, (self.kind,))[0]
        if not self.unit:
            return f"{self.ref or 'fleet'}:{code}"
        return ":".join(part for part in (self.unit, code, self.ref) if part)


class Over(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is so no more."""

    at: Instant
    kinds: frozenset[str]
    unit: str = ""
    ref: str = ""
    """Only this one, by the beginning of its reference."""
    run: str = ""
    """Only what that run had to do with."""
    everyone: bool = False
    """Of all units that have these labels."""
    labels: Mapping[str, str] = {}


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A person has seen a problem."""

    at: Instant
    problem: str
    until: Instant = FOREVER
    by: str = ""


News = Notice | Over | Seen


def can_tell(kind: str, verb: str, body: bytes) -> bool:
    """Whether an entry can be news, before it is decoded: of steps and signs of life there are many, and few are."""
    if kind == "step":
        return verb != "proceed"
    if kind == "stepped":
        return b'"spend_anomaly"' in body
    if kind == "beat":
        return b'"stuck"' in body or verb == "hold"
    return True


def news_of(at: Instant, body: Body) -> Iterator[News]:
    """All that an entry says: first what is over, then what is new."""
    event, decision = body.event, body.decision
    match event:
        case Start() if decision.proceeds:
            yield Over(at=at, kinds=STANDING, unit=event.unit)
            yield Over(at=at, kinds=OF_FLEET)
            if event.again:
                yield _notice("restarts", at, event, subject=event.unit, text="it was started again after an exit")
        case Exited():
            yield Over(at=at, kinds=frozenset({"question"}), unit=event.unit, run=event.run)
            yield Over(at=at, kinds=frozenset({"stuck"}), unit=event.unit)
            if event.cause.done:
                # A hold is not left by a good end.
                held = {_HOLDS[reason.code] for reason in decision.reasons if reason.code in _HOLDS}
                yield Over(at=at, kinds=(STANDING | {"budget_near"}) - held, unit=event.unit)
            yield from _exited(at, event, decision)
        case Asked():
            text = event.text + (f" ({' / '.join(event.choices)})" if event.choices else "")
            remedy = f"Answer it: `flyball answer {event.unit}`."
            asked = _notice("question", at, event, subject=event.unit, ref=event.id, text=text, remedy=remedy)
            yield msgspec.structs.replace(asked, run=event.run, choices=event.choices)
        case Answered():
            yield Over(at=at, kinds=frozenset({"question"}), unit=event.unit, ref=event.id)
        case Beat(stuck=stuck) if stuck:
            text = stuck.strip().splitlines()[-1]
            yield _notice("stuck", at, event, subject=event.unit, text=text, counts=False)
        case Fired(dropped=dropped) if dropped:
            text = f"what {event.trigger} fired does not wait for a run: {dropped}"
            yield _notice("firing_dropped", at, event, subject=f"{event.unit} {dropped}", text=text)
        case Booted():
            text = f"flyball looks after {event.units} unit{'s' * (event.units != 1)}"
            yield _notice("daemon_started", at, event, subject="daemon", text=text)
        case Joined():
            yield Over(at=at, kinds=frozenset({"host_lost"}), ref=host_ref(event.host))
        case Left(lost=True):
            # Hosts that are lost together are told of together.
            said = _notice("host_lost", at, event, subject="hosts", ref=host_ref(event.host))
            text = lost_text(event.runs, event.by)
            yield msgspec.structs.replace(said, text=f"{event.host}: {text}", remedy=LOST_REMEDY)
        case Released():
            yield from _released(at, event)
        case Raised():
            everyone = event.scope != "unit"
            yield Over(at=at, kinds=BUDGET, unit=event.unit, everyone=everyone, labels=_labels(event))
        case Acknowledged():
            yield Seen(at=at, problem=event.problem, until=event.until, by=event.by)
    if isinstance(event, Start | Step | Exited | Stepped | Booted | Beat):
        yield from _reasons(at, event, decision)


def _exited(at: Instant, event: Exited, decision: Decision) -> Iterator[Notice]:
    """How a run ended, where nobody ordered that."""
    code = event.error.partition(":")[0]
    kind = _ENDS.get(code, "")
    if not kind and event.cause.failed:
        fails = "failed" if decision.verb >= Verb.FINISH else "failure"
        by_cause = {Cause.TIMEOUT: "timeout", Cause.LOST: "lost"}
        kind = by_cause.get(event.cause, "starved" if event.cause is Cause.STARVED else fails)
    if kind == "consensus" or event.policy == "manual" or kind not in KINDS:
        return
    holds = {_HOLDS[reason.code] for reason in decision.reasons if reason.code in _HOLDS}
    if kind in holds or (kind in ("failed", "failure") and holds):
        return  # the reason says more
    layer = layer_of(event.error)
    text = event.error or f"it ended: {event.cause}"
    if layer is not None:
        text += f" (layer {layer})"
    last = event.detail.strip().splitlines()[-1:] if event.cause.failed else []
    if last and last[0].strip() not in text:
        text = f"{text}: {last[0].strip()}"
    subject = kind if code in _ENDS else _about(event.error) or event.unit
    remedy = f"Look at it: `flyball why {event.unit}`."
    yield _notice(kind, at, event, subject=subject, ref=event.fingerprint, text=text, remedy=remedy)


def _reasons(at: Instant, event: Event, decision: Decision) -> Iterator[Notice]:
    """Alerts that the governor's answer is."""
    for reason in decision.reasons:
        if reason.code == "spend_anomaly":
            yield _of_reason("spend_anomaly", at, event, reason, subject=event.unit)
        elif reason.code == "too_many_restarts":
            kind = "too_many_restarts" if reason.verb is Verb.HOLD else "restarts_often"
            yield _of_reason(kind, at, event, reason, subject="fleet" if reason.verb is Verb.HOLD else event.unit)
        elif reason.code == "circuit_open":
            yield _of_reason("circuit_open", at, event, reason, subject="circuit")
        elif reason.code == "quarantined":
            yield _quarantined(at, event, reason)
        elif reason.code in _HOLDS:
            kind = _HOLDS[reason.code]
            error = event.error if isinstance(event, Exited) else ""
            alike = kind in OF_FLEET or kind in _ENDS
            yield _of_reason(kind, at, event, reason, subject=kind if alike else _about(error))


def _quarantined(at: Instant, event: Event, reason: Reason) -> Notice:
    found = _QUARANTINED.search(reason.text)
    error, fingerprint = (found["error"], found["fingerprint"]) if found else ("", "")
    notice = _of_reason("quarantined", at, event, reason, subject=_about(error), ref=fingerprint)
    own = isinstance(event, Exited) and event.fingerprint.startswith(fingerprint)
    return notice if own else msgspec.structs.replace(notice, counts=False)


def _of_reason(kind: str, at: Instant, event: Event, reason: Reason, *, subject: str, ref: str = "") -> Notice:
    unit = "" if kind in OF_FLEET else event.unit
    counts = not event.asks and (not isinstance(event, Exited) or event.cause.failed)
    return Notice(
        kind=kind,
        severity=KINDS[kind].severity,
        at=at,
        unit=unit,
        subject=subject or unit,
        ref=ref,
        text=reason.text,
        remedy=reason.remedy,
        labels=_labels(event),
        counts=counts,
    )


def _released(at: Instant, event: Released) -> Iterator[Over]:
    kinds = frozenset(
        name
        for name, kind in KINDS.items()
        if kind.policy and (not event.policies or kind.policy in event.policies) and name not in BUDGET
    )
    if event.scope == "unit":
        yield Over(at=at, kinds=kinds - {"circuit_open"}, unit=event.unit, ref=event.fingerprint)
    elif event.scope == "fleet":
        yield Over(at=at, kinds=kinds & OF_FLEET, everyone=True)


def _notice(
    kind: str,
    at: Instant,
    event: Event,
    *,
    subject: str,
    ref: str = "",
    text: str = "",
    remedy: str = "",
    counts: bool = True,
) -> Notice:
    return Notice(
        kind=kind,
        severity=KINDS[kind].severity,
        at=at,
        unit=event.unit,
        subject=subject,
        ref=ref,
        text=text,
        remedy=remedy,
        labels=_labels(event),
        counts=counts,
    )


def _labels(event: Event) -> Mapping[str, str]:
    labels = event.labels
    return labels if len(labels) <= LABELS_MAX else dict(list(labels.items())[:LABELS_MAX])


def _about(error: str) -> str:
    """What several units can have in common: the error, without what differs each time."""
    return normalise(error)[:SUBJECT_MAX]
