"""A board of personas deliberates a question, under five layers that end it: steps, preflight, rounds, time, money.

    python examples/deliberation --offline "Should we move to the cloud?"
    python examples/deliberation --model gpt-4o-mini "Should we …?"

The second asks OpenAI, or whatever OPENAI_BASE_URL names, with the key in OPENAI_API_KEY. With --offline a scripted
model answers, on this machine: try --never-agree, --expensive --tier free, and --hang with
DELIBERATION_TIMEOUT_SECONDS=2. MAX_COST_PER_SESSION is the budget of a session without a tier. A session with a name of
its own (--session) goes on where it was left.

The exit code is 0 if there is a recommendation (also a partial one), 3 if time ran out, 1 for any other end, and 2 for
wrong arguments.
"""

import argparse
import json
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn
from urllib.parse import urlsplit

import board
import scripted
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from model import Model

import flyball
from flyball.app import state_dir
from flyball.config.settings import ModelPrice
from flyball.config.settings import Prices as PriceSettings
from flyball.integrations.deliberation import complexity_of, rounds_for
from flyball.integrations.langgraph import GuardedGraph, Outcome, TimedOut, guard, spent
from flyball.policies.rounds import ROUNDS_CAP, ROUNDS_LEAST

OPENAI = "https://api.openai.com/v1"
SCRIPTED = "scripted"
CHEAP = ModelPrice(input=Decimal("0.50"), output=Decimal("1.50"))
"""Dollars for a million tokens."""
DEAR = ModelPrice(input=Decimal("1"), output=Decimal("100"))
QUESTION = "Should we move our service to another provider?"
QUESTION_MAX = 2_000
"""Characters of a question. A longer one is a report: say what is to be decided."""
STEPS = 55
BESIDE_ROUNDS = 10
"""Steps before and after the rounds, and some to spare."""
ENDS = {"completed": 0, "budget_exceeded": 0, "timed_out": 3}


def main() -> int:
    """The exit code."""
    options = _options()
    rounds = rounds_for(complexity_of(options.question or QUESTION)) if options.rounds is None else options.rounds
    with ExitStack() as stack:
        guard_ = stack.enter_context(flyball.open("deliberation"))
        model = stack.enter_context(_model(options, guard_))
        graph = guard(
            board.build(model, spent, rounds),
            guard=guard_,
            name="deliberation",
            checkpointer=stack.enter_context(_checkpointer(options)),
            rounds=rounds,
            steps=max(STEPS, rounds * board.NODES_PER_ROUND + BESIDE_ROUNDS),
            costs=board.costs(model),
            kept_back=model.worst_case,  # for the synthesis
            wrap_up={"": "vote", "cost_budget_exceeded": "synthesise"},
            tier=options.tier,
            user=options.user,
            isolation="inline" if options.inline else "process",
        )
        return _deliberate(graph, options)


def _deliberate(graph: GuardedGraph, options: argparse.Namespace) -> int:
    say = _Teller(sys.stderr if options.json else sys.stdout)
    config: RunnableConfig = {"configurable": {"thread_id": options.session}}
    left = graph.get_state(config)
    say.round, say.spent = left.values.get("round", 0) + 1, left.values.get("cost", 0.0)
    about = left.values.get("question")
    if about and options.question not in (None, about):
        raise flyball.FlyballError(
            f"session {options.session} is about another question: {about}",
            remedy="Leave the question out to go on with it; or give another --session.",
        )
    begun = bool(left.tasks)  # and not `next`: that is empty, too, while what a node wrote is not yet in a checkpoint
    if left.values.get("recommendation") and not begun:
        say.line(f"session {options.session} is over already")
        over = Outcome(left.values)
        over.spent = Decimal(f"{say.spent:.6f}")
        _show(options, over, "completed")
        return 0
    if begun:
        say.line(f"session {options.session} goes on at {left.tasks[0].name}, in round {say.round}")
    given = None if begun else {"question": options.question or QUESTION}
    try:
        for update in graph.stream(given, config, stream_mode="updates"):
            say.update(update)
    except TimedOut as late:
        say.line(f"\n{late}")
    outcome = graph.last
    if outcome is None:
        raise flyball.FlyballError("nothing is known of how it ended")
    outcome.update(graph.get_state(config).values)  # what was kept, also if it was ended in the middle of a node
    _show(options, outcome, outcome.status)
    return ENDS.get(outcome.status, 1) if outcome.status == "timed_out" or outcome.get("recommendation") else 1


