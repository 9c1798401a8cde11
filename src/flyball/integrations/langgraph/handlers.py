"""Callback handlers that a program gave to a graph: they are called in the program, though the graph runs in a process
of its own. What they count, print or send is where it would be without flyball.

Each call is waited for, so they come in order, and one that raises is heard. What is not to be heard is not passed on.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from flyball.integrations.langgraph.saver import Line, Service, run_coroutine
from flyball.integrations.missing import missing

try:
    from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
    from langchain_core.tracers._streaming import _StreamingCallbackHandler
    from langgraph.callbacks import GraphCallbackHandler
except ImportError:
    raise missing("LangGraph", "langgraph") from None

HANDLERS: Final = "handlers"
"""The name of the service."""

Callbacks = list[BaseCallbackHandler] | BaseCallbackManager | None
"""As a config has them."""

TAP: Final = "tap"
"""What a handler is told of each chunk of a stream that it wants to see; without a chunk: that was the last."""

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
    taps: dict[int, _Tap] = {}

    def serve(place: int, event: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        if event == TAP:
            number, run_id, *chunks = args
            tap = taps.pop(number, None) or _Tap(handlers[place], run_id)
            for chunk in chunks:
                tap.show(chunk)
                taps[number] = tap
            return
        answer = getattr(handlers[place], event)(*args, **named)
        if asyncio.iscoroutine(answer):
            run_coroutine(answer, loop)

    return serve


class _Tap:
    """A stream in the process, as a handler sees it in the program: chunk by chunk, as they come."""

    def __init__(self, handler: Any, run_id: UUID) -> None:
        self._chunk: Any = None
        self._seen = handler.tap_output_iter(run_id, self._chunks())

    def show(self, chunk: Any) -> None:
        """The next one has come. The handler takes it, and gives it back."""
        self._chunk = chunk
        next(self._seen, None)

    def _chunks(self) -> Iterator[Any]:
        while True:
            yield self._chunk


# In the process.


def passed_on(line: Line, callbacks: Callbacks, handlers: Sequence[BaseCallbackHandler]) -> Callbacks:
    """The same callbacks, but each handler is called in the program."""

    def stand_in(handler: BaseCallbackHandler) -> BaseCallbackHandler:
        kind = RemoteGraphHandler if isinstance(handler, GraphCallbackHandler) else RemoteHandler
        if isinstance(handler, _StreamingCallbackHandler):
            kind = RemoteStreamHandler
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


class RemoteStreamHandler(RemoteHandler, _StreamingCallbackHandler[Any]):
    """One that sees what models and nodes stream. By its kind LangChain knows that they are to stream at all."""

    def __init__(self, line: Line, place: int, handler: BaseCallbackHandler) -> None:
        super().__init__(line, place, handler)
        self._line, self._place = line, place

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        """The same stream, which the handler sees."""
        number = next(_numbers)
        for chunk in output:
            self._line.call(HANDLERS, self._place, TAP, (number, run_id, chunk), {})
            yield chunk
        self._line.call(HANDLERS, self._place, TAP, (number, run_id), {})

    async def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The same for coroutines."""
        number = next(_numbers)
        async for chunk in output:
            await self._line.call_soon(HANDLERS, self._place, TAP, (number, run_id, chunk), {})
            yield chunk
        await self._line.call_soon(HANDLERS, self._place, TAP, (number, run_id), {})


_numbers = itertools.count()


def _hears(handler: BaseCallbackHandler, event: str) -> bool:
    """Whether it does anything at that event."""
    base = GraphCallbackHandler if isinstance(handler, GraphCallbackHandler) else BaseCallbackHandler
    inherited = getattr(base, event, None)
    return inherited is not None and getattr(getattr(handler, event), "__func__", None) is not inherited


def _pass_on(line: Line, place: int, event: str, *args: Any, **named: Any) -> None:
    line.call(HANDLERS, place, event, args, named)
