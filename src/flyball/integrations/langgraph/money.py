"""Layer 5: the worst case of a node is reserved before it runs, and what it really cost is settled when it ends.

A node with an entry in `costs` has an account: what calls of models inside it cost is put there, and so is what it says
itself by `spent`. Where nothing was put there, it cost its worst case. In a node without an entry each call of a model
reserves its own worst case.
"""

import threading
from contextvars import ContextVar
from decimal import Decimal
from typing import Final

from flyball.core.amounts import MILLION, MONEY
from flyball.core.event import Amounts, Work
from flyball.errors import FlyballError
from flyball.integrations.feed import MODEL, Feed, Usage
from flyball.integrations.langchain import Callbacks
from flyball.integrations.missing import missing
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.step import StepBlock
from flyball.runtimes.amounts import Given, whole
from flyball.runtimes.current import running
from flyball.runtimes.prices import Prices

try:
    from langchain_core.tracers.context import register_configure_hook
except ImportError:
    raise missing("LangGraph", "langgraph") from None

CALLBACKS: Final[ContextVar["GraphCallbacks | None"]] = ContextVar("flyball_callbacks", default=None)
"""Hears of the calls of tools and models in the node at hand. LangChain asks for it where such a call begins, so that
it costs the graph's own bookkeeping nothing."""

ACCOUNT: Final[ContextVar["Account | None"]] = ContextVar("flyball_account", default=None)
"""Of the node at hand, if its worst case is reserved."""


class Account:
    """What a node has spent of its worst case. Its calls may be made in several threads, and one of them may say what
    it spent when the node has ended: then it is the run's."""

    def __init__(self, run: Context) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._total: dict[str, int] = {}
        self._told = False
        self._unknown = False
        self._settled = False

    def add(self, amounts: Amounts) -> None:
        """So much was spent."""
        with self._lock:
            self._told = True
            for meter, amount in amounts.items():
                self._total[meter] = self._total.get(meter, 0) + amount
            late = self._settled
        if late:
            self._run.happened(Work(used=amounts))

    def lose_count(self) -> None:
        """Something was spent, and nobody says how much."""
        self._unknown = True

    def settle(self, step: StepBlock, reserved: Amounts, *, failed: bool) -> None:
        """Say what the node cost. If that is not known, its worst case; if it is known to be more, that."""
        with self._lock:
            self._settled = True
            exact = self._told and not self._unknown and not failed
            meters = self._total.keys() | reserved.keys()
            used = {meter: max(self._total.get(meter, 0), 0 if exact else reserved.get(meter, 0)) for meter in meters}
        step.spent({meter: Decimal(amount) / MILLION if meter == MONEY else amount for meter, amount in used.items()})


class NodeFeed(Feed):
    """Makes the steps of calls. In a node that has an account they reserve nothing: the node has done so."""

    def model(self) -> StepBlock:
        """A call of a model."""
        return super().model() if ACCOUNT.get() is None else self.context.step(MODEL)

    def answered(self, step: StepBlock, text: str, usage: Usage | None) -> None:
        """What a call of a model came to."""
        account = ACCOUNT.get()
        if account is None:
            super().answered(step, text, usage)
            return
        if text.strip():
            step.said(text)
        used = whole(self.used(usage)) if usage is not None else {}
        if MONEY in used:
            account.add(used)
        else:
            account.lose_count()


class GraphCallbacks(Callbacks):
    """The calls inside a graph's nodes as parts of its steps."""

    # Nodes ask leave themselves.
    ignore_chain = True
    ignore_retriever = True
    ignore_custom_event = True

    def __init__(self, context: Context, *, worst_case: Given | None, prices: Prices | None) -> None:
        super().__init__(context, worst_case=worst_case, prices=prices)
        self.depth = depth() + 1
        """How many guarded graphs are in each other, down to this one."""
        self._feed = NodeFeed(context, worst_case=worst_case, prices=prices)


register_configure_hook(CALLBACKS, inheritable=True)


def depth() -> int:
    """In how many guarded graphs this code is."""
    around = CALLBACKS.get()
    return around.depth if around is not None else 0


def spent(amount: Given) -> None:
    """Say inside a node that this was spent: `spent("0.013")`. Calls of models through LangChain say so themselves."""
    account = ACCOUNT.get()
    if account is not None:
        account.add(whole(amount, "what was spent"))
        return
    run = running()
    if not isinstance(run, Context):
        raise FlyballError("spent() is called outside of any run", remedy="Call it inside a node of a guarded graph.")
    run.spend(amount)
