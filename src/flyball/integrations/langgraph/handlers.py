"""Callback handlers that a program gave to a graph: they are called in the program, though the graph runs in a process
of its own. What they count, print or send is where it would be without flyball.

Each call is waited for, so they come in order, and one that raises is heard. What is not to be heard is not passed on.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from flyball.integrations.langgraph.saver import Line, Service, run_coroutine
from flyball.integrations.missing import missing

try:
    from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
    from langgraph.callbacks import GraphCallbackHandler
except ImportError:
    raise missing("LangGraph", "langgraph") from None

HANDLERS: Final = "handlers"
"""The name of the service."""

Callbacks = list[BaseCallbackHandler] | BaseCallbackManager | None
"""As a config has them."""

_EVENTS: Final = tuple(name for name in dir(GraphCallbackHandler) if name.startswith("on_"))


def all_of(callbacks: Callbacks) -> list[BaseCallbackHandler]:
    """Each handler once. One of LangGraph's own, which brings the tokens of a stream to whoever called this graph from
    a node, is among them."""
    if callbacks is None:
        return []
    if isinstance(callbacks, BaseCallbackManager):
        return list(dict.fromkeys((*callbacks.handlers, *callbacks.inheritable_handlers)))
    return list(callbacks)


# In the program.


def service(handlers: Sequence[BaseCallbackHandler], *, loop: asyncio.AbstractEventLoop | None) -> Service:
    """Calls the handlers."""

    def serve(place: int, event: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        answer = getattr(handlers[place], event)(*args, **named)
        if asyncio.iscoroutine(answer):
            run_coroutine(answer, loop)

    return serve


# In the process.


def passed_on(line: Line, callbacks: Callbacks, handlers: Sequence[BaseCallbackHandler]) -> Callbacks:
    """The same callbacks, but each handler is called in the program."""

    def stand_in(handler: BaseCallbackHandler) -> BaseCallbackHandler:
        kind = RemoteGraphHandler if isinstance(handler, GraphCallbackHandler) else RemoteHandler
        return kind(line, handlers.index(handler), handler)

    if isinstance(callbacks, BaseCallbackManager):
        manager = callbacks.copy()
        manager.handlers = [stand_in(handler) for handler in callbacks.handlers]
        manager.inheritable_handlers = [stand_in(handler) for handler in callbacks.inheritable_handlers]
        return manager
    return None if callbacks is None else [stand_in(handler) for handler in callbacks]


class RemoteHandler(BaseCallbackHandler):
    """A handler that is called in the program."""

    def __init__(self, line: Line, place: int, handler: BaseCallbackHandler) -> None:
        self._copy = handler
        self.raise_error, self.run_inline = handler.raise_error, handler.run_inline
        for event in _EVENTS:
            if _hears(handler, event):
                setattr(self, event, partial(_pass_on, line, place, event))

    @property
    def ignore_llm(self) -> bool:
        """Whether it wants to hear nothing of models; and so on."""
        return self._copy.ignore_llm

    @property
    def ignore_retry(self) -> bool:
        """The same for what is tried again."""
        return self._copy.ignore_retry

    @property
    def ignore_chain(self) -> bool:
        """The same for chains, which graphs and nodes are too."""
        return self._copy.ignore_chain

    @property
    def ignore_agent(self) -> bool:
        """The same for agents and tools."""
        return self._copy.ignore_agent

    @property
    def ignore_retriever(self) -> bool:
        """The same for retrievers."""
        return self._copy.ignore_retriever

    @property
    def ignore_chat_model(self) -> bool:
        """The same for chat models."""
        return self._copy.ignore_chat_model

    @property
    def ignore_custom_event(self) -> bool:
        """The same for events of one's own."""
        return self._copy.ignore_custom_event


class RemoteGraphHandler(RemoteHandler, GraphCallbackHandler):
    """One that hears also of a graph's interrupts."""


def _hears(handler: BaseCallbackHandler, event: str) -> bool:
    """Whether it does anything at that event."""
    base = GraphCallbackHandler if isinstance(handler, GraphCallbackHandler) else BaseCallbackHandler
    inherited = getattr(base, event, None)
    return inherited is not None and getattr(getattr(handler, event), "__func__", None) is not inherited


def _pass_on(line: Line, place: int, event: str, *args: Any, **named: Any) -> None:
    line.call(HANDLERS, place, event, args, named)
