"""What of all that happens to units is worth a line: not that one is alive, nor the same refusal once more. And the
number of a restart, which the line of one has."""

from flyball.core.decision import Decision
from flyball.core.event import Beat, Event, Start


class News:
    """Remembers the last answer about each unit, and counts how often it was started again."""

    def __init__(self) -> None:
        self._codes: dict[str, tuple[str, ...]] = {}
        self._restarts: dict[str, int] = {}

    def hear(self, unit: str, event: Event, decision: Decision) -> bool:
        """Whether that is news."""
        codes, before = decision.codes, self._codes.get(unit)
        self._codes[unit] = codes
        if _is_restart(event, decision):
            self._restarts[unit] = self._restarts.get(unit, 0) + 1
        if isinstance(event, Beat):
            return not decision.proceeds or bool(event.stuck)
        return not (isinstance(event, Start) and not decision.proceeds and codes == before)

    def number(self, unit: str, event: Event, decision: Decision) -> str:
        """How often it was started again since somebody listens here; nothing if that is not what happened."""
        return f" (restart {self._restarts[unit]})" if _is_restart(event, decision) else ""

    def forget(self, unit: str) -> None:
        """It is over: nothing more is heard of it."""
        self._codes.pop(unit, None)
        self._restarts.pop(unit, None)


def _is_restart(event: Event, decision: Decision) -> bool:
    return isinstance(event, Start) and event.again and decision.proceeds
