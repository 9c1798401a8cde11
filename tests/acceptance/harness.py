"""What the acceptance tests stand on: a supervisor that obeys the governor, on a clock that the test moves.

It does what every runtime does and nothing more: it asks before it acts, waits as long as it is told, and reports what
happened. Its policies are those that a user gets by default for that kind of unit; they are put together in one place,
which leaves out whatever FLYBALL_TEST_WITHOUT names, so that a test can be seen to fail without a safeguard.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from flyball.config import Settings, load
from flyball.core.codec import decode_body
from flyball.core.decision import PROCEED, Decision, Verb
from flyball.core.event import (
    NOTHING,
    Amounts,
    Cause,
    Event,
    Exited,
    Held,
    Released,
    Resume,
    Revise,
    Start,
    Step,
    Stepped,
    Work,
)
from flyball.core.failure import FINGERPRINT_VERSION, fingerprint
from flyball.core.panel import REFUSED
from flyball.core.policy import AnyPolicy, Key
from flyball.core.time import SECOND, Instant, Span, span
from flyball.governor import Governor
from flyball.policies import ALL
from flyball.store import Store
from flyball.testing.clock import START_OF_TIME, FakeClock

WITHOUT: Final = "FLYBALL_TEST_WITHOUT"
"""Names of policy classes, with commas between them, that the tests are to do without. Read here only."""

UNIT: Final = "shop"
"""The unit that a test speaks of when it does not matter which."""

ASKS_MAX: Final = 1000
"""How often a start is asked for before a test gives up: a wait that never ends is a bug, not a reason to hang."""

_RUNS = count(1)

Labels = Mapping[str, str]
NO_LABELS: Final[Labels] = {}

Nested = Mapping[str, Any]
"""Settings as a file has them: sections, keys, values."""


def new_run() -> str:
    """The id of a run, unlike all before it, also of those that another supervisor on the same store began."""
    return f"run{next(_RUNS)}"


def settings_of(given: Nested, env: Mapping[str, str] | None = None) -> Settings:
    """The settings of a file that says just this, in that environment, or in none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flyball.yaml"
        path.write_text(json.dumps(given), encoding="utf-8")
        return load(path, env=env or {})


@cache
def default_settings() -> Settings:
    """What a user gets who has written no settings at all."""
    with tempfile.TemporaryDirectory() as folder:
        return load(env={}, cwd=Path(folder))


def setting(settings: Settings, key: str) -> Any:
    """The value of `section.key`."""
    return attrgetter(key)(settings)


def policies_of(
    kind: str, given: Nested | None = None, *, tier: str | None = None, more: Iterable[AnyPolicy] = ()
) -> tuple[AnyPolicy, ...]:
    """The policies of a kind of unit, and `more`, without those that the tests are to do without."""
    settings = settings_of(given) if given else default_settings()
    left_out = set(filter(None, os.environ.get(WITHOUT, "").split(",")))
    unknown = left_out - {policy.__name__ for policy in ALL}
    if unknown:
        raise ValueError(f"{WITHOUT} names no policy: {', '.join(sorted(unknown))}")
    policies = (*settings.policies(kind, tier=tier), *more)
    return tuple(policy for policy in policies if type(policy).__name__ not in left_out)


class Line(NamedTuple):
    """An entry of the journal."""

    at: Instant
    event: Event
    decision: Decision


@dataclass(frozen=True, slots=True)
class Lived:
    """What became of a unit that was started again and again."""

    starts: int
    waits: tuple[Span, ...]
    """Before each start but the first."""
    last: Decision
    """What the next start was answered with, if it was refused for good; otherwise PROCEED."""


