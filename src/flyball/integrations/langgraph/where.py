"""Where the nodes of a graph's run are: for the post-mortem of one that did not end when it was told to.

A run is found in the stacks of threads by its nodes. Tasks know whose they are from Python 3.12 on; before it, all are
shown that are in somebody's own code.
"""

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from typing import Any, Final

from flyball.core.event import DETAIL_MAX
from flyball.integrations.langgraph.nodes import GatedNode
from flyball.integrations.langgraph.phases import GraphRun
from flyball.runtimes.agent.inline import awaits
from flyball.runtimes.current import CURRENT

FRAMES_MAX: Final = 20
"""Frames of one node that are shown, the innermost: they say what it waits for."""

NOT_OWN: Final = ("asyncio", "flyball", "langchain_core", "langgraph")
"""Who does not tell where a node is: it is called by them, and calls them."""

_NODE: Final[CodeType] = GatedNode.invoke.__code__


def where(run: GraphRun, loop: asyncio.AbstractEventLoop | None = None, thread: int = 0) -> str:
    """The stacks of the run's nodes that are at work now: in any thread, and in that loop, which is run by that
    thread."""
    found = [*_in_threads(run)]
    if loop is not None:
        found += _in_tasks(run, loop)
        task = asyncio.current_task(loop)
        if task is not None and _is_of(task, run):
            found.append(f"the loop is blocked:\n{_shown([*_outwards(sys._current_frames().get(thread))][::-1])}")
    return "\n".join(found)[-DETAIL_MAX:]


def _in_threads(run: GraphRun) -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, innermost in sys._current_frames().items():
        stack = []
        for frame in _outwards(innermost):
            stack.append(frame)
            if frame.f_code is _NODE and frame.f_locals.get("host") is run:
                yield f"node {frame.f_locals['self'].name!r}, in thread {names.get(ident, '?')}:\n{_shown(stack[::-1])}"
                break


def _in_tasks(run: GraphRun, loop: asyncio.AbstractEventLoop) -> Iterator[str]:
    for task in asyncio.all_tasks(loop):
        stack = list(awaits(task.get_coro()))
        if _is_of(task, run) and any(_is_own(frame) for frame in stack):
            yield f"a coroutine:\n{_shown(stack)}"


def _is_of(task: "asyncio.Task[Any]", run: GraphRun) -> bool:
    get_context = getattr(task, "get_context", None)
    return get_context is None or get_context().get(CURRENT) is run.context


def _is_own(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] not in NOT_OWN


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _shown(stack: Iterable[FrameType]) -> str:
    return "".join(line for frame in list(stack)[-FRAMES_MAX:] for line in traceback.format_stack(frame, limit=1))
