"""A board of personas as a graph:

    decompose -> select -> facilitator -> cost_guard -> persona (all at once) -> check_convergence -> facilitator, …
                                              |                                        |
                                              v                                        v
                                          synthesise  <-------------------------------  vote

It knows nothing of guards but two helper nodes, and `spent`, which it is given.
"""

import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from model import Model, read_json

from flyball.integrations.deliberation import check_convergence, cost_guard

PERSONAS = {
    "Treasurer": "you mind money and time",
    "Customer": "you speak for those who use and pay for it",
    "Sceptic": "you look for what will go wrong",
    "Builder": "you have to make it, with the people there are",
    "Counsel": "you mind rules, contracts and what cannot be undone",
    "Strategist": "you ask where this leads in three years",
    "Newcomer": "you ask what everybody else takes for granted",
}
VOICES = 5
"""Of them sit on a board: with five, four that agree are the 80 % that end it."""
TEXT_MAX = 900
"""Characters of a statement that others read."""
OPTION_MAX = 200
"""Characters of an answer to choose."""
NODES_PER_ROUND = 4
LETTERS = "ABCD"


class Talk(TypedDict, total=False):
    """The state."""

    question: str
    parts: list[str]
    options: list[str]
    board: list[str]
    brief: str
    round: int
    contributions: Annotated[list[dict[str, Any]], operator.add]
    convergence: float
    agreement: float
    novelty: float
    votes: dict[str, str | None]
    recommendation: str
    cost: Annotated[float, operator.add]
    should_stop: bool
    stop_reason: str | None


class Seat(TypedDict):
    """What one persona is given."""

    persona: str
    number: int
    round: int
    question: str
    brief: str
    options: list[str]
    heard: list[dict[str, Any]]


@dataclass(frozen=True)
class Board:
    """The nodes. `spent` tells the guard what a call really cost."""

    model: Model
    spent: Callable[[Decimal], object]

    def decompose(self, state: Talk) -> Talk:
        """The question in parts, and the answers that there are to choose from."""
        system = (
            "Task: decompose. Break the question of a board into two to four parts, and name two to four answers to it "
            'that exclude each other. Answer with JSON alone: {"parts": ["…"], "options": ["…"]}'
        )
        text, cost = self._ask(system, state["question"])
        found = read_json(text)
        options = [str(option)[:OPTION_MAX] for option in found.get("options") or ()][: len(LETTERS)]
        parts = [str(part) for part in found.get("parts") or ()]
        return {"parts": parts[:4], "options": options if len(options) > 1 else ["yes", "no"], "cost": cost}

    def select(self, state: Talk) -> Talk:
        """Who sits on the board."""
        people = "\n".join(f"- {name}: {view}" for name, view in PERSONAS.items())
        system = f'Task: select. Choose the {VOICES} who help most. Answer with JSON alone: {{"board": ["name"]}}'
        text, cost = self._ask(system, f"{state['question']}\n\n{people}")
        chosen = [name for name in read_json(text).get("board") or () if name in PERSONAS]
        return {"board": list(dict.fromkeys([*chosen, *PERSONAS]))[:VOICES], "cost": cost}

    def facilitator(self, state: Talk) -> Talk:
        """What this round is about."""
        system = "Task: facilitate. Say in one sentence what the board should settle in this round. No preamble."
        text, cost = self._ask(system, f"Round {_next(state)}. {_so_far(state)}")
        return {"brief": text[:TEXT_MAX], "cost": cost}

    def seats(self, state: Talk) -> list[Send] | str:
        """All of the board at once; or the end, if that cannot be paid."""
        if state.get("should_stop"):
            return "synthesise"
        given = {
            "round": _next(state),
            "question": state["question"],
            "brief": state["brief"],
            "options": state["options"],
        }
        heard = _last_round(state)
        return [
            Send("persona", Seat(persona=name, number=number, heard=heard, **given))  # type: ignore[typeddict-item]
            for number, name in enumerate(state["board"])
        ]

    def persona(self, state: Seat) -> Talk:
        """One voice."""
        system = (
            f"Task: speak. You are the {state['persona']} on a board (seat {state['number']}): "
            f"{PERSONAS[state['persona']]}. Take one of these positions:\n{_lettered(state['options'])}\n"
            "Say why in at most 80 words. Change your mind if others have the better reasons. "
            'Answer with JSON alone: {"position": "letter", "text": "…"}'
        )
        about = f"Round {state['round']}. {state['question']}\n{state['brief']}"
        text, cost = self._ask(system, f"{about}\n\nThe round before:\n{_quoted(state['heard'])}")
        found = read_json(text)
        position = str(found.get("position", "")).strip()[:1].upper()
        said = {
            "persona": state["persona"],
            "round": state["round"],
            "text": str(found.get("text") or text)[:TEXT_MAX],
            "position": position if position in list(LETTERS[: len(state["options"])]) else None,
        }
        return {"contributions": [said], "cost": cost}

    def vote(self, state: Talk) -> Talk:
        """What each said last is its vote. It costs nothing."""
        return {"votes": {said["persona"]: said["position"] for said in state.get("contributions", ())}}

    def synthesise(self, state: Talk) -> Talk:
        """The recommendation, from what there is."""
        votes = Counter(vote for vote in (state.get("votes") or {}).values() if vote)
        counted = ", ".join(f"{letter}: {number}" for letter, number in votes.most_common()) or "no vote was taken"
        system = (
            "Task: synthesise. Write the board's recommendation in at most 120 words: what to do, why, what was said "
            "against it. If the board was cut short, say what is still open."
        )
        why = state.get("stop_reason") or "it came to its end"
        text, cost = self._ask(system, f"{_so_far(state)}\n\nVotes: {counted}. Why it ended: {why}.")
        return {"recommendation": text, "cost": cost}

    def _ask(self, system: str, user: str) -> tuple[str, float]:
        answer = self.model.ask(system, user)
        self.spent(answer.cost)
        return answer.text, float(answer.cost)


