"""The safeguards, one a file. None imports another; each is a frozen dataclass of settings with three pure methods."""

from flyball.policies.anomaly import Anomaly
from flyball.policies.breaker import Breaker
from flyball.policies.budget import Budget
from flyball.policies.clock import Clock
from flyball.policies.convergence import Convergence
from flyball.policies.cooldown import Cooldown
from flyball.policies.deadline import Deadline
from flyball.policies.exclusive import Exclusive
from flyball.policies.flapping import Flapping
from flyball.policies.limit import Limit, resume_limit
from flyball.policies.loop import Loop
from flyball.policies.manual import Manual
from flyball.policies.quarantine import Quarantine
from flyball.policies.question import Question
from flyball.policies.rate import Rate
from flyball.policies.reservations import Reservations
from flyball.policies.restart import Restart
from flyball.policies.revision import Revision
from flyball.policies.rounds import Rounds
from flyball.policies.session import Session
from flyball.policies.stall import Stall
from flyball.policies.storm import Storm

ALL = (
    Anomaly,
    Breaker,
    Budget,
    Clock,
    Convergence,
    Cooldown,
    Deadline,
    Exclusive,
    Flapping,
    Limit,
    Loop,
    Manual,
    Quarantine,
    Question,
    Rate,
    Reservations,
    Restart,
    Revision,
    Rounds,
    Session,
    Stall,
    Storm,
)

__all__ = [
    "ALL",
    "Anomaly",
    "Breaker",
    "Budget",
    "Clock",
    "Convergence",
    "Cooldown",
    "Deadline",
    "Exclusive",
    "Flapping",
    "Limit",
    "Loop",
    "Manual",
    "Quarantine",
    "Question",
    "Rate",
    "Reservations",
    "Restart",
    "Revision",
    "Rounds",
    "Session",
    "Stall",
    "Storm",
    "resume_limit",
]
