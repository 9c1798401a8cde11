"""Pieces of work whose past is made through the governor: begun, stepped, paused, resumed, ended."""

from typing import Any

from flyball.config import Settings, definitions
from flyball.core.decision import Decision
from flyball.core.event import Amounts, Cause, Exited, Resume, Start, Step, Stepped, Work
from flyball.core.time import SECOND, Instant, Span
from flyball.runtimes.holder import me
from flyball.store import checkpoints
from tests.control.scene import Scene


class Piece:
    """One piece of work in a scene, with its safeguards kept in the store, as a program keeps them."""

    def __init__(self, scene: Scene, name: str, *, kind: str = "session", user: str = "", **settings: Any) -> None:
        self.scene, self.name = scene, name
        self.governor = scene.governor
        self.labels = {"user": user} if user else {}
        self._runs = 0
        self.governor.panel.put(name, Settings.model_validate(settings).policies(kind))
        definitions.keep(self.governor, name)

    @property
    def run(self) -> str:
        return f"{self.name}.{self._runs}"

    def begin(self) -> Decision:
        self._runs += 1
        return self.governor.submit(Start(unit=self.name, run=self.run, labels=self.labels, holder=me()))

    def resume(self, checkpoint: str = "") -> Decision:
        self._runs += 1
        resume = Resume(unit=self.name, run=self.run, labels=self.labels, holder=me(), checkpoint=checkpoint)
        return self.governor.submit(resume)

    def step(
        self,
        pattern: str = "read",
        *,
        lasts: Span = SECOND,
        used: Amounts | None = None,
        keeps: bytes = b"",
        part: bool = False,
        **more: Any,
    ) -> Decision:
        """One step, asked for and made; with a checkpoint after it, if there is something to keep."""
        asks: dict[str, Any] = {"unit": self.name, "run": self.run, "labels": self.labels, "part": part}
        self.governor.submit(Step(pattern=pattern, cost=used or {}, **asks))
        self.scene.clock.move(lasts)
        work = Work(pattern=pattern, reserved=used or {}, used=used or {}, ago=lasts, **more)
        store, now = self.governor.store, self.scene.clock.now()
        rows = checkpoints.rows(store, self.name, pattern, keeps, now) if keeps else {}
        return self.governor.submit(Stepped(done=(work,), **asks), rows)

    def ask(self) -> Decision:
        """Ask for one more step."""
        return self.governor.submit(Step(unit=self.name, run=self.run, labels=self.labels, pattern="more"))

    def end(self, cause: Cause = Cause.DONE, **more: Any) -> Decision:
        return self.governor.submit(
            Exited(unit=self.name, run=self.run, labels=self.labels, cause=cause, **more),
        )

    def pause(self, reason: str = "rate_limit", resume_at: Instant = 0) -> Decision:
        return self.end(Cause.STOPPED, pause=reason, resume_at=resume_at)


def every_status(scene: Scene) -> None:
    """A session for each status, named after it, but for those that the clock has to make."""
    Piece(scene, "pending-one")
    running = Piece(scene, "running-one", user="ann")
    running.begin()
    running.step(keeps=b'{"notes": ["a"]}')
    paused = Piece(scene, "paused-one", user="bob")
    paused.begin()
    paused.step("fetch", keeps=b'{"page": 1}')
    paused.step("fetch", keeps=b'{"page": 2}')
    paused.pause("usage_limit", scene.clock.now() + 60 * SECOND)
    for name, cause, more in (
        ("completed", Cause.DONE, {"error": "consensus"}),
        ("failed", Cause.ERROR, {"error": "ValueError: no such row", "fingerprint": "f" * 16}),
        ("timed_out", Cause.TIMEOUT, {"error": "timeout", "policy": "deadline", "fingerprint": "a" * 16}),
        ("budget_exceeded", Cause.STOPPED, {"error": "cost_budget_exceeded", "policy": "budget"}),
        ("stopped", Cause.STOPPED, {"error": "max_steps", "policy": "steps"}),
        ("lost", Cause.LOST, {"error": "lost", "fingerprint": "e" * 16}),
    ):
        piece = Piece(scene, f"{name}-one", kind="graph" if name == "completed" else "session", user="ann")
        piece.begin()
        piece.step(used={"usd": 100_000}, gauges={"round": 2.0, "convergence": 0.62})
        piece.end(cause, **more)
