"""Threads that do what a forked run asks its program for: a few, begun when they are needed, that keep nobody from
ending. One that is stuck in somebody's code does not hold up the others."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

SERVING_MAX: Final = 8
"""Calls of one run that are served at once by threads: nodes that run side by side, each with a checkpoint to write."""


class Servers:
    """The threads of one run. With one thread, what they do is done in order."""

    def __init__(self, name: str, most: int = SERVING_MAX) -> None:
        self._name = name
        self._most = most
        self._jobs: deque[Callable[[], None]] = deque()
        self._news = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._busy = 0
        self._closed = False

    def do(self, job: Callable[[], None]) -> None:
        """Do that, as soon as a thread is free."""
        with self._news:
            self._jobs.append(job)
            if len(self._jobs) > self._idle and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._serve, name=f"flyball serves {self._name}", daemon=True).start()
            else:
                self._news.notify()

    def close(self, within: float = 0) -> None:
        """There is nothing more to do. What is not done within so many seconds is not done any more; what is being done
        then is not waited for."""
        with self._news:
            self._news.wait_for(lambda: not self._jobs and not self._busy, timeout=within)
            self._closed = True
            self._jobs.clear()
            self._news.notify_all()

    def _serve(self) -> None:
        while True:
            with self._news:
                while not self._jobs:
                    if self._closed:
                        return
                    self._idle += 1
                    self._news.wait()
                    self._idle -= 1
                job = self._jobs.popleft()
                self._busy += 1
            try:
                job()
            finally:
                with self._news:
                    self._busy -= 1
                    if not self._busy and not self._jobs:
                        self._news.notify_all()
