"""The picture: what the gauges show of units and of the fleet, in as few numbers as that takes.

Made of what people see on the page, so that both say the same. Where no board is kept, one look at the store does.
"""

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from flyball.control.board import Board
from flyball.control.problems import SEVERITIES
from flyball.control.shapes import HostView, Word
from flyball.control.views import Look
from flyball.errors import StoreError

log = logging.getLogger(__name__)

WITHIN: Final = 5.0
"""Seconds that a scrape waits for the board: half of what Prometheus waits for the scrape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """How many units are what."""

    states: Mapping[str, int]
    running: int = 0
    held: int = 0
    problems: Mapping[str, int] = field(default_factory=dict)
    """By severity, those that nobody acknowledged or put off."""
    hosts: Sequence[HostView] = ()


class BoardPicture:
    """As the page has it. While no page is open nobody else keeps the board up to date, so that is done here; the first
    time it looks at every unit, which may take longer than a scraper waits."""

    def __init__(self, board: Board, within: float = WITHIN) -> None:
        self._board, self._within = board, within
        self._refreshing: threading.Thread | None = None

    def __call__(self) -> Picture | None:
        """None: it is not ready yet, and is made meanwhile."""
        if self._refreshing is None:
            self._refreshing = threading.Thread(target=self._refresh, name="flyball-picture", daemon=True)
            self._refreshing.start()
        self._refreshing.join(self._within)
        if self._refreshing.is_alive():
            return None
        self._refreshing = None
        return of_board(self._board)

    def _refresh(self) -> None:
        try:
            self._board.refresh()
        except StoreError as error:
            log.warning("the board cannot be brought up to date for the metrics: %s", error)


def of_board(board: Board) -> Picture:
    """What it shows at this moment."""
    rows, states = board.rows(), _nothing()
    states.update(str(row.state) for row in rows)
    problems = Counter(dict.fromkeys(SEVERITIES, 0))
    for problem in board.problems():
        problems[problem.severity] += not problem.acknowledged and problem.snoozed_until is None
    return Picture(
        states=states,
        running=sum(row.running for row in rows),
        held=sum(row.held for row in rows),
        problems=problems,
        hosts=board.hosts(),
    )


def look_at(look: Look) -> Picture:
    """By one look at every unit: 50 µs or so for each."""
    states, on = _nothing(), Counter[str]()
    running = held = 0
    for name in look.units():
        view = look.unit(name)
        states[str(view.state)] += 1
        running += view.running
        held += view.held
        on[view.host] += view.running
    return Picture(states=states, running=running, held=held, hosts=look.host_views(on))


def _nothing() -> Counter[str]:
    """No unit is anything: a state that no unit has is told all the same."""
    return Counter({str(word): 0 for word in Word})
