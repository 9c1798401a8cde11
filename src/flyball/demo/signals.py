"""Ctrl-C, SIGTERM, and the end of a terminal: each ends the demo in order, and none cuts short what cleans up."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final, Self

ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Told(BaseException):
    """Somebody wants it to end: no error, and nothing that catches errors is to keep it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """While the block lasts, these signals are noted; within `heard()`, the first of them raises Told."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._noted: int | None = None
        self._listens = False

    def __enter__(self) -> Self:
        self._before = {one: signal.signal(one, self._note) for one in ENDS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for one, before in self._before.items():
            signal.signal(one, before)

    @contextmanager
    def heard(self) -> Iterator[None]:
        """From here on until the end of the block one of them ends it."""
        self._listens = True
        try:
            if self._noted is not None:
                raise Told(self._noted)
            yield
        finally:
            self._listens = False

    def _note(self, number: int, _: FrameType | None) -> None:
        self._noted = self._noted or number
        if self._listens:
            self._listens = False
            raise Told(number)
