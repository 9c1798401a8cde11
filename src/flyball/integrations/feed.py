"""What all adapters do alike: find the run, make a step of each call of a tool or a model, and say what came of it.

A tool's call is what circles are found by: its name, its arguments in canonical form, and its result. A model's call
counts as a step and costs money; of what the model says, only the text is compared, because what it is asked grows with
each turn and would always look new.

An answer that ends the run is heeded as any step's is: whoever runs it is told, and its next step is refused.
"""

import logging
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from flyball.core.amounts import MONEY
from flyball.core.decision import Verb
from flyball.errors import FlyballError
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.step import StepBlock
from flyball.runtimes.amounts import Amount, Given, whole
from flyball.runtimes.current import CURRENT
from flyball.runtimes.prices import Prices
from flyball.runtimes.prices import cost as found_cost
from flyball.runtimes.refusal import Refused

log = logging.getLogger(__name__)

MODEL: Final = "model"
"""The pattern of a call of a model."""
HANDOFF: Final = "handoff"
"""The pattern of a hand-over from one agent to another."""
TOKENS: Final = "tokens"
"""The meter that counts tokens, input and output together."""

OPEN_MAX: Final = 1_000
"""Steps whose end is waited for. No run makes so many at once: what is older was cancelled, and its end never comes."""
MODELS_MAX: Final = 100
"""Models of which it is remembered that their price was asked for in vain."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a call of a model used: for prices the framework's own report, and the number of tokens."""

    model: str
    report: object
    tokens: int


class Feed:
    """Makes the steps of one run: of the one that it is given, or of the one that it is used in."""

    def __init__(
        self,
        context: Context | None = None,
        *,
        polling: Collection[str] = (),
        worst_case: Given | None = None,
        prices: Prices | None = None,
    ) -> None:
        self._given = context
        self._polling = frozenset([polling] if isinstance(polling, str) else polling)
        worst = worst_case if worst_case is not None else {}
        self._worst: Mapping[str, Amount] = worst if isinstance(worst, Mapping) else {MONEY: worst}
        whole(self._worst, "worst_case")  # what is wrong with it is said now, not at the first call
        self._cost = found_cost if prices is None else prices.cost
        self._unpriced: set[str] = set()
        self._open: dict[Hashable, StepBlock] = {}

    @property
    def context(self) -> Context:
        """The run that a step made now belongs to."""
        context = self._given if self._given is not None else CURRENT.get()
        if not isinstance(context, Context):
            raise FlyballError(
                "there is no run here whose steps these could be",
                remedy="Use the adapter inside a `@guard.agent` or inside `with guard.watch(name):`, or give it a run: "
                "`context=…`.",
            )
        return context

    # Steps.

    def tool(self, name: str, arguments: object) -> StepBlock:
        """A call of a tool. Arguments that are JSON are compared as what they mean, not as they are written."""
        call = {} if arguments is None else meant(arguments)
        return self.context.step(name, call=call, polling=self.polls(name))

    def model(self) -> StepBlock:
        """A call of a model."""
        return self.context.step(MODEL, cost=self._worst)

    def polls(self, name: str) -> bool:
        """Whether that tool is meant to be asked again and again."""
        return name in self._polling

    def answered(self, step: StepBlock, text: str, usage: Usage | None) -> None:
        """What a call of a model came to. Where nobody says what it used, it used its worst case."""
        if text.strip():
            step.said(text)
        if usage is not None:
            step.spent(self.used(usage))

    def used(self, usage: Usage) -> dict[str, Amount]:
        """Tokens, and money where the price is known; where it is not, what was reserved."""
        return {**self._worst, TOKENS: usage.tokens, **self._priced(usage)}

    def _priced(self, usage: Usage) -> dict[str, Amount]:
        if usage.model in self._unpriced:
            return {}
        try:
            return {MONEY: self._cost(usage.model, usage.report)}
        except FlyballError as error:
            if len(self._unpriced) < MODELS_MAX:
                self._unpriced.add(usage.model)
            log.warning("what %s costs is not counted: %s. %s", usage.model or "a model", error, error.remedy)
            return {}

    # Steps whose beginning and end are told of separately.

    def keep(self, key: Hashable, step: StepBlock) -> None:
        """Leave was given: keep the step until its end is told of."""
        while len(self._open) >= OPEN_MAX:
            self._open.pop(next(iter(self._open)), None)
        self._open[key] = step

    def take(self, key: Hashable) -> StepBlock | None:
        """The step that ends now; None if its beginning was never told of."""
        return self._open.pop(key, None)


class Adapter:
    """Reports to the run that it is used in, or to the `context` that it is given.

    Tools in `polling` are meant to be asked again and again. `worst_case` is reserved for each call of a model before
    it is made; `prices` say what it cost.
    """

    def __init__(
        self,
        context: Context | None = None,
        *,
        polling: Collection[str] = (),
        worst_case: Given | None = None,
        prices: Prices | None = None,
    ) -> None:
        super().__init__()
        self._feed = Feed(context, polling=polling, worst_case=worst_case, prices=prices)


def is_of_call(refused: Refused) -> bool:
    """Whether only this call is refused, and the run may go on with another."""
    return refused.verb is Verb.WAIT


def for_model(refused: Refused) -> str:
    """A refusal as the model is told of it, in place of the tool's result."""
    return f"Refused: {refused}. {refused.remedy}".rstrip()


def as_one_of(refused: Refused, kind: type[Exception]) -> Refused:
    """The same refusal, but an exception of the framework's own too: some of them pass on no others."""
    mixed = type(type(refused).__name__, (type(refused), kind), {"__module__": type(refused).__module__})
    error: Any = mixed.__new__(mixed, *refused.args)
    error.__dict__.update(refused.__dict__)
    error.__cause__ = refused
    same: Refused = error
    return same


def meant(arguments: object) -> object:
    """What the arguments of a call mean, where they are written as JSON: spaces and the order of names say nothing."""
    if not isinstance(arguments, str):
        return arguments
    try:
        decoded: object = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return arguments
    return decoded
