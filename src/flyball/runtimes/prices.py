"""What a call of a model costs: the worst case before it, the truth after it. An unknown price is never free.

Prices are those of the settings, then those of the package genai-prices (an extra), which knows cached and reasoning
tokens, prices that rise with the length of the input, and prices that depend on the time of day. Amounts are exact
decimals of a dollar, rounded up to a millionth, as `reserve` and `settle` take them.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from flyball.config import load
from flyball.config.money import rounded_up
from flyball.config.settings import ModelPrice
from flyball.config.settings import Prices as PriceSettings
from flyball.errors import FlyballError

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice as GenaiPrice
    from genai_prices.types import PriceCalculation

MILLION: Final = 1_000_000
TOKENS_MAX: Final = 10**12
"""Tokens of one call: a slip beyond this."""
HOURS: Final = 24
"""Some prices depend on the time of day: the worst case is the worst of the day to come."""

CACHE_WRITES: Final = (("cache_write_tokens",), ("cache_write_tokens", "cache_write_1h_tokens"))
"""What all input may turn out to be, beside plain: written to a cache, which costs more."""
REASONING: Final = (("output_reasoning_tokens",),)
"""What all output may turn out to be, beside plain."""

ALIASES: Final = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
DETAILS: Final = (
    ("prompt_tokens_details", "cached_tokens", "cache_read_tokens"),
    ("input_tokens_details", "cached_tokens", "cache_read_tokens"),
    ("input_token_details", "cache_read", "cache_read_tokens"),
    ("input_token_details", "cache_creation", "cache_write_tokens"),
    ("completion_tokens_details", "reasoning_tokens", "output_reasoning_tokens"),
    ("output_tokens_details", "reasoning_tokens", "output_reasoning_tokens"),
    ("output_token_details", "reasoning", "output_reasoning_tokens"),
)
"""Where usages of well-known libraries say what is a part of input or output."""
BESIDE: Final = {"cache_read_input_tokens": "cache_read_tokens", "cache_creation_input_tokens": "cache_write_tokens"}
"""Cached tokens that one provider does not count as input."""
PLAIN: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "output_reasoning_tokens",
    "input_audio_tokens",
    "output_audio_tokens",
    "cache_audio_read_tokens",
    "web_searches",
)
"""Parts of a usage that have a price, by the names of genai-prices."""

Tokens = dict[str, int]


class UnknownPrice(FlyballError):
    """Nobody knows what that model costs, so it is not called."""

    remedy = (
        "Give its price under `prices.models` in the settings; or set `prices.unknown: ceiling` to assume the worst."
    )


class Prices:
    """Prices by these settings."""

    def __init__(self, settings: PriceSettings | None = None) -> None:
        self._settings = settings or PriceSettings()

    def worst_case(
        self, model: str, input_tokens: int, max_tokens: int, provider: str | None = None, *, cache_writes: bool = True
    ) -> Decimal:
        """The most that a call with so many tokens of input, and at most so many of output, can cost in dollars.

        That all input is written to a cache is the worst case; without `cache_writes` that does not happen. Tools that
        the provider runs, such as searches, cost extra. UnknownPrice if the model's price is not known."""
        tokens = {
            "input_tokens": _count("input_tokens", input_tokens),
            "output_tokens": _count("max_tokens", max_tokens),
        }
        known = self._without_looking(model, tokens)
        if known is not None:
            return known
        now = datetime.now(tz=UTC)
        found = self._look_up(model, tokens, provider, now)
        if found is None:
            return self._unknown(model, tokens)
        at_hours = (found.model.get_prices(now + timedelta(hours=hour)) for hour in range(HOURS))
        prices = {id(price): price for price in (found.model_price, *at_hours)}.values()
        return rounded_up(max(_worst(price, tokens, cache_writes) for price in prices))

    def cost(self, model: str, usage: object, provider: str | None = None) -> Decimal:
        """What a call really cost in dollars, by the usage that came back with it: that of genai-prices, OpenAI,
        Anthropic, LangChain or Pydantic AI, as an object or a mapping. UnknownPrice if the price is not known."""
        tokens = _tokens(usage)
        known = self._without_looking(model, tokens)
        if known is not None:
            return known
        found = self._look_up(model, tokens, provider, datetime.now(tz=UTC))
        return self._unknown(model, tokens) if found is None else rounded_up(found.total_price)

    def _without_looking(self, model: str, tokens: Tokens) -> Decimal | None:
        """By a price of one's own."""
        own = self._settings.models.get(model)
        return None if own is None else rounded_up(_by(own, tokens))

    def _unknown(self, model: str, tokens: Tokens) -> Decimal:
        if self._settings.unknown == "refuse":
            raise UnknownPrice(f"the price of the model {model!r} is not known")
        ceiling = self._settings.ceiling_per_million_tokens
        return rounded_up(_by(ModelPrice(input=ceiling, output=ceiling), tokens))

    def _look_up(self, model: str, tokens: Tokens, provider: str | None, at: datetime) -> "PriceCalculation | None":
        """None: the price is not known, or not that of each part."""
        genai = _genai()
        try:
            found: PriceCalculation = genai.calc_price(
                genai.Usage(**tokens), model, provider_id=provider, genai_request_timestamp=at
            )
        except LookupError:
            return None
        except ValueError as error:
            raise FlyballError(
                f"the usage of {model} makes no sense: {error}", remedy="Give the numbers as the provider gave them."
            ) from None
        for direction in ("input", "output"):
            priced = any(key.startswith(direction) for key in _priced(found.model_price))
            if tokens.get(f"{direction}_tokens") and not priced:
                return None
        return found


