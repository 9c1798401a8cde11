"""Laws that every policy keeps, for whoever writes one: call `check_policy(MyPolicy())` in a test.

Histories are made up by hypothesis: all kinds of events, a few names that keep meeting again, instants that never fall
and like to lie on boundaries. A policy is walked through them as the governor would do it (a refused request leaves its
state as it was), and every law is checked at every event. What is found is shown as the shortest history that shows it.

A law that a policy breaks by design is not switched off here: it is named in the call (`raises`, `size_max`), so that
the test says what the policy promises.
"""

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from types import ModuleType
from typing import Any, Final

try:
    from hypothesis import given, settings
    from hypothesis import strategies as st
except ImportError as missing:
    raise ImportError("flyball.testing.laws needs hypothesis: pip install 'flyball-governor[testing]'") from missing

from flyball.core.codec import decode_event, decode_state, encode
from flyball.core.decision import PROCEED, Allowance, Decision, Reason, Verb
from flyball.core.event import (
    Acknowledged,
    Amounts,
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
    Request,
    Resume,
    Revise,
    Settled,
    Start,
    Step,
    Stepped,
    Work,
)
from flyball.core.panel import REFUSED
from flyball.core.policy import AnyPolicy, State, hears, weigh
from flyball.core.time import DAY, FOREVER, HOUR, MINUTE, SECOND, Instant, Span
from flyball.governor import Governor
from flyball.store.memory import MemoryStore
from flyball.testing.clock import START_OF_TIME, FakeClock

History = Sequence[tuple[Instant, Event]]
"""Events with their instants, which never fall."""

EVENTS_MAX: Final = 40
"""Events in one made-up history: enough for six failures, a wait and a release; more only makes a failure hard to read.
Long histories are the business of `check_bounded`."""

HOSTILE_ROUNDS: Final = 1_000
"""Rounds of the long histories that try to make a state grow: enough to fill every memory of a policy here (the largest
holds 1,100 things, and four are added in a round)."""

SIZE_MAX: Final = 16_384
"""Bytes that a state may take when it is written down, unless a policy says otherwise: that is at every change."""

ASKED_AGAIN_MAX: Final = 3
"""How often a wait is followed to its end in one place: whether it goes on or not shows at once."""

_YEARS: Final[Span] = 3_650 * DAY
_GAPS: Final = (0, 1, SECOND, 10 * SECOND, MINUTE, MINUTE + 1, 300 * SECOND, 301 * SECOND, HOUR, HOUR + 1, DAY, DAY + 1)
_UNITS: Final = ("north", "south", "east", "west")
_RUNS: Final = ("r1", "r2", "r3", "r4", "r5")
_NAMES: Final = ("", "one", "two", "three")
_PEOPLE: Final = ("", "ann")
_LABELS: Final = ("provider", "user", "tree")
_AMOUNTS: Final[tuple[Amounts, ...]] = (
    {},
    {"usd": 1},
    {"usd": 200_000},
    {"usd": 900_000, "tokens": 5_000},
    {"tokens": 40_000},
)
_GAUGES: Final[tuple[dict[str, float], ...]] = (
    {},
    {"round": 1.0},
    {"round": 5.0, "convergence": 0.85},
    {"round": 15.0},
    {"convergence": 0.9},
    {"agreement": 0.8},
    {"convergence": float("nan"), "agreement": float("inf"), "round": float("inf")},
)


