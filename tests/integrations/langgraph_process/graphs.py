"""Graphs that go wrong, each in its own way, and a healthy one."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

from langgraph.graph import END, START, StateGraph

FOR_EVER: Final = 10**6
"""Seconds that no test lives to see."""

Node = Callable[..., Any]


class Notes(TypedDict, total=False):
    """What is handed from node to node."""

    notes: Annotated[list[str], add]
    limit: int
    round: int


def line_of(*nodes: tuple[str, Node]) -> StateGraph[Any, Any, Any, Any]:
    """One node after the other, then the end."""
    graph = StateGraph(Notes)
    for name, node in nodes:
        graph.add_node(name, node)
    names = [START, *(name for name, _ in nodes), END]
    for before, after in pairwise(names):
        graph.add_edge(before, after)
    return graph


def note(text: str) -> Node:
    """A node that notes something."""

    def node(state: Notes) -> Notes:
        return {"notes": [text]}

    return node


def counting() -> StateGraph[Any, Any, Any, Any]:
    """Two nodes in a loop, until there are as many notes as wanted: a healthy graph."""
    graph = StateGraph(Notes)
    graph.add_node("think", note("thought"))
    graph.add_node("write", note("wrote"))
    graph.add_edge(START, "think")
    graph.add_edge("think", "write")

    def enough(state: Notes) -> str:
        return END if len(state["notes"]) >= state.get("limit", 4) else "think"

    graph.add_conditional_edges("write", enough, ["think", END])
    return graph


# Nodes that do not end.


def sleeps(state: Notes) -> Notes:
    time.sleep(FOR_EVER)
    return {}


def spins(state: Notes) -> Notes:
    while True:
        pass


def matches(state: Notes) -> Notes:
    """Never lets go of the interpreter: no other thread of the process runs any more."""
    re.match(r"(a+)+$", "a" * 60 + "b")
    return {}


def ignores_signals(state: Notes) -> Notes:
    signal.signal(signal.SIGTERM, signal.SIG_IGN) if threading.current_thread() is threading.main_thread() else None
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    time.sleep(FOR_EVER)
    return {}


def spawns_threads(state: Notes) -> Notes:
    """Threads that go on, and are waited for."""
    threads = [threading.Thread(target=time.sleep, args=(FOR_EVER,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {}


async def sleeps_soon(state: Notes) -> Notes:
    await asyncio.sleep(FOR_EVER)
    return {}


async def swallows_cancellation(state: Notes) -> Notes:
    while True:
        try:
            await asyncio.sleep(FOR_EVER)
        except asyncio.CancelledError:
            continue


async def blocks_the_loop(state: Notes) -> Notes:
    time.sleep(FOR_EVER)
    return {}


def starts_processes(folder: Path) -> Node:
    """A node that starts a process in its group and one in a session of its own, and waits for them."""
    program = (
        f"import pathlib, os, time; pathlib.Path({str(folder)!r}, str(os.getpid())).touch(); time.sleep({FOR_EVER})"
    )

    def node(state: Notes) -> Notes:
        processes = [
            subprocess.Popen([sys.executable, "-c", program], start_new_session=apart) for apart in (False, True)
        ]
        for process in processes:
            process.wait()
        return {}

    return node


SYNC_HANGS: Final = (sleeps, spins, matches, ignores_signals, spawns_threads)
ASYNC_HANGS: Final = (sleeps_soon, swallows_cancellation, blocks_the_loop)


# Nodes that end their process.


def exits(state: Notes) -> Notes:
    os._exit(3)


def is_killed(state: Notes) -> Notes:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def crashes(state: Notes) -> Notes:
    """As a fault in a library written in C does."""
    signal.signal(signal.SIGSEGV, signal.SIG_DFL) if threading.current_thread() is threading.main_thread() else None
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(FOR_EVER)
    return {}
