"""What the run of a graph has of its program: the checkpointer, the store, the cache, handlers of callbacks. They are
found in the program, where they stay, and in the process of the run there is a stand-in for each.

They come with the graph; from the call; or, where the call is made inside another runnable or graph, from around it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from flyball.integrations.langgraph import handlers as callbacks
from flyball.integrations.langgraph import saver as savers
from flyball.integrations.langgraph.saver import Kept, Line, RemoteCache, RemoteSaver, RemoteStore, Service
from flyball.integrations.missing import missing

try:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.runnables import RunnableConfig
    from langgraph.cache.base import BaseCache
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore
except ImportError:
    raise missing("LangGraph", "langgraph") from None

CONF: Final = "configurable"
CHECKPOINTER: Final = "__pregel_checkpointer"
CACHE: Final = "__pregel_cache"
RUNTIME: Final = "__pregel_runtime"
"""Where a graph finds what another, of which it is a part, lends it."""

Config = RunnableConfig | None


@dataclass(frozen=True, slots=True)
class Belongings:
    """What there is of it."""

    saver: BaseCheckpointSaver[Any] | None
    store: BaseStore | None
    cache: BaseCache[Any] | None
    handlers: Sequence[BaseCallbackHandler]

    # In the program.

    @classmethod
    def found(cls, graph: Any, configs: Sequence[Config]) -> "Belongings":
        """What that graph will use with these configs."""
        lent = [config.get(CONF, {}) for config in configs if config is not None]
        runtimes = [conf[RUNTIME] for conf in lent if RUNTIME in conf]
        saver = next((conf[CHECKPOINTER] for conf in lent if CHECKPOINTER in conf), graph.checkpointer)
        heard = [each for config in configs if config for each in callbacks.all_of(config.get("callbacks"))]
        return cls(
            saver if isinstance(saver, BaseCheckpointSaver) else None,
            next((runtime.store for runtime in runtimes), graph.store),
            next((conf[CACHE] for conf in lent if CACHE in conf), graph.cache),
            tuple({id(handler): handler for handler in heard}.values()),
        )

    def services(self, loop: asyncio.AbstractEventLoop | None, kept: Kept) -> dict[str, Service]:
        """What the program does for the process. `kept` is told of each checkpoint that was kept what it came of."""
        served = savers.services(self.saver, self.store, self.cache, loop=loop, kept=kept)
        if self.handlers:
            served[callbacks.HANDLERS] = callbacks.service(self.handlers, loop=loop)
        return served

    def check_thread(self, config: Config) -> None:
        """A checkpointer that is bound to the loop of this very thread cannot be used while that is blocked: it says so
        itself, if it is asked here."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        if self.saver is not None and config is not None:
            self.saver.get_tuple(config)

    # In the process.

    def stand_ins(self, line: Line, *, waits: bool) -> "Belongings":
        """The stand-ins. Handlers have theirs in the configs. `waits`: each checkpoint is waited for."""
        return Belongings(
            RemoteSaver(line, self.saver, waits=waits) if self.saver is not None else None,
            RemoteStore(line, self.store) if self.store is not None else None,
            RemoteCache(line, self.cache) if self.cache is not None else None,
            (),
        )

    def replaced(self, line: Line, config: Config, by: "Belongings") -> Config:
        """That config with the stand-ins in it."""
        if config is None:
            return None
        conf = dict(config.get(CONF, {}))
        if CHECKPOINTER in conf:
            conf[CHECKPOINTER] = by.saver
        if CACHE in conf:
            conf[CACHE] = by.cache
        if RUNTIME in conf:
            conf[RUNTIME] = conf[RUNTIME].override(store=by.store)
        replaced = RunnableConfig(**config)
        replaced[CONF] = conf
        replaced["callbacks"] = callbacks.passed_on(line, config.get("callbacks"), self.handlers)
        return replaced
