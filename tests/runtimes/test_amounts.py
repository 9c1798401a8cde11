"""Amounts as programs give them: what is wrong with one is said so that it can be found and put right."""

import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import flyball
from flyball.errors import FlyballError
from flyball.runtimes.amounts import METERS_MAX, SHOWN_MAX, AmountError, check_name, whole

WRONG: dict[str, tuple[Any, str]] = {
    "a word": ("abc", "budget is 'abc': usd should be an amount such as 0.50"),
    "below nothing": (-1, "budget is -1: usd should be an amount from 0 to 1000000000"),
    "no number": (float("nan"), "budget is nan: usd should be an amount from 0 to"),
    "without end": ("Infinity", "budget is 'Infinity': usd should be an amount from 0 to"),
    "too large": (10**10, "budget is 10000000000: usd should be an amount from 0 to 1000000000"),
    "far too large": (10**5000, "budget is a number too long to write: usd should be an amount from 0 to"),
    "a yes": (True, "budget is True: usd should be an amount"),
    "a list": ([1], r"budget is \[1\]: usd should be an amount"),
    "half a token": ({"tokens": 1.5}, r"budget is \{'tokens': 1.5\}: tokens should be a whole number"),
    "too many tokens": ({"tokens": 10**16}, "tokens should be an amount from 0 to 1000000000000000"),
    "a meter without a name": ({"": 1}, "has a name of 1 to 64 characters, and not ''"),
    "a meter that is a number": ({5: 1}, "has a name of 1 to 64 characters, and not 5"),
    "too many meters": ({f"m{n}": 1 for n in range(METERS_MAX + 1)}, f"9 meters in one step; at most {METERS_MAX}"),
}


@pytest.mark.parametrize(("given", "text"), WRONG.values(), ids=WRONG)
def test_what_is_no_amount(given: Any, text: str) -> None:
    """What was given, in which option, what is allowed and what to do: as a ValueError, and without a traceback for
    whoever prints errors of flyball."""
    with pytest.raises(ValueError, match=text) as caught:
        whole(given, "budget")
    assert isinstance(caught.value, FlyballError)
    assert "0.50" in caught.value.remedy


def test_it_is_short() -> None:
    """Of something long only the beginning is shown."""
    with pytest.raises(AmountError) as caught:
        whole("9" * 10_000, "budget")
    assert len(str(caught.value)) < 2 * SHOWN_MAX


def test_it_goes_between_processes() -> None:
    """An agent in a process of its own fails by it, too."""
    with pytest.raises(AmountError) as caught:
        whole("abc", "budget")
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - made here
    assert (type(again), str(again), again.remedy) == (AmountError, str(caught.value), caught.value.remedy)


@pytest.mark.parametrize(
    ("given", "amounts"),
    [
        ({"tokens": 2_000_000_000}, {"tokens": 2_000_000_000}),
        ({"tokens": 10**15}, {"tokens": 10**15}),
        ({"tokens": Decimal("1e3")}, {"tokens": 1000}),
        (None, {}),
    ],
)
def test_counted_whole(given: Any, amounts: dict[str, int]) -> None:
    """As many as settings allow; money alone ends at a billion."""
    assert whole(given) == amounts


def test_a_float_of_another_kind() -> None:
    """Numbers of other libraries are floats that write themselves in another way."""

    class Other(float):
        def __repr__(self) -> str:
            return f"other({float(self)})"

    assert whole(Other(0.1)) == {"usd": 100_000}


@pytest.mark.parametrize("name", ["", "n" * 65, 5])
def test_what_is_no_name(name: Any) -> None:
    """Of a meter or gauge: it says which."""
    with pytest.raises(ValueError, match="and not "):
        check_name(name)


def test_where_it_was_given(tmp_path: Path) -> None:
    """Wherever a program gives an amount, the error names the place; nothing is defined, reserved or counted by it."""
    with flyball.open("program", state_dir=tmp_path) as guard:

        def work(_: Any) -> None: ...

        places: dict[str, tuple[Callable[[], object], ...]] = {
            "budget is 'five'": (
                lambda: guard.agent("a", budget="five"),
                lambda: guard.watch("a", budget="five"),
                lambda: guard.session("a", work, budget="five"),
            ),
            "call 'fetch': budget is 'five'": (lambda: guard.call("fetch", budget="five", cost=1),),
            "call 'fetch': cost is 'five'": (
                lambda: guard.call("fetch", cost="five"),
                guard.call("fetch", cost=lambda: "five")(lambda: None),
            ),
            "call 'fetch': used is 'five'": (guard.call("fetch", used=lambda _: "five")(lambda: None),),
            "the worst case is 'five'": (lambda: guard.reserve("five"), lambda: guard.reserve_soon("five")),
        }
        for text, gives in places.items():
            for give in gives:
                with pytest.raises(AmountError, match=text):
                    give()
        with guard.watch("a", budget="1.00") as context:
            for text, give in {
                "cost is 'five'": lambda: context.step("s", cost="five"),
                "what was spent is 'five'": lambda: context.spend("five"),
            }.items():
                with pytest.raises(AmountError, match=text):
                    give()
        spent = [event for event in guard.history("a") if isinstance(event, flyball.Stepped) and event.done]
        assert spent == []
