"""What people see of units and of the fleet. Computed from states and journal each time somebody looks; nothing here is
stored, so nothing can disagree with what the policies know."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from flyball.config.components import Component
from flyball.config.rules import Rule
from flyball.control import circuits, hosts
from flyball.control.past import RULE, RUNTIME, Order, Past, UnitPast
from flyball.control.shapes import (
    BudgetView,
    ExitView,
    FailureView,
    FleetState,
    FleetView,
    HostView,
    LiveView,
    OrderView,
    PolicyState,
    QuestionView,
    ReasonView,
    RestartsView,
    UnitView,
    Word,
)
from flyball.core import window
from flyball.core.codec import readable_state
from flyball.core.decision import PROCEED, Decision, Verb
from flyball.core.event import Held, Released, Resume, Start
from flyball.core.host import HostRecord, host_of
from flyball.core.panel import REFUSED
from flyball.core.policy import AnyPolicy, Gate, Key, S, State
from flyball.core.time import FOREVER, Instant, seconds
from flyball.governor import VERB_NAMES, Governor
from flyball.policies import (
    Budget,
    Cooldown,
    Exclusive,
    Flapping,
    Manual,
    Quarantine,
    Question,
    Restart,
    Session,
    Storm,
)
from flyball.policies.exclusive import State as Leases
from flyball.policies.restart import ENDED_BY_POLICY
from flyball.policies.revision import State as RevisionState
from flyball.store import firings
from flyball.store.firings import Firing

Opinion = tuple[AnyPolicy, State, Decision]
"""A policy, what it knows, and what it says."""

Gone = Callable[[str], bool]
"""Says of a holder whether it is certainly dead."""


HELD: Final = (Word.QUARANTINED, Word.HALTED, Word.FAILED, Word.PAUSED)
"""Words for units that wait for a person. Where several are true, the first of them is said: a pause hides nothing."""

HOLDS: Final = {
    "quarantined": Word.QUARANTINED,
    "halted": Word.HALTED,
    "restarts_in_a_row": Word.HALTED,
    "max_resume_attempts_exceeded": Word.FAILED,
}
"""What a hold is called, by its code. All others wait to be resumed: paused."""

ENDS: Final = {
    "ended_error": Word.FAILED,
    "ended_timeout": Word.FAILED,
    "ended_starved": Word.FAILED,
    "ended_lost": Word.FAILED,
    "ended_stopped": Word.STOPPED,
    ENDED_BY_POLICY: Word.STOPPED,
    "finishing": Word.STOPPED,
}
"""What an end without another run is called, by its code. All others: finished."""


WAITS_TO_RESUME: Final = "waits_to_resume"
"""The wait of a session that is paused: it is no punishment for a failure."""


NO_LABELS: Final[Mapping[str, str]] = {}

KNOWN_BY: Final = frozenset(("budget", "session", "definition", "checkpoints"))
"""Records by which a unit is known that the journal does not know any more, besides what everybody's policies know. Not
all records are read for that: checkpoints can be large."""


FORGET: Final = frozenset(("quarantine", "breaker", "call_breaker"))
"""Policies that no resume speaks to: an order to one of them is a reset."""

VALUE: Final = "VALUE"
"""What stands in a remedy for the value of the label that it is about."""

UNIT: Final = "unit"
"""The kind of whatever is neither a rule nor a piece of work."""

STARTS: Final = ("start", "restart")
"""Orders that take back what a person ordered before; their note ends with their name."""


class Look:
    """One look at a store: the present, and what is read once for all units."""

    def __init__(
        self,
        governor: Governor,
        past: Past,
        *,
        units: Iterable[str] = (),
        rules: Iterable[Rule] = (),
        asking: Callable[[], Iterable[Component]] = tuple,
        gone: Gone | None = None,
    ) -> None:
        """`asking`: the units that do not run on any host."""
        past.catch_up(governor.store)
        self.governor = governor
        self.past = past
        self.now: Instant = max(governor.clock.now(), governor.store.read(()).at)
        self.rules = {rule.name: rule for rule in rules}
        """Those that the settings name."""
        self._named = (*units, *self.rules)
        self._asking = asking
        self._hosts: Mapping[str, HostRecord] | None = None
        self._kinds: dict[str, str] = {}
        self._firings: Mapping[str, list[Firing]] | None = None
        self._gone = gone or (lambda _: False)

    @property
    def hosts(self) -> Mapping[str, HostRecord]:
        """The hosts that have a record, by name; none: the fleet is on one machine."""
        if self._hosts is None:
            self._hosts = hosts.known(self.governor.store)
        return self._hosts

    def units(self) -> list[str]:
        """Every unit that is known by the settings, the states or the journal."""
        store = self.governor.store
        known_by = {policy.name for policy in self.governor.panel.policies_of("") if policy.by == "unit"}
        stated = {key.subject for name in known_by | KNOWN_BY for key in store.states(name) if key.by == "unit"}
        return sorted({*self._named, *stated, *self.past.units} - {""})

    def kind(self, unit: str) -> str:
        """`rule`; `session`, `graph` or `call`, if it is a piece of work; `unit`, if it is neither."""
        if unit in self.rules:
            return RULE
        if unit not in self._kinds:
            self._kinds[unit] = RULE if self.labels(unit).get(RUNTIME) == RULE else self.work(unit) or UNIT
        return self._kinds[unit]

    def work(self, unit: str) -> str:
        """Which kind of work it is; nothing if it is none."""
        return next((p.of for p in self.governor.panel.policies_of(unit) if isinstance(p, Session)), "")

    def queue(self, rule: str) -> list[Firing]:
        """The firings of a rule, the oldest first; also those that a run has."""
        if self._firings is None:
            self._firings = firings.waiting(self.governor.store)
        return self._firings.get(rule, [])

    def opinions(self, unit: str) -> Sequence[Opinion]:
        """What each policy says of the unit now, of its run too if it has one."""
        run, labels = self._run(unit)
        opinions = self.governor.opinions(Start(unit=unit, run=run, labels=labels))
        if self.kind(unit) == RULE:
            opinions = [_of_a_rule(opinion) for opinion in opinions]
        return opinions if run else [*opinions, *self._refusal(unit, labels, opinions)]

    def labels(self, unit: str) -> Mapping[str, str]:
        """Those of its run, or of its last one."""
        return self._run(unit)[1]

    def unit(self, unit: str, opinions: Sequence[Opinion] | None = None) -> UnitView:
        """All that there is to see of one unit, of which this is what its policies say."""
        past, labels = self.past.of(unit), self.labels(unit)
        opinions = self.opinions(unit) if opinions is None else opinions
        live = tuple(self._live(opinions, past))
        running = any(not run.lost for run in live)
        binds = _binds_a_run if running else _binds_a_start
        heard = [opinion for opinion in opinions if binds(opinion)]
        decision = joined(heard)
        word = _word(heard, decision, opinions)
        kind = self.kind(unit)
        runs = {run.run for run in live}
        return UnitView(
            name=unit,
            kind=kind,
            state=word,
            held=decision.verb is Verb.HOLD,
            running=running,
            since=_at(past.since),
            until=_at(decision.until) if decision.verb in (Verb.WAIT, Verb.HOLD) else None,
            reasons=reasons_of(heard, unit, labels),
            restarts=self._restarts(opinions, past),
            failures_in_a_row=max((state.row for _, state, _ in states_of(Restart, opinions, "unit")), default=0),
            failures=_failures(opinions, self.now),
            last_exit=_exit(past),
            live=live,
            budgets=_budgets(opinions, self.now),
            questions=tuple(self._questions(opinions, live)),
            revision=self._revision(unit),
            orders=_orders(past.orders),
            labels=dict(labels),
            waiting=sum(firing.run not in runs for firing in self.queue(unit)) if kind == RULE else 0,
            host=next((host_of(run.holder) for run in live if not run.lost), "") if self.hosts else "",
        )

    def fleet_state(self) -> FleetState:
        """What the fleet is, without its units."""
        opinions = self.governor.opinions(Start())
        ordered = max((state.verb for _, state, _ in states_of(Manual, opinions, "fleet")), default=Verb.PROCEED)
        ends = ordered in (Verb.FINISH, Verb.STOP)
        held = joined(opinions).verb is Verb.HOLD
        drains = ends and bool(self.governor.store.states(Exclusive.NAME))
        return FleetState(
            state="draining" if drains else "paused" if ends or held else "running",
            held=held,
            reasons=reasons_of(opinions),
            at=seconds(self.now),
        )

    def fleet(self, units: Sequence[UnitView]) -> FleetView:
        """The fleet, of which these are all the units."""
        state = self.fleet_state()
        breakers = [one.view for one in circuits.known(self.governor, self.now) if one.view.state != circuits.CLOSED]
        storms = states_of(Storm, self.governor.opinions(Start()), "fleet")
        return FleetView(
            state=state.state,
            held=state.held,
            reasons=state.reasons,
            at=state.at,
            breaker=next((breaker.state for breaker in breakers if breaker.by == circuits.FLEET), circuits.CLOSED),
            breakers=tuple(breakers),
            storm=any(storm.paused for _, storm, _ in storms),
            units=len(units),
            running=sum(view.running for view in units),
            counts=dict(sorted(Counter(str(view.state) for view in units).items())),
            orders=_orders(self.past.of("").orders),
            hosts=self.host_views(Counter(view.host for view in units if view.host)),
            homeless=hosts.homeless(self._asking(), self.hosts.values(), self.now) if self.hosts else (),
        )

    def host_views(self, units: Mapping[str, int]) -> tuple[HostView, ...]:
        """The hosts, which run so many units each."""
        return hosts.views(self.hosts, self.past.lost_hosts, units, self.now)

    def policy_state(self, unit: str) -> PolicyState:
        """What the flapping policy knows: the three states, flaps in a row, failing exits within its window."""
        for policy, state, decision in states_of(Flapping, self.governor.opinions(Start(unit=unit)), "unit"):
            word = "halted" if decision.verb is Verb.HOLD else "degraded" if state.flaps else "healthy"
            within = policy.failing_within_window(state, state.lived.at(self.now))
            return PolicyState(state=word, consecutive_flaps=state.flaps, exits_in_window=within)
        return PolicyState(state="healthy", consecutive_flaps=0, exits_in_window=0)

    def failures(self, unit: str) -> tuple[FailureView, ...]:
        """The kinds of failures of a unit that are remembered."""
        return _failures(self.governor.opinions(Start(unit=unit)), self.now)

    def _run(self, unit: str) -> tuple[str, Mapping[str, str]]:
        """The first live run of a unit, and its labels; of a unit without one, the labels of its last."""
        leases = self._state(Leases, Key(Exclusive.NAME, "unit", unit))
        for run, live in (leases.runs if leases else {}).items():
            return run, live.labels
        labels = self.past.of(unit).labels
        if not labels and unit in self.rules:
            labels = {**self.rules[unit].labels, RUNTIME: RULE}
        return "", labels

    def _refusal(self, unit: str, labels: Mapping[str, str], opinions: Sequence[Opinion]) -> Iterable[Opinion]:
        """Who holds the unit by refusing its next resume. A refused request leaves no trace in the policy that counts
        (three of three is not too many), only the refusal itself: that is how the fourth is known."""
        keys = [Key(REFUSED, kind, unit) for kind in ("resume", "start")]
        refused = {
            code for data in self.governor.store.read(keys).records.values() for code in msgspec.json.decode(data)
        }
        if not refused - {code for _, _, said in opinions for code in said.codes}:
            return
        for reason in self.governor.look(Resume(unit=unit, labels=labels)).reasons:
            for policy, state, said in opinions:
                if reason.verb is Verb.HOLD and policy.name == reason.policy and reason.code in refused - {*said.codes}:
                    yield policy, state, Decision(Verb.HOLD, reasons=(reason,))

    def _state(self, kind: type[S], key: Key) -> S | None:
        """What is stored under a key, if it can be read. Whoever has to act on it says so; here it is only shown."""
        data = self.governor.store.read([key]).records.get(key)
        return None if data is None else readable_state(kind, data)

    def _live(self, opinions: Sequence[Opinion], past: UnitPast) -> Iterable[LiveView]:
        for _, state, _ in states_of(Exclusive, opinions, "unit"):
            for run, live in state.runs.items():
                since = past.runs.get(run)
                yield LiveView(
                    run=run,
                    holder=live.holder,
                    since=_at(since),
                    age=None if since is None else seconds(self.now - since),
                    lease_until=seconds(live.until),
                    lost=live.until <= self.now or self._gone(live.holder),
                )

    def _questions(self, opinions: Sequence[Opinion], live: Iterable[LiveView]) -> Iterable[QuestionView]:
        """Those that somebody still waits for: not those of a run that is lost, which nobody has reported yet."""
        lost = {run.run for run in live if run.lost}
        for _, state, _ in states_of(Question, opinions, "unit"):
            for id_, asked in state.open.items():
                if asked.until > self.now and asked.run not in lost and not self._gone(asked.run):
                    yield QuestionView(
                        id=id_,
                        run=asked.run,
                        text=asked.text,
                        choices=asked.choices,
                        default=asked.default,
                        at=seconds(asked.at),
                        until=_at(asked.until),
                    )

    def _restarts(self, opinions: Sequence[Opinion], past: UnitPast) -> RestartsView:
        counts = (
            window.count(state.restarts, self.now, p.window) for p, state, _ in states_of(Restart, opinions, "unit")
        )
        return RestartsView(last_hour=sum(counts), total=past.restarts, by_hand=past.by_hand)

    def _revision(self, unit: str) -> str:
        """The definition that is in force. Its policy is asked at changes alone, so its state is looked up."""
        state = self._state(RevisionState, Key("revision", "unit", unit))
        return state.revision if state else ""


def _of_a_rule(opinion: Opinion) -> Opinion:
    """A run that ended says nothing about the next: that comes when the rule is fired. Unless a policy ended it, for
    that waits for a person."""
    policy, state, said = opinion
    ended = isinstance(policy, Restart) and said.verb is Verb.FINISH and ENDED_BY_POLICY not in said.codes
    return (policy, state, PROCEED) if ended else opinion


def joined(opinions: Iterable[Opinion]) -> Decision:
    """What they all come to."""
    decision = PROCEED
    for _, _, said in opinions:
        decision |= said
    return decision


def reasons_of(
    opinions: Iterable[Opinion], unit: str = "", labels: Mapping[str, str] = NO_LABELS
) -> tuple[ReasonView, ...]:
    """Their reasons, the strictest first, and of those the one that lasts longest."""
    whose = {"unit": unit, "user": f"--user {labels['user']}" if "user" in labels else ""}
    found = [
        ReasonView(
            policy=reason.policy,
            by=policy.by,
            verb=VERB_NAMES[reason.verb],
            code=reason.code,
            text=reason.text,
            remedy=_remedy(reason.remedy, whose.get(policy.by, "")).replace(VALUE, labels.get(policy.by, VALUE)),
            until=_at(decision.until),
        )
        for policy, _, decision in opinions
        for reason in decision.reasons
    ]
    found.sort(key=lambda reason: (-VERB_NAMES.index(reason.verb), -(reason.until or FOREVER), reason.code, reason.by))
    return tuple(found)


def _remedy(remedy: str, whose: str) -> str:
    """A policy does not know whom it speaks of: the name is added to what a person is to type."""
    if not whose:
        return remedy
    named = remedy.replace("` it", "`")
    for verb in ("resume", "start", "why"):
        named = named.replace(f"`flyball {verb}`", f"`flyball {verb} {whose}`")
    return named


def _binds_a_run(opinion: Opinion) -> bool:
    """Whether it concerns a run that lives. Those that are asked at starts alone do not, unless they hold the unit."""
    policy, _, decision = opinion
    return policy.at is Gate.STEP or (decision.verb is Verb.HOLD and policy.by == "unit")


def _binds_a_start(opinion: Opinion) -> bool:
    """Whether it concerns the next run: what is left of one that nobody reported does not."""
    return opinion[0].by != "run"


def _word(heard: Sequence[Opinion], decision: Decision, opinions: Sequence[Opinion]) -> Word:
    codes = [reason.code for _, _, said in heard if said.verb is decision.verb for reason in said.reasons]
    match decision.verb:
        case Verb.HOLD:
            words = {HOLDS.get(code, Word.PAUSED) for code in codes}
            return next(word for word in HELD if word in words)
        case Verb.STOP:
            return Word.STOPPED
        case Verb.FINISH:
            return next((ENDS[code] for code in codes if code in ENDS), Word.FINISHED)
        case Verb.WAIT:
            return Word.PAUSED if WAITS_TO_RESUME in codes else Word.COOLING
    flaps = any(state.flaps for _, state, _ in states_of(Flapping, opinions, "unit"))
    return Word.DEGRADED if flaps else Word.HEALTHY


def states_of(kind: type[Any], opinions: Iterable[Opinion], by: str) -> Iterable[tuple[Any, Any, Decision]]:
    """Those of one kind of policy and scope whose states could be read."""
    for policy, state, decision in opinions:
        if isinstance(policy, kind) and policy.by == by and _is_its_own(policy, state):
            yield policy, state, decision


def _is_its_own(policy: AnyPolicy, state: State) -> bool:
    return type(state) is type(policy.initial())


def _failures(opinions: Sequence[Opinion], now: Instant) -> tuple[FailureView, ...]:
    """What quarantine and cooldown remember. They count alike, but each forgets by its own rule."""
    waits = {
        name: failure
        for _, state, _ in states_of(Cooldown, opinions, "unit")
        for name, failure in state.failures.items()
    }
    found: dict[str, FailureView] = {}
    limit = 0
    counted = dict(waits)
    for policy, state, _ in states_of(Quarantine, opinions, "unit"):
        limit = policy.failures_max
        counted.update(state.failures)
    for name, failure in counted.items():
        until = waits[name].until if name in waits else 0
        found[name] = FailureView(
            fingerprint=name,
            error=failure.error,
            count=failure.count,
            first=seconds(failure.first),
            last=seconds(failure.last),
            until=seconds(until) if until > now else None,
            quarantined=bool(limit) and failure.count >= limit,
        )
    return tuple(sorted(found.values(), key=lambda failure: (-failure.last, failure.fingerprint)))


def _exit(past: UnitPast) -> ExitView | None:
    ended = past.last_exit
    if ended is None:
        return None
    return ExitView(
        at=seconds(past.exited_at),
        run=ended.run,
        cause=str(ended.cause),
        error=ended.error,
        code=ended.code,
        signal=ended.signal,
        fingerprint=ended.fingerprint,
    )


def _budgets(opinions: Iterable[Opinion], now: Instant) -> tuple[BudgetView, ...]:
    """Those of the unit and its run; shared ones only where something was spent."""
    known: Iterable[tuple[AnyPolicy, Any, Decision]] = opinions
    views = []
    for policy, state, _ in known:
        if not isinstance(policy, Budget) or not _is_its_own(policy, state):
            continue
        current = policy.current(state, now)
        if current.spent or current.reserved or policy.by in ("unit", "run"):
            spent, reserved = current.spent, current.reserved
            views.append(
                BudgetView(
                    meter=policy.meter,
                    by=policy.by,
                    spent=spent,
                    reserved=reserved,
                    limit=policy.limit + current.raised,
                    raised=current.raised,
                )
            )
    return tuple(views)


def _orders(orders: Iterable[Order]) -> tuple[OrderView, ...]:
    return tuple(
        OrderView(at=seconds(given.at), order=_name_of(given), by=given.order.by, note=given.order.note)
        for given in orders
    )


def _name_of(given: Order) -> str:
    order = given.order
    if order.scope in order.labels:
        return f"{_verb_of(order)} {order.scope} {order.labels[order.scope]}"
    return _verb_of(order)


def _verb_of(order: Held | Released) -> str:
    if isinstance(order, Held):
        return {Verb.HOLD: "pause", Verb.STOP: "stop", Verb.FINISH: "finish"}.get(order.verb, "hold")
    if order.fingerprint:
        return f"reset {order.fingerprint[:8]}"
    if not FORGET.isdisjoint(order.policies):
        return "reset"
    said = order.note.rpartition(": ")[2]
    return said if said in STARTS else "resume"


def _at(instant: Instant | None) -> float | None:
    """An instant as people's tools read it; none if it never comes."""
    return None if instant is None or instant >= FOREVER else seconds(instant)
