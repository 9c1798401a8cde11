"""Runs exercises: those of one fleet side by side, a few fleets at a time. Leaves nothing behind, however it ends."""

import importlib.util
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType
from typing import Final

from flyball.config import Settings
from flyball.drill.exercise import Exercise, NotFired, NotReachable
from flyball.drill.fleet import Cancelled, Fleet, told

CAP: Final = 45.0
"""Seconds that an exercise waits for one thing. It takes one or two: a machine may be busy."""
FLEETS_MORE: Final = 1
"""Fleets at a time beyond the number of processors: they wait more than they work."""
LOOK_EVERY: Final = 0.1
NOT_REACHABLE: Final = "not reachable with your settings"


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


def run(chosen: Sequence[type[Exercise]], numbers: Settings, told_of: Callable[[Row], None]) -> list[Row]:
    """Run them, telling of each row as soon as it is known; all rows, in the order of the exercises."""
    exercises = [one() for one in chosen]
    rows: dict[str, Row] = {}
    drills = [
        _FleetDrill(name, [exercise for exercise in exercises if exercise.fleet == name], numbers)
        for name in dict.fromkeys(exercise.fleet for exercise in exercises)
    ]
    hall = _Hall()
    threads = [threading.Thread(target=drill.run, args=(hall,), name=f"drill-{drill.name}") for drill in drills]
    with _ended_by_signals():
        try:
            for thread in threads:
                thread.start()
            while len(rows) < len(exercises):
                with suppress(queue.Empty):
                    row = hall.rows.get(timeout=LOOK_EVERY)
                    if rows.setdefault(row.exercise.name, row) is row:
                        told_of(row)
        finally:
            with _deaf():
                hall.cancelled.set()
                for thread in threads:
                    if thread.ident is not None:
                        thread.join()
    return [rows[exercise.name] for exercise in exercises]


class _Hall:
    """What all fleets of a drill have in common."""

    def __init__(self) -> None:
        self.rows: queue.SimpleQueue[Row] = queue.SimpleQueue()
        self.cancelled = threading.Event()
        self.places = threading.BoundedSemaphore((os.cpu_count() or 1) + FLEETS_MORE)


class _FleetDrill:
    """The exercises of one fleet. Each of them has its row, whatever happens."""

    def __init__(self, name: str, exercises: Sequence[Exercise], numbers: Settings) -> None:
        self.name, self._exercises, self._numbers = name, exercises, numbers

    def run(self, hall: _Hall) -> None:
        with hall.places:
            if hall.cancelled.is_set():
                return
            try:
                with _opened(self.name, self._numbers, hall.cancelled) as fleet:
                    self._run(hall, fleet)
            except Cancelled:
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what these rows have to tell
                for exercise in self._exercises:  # those that have theirs already keep it
                    hall.rows.put(Row(exercise, Outcome.NOT_FIRED, None, told(error)))
            finally:
                for exercise in self._exercises:
                    exercise.close()

    def _run(self, hall: _Hall, fleet: Fleet) -> None:
        ready = []
        for exercise in self._exercises:
            if (row := self._left_out(exercise, fleet)) is not None:
                hall.rows.put(row)
            else:
                ready.append(exercise)
        if not ready:
            return
        for exercise in ready:
            exercise.prepare(fleet)
        fleet.up()
        threads = [threading.Thread(target=_watch, args=(hall, exercise, fleet)) for exercise in ready]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _left_out(self, exercise: Exercise, fleet: Fleet) -> Row | None:
        """Its row, if it cannot be done; otherwise the fleet has its settings."""
        if exercise.needs is not None and importlib.util.find_spec(exercise.needs[0]) is None:
            return Row(exercise, Outcome.LEFT_OUT, None, f"pip install 'flyball-governor[{exercise.needs[1]}]'")
        try:
            fleet.add(exercise.settings(self._numbers))
        except NotReachable as error:
            return Row(exercise, Outcome.NOT_FIRED, None, f"{NOT_REACHABLE}: {error}")
        return None


@contextmanager
def _opened(name: str, numbers: Settings, cancelled: threading.Event) -> Iterator[Fleet]:
    fleet = Fleet(name, numbers, cap=CAP, cancelled=cancelled)
    try:
        yield fleet
    finally:
        fleet.close()


def _watch(hall: _Hall, exercise: Exercise, fleet: Fleet) -> None:
    try:
        seen = exercise.watch(fleet)
        row = Row(exercise, Outcome.FIRED, max(0.0, seen.after), seen.text)
    except Cancelled:
        return
    except NotReachable as error:
        row = Row(exercise, Outcome.NOT_FIRED, None, f"{NOT_REACHABLE}: {error}")
    except NotFired as error:
        row = Row(exercise, Outcome.NOT_FIRED, None, str(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, the safeguard was not seen
        row = Row(exercise, Outcome.NOT_FIRED, None, told(error))
    hall.rows.put(row)


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


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
