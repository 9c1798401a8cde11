"""Prices: exact, rounded up, and never free for want of knowing."""

import builtins
import sys
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flyball.config.settings import Prices as PriceSettings
from flyball.errors import FlyballError
from flyball.runtimes import prices
from flyball.runtimes.prices import Prices, UnknownPrice

pytest.importorskip("genai_prices")

OWN = PriceSettings.model_validate(
    {
        "models": {
            "house": {"input": "2.00", "output": "10.00", "cached_input": "0.50"},
            "plain": {"input": 1, "output": 3},
        }
    }
)


def of_genai(model: str, **usage: int) -> Decimal:
    """What the package says."""
    from genai_prices import Usage, calc_price

    return calc_price(Usage(**usage), model).total_price


@pytest.mark.parametrize(
    "model", ["gpt-4o", "gpt-4o-mini", "o3", "claude-sonnet-4-5", "gemini-2.5-pro", "deepseek-chat"]
)
@pytest.mark.parametrize("tokens", [(1, 1), (1_000, 100), (12_345, 6_789), (0, 5), (5, 0)])
def test_worst_case_is_the_worst(model: str, tokens: tuple[int, int]) -> None:
    """Whatever becomes of the tokens (cached, written to a cache, used for reasoning), it costs no more."""
    most = Prices().worst_case(model, *tokens)
    sent, came = tokens
    for usage in (
        {"input_tokens": sent, "output_tokens": came},
        {"input_tokens": sent, "cache_read_tokens": sent, "output_tokens": came},
        {"input_tokens": sent, "cache_write_tokens": sent, "output_tokens": came // 2},
        {"input_tokens": sent, "cache_write_tokens": sent, "cache_write_1h_tokens": sent, "output_tokens": came},
        {"input_tokens": sent // 2, "output_tokens": came, "output_reasoning_tokens": came},
    ):
        assert Prices().cost(model, usage) <= most
    assert most > 0
    assert most == most.quantize(Decimal("0.000001")), "it can be reserved as it is"


def test_without_cache_writes() -> None:
    """Who writes nothing to a cache need not reserve for it; where writing costs no more, there is no difference."""
    sent, came = 1_000, 100
    plain = of_genai("claude-sonnet-4-5", input_tokens=sent, output_tokens=came)
    assert Prices().worst_case("claude-sonnet-4-5", sent, came, cache_writes=False) == plain
    assert Prices().worst_case("claude-sonnet-4-5", sent, came) > plain
    assert Prices().worst_case("gpt-4o", sent, came) == of_genai("gpt-4o", input_tokens=sent, output_tokens=came)


def test_long_inputs_cost_more() -> None:
    """Prices that rise with the length of the input are those of the whole input."""
    short, long = (Prices().worst_case("gemini-2.5-pro", tokens, 0) for tokens in (200_000, 400_000))
    assert long > 2 * short


@pytest.mark.parametrize(
    "usage",
    [
        {"input_tokens": 1_000, "cache_read_tokens": 400, "output_tokens": 100},
        SimpleNamespace(input_tokens=1_000, cache_read_tokens=400, output_tokens=100),
        {"prompt_tokens": 1_000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 400}},
        SimpleNamespace(input_tokens=1_000, output_tokens=100, input_tokens_details=SimpleNamespace(cached_tokens=400)),
        {"input_tokens": 1_000, "output_tokens": 100, "input_token_details": {"cache_read": 400}},
        {"input_tokens": 600, "cache_read_input_tokens": 400, "cache_creation_input_tokens": 0, "output_tokens": 100},
    ],
    ids=["mapping", "object", "openai chat", "openai responses", "langchain", "anthropic"],
)
@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5"])
def test_usages_of_well_known_libraries(model: str, usage: object) -> None:
    """However a library says it: 1,000 tokens of input, of which 400 were cached, and 100 of output."""
    expected = of_genai(model, input_tokens=1_000, cache_read_tokens=400, output_tokens=100)
    assert Prices().cost(model, usage) == expected.quantize(Decimal("0.000001"))
    assert expected < of_genai(model, input_tokens=1_000, output_tokens=100)


def test_usages_of_real_libraries() -> None:
    """Their very own objects."""
    from genai_prices import Usage

    assert Prices().cost("gpt-4o", Usage(input_tokens=1_000, output_tokens=100)) == Decimal("0.003500")
    usage = pytest.importorskip("openai.types.completion_usage")
    real = usage.CompletionUsage(prompt_tokens=1_000, completion_tokens=100, total_tokens=1_100)
    assert Prices().cost("gpt-4o", real) == Decimal("0.003500")


@pytest.mark.parametrize(("tokens", "expected"), [(1, "0.000003"), (2, "0.000005"), (1_000, "0.002500")])
def test_rounded_up(tokens: int, expected: str) -> None:
    """2.5 millionths a token: half a millionth counts as a whole one."""
    assert Prices().cost("gpt-4o", {"input_tokens": tokens, "output_tokens": 0}) == Decimal(expected)


# Unknown prices.


@pytest.mark.parametrize(
    "ask",
    [
        lambda given: given.worst_case("no-such-model-1", 10, 10),
        lambda given: given.cost("no-such-model-1", {"input_tokens": 10, "output_tokens": 10}),
        lambda given: given.worst_case("gpt-4o", 10, 10, "no-such-provider"),
        lambda given: given.worst_case("text-embedding-3-small", 10, 10),
    ],
    ids=["worst case", "cost", "provider", "a part of it"],
)
def test_an_unknown_price_is_refused_or_the_ceiling(ask: Any) -> None:
    """Never free: refused with what to do, or priced at the ceiling."""
    with pytest.raises(UnknownPrice, match=r"price of the model .* is not known") as caught:
        ask(Prices())
    assert "prices.models" in caught.value.remedy
    ceiling = PriceSettings.model_validate({"unknown": "ceiling", "ceiling_per_million_tokens": "500"})
    assert ask(Prices(ceiling)) == Decimal("0.010000")


def test_the_ceiling_is_above_every_price() -> None:
    """By default it is no bargain to be unknown."""
    settings = PriceSettings(unknown="ceiling")
    dearest = Prices(settings).worst_case("o1-pro", 1_000, 1_000)
    assert Prices(settings).worst_case("no-such-model-1", 1_000, 1_000) > dearest


def test_prices_of_ones_own_win() -> None:
    """And they need no package."""
    assert Prices(OWN).worst_case("house", 1_000_000, 100_000) == Decimal("3.000000")
    usage = {"input_tokens": 1_000_000, "cache_read_tokens": 500_000, "output_tokens": 0}
    assert Prices(OWN).cost("house", usage) == Decimal("1.250000")
    assert Prices(OWN).cost("plain", usage) == Decimal("1.000000")
    dear = PriceSettings.model_validate({"models": {"gpt-4o": {"input": 100, "output": 100}}})
    assert Prices(dear).worst_case("gpt-4o", 1_000_000, 0) == 100


@pytest.mark.parametrize(
    ("usage", "says"),
    [
        ({}, "names no tokens"),
        (None, "names no tokens"),
        ({"total_tokens": 5}, "names no tokens"),
        ({"input_tokens": -1, "output_tokens": 0}, "whole number"),
        ({"input_tokens": "many", "output_tokens": 0}, "whole number"),
        ({"input_tokens": 5, "cache_read_tokens": 10, "output_tokens": 0}, "makes no sense"),
    ],
)
def test_what_is_no_usage(usage: Any, says: str) -> None:
    """Not taken for a call that cost nothing."""
    with pytest.raises(FlyballError, match=says):
        Prices().cost("gpt-4o", usage)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install; prices of one's own are there all the same."""
    real = builtins.__import__

    def missing(name: str, *more: Any, **others: Any) -> Any:
        if name.partition(".")[0] == "genai_prices":
            raise ImportError(name)
        return real(name, *more, **others)

    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.delitem(sys.modules, "genai_prices", raising=False)
    with pytest.raises(FlyballError, match="genai-prices, which is not installed") as caught:
        Prices().worst_case("gpt-4o", 10, 10)
    assert "flyball-governor[prices]" in caught.value.remedy
    assert Prices(OWN).worst_case("plain", 1_000_000, 0) == 1


def test_by_the_settings_that_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions of the module use the settings of the folder they are in."""
    (tmp_path / "flyball.yaml").write_text("prices:\n  models:\n    mine: {input: 3, output: 4}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    prices._found.cache_clear()
    assert prices.worst_case("mine", 1_000_000, 1_000_000) == 7
    assert prices.cost("mine", {"input_tokens": 1_000_000, "output_tokens": 0}) == 3
    prices._found.cache_clear()