class _Teller:
    """What happens, as it happens."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self.spent = 0.0
        self.round = 1

    def line(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def update(self, update: dict[str, Any]) -> None:
        for node, changed in update.items():
            if not isinstance(changed, dict):
                continue
            self.spent += changed.get("cost", 0.0)
            told = self._told(node, changed)
            if told:
                self.line(f"{self.spent:9.6f} USD  {told}")

    def _told(self, node: str, changed: dict[str, Any]) -> str:
        match node:
            case "decompose":
                return f"parts: {' '.join(changed['parts'])} Answers: {', '.join(changed['options'])}"
            case "select":
                return f"board: {', '.join(changed['board'])}"
            case "facilitator":
                return f"round {self.round}: {changed['brief']}"
            case "persona":
                said = changed["contributions"][0]
                self.round = said["round"]
                return f"round {said['round']}: {said['persona']} ({said['position'] or '?'}): {said['text']}"
            case "check_convergence":
                self.round = changed["round"] + 1
                return (
                    f"round {changed['round']} is over: convergence {changed['convergence']:.2f}, "
                    f"agreement {changed['agreement']:.0%}, novelty {changed['novelty']:.2f}"
                )
            case "vote":
                votes = [f"{name} {vote or '?'}" for name, vote in changed["votes"].items()]
                return f"votes: {', '.join(votes)}"
        return ""


def _show(options: argparse.Namespace, outcome: Outcome, status: str) -> None:
    reason = outcome.stop_reason or outcome.get("stop_reason")
    partial = status != "completed"
    result = {
        "session": options.session,
        "status": status,
        "stop_reason": reason,
        "layer": outcome.layer,
        "reasons": [found.text for found in outcome.reasons],
        "rounds": outcome.get("round", 0),
        "spent_usd": str(outcome.spent),
        "partial": partial,
        "recommendation": outcome.get("recommendation"),
    }
    if options.json:
        print(json.dumps(result, ensure_ascii=False))
        return
    print()
    if result["recommendation"]:
        print(f"{'partial recommendation' if partial else 'recommendation'}: {result['recommendation']}\n")
    print(f"session      {options.session}")
    print(f"cost         {outcome.spent} USD")
    print(f"rounds       {result['rounds']}")
    print(f"stop_reason  {reason or '(it came to its end)'}{''.join(f'; {text}' for text in result['reasons'])}")
    print(f"layer        {outcome.layer or 'none'}")
    print(f"status       {status}")


@contextmanager
def _model(options: argparse.Namespace, guard_: flyball.Guard) -> Iterator[Model]:
    """The model of an endpoint, or the scripted one while it is served."""
    if options.offline:
        script = scripted.Script(never_agree=options.never_agree, thinks=options.expensive, hangs=options.hang)
        price = DEAR if options.expensive else CHEAP
        with scripted.serve(script) as url:
            prices = flyball.Prices(PriceSettings(models={SCRIPTED: price}))
            yield Model(url, "none", SCRIPTED, prices, proxies=False)
        return
    url = os.environ.get("OPENAI_BASE_URL") or OPENAI
    if urlsplit(url).scheme not in ("http", "https"):
        raise flyball.FlyballError(f"OPENAI_BASE_URL is {url!r}", remedy="It begins with http:// or https://.")
    key = os.environ.get("OPENAI_API_KEY", "")
    if not key and url == OPENAI:
        raise flyball.FlyballError("OPENAI_API_KEY is not set", remedy="Set it; or try --offline.")
    known = guard_.settings.prices
    if options.price:
        sent, came = options.price
        known = known.model_copy(
            update={"models": {**known.models, options.model: ModelPrice(input=sent, output=came)}}
        )
    yield Model(url, key, options.model, flyball.Prices(known))


@contextmanager
def _checkpointer(options: argparse.Namespace) -> Iterator[Any]:
    """Of a session with a name of its own, a file in the state folder; else the memory."""
    if not options.named:
        yield InMemorySaver()
        return
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 - a package of its own
    except ImportError:
        raise flyball.FlyballError(
            "a session that can be taken up again is kept by langgraph-checkpoint-sqlite, which is not installed",
            remedy="Install it: pip install langgraph-checkpoint-sqlite; or leave --session out.",
        ) from None
    folder = state_dir(os.environ)
    folder.mkdir(parents=True, exist_ok=True)
    with SqliteSaver.from_conn_string(str(folder / "deliberation.sqlite")) as saver:
        yield saver


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="deliberation", description="A board of personas deliberates a question.")
    parser.add_argument("question", nargs="?", help=f"for example (if none is given): {QUESTION}")
    parser.add_argument("--model", default="gpt-4o-mini", help="of the endpoint (OPENAI_BASE_URL, OPENAI_API_KEY)")
    parser.add_argument(
        "--price", type=_price, help="of the model if nobody knows it: dollars per million tokens: 0.15,0.60"
    )
    parser.add_argument("--offline", action="store_true", help="a scripted model on this machine")
    parser.add_argument("--never-agree", action="store_true", help="offline: its voices never agree")
    parser.add_argument("--expensive", action="store_true", help="offline: it costs some cents a call")
    parser.add_argument("--hang", action="store_true", help="offline: from the second round on it does not answer")
    parser.add_argument("--tier", choices=("free", "pro", "enterprise"), help="0.50, 2.00 or 10.00 dollars")
    parser.add_argument("--rounds", type=_rounds, default=7, help="5 to 15 (7), or auto: by the question")
    parser.add_argument("--user", default="", help="whose session it is")
    parser.add_argument("--session", help="its name: then it can be taken up again")
    parser.add_argument("--inline", action="store_true", help="in this process: then a call that hangs cannot be ended")
    parser.add_argument("--json", action="store_true", help="the result as JSON; what happens goes to the error output")
    options = parser.parse_args()
    if options.question is not None and not 0 < len(options.question.strip()) <= QUESTION_MAX:
        parser.error(f"a question has 1 to {QUESTION_MAX} characters")
    if (options.never_agree or options.expensive or options.hang) and not options.offline:
        parser.error("--never-agree, --expensive and --hang are for --offline")
    options.named = options.session is not None
    options.session = options.session or f"board-{uuid.uuid4().hex[:8]}"
    return options


def _rounds(given: str) -> int | None:
    if given == "auto":
        return None
    if not given.isdecimal() or not ROUNDS_LEAST <= int(given) <= ROUNDS_CAP:
        raise argparse.ArgumentTypeError(f"{ROUNDS_LEAST} to {ROUNDS_CAP}, or auto")
    return int(given)


def _price(given: str) -> tuple[Decimal, Decimal]:
    try:
        sent, came = map(Decimal, given.split(","))
    except (ValueError, InvalidOperation):
        raise argparse.ArgumentTypeError("two numbers: 0.15,0.60") from None
    return sent, came


def _fail(error: flyball.FlyballError) -> NoReturn:
    print(f"deliberation: {error}", file=sys.stderr)
    if error.remedy:
        print(error.remedy, file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except flyball.FlyballError as error:
        _fail(error)
    except KeyboardInterrupt:
        sys.exit(130)
