"""The two streams of events: the board, and the journal. Each piece is made once, however many read it; a reader that
is behind is told what it missed, made anew for it alone."""

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from flyball.control.board import Board
from flyball.control.context import CommandError
from flyball.control.text import entry_data
from flyball.control.web import sse
from flyball.control.web.replies import error_reply, json_reply
from flyball.control.web.service import Service, visitor_of
from flyball.control.web.sse import Hub, Source, Stream, event
from flyball.errors import StoreCorrupt, StoreError
from flyball.store import Entry, Store

log = logging.getLogger(__name__)

BEHIND_MAX: Final = 32
"""Readers that are behind, each elsewhere, and get what they missed. Of more than this each gets all of it anew."""
LOOK_EVERY: Final = 1.0
"""Seconds between looks at the board and the journal, if nobody rings."""
KEPT_MAX: Final = 2_000
"""Entries of the journal kept for readers who are up to date."""
NOTHING_NEW: Final = (-1, b"")
"""What follows no number."""
READ_MAX: Final = 500
"""Entries read from the store, and told, at a time: some hundred kilobytes."""
READING_MAX: Final = 2
"""Readers who get old entries at the same time: the others wait, and the store has time for what is new."""
SEQ_MAX: Final = 2**63 - 1
AGAIN_AFTER: Final = 5.0
"""Seconds until a store that could not be read is read again."""


class BoardHub(Hub):
    """Tells what changed on the board."""

    def __init__(
        self, board: Board, count: Callable[[], int], changed: Callable[[], None], now: Callable[[], float]
    ) -> None:
        super().__init__(count, changed, now)
        self.board = board
        self.rev = board.rev
        self._pieces: dict[int, bytes] = {}
        self._loop = asyncio.get_running_loop()
        self._looking: asyncio.Future[bool] | None = None
        self._looked_at = -math.inf

    async def begin(self) -> None:
        """Be where the board is: while nobody watches, nobody looks."""
        if not self._streams:
            await self.catch_up()

    async def look_again(self) -> None:
        """Bring the board up to date for whoever looks at it once. Many who look at the same time share that."""
        if self._looking is None and self._loop.time() - self._looked_at < sse.PACE_MIN:
            return
        if self._looking is None:
            self._looking = asyncio.ensure_future(asyncio.to_thread(self.board.refresh))
            self._looking.add_done_callback(self._looked)
        await asyncio.shield(self._looking)

    def _looked(self, done: "asyncio.Future[bool]") -> None:
        self._looking, self._looked_at = None, self._loop.time()
        if not done.cancelled():
            done.exception()

    async def look(self) -> None:
        """Ring now and then, and when something changes by itself, until it is cancelled."""
        while True:
            due = self.board.due_in(self._now())
            await asyncio.sleep(LOOK_EVERY if due is None else min(LOOK_EVERY, max(due, sse.PACE_MIN)))
            if self._streams:
                self.ring()

    async def catch_up(self) -> bool:
        before = self.rev
        try:
            await asyncio.to_thread(self.board.refresh)
        except StoreError as error:
            log.warning("the board cannot be told: %s", error)
            return False
        self.rev = self.board.rev
        if self.rev != before:
            self._pieces.clear()
        return self.rev != before

    def piece(self, since: int) -> bytes:
        """What changed after a revision."""
        if len(self._pieces) > BEHIND_MAX:
            since = -1
        found = self._pieces.get(since)
        if found is None:
            # What changed in the meantime is in it as well, and told once more by the next one: that changes nothing.
            found = self._pieces[since] = event("board", self.board.frame(since, self.board.epoch))
        return found


class BoardSource:
    """Where one reader of the board is."""

    def __init__(self, hub: BoardHub) -> None:
        self._hub = hub
        self._rev = -1

    async def next(self) -> bytes:
        if self._rev == self._hub.rev:
            return b""
        piece, self._rev = self._hub.piece(self._rev), self._hub.rev
        return piece


