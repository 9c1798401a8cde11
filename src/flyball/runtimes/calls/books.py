"""The books of one process: which accounts hold leave, and that all of it is given back in time.

What is granted and not used is refused to others meanwhile. So a thread gives it back when its lease ends, and whatever
is held is given back before the process ends. The thread lives only while something is held.
"""

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import wait
from typing import Final

from flyball.core.event import NOTHING, Amounts
from flyball.core.time import SECOND
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.runtimes.allowance import LASTS_MAX
from flyball.runtimes.calls.account import Account
from flyball.runtimes.calls.talk import Talk
from flyball.runtimes.current import Running

LOOKS_APART_MIN: Final = 0.05
"""Seconds between two looks at what is due, at the least: a short lease must not make a busy thread."""

GIVE_BACK_MAX: Final = 5.0
"""Seconds that giving back may take when the process ends. What is not given back by then counts as used."""


class Books:
    """What the calls of one program hold in this process."""

    def __init__(self, governor: Governor, unit: str, run: str) -> None:
        self.governor = governor
        self.unit = unit
        self.run = run
        self._accounts: weakref.WeakSet[Account] = weakref.WeakSet()
        self._open: set[Account] = set()
        self._mutex = threading.Lock()
        self._bell = threading.Event()
        self._thread: threading.Thread | None = None
        _all.add(self)

    def account(self, name: str, labels: Mapping[str, str], cost: Amounts) -> Account:
        """The program's own account with a call."""
        account = Account(self, name, unit=self.unit, run=self.run, labels=labels, cost=cost)
        self._accounts.add(account)
        return account

    def account_of(self, running: Running, name: str, labels: Mapping[str, str]) -> Account:
        """An account of the run of an agent, for one attempt. It gets no allowance: the run's steps have one already,
        and two would keep each other out of the run's limits."""
        labels = {**running.labels, **labels}
        part = running.steps.part
        return Account(self, name, unit=running.unit, run=running.run, labels=labels, cost=NOTHING, part=part)

    def opened(self, account: Account) -> None:
        """An account holds something."""
        with self._mutex:
            self._open.add(account)
            if self._thread is None and not self._bell.is_set():
                self._thread = threading.Thread(target=self._look_after, name="flyball-calls", daemon=True)
                self._thread.start()

    def expire(self) -> None:
        """Something was answered with no: whoever is next asks."""
        for account in list(self._open):
            account.expire()

    def recalling(self, running: Running | None) -> Talk[bool]:
        """Give back all that this process holds and does not use, before anybody is refused because of it. Whether
        there was something."""
        answers = [answer for account in list(self._open) if (answer := account.report()) is not None]
        if answers:
            with contextlib.suppress(FlyballError):
                yield answers[-1]
        if running is not None:
            yield running.steps
        return bool(answers) or running is not None

    def report(self) -> None:
        """Tell what was done, give back what is not used, and wait until it is written."""
        answers = [answer for account in list(self._open) if (answer := account.report()) is not None]
        wait(answers, timeout=GIVE_BACK_MAX)
        self._tidy()

    def close(self) -> None:
        """Give everything back, and hold no thread any more."""
        self._bell.set()
        self.report()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(GIVE_BACK_MAX)

    def disown(self) -> None:
        """We are in a forked child: what is held belongs to the parent."""
        self._mutex = threading.Lock()
        self._bell = threading.Event()
        self._open.clear()
        self._thread = None
        for account in list(self._accounts):
            account.forget()

    def _look_after(self) -> None:
        """In a thread: report every account whose lease has ended, for as long as any holds something."""
        pause = LASTS_MAX / SECOND
        while not self._bell.wait(max(LOOKS_APART_MIN, pause)):
            now = self.governor.clock.now()
            for account in list(self._open):
                if account.until <= now:
                    account.report()
            self._tidy()
            with self._mutex:
                if not self._open:
                    self._thread = None
                    return
                ends = [account.until for account in self._open if account.until > now]
            pause = min([LASTS_MAX, *(end - now for end in ends)]) / SECOND

    def _tidy(self) -> None:
        with self._mutex:
            self._open = {account for account in self._open if account.holds}


_all: "weakref.WeakSet[Books]" = weakref.WeakSet()


def close_all() -> None:
    """Give back all that this process holds: it is about to end."""
    for books in list(_all):
        books.close()


def _after_fork() -> None:
    for books in list(_all):
        books.disown()


atexit.register(close_all)
os.register_at_fork(after_in_child=_after_fork)
