"""What the buttons under alerts carry. Telegram gives them 64 bytes, so it is not the order but a digest of it: whoever
presses is given the action of that digest that some problem still offers. So a button of a problem that is settled does
nothing, however old its message is, and nothing has to be kept for it."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from flyball.control.text import short

ACTION: Final = "do:"
"""How the data of such a button begins."""
DIGITS: Final = 40
"""Of the digest: with the beginning below the 64 bytes, and nobody finds another order with the same."""


def data_of(verb: str, args: Mapping[str, Any]) -> str:
    """The data of a button that orders this."""
    said = msgspec.json.encode((verb, args), order="deterministic")
    return ACTION + hashlib.sha256(said).hexdigest()[:DIGITS]


def action_of(data: str, problems: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The action that the button orders, among those that these problems offer; None: none of them does any more."""
    offered = (action for problem in problems for action in _offered(problem))
    return next((action for action in offered if data_of(action["verb"], action.get("args") or {}) == data), None)


def _offered(problem: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What can be done about a problem: what it says itself, also as alerts say it; and that somebody has seen it."""
    for action in problem["actions"]:
        yield action
        fingerprint = (action.get("args") or {}).get("fingerprint")
        if fingerprint:
            yield {**action, "args": {**action["args"], "fingerprint": short(fingerprint)}}
    yield {"verb": "acknowledge", "args": {"problem": problem["id"]}, "label": "Acknowledge", "destructive": False}
