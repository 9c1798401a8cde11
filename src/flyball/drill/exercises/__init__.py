"""All exercises, in the order of the table."""

from typing import Final

from flyball.drill.exercise import Exercise
from flyball.drill.exercises import crashes

ALL: Final[tuple[Exercise, ...]] = (crashes.Quarantined(),)
