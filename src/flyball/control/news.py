"""What of all that happens to units is worth a line: not that one is alive, nor the same refusal once more."""

from flyball.core.decision import Decision
from flyball.core.event import Beat, Event, Start


class News:
    """Remembers the last answer about each unit."""

    def __init__(self) -> None:
        self._codes: dict[str, tuple[str, ...]] = {}

    def hear(self, unit: str, event: Event, decision: Decision) -> bool:
        """Whether that is news."""
        codes, before = decision.codes, self._codes.get(unit)
        self._codes[unit] = codes
        if isinstance(event, Beat):
            return not decision.proceeds or bool(event.stuck)
        return not (isinstance(event, Start) and not decision.proceeds and codes == before)

    def forget(self, unit: str) -> None:
        """It is over: nothing more is heard of it."""
        self._codes.pop(unit, None)
