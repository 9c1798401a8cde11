"""What a graph's run needs of its program while it is in a process of its own: the checkpointer, the store, the cache.

They stay in the program, with their open connections, their loops and whatever they hold in memory; so any of them
works, and what was kept is kept whatever becomes of the process. There a stand-in passes each call on. What is called
in a coroutine is answered by a coroutine in the program's own loop, what is called in a thread by a thread: so a
checkpointer that can do only one of both says so itself, as it does without flyball.
"""

import asyncio
import inspect
import pickle
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, Final, Protocol, Self

from flyball.errors import FlyballError
from flyball.integrations.missing import missing

try:
    from langchain_core.runnables import ConfigurableFieldSpec, RunnableConfig
    from langgraph.cache.base import BaseCache, FullKey, Namespace
    from langgraph.checkpoint.base import (
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
    )
    from langgraph.store.base import BaseStore, Op, Result
except ImportError:
    raise missing("LangGraph", "langgraph") from None

SAVER: Final = "checkpointer"
STORE: Final = "store"
CACHE: Final = "cache"
"""The names of the services."""

LOOKS_APART: Final = 1.0
"""Seconds between two looks whether a loop that was given work still runs. It is needed only where a program has ended
its loop in the middle of a run."""

WRITES: Final = ("put_writes", "aput_writes")
PUTS: Final = ("put", "aput")
PUT_METADATA: Final = 2
"""The place of the metadata among what a checkpoint is kept with."""

Service = Callable[..., Any]
Kept = Callable[[str], None]
Allowed = Collection[tuple[str, ...]]

_SAVER_METHODS: Final = frozenset(
    f"{prefix}{name}"
    for prefix in ("", "a")
    for name in (
        "get_tuple",
        "list",
        "put",
        "put_writes",
        "delete_thread",
        "delete_for_runs",
        "copy_thread",
        "prune",
        "get_delta_channel_history",
    )
)
_STORE_METHODS: Final = frozenset({"batch", "abatch"})
_CACHE_METHODS: Final = frozenset({"get", "aget", "set", "aset", "clear", "aclear"})


class Line(Protocol):
    """The way to the program, as seen from the process."""

    def call(self, service: str, *args: Any) -> Any:
        """Have it done there, and wait."""

    async def call_soon(self, service: str, *args: Any) -> Any:
        """The same in a coroutine."""

    def post(self, service: str, *args: Any) -> None:
        """Have it done there, in order, and do not wait."""

    def posted(self) -> None:
        """Wait until all of that is done; raise what it raised."""


# In the program.


def services(
    saver: BaseCheckpointSaver[Any] | None,
    store: BaseStore | None,
    cache: BaseCache[Any] | None,
    *,
    loop: asyncio.AbstractEventLoop | None,
    kept: Kept | None = None,
) -> dict[str, Service]:
    """What the program does for the process. `loop`: its own, where the run was begun in a coroutine. `kept` is told of
    each checkpoint that was kept what it came of."""
    found: dict[str, Service] = {}
    if saver is not None:
        found[SAVER] = _saver_service(saver, loop, kept)
    if store is not None:
        found[STORE] = _service(store, _STORE_METHODS, loop)
    if cache is not None:
        found[CACHE] = _service(cache, _CACHE_METHODS, loop)
    return found


