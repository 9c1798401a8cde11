"""Any endpoint that speaks OpenAI's chat completions, and what a call of it costs: at worst before, truly after.

The worst case holds because both sides are bounded: a prompt is cut to so many bytes (a token is at least one), and the
answer to so many tokens.
"""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import flyball

PROMPT_MAX = 6_000
"""Bytes of a prompt, and so at most as many tokens: what five voices said in two rounds."""
FRAME = 100
"""Tokens that the protocol itself may add to a prompt."""
ANSWER_MAX = 400
"""Tokens of an answer: some 250 words."""
TIMEOUT = 120
"""Seconds that one call may be silent."""
BODY_MAX = 1_000_000
"""Bytes of an answer that are read."""


class ModelError(flyball.FlyballError):
    """The endpoint did not answer as it should."""

    remedy = "Look at OPENAI_BASE_URL, OPENAI_API_KEY and --model; or try --offline."


@dataclass(frozen=True)
class Answer:
    """What was said, and what it cost in dollars."""

    text: str
    cost: Decimal


class Model:
    """A model of an endpoint."""

    def __init__(self, base_url: str, key: str, name: str, prices: flyball.Prices, *, proxies: bool = True) -> None:
        self.name = name
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._key = key
        self._prices = prices
        self._limit = "max_tokens"
        handlers = [] if proxies else [urllib.request.ProxyHandler({})]
        self._opener = urllib.request.build_opener(*handlers)
        self.worst_case = prices.worst_case(name, PROMPT_MAX + FRAME, ANSWER_MAX)
        """The most that one call can cost. Raises if nobody knows the price."""

    def ask(self, system: str, user: str) -> Answer:
        """One call."""
        room = PROMPT_MAX - len(system.encode())
        messages = [
            {"role": "system", "content": system},
            {"role": "user", "content": user.encode()[: max(0, room)].decode(errors="ignore")},
        ]
        body = self._post({"model": self.name, "messages": messages, self._limit: ANSWER_MAX})
        try:
            text = body["choices"][0]["message"]["content"] or ""
            usage = body["usage"]
        except (KeyError, IndexError, TypeError):
            raise ModelError(f"{self._url}: the answer is no chat completion") from None
        return Answer(text, self._prices.cost(self.name, usage))

    def _post(self, asked: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        request = urllib.request.Request(self._url, json.dumps(asked).encode(), headers)  # noqa: S310 - checked by main
        try:
            with self._opener.open(request, timeout=TIMEOUT) as response:
                return json.loads(response.read(BODY_MAX))
        except urllib.error.HTTPError as error:
            said = error.read(BODY_MAX).decode(errors="replace")
            if error.code == 400 and "max_completion_tokens" in said and "max_tokens" in asked:
                self._limit = "max_completion_tokens"  # newer models know the bound by this name alone
                bound = asked.pop("max_tokens")
                return self._post({**asked, self._limit: bound})
            raise ModelError(f"{self._url} answered {error.code}: {said[:300]}") from None
        except (OSError, ValueError) as error:
            raise ModelError(f"{self._url}: {error}") from None


def read_json(text: str) -> dict[str, Any]:
    """The object in an answer, whatever is written around it; an empty one if there is none."""
    start, end = text.find("{"), text.rfind("}")
    try:
        found = json.loads(text[start : end + 1])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
