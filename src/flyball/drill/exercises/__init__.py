"""All exercises, in the order of the table."""

from typing import Final

from flyball.drill.exercise import Exercise
from flyball.drill.exercises import crashes, people, rules, supervisor, work

ALL: Final[tuple[type[Exercise], ...]] = (
    crashes.Cooled,
    crashes.Quarantined,
    crashes.Flaps,
    crashes.Restarted,
    crashes.Broken,
    people.Called,
    crashes.Stormed,
    crashes.Revised,
    work.Stepped,
    rules.Circled,
    rules.Endless,
    work.Deliberated,
    work.Agreed,
    work.Overdue,
    work.Silent,
    work.Spent,
    people.Reserved,
    work.Wild,
    work.Looped,
    work.Stalled,
    work.Paused,
    work.Resumed,
    people.Taken,
    people.Ordered,
    people.Asked,
    rules.Rated,
    people.Alerted,
    supervisor.Jumped,
    supervisor.Counted,
    supervisor.Gone,
)
