"""A host's part in the placement: it takes items that wait, leaves them, hands over those of a dead host, and puts
right from time to time what somebody left undone. In the daemon's loop; the engine has threads and a loop of its own.

Whatever goes wrong here ends in an item that waits for a host a few seconds longer, or in two hosts that try to start
its units: then the governor lets one of them, and the other finds out at its next look.
"""

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from flyball.config.plan import HostPlan
from flyball.core.host import host_of
from flyball.errors import FlyballError, StoreError
from flyball.placing.chores import Chores, Doubt, Placement, View, chores, fair_share
from flyball.placing.items import FREE, PINNED, Item, listened, pinned_to

if TYPE_CHECKING:
    from flyball.placing.engine import Engine

log = logging.getLogger(__name__)

T = TypeVar("T")

POLL_EVERY: Final = 0.5
"""Seconds between two looks of a host at a queue: a dead host's items wait so long for another, at most."""
PINNED_EVERY: Final = 1.0
"""Seconds between two looks of a host at its own queue: what waits there waits for no other."""
POLLED_BY: Final = 8
"""Hosts that look at the queue of all so often. Of more hosts each looks less often: together they look as often."""
POLL_MAX: Final = 30.0
"""Seconds: no host looks less often than this."""
TEND_EVERY: Final = 5.0
"""Seconds between two looks whether all items are somewhere. With many hosts each looks less often."""
DOUBT_EVERY: Final = 0.5
"""Seconds between two looks while something looks wrong."""
TENDED_BY: Final = 10
"""Hosts that look that often."""
SPREAD_WAIT: Final = 3.0
"""Seconds that a host waits before it puts what never was anywhere: hosts that are started together share it then, and
the first one does not take all."""
FULL_WAIT: Final = 5.0
"""Seconds that a full host has an item that it cannot run, before it puts it back. It may be given it again."""
TROUBLE_WAIT: Final = 5.0
"""Seconds before an item is put back whose taking failed, by a fault of ours."""
STOP_MAX: Final = 5.0
"""Seconds for the engine to end. It waits for what it asks of the database, which may not answer."""
CLOSE_MAX: Final = 5.0
"""Seconds for putting back what this host had, when it ends and the database does not answer."""

REMOVED: Final = "removed"
"""Why an item is left: nobody is to have it any more. Of any other reason it waits for another host."""
DOWN: Final = "down"
DRAINED: Final = "drained"
MOVED: Final = "moved:"
"""And the host that is to have it next follows."""
LOST: Final = "lost"
"""It is another host's by now: nothing is to be written about it."""

Take = Callable[[Item], Awaitable[None]]
"""Runs an item: returns when it was left, and nothing of it runs here any more."""
Leave = Callable[[Item], Awaitable[None]]
"""Ends an item that runs; what `Take` returned of it is back, or about to be."""


