"""Runs exercises: those of one fleet side by side, a few fleets at a time; and leaves nothing behind, however it ends."""

import importlib.util
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType
from typing import Final

from flyball.config import Settings
from flyball.drill.exercise import Exercise, NotFired, NotReachable, Seen
from flyball.drill.fleet import Cancelled, Fleet, told

CAP: Final = 45.0
"""Seconds that an exercise waits for one thing. It takes one or two: a machine may be busy."""
FLEETS_MORE: Final = 1
"""Fleets at a time beyond the number of processors: they wait more than they work."""
LOOK_EVERY: Final = 0.1


class Outcome(StrEnum):
    """What came of an exercise."""

    FIRED = "fired"
    NOT_FIRED = "not fired"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    exercise: Exercise
    outcome: Outcome
    after: float | None
    text: str


def run(
    exercises: Sequence[Exercise], numbers: Settings, told_of: Callable[[Row], None], cap: float = CAP
) -> list[Row]:
    """Run them, telling of each row as soon as it is known; all rows, in the order of the exercises."""
    rows: dict[str, Row] = {}
    queued: queue.SimpleQueue[Row] = queue.SimpleQueue()
    cancelled = threading.Event()
    places = threading.BoundedSemaphore((os.cpu_count() or 1) + FLEETS_MORE)
    fleets = list(dict.fromkeys(exercise.fleet for exercise in exercises))
    threads = []
    for name in fleets:
        own = [exercise for exercise in exercises if exercise.fleet == name]
        drill = _FleetDrill(name, own, numbers, cap, queued, cancelled)
        threads.append(threading.Thread(target=drill.run, args=(places,), name=f"drill-{name}"))
    with _ended_by_signals():
        try:
            for thread in threads:
                thread.start()
            while len(rows) < len(exercises):
                try:
                    row = queued.get(timeout=LOOK_EVERY)
                except queue.Empty:
                    continue
                rows[row.exercise.name] = row
                told_of(row)
        finally:
            with _deaf():
                cancelled.set()
                for thread in threads:
                    if thread.ident is not None:
                        thread.join()
    return [rows[exercise.name] for exercise in exercises]


class _FleetDrill:
    """The exercises of one fleet."""

    def __init__(
        self,
        name: str,
        exercises: Sequence[Exercise],
        numbers: Settings,
        cap: float,
        rows: "queue.SimpleQueue[Row]",
        cancelled: threading.Event,
    ) -> None:
        self._name, self._exercises, self._numbers, self._cap = name, exercises, numbers, cap
        self._rows, self._cancelled = rows, cancelled

    def run(self, places: threading.BoundedSemaphore) -> None:
        with places:
            if self._cancelled.is_set():
                return
            fleet = Fleet(self._name, self._numbers, cap=self._cap, cancelled=self._cancelled)
            try:
                self._run(fleet)
            finally:
                fleet.close()

    def _run(self, fleet: Fleet) -> None:
        ready = [exercise for exercise in self._exercises if self._prepared(exercise, fleet)]
        try:
            if ready:
                fleet.up()
        except Cancelled:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what these rows have to tell
            for exercise in ready:
                self._tell(exercise, Outcome.NOT_FIRED, told(error))
            return
        threads = [threading.Thread(target=self._watch, args=(exercise, fleet)) for exercise in ready]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _prepared(self, exercise: Exercise, fleet: Fleet) -> bool:
        """Whether it can be done; if not, its row says why."""
        if exercise.needs is not None and importlib.util.find_spec(exercise.needs[0]) is None:
            self._tell(exercise, Outcome.LEFT_OUT, f"pip install 'flyball-governor[{exercise.needs[1]}]'")
            return False
        try:
            fleet.add(exercise.settings(self._numbers))
        except NotReachable as error:
            self._tell(exercise, Outcome.NOT_FIRED, f"not reachable with your settings: {error}")
            return False
        return True

    def _watch(self, exercise: Exercise, fleet: Fleet) -> None:
        try:
            seen = exercise.watch(fleet)
        except Cancelled:
            return
        except NotReachable as error:
            self._tell(exercise, Outcome.NOT_FIRED, f"not reachable with your settings: {error}")
        except NotFired as error:
            self._tell(exercise, Outcome.NOT_FIRED, str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the safeguard was not seen
            self._tell(exercise, Outcome.NOT_FIRED, told(error))
        else:
            self._tell(exercise, Outcome.FIRED, seen.text, seen)

    def _tell(self, exercise: Exercise, outcome: Outcome, text: str, seen: Seen | None = None) -> None:
        self._rows.put(Row(exercise, outcome, None if seen is None else max(0.0, seen.after), text))


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """What asks a process to end is answered as Ctrl-C is: nothing is left behind."""
    with _handled((signal.SIGTERM, signal.SIGHUP), _interrupt):
        yield


@contextmanager
def _deaf() -> Iterator[None]:
    """While it is cleared up, nobody can interrupt: what is left would be left for ever."""
    with _handled((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), signal.SIG_IGN):
        yield


@contextmanager
def _handled(
    numbers: Sequence[signal.Signals], handler: "Callable[[int, FrameType | None], object] | signal.Handlers"
) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