class JournalHub(Hub):
    """Tells what is new in the journal."""

    def __init__(
        self, store: Store, count: Callable[[], int], changed: Callable[[], None], now: Callable[[], float]
    ) -> None:
        super().__init__(count, changed, now)
        self._store = store
        self.last = 0
        """The number of the last entry that is known."""
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT_MAX)
        self._newest = NOTHING_NEW
        """What those are told who were up to date: the number before it, and all of it."""
        self._reading = asyncio.Semaphore(READING_MAX)

    async def begin(self) -> None:
        """Be where the journal is. Nobody asks for what was before then, or it is read for them."""
        if not self._streams:
            self._kept.clear()
            self._newest = NOTHING_NEW  # it ends where the journal was, not where it will be
            self.last = (await asyncio.to_thread(self._store.read, ())).seq

    async def catch_up(self) -> bool:
        before = self.last
        try:
            entries = await asyncio.to_thread(self._store.entries, after=before, limit=READ_MAX)
        except StoreError as error:
            log.warning("the journal cannot be told: %s", error)
            await asyncio.sleep(AGAIN_AFTER)
            self.ring()
            return False
        if not entries or before != self.last:  # somebody began meanwhile, further on
            return False
        if len(entries) == READ_MAX:
            self.ring()  # there is more
        told = [(entry.seq, _told(entry)) for entry in entries]
        self._kept.extend(told)
        self._newest = (before, b"".join(piece for _, piece in told))
        self.last = entries[-1].seq
        return True

    async def look(self) -> None:
        """Ring now and then, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if self._streams:
                self.ring()

    async def after(self, seq: int) -> tuple[bytes, int]:
        """What comes after that number, or a part of it; and its last number."""
        if seq == self._newest[0]:
            return self._newest[1], self.last
        if self._kept and self._kept[0][0] <= seq + 1:
            some = [(number, piece) for number, piece in self._kept if number > seq][:READ_MAX]
            return b"".join(piece for _, piece in some), some[-1][0] if some else seq
        async with self._reading:
            return await asyncio.to_thread(self._read, seq)

    def _read(self, seq: int) -> tuple[bytes, int]:
        entries: Sequence[Entry] = self._store.entries(after=seq, limit=READ_MAX)
        if not entries:
            return b"", max(seq, self.last)
        first = entries[0].seq
        gap = gap_event(seq + 1, first - 1) if first > seq + 1 else b""
        return gap + b"".join(_told(entry) for entry in entries), entries[-1].seq


class JournalSource:
    """Where one reader of the journal is. None: at its end, whatever was before."""

    def __init__(self, hub: JournalHub, after: int | None) -> None:
        self._hub = hub
        self._seq = after

    async def next(self) -> bytes:
        if self._seq is None:
            self._seq = self._hub.last
        if self._seq > self._hub.last:  # another journal, which is shorter: what it knows is none of this one's
            gone, self._seq = self._seq, self._hub.last
            return gap_event(self._seq + 1, gone)
        if self._seq == self._hub.last:
            return b""
        try:
            piece, self._seq = await self._hub.after(self._seq)
        except StoreError as error:
            log.warning("the journal cannot be told: %s", error)
            await asyncio.sleep(AGAIN_AFTER)
            return b": the journal cannot be read now\n\n"
        return piece


def gap_event(first: int, last: int) -> bytes:
    """These entries cannot be told: they are not kept any more."""
    return event("gap", b'{"from":%d,"to":%d}' % (first, last))


def _told(entry: Entry) -> bytes:
    try:
        data = entry_data(entry)
    except StoreCorrupt as error:
        data = {"seq": entry.seq, "unit": entry.unit, "event": entry.event, "verb": entry.verb, "text": str(error)}
    return event("entry", msgspec.json.encode(data), entry.seq)


class Streams:
    """Both of them. Made and used in the server's own loop."""

    def __init__(self, service: Service, now: Callable[[], float] = time.time) -> None:
        self._service = service
        self._board = BoardHub(service.board, self.__len__, self._changed, now)
        self._journal = JournalHub(service.store, self.__len__, self._changed, now)
        self._telling: asyncio.Task[None] | None = None
        """There while somebody watches."""

    def __len__(self) -> int:
        return len(self._board) + len(self._journal)

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/board", self._show_board, methods=["GET"]),
            Route("/api/v1/board/stream", self._watch_board, methods=["GET"]),
            Route("/api/v1/journal/stream", self._watch_journal, methods=["GET"]),
        ]

    def end(self) -> None:
        """Tell nobody any more."""
        self._board.end()
        self._journal.end()

    def _changed(self) -> None:
        """Somebody came or went."""
        if self and self._telling is None:
            self._telling = asyncio.ensure_future(self._tell())
            self._telling.add_done_callback(self._told)
        elif not self and self._telling is not None:
            self._telling.cancel()

    async def _tell(self) -> None:
        """Listen to the journal and tell everybody, until it is cancelled."""
        unring = self._service.doorbell(self._ring)
        try:
            async with asyncio.TaskGroup() as group:
                for hub in (self._board, self._journal):
                    for work in (hub.look(), hub.tell(), hub.give_signs()):
                        group.create_task(work)
        finally:
            unring()

    def _told(self, done: "asyncio.Future[None]") -> None:
        self._telling = None
        if not done.cancelled():
            log.error("watchers are told nothing, and have to ask anew", exc_info=done.exception())
            self.end()
        self._changed()  # somebody may have come while the last one left

    def _ring(self) -> None:
        self._board.ring()
        self._journal.ring()

    async def _show_board(self, _: Request) -> Response:
        await self._board.look_again()
        return json_reply(self._board.board.frame())

    async def _watch_board(self, request: Request) -> Response:
        await self._board.begin()
        return self._stream(request, self._board, BoardSource(self._board))

    async def _watch_journal(self, request: Request) -> Response:
        given = request.headers.get("last-event-id") or request.query_params.get("after")
        await self._journal.begin()
        return self._stream(request, self._journal, JournalSource(self._journal, _position(given)))

    def _stream(self, request: Request, hub: Hub, source: Source) -> Response:
        if len(self) >= sse.STREAMS_MAX:
            text = f"{sse.STREAMS_MAX} others are watching"
            return error_reply(CommandError("busy", text, remedy="Close pages that nobody looks at."))
        return _Streaming(Stream(hub, source, visitor_of(request).may_stay))


class _Streaming(Response):
    """Starlette wants an answer."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._stream(scope, receive, send)


def _position(given: str | None) -> int | None:
    if given is None:
        return None
    with contextlib.suppress(ValueError):
        number = int(given) if given.isascii() and given.isdigit() and len(given) < 20 else -1
        if 0 <= number <= SEQ_MAX:
            return number
    raise CommandError("bad_argument", "after has to be the number of an entry", remedy="Leave it out for what is new.")
