"""Deliberations: several voices talk in rounds until they agree, or until the rounds or the money are used up.

What is measured here (how alike, how new, how agreed) is a reading, and decides nothing: whether to stop is said by the
policies. The nodes are plain functions of a state, so nothing here imports LangGraph.
"""

from flyball.integrations.deliberation.adaptive import Complexity, complexity_of, deadline_for, rounds_for
from flyball.integrations.deliberation.embedding import Embedding
from flyball.integrations.deliberation.nodes import check_convergence, cost_guard
from flyball.integrations.deliberation.similarity import (
    Measure,
    agreement,
    choose_measure,
    convergence,
    novelty,
)
from flyball.integrations.deliberation.words import lexical

__all__ = [
    "Complexity",
    "Embedding",
    "Measure",
    "agreement",
    "check_convergence",
    "choose_measure",
    "complexity_of",
    "convergence",
    "cost_guard",
    "deadline_for",
    "lexical",
    "novelty",
    "rounds_for",
]
