"""The simulated runtime: hands without a world. It drives real policies through the real governor, on its own clock.

Closed loop: the delays that the policies return are really applied. Units live, step, fail, hang and overspend as told;
the supervisor may be killed after any event, and people may order and release. Everything random comes from whoever
tells a unit's lives; here there are no dice and no real time, so the same plan always has the same report.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import or_
from typing import Final, NamedTuple

import msgspec

from flyball.core.decision import PROCEED, Decision, Reason, Verb
from flyball.core.event import (
    Amounts,
    Beat,
    Booted,
    Cause,
    Event,
    Exited,
    Held,
    Released,
    Resume,
    Start,
    Step,
    Stepped,
    Work,
)
from flyball.core.failure import FINGERPRINT_VERSION, fingerprint
from flyball.core.panel import Panel
from flyball.core.policy import AnyPolicy
from flyball.core.time import DAY, FOREVER, SECOND, Instant, Span, later
from flyball.governor import Governor
from flyball.policies.budget import OVER_BUDGET
from flyball.store import Store

BEGIN: Final[Instant] = 1_700_000_000 * SECOND
"""Where simulated time begins: a present that looks like one, so that nothing hides behind zero."""

HOLDER: Final = "simulation"
ASKS_EARLY: Final[Span] = SECOND
"""A lease is renewed so long before it ends."""
HISTORY_MAX: Final = 100_000
"""Happenings kept, the latest: enough for a hundred units that are each started a few hundred times."""
STARTS_MAX: Final = 10_000
"""Starts of one simulation: ten times what the fleet may make within an hour by default."""
EVENTS_MAX: Final = 2_000_000
"""Events of one simulation: about a minute of computing."""
LASTS_MAX: Final[Span] = 400 * DAY
"""Simulated time: fifty restarts of a unit that lives just below a day each, many times over."""


class SimulatedClock:
    """Time as the simulation tells it."""

    def __init__(self, now: Instant = BEGIN) -> None:
        self._now = now

    def now(self) -> Instant:
        return self._now

    def catch_up(self, instant: Instant) -> Instant:
        self._now = max(self._now, instant)
        return self._now


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What one run does if nobody stops it: it lives so long, makes steps, and exits."""

    uptime: Span = 0
    """FOREVER: it hangs, and has to be killed."""
    cause: Cause = Cause.ERROR
    error: str = "Error"
    """Names the failure: runs that fail with another one have another fingerprint."""
    steps: tuple[Work, ...] = ()
    """Made in turn, again and again; `{n}` in a pattern, call, result or world is the number of the step."""
    pace: Span = SECOND
    """From one step to the next."""


Lives = Callable[[int, Span], Life]
"""The life of the n-th run of a unit (from 0), begun so long after the simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Something that is started again and again. By itself it is started again as soon as the governor lets it."""

    name: str
    lives: Lives
    labels: Mapping[str, str] = field(default_factory=dict)
    starts_at: Span = 0
    every: Span = 0
    """It never starts again by itself: a trigger starts it every so long, unless it is still running."""
    resumes_after: Span = 0
    """It never starts again by itself: somebody resumes it so long after each exit."""
    released_after: Span = 0
    """A person releases it so long after each hold, `releases_max` times."""
    releases_max: int = 0