def worst_case(
    model: str, input_tokens: int, max_tokens: int, provider: str | None = None, *, cache_writes: bool = True
) -> Decimal:
    """`Prices.worst_case`, by the settings that are found."""
    return _found().worst_case(model, input_tokens, max_tokens, provider, cache_writes=cache_writes)


def cost(model: str, usage: object, provider: str | None = None) -> Decimal:
    """`Prices.cost`, by the settings that are found."""
    return _found().cost(model, usage, provider)


@cache
def _found() -> Prices:
    return Prices(load().prices)


def _genai() -> Any:
    try:
        import genai_prices  # noqa: PLC0415 - an extra
    except ImportError:
        raise FlyballError(
            "prices of models come from genai-prices, which is not installed",
            remedy='Install it: pip install "flyball-governor[prices]"; or give prices under `prices.models`.',
        ) from None
    return genai_prices


def _by(price: ModelPrice, tokens: Tokens) -> Decimal:
    sent, came = price.input or Decimal(0), price.output or Decimal(0)
    cached = tokens.get("cache_read_tokens", 0)
    plain = max(0, tokens.get("input_tokens", 0) - cached)
    cached_price = sent if price.cached_input is None else price.cached_input
    return (plain * sent + cached * cached_price + tokens.get("output_tokens", 0) * came) / MILLION


def _priced(price: "GenaiPrice") -> list[str]:
    return [key for key, amount in vars(price).items() if amount is not None]


def _worst(price: "GenaiPrice", tokens: Tokens, cache_writes: bool) -> Decimal:
    """The dearest of all kinds that the tokens may turn out to be."""
    priced = _priced(price)
    writes = [kinds for kinds in CACHE_WRITES if cache_writes and _price_of(kinds[-1]) in priced]
    reasoning = [kinds for kinds in REASONING if _price_of(kinds[-1]) in priced]
    usage = _genai().Usage
    return max(
        price.calc_price(usage(**_all_of(tokens, *inputs, *outputs)))["total_price"]
        for inputs in ((), *writes)
        for outputs in ((), *reasoning)
    )


def _price_of(kind: str) -> str:
    return kind.replace("_tokens", "_mtok")


def _all_of(tokens: Tokens, *kinds: str) -> Tokens:
    """All input, or all output, is of these kinds too."""
    return {
        **tokens,
        **{kind: tokens["output_tokens" if kind.startswith("output") else "input_tokens"] for kind in kinds},
    }


def _tokens(usage: object) -> Tokens:
    """A usage in the words of genai-prices, in which input and output are totals."""
    tokens = {key: _count(key, count) for key, count in _parts(usage) if count}
    beside = {BESIDE[key]: _count(key, _part(usage, key)) for key in BESIDE if _part(usage, key)}
    if beside:
        tokens = {**tokens, **beside, "input_tokens": tokens.get("input_tokens", 0) + sum(beside.values())}
    if not any(_part(usage, key) is not None for key in (*PLAIN, *ALIASES, *BESIDE)):
        raise FlyballError(
            f"a usage of {type(usage).__name__} names no tokens",
            remedy="Give input_tokens and output_tokens, such as the usage that came back with the answer.",
        )
    return tokens


def _parts(usage: object) -> Iterator[tuple[str, Any]]:
    for key in PLAIN:
        yield key, _part(usage, key)
    for key, name in ALIASES.items():
        if _part(usage, key) is not None:
            yield name, _part(usage, key)
    for key, detail, name in DETAILS:
        if _part(_part(usage, key), detail):
            yield name, _part(_part(usage, key), detail)


def _part(usage: object, key: str) -> Any:
    if isinstance(usage, Mapping):
        return usage.get(key)
    # What a library infers and cannot is not there.
    return vars(usage).get(key) if hasattr(usage, "__dict__") and key in vars(usage) else _attribute(usage, key)


def _attribute(usage: object, key: str) -> Any:
    try:
        return getattr(usage, key, None)
    except ValueError:
        return None


def _count(name: str, count: Any) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= TOKENS_MAX:
        raise FlyballError(
            f"{name} should be a whole number from 0 to {TOKENS_MAX}, not {count!r}", remedy="Count the tokens first."
        )
    return count