@dataclass(slots=True)
class _Held:
    """An item that this host has."""

    item: Item
    workflow: str
    runs: bool = False
    """There was room for it."""
    why: str = ""
    """Why it is being left; nothing: it is not."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class Placing:
    """The placement, as one host sees it."""

    def __init__(
        self,
        store_url: str,
        holder: str,
        name: str,
        host: HostPlan,
        *,
        live: Callable[[], Mapping[str, int]],
        lease_holds: Callable[[], bool] = lambda: True,
    ) -> None:
        """`live` reads from the store (in a thread) who lives: the holders, each with the units that it takes at most;
        none, if it is being drained. While `lease_holds`, what this host has is nobody else's."""
        self._url, self._holder, self._name, self._host = store_url, holder, name, host
        self._live, self._lease_holds = live, lease_holds
        self._items: dict[str, Item] = {}
        self._held: dict[str, _Held] = {}
        self._engine: Engine | None = None
        self._looking: asyncio.Task[None] | None = None
        self._having: set[asyncio.Task[None]] = set()
        self._turning = asyncio.Lock()
        """One beginning, or end, at a time."""
        self._tending = asyncio.Lock()
        self._returning = asyncio.Lock()
        self._returns: dict[str, list[str]] = {}
        """What is to wait for others again, by queue. Many are put back in one transaction."""
        self._doubts: Mapping[str, Doubt] = {}
        """What looked wrong at the last look, by workflow."""
        self._rooms: dict[str, int] = {}
        """Units that the other holders had room for at the last look."""
        self._registered: set[str] = set()
        self._room = asyncio.Event()
        """Set when something was left."""
        self._stopped = asyncio.Event()
        """Set while nothing is taken."""
        self._stopped.set()

    # From the beginning to the end.

    async def open(self, items: Iterable[Item], take: Take, leave: Leave) -> None:
        """Begin to take items. StoreError if the database is away: then nothing has begun."""
        self._loop = asyncio.get_running_loop()
        self._take, self._leave = take, leave
        self._items = {item.name: item for item in items}
        async with self._turning:
            await self._open()

    async def undrain(self) -> None:
        """Take items again, if it does not."""
        async with self._turning:
            if self._engine is None:
                await self._open()

    async def drain(self) -> None:
        """Leave all items to others, and take none until `undrain`."""
        await self.close(DRAINED)

    async def _open(self) -> None:
        engine = load_engine()(self._url, self._holder)
        queues = listened(self._name, self._host, self._items.values())
        await _aside(lambda: engine.open(self._keeps, queues))
        self._engine = self._asked = engine
        self._registered.clear()
        self._stopped.clear()
        with contextlib.suppress(StoreError):  # then the next look does it
            await self._tend(first=True)
        self._looking = self._loop.create_task(self._tend_for_ever())

    async def change(self, items: Iterable[Item]) -> None:
        """Other settings. What is not in them any more is left; what may not run here any more goes elsewhere."""
        before, self._items = self._items, {item.name: item for item in items}
        removed = [name for name in before if name not in self._items]
        for name, held in self._held.items():
            held.item = self._items.get(name, held.item)
        if self._engine is None:
            return
        misfits = [name for name, held in self._held.items() if not self._fits(held.item)]
        await asyncio.gather(
            *(self.release(name, REMOVED) for name in removed),
            *(self.release(name, DRAINED) for name in misfits),
        )
        with contextlib.suppress(StoreError):  # then others find out by and by
            await self._tend(removed=removed, reloaded=True)

    async def release(self, item: str, why: str) -> bool:
        """Leave an item: end it here, and have it wait for another host, unless it is REMOVED. Returns when that is
        done; False if this host does not have it."""
        held = self._held.get(item)
        if held is None:
            return False
        if not held.why:
            held.why = why
            self._room.set()  # it may be waiting for that, and not run yet
            await self._leave(held.item)
        await held.gone.wait()
        return True

    async def handed_over(self, holder: str) -> int:
        """That holder is dead, and its record is gone: have what it had wait for others. How many items that are. Where
        this host takes part no more, the others find them by themselves."""
        engine = self._engine
        if engine is None:
            return 0
        try:
            kept = await _aside(lambda: engine.placements(holder))
            await self._put_back(engine, kept)
            await self._tend()  # there are fewer hosts, so each may take more
        except StoreError as error:
            log.warning("what %s had could not be handed over yet, and will be: %s", holder, error)
            return 0
        log.info("%d items of %s wait for other hosts", len(kept), holder)
        return len(kept)

    async def share(self) -> None:
        """Hosts came or went: see how much each may take, and whether all items are somewhere."""
        if self._engine is not None:
            await self._tend()

    async def close(self, why: str = DOWN) -> None:
        """Take nothing any more, and leave all items. `open` begins anew."""
        async with self._turning:
            await self._close(why)

    async def _close(self, why: str) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        if self._looking is not None:
            self._looking.cancel()
        stopping = self._loop.create_task(self._stop(engine))
        sharing = self._loop.create_task(self._share_without_me(engine))
        await asyncio.gather(*(self.release(name, why) for name in list(self._held)))
        await asyncio.gather(stopping, sharing)
        with contextlib.suppress(TimeoutError, FlyballError):
            await asyncio.wait_for(self._let_go(engine), CLOSE_MAX)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_aside(engine.close), CLOSE_MAX)

    async def _stop(self, engine: "Engine") -> None:
        try:
            await asyncio.wait_for(_aside(engine.stop), STOP_MAX)
        except TimeoutError:
            log.warning("the placement of units does not end: the database does not answer")
        finally:
            self._stopped.set()

    async def _share_without_me(self, engine: "Engine") -> None:
        """The others may take what this host leaves, and need not find out first that it is gone."""

        def share() -> None:
            live = {holder: units for holder, units in self._live().items() if holder != self._holder}
            free = sum(item.queue == FREE for item in self._items.values())
            engine.register(FREE, every=_poll_every(len(live)), share=fair_share(free, live.values()))

        with contextlib.suppress(TimeoutError, FlyballError):
            await asyncio.wait_for(_aside(share), CLOSE_MAX)

    async def _let_go(self, engine: "Engine") -> None:
        """What was taken in the last moment, or could not be put back."""
        await self._put_back(engine, await _aside(lambda: engine.placements(self._holder)))

    @property
    def held(self) -> list[str]:
        """The items that this host has."""
        return [*self._held]

    async def placed(self) -> dict[str, str]:
        """Who has which item; nobody: it waits for a host."""
        engine = self._opened()
        places = sorted(await _aside(engine.placements), key=lambda place: place.turn)
        return {place.item: place.holder for place in places if place.kept or place.waits}

    def _opened(self) -> "Engine":
        if self._engine is None:
            raise StoreError("the placement of units is closed", remedy="It opens when the store can be reached.")
        return self._engine

    # Having an item.

    async def _keeps(self, name: str, workflow: str) -> None:
        """On the engine's loop: this host was given an item. Returns when it has it no more."""
        gone: Future[None] = Future()

        def begin() -> None:
            # In a context of our own: the engine's says that whatever is done is a step of this workflow.
            self._meanwhile(self._have(name, workflow, gone))

        try:
            self._loop.call_soon_threadsafe(begin, context=Context())
        except RuntimeError:  # the loop is closed: it stays this holder's, until somebody hands it over
            return
        await asyncio.wrap_future(gone)

    async def _have(self, name: str, workflow: str, gone: "Future[None]") -> None:
        held, item = self._held.get(name), self._items.get(name)
        if held is not None:  # given twice: it is one and the same here
            await held.gone.wait()
        elif item is not None:
            await self._run(item, workflow)
        else:  # whoever knows it puts it again
            await self._let_be(workflow)
        if not gone.done():
            gone.set_result(None)

    async def _run(self, item: Item, workflow: str) -> None:
        """Take an item; when it was left, have it wait for another host, or not."""
        held = self._held[item.name] = _Held(item, workflow)
        try:
            if not self._fits(item):
                held.why = DRAINED
            elif await self._has_room(held):
                await self._take(item)
        except Exception:
            log.exception("%s: cannot be run here; left to others", item.name)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), TROUBLE_WAIT)
        held.why = held.why or DRAINED
        log.debug("%s is left: %s", item.name, held.why)
        if held.why == REMOVED:
            await self._let_be(workflow)
        elif held.why != LOST:
            target = held.why.removeprefix(MOVED) if held.why.startswith(MOVED) else ""
            with contextlib.suppress(StoreError):  # it is found at the next look
                await self._give_back(workflow, pinned_to(target) if target else held.item.queue)
        del self._held[item.name]
        held.gone.set()
        self._room.set()

    async def _let_be(self, workflow: str) -> None:
        """Nobody is to have it any more."""
        with contextlib.suppress(StoreError):  # as above
            await _aside(lambda: self._asked.withdraw([workflow]))

    def _fits(self, item: Item) -> bool:
        return item.fits(self._name, self._host.labels)

    async def _has_room(self, held: _Held) -> bool:
        """Whether it can be run here; if not at once, then within a while."""
        give_up = self._loop.time() + FULL_WAIT
        while not held.why and not held.item.host:
            running = sum(len(other.item.units) for other in self._held.values() if other.runs and not other.item.host)
            if running + len(held.item.units) <= self._host.units_max:
                held.runs = True
                break
            if other := self._roomier(held.item):
                held.why = f"{MOVED}{other}"
                break
            self._room.clear()
            try:
                async with asyncio.timeout_at(give_up):
                    await self._room.wait()
            except TimeoutError:
                log.info("%s: no room for it here (host.units_max)", held.item.name)
                return False
        return not held.why

    def _roomier(self, item: Item) -> str:
        """Another host that has room for it, as far as is known; nothing if there is none."""
        if item.queue != FREE or not self._rooms:
            return ""
        holder = max(self._rooms, key=lambda holder: self._rooms[holder])
        if self._rooms[holder] < len(item.units):
            return ""
        self._rooms[holder] -= len(item.units)
        return host_of(holder)

    async def _give_back(self, workflow: str, queue: str) -> None:
        """Have it wait there for whoever takes it."""
        self._returns.setdefault(queue, []).append(workflow)
        if self._engine is None:
            await self._stopped.wait()  # or this host would take it again
        async with self._returning:
            some = self._returns.pop(queue, [])
            if some:
                await _aside(lambda: self._put_there(self._asked, some, queue))

    async def _put_back(self, engine: "Engine", places: Sequence[Placement]) -> None:
        """Have them wait where they belong."""
        queues: dict[str, list[str]] = {}
        for place in places:
            item = self._items.get(place.item)
            queues.setdefault(item.queue if item is not None else FREE, []).append(place.workflow)
        for queue, workflows in queues.items():
            await _aside(partial(self._put_there, engine, workflows, queue))

    def _put_there(self, engine: "Engine", workflows: Sequence[str], queue: str) -> None:
        """In a thread. Not if the lease is over: who was frozen meanwhile knows of a world that is long gone."""
        if self._lease_holds():
            engine.put_back(workflows, queue)

    # Looking after all of them.

    async def _tend_for_ever(self) -> None:
        pause = SPREAD_WAIT
        while True:
            await asyncio.sleep(pause * random.uniform(0.9, 1.1))  # noqa: S311 - so that hosts take turns
            hosts = 1
            try:
                hosts = await self._tend()
            except StoreError as error:
                log.debug("%s", error)  # whoever writes to the store says so
            except Exception:  # a fault of ours is the end of this look, and not of looking
                log.exception("where units run could not be looked after")
            pause = (DOUBT_EVERY if self._doubts else TEND_EVERY) * max(1.0, hosts / TENDED_BY)

    async def _tend(self, *, first: bool = False, removed: Collection[str] = (), reloaded: bool = False) -> int:
        """Put right what is wrong. How many hosts there are."""
        async with self._tending:
            engine = self._opened()
            held = {name: held.workflow for name, held in self._held.items() if not held.why}
            doubts, known = self._doubts, dict(self._items)

            def look() -> tuple[Chores, int]:
                places = engine.placements()
                live = self._live()  # after the places: who took something since is among them
                view = View(
                    me=self._holder,
                    name=self._name,
                    items=known,
                    held=held,
                    places=places,
                    live=live,
                    now=time.monotonic(),
                    doubts=doubts,
                    removed=removed,
                    reloaded=reloaded,
                    first=first,
                )
                todo = chores(view)
                self._do(engine, todo, known, len(live))
                return todo, len(live)

            todo, hosts = await _aside(look)
            self._doubts, self._rooms = todo.doubts, todo.rooms
        for name in todo.lost:
            log.warning("%s is another host's by now: left", name)
            self._meanwhile(self._lose(name))
        return hosts

    async def _lose(self, name: str) -> None:
        await self.release(name, LOST)

    def _meanwhile(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._having.add(task)
        task.add_done_callback(self._having.discard)

    def _do(self, engine: "Engine", todo: Chores, known: Mapping[str, Item], hosts: int) -> None:
        """In a thread: all but what is done in the loop."""
        engine.register(FREE, every=_poll_every(hosts), share=todo.share)
        for queue in {pinned_to(self._name), *(item.queue for item in known.values())} - self._registered - {FREE}:
            engine.register(queue, every=PINNED_EVERY if queue.startswith(PINNED) else POLL_EVERY)
            self._registered.add(queue)
        engine.put(todo.puts)
        for queue, workflows in todo.backs.items():
            self._put_there(engine, workflows, queue)
        engine.withdraw(todo.withdrawn)
        engine.forget(todo.forgotten)


def _poll_every(hosts: int) -> float:
    """Seconds between two looks of each of so many hosts at the queue of all."""
    return min(POLL_MAX, POLL_EVERY * max(1.0, hosts / POLLED_BY))


def load_engine() -> "type[Engine]":
    """What the placement runs on. It takes a second to import, which a lease would miss: best before there is one."""
    try:
        from flyball.placing.engine import Engine  # noqa: PLC0415 - only where there is a fleet on many hosts
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("dbos", "psycopg", "sqlalchemy"):
            raise
        raise FlyballError(
            f"many hosts on one store need the package {error.name}, which is not installed here",
            remedy="Install it: `pip install 'flyball-governor[fleet]'`.",
        ) from None
    return Engine


def _aside(work: Callable[[], T]) -> "asyncio.Future[T]":
    """Do that in a thread of its own, which nobody waits for at the end: it may wait for the database."""
    said: Future[T] = Future()

    def do() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is wanted
            with contextlib.suppress(InvalidStateError):
                said.set_exception(error)
        else:
            with contextlib.suppress(InvalidStateError):
                said.set_result(result)

    threading.Thread(target=do, name="placing", daemon=True).start()
    return asyncio.wrap_future(said)