def _picked(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def works() -> st.SearchStrategy[Work]:
    """Finished steps."""
    return st.builds(
        Work,
        pattern=_picked(*_NAMES),
        call=_picked(*_NAMES),
        result=_picked(*_NAMES),
        world=_picked("", "", "", "world"),
        error=st.booleans(),
        cut=_picked(False, False, True),
        refused=_picked(False, False, True),
        polling=_picked(False, False, True),
        reserved=_picked(*_AMOUNTS),
        used=_picked(*_AMOUNTS),
        gauges=_picked(*_GAUGES),
        ago=_picked(0, 0, 1, SECOND, HOUR),
        times=_picked(1, 1, 5),
    )


def events(by: str = "fleet") -> st.SearchStrategy[Event]:
    """Events of every kind that concern one subject: one unit, one run, all units with one label, or the fleet."""
    who: dict[str, st.SearchStrategy[Any]] = {
        "unit": st.just("north") if by in ("unit", "run") else _picked(*_UNITS),
        "run": st.just("r1") if by == "run" else _picked(*_RUNS),
        "labels": st.just({by: "here"} if by not in ("unit", "run", "fleet") else {}),
    }
    scope = _picked(by, by, "unit", "fleet", *_LABELS)
    name, person = _picked(*_NAMES), _picked(*_PEOPLE)
    start: dict[str, st.SearchStrategy[Any]] = {**who, "again": st.booleans(), "holder": _picked("", "host:1")}
    exits = st.builds(
        Exited,
        **who,
        cause=_picked(*Cause),
        fingerprint=name,
        version=st.just(1),
        error=name,
        pause=_picked("", "", "rate_limit", "person"),
        resume_at=_picked(0, START_OF_TIME + HOUR),
        progress=st.booleans(),
    )
    kinds: tuple[st.SearchStrategy[Any], ...] = (
        st.builds(Start, **start),
        st.builds(Resume, **start, checkpoint=name),
        st.builds(
            Step,
            **who,
            pattern=name,
            call=name,
            cost=_picked(*_AMOUNTS),
            steps=_picked(1, 1, 2, 30, 100),
            last=st.booleans(),
            part=_picked(False, False, True),
        ),
        st.builds(
            Stepped,
            **who,
            done=st.lists(works(), max_size=4).map(tuple),
            allowed=_picked(0, 0, 2, 30),
            returned=_picked(*_AMOUNTS),
            heard=st.booleans(),
            part=_picked(False, False, True),
        ),
        st.builds(Beat, **who),
        st.builds(
            Asked,
            **who,
            id=name,
            text=name,
            choices=_picked((), ("yes", "no")),
            until=_picked(0, START_OF_TIME + HOUR, FOREVER),
            default=_picked(None, "no"),
        ),
        st.builds(Answered, **who, id=name, answer=_picked(None, "yes"), heard=st.booleans(), by=person),
        exits,
        exits,
        exits,
        st.builds(Fired, **who, id=name, trigger=name, depth=_picked(0, 1, 30), dropped=_picked("", "queue_full")),
        st.builds(Booted, units=_picked(0, 1, 100), skew=_picked(0, 1, -HOUR, 31 * DAY)),
        st.builds(Joined, host=name, holder=name),
        st.builds(Left, host=name, holder=name, lost=st.booleans(), runs=_picked(0, 1, 100), by=name),
        st.builds(Held, **who, scope=scope, verb=_picked(*Verb), by=person, note=name),
        st.builds(
            Released,
            **who,
            scope=scope,
            policies=_picked((), ("manual",), ("storm", "quarantine", "limit")),
            fingerprint=name,
            by=person,
        ),
        st.builds(Settled, **who, reserved=_picked(*_AMOUNTS), used=_picked(*_AMOUNTS), by=person),
        st.builds(Raised, **who, scope=scope, more=_picked(*_AMOUNTS), by=person, note=name),
        st.builds(Acknowledged, **who, problem=name, until=_picked(0, START_OF_TIME + HOUR, FOREVER), by=person),
        st.builds(Ordered, **who, verb=name, asked=name, effect=name, refused=name, by=person, channel=name),
        st.builds(Revise, **who, revision=_picked("a", "b", "c"), by=person),
    )
    return st.one_of(*kinds)


def histories(by: str = "fleet", *, size: int = EVENTS_MAX) -> st.SearchStrategy[History]:
    """What may happen to one subject. Now and then the same event comes again and again: that is what runs away."""
    gap = st.one_of(_picked(*_GAPS), st.integers(0, 2 * MINUTE))
    moves = st.lists(st.tuples(gap, events(by), _picked(1, 1, 1, 6)), max_size=size)
    return moves.map(lambda drawn: _dated(drawn)[:size])


def _dated(moves: Sequence[tuple[Span, Event, int]]) -> History:
    now, history = START_OF_TIME, []
    for gap, event, times in moves:
        for _ in range(times):
            now += gap
            history.append((now, event))
    return history


def decisions() -> st.SearchStrategy[Decision]:
    """Decisions of every verb."""
    reason = st.builds(Reason, _picked("a", "b"), _picked("x", "y"), st.just("text"), st.just("remedy"))
    allowance = st.builds(Allowance, _picked(0, 1, 9), _picked({}, {"usd": 1}, {"usd": 5, "tokens": 2}))
    return st.builds(
        Decision,
        _picked(*Verb),
        _picked(0, 1, START_OF_TIME, FOREVER),
        st.lists(reason, max_size=3, unique=True).map(lambda reasons: tuple(sorted(reasons))),
        st.one_of(st.none(), allowance),
    )


FAILURES_MAX: Final = 100
"""Failures in a row after which a policy that ever holds for them does so."""


def check_policy(
    policy: AnyPolicy,
    *,
    raises: tuple[type[Exception], ...] = (),
    size_max: int = SIZE_MAX,
    examples: int | None = None,
) -> None:
    """All laws. `raises`: what it raises by design at events that make no sense; `size_max`: bytes of its state.

    `examples` is how many histories are tried; without it, as many as hypothesis is set to."""
    check_imports(policy)
    check_beginning(policy)
    tried = settings(deadline=None, max_examples=examples or settings().max_examples)

    @tried
    @given(histories(policy.by))
    def walked(history: History) -> None:
        check_history(policy, history, raises=raises, size_max=size_max)

    @settings(tried, max_examples=max(1, tried.max_examples // 4))
    @given(histories(policy.by, size=EVENTS_MAX // 2))
    def governed(history: History) -> None:
        check_governed(policy, history)

    walked()
    governed()
    check_holds(policy)
    check_bounded(policy, raises=raises, size_max=size_max)


def check_imports(policy: AnyPolicy) -> None:
    """Pure: its module has no clock and no dice at hand."""
    module = sys.modules[type(policy).__module__]
    impure = {"time", "random", "secrets", "uuid"}
    for name, value in vars(module).items():
        owner = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        bound_to = type(getattr(value, "__self__", None)).__module__
        assert not impure & {owner, bound_to}, f"{module.__name__} has {name}: a policy is told the present"


def check_holds(policy: AnyPolicy) -> None:
    """A hold that failures came to is left by no exit, however that run ended: made-up histories come to it rarely."""
    if policy.by == "run" or not hears(policy.at, Exited):
        return
    state, now = policy.initial(), START_OF_TIME
    labels = {} if policy.by in ("unit", "fleet") else {policy.by: "here"}
    for _ in range(FAILURES_MAX):
        now += SECOND
        failed = Exited(unit="north", run="r1", labels=labels, cause=Cause.ERROR, fingerprint="one", error="one")
        state = policy.evolve(state, failed, now)
        decision = policy.decide(state, now)
        if decision.verb is Verb.HOLD and decision.until == FOREVER:
            for cause in Cause:
                ended = Exited(unit="north", run="r1", labels=labels, cause=cause, fingerprint="one", error="one")
                after = policy.decide(policy.evolve(state, ended, now + 1), now + 1)
                assert after.verb is Verb.HOLD, f"Exited left a hold: {after}"
            return


def check_beginning(policy: AnyPolicy) -> None:
    """When nothing has happened there is nothing to remember, and nothing against a start."""
    state = policy.initial()
    assert state == policy.initial(), "initial() is the same each time"
    assert encode(state) == b"{}", "every field of a state has a default, and initial() is all of them"
    start = Start(unit="north", run="r1", labels={policy.by: "here"})
    decision = policy.decide(policy.evolve(state, start, START_OF_TIME), START_OF_TIME)
    assert decision.verb is Verb.PROCEED, f"the very first start is refused: {decision}"


def check_history(
    policy: AnyPolicy, history: History, *, raises: tuple[type[Exception], ...] = (), size_max: int = SIZE_MAX
) -> None:
    """Every law, at every event of one history."""
    state = policy.initial()
    held = False
    for now, event in history:
        if not hears(policy.at, type(event)):
            continue
        before = encode(state), encode(event)
        try:
            with nothing_but_arguments():
                after = policy.evolve(state, event, now)
                decision = policy.decide(after, now)
                again = policy.evolve(state, event, now)
                decided_again = policy.decide(again, now)
        except raises:
            continue
        assert (encode(state), encode(event)) == before, "its arguments are left as they are"
        assert again == after, "evolve: the same arguments, the same state"
        assert decided_again == decision, "decide: the same arguments, the same decision"
        _check_rest(policy, event, now)
        _check_codec(policy, after, now, decision, size_max)
        _check_reasons(policy, decision)
        refused = isinstance(event, Request) and not decision.proceeds
        if decision.verb is Verb.WAIT:
            _check_wait(policy, state if refused else after, event if refused else None, now, decision)
        if refused:
            continue
        freed = isinstance(event, Revise) or (isinstance(event, Released) and event.frees(policy.name, policy.by))
        if held and not freed:
            assert decision.verb is Verb.HOLD, f"{type(event).__name__} left a hold: {decision}"
        state = after
        if isinstance(event, Exited) and policy.by == "run":
            assert state == policy.initial(), "runs are without number: what is known of one goes when it ends"
        if not isinstance(event, Request) and not decision.proceeds:
            _check_stands(policy, state, now, decision)
        held = not isinstance(event, Request) and decision.verb is Verb.HOLD and decision.until == FOREVER
        if held:
            later_on = policy.decide(state, now + _YEARS)
            assert later_on.verb is Verb.HOLD, "time left a hold"


def _check_rest(policy: AnyPolicy, event: Event, now: Instant) -> None:
    """What does not wake it neither changes its initial state nor has it object."""
    wakes = policy.wakes(event)
    assert wakes == policy.wakes(_bare(event)), "what wakes it depends on the event's kind and cause alone"
    if wakes:
        return
    initial = policy.initial()
    assert policy.evolve(initial, event, now) == initial, f"{type(event).__name__} wakes it, and it says not"
    rest = policy.decide(initial, now)
    assert (rest.verb, rest.until, rest.reasons) == (Verb.PROCEED, FOREVER, ()), f"it objects at rest: {rest}"


def _bare(event: Event) -> Event:
    """An event of that kind and cause that says nothing else."""
    match event:
        case Exited(cause=cause):
            return Exited(cause=cause)
        case Revise():
            return Revise(revision="")
    return type(event)()


def _check_codec(policy: AnyPolicy, state: State, now: Instant, decision: Decision, size_max: int) -> None:
    """What is stored is all that it knows, and it is bounded."""
    data = encode(state)
    assert len(data) <= size_max, f"its state takes {len(data)} bytes; {size_max} are stated"
    stored = decode_state(type(policy.initial()), data)
    assert stored == state, "a state survives being written down"
    assert policy.decide(stored, now) == decision, "the decision is a function of what is stored"


def _check_reasons(policy: AnyPolicy, decision: Decision) -> None:
    """Who is refused is told why, and what can be done."""
    assert decision.proceeds or decision.reasons, f"{decision.verb.name} without a reason"
    for reason in decision.reasons:
        assert reason.policy == policy.name, f"a reason in another's name: {reason}"
        assert reason.code, f"a reason without a code: {reason}"
        assert reason.text, f"a reason without a text: {reason}"
        assert reason.remedy, f"a reason without a remedy: {reason}"


def _check_wait(policy: AnyPolicy, state: State, request: Event | None, now: Instant, decision: Decision) -> None:
    """A wait ends after now; whoever asks again when it is over gets another answer, or a later time."""
    assert decision.until > now, f"a wait that is over already: {decision}"
    for _ in range(ASKED_AGAIN_MAX):
        if decision.verb is not Verb.WAIT or decision.until == FOREVER:
            return
        now = decision.until
        after = state if request is None else policy.evolve(state, request, now)
        decision = policy.decide(after, now)
        assert decision.verb is not Verb.WAIT or decision.until > now, f"the same wait for ever: {decision}"


def _check_stands(policy: AnyPolicy, state: State, now: Instant, decision: Decision) -> None:
    """What a fact was answered with is not advice: a restart that is asked for all the same is refused, and against a
    hold so is every start. (What is known of one run says nothing of the next.)"""
    if policy.by == "run" or not hears(policy.at, Start):
        return
    for again in (True, False) if decision.verb is Verb.HOLD else (True,):
        start = Start(unit="north", run="another", labels={policy.by: "here"}, again=again)
        answer = policy.decide(policy.evolve(state, start, now), now)
        assert answer.verb >= decision.verb, f"{decision} did not stand against a start: {answer}"


def check_governed(policy: AnyPolicy, history: History) -> None:
    """Through a governor: a refusal leaves no trace, `look` leaves none at all, and a restart changes no answer."""
    clock, store = FakeClock(), MemoryStore()
    governor = Governor([policy], store, clock)
    for now, event in history:
        clock.set(now)
        known = _known(store)
        looked = governor.look(event)
        assert _known(store) == known, "looking changed a state"
        assert Governor([policy], store, clock).look(event) == looked, "the answer is another one after a restart"
        decision = governor.submit(event)
        if "already_running" not in looked.codes:
            assert decision == looked, "submit answers what look said"
        if isinstance(event, Request) and not decision.proceeds and "already_running" not in decision.codes:
            assert _known(store) == known, f"a refused {type(event).__name__} left a trace"


def _known(store: MemoryStore) -> dict[Any, bytes]:
    return {key: data for key, data in store.states().items() if key.policy != REFUSED}


def check_bounded(policy: AnyPolicy, *, raises: tuple[type[Exception], ...] = (), size_max: int = SIZE_MAX) -> None:
    """Its state stays below `size_max` bytes, however long and however hostile the history."""
    for gap, names, plot in product((0, 2_000, SECOND), (40, HOSTILE_ROUNDS), _PLOTS):
        state = policy.initial()
        for number, event in enumerate(_hostile(policy.by, names, plot)):
            if not hears(policy.at, type(event)):
                continue
            now = START_OF_TIME + number * gap
            try:
                after = policy.evolve(state, event, now)
                if not isinstance(event, Request) or policy.decide(after, now).proceeds:
                    state = after
            except raises:
                continue
            if number % 128 == 127:
                size = len(encode(state))
                assert size <= size_max, f"after {number} events its state takes {size} bytes; {size_max} are stated"


_PLOTS: Final = ("lives", "fails", "changes")


def _hostile(by: str, names: int, plot: str) -> Iterator[Event]:
    """Events without an end, of so many names in turn: runs that start and step and never end, runs that all fail, or
    definitions, orders and supervisors that change all the time."""
    labels = {by: "here"} if by not in ("unit", "run", "fleet") else {}
    for number in range(HOSTILE_ROUNDS):
        name = f"{number % names:016x}"
        who: dict[str, Any] = {"unit": "north" if by in ("unit", "run") else name, "run": "r1" if by == "run" else name}
        if plot == "changes":
            yield Revise(**who, labels=labels, revision=name, by=name)
            yield Held(**who, labels=labels, scope=by, verb=Verb.FINISH, by=name, note=name)
            yield Raised(**who, labels=labels, scope=by, more={"usd": 2**52, "tokens": 2**52}, by=name, note=name)
            yield Booted(holder=name, units=number, skew=number * HOUR)
            continue
        yield Start(**who, labels=labels, holder=name)
        yield Step(**who, labels=labels, pattern=name, call=name, cost={"usd": 1})
        failed = plot == "fails"
        work = Work(pattern=name, call=name, result=name, world=name, error=failed, used={"usd": 1})
        yield Stepped(**who, labels=labels, done=(work,))
        yield Asked(**who, labels=labels, id=name, text=name * 100, choices=(name,) * 20, default=name)
        if failed and by != "run":
            yield Exited(**who, labels=labels, cause=Cause.ERROR, fingerprint=name, error=name)


def check_join(several: Sequence[Decision]) -> None:
    """Joining is associative, commutative and idempotent, never laxer, and keeps every reason."""
    for one in several:
        assert one | one == one, "idempotent"
        assert one | PROCEED == one == PROCEED | one, "PROCEED is the identity"
        assert one | Decision() == one == Decision() | one, "so is one like it"
    for one, two in product(several, repeat=2):
        both = one | two
        assert both == two | one, "commutative"
        assert both.verb == max(one.verb, two.verb), "the stricter verb wins"
        assert set(both.reasons) == {*one.reasons, *two.reasons}, "all reasons are kept"
        assert both | one == both, "nothing is gained by saying it again"
    for one, two, three in product(several, repeat=3):
        assert (one | two) | three == one | (two | three), "associative"


def never_laxer(policies: Sequence[AnyPolicy], extra: AnyPolicy, history: History) -> None:
    """At every event of a history, asking one more policy gives the same answer or a stricter one; in any order."""
    everyone = [*policies, extra]
    states: list[State] = [policy.initial() for policy in everyone]
    for now, event in history:
        heard = [place for place, policy in enumerate(everyone) if hears(policy.at, type(event))]
        asked, known = [everyone[place] for place in heard], [states[place] for place in heard]
        outcome = weigh(asked, known, event, now)
        backward = weigh(asked[::-1], known[::-1], event, now)
        assert backward.decision == outcome.decision, "the order of policies matters"
        if heard and heard[-1] == len(policies):
            without = weigh(asked[:-1], known[:-1], event, now)
            assert outcome.decision.verb >= without.decision.verb, f"{extra.name} made it laxer"
            assert len(outcome.decision.reasons) >= len(without.decision.reasons), f"{extra.name} hid a reason"
            if without.decision.allowance and outcome.decision.allowance:
                granted, before = outcome.decision.allowance.steps, without.decision.allowance.steps
                assert granted <= before, f"{extra.name} widened an allowance"
        for place, state in outcome.changed.items():
            states[heard[place]] = state


_IMPURE: Final = (
    *((time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")),
    *((random, name) for name in ("random", "randint", "randrange", "choice", "uniform", "getrandbits")),
    (os, "urandom"),
)


@contextmanager
def nothing_but_arguments() -> Iterator[None]:
    """Within this, whoever reads a clock or throws dice in this thread is told off."""
    here = threading.get_ident()

    def forbidden(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == here:
                raise AssertionError(f"{name} was read: the present is an argument, and replay has no dice")
            return real(*args, **kwargs)

        return call

    real = [getattr(module, name) for module, name in _IMPURE]
    for (module, name), function in zip(_IMPURE, real, strict=True):
        setattr(module, name, forbidden(f"{module.__name__}.{name}", function))
    try:
        yield
    finally:
        for (module, name), function in zip(_IMPURE, real, strict=True):
            setattr(module, name, function)


def event_survives(event: Event) -> None:
    """An event is the same after it was written down."""
    assert decode_event(encode(event)) == event
