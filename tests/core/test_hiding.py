"""Texts without secrets."""

import pytest

from flyball.core.hiding import hide


@pytest.mark.parametrize(
    ("text", "secrets", "shown"),
    [
        ("the key is abcdef", ["abcdef"], "the key is ***"),
        ("abcdefgh and abcdef", ["abcdef", "abcdefgh"], "*** and ***"),
        ("abcdef abcdef", ["abcdef"], "*** ***"),
        ("port 5432 is true", ["5432", "true", ""], "port 5432 is true"),
        ("nothing of it", ["abcdef"], "nothing of it"),
        ("abcdef", [], "abcdef"),
    ],
)
def test_hide(text: str, secrets: list[str], shown: str) -> None:
    """A secret is hidden wherever it is, the longest first; what is too short to be one is not."""
    assert hide(text, secrets) == shown
