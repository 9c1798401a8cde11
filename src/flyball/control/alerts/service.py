"""The service: reads the journal, writes the book, and has the channels send. It decides nothing.

What was read, what came of it and how far that was, is written in one transaction; then it is sent; then it is written
that it was. Killed anywhere in between it sends once more what may have been sent already, and never nothing.

Each channel is served by a task of its own: one that is slow delays no other.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from flyball.config.alerts import Alerts
from flyball.control import circuits, hosts
from flyball.control.alerts import inbox, outbox
from flyball.control.alerts.book import Book
from flyball.control.alerts.channel import Channel, ChannelError, Message
from flyball.control.alerts.direct import Direct
from flyball.control.alerts.notices import KINDS, READ, News, Notice, Over, can_tell, news_of
from flyball.control.alerts.records import INBOX, RECORDS
from flyball.control.problems import HOST_LOST, HOSTS_DIFFER, SAME_SETTINGS, differ_text
from flyball.core.amounts import amount_text
from flyball.core.codec import decode_body, readable_state
from flyball.core.event import Stepped
from flyball.core.policy import Key
from flyball.core.time import SECOND, Instant, Span, seconds
from flyball.errors import StoreCorrupt, StoreError
from flyball.governor import Governor
from flyball.policies.budget import Budget
from flyball.policies.budget import State as BudgetState
from flyball.store import Draft, Entry, Snapshot

log = logging.getLogger(__name__)

LOOK_EVERY: Final = 1.0
"""Seconds between looks at the journal, if nobody pokes: a doorbell that fails must not silence alerts."""
LOOK_AT_LEAST: Final = 0.05
"""Seconds between two looks however often somebody pokes."""
PLACE_EVERY: Final[Span] = 10 * SECOND
"""Between two writes of how far the journal was read, if it said nothing: people see by it that alerts keep up."""
DIFFER_FOR: Final[Span] = 60 * SECOND
"""Hosts have different settings for so long before anybody is told: they are changed on one after another."""
SILENT_MAX: Final = 2.0
"""Seconds for a look at the store. One that takes longer is taken for a store that does not answer."""
HOSTS: Final = frozenset({HOST_LOST, HOSTS_DIFFER})
BATCH_MAX: Final = 1_000
"""Entries that are read at once."""
SEND_MAX: Final = 60.0
"""Seconds for one message. A channel has its own limit, below this; here is the end of one that forgot it."""
ENDS_WITHIN: Final = 5.0
"""Seconds for what is being sent when the daemon ends. What is not sent then is sent by the next one."""

Links = Callable[[Message, str], Message]
"""Puts links to its actions into a message, for the channel of that name."""


async def in_thread(work: Callable[[], Any]) -> Any:
    """Beside the loop: the store waits for the disk."""
    return await asyncio.to_thread(work)


class AlertService:
    """Runs beside the daemon's units, until it is told to end."""

    def __init__(
        self,
        governor: Governor,
        settings: Alerts,
        channels: Sequence[Channel],
        *,
        links: Links | None = None,
        trouble: Callable[[], str] = lambda: "",
        folder: Path | None = None,
        who: str = "",
        lease: Span = 0,
        every: float = LOOK_EVERY,
        do: Callable[[Callable[[], Any]], Awaitable[Any]] = in_thread,
    ) -> None:
        """`trouble` says why the store cannot be used, as far as others know; `folder` is the state folder; `who` this
        is, and with which lease, if it is one of several hosts. `every` so many seconds the journal is looked at, if
        nobody pokes. `do` is how the store is waited for."""
        self.settings: Final = settings
        self._governor, self._links, self._every, self._do = governor, links, every, do
        self._channels = {channel.name: channel for channel in channels}
        self._book: Book | None = None
        self._lock = asyncio.Lock()
        """The book has one keeper at a time."""
        self._poked = asyncio.Event()
        self._more = {name: asyncio.Event() for name in self._channels}
        self._troubled = ""
        """Why the store cannot be read or written."""
        self._looking_since: float | None = None
        self._turns = {name: asyncio.Lock() for name in self._channels}
        """Each channel is used by one task at a time."""
        self._others_trouble = trouble
        self._direct = Direct(
            settings,
            self._channels,
            self._turns,
            trouble=self._trouble,
            clock=governor.clock.now,
            folder=folder,
            who=who,
            lease=lease,
            every=every / 2,
        )
        self._odd_since: Instant = 0
        """Since when hosts have different settings; 0: they have not."""
        self._placed: Instant = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin. What is written into the journal from now on is not missed."""
        await self._look_once()
        self._tasks = [asyncio.create_task(self.run())]

    async def stop(self) -> None:
        """End, and let go of the channels. What was not sent is sent by the next one."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def poke(self) -> None:
        """There may be something new in the journal. From the loop only."""
        self._poked.set()

    def tell(self, unit: str, text: str) -> None:
        """Have people told something, in the name of a unit."""
        inbox.put(self._governor, unit=unit, text=text)
        self.poke()

    async def run(self) -> None:
        """Until it is cancelled."""
        tasks = [asyncio.create_task(self._serve(channel)) for channel in self._channels.values()]
        tasks.append(asyncio.create_task(self._direct.run()))
        try:
            while True:
                await self._look_once()
                await self._rest()
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=ENDS_WITHIN)
            for channel in self._channels.values():
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(channel.close(), ENDS_WITHIN)

    def _trouble(self) -> str:
        """Why the store cannot be used; nothing: it can be, as far as is known here."""
        since = self._looking_since
        silent = since is not None and asyncio.get_running_loop().time() - since > SILENT_MAX
        return self._others_trouble() or self._troubled or ("it does not answer" if silent else "")

    async def _look_once(self) -> None:
        self._looking_since = asyncio.get_running_loop().time()
        try:
            async with self._lock:
                await self._whole(self._advance)
            self._troubled = ""
        except StoreError as error:
            if not self._troubled:
                log.warning("alerts cannot read or write the store, and try again: %s", error)
            self._troubled = f"{error}. {error.remedy}"
        except Exception:  # a fault of ours must not silence alerts for good
            log.exception("alerts: a look at the journal failed, and is tried again")
        finally:
            self._looking_since = None
        for event in self._more.values():
            event.set()

    async def _rest(self) -> None:
        await asyncio.sleep(LOOK_AT_LEAST)
        now = self._governor.clock.now()
        due = self._book.next_at(now) if self._book is not None else now
        length = min(self._every, max(0.0, seconds(due - now)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(length - LOOK_AT_LEAST, 0.0)):
                await self._poked.wait()
        self._poked.clear()

    async def _whole(self, work: Callable[[], None]) -> None:
        """Do that, and come back when it is done, also if we are told to end meanwhile: the next service must not find
        a thread of this one that still writes."""
        task = asyncio.ensure_future(self._do(work))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    # Reading. In a thread, with the lock.

    def _advance(self) -> None:
        store = self._governor.store
        if self._book is None:
            self._book = Book(self.settings, store.states(RECORDS))
        book = self._book
        if book.cursor is None:
            # Nobody wants to be told what happened before there were alerts.
            book.read_up_to(store.read(()).seq)
        more = True
        while more:
            snapshot = store.read([INBOX])
            more = self._read_on(book, snapshot)
            letters = inbox.read(snapshot.records.get(INBOX))
            self._open_letters(book, letters)
            self._look_at_circuits(book)
            self._look_at_hosts(book)
            book.work(self._governor.clock.now())
            self._write(frozenset(letter.id for letter in letters))

    def _read_on(self, book: Book, snapshot: Snapshot) -> bool:
        """Read what is new. Whether there may be more."""
        store, before = self._governor.store, book.cursor or 0
        if snapshot.seq <= before:
            if snapshot.seq < before:
                log.warning("the journal ends before entry %d, which alerts have read: it is another one", before)
                book.read_up_to(snapshot.seq)
            return False
        first = store.entries(after=before, limit=1)
        if first and first[0].seq > before + 1:
            self._say_gap(book, before, first[0])
        entries = store.entries(after=before, limit=BATCH_MAX, events=READ)
        full = len(entries) == BATCH_MAX
        for entry in entries:
            try:
                book.hear(self._news(entry))
            except Exception:  # a fault of ours with one entry must not keep people from being told of the others
                log.exception("alerts: entry %d of the journal is left out", entry.seq)
        book.hear(self._near_budgets(entries))
        book.read_up_to(entries[-1].seq if full else max(snapshot.seq, entries[-1].seq if entries else 0))
        return full

    def _news(self, entry: Entry) -> Iterator[News]:
        if not can_tell(entry.event, entry.verb, entry.body):
            return
        try:
            body = decode_body(entry.body)
        except StoreCorrupt:  # `flyball events` names it
            return
        for one in news_of(entry.at, body):
            if isinstance(one, Notice) and one.kind == "circuit_open":
                yield from self._open_circuits(one)
            else:
                yield one

    def _open_circuits(self, notice: Notice) -> Iterator[Notice]:
        """An entry says that a circuit is open, and not which."""
        for name in self._circuits():
            yield msgspec.structs.replace(notice, unit="", subject=name, ref=name, counts=False)

    def _circuits(self) -> list[str]:
        known = circuits.known(self._governor, self._governor.clock.now())
        return [circuit.view.name for circuit in known if circuit.view.state != circuits.CLOSED]

    def _say_gap(self, book: Book, before: int, first: Entry) -> None:
        lost = first.seq - before - 1
        text = f"{lost} entries of the journal were forgotten before alerts had read them (after number {before})"
        log.warning("%s", text)
        kind = "journal_gap"
        remedy = "Look at what is wrong now: `flyball problems`. A larger `journal.max_entries` keeps more."
        book.hear(
            [Notice(kind=kind, severity=KINDS[kind].severity, at=first.at, subject="journal", text=text, remedy=remedy)]
        )

    def _open_letters(self, book: Book, letters: Iterable[inbox.Letter]) -> None:
        for letter in letters:
            if letter.test:
                book.test(letter.id, letter.channel, letter.at)
                continue
            said = Notice(
                kind="message",
                severity=KINDS["message"].severity,
                at=letter.at,
                unit=letter.unit,
                subject=letter.unit or "rules",
                text=letter.text,
            )
            book.hear([said])

    def _look_at_circuits(self, book: Book) -> None:
        """That a circuit is closed again, no entry says."""
        waiting = [group for group in book.groups.values() if group.kind == "circuit_open" and group.is_open]
        if not waiting:
            return
        now, still = self._governor.clock.now(), self._circuits()
        book.hear(
            Over(at=now, kinds=frozenset({"circuit_open"}), ref=item.ref)
            for group in waiting
            for item in group.items.values()
            if item.ref not in still
        )

    def _look_at_hosts(self, book: Book) -> None:
        """That hosts have different settings no entry says, nor that one is not meant to come back."""
        now = self._governor.clock.now()
        living = [record for record in hosts.known(self._governor.store).values() if not record.ran_out(now)]
        odd = sorted(hosts.differing(living))
        self._odd_since = (self._odd_since or now) if odd else 0
        open_ = {group.kind: group for group in book.groups.values() if group.is_open and group.kind in HOSTS}
        if not odd and HOSTS_DIFFER in open_:
            book.hear([Over(at=now, kinds=frozenset({HOSTS_DIFFER}))])
        if odd and now - self._odd_since >= DIFFER_FOR:
            differ = Notice(
                kind=HOSTS_DIFFER,
                severity=KINDS[HOSTS_DIFFER].severity,
                at=now,
                subject="hosts",
                text=differ_text(odd),
                remedy=SAME_SETTINGS,
                counts=False,
            )
            book.hear([differ])
        if HOST_LOST in open_:
            past = [item.ref for item in open_[HOST_LOST].items.values() if now - item.last >= hosts.SHOWN_FOR]
            book.hear(Over(at=now, kinds=frozenset({HOST_LOST}), ref=ref) for ref in past)

    def _near_budgets(self, entries: Sequence[Entry]) -> Iterator[News]:
        """Of units that spent something: whether one of their budgets is nearly spent."""
        share = self.settings.budget_near
        if share >= 1:
            return
        spent = {entry.unit: entry for entry in entries if entry.event == "stepped" and b'"used"' in entry.body}
        for entry in spent.values():
            try:
                event = decode_body(entry.body).event
            except StoreCorrupt:
                continue
            if not isinstance(event, Stepped):
                continue
            docket = self._governor.panel.concerning(event)
            budgets = [
                (policy, key)
                for policy, key in zip(docket.policies, docket.keys, strict=False)
                if isinstance(policy, Budget) and policy.by != "run"
            ]
            records = self._governor.store.read([key for _, key in budgets]).records
            for policy, key in budgets:
                state = readable_state(BudgetState, records.get(key, b""))
                if state is not None:
                    state = policy.current(state, entry.at)
                    yield _near(
                        policy, key, state, (entry.at, event), near=state.spent >= share * (policy.limit + state.raised)
                    )

    # Writing. In a thread, with the lock.

    def _write(self, taken: frozenset[str] = frozenset()) -> None:
        """Write all that changed, in one transaction."""
        book = self._book
        assert book is not None  # noqa: S101 - it was read before
        now = self._governor.clock.now()
        changes = book.changes(place=now - self._placed >= PLACE_EVERY)
        if not changes and not taken:
            return
        self._placed = now

        def draft(snapshot: Snapshot) -> Draft:
            rows = dict(changes)
            if taken:
                rows[INBOX] = inbox.without(snapshot.records.get(INBOX), taken)
            return Draft(max(self._governor.clock.now(), snapshot.at), rows, None)

        self._governor.store.transact([*changes, INBOX], draft)
        book.written(changes)

    # Sending.

    async def _serve(self, channel: Channel) -> None:
        """Send what waits for one channel, in its order."""
        name, more = channel.name, self._more[channel.name]
        while True:
            more.clear()
            book, now = self._book, self._governor.clock.now()
            box = book.outboxes[name] if book is not None else outbox.Outbox()
            delivery = outbox.due(box, now)
            if delivery is None:
                length = max(0.0, seconds(box.next_at - now)) if box.pending else None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(length):
                        await more.wait()
                continue
            await self._send(channel, delivery, outbox.previous(box, delivery))

    async def _send(self, channel: Channel, delivery: outbox.Delivery, previous: str | None) -> None:
        book = self._book
        assert book is not None  # noqa: S101 - there is something to send
        id_, error = "", None
        try:
            async with asyncio.timeout(SEND_MAX), self._turns[channel.name]:
                # Links are made when they are sent, and are in no record: whoever has one may do what it says.
                message = delivery.message
                linked = self._links(message, channel.name) if self._links and message.actions else message
                id_ = await channel.send(linked, previous)
        except ChannelError as failed:
            error = failed
        except TimeoutError:
            error = ChannelError(f"it did not come back within {SEND_MAX:g} s", retry=True)
        except Exception as fault:  # a fault of a channel is a failure of that channel, and of nothing else
            log.exception("the alert channel %s failed", channel.name)
            error = ChannelError(f"a fault in it: {type(fault).__name__}", retry=True)
        async with self._lock:
            now = self._governor.clock.now()
            if error is None:
                book.sent(channel.name, delivery, id_, now)
            else:
                log.warning("alert not sent: %s: %s", channel.name, error)
                book.failed(channel.name, delivery, error, now)
            try:
                await self._whole(self._write)
            except StoreError as trouble:  # it is written with the next look, or sent once more after a crash
                log.warning("what became of an alert cannot be written: %s", trouble)
        self.poke()


def _near(policy: Budget, key: Key, state: BudgetState, stepped: tuple[Instant, Stepped], *, near: bool) -> News:
    at, event = stepped
    unit = event.unit if policy.by == "unit" else ""
    ref = f"{policy.meter} of {key.by} {key.subject}".strip()
    if not near:
        return Over(at=at, kinds=frozenset({"budget_near"}), unit=unit, ref=ref)
    of_limit = f"{amount_text(policy.meter, state.spent)} of {amount_text(policy.meter, policy.limit + state.raised)}"
    whose = "" if policy.by == "unit" else f" of the {key.by} {key.subject}".rstrip()
    return Notice(
        kind="budget_near",
        severity=KINDS["budget_near"].severity,
        at=at,
        unit=unit,
        subject=ref,
        ref=ref,
        text=f"{of_limit}{whose} are spent",
        remedy="Raise it in time: `flyball raise`; or look at what it does: `flyball why`.",
        labels=event.labels,
        counts=False,
    )