class Crash(NamedTuple):
    """The supervisor is killed, its runs with it, and boots again a while later."""

    at: Span
    down: Span = 10 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is simulated, and for how long. Whichever limit is reached first ends it."""

    units: Sequence[Unit]
    crashes: Sequence[Crash] = ()
    kills: frozenset[int] = frozenset()
    """The supervisor is also killed right after these events (counted from 1) are committed, before it can obey."""
    down: Span = 10 * SECOND
    """How long it is away after such a kill."""
    orders: Sequence[tuple[Span, Held | Released]] = ()
    """What people order, and when."""
    lasts_max: Span = LASTS_MAX
    starts_max: int = STARTS_MAX
    events_max: int = EVENTS_MAX


class Happening(NamedTuple):
    """One thing that happened, and the answer to it. Beats and steps are there only if the answer was not just to go
    on."""

    at: Instant
    unit: str
    run: str
    what: str
    """start, resume, step, stepped, beat, exited, booted, killed, held, released."""
    verb: Verb
    until: Instant
    reasons: tuple[Reason, ...]
    by: tuple[str, ...] = ()
    """The policies that decided it: with that verb, until that time. The others would have been content with less."""
    cause: Cause | None = None
    error: str = ""


@dataclass(slots=True, kw_only=True)
class Fate:
    """What became of a unit."""

    unit: str
    starts: int = 0
    steps: int = 0
    spent: dict[str, int] = field(default_factory=dict)
    first_start: Instant | None = None
    ended: Verb | None = None
    """HOLD, STOP or FINISH, or a WAIT without an end; None: it was still going on when the simulation ended."""
    ended_at: Instant | None = None
    ended_by: tuple[str, ...] = ()
    """The policies that said so."""
    reasons: tuple[Reason, ...] = ()

    @property
    def held(self) -> bool:
        """Refused until a person releases it."""
        return self.ended is Verb.HOLD

    @property
    def held_by(self) -> tuple[str, ...]:
        """The policies that hold it."""
        return self.ended_by if self.held else ()

    @property
    def spans(self) -> Span | None:
        """From the first start to the end."""
        return None if self.ended_at is None or self.first_start is None else self.ended_at - self.first_start

    def goes_on(self) -> None:
        """It did not end after all: it is started again, or will be."""
        self.ended, self.ended_at, self.ended_by, self.reasons = None, None, (), ()


class Run(NamedTuple):
    """One run, as a row of a table."""

    number: int
    started: Instant
    waited: Span
    """Since the exit before it."""
    resumed: bool
    exited: Instant | None = None
    cause: Cause | None = None
    error: str = ""
    verb: Verb | None = None
    """The answer to its exit, with its reasons and the policies that decided it."""
    reasons: tuple[Reason, ...] = ()
    by: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Report:
    """What a simulation came to."""

    began: Instant
    history: deque[Happening] = field(default_factory=lambda: deque(maxlen=HISTORY_MAX))
    forgotten: int = 0
    """Happenings that are no longer in the history."""
    fates: dict[str, Fate] = field(default_factory=dict)
    ended_at: Instant = 0
    ended_by: str = ""
    """The limit that ended it; empty: nothing was left to happen."""
    events: int = 0
    boots: int = 0

    @property
    def starts(self) -> int:
        """Of all units."""
        return sum(fate.starts for fate in self.fates.values())

    @property
    def held(self) -> bool:
        """Some unit is held."""
        return any(fate.held for fate in self.fates.values())

    @property
    def held_by(self) -> tuple[str, ...]:
        """The policies that hold some unit."""
        return tuple(sorted({policy for fate in self.fates.values() for policy in fate.held_by}))

    def runs(self, unit: str) -> Iterator[Run]:
        """The runs of a unit that are in the history, in order."""
        run: Run | None = None
        number, last_exit = 0, None
        for what in self.history:
            if what.unit != unit:
                continue
            if what.what in ("start", "resume") and what.verb is Verb.PROCEED:
                if run is not None:
                    yield run
                number += 1
                waited = 0 if last_exit is None else what.at - last_exit
                run = Run(number, what.at, waited, what.what == "resume")
            elif what.what == "exited" and run is not None:
                last_exit = what.at
                ended = run._replace(exited=what.at, cause=what.cause, error=what.error)
                yield ended._replace(verb=what.verb, reasons=what.reasons, by=what.by)
                run = None
        if run is not None:
            yield run


def simulate(policies: Panel | Sequence[AnyPolicy], store: Store, plan: Plan) -> Report:
    """Run a plan under these policies. The store should be empty, or have been left by an earlier simulation."""
    return _Simulation(policies if isinstance(policies, Panel) else Panel(policies), store, plan).run()


class _Killed(Exception):
    """Stands for kill -9 of the supervisor: the event is committed, and nobody reads the answer."""


class _Driver:
    """One unit, and the run of it that the supervisor has in hand."""

    __slots__ = ("life", "releases", "run", "runs", "told", "unit")

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.runs = 0
        self.run = ""
        """The live run, if there is one."""
        self.life = Life()
        self.told: Verb | None = None
        """What the live run was told that ends it."""
        self.releases = 0


class _Due(NamedTuple):
    """Something that is to happen. It does not if the supervisor that meant to do it, or the run that it is about, is
    gone by then."""

    at: Instant
    order: int
    """What is due at the same instant happens in the order in which it was thought of."""
    act: Callable[[], None]
    supervisor: int = 0
    """Which life of the supervisor; 0: it happens whatever becomes of the supervisor."""
    driver: _Driver | None = None
    run: str = ""


class _Simulation:
    """The event queue, and the driver loop of every unit."""

    def __init__(self, panel: Panel, store: Store, plan: Plan) -> None:
        self._panel = panel
        self._store = store
        self._plan = plan
        self._clock = SimulatedClock(max(BEGIN, store.read(()).at))
        self._governor = Governor(panel, store, self._clock)
        self._drivers = {unit.name: _Driver(unit) for unit in plan.units}
        self._queue: list[_Due] = []
        self._thought_of = 0
        self._starts = 0
        self._supervisor = 1
        """Which life of the supervisor this is: what an earlier one had in mind is forgotten."""
        self._began = self._clock.now()
        self._report = Report(began=self._began)
        self._report.fates = {unit.name: Fate(unit=unit.name) for unit in plan.units}

    def run(self) -> Report:
        plan, report = self._plan, self._report
        ends = later(self._began, plan.lasts_max)
        for crash in plan.crashes:
            self._in_the_world(self._began + crash.at, partial(self._kill, crash.down))
        for at, order in plan.orders:
            self._in_the_world(self._began + at, partial(self._obey_person, order))
        self._at(self._began, self._boot)
        while self._queue and not report.ended_by:
            due = heapq.heappop(self._queue)
            if due.supervisor not in (0, self._supervisor) or (due.driver and due.driver.run != due.run):
                continue
            if due.at > ends:
                report.ended_by = "lasts_max"
                self._clock.catch_up(ends)
                break
            self._clock.catch_up(due.at)
            try:
                due.act()
            except _Killed:
                self._kill(plan.down)
            if self._starts >= plan.starts_max:
                report.ended_by = "starts_max"
            elif report.events >= plan.events_max:
                report.ended_by = "events_max"
        report.ended_at = self._clock.now()
        return report

    # The queue.

    def _in_the_world(self, at: Instant, act: Callable[[], None]) -> None:
        """This happens then, whatever becomes of the supervisor."""
        self._thought_of += 1
        heapq.heappush(self._queue, _Due(max(at, self._clock.now()), self._thought_of, act))

    def _at(self, at: Instant, act: Callable[[], None], driver: _Driver | None = None) -> None:
        """The supervisor means to do this then; with a driver, only if its present run is still live."""
        if at < FOREVER:
            self._thought_of += 1
            run = driver.run if driver else ""
            due = _Due(max(at, self._clock.now()), self._thought_of, act, self._supervisor, driver, run)
            heapq.heappush(self._queue, due)

    # The governor.

    def _submit(self, event: Event) -> Decision:
        report = self._report
        decision = self._governor.submit(event)
        report.events += 1
        if decision.verb is not Verb.PROCEED or decision.reasons or not isinstance(event, Beat | Step | Stepped):
            self._record(event, decision)
        if report.events in self._plan.kills:
            # What was granted is taken as made, at its worst case: nobody lives to say otherwise.
            if isinstance(event, Start) and decision.proceeds:
                self._count_start(event)
            elif isinstance(event, Step) and decision.proceeds:
                self._count_step(event.unit, event.cost)
            raise _Killed
        return decision

    def _record(self, event: Event, decision: Decision) -> None:
        by = () if decision.proceeds else self._deciders(event, decision)
        cause, error = (event.cause, event.error) if isinstance(event, Exited) else (None, "")
        what = type(event).__name__.lower()
        verb, until, reasons = decision.verb, decision.until, decision.reasons
        self._keep(Happening(self._clock.now(), event.unit, event.run, what, verb, until, reasons, by, cause, error))

    def _keep(self, happening: Happening) -> None:
        report = self._report
        report.forgotten += len(report.history) == HISTORY_MAX
        report.history.append(happening)

    def _deciders(self, event: Event, decision: Decision) -> tuple[str, ...]:
        """The policies whose own answer is the decision. A refused request has left no trace, so it is asked again; a
        fact is in the states already."""
        now = self._clock.now()
        names = set()
        for policy, state, said in self._governor.opinions(event):
            answer = policy.decide(policy.evolve(state, event, now), now) if event.asks else said
            if (answer.verb, answer.until) == (decision.verb, decision.until):
                names.add(policy.name)
        return tuple(sorted(names))

    def _standing(self, event: Event) -> Decision:
        """What the policies say that the event concerned, now that it is in their states."""
        return reduce(or_, (said for _, _, said in self._governor.opinions(event)), PROCEED)

    # The supervisor.

    def _boot(self) -> None:
        report = self._report
        report.boots += 1
        decision = self._governor.boot(HOLDER, units=len(self._drivers))
        for driver in self._drivers.values():
            if driver.run:
                unit, run = driver.unit, driver.run
                driver.run = ""
                lost = Exited(unit=unit.name, run=run, labels=unit.labels, cause=Cause.LOST, error="lost")
                self._record(lost, self._standing(lost))
        report.events += 1
        self._record(Booted(), decision)
        if report.events in self._plan.kills:
            raise _Killed
        for driver in self._drivers.values():
            self._at(self._next_start(driver, self._clock.now()), partial(self._start, driver))

    def _kill(self, down: Span) -> None:
        now = self._clock.now()
        self._supervisor += 1
        self._keep(Happening(now, "", "", "killed", Verb.PROCEED, FOREVER, ()))
        self._governor = Governor(self._panel, self._store, self._clock)
        self._at(now + down, self._boot)

    def _obey_person(self, order: Held | Released) -> None:
        self._record(order, self._governor.submit(order))
        self._report.events += 1
        for driver in self._drivers.values():
            if order.scope == "unit" and driver.unit.name != order.unit:
                continue
            now = self._clock.now()
            if driver.run:
                self._at(now, partial(self._ask, driver), driver)
            elif isinstance(order, Released) and self._report.fates[driver.unit.name].ended is not None:
                self._at(now, partial(self._start, driver))

    # One unit.

    def _next_start(self, driver: _Driver, at: Instant) -> Instant:
        """When to ask for its next run, not before that instant."""
        unit = driver.unit
        first = self._began + unit.starts_at
        if unit.every and at > first:
            return first + -(-(at - first) // unit.every) * unit.every
        return max(at, first)

    def _start(self, driver: _Driver) -> None:
        unit = driver.unit
        if driver.run:
            return
        run = str(driver.runs + 1)
        if unit.resumes_after and driver.runs:
            event: Start = Resume(unit=unit.name, run=run, labels=unit.labels, holder=HOLDER)
        else:
            again = driver.runs > 0 and not unit.every
            event = Start(unit=unit.name, run=run, labels=unit.labels, again=again, holder=HOLDER)
        decision = self._submit(event)
        if not decision.proceeds:
            self._go_on(driver, event, decision)
            return
        self._count_start(event)
        now = self._clock.now()
        driver.told = None
        driver.life = life = unit.lives(driver.runs - 1, now - self._began)
        self._at(later(now, life.uptime), partial(self._exit, driver, life.cause, life.error), driver)
        if life.steps:
            self._at(later(now, life.pace), partial(self._step, driver, 0), driver)
        self._renew(driver, decision)

    def _count_start(self, event: Start) -> None:
        driver, fate = self._drivers[event.unit], self._report.fates[event.unit]
        self._starts += 1
        driver.runs += 1
        driver.run = event.run
        fate.starts += 1
        fate.goes_on()
        if fate.first_start is None:
            fate.first_start = self._clock.now()

    def _count_step(self, unit: str, used: Amounts) -> None:
        fate = self._report.fates[unit]
        fate.steps += 1
        for meter, amount in used.items():
            fate.spent[meter] = fate.spent.get(meter, 0) + amount

    def _renew(self, driver: _Driver, decision: Decision) -> None:
        """Ask again before the lease ends; or, where it was asked just before and not made longer, at its end."""
        now, early = self._clock.now(), decision.until - ASKS_EARLY
        self._at(early if early > now else max(decision.until, now + 1), partial(self._ask, driver), driver)

    def _ask(self, driver: _Driver) -> None:
        if driver.told is not None:
            return
        event = Beat(
            unit=driver.unit.name, run=driver.run, labels=driver.unit.labels, silent=driver.life.uptime >= FOREVER
        )
        decision = self._submit(event)
        if decision.verb >= Verb.FINISH:
            self._end(driver, event, decision)
        else:
            self._renew(driver, decision)

    def _step(self, driver: _Driver, number: int) -> None:
        if driver.told is not None:
            return
        unit, run, life = driver.unit, driver.run, driver.life
        work = _filled(life.steps[number % len(life.steps)], number + 1)
        asked = Step(
            unit=unit.name, run=run, labels=unit.labels, pattern=work.pattern, call=work.call, cost=work.reserved
        )
        decision = self._submit(asked)
        if decision.verb >= Verb.FINISH:
            self._end(driver, asked, decision)
            return
        now = self._clock.now()
        if decision.verb is Verb.WAIT and decision.until < FOREVER:
            self._at(max(decision.until, now + 1), partial(self._step, driver, number), driver)
            return
        if decision.verb is Verb.WAIT:
            work = msgspec.structs.replace(work, refused=True, reserved={}, used={})
        else:
            self._count_step(unit.name, work.used)
        made = Stepped(unit=unit.name, run=run, labels=unit.labels, done=(work,))
        decision = self._submit(made)
        if decision.verb >= Verb.FINISH:
            self._end(driver, made, decision)
            return
        self._at(now + max(life.pace, 1), partial(self._step, driver, number + 1), driver)

    def _end(self, driver: _Driver, event: Event, decision: Decision) -> None:
        """The live run was told to end. It obeys at once; what hangs is killed when its time is up."""
        cause = cause_of(decision)
        error = "" if cause in (Cause.DONE, Cause.STOPPED) else str(cause)
        driver.told = decision.verb
        now = self._clock.now()
        hangs = driver.life.uptime == FOREVER and decision.verb is Verb.STOP and decision.until < FOREVER
        self._settle(driver, event, decision)
        self._at(max(decision.until, now) if hangs else now, partial(self._exit, driver, cause, error), driver)

    def _exit(self, driver: _Driver, cause: Cause, error: str) -> None:
        unit, run, failed = driver.unit, driver.run, cause.failed
        event = Exited(
            unit=unit.name,
            run=run,
            labels=unit.labels,
            cause=cause,
            fingerprint=fingerprint(unit.name, error) if failed else "",
            version=FINGERPRINT_VERSION if failed else 0,
            error=error if failed else "",
        )
        driver.run = ""
        decision = self._submit(event)
        told = driver.told
        driver.told = None
        if told in (Verb.FINISH, Verb.HOLD) and decision.verb < Verb.HOLD and not unit.every:
            return
        self._go_on(driver, event, decision)

    def _go_on(self, driver: _Driver, event: Event, decision: Decision) -> None:
        """No run is live: when is the next one asked for?"""
        unit, now = driver.unit, self._clock.now()
        exited = isinstance(event, Exited)
        if decision.verb is Verb.HOLD:
            self._held(driver, event, decision)
            return
        if unit.every:
            at = self._next_start(driver, now + 1)
        elif unit.resumes_after and exited:
            at = now + unit.resumes_after
        elif decision.proceeds:
            at = now
        elif decision.verb is Verb.WAIT and decision.until < FOREVER:
            at = decision.until if exited else max(decision.until, now + 1)
        else:
            if self._report.fates[unit.name].ended is None:
                self._settle(driver, event, decision)
            return
        self._report.fates[unit.name].goes_on()
        self._at(at, partial(self._start, driver))

    def _held(self, driver: _Driver, event: Event, decision: Decision) -> None:
        unit = driver.unit
        self._settle(driver, event, decision)
        if driver.releases < unit.releases_max:
            driver.releases += 1
            released = Released(unit=unit.name, by="a person")
            self._in_the_world(self._clock.now() + unit.released_after, partial(self._obey_person, released))
        self._at(decision.until, partial(self._start, driver))

    def _settle(self, driver: _Driver, event: Event, decision: Decision) -> None:
        """This is how it ended, unless it is started again."""
        fate = self._report.fates[driver.unit.name]
        by = self._deciders(event, decision)
        if (fate.ended, fate.ended_by) == (decision.verb, by):
            return
        fate.ended, fate.ended_at, fate.ended_by = decision.verb, self._clock.now(), by
        fate.reasons = tuple(reason for reason in decision.reasons if reason.policy in by)


_CAUSES: Final = {
    "timeout": Cause.TIMEOUT,
    "idle_timeout": Cause.TIMEOUT,
    OVER_BUDGET: Cause.STARVED,
    "finishing": Cause.STOPPED,
}


def cause_of(decision: Decision) -> Cause:
    """What the exit of a run is reported as that ended because of this decision."""
    for code in decision.codes:
        if code in _CAUSES:
            return _CAUSES[code]
    return Cause.DONE if decision.verb is Verb.FINISH else Cause.STOPPED


def _filled(work: Work, number: int) -> Work:
    if "{n}" not in work.pattern + work.call + work.result + work.world:
        return work
    return msgspec.structs.replace(
        work,
        pattern=work.pattern.replace("{n}", str(number)),
        call=work.call.replace("{n}", str(number)),
        result=work.result.replace("{n}", str(number)),
        world=work.world.replace("{n}", str(number)),
    )
