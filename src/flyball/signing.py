"""Signatures of webhooks, as the Standard Webhooks specification has them: HMAC-SHA256 over `ID.TIME.BODY`. What comes
in is checked by the same lines that sign what goes out. No clock and no I/O: the time is given."""

import base64
import binascii
import hmac
import itertools
from typing import Final

SIGNATURES_MAX: Final = 8
"""Signatures of one request: one for each secret that its sender has. While it changes them there are two."""
KEY_MIN: Final = 12
"""Bytes of a secret that is read as base64: what 16 characters hold. Fewer can be guessed."""
PREFIX: Final = "whsec_"
_VERSION: Final = "v1,"


def keys(secret: str) -> tuple[bytes, ...]:
    """What a secret may stand for: senders take it as base64, or, if they do not care for that, as it is."""
    plain = secret.encode()
    encoded = secret.removeprefix(PREFIX)
    try:
        decoded = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return (plain,)
    return (decoded, plain) if len(decoded) >= KEY_MIN else (plain,)


def sign(secret: str, id_: str, at: str, body: bytes) -> str:
    """The signature of a request, for the header `webhook-signature`."""
    return _VERSION + _signature(keys(secret)[0], _content(id_, at, body)).decode()


def is_signed(secret: str, id_: str, at: str, body: bytes, signatures: str) -> bool:
    """Whether one of the signatures is right. All three texts are headers, as they came."""
    marked = [one for one in signatures.split(" ") if one.startswith(_VERSION)]
    given = [one.removeprefix(_VERSION).encode("latin-1") for one in marked[:SIGNATURES_MAX]]
    content = _content(id_, at, body)
    right = [_signature(key, content) for key in keys(secret)]
    # All are compared, each in constant time: how long it takes says nothing.
    return sum([hmac.compare_digest(one, other) for one, other in itertools.product(right, given)]) > 0


def _content(id_: str, at: str, body: bytes) -> bytes:
    return b".".join((id_.encode("latin-1"), at.encode("latin-1"), body))


def _signature(key: bytes, content: bytes) -> bytes:
    return base64.b64encode(hmac.digest(key, content, "sha256"))