def build(model: Model, spent: Callable[[Decimal], object], rounds: int) -> StateGraph[Talk]:
    """The graph."""
    board = Board(model, spent)
    graph = StateGraph(Talk)
    graph.add_node("decompose", board.decompose)
    graph.add_node("select", board.select)
    graph.add_node("facilitator", board.facilitator)
    graph.add_node("cost_guard", cost_guard({"persona": model.worst_case * VOICES}))
    graph.add_node("persona", board.persona)
    graph.add_node("check_convergence", check_convergence(max_rounds=rounds))
    graph.add_node("vote", board.vote)
    graph.add_node("synthesise", board.synthesise)
    graph.add_edge(START, "decompose")
    graph.add_edge("decompose", "select")
    graph.add_edge("select", "facilitator")
    graph.add_edge("facilitator", "cost_guard")
    graph.add_conditional_edges("cost_guard", board.seats, ["persona", "synthesise"])
    graph.add_edge("persona", "check_convergence")
    graph.add_conditional_edges(
        "check_convergence",
        lambda state: "vote" if state["should_stop"] else "facilitator",
        ["vote", "facilitator"],
    )
    graph.add_edge("vote", "synthesise")
    graph.add_edge("synthesise", END)
    return graph


def costs(model: Model) -> dict[str, Decimal]:
    """The most that each node can cost."""
    return dict.fromkeys(("decompose", "select", "facilitator", "persona", "synthesise"), model.worst_case)


def _next(state: Talk) -> int:
    return state.get("round", 0) + 1


def _last_round(state: Talk) -> list[dict[str, Any]]:
    return [said for said in state.get("contributions", ()) if said["round"] == state.get("round", 0)]


def _so_far(state: Talk) -> str:
    parts = "\n".join(f"* {part}" for part in state.get("parts", ()))
    return (
        f"{state['question']}\n\nParts:\n{parts}\n\nAnswers:\n{_lettered(state.get('options', []))}\n\n"
        f"The last round:\n{_quoted(_last_round(state))}"
    )


def _lettered(options: list[str]) -> str:
    return "\n".join(f"{letter}) {option}" for letter, option in zip(LETTERS, options, strict=False))


def _quoted(said: list[dict[str, Any]]) -> str:
    return "\n".join(f"- {one['persona']} ({one['position'] or '?'}): {one['text']}" for one in said) or "(nothing yet)"
