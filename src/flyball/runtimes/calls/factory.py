"""Makes guarded calls: `guard.call("fetch", …)` says what a call stands under, and this puts the policies for it.

A breaker is by a label, and so shared by all calls, programs and processes with that label. A budget and a loop limit
are the call's own: shared by all processes of the program, and by nobody else.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from flyball.config import Settings
from flyball.core.amounts import MONEY
from flyball.core.event import NOTHING, Amounts
from flyball.core.policy import AnyPolicy, Gate
from flyball.core.time import Span, span
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.policies import Breaker, Budget, Loop
from flyball.runtimes import holder
from flyball.runtimes.amounts import Given, whole
from flyball.runtimes.calls.books import Books
from flyball.runtimes.calls.call import Call
from flyball.runtimes.calls.retry import Kinds, Retry
from flyball.runtimes.calls.talk import Holder

NAME: Final = re.compile(r"[^\s:]{1,80}")
"""A call's name: it stands in labels, journal entries and texts."""
LABEL: Final = re.compile(r"([A-Za-z][\w.-]{0,63}):(\S{1,200})")
"""A breaker's label, as `name:value`."""
SCOPES: Final = ("unit", "run", "fleet", "call")
"""Names that are taken."""


class Calls:
    """The guarded calls of one program in this process. Close it before the store."""

    def __init__(
        self,
        governor: Governor,
        unit: str,
        settings: Settings,
        put_policy: Callable[[AnyPolicy], object],
        *,
        run: str | None = None,
        sleep: Callable[[float], object] = time.sleep,
        sleep_soon: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._unit = unit
        self._put_policy = put_policy
        self._put: dict[tuple[str, str], AnyPolicy] = {}
        self._books = Books(governor, unit, run or holder.me())
        self._holder = Holder(sleep, sleep_soon)

    def __call__(
        self,
        name: str,
        *,
        retry: Retry | int | bool | None = None,
        breaker: str | bool = False,
        budget: Given | None = None,
        cost: Given | Callable[..., Given] | None = None,
        used: Callable[[Any], Given] | None = None,
        loop: tuple[int, float] | None = None,
        failures: Kinds = Exception,
        wait: float = 0.0,
    ) -> Call:
        """A guarded call: a decorator, a block (`with`), or attempts (`for attempt in call: with attempt:`).

        `retry`: so many attempts; True: as set in `retry`. `breaker`: a label such as `provider:x`, shared by all who
        name it; True: this call's own. `cost`: the worst case of one attempt, or a function of the call's arguments;
        `used`: what it really cost, a function of the result. `budget`: what all attempts together may cost. `loop`: so
        many attempts within so many seconds are a loop. `failures`: errors that speak against what is called, and not
        against the caller. `wait`: so many seconds to wait for leave that will be given later.
        """
        self._check(name, wait)
        if not isinstance(failures, type | tuple) and not callable(failures):
            raise FlyballError(
                f"call {name!r}: failures is {failures!r}", remedy="Give a type of errors, several, or a function."
            )
        if used is not None and not callable(used):
            raise FlyballError(f"call {name!r}: used is {used!r}", remedy="Give a function of the call's result.")
        amounts, cost_of = (NOTHING, cost) if callable(cost) else (whole(cost, f"call {name!r}: cost"), None)
        own = f"call:{name}"
        labels = {"call": name}
        policies: list[AnyPolicy] = []
        if breaker:
            label, value = (own, self._unit) if breaker is True else _label(breaker)
            labels[label] = value
            policies.append(self._breaker(label))
        limits = whole(budget, f"call {name!r}: budget")
        if budget is not None:
            policies += _budgets(own, limits, None if cost_of else amounts)
        if loop is not None:
            policies.append(_loop(own, loop))
        if any(policy.by == own for policy in policies):
            labels[own] = self._unit
        for policy in policies:
            self._stand_under(name, policy)
        return Call(
            self._books,
            name,
            labels,
            cost=amounts,
            cost_of=cost_of,
            budgeted=frozenset(limits),
            used_of=used,
            failures=failures,
            retry=self._retry(retry),
            wait=span(wait),
            holder=self._holder,
        )

    def report(self) -> None:
        """Tell the governor what was done, and give back what is held and not used. It happens by itself, too."""
        self._books.report()

    def close(self) -> None:
        """Report, and let go. Calls that are made after this are asked for one by one, while the store is open."""
        self._books.close()

    def _check(self, name: str, wait: float) -> None:
        if not NAME.fullmatch(name):
            raise FlyballError(
                f"{name!r} is no name for a call",
                remedy="Give it 1 to 80 characters without spaces and `:`, such as `fetch` or `openai/chat`.",
            )
        if not 0 <= wait < float("inf"):
            raise FlyballError(f"call {name!r}: wait is {wait!r}", remedy="Give seconds, from 0.")

    def _stand_under(self, name: str, policy: AnyPolicy) -> None:
        known = self._put.get((policy.name, policy.by))
        if known is None:
            self._put_policy(policy)
            self._put[policy.name, policy.by] = policy
        elif known != policy:
            raise FlyballError(
                f"call {name!r} stands under another {policy.name} by {policy.by} already: {known}",
                remedy="Give both the same numbers, or another name.",
            )

    def _retry(self, given: Retry | int | bool | None) -> Retry | None:
        if isinstance(given, Retry):
            return given
        if given is None or given is False:
            return None
        retry = self._settings.retry
        return Retry(
            attempts=retry.max_attempts if given is True else given,
            first=retry.base_delay_seconds,
            factor=retry.exponential_base,
        )

    def _breaker(self, label: str) -> Breaker:
        breaker = self._settings.circuit_breaker
        return Breaker(
            failures_max=breaker.failure_threshold,
            window=span(breaker.window_seconds),
            units_min=1,  # a program is one unit, and what it calls may be down for it alone
            recovery=span(breaker.recovery_timeout_seconds),
            trials_max=breaker.max_trials,
            successes_min=breaker.success_threshold,
            name="call_breaker",
            by=label,
            at=Gate.STEP,
        )


def _label(text: str) -> tuple[str, str]:
    found = LABEL.fullmatch(text)
    if found is None or found[1] in SCOPES:
        raise FlyballError(
            f"{text!r} is no label for a breaker",
            remedy=f"Write it as name:value, such as provider:x; the names {', '.join(SCOPES)} are taken.",
        )
    return found[1], found[2]


def _budgets(own: str, limits: Amounts, cost: Mapping[str, int] | None) -> list[Budget]:
    """One for each meter. Without a worst case nothing could be refused before it is spent."""
    if cost is not None and (missing := sorted(limits.keys() - cost.keys())):
        raise FlyballError(
            f"{own}: a budget of {', '.join(missing)} needs the worst case of one attempt",
            remedy=f"Give it as `cost`, for example cost={{{missing[0]!r}: 1}}.",
        )
    return [
        Budget(limit=limit, meter=meter, by=own, name="call_budget" if meter == MONEY else f"call_budget_{meter}")
        for meter, limit in limits.items()
    ]


def _loop(own: str, given: tuple[int, float]) -> Loop:
    try:
        times, seconds = int(given[0]), given[1]
        window: Span = span(seconds)
    except (TypeError, ValueError, IndexError, OverflowError):
        times, window = 0, 0
    if times < 2 or window < 1:
        raise FlyballError(
            f"{own}: a loop of {given!r}", remedy="Give at least 2 times, and seconds above 0: `loop=(1000, 60)`."
        )
    return Loop(repeats_max=times, window=window, name="call_loop", by=own)
