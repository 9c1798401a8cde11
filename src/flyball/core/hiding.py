"""Texts without the secrets that are known to be in them: what is kept and what people are shown goes through here."""

from collections.abc import Iterable
from typing import Final

SECRET_MIN: Final = 6
"""Characters. Shorter values are words such as `true` or `5432`: without them a text says nothing any more."""
INSTEAD: Final = "***"


def hide(text: str, secrets: Iterable[str]) -> str:
    """The text without these. Long ones first: one may be a part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SECRET_MIN:
            text = text.replace(secret, INSTEAD)
    return text
