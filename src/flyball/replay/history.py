"""A journal under other settings: what would have become of it.

From the first difference on, histories part. What the record goes on to tell of a run that would have been refused or
ended by then is left out, and counted as saved. A run that was refused in the record never happened, so nothing is
known of what would have followed: it is counted as let go, and that is all.
"""

from typing import Final, NamedTuple

import msgspec

from flyball.core.decision import Decision, Verb
from flyball.core.event import Beat, Cause, Event, Exited, Start, Step, Stepped, Work
from flyball.core.panel import Docket, Panel
from flyball.core.policy import Outcome
from flyball.core.time import FOREVER, SECOND, Instant, Span
from flyball.replay.export import Told
from flyball.replay.journal import Weighing
from flyball.replay.side import SLICES, Side, case_of
from flyball.store import Snapshot

RUNS_MAX: Final = 100_000
"""Runs of which something is remembered until they exit. The oldest go first."""

LATE_MAX: Final[Span] = 2 * SECOND
"""How late a runtime may be to ask again when a lease ends: what was granted within it is not held against it."""

RunKey = tuple[str, str]


class Window(NamedTuple):
    """The part of the history that is counted, from its first instant to its last."""

    since: Instant
    until: Instant

    def slice_of(self, at: Instant) -> int:
        """Which part of it an instant lies in."""
        return min(SLICES - 1, (at - self.since) * SLICES // max(1, self.until - self.since))


class Record:
    """The history as it is: the side that others are compared with."""

    def __init__(self, name: str, window: Window) -> None:
        self.side = Side(name)
        self._window = window
        self._ending: dict[RunKey, Instant] = {}
        """Runs that were told to end and have not exited."""

    def hear(self, told: Told) -> None:
        """One entry more."""
        self._count(told.event, told.decision, told.at)

    def _count(self, event: Event, decision: Decision, at: Instant) -> bool:
        """Add what an event and its answer come to; whether they are to be counted."""
        ends = event.run != "" and decision.verb >= Verb.FINISH and isinstance(event, Step | Stepped | Beat)
        key = (event.unit, event.run)
        again = ends and key in self._ending
        if ends:
            _remember(self._ending, key, at)
        elif isinstance(event, Exited):
            self._ending.pop(key, None)
        if at < self._window.since:
            return False
        side, verb = self.side, decision.verb
        if isinstance(event, Stepped):
            side.made(event.done)
            side.nudged += decision.proceeds and bool(decision.reasons)
        elif isinstance(event, Start):
            later = verb is Verb.WAIT and decision.until < FOREVER
            side.starts += decision.proceeds
            side.starts_put_off += later
            side.starts_refused += not later and not decision.proceeds
            if decision.proceeds:
                side.slices[self._window.slice_of(at)] += 1
        elif isinstance(event, Step):
            side.calls_refused += verb is Verb.WAIT
        side.ended += ends and not again
        side.held += verb is Verb.HOLD and not event.asks
        if not again and (ends or verb is Verb.HOLD or (event.asks and not decision.proceeds)):
            side.note(decision)
        return True


class Course(Record):
    """The course that history would have taken under a panel."""

    def __init__(self, name: str, panel: Panel, base: Snapshot, window: Window, *, allowances: bool = True) -> None:
        super().__init__(name, window)
        self.weighed = 0
        self.differing = 0
        """Decisions that did not come out as they were written down."""
        self.first: Told | None = None
        """The first of them."""
        self._weighing = Weighing(panel, base)
        self._allowances = allowances
        """Whether the record tells what was granted beyond one step."""
        self._gone: dict[RunKey, Instant] = {}
        """Runs that were refused or ended here, while the record goes on."""
        self._refused: dict[RunKey, Instant] = {}
        """Runs whose last call was refused here, but made in the record."""
        self._free: dict[RunKey, Instant] = {}
        """Runs that were refused or ended in the record, but not here."""
        self._leases: dict[RunKey, Instant] = {}
        """When runs have to ask again."""

    def hear(self, told: Told) -> None:
        """One entry more."""
        event, at, key = told.event, told.at, (told.event.unit, told.event.run)
        if event.run and (key in self._gone or self._ran_out(event, at)):
            self._leave_out(event, at)
            return
        if isinstance(event, Stepped) and key in self._refused:
            del self._refused[key]
            event = self._insisting(event, at)
        docket, outcome = self._weighing.weigh(event, at)
        decision = outcome.decision
        self._compare(told, decision)
        if event.asks and decision.proceeds is not told.decision.proceeds:
            self._part(told, decision)
            return
        if told.decision.verb < Verb.FINISH <= decision.verb and isinstance(event, Stepped | Beat):
            self._end_within(event, at)
            return
        self._weighing.keep(docket, outcome)
        self._lease(event, decision)
        if decision.verb < Verb.FINISH <= told.decision.verb and isinstance(event, Stepped | Beat):
            self._let_go(key, at)
        if self._count(event, decision, at) and decision.verb is Verb.HOLD and told.decision.verb is not Verb.HOLD:
            self._list(event, decision, at)
        if isinstance(event, Exited):
            self._free.pop(key, None)

    def _compare(self, told: Told, decision: Decision) -> None:
        self.weighed += 1
        if not self._allowances and decision.allowance is not None:
            decision = Decision(decision.verb, decision.until, decision.reasons)
        if decision != told.decision:
            self.differing += 1
            self.first = self.first or told

    def _part(self, told: Told, decision: Decision) -> None:
        """A request that was granted is refused, or the other way round. Neither leaves a trace."""
        event, at, key = told.event, told.at, (told.event.unit, told.event.run)
        if decision.proceeds:
            self._let_go(key, at)
            return
        if self._count(event, decision, at):
            self.side.saved_starts += isinstance(event, Start)
            self._list(event, decision, at)
        if isinstance(event, Start):
            _remember(self._gone, key, at)
        elif isinstance(event, Step) and decision.verb is Verb.WAIT:
            _remember(self._refused, key, at)
        elif isinstance(event, Step):
            self._end(event, decision, at)

    def _let_go(self, key: RunKey, at: Instant) -> None:
        """What was refused or ended in the record is not so here: once for each run."""
        self.side.let_go += at >= self._window.since and key not in self._free
        _remember(self._free, key, at)

    def _insisting(self, event: Stepped, at: Instant) -> Stepped:
        """The step that was refused before it was made: the agent is told so, and nothing else comes of it. Of steps
        that were reported together it is not known which one it was: they stay."""
        if len(event.done) != 1:
            return event
        work = event.done[0]
        if at >= self._window.since:
            self.side.not_made(event.done)
        return msgspec.structs.replace(event, done=(Work(pattern=work.pattern, call=work.call, refused=True),))

    def _end_within(self, event: Event, at: Instant) -> None:
        """Of steps that were reported together, those up to the one that ends the run were made."""
        docket, outcome = self._shortest(event, at)
        self._weighing.keep(docket, outcome)
        if self._count(outcome.event, outcome.decision, at):
            self._list(event, outcome.decision, at)
            if isinstance(event, Stepped) and isinstance(outcome.event, Stepped):
                self.side.not_made(event.done[len(outcome.event.done) :])
        self._end(event, outcome.decision, at)

    def _shortest(self, event: Event, at: Instant) -> tuple[Docket, Outcome]:
        done = event.done if isinstance(event, Stepped) else ()
        for count in range(1, len(done)):
            docket, outcome = self._weighing.weigh(msgspec.structs.replace(event, done=done[:count]), at)
            if outcome.decision.verb >= Verb.FINISH:
                return docket, outcome
        return self._weighing.weigh(event, at)

    # A run that gives no sign: when its lease ends, its runtime asks again.

    def _lease(self, event: Event, decision: Decision) -> None:
        if not event.run:
            return
        if isinstance(event, Exited) or not decision.proceeds or decision.until >= FOREVER:
            self._leases.pop((event.unit, event.run), None)
        else:
            _remember(self._leases, (event.unit, event.run), decision.until)

    def _ran_out(self, event: Event, at: Instant) -> bool:
        """Whether the run was ended before this event, when its lease ran out. What was stopped or ran into a deadline
        in the record was ended there too."""
        lease = self._leases.get((event.unit, event.run), FOREVER)
        if lease + LATE_MAX >= at or (isinstance(event, Exited) and event.cause in (Cause.STOPPED, Cause.TIMEOUT)):
            return False
        asked = Beat(unit=event.unit, run=event.run, labels=event.labels, silent=True)
        _, outcome = self._weighing.weigh(asked, lease)
        if outcome.decision.verb < Verb.FINISH:
            return False
        if self._count(asked, outcome.decision, lease):
            self._list(asked, outcome.decision, lease)
        self._end(asked, outcome.decision, lease)
        return True

    # The end of a run, here.

    def _end(self, event: Event, decision: Decision, at: Instant) -> None:
        """The run is ended as its runtime would have ended it."""
        reason = decision.primary
        ended = Exited(
            unit=event.unit,
            run=event.run,
            labels=event.labels,
            cause=Cause.STOPPED,
            error=reason.code if reason else "",
            policy=reason.policy if reason else "",
        )
        self._weighing.submit(ended, at)
        self._leases.pop((event.unit, event.run), None)
        _remember(self._gone, (event.unit, event.run), at)

    def _leave_out(self, event: Event, at: Instant) -> None:
        if isinstance(event, Exited):
            self._gone.pop((event.unit, event.run), None)
            self._ending.pop((event.unit, event.run), None)
        elif isinstance(event, Stepped) and at >= self._window.since:
            self.side.not_made(event.done)

    def _list(self, event: Event, decision: Decision, at: Instant) -> None:
        self.side.list_case(case_of(event.unit, event.run, decision, at, None))


def _remember(runs: dict[RunKey, Instant], key: RunKey, at: Instant) -> None:
    runs[key] = at
    if len(runs) > RUNS_MAX:
        del runs[next(iter(runs))]
