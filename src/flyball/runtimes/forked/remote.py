"""The governor of the program, as its forked run reaches it: asked over the link, judged and written in the program.

The panel is a copy, because it is pure: what a run asks of its own policies between two answers, it asks here. What is
put to it here is put to the program's, too. The store is reached for what is read; what is written besides events is
written if what it was made from is still so.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from flyball.core.decision import Decision
from flyball.core.event import Event
from flyball.core.panel import Panel
from flyball.core.policy import AnyPolicy, Key
from flyball.errors import StoreError
from flyball.governor import NO_ROWS, Governor, Rows
from flyball.runtimes.forked.link import Link
from flyball.runtimes.forked.parent import Prompt
from flyball.store import Clock, Draft, Drafter, Entry, Snapshot, Store

SUBMIT: Final = "governor.submit"
REPORT_AND_ASK: Final = "governor.report_and_ask"
PUT: Final = "governor.put"
STORE: Final = "store."
WRITE: Final = "store.write"
READING: Final = ("entries", "last_entries", "states", "base", "integrity")

TRIES_MAX: Final = 100
"""Tries to write what others change meanwhile. Only what is written without an event needs a second one."""


def governor_services(governor: Governor) -> Mapping[str, Callable[..., Any]]:
    """What a run needs of its program's governor."""
    store = governor.store

    def write(keys: Sequence[Key], seen: Mapping[Key, bytes], made: Draft, sync: bool) -> tuple[bool, Entry | None]:
        same = True

        def draft(snapshot: Snapshot) -> Draft | None:
            nonlocal same
            same = dict(snapshot.records) == seen
            return made._replace(at=max(made.at, snapshot.at)) if same else None

        entry = store.transact(keys, draft, sync=sync)
        return same, entry

    def reads(name: str) -> Callable[..., Any]:
        return lambda options: getattr(store, name)(**options)

    return {
        SUBMIT: Prompt(governor.submit_soon),
        REPORT_AND_ASK: Prompt(governor.report_and_ask_soon),
        PUT: Prompt(governor.panel.put),
        f"{STORE}read": Prompt(store.read),
        WRITE: write,
        **{f"{STORE}{name}": reads(name) for name in READING},
    }


class RemoteGovernor(Governor):
    """The program's governor, in a forked run."""

    in_order = False

    _link: Link

    def __init__(self, link: Link, panel: Panel, clock: Clock | None = None) -> None:
        super().__init__(RemotePanel(link, panel), RemoteStore(link), clock)
        self._link = link

    @classmethod
    def in_place_of(cls, governor: Governor, link: Link) -> None:
        """Make the copy of the program's governor that the run has by the fork reach the program: and with it all who
        hold that, such as a guard in somebody's closure."""
        remote = cls(link, governor.panel, governor.clock)
        governor.__class__ = cls
        governor.__dict__.update(remote.__dict__)

    def submit(self, event: Event, rows: Rows = NO_ROWS) -> Decision:
        decision: Decision = self._link.call(SUBMIT, event, dict(rows))
        return decision

    def submit_soon(self, event: Event, rows: Rows = NO_ROWS) -> "Future[Decision]":
        return self._link.ask(SUBMIT, event, dict(rows))

    def report_and_ask_soon(self, fact: Event, request: Event) -> "Future[tuple[Decision, Decision | None]]":
        return self._link.ask(REPORT_AND_ASK, fact, request)


class RemotePanel(Panel):
    """A copy of the program's panel. Units that the run defines are judged by their policies in the program, too."""

    def __init__(self, link: Link, panel: Panel) -> None:
        self.__dict__.update(panel.__dict__)
        self._link = link

    def put(self, unit: str, policies: Sequence[AnyPolicy]) -> None:
        super().put(unit, policies)
        self._link.call(PUT, unit, tuple(policies))


class RemoteStore(Store):
    """The program's store."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def read(self, keys: Sequence[Key]) -> Snapshot:
        snapshot: Snapshot = self._link.call(f"{STORE}read", list(keys))
        return snapshot

    def transact(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> Entry | None:
        for _ in range(TRIES_MAX):
            snapshot = self.read(keys)
            made = draft(snapshot)
            if made is None:
                return None
            written: tuple[bool, Entry | None] = self._link.call(WRITE, list(keys), dict(snapshot.records), made, sync)
            if written[0]:
                return written[1]
        raise StoreError("others change the same records all the time", remedy="Try again.")

    def transact_soon(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> "Future[Entry | None]":
        answer: Future[Entry | None] = Future()

        def write() -> None:
            try:
                answer.set_result(self.transact(keys, draft, sync=sync))
            except BaseException as error:  # noqa: BLE001 - the future carries it to whoever asks
                answer.set_exception(error)

        threading.Thread(target=write, daemon=True).start()
        return answer

    def entries(
        self, *, after: int = 0, limit: int = 1000, unit: str | None = None, events: Sequence[str] = ()
    ) -> Sequence[Entry]:
        found: Sequence[Entry] = self._ask("entries", after=after, limit=limit, unit=unit, events=tuple(events))
        return found

    def last_entries(
        self, *, limit: int = 1000, unit: str | None = None, events: Sequence[str] = ()
    ) -> Sequence[Entry]:
        found: Sequence[Entry] = self._ask("last_entries", limit=limit, unit=unit, events=tuple(events))
        return found

    def states(self, policy: str | None = None) -> Mapping[Key, bytes]:
        found: Mapping[Key, bytes] = self._ask("states", policy=policy)
        return found

    def base(self) -> Snapshot:
        found: Snapshot = self._ask("base")
        return found

    def trim(self, keep: int) -> int:
        """Nothing: that is the program's business."""
        return 0

    def integrity(self) -> Sequence[str]:
        found: Sequence[str] = self._ask("integrity")
        return found

    def close(self) -> None:
        """Nothing: it is the program's."""

    def _ask(self, what: str, **options: object) -> Any:
        return self._link.call(f"{STORE}{what}", options)