def _saver_service(
    saver: BaseCheckpointSaver[Any], loop: asyncio.AbstractEventLoop | None, kept: Kept | None
) -> Service:
    by_allowed: dict[frozenset[tuple[str, ...]], Service] = {}

    def serve(allowed: frozenset[tuple[str, ...]], method: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """`allowed`: the types that LangGraph, where it is strict, lets this graph or subgraph read."""
        if allowed not in by_allowed:
            chosen = saver.with_allowlist(allowed) if allowed else saver
            by_allowed[allowed] = _service(chosen, _SAVER_METHODS, loop)
        if method in WRITES:
            args = (args[0], [write for by_name in args[1] for write in by_name.items()], *args[2:])
        answer = by_allowed[allowed](method, args, named)
        if kept is not None and method in PUTS:
            kept(args[PUT_METADATA].get("source", ""))
        return answer

    return serve


def _service(target: object, methods: Collection[str], loop: asyncio.AbstractEventLoop | None) -> Service:
    def serve(method: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        if method not in methods:
            text = f"{type(target).__name__} has no {method!r} that a graph's run may call"
            raise FlyballError(text, remedy="Call it outside of the graph's run.")
        answer = getattr(target, method)(*args, **named)
        if isinstance(answer, AsyncIterator):
            answer = _all_of(answer)
        if inspect.iscoroutine(answer):
            return run_coroutine(answer, loop)
        return list(answer) if isinstance(answer, Iterator) else answer

    return serve


async def _all_of(answers: AsyncIterator[Any]) -> list[Any]:
    return [answer async for answer in answers]


def run_coroutine(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop | None) -> Any:
    """Run a coroutine in the program's loop, from another thread; where it has none, in a loop of its own."""
    if loop is None:
        return asyncio.run(work)
    try:
        future = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError:  # the loop is closed
        work.close()
        raise
    while not futures.wait((future,), timeout=LOOKS_APART).done:
        if not loop.is_running():
            future.cancel()
            raise FlyballError("the loop in which the graph was begun has ended", remedy="Await the graph to its end.")
    return future.result()


# In the process.


class RemoteSaver(BaseCheckpointSaver[Any]):
    """A checkpointer whose calls are made in the program.

    What is to be kept is posted: it is kept in order, whatever becomes of this process, but it is waited for only where
    LangGraph is to wait for its checkpoints (`waits`), and before something is read.
    """

    def __init__(self, line: Line, saver: BaseCheckpointSaver[Any], *, waits: bool = False) -> None:
        super().__init__(serde=saver.serde)
        self._line = line
        self._waits = waits
        # This copy is for what needs no connection. It also must not be thrown away: to close a connection that was
        # opened in another process harms what is kept.
        self._copy = saver
        self._takes_path = "task_path" in inspect.signature(saver.put_writes).parameters
        self._allowed: frozenset[tuple[str, ...]] = frozenset()

    @property
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        """What the checkpointer can be configured by."""
        specs: list[ConfigurableFieldSpec] = self._copy.config_specs
        return specs

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The next version of a channel: the checkpointer's own way, computed here."""
        return self._copy.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Allowed) -> Self:
        """The same, for a graph that reads these types besides."""
        clone = type(self)(self._line, self._copy, waits=self._waits)
        clone._allowed = self._allowed | frozenset(extra_allowlist)
        return clone

    # Threads.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """A checkpoint with all that belongs to it."""
        found: CheckpointTuple | None = self._call("get_tuple", slim(config))
        return found

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, the newest first. They come all at once."""
        named = {"filter": filter, "before": slim(before), "limit": limit}
        yield from self._call("list", slim(config), **named)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a checkpoint."""
        self._keep("put", slim(config), checkpoint, metadata, new_versions)
        return _config_of(config, checkpoint)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep what a node has written, before its superstep is over."""
        self._keep("put_writes", slim(config), _named(writes), task_id, *self._path(task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Forget a thread."""
        self._call("delete_thread", thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Forget some runs."""
        self._call("delete_for_runs", run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread."""
        self._call("copy_thread", source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Forget what is old of some threads."""
        self._call("prune", thread_ids, strategy=strategy)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What was written to some channels, back to where they were kept as a whole."""
        found: Mapping[str, DeltaChannelHistory] = self._call(
            "get_delta_channel_history", config=slim(config), channels=channels
        )
        return found

    # Coroutines.

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`get_tuple`, for coroutines."""
        found: CheckpointTuple | None = await self._call_soon("aget_tuple", slim(config))
        return found

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """`list`, for coroutines."""
        named = {"filter": filter, "before": slim(before), "limit": limit}
        for found in await self._call_soon("alist", slim(config), **named):
            yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`put`, for coroutines."""
        await self._keep_soon("aput", slim(config), checkpoint, metadata, new_versions)
        return _config_of(config, checkpoint)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`put_writes`, for coroutines."""
        await self._keep_soon("aput_writes", slim(config), _named(writes), task_id, *self._path(task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """`delete_thread`, for coroutines."""
        await self._call_soon("adelete_thread", thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`delete_for_runs`, for coroutines."""
        await self._call_soon("adelete_for_runs", run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`copy_thread`, for coroutines."""
        await self._call_soon("acopy_thread", source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`prune`, for coroutines."""
        await self._call_soon("aprune", thread_ids, strategy=strategy)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`get_delta_channel_history`, for coroutines."""
        found: Mapping[str, DeltaChannelHistory] = await self._call_soon(
            "aget_delta_channel_history", config=slim(config), channels=channels
        )
        return found

    # Both.

    def _call(self, method: str, *args: Any, **named: Any) -> Any:
        if not self._waits:
            self._line.posted()
        return self._line.call(SAVER, self._allowed, method, args, named)

    async def _call_soon(self, method: str, *args: Any, **named: Any) -> Any:
        if not self._waits:
            await asyncio.to_thread(self._line.posted)
        return await self._line.call_soon(SAVER, self._allowed, method, args, named)

    def _keep(self, method: str, *args: Any) -> None:
        if self._waits:
            self._line.call(SAVER, self._allowed, method, args, {})
        else:
            self._line.post(SAVER, self._allowed, method, args, {})

    async def _keep_soon(self, method: str, *args: Any) -> None:
        if self._waits:
            await self._line.call_soon(SAVER, self._allowed, method, args, {})
        else:
            self._line.post(SAVER, self._allowed, method, args, {})

    def _path(self, task_path: str) -> tuple[str, ...]:
        """Checkpointers that were written long ago do not know of it."""
        return (task_path,) if self._takes_path else ()


def _config_of(config: RunnableConfig, checkpoint: Checkpoint) -> RunnableConfig:
    """What names a checkpoint that was kept."""
    configurable = config["configurable"]
    return {
        "configurable": {
            "thread_id": configurable["thread_id"],
            "checkpoint_ns": configurable.get("checkpoint_ns", ""),
            "checkpoint_id": checkpoint["id"],
        }
    }


class RemoteStore(BaseStore):
    """A store of LangGraph whose calls are made in the program."""

    def __init__(self, line: Line, store: BaseStore) -> None:
        self._line = line
        self._copy = store  # not thrown away, as with a checkpointer
        self.supports_ttl = store.supports_ttl
        self.ttl_config = store.ttl_config

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Several operations at once."""
        found: list[Result] = self._line.call(STORE, "batch", (list(ops),), {})
        return found

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch`, for coroutines."""
        found: list[Result] = await self._line.call_soon(STORE, "abatch", (list(ops),), {})
        return found


class RemoteCache(BaseCache[Any]):
    """A cache of LangGraph whose calls are made in the program."""

    def __init__(self, line: Line, cache: BaseCache[Any]) -> None:
        super().__init__(serde=cache.serde)
        self._line = line
        self._copy = cache  # not thrown away, as with a checkpointer

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        """What is kept under these keys."""
        found: dict[FullKey, Any] = self._line.call(CACHE, "get", (tuple(keys),), {})
        return found

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        """`get`, for coroutines."""
        found: dict[FullKey, Any] = await self._line.call_soon(CACHE, "aget", (tuple(keys),), {})
        return found

    def set(self, pairs: Mapping[FullKey, tuple[Any, int | None]]) -> None:
        """Keep some, each for so long."""
        self._line.call(CACHE, "set", (dict(pairs),), {})

    async def aset(self, pairs: Mapping[FullKey, tuple[Any, int | None]]) -> None:
        """`set`, for coroutines."""
        await self._line.call_soon(CACHE, "aset", (dict(pairs),), {})

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Forget some, or all."""
        self._line.call(CACHE, "clear", (namespaces,), {})

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """`clear`, for coroutines."""
        await self._line.call_soon(CACHE, "aclear", (namespaces,), {})


def _named(writes: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
    """What was written, each under its name: so it is named where it cannot be passed on."""
    return [{channel: value} for channel, value in writes]


def slim(config: RunnableConfig | None) -> RunnableConfig | None:
    """Of a config what a checkpointer reads: which thread and checkpoint, and what is kept with it as metadata. The
    rest is LangGraph's own, or objects of this process."""
    if config is None:
        return None
    kept: RunnableConfig = {"configurable": _plain(config.get("configurable", {}))}
    if metadata := config.get("metadata"):
        kept["metadata"] = _plain(metadata)
    return kept


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not name.startswith("__") and _crosses(value)}


def _crosses(value: object) -> bool:
    if isinstance(value, str | int | float | None):
        return True
    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001 - whatever an object's own code raises, it cannot be passed on
        return False
    return True
