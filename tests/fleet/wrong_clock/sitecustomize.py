"""A clock that is wrong, by as much as a file says at that moment: imported by every Python that finds this folder on
its path. What shows the time of day is shifted; what measures how long something lasts is not, as with a real one."""

import datetime as dt
import mmap
import os
import struct
import time

SHIFT = "FLYBALL_WRONG_CLOCK"
"""The variable with the file: eight bytes, nanoseconds."""


def _shift(path: str) -> None:
    with open(path, "r+b") as file:  # noqa: PTH123 - every interpreter pays for what is imported here
        wrong_by = mmap.mmap(file.fileno(), 8)
    true_time, true_time_ns, true_get, true_datetime = time.time, time.time_ns, time.clock_gettime, dt.datetime

    def shift() -> int:
        found: int = struct.unpack("=q", wrong_by[:8])[0]
        return found

    class Kind(type):
        """Times that were made elsewhere are times, too."""

        def __instancecheck__(cls, other: object) -> bool:
            return isinstance(other, true_datetime)

    class Shifted(dt.datetime, metaclass=Kind):
        __slots__ = ()  # or it is larger than what is compiled expects

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:  # type: ignore[override]  # it is a true one
            return true_datetime.fromtimestamp(true_time() + shift() / 1e9, tz)

    def clock_gettime(clock: int) -> float:
        return true_get(clock) + (shift() / 1e9 if clock == time.CLOCK_REALTIME else 0.0)

    time.time = lambda: true_time() + shift() / 1e9
    time.time_ns = lambda: true_time_ns() + shift()
    time.clock_gettime = clock_gettime
    dt.datetime = Shifted  # type: ignore[misc]  # this is what it is for


if os.environ.get(SHIFT):
    _shift(os.environ[SHIFT])
