"""flyball keeps agents and automations from running away: the public names, each loaded when it is first used.

`flyball --help` and the like import this package too, and must not pay for what they do not use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flyball.app import open as open  # noqa: A004 - flyball.open, as files are opened
    from flyball.core.decision import Allowance as Allowance
    from flyball.core.decision import Decision as Decision
    from flyball.core.decision import Reason as Reason
    from flyball.core.decision import Verb as Verb
    from flyball.core.event import Acknowledged as Acknowledged
    from flyball.core.event import Answered as Answered
    from flyball.core.event import Asked as Asked
    from flyball.core.event import Beat as Beat
    from flyball.core.event import Booted as Booted
    from flyball.core.event import Cause as Cause
    from flyball.core.event import Exited as Exited
    from flyball.core.event import Fired as Fired
    from flyball.core.event import Held as Held
    from flyball.core.event import Ordered as Ordered
    from flyball.core.event import Raised as Raised
    from flyball.core.event import Released as Released
    from flyball.core.event import Resume as Resume
    from flyball.core.event import Revise as Revise
    from flyball.core.event import Settled as Settled
    from flyball.core.event import Start as Start
    from flyball.core.event import Step as Step
    from flyball.core.event import Stepped as Stepped
    from flyball.core.event import Work as Work
    from flyball.core.failure import fingerprint as fingerprint
    from flyball.core.panel import Panel as Panel
    from flyball.errors import FlyballError as FlyballError
    from flyball.governor import Governor as Governor
    from flyball.guard import Guard as Guard
    from flyball.runtimes.agent.context import Context as Context
    from flyball.runtimes.agent.ending import GaveUp as GaveUp
    from flyball.runtimes.agent.ending import Starved as Starved
    from flyball.runtimes.agent.memory import MemoryRefused as MemoryRefused
    from flyball.runtimes.calls import Retry as Retry
    from flyball.runtimes.money import Reservation as Reservation
    from flyball.runtimes.money import SettledAlready as SettledAlready
    from flyball.runtimes.prices import Prices as Prices
    from flyball.runtimes.prices import UnknownPrice as UnknownPrice
    from flyball.runtimes.questions import NoAnswer as NoAnswer
    from flyball.runtimes.refusal import CircuitOpen as CircuitOpen
    from flyball.runtimes.refusal import OutOfBudget as OutOfBudget
    from flyball.runtimes.refusal import Refused as Refused
    from flyball.runtimes.refusal import SafetyError as SafetyError
    from flyball.runtimes.session.context import SessionContext as SessionContext
    from flyball.runtimes.session.work import Session as Session
    from flyball.runtimes.session.work import SessionFailed as SessionFailed
    from flyball.runtimes.session.work import SessionNotFound as SessionNotFound
    from flyball.runtimes.session.work import SessionPaused as SessionPaused
    from flyball.store.checkpoints import CheckpointChanged as CheckpointChanged
    from flyball.store.checkpoints import CheckpointDamaged as CheckpointDamaged
    from flyball.store.checkpoints import CheckpointError as CheckpointError
    from flyball.store.checkpoints import CheckpointNotFound as CheckpointNotFound

__version__ = "0.1.0"

_HOMES = {
    "flyball.app": ("open",),
    "flyball.core.decision": ("Allowance", "Decision", "Reason", "Verb"),
    "flyball.core.event": (
        "Acknowledged",
        "Answered",
        "Asked",
        "Beat",
        "Booted",
        "Cause",
        "Exited",
        "Fired",
        "Held",
        "Ordered",
        "Raised",
        "Released",
        "Resume",
        "Revise",
        "Settled",
        "Start",
        "Step",
        "Stepped",
        "Work",
    ),
    "flyball.core.failure": ("fingerprint",),
    "flyball.core.panel": ("Panel",),
    "flyball.errors": ("FlyballError",),
    "flyball.governor": ("Governor",),
    "flyball.guard": ("Guard",),
    "flyball.runtimes.agent.context": ("Context",),
    "flyball.runtimes.agent.ending": ("GaveUp", "Starved"),
    "flyball.runtimes.agent.memory": ("MemoryRefused",),
    "flyball.runtimes.calls": ("Retry",),
    "flyball.runtimes.money": ("Reservation", "SettledAlready"),
    "flyball.runtimes.prices": ("Prices", "UnknownPrice"),
    "flyball.runtimes.questions": ("NoAnswer",),
    "flyball.runtimes.refusal": ("CircuitOpen", "OutOfBudget", "Refused", "SafetyError"),
    "flyball.runtimes.session.context": ("SessionContext",),
    "flyball.runtimes.session.work": ("Session", "SessionFailed", "SessionNotFound", "SessionPaused"),
    "flyball.store.checkpoints": (
        "CheckpointChanged",
        "CheckpointDamaged",
        "CheckpointError",
        "CheckpointNotFound",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - one table says what is public and where it lives


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'flyball' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
