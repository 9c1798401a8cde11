"""The governor: asks every policy, writes down what it decided, and only then lets anything happen.

`submit` reports a fact or asks for leave; `look` says what `submit` would answer, and leaves no trace. This is the only
holder of both a clock and a store. It has no listeners: who wants to know what happened reads the journal.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import ClassVar, Final

import msgspec

from flyball.core.codec import decode_body, decode_state, encode, encode_body, readable_state
from flyball.core.decision import PROCEED, Decision, Verb, proceed
from flyball.core.event import Answered, Beat, Booted, Cause, Event, Exited, Start, Stepped
from flyball.core.failure import FINGERPRINT_VERSION, fingerprint
from flyball.core.panel import Docket, Panel
from flyball.core.policy import AnyPolicy, Key, Outcome, State, Unreadable, answer_of, weigh
from flyball.core.time import Instant
from flyball.policies.exclusive import Exclusive, Live
from flyball.policies.exclusive import State as Leases
from flyball.store import Clock, Draft, Entry, Line, SharedStore, Snapshot, Store
from flyball.store.checkpoints import INDEX as CHECKPOINTS

log = logging.getLogger(__name__)

DECODED_MAX: Final = 262_144
"""States kept decoded. More than this and all are decoded anew: a bound, not a tuning knob."""

ENTRIES_MAX: Final = 1_000
"""Entries of the journal in memory at a time."""

REAPED_TOGETHER: Final = 500
"""Runs that are reported as lost at once, in few commits: those of a host that died are to be begun elsewhere soon."""

UNSYNCED: Final = (Stepped, Beat)
"""Steps that were made and signs of life gate nothing: they survive kill -9 without waiting for the disk. Unless a
checkpoint is kept with them: what work goes on from is on disk when it is answered."""

Rows = Mapping[Key, bytes | None]
"""Records that are no policy's, such as an agent's memory. None: the record is to go."""

NO_ROWS: Final[Rows] = {}

NOT_WEIGHED: Final = Decision(Verb.STOP)
"""Of a case that the store has not called yet: nothing follows from it."""

VERB_NAMES: Final = tuple(verb.name.lower() for verb in Verb)


class SystemClock:
    """The machine's clock, which never runs back: while it is behind, time goes on by the monotonic clock."""

    def __init__(self) -> None:
        self._last = (0, 0)
        """The latest reading, and what the monotonic clock said then: one value, so that threads see both or none."""

    def now(self) -> Instant:
        last, then = self._last
        steady = time.monotonic_ns() // 1000
        now = max(time.time_ns() // 1000, last + steady - then)
        self._last = (now, steady)
        return now

    def catch_up(self, instant: Instant) -> Instant:
        now = max(self.now(), instant)
        self._last = (now, self._last[1])
        return now


class Governor:
    """Decides and remembers. Safe to use from several threads."""

    in_order: ClassVar[bool] = True
    """What is put to it soon is written before whatever is put to it after that."""

    def __init__(self, policies: Panel | Sequence[AnyPolicy], store: Store, clock: Clock | None = None) -> None:
        self.panel = policies if isinstance(policies, Panel) else Panel(policies)
        self.store = store
        self.clock: Clock = clock or (store.clock if isinstance(store, SharedStore) else SystemClock())
        self._decoded: dict[Key, tuple[bytes, State]] = {}

    def submit(self, event: Event, rows: Rows = NO_ROWS) -> Decision:
        """Report a fact or ask for leave; act on the answer. When this returns, the answer is on disk; and with it, in
        the same transaction, the rows, unless it was a request that is refused."""
        case = _Case(self, event, rows)
        self.store.transact(case.docket.keys, case.draft, sync=case.sync)
        decision = case.decision
        if decision.reasons and "already_running" in decision.codes and self.reap(unit=event.unit):
            return self.submit(event, rows)
        return decision

    def submit_soon(self, event: Event, rows: Rows = NO_ROWS) -> "Future[Decision]":
        """The same for callers that must not block, such as an event loop."""
        case = _Case(self, event, rows)
        answer: Future[Decision] = Future()
        answer.set_running_or_notify_cancel()  # what was asked is weighed and counted, also if nobody waits any more

        def again() -> None:
            try:
                answer.set_result(self.submit(event, rows))
            except BaseException as error:  # noqa: BLE001 - the future carries it to whoever asks
                answer.set_exception(error)

        def committed(future: "Future[Entry | None]") -> None:
            error = future.exception()
            if error is not None:
                answer.set_exception(error)
            elif "already_running" in case.decision.codes:
                # Perhaps nobody will ever report that other run. To find out takes the store, whose thread this is.
                threading.Thread(target=again, daemon=True).start()
            else:
                answer.set_result(case.decision)

        self.store.transact_soon(case.docket.keys, case.draft, sync=case.sync).add_done_callback(committed)
        return answer

    def submit_again_soon(self, event: Start | Exited, rows: Rows = NO_ROWS) -> "Future[Decision]":
        """The same, where it is not known whether it was written the first time (StoreUnsure): what was, is not counted
        twice. A start that was granted then is granted still; after an exit that was told then, ask what follows."""
        case = _Case(self, event, rows)
        answer: Future[Decision] = Future()
        answer.set_running_or_notify_cancel()

        def draft(snapshot: Snapshot) -> Draft | None:
            live = _leases(snapshot, event.unit).runs.get(event.run)
            if isinstance(event, Start) and live is not None and live.holder == event.holder:
                case.decision = proceed(live.until)
                return None
            if isinstance(event, Exited) and live is None and case.tells_who_lives:
                case.decision = PROCEED
                return None
            return case.draft(snapshot)

        def committed(future: "Future[Entry | None]") -> None:
            error = future.exception()
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(case.decision)

        self.store.transact_soon(case.docket.keys, draft, sync=case.sync).add_done_callback(committed)
        return answer

    def report_and_ask_soon(self, fact: Event, request: Event) -> "Future[tuple[Decision, Decision | None]]":
        """Report a fact and, where its answer leaves nothing to wait for, ask at once for what comes next. Both are
        committed together, so the disk is waited for once. None: that was not asked, or has to be asked by itself."""
        reported, asked = _Case(self, fact), _Case(self, request)
        reported.decision = NOT_WEIGHED
        leave: Decision | None = None
        answer: Future[tuple[Decision, Decision | None]] = Future()
        answer.set_running_or_notify_cancel()

        def ask(snapshot: Snapshot) -> Draft | None:
            nonlocal leave
            leave = None
            if reported.decision.verb > Verb.WAIT:
                return None
            if reported.decision.verb is Verb.WAIT and reported.decision.until > max(self.clock.now(), snapshot.at):
                return None
            draft = asked.draft(snapshot)
            # Whether that other run is lost is found out where the request is put by itself.
            leave = None if "already_running" in asked.decision.codes else asked.decision
            return draft

        def committed(future: "Future[Entry | None]") -> None:
            error = first.exception()
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result((reported.decision, None if future.exception() else leave))

        first = self.store.transact_soon(reported.docket.keys, reported.draft, sync=reported.sync)
        self.store.transact_soon(asked.docket.keys, ask, sync=asked.sync).add_done_callback(committed)
        return answer

    def submit_if(self, fact: Event, still: Callable[[Snapshot], bool]) -> Decision | None:
        """Report a fact if it is still one: `still` sees the records that it concerns, inside the transaction. The
        answer; None if it was not reported."""
        case = _Case(self, fact)

        def draft(snapshot: Snapshot) -> Draft | None:
            return case.draft(snapshot) if still(snapshot) else None

        return case.decision if self.store.transact(case.docket.keys, draft, sync=True) is not None else None

    def submit_changing(
        self, fact: Event, keys: Sequence[Key], change: Callable[[Snapshot], Rows | None]
    ) -> Decision | None:
        """Report a fact together with records that are no policy's: `change` sees those of the keys inside the
        transaction, and says what becomes of them. The answer; None if it says that there is nothing to report."""
        case = _Case(self, fact)

        def draft(snapshot: Snapshot) -> Draft | None:
            rows = change(snapshot)
            if rows is None:
                return None
            case.rows = rows
            return case.draft(snapshot)

        return case.decision if self.store.transact([*case.docket.keys, *keys], draft, sync=True) is not None else None

    def submit_living(self, fact: Event) -> Decision | None:
        """Report a fact of a run if that run lives: how one ended that was given up as lost is on record already. The
        answer; None if it was not reported."""
        return self.submit_if(fact, lambda snapshot: _lives(fact, snapshot))

    def look(self, event: Event) -> Decision:
        """What `submit` would answer now. Leaves no trace."""
        case = _Case(self, event)
        case.weigh(self.store.read(case.docket.keys))
        return case.decision

    def opinions(self, event: Event, by: str | None = None) -> Sequence[tuple[AnyPolicy, State, Decision]]:
        """What each policy that the event concerns (of that scope) knows and says now, without the event."""
        docket = self.panel.concerning(event)
        snapshot = self.store.read(docket.keys if by is None else [key for key in docket.keys if key.by == by])
        now = max(self.clock.now(), snapshot.at)
        opinions = []
        for place, stored in enumerate(self.states_in(docket, snapshot)):
            policy, state = docket.policies[place], docket.initials[place] if stored is None else stored
            if by is None or policy.by == by:
                opinions.append((policy, state, answer_of(policy, state, now)))
        return opinions

    def first_answer(self, unit: str, question: str, *, after: int) -> Answered | None:
        """The first answer to a question of that unit in the journal after an entry: the one that counts."""
        while entries := self.store.entries(after=after, limit=ENTRIES_MAX, unit=unit):
            for entry in entries:
                event = decode_body(entry.body).event if entry.event == "answered" else None
                if isinstance(event, Answered) and event.id == question:
                    return event
            after = entries[-1].seq
        return None

    def boot(
        self, holder: str, *, units: int = 0, others: int = 0, gone: Callable[[str], bool] | None = None
    ) -> Decision:
        """A supervisor starts on this store: runs that nobody will report are reported as lost, then the storm and
        clock policies judge. `gone` says of a holder whether it is dead; without it, only this holder's own old runs
        and those with a lease that ran out are lost. `others` are hosts on which the fleet runs already."""
        last = self.store.read(())
        skew = self.clock.now() - last.at if last.seq else 0
        self.reap(lambda other: other == holder or (gone is not None and gone(other)))
        return self.submit(Booted(holder=holder, units=units, skew=skew, others=others))

    def live_runs(self, unit: str | None = None) -> list[tuple[str, str, Live]]:
        """The runs (of that unit) that were granted and have not exited, as unit, run and lease. Of leases that cannot
        be read nothing is said: that unit is refused its next start, with the reason, and the others go on."""
        if unit is None:
            records = self.store.states(Exclusive.NAME)
        else:
            records = self.store.read([Key(Exclusive.NAME, "unit", unit)]).records
        return [
            (key.subject, run, live)
            for key, data in records.items()
            if (leases := readable_state(Leases, data)) is not None
            for run, live in leases.runs.items()
        ]

    def reap(self, gone: Callable[[str], bool] | None = None, *, unit: str | None = None) -> int:
        """Report as lost every live run (of that unit) whose lease ran out or whose holder is gone; how many."""
        lost, live = 0, self.live_runs(unit)
        for first in range(0, len(live), REAPED_TOGETHER):
            some = [self._report_lost(*one, gone) for one in live[first : first + REAPED_TOGETHER]]
            lost += sum(reported.result() is not None for reported in some)
        return lost

    def _report_lost(
        self, unit: str, run: str, live: Live, gone: Callable[[str], bool] | None
    ) -> "Future[Entry | None]":
        """Report one run as lost, unless it turns out, inside the transaction, that it exited or renewed its lease."""
        holder = live.holder or "an unnamed process"
        exited = Exited(
            unit=unit,
            run=run,
            labels=live.labels,
            cause=Cause.LOST,
            fingerprint=fingerprint(unit, "lost"),
            version=FINGERPRINT_VERSION,
            error="lost",
            detail=f"nobody reported the end of this run; it was held by {holder}",
        )

        case = _Case(self, exited)

        def lost(snapshot: Snapshot) -> bool:
            found = _leases(snapshot, unit).runs.get(run)
            if found is None:
                return False
            return found.until <= max(self.clock.now(), snapshot.at) or (gone is not None and gone(found.holder))

        def draft(snapshot: Snapshot) -> Draft | None:
            return case.draft(snapshot) if lost(snapshot) else None

        return self.store.transact_soon(case.docket.keys, draft, sync=True)

    def states_in(self, docket: Docket, snapshot: Snapshot) -> Sequence[State | None]:
        """The states of a docket's policies; None where one rests. Decoded once for as long as the store hands out the
        very same bytes."""
        records, decoded = snapshot.records, self._decoded
        if not records:
            return docket.resting
        states = list(docket.resting)
        for key, data in records.items():
            place = docket.places.get(key)
            if place is None:
                continue
            known = decoded.get(key)
            if known is not None and known[0] is data:
                states[place] = known[1]
                continue
            try:
                state = decode_state(type(docket.initials[place]), data)
            except msgspec.MsgspecError as error:
                state = Unreadable(f"{key.policy} by {key.by} of {key.subject!r}: {error}")
            self.remember(key, data, state)
            states[place] = state
        return states

    def remember(self, key: Key, data: bytes, state: State) -> None:
        """Keep a state decoded for as long as the store hands out these very bytes."""
        if len(self._decoded) >= DECODED_MAX:
            self._decoded.clear()
        self._decoded[key] = (data, state)

    def forget(self, key: Key) -> None:
        """That state is not stored any more."""
        self._decoded.pop(key, None)


class _Case:
    """One event before the governor: its docket, the draft that the store calls, and the answer."""

    __slots__ = ("decision", "docket", "event", "governor", "rows", "sync")

    def __init__(self, governor: Governor, event: Event, rows: Rows = NO_ROWS) -> None:
        self.governor = governor
        self.event = event
        self.rows = rows
        self.decision = PROCEED
        self.docket = governor.panel.concerning(event)
        self.sync = type(event) not in UNSYNCED or any(key.policy == CHECKPOINTS for key in rows)

    def draft(self, snapshot: Snapshot) -> Draft | None:
        """What the store is to write: pure but for the clock."""
        outcome, now = self.weigh(snapshot)
        return self._draft_of(outcome, snapshot, now)

    def weigh(self, snapshot: Snapshot) -> tuple[Outcome, Instant]:
        """Weigh the event on the stored states."""
        governor = self.governor
        now = governor.clock.now()
        if now < snapshot.at:
            now = governor.clock.catch_up(snapshot.at)
        states = governor.states_in(self.docket, snapshot)
        outcome = weigh(self.docket.policies, states, self.event, now)
        self.decision = outcome.decision
        for fault in outcome.faults:
            log.error("a policy failed on %s of %s:\n%s", type(self.event).__name__, self.event.unit, fault)
        return outcome, now

    def _draft_of(self, outcome: Outcome, snapshot: Snapshot, now: Instant) -> Draft | None:
        docket, decision = self.docket, outcome.decision
        changes: dict[Key, bytes | None] = {}
        for place, state in outcome.changed.items():
            key = docket.keys[place]
            if state == docket.initials[place]:
                changes[key] = None
                self.governor.forget(key)
            else:
                changes[key] = data = encode(state)
                self.governor.remember(key, data, state)
        if self.rows and self._keeps_rows(snapshot):
            changes.update(self.rows)
        if docket.refused is not None:
            before = snapshot.records.get(docket.refused)
            if not decision.proceeds:
                codes = encode(sorted(set(decision.codes)))
                if codes == before:
                    return None
                changes[docket.refused] = codes
            elif before is not None:
                changes[docket.refused] = None
        elif not changes and type(self.event) is Beat and not self.event.stuck:
            return None
        body = encode_body(outcome.event, decision, tuple(outcome.faults))
        return Draft(now, changes, Line(self.event.unit, docket.kind, VERB_NAMES[decision.verb], body))

    def _keeps_rows(self, snapshot: Snapshot) -> bool:
        """With a request that is granted; and with a fact, unless its run was given up as lost: what that wants kept
        would take the place of what another run has kept since."""
        if self.docket.refused is not None:
            return self.decision.proceeds
        return not (self.event.run and self.tells_who_lives) or _lives(self.event, snapshot)

    @property
    def tells_who_lives(self) -> bool:
        """Whether the records that it concerns say which runs of the unit live."""
        return Key(Exclusive.NAME, "unit", self.event.unit) in self.docket.places


def _lives(event: Event, snapshot: Snapshot) -> bool:
    """Whether the run that the event is of was granted and has not exited."""
    return event.run in _leases(snapshot, event.unit).runs


def _leases(snapshot: Snapshot, unit: str) -> Leases:
    data = snapshot.records.get(Key(Exclusive.NAME, "unit", unit))
    return Leases() if data is None else readable_state(Leases, data) or Leases()
