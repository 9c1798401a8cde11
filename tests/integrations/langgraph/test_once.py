"""A call without a thread is one piece of work that nobody can resume: it is shown while it is young, and not kept for
ever."""

from pathlib import Path
from typing import TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

import flyball
from flyball.config import load
from flyball.integrations.langgraph import guard
from flyball.runtimes.session import retention

BROKEN = (1, 4)
"""Calls that fail: too few to open a circuit."""


class Counted(TypedDict):
    """What the node passes on."""

    count: int


def test_calls_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a graph is called without a thread, however each call ends: so many are kept, and no more."""
    monkeypatch.setattr(retention, "LOOKS_EVERY", 2)

    def node(state: Counted) -> Counted:
        if state["count"] in BROKEN:
            raise OSError("broken")
        return {"count": 0}

    builder = StateGraph(Counted)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    settings = load(env={}).model_validate({"journal": {"max_sessions": 3}})
    with flyball.open("program", settings=settings, state_dir=tmp_path) as opened:
        graph = guard(builder, guard=opened, isolation="inline")
        for number in range(12):
            try:
                graph.invoke({"count": number})
            except OSError:
                assert number in BROKEN
        kept = {key.subject for key in opened.governor.store.states() if key.by == "unit"} - {"program"}
        assert 3 <= len(kept) <= 5