@dataclass(slots=True)
class Supervisor:
    """A governor on a store, and the hands that obey it."""

    open_store: Callable[[], Store]
    policies: Sequence[AnyPolicy]
    clock: FakeClock = field(default_factory=FakeClock)
    store: Store = field(init=False)
    governor: Governor = field(init=False)
    runs: dict[str, str] = field(default_factory=dict)
    """The live run of each unit."""
    exited: set[str] = field(default_factory=set)
    """Units whose last run has ended: another one is a restart."""

    def __post_init__(self) -> None:
        self._open()

    def _open(self) -> None:
        self.store = self.open_store()
        self.governor = Governor(self.policies, self.store, self.clock)

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    def reboot(self) -> Decision:
        """The supervisor dies without a word and is started again on what it had written down."""
        self.close()
        self._open()
        self.exited |= self.runs.keys()
        self.runs.clear()
        return self.governor.boot("host")

    # Time.

    def sleep(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.clock.move(span(seconds))

    def at(self, second: float) -> None:
        """Make it that second, counted from where fake time begins."""
        self.clock.set(START_OF_TIME + span(second))

    @property
    def now(self) -> Instant:
        """The present."""
        return self.clock.now()

    def left(self, decision: Decision) -> float:
        """Seconds until the time that a decision names."""
        return (decision.until - self.now) / SECOND

    # Requests.

    def start(self, unit: str = UNIT, *, again: bool | None = None, labels: Labels = NO_LABELS) -> Decision:
        """Ask for one run. It is a restart if the unit has exited, unless `again` says that a person asked for it."""
        run = new_run()
        again = unit in self.exited if again is None else again
        return self._started(Start(unit=unit, run=run, again=again, holder="host", labels=labels))

    def resume(
        self, unit: str = UNIT, *, again: bool = False, checkpoint: str = "latest", labels: Labels = NO_LABELS
    ) -> Decision:
        """Ask for one run from a checkpoint. `again`: nobody asked for it, the supervisor resumes by itself."""
        run = new_run()
        request = Resume(unit=unit, run=run, again=again, holder="host", checkpoint=checkpoint, labels=labels)
        return self._started(request)

    def _started(self, request: Start) -> Decision:
        decision = self.governor.submit(request)
        if decision.proceeds:
            self.runs[request.unit] = request.run
        return decision

    def step(
        self,
        unit: str = UNIT,
        *,
        pattern: str = "",
        call: str = "",
        usd: int = 0,
        last: bool = False,
        labels: Labels = NO_LABELS,
    ) -> Decision:
        """Ask for one step, with its worst case in micro-dollars."""
        cost: Amounts = {"usd": usd} if usd else NOTHING
        run = self.runs.get(unit, "")
        return self.governor.submit(
            Step(unit=unit, run=run, labels=labels, pattern=pattern, call=call, cost=cost, last=last)
        )

    def look_step(self, unit: str = UNIT, *, usd: int) -> Decision:
        """What a step with that worst case would be answered with. Leaves no trace."""
        return self.governor.look(Step(unit=unit, run=self.runs.get(unit, ""), cost={"usd": usd}))

    def revise(self, revision: str, unit: str = UNIT, *, by: str = "") -> Decision:
        """The unit's definition changed; `by` is the person who did it, if it was one."""
        return self.governor.submit(Revise(unit=unit, revision=revision, by=by))

    # Facts.

    def stepped(self, unit: str = UNIT, *done: Work, labels: Labels = NO_LABELS) -> Decision:
        """Steps were made."""
        run = self.runs.get(unit, "")
        return self.governor.submit(Stepped(unit=unit, run=run, labels=labels, done=done))

    def exit(
        self, unit: str = UNIT, cause: Cause = Cause.DONE, *, error: str = "", target: str = "", detail: str = ""
    ) -> Decision:
        """The run ended."""
        run = self.runs.pop(unit, None) or new_run()
        self.exited.add(unit)
        return self.governor.submit(
            Exited(
                unit=unit,
                run=run,
                cause=cause,
                error=error,
                fingerprint=fingerprint(unit, error, target=target) if cause.failed else "",
                version=FINGERPRINT_VERSION if cause.failed else 0,
                detail=detail,
            )
        )

    def fail(self, unit: str = UNIT, error: str = "SelectorNotFound", *, target: str = "#buy") -> Decision:
        """The run ended with an error."""
        return self.exit(unit, Cause.ERROR, error=error, target=target)

    # Orders.

    def order(self, verb: Verb, unit: str = "", *, scope: str = "unit", labels: Labels = NO_LABELS) -> Decision:
        """A person holds, stops or finishes."""
        return self.governor.submit(Held(unit=unit, scope=scope, verb=verb, by="operator", labels=labels))

    def release(self, unit: str = "", *policies: str, scope: str = "unit", failure: str = "") -> Decision:
        """A person takes back what holds a unit or the fleet, or makes one failure forgotten."""
        order = Released(unit=unit, scope=scope, policies=policies, fingerprint=failure, by="operator")
        return self.governor.submit(order)

    # The closed loop: wait as long as it is told to.

    def obey(self, ask: Callable[[], Decision]) -> tuple[Decision, Span]:
        """Ask, wait, ask again, until leave is given or refused for good; the answer, and how long that took."""
        began = self.now
        for _ in range(ASKS_MAX):
            decision = ask()
            if decision.verb is not Verb.WAIT:
                return decision, self.now - began
            assert decision.until > self.now, "a wait that has passed already would be asked for ever"
            self.clock.set(decision.until)
        raise AssertionError(f"still waiting after {ASKS_MAX} questions: {decision}")

    def start_when_allowed(self, unit: str = UNIT) -> tuple[Decision, Span]:
        """Ask for one run until leave is given or refused for good."""
        return self.obey(lambda: self.start(unit))

    def keep_running(
        self,
        unit: str = UNIT,
        *,
        uptime: float,
        starts: int,
        error: Callable[[int], str] = lambda _: "SelectorNotFound",
    ) -> Lived:
        """Start it, let it live and fail, and so on, up to so many starts or until it is refused for good."""
        waits: list[Span] = []
        for made in range(starts):
            decision, waited = self.start_when_allowed(unit)
            if not decision.proceeds:
                return Lived(made, tuple(waits), decision)
            if made:
                waits.append(waited)
            self.sleep(uptime)
            self.fail(unit, error(made))
        return Lived(starts, tuple(waits), PROCEED)

    # What is known and said.

    def opinions(self, unit: str = UNIT) -> dict[str, Decision]:
        """What each policy says of a unit now, by its name. Those of one name, for unit and fleet, are joined."""
        said: dict[str, Decision] = {}
        for policy, _, decision in self.governor.opinions(self._about(unit)):
            said[policy.name] = said.get(policy.name, PROCEED) | decision
        return said

    def opinion(self, policy: str, unit: str = UNIT) -> Decision:
        """What one policy says now. One that is not there says nothing against it."""
        return self.opinions(unit).get(policy, PROCEED)

    def states(self, policy: str, unit: str = UNIT) -> list[Any]:
        """What the policies of a name know of a unit."""
        return [state for own, state, _ in self.governor.opinions(self._about(unit)) if own.name == policy]

    def _about(self, unit: str) -> Event:
        return Start(unit=unit, run=self.runs.get(unit, ""))

    def known(self) -> dict[Key, bytes]:
        """All that policies know, as it is stored; without the note of the last refusal."""
        return {key: data for key, data in self.store.states().items() if key.policy != REFUSED}

    def journal(self, unit: str | None = None, kind: type[Event] = Event) -> list[Line]:
        """What was written down, of one unit and one kind of event where they are given."""
        entries = self.store.entries(unit=unit, limit=100_000)
        bodies = [(entry.at, decode_body(entry.body)) for entry in entries]
        return [Line(at, body.event, body.decision) for at, body in bodies if isinstance(body.event, kind)]


def primary(said: Mapping[str, Decision]) -> str:
    """The code of the one reason that decides: that of the strictest verb, and among those the first."""
    strictest = max(decision.verb for decision in said.values())
    return min(reason.code for decision in said.values() if decision.verb is strictest for reason in decision.reasons)
