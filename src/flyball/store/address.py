"""The address of a store that is a database: how it is shown to people."""

import re
from typing import Final

_IN_QUERY: Final = re.compile(r"(?i)((?:^|&)(?:ssl)?password=)[^&]*")


def without_password(url: str) -> str:
    """The same for people to see."""
    scheme, found, rest = url.partition("://")
    where, question, more = rest.partition("?")
    who, at, host = where.rpartition("@")
    user, colon, _ = who.partition(":")
    who = f"{user}{colon}***" if colon else user
    more = _IN_QUERY.sub(r"\1***", more)
    return f"{scheme}{found}{who}{at}{host}{question}{more}"
