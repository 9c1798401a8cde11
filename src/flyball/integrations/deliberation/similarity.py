"""What a round of a deliberation comes to, as readings from 0 to 1: how converged, how new, how agreed.

A measure says how alike two texts are. How alike is not whether they agree: "buy it" and "do not buy it" are alike by
every measure here. So where voices take positions, these are counted (`agreement`), and two contributions with
different positions are not alike at all, whatever their words (`nodes`).
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Final, TypeVar

from flyball.integrations.deliberation.embedding import Embedding, installed
from flyball.integrations.deliberation.words import lexical

T = TypeVar("T")

Measure = Callable[[str, str], float]
"""How alike two texts are: 0 nothing in common, 1 the same. The order of the two does not matter."""

VOICES_MAX: Final = 64
"""Contributions of one round that are compared, the latest: all with all, which is two thousand comparisons. A board
has a handful."""


@cache
def choose_measure() -> Measure:
    """By meaning if the extra `embeddings` is installed, else by words. Made once: all share one model."""
    return Embedding() if installed() else lexical


def convergence(now: Sequence[str], before: Sequence[str] = (), measure: Measure | None = None) -> float:
    """How far the contributions of a round have converged: 1.0 when all say the same, and said it in the round before.

    It is the smaller of two readings: how alike the contributions of this round are to each other (the mean over all
    pairs), and how alike this round is to the one before (the mean over all contributions of both of the most alike one
    in the other). So neither voices that repeat themselves against each other have converged, nor voices that move
    together and are still moving. A reading that cannot be made (one voice alone, or no round before) is left out; if
    neither can, it is 0.0.
    """
    return rounds_alike(now, before, measure or choose_measure())


def rounds_alike(now: Sequence[T], before: Sequence[T], alike: Callable[[T, T], float]) -> float:
    """`convergence` of whatever can be compared."""
    now, before = now[-VOICES_MAX:], before[-VOICES_MAX:]
    readings = []
    if len(now) > 1:
        readings.append(_mean([alike(one, other) for one, other in combinations(now, 2)]))
    if now and before:
        table = [[alike(one, other) for other in before] for one in now]
        readings.append(_mean([*map(max, table), *map(max, zip(*table, strict=True))]))
    return min(readings, default=0.0)


def novelty(text: str, before: Iterable[str], measure: Measure | None = None) -> float:
    """How much of it is new: 1.0 is unlike everything that was said before, 0.0 was said before."""
    alike = measure or choose_measure()
    return 1.0 - max((alike(text, earlier) for earlier in before), default=0.0)


def agreement(votes: Mapping[str, Hashable] | Iterable[Hashable]) -> float:
    """The share of voices that agree. Where all say whether they agree (True or False): the share of those who do. Else
    the share of the most common position; spaces and case do not matter. None, or an empty text, is a voice that takes
    no position: it agrees with nobody. Without any voice it is 0.0."""
    said = [position(vote) for vote in (votes.values() if isinstance(votes, Mapping) else votes)]
    positions = [vote for vote in said if vote is not None]
    if not positions:
        return 0.0
    if all(isinstance(vote, bool) for vote in positions):
        return sum(vote is True for vote in positions) / len(said)
    return max(Counter(positions).values()) / len(said)


def position(vote: Hashable) -> Hashable | None:
    """A position as it is compared; None: it is none."""
    return (" ".join(vote.casefold().split()) or None) if isinstance(vote, str) else vote


def _mean(readings: Sequence[float]) -> float:
    """Sorted first, so that the order of the voices does not change the last digit."""
    return sum(sorted(readings)) / len(readings)
