"""A fleet whose past is made through the governor: what happened, and how long before now."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flyball import app
from flyball.config import Settings
from flyball.control.context import Context
from flyball.core.decision import Decision
from flyball.core.event import Cause, Exited, Held, Start
from flyball.core.policy import AnyPolicy
from flyball.core.time import HOUR, MINUTE, SECOND, Instant, Span
from flyball.governor import Governor
from flyball.runtimes.holder import me
from flyball.store import Store
from flyball.testing.clock import FakeClock

ERROR = "exit 3"


class Scene:
    """A governor with a clock that can be moved, and the past of some units."""

    def __init__(self, store: Store, *, ago: Span = 12 * HOUR, policies: Sequence[AnyPolicy] | None = None) -> None:
        self.now: Instant = time.time_ns() // 1000
        self.clock = FakeClock(self.now - ago)
        self.settings = Settings()
        self.governor = Governor(policies or self.settings.policies(), store, self.clock)
        self._runs = 0

    def at(self, ago: Span) -> None:
        """Go to so long before now."""
        self.clock.set(self.now - ago)

    def start(self, unit: str, *, again: bool = False, **more: Any) -> Decision:
        self._runs += 1
        return self.governor.submit(Start(unit=unit, run=f"r{self._runs}", again=again, holder=me(), **more))

    def exit(self, unit: str, cause: Cause = Cause.ERROR, fingerprint: str = "", **more: Any) -> Decision:
        error = ERROR if cause.failed else ""
        given = {"error": error, "code": 3 if cause.failed else 0, **more}
        return self.governor.submit(
            Exited(unit=unit, run=f"r{self._runs}", cause=cause, fingerprint=fingerprint, **given)
        )

    def fail(self, unit: str, fingerprint: str = "f1f1f1f1f1f1f1f1", *, lives: Span = SECOND, **more: Any) -> Decision:
        """One failing run."""
        self.start(unit)
        self.clock.move(lives)
        return self.exit(unit, fingerprint=fingerprint, **more)

    def quarantine(self, unit: str, fingerprint: str = "abcdef0123456789") -> None:
        """Six failures of one kind, each after two minutes of running, so that nothing else holds it."""
        for _ in range(6):
            self.clock.move(31 * MINUTE)
            self.fail(unit, fingerprint, lives=2 * MINUTE)

    def flap(self, unit: str, times: int) -> None:
        """So many failing exits, a second apart, each of another kind."""
        for number in range(times):
            self.clock.move(SECOND)
            self.exit(unit, fingerprint=f"{number:016x}")

    def everything(self) -> None:
        """A unit for each word that people know, but `failed`, which takes other safeguards."""
        self.at(12 * HOUR)
        self.quarantine("quarantined-one")
        self.at(2 * HOUR)
        self.flap("halted-one", 7)
        self.flap("degraded-one", 3)
        self.start("finished-one")
        self.exit("finished-one", Cause.DONE)
        self.start("stopped-one")
        self.exit("stopped-one", Cause.STOPPED)
        self.governor.submit(Held(unit="paused-one", by="ann", note="via cli"))
        self.at(10 * SECOND)
        self.start("healthy-one")
        self.at(5 * SECOND)
        self.flap("cooling-one", 3)

    def context(self, **more: Any) -> Context:
        """A person who asks."""
        given: dict[str, Any] = {"settings": self.settings, "who": "ann", "channel": "test", **more}
        return Context(governor=self.governor, **given)


def scene_in(folder: Path) -> Scene:
    """A scene in a real file."""
    return Scene(app.open_store(Settings(), {"FLYBALL_STATE_DIR": str(folder)}))
