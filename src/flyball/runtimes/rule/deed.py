"""What an action is given, and how it says that it failed. Actions know nothing of the governor: whether they may be
done, how often they are tried, and what their failure means is decided by the run."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from flyball.config.rules import Rule
from flyball.core.policy import Key
from flyball.core.time import SECOND, Span
from flyball.runtimes.guardian import Guard
from flyball.runtimes.rule.failed import ActionFailed
from flyball.runtimes.rule.firing import Firing
from flyball.runtimes.rule.values import Values

if TYPE_CHECKING:
    from flyball.runtimes.rule.workers import Worker

__all__ = ["GRACE", "TIMED_OUT", "ActionFailed", "Doing", "Scene", "Units"]

GRACE: Span = 5 * SECOND
"""How long what an action started has to end before it is killed."""
TIMED_OUT: Final = "ActionTimeout"
"""The error of an action whose time was over."""


class Units(Protocol):
    """The units of the daemon, and the other rules, as actions see them."""

    async def start(self, unit: str, *, by: Firing) -> None:
        """Start a unit or fire a rule. ActionFailed if a person or a safeguard holds it."""
        ...

    async def stop(self, unit: str, *, by: Firing) -> None:
        """Stop a unit."""
        ...


@dataclass(slots=True, kw_only=True)
class Scene:
    """One run, as its actions see it."""

    rule: Rule
    firing: Firing
    run: str
    logs: Path
    """Where the output of commands goes: `flyball logs RULE` shows it."""
    sockets: Path
    """A folder that only this user can look into."""
    units: Units
    notify: Callable[[str, str], None]
    """Tell people: the rule's name, and the text."""
    guard: Guard | None = None
    """Who ends what is left when the daemon is killed."""
    values: Values = field(default_factory=Values)
    """What rules remember: one for all of them."""
    worker: "Worker | None" = None
    """The process of its calls and of its browser, as soon as one was needed."""
    folder: Path | None = None
    """For all files of its browser, as soon as one was needed."""
    rows: dict[Key, bytes | None] = field(default_factory=dict)
    """What the action wants written with the report that it was done."""
    kept: list[Callable[[], None]] = field(default_factory=list)
    """What is to be done when those rows are written."""
    ends: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """What is to be done when the run is over, whatever became of it: ends a browser. The last one first."""


Doing = Callable[[Scene, Any, float], Awaitable[Mapping[str, Any]]]
"""Does one kind of deed, with its templates filled in, within so many seconds; its result is there for the templates of
later actions. When it is cancelled, nothing of what it started is left when it returns."""
