"""Callers that wait, and the one thread that serves them in groups: what is the same in every durable store.

Whoever wants something written takes a ticket and stands in line. One thread takes all who wait, has the store commit
what they want together, and tells each what came of it. What a commit is, and how a group gets its turn, is the
business of the store.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Self

from flyball.core.policy import Key
from flyball.errors import StoreClosed, StoreError
from flyball.store import Drafter, Entry, Snapshot

JOURNAL_MAX: Final = 1_000_000
"""Entries that are kept at most; at least the newest half of them stay. About 170 MB with bodies of 100 bytes."""

GROUP_MAX: Final = 256
"""Callers that are committed together. More would save little, and make the first of them wait."""

SOON_MAX: Final = 4096
"""Futures that may be waiting at once; then `transact_soon` waits for room. (A caller that blocks has only one.)"""

WAIT_MAX: Final = 30.0
"""Seconds that a caller waits for the turn to come, for example while another process is stopped in mid-commit."""


class Wish:
    """What a caller wants written, and in the end what came of it: an entry, nothing, or an error."""

    __slots__ = ("draft", "entry", "error", "keys", "sync")

    def __init__(self, keys: Sequence[Key], draft: Drafter, sync: bool) -> None:
        self.keys = keys
        self.draft = draft
        self.sync = sync
        self.entry: Entry | None = None
        self.error: BaseException | None = None


class Ticket(Wish):
    """A caller's place in the line. Who waits on the spot waits for a bare lock, which costs far less than a future."""

    __slots__ = ("claimed", "done", "future", "given_up")

    def __init__(
        self, keys: Sequence[Key], draft: Drafter, sync: bool, future: "Future[Entry | None] | None" = None
    ) -> None:
        super().__init__(keys, draft, sync)
        self.future = future
        self.claimed = False
        self.given_up = False
        self.done = threading.Lock()
        self.done.acquire()

    def claim(self) -> bool:
        """From here on the caller gets what comes of it; False if he no longer wants it. Under the gate."""
        if self.future is not None:
            return self.future.set_running_or_notify_cancel()
        self.claimed = not self.given_up
        return self.claimed

    def settle(self) -> None:
        """Tell the caller."""
        if self.future is None:
            self.done.release()
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.entry)


Gather = Callable[[], Sequence[Wish]]
"""Who is to be served now. To be called once, when the turn has come: whoever came meanwhile is among them."""


class GroupCommit:
    """The writing side of a store. Subclasses say how a group is written, and what is done between groups."""

    def __init__(self, where: str, name: str) -> None:
        self._where = where
        self._shut = ""
        """Why nothing more is taken, once that is so."""
        self._gate = threading.Lock()
        """Held to join the line, to leave it, and to close it."""
        self._waiting: SimpleQueue[Ticket | None] = SimpleQueue()
        self._room = threading.BoundedSemaphore(SOON_MAX)
        self._writer = threading.Thread(target=self._run, name=f"flyball-store {name}", daemon=True)

    def _write(self, gather: Gather) -> None:
        """Commit what the gathered wishes come to. Each gets its entry or its error; what is raised all of them get."""
        raise NotImplementedError

    def _between(self) -> None:
        """What is to be done after a group, while nobody has to wait for it long."""
        raise NotImplementedError

    def _explain(self, error: BaseException) -> StoreError:
        """What an error means here."""
        raise NotImplementedError

    def _late(self) -> StoreError:
        """What a caller is told whose turn did not come in time."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is waiting, and let go."""
        raise NotImplementedError

    # The callers' side.

    def transact(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> Entry | None:
        """Write what the draft makes of the records of these keys, and wait for it."""
        ticket = Ticket(keys, draft, sync)
        self._submit(ticket)
        if not ticket.done.acquire(timeout=WAIT_MAX):
            with self._gate:
                ticket.given_up = not ticket.claimed
            if ticket.given_up:
                raise self._late()
            ticket.done.acquire()
        if ticket.error is not None:
            raise ticket.error
        return ticket.entry

    def transact_soon(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> "Future[Entry | None]":
        """The same for callers that must not block."""
        future: Future[Entry | None] = Future()
        ticket = Ticket(keys, draft, sync, future)
        self._room.acquire()
        try:
            self._submit(ticket)
        except BaseException:
            self._room.release()
            raise
        return future

    def _submit(self, ticket: Ticket) -> None:
        if threading.get_ident() == self._writer.ident:
            raise RuntimeError("a draft must not use its own store: it would wait for itself")
        with self._gate:
            self._refuse_if_shut()
            self._waiting.put(ticket)

    def _refuse_if_shut(self) -> None:
        if self._shut:
            raise StoreClosed(self._shut)

    def _end_line(self) -> bool:
        """Take nobody in any more, and serve those who wait. False if that was done before."""
        if threading.get_ident() == self._writer.ident:
            raise RuntimeError("a store cannot be closed by its own writer: it would wait for itself")
        with self._gate:
            if self._shut:
                return False
            self._shut = f"{self._where} is closed"
            self._waiting.put(None)
        self._writer.join()
        return True

    # The writer's side.

    def _run(self) -> None:
        waiting = self._waiting
        while (first := waiting.get()) is not None and self._serve(first):
            self._between()

    def _serve(self, first: Ticket) -> bool:
        """Commit the first ticket together with all that wait behind it. False if the last one was among them."""
        group = [first]
        more = True

        def gather() -> Sequence[Wish]:
            nonlocal more
            more = self._gather(group)
            return group

        try:
            self._write(gather)
        except BaseException as error:  # noqa: BLE001 - without a turn nothing is written, and the writer goes on
            for ticket in group:
                ticket.error = ticket.error or self._explain(error)
        for ticket in group:
            ticket.settle()
        return more

    def _gather(self, group: list[Ticket]) -> bool:
        """Add whoever waits to the group, and leave out whoever no longer does. False if nobody will come any more."""
        more = True
        for _ in range(min(self._waiting.qsize(), GROUP_MAX - len(group))):
            ticket = self._waiting.get()
            if ticket is None:
                more = False
                break
            group.append(ticket)
        futures = sum(ticket.future is not None for ticket in group)
        if futures:
            self._room.release(futures)
        with self._gate:
            group[:] = [ticket for ticket in group if ticket.claim()]
        return more


def nothing(_: Snapshot) -> None:
    """A draft that wants nothing."""
