"""What the bot offered somebody by its own buttons: who may take it, and until when. Each is taken once.

They are kept in memory alone: after a restart nothing that was asked before can be confirmed, which is the safe side.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

OFFER: Final = "of:"
"""How the data of such a button begins."""
LASTS: Final = 300.0
"""Seconds: somebody reads, thinks, and presses. Later, things may not be as they were when it was asked."""
OFFERS_MAX: Final = 500
"""Open at a time. With more than this the oldest cannot be taken any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One thing that may be taken."""

    sender: int
    """Who asked, and alone may take it."""
    chat: int
    verb: str
    """Nothing: a no."""
    args: Mapping[str, Any]
    until: float
    asks: str = ""
    """What has to be confirmed before it is done; nothing: it is done at once."""
    with_: str = ""
    """Offers that were made together: when one is taken, all are."""


class Offers:
    """Those that are open."""

    def __init__(self) -> None:
        self._open: dict[str, Offer] = {}

    def make(self, offer: Offer) -> str:
        """The data of a button for it."""
        while len(self._open) >= OFFERS_MAX:
            del self._open[next(iter(self._open))]
        data = OFFER + secrets.token_hex(12)
        self._open[data] = offer
        return data

    def take(self, data: str, sender: int, chat: int, now: float) -> Offer | str:
        """What was offered, which nobody can take again; or why it cannot be taken."""
        offer = self._open.get(data)
        if offer is None:
            return "This was done, or is too old. Ask again."
        if (offer.sender, offer.chat) != (sender, chat):
            return "Only who asked may press this."
        for name, other in list(self._open.items()):
            if name == data or (offer.with_ and other.with_ == offer.with_):
                del self._open[name]
        return offer if now < offer.until else "This is too old. Ask again."
