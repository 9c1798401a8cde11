"""One policy and one subject, walked through events on a clock that the test moves.

It does what the governor does, and nothing more: a refused request leaves the state as it was.
"""

from collections.abc import Sequence
from typing import Any

from flyball.core.codec import decode_state, encode
from flyball.core.decision import Decision
from flyball.core.event import Beat, Cause, Event, Exited, Held, Released, Request, Resume, Revise, Start, Step, Stepped
from flyball.core.policy import AnyPolicy, hears
from flyball.core.time import Instant, Span, span
from flyball.testing.clock import START_OF_TIME


class Walk:
    """A policy, what it knows, and the present."""

    def __init__(self, policy: AnyPolicy, now: Instant = START_OF_TIME) -> None:
        self.policy = policy
        self.state: Any = policy.initial()
        self.now = now
        self.runs = 0

    def tell(self, event: Event) -> Decision:
        """Report or ask; what is stored is what comes back from being written down."""
        assert hears(self.policy.at, type(event)), f"{self.policy.name} never hears of a {type(event).__name__}"
        after = self.policy.evolve(self.state, event, self.now)
        decision = self.policy.decide(after, self.now)
        if decision.proceeds or not isinstance(event, Request):
            self.state = decode_state(type(self.policy.initial()), encode(after))
        return decision

    def says(self) -> Decision:
        """What it says now, with nothing happening."""
        return self.policy.decide(self.state, self.now)

    def forgot(self) -> bool:
        """It knows nothing: its row has vanished."""
        return bool(self.state == self.policy.initial())

    def pass_(self, seconds: float) -> "Walk":
        """Let so many seconds pass."""
        self.now += span(seconds)
        return self

    def pass_span(self, length: Span) -> "Walk":
        """Let so many microseconds pass."""
        self.now += length
        return self

    def at(self, seconds: float) -> "Walk":
        """Make it so many seconds after the beginning."""
        self.now = START_OF_TIME + span(seconds)
        return self

    def start(self, unit: str = "shop", *, again: bool = False, run: str = "") -> Decision:
        """Ask for a run, with an id of its own."""
        self.runs += 1
        return self.tell(Start(unit=unit, run=run or f"r{self.runs}", again=again, holder="host"))

    def resume(self, unit: str = "shop") -> Decision:
        """Ask for a run from a checkpoint."""
        self.runs += 1
        return self.tell(Resume(unit=unit, run=f"r{self.runs}", holder="host"))

    def fail(self, unit: str = "shop", *, kind: str = "broken", cause: Cause = Cause.ERROR, run: str = "") -> Decision:
        """The last run failed."""
        return self.tell(Exited(unit=unit, run=run or f"r{self.runs}", cause=cause, fingerprint=kind, error=kind))

    def end(self, unit: str = "shop", *, cause: Cause = Cause.DONE, run: str = "", **more: Any) -> Decision:
        """The last run ended, not failing."""
        return self.tell(Exited(unit=unit, run=run or f"r{self.runs}", cause=cause, **more))

    def step(self, pattern: str = "", **more: Any) -> Decision:
        """Ask for a step."""
        return self.tell(Step(unit="shop", run=f"r{self.runs}", pattern=pattern, **more))

    def stepped(self, *done: Any, **more: Any) -> Decision:
        """Steps were made."""
        return self.tell(Stepped(unit="shop", run=f"r{self.runs}", done=done, **more))

    def beat(self) -> Decision:
        """The run is alive."""
        return self.tell(Beat(unit="shop", run=f"r{self.runs}"))

    def hold(self, **more: Any) -> Decision:
        """A person orders."""
        return self.tell(Held(unit="shop", scope=self.policy.by, **more))

    def release(self, scope: str = "", policies: Sequence[str] = (), fingerprint: str = "") -> Decision:
        """A person takes it back."""
        scope = scope or self.policy.by
        return self.tell(
            Released(unit="shop", scope=scope, policies=tuple(policies), fingerprint=fingerprint, by="ann")
        )

    def revise(self, revision: str, by: str = "") -> Decision:
        """The definition changed."""
        return self.tell(Revise(unit="shop", revision=revision, by=by))
