"""Settings of a fleet on many hosts: where its memory is, and what this host is to it."""

import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from flyball.config.section import Label, Section
from flyball.config.unit_settings import WORDS_MAX, Word
from flyball.store.address import without_password

LEASE_MIN: Final = 1.0
"""Seconds. In less than this a busy machine cannot say three times that it lives."""
LEASE_MAX: Final = 3600.0
"""An hour: so long nobody takes over what a dead host ran."""
UNITS_MAX: Final = 100_000
_POSTGRES: Final = ("postgresql", "postgres")
_UNFILLED: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def store_url(given: object) -> object:
    """Nothing, or the URL of a database."""
    if given in (None, ""):
        return ""
    wrong = ValueError("should be a URL such as postgresql://user@host/database, or left out for a file of our own")
    if not isinstance(given, str):
        raise wrong
    if _UNFILLED.fullmatch(given):
        return given
    try:
        url = urlsplit(given)
        good = url.scheme in _POSTGRES and not re.search(r"\s", given) and (url.port is None or url.port > 0)
    except ValueError:
        good = False
    if not good:
        raise wrong
    return given


StoreUrl = Annotated[
    str,
    BeforeValidator(store_url),
    Field(repr=False),
    PlainSerializer(without_password),
    WithJsonSchema({"type": "string", "$comment": "a URL such as postgresql://user@host/database"}),
]


HostName = Annotated[
    str,
    Field(
        pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,62})?$",
        json_schema_extra={"$comment": "a name of letters, digits and _ . -"},
    ),
]


class HostGiven(Section):
    """What this machine is to a fleet whose memory is a PostgreSQL. Each host reads settings of its own; what differs
    between hosts is best given as FLYBALL_HOST__NAME and the like."""

    name: HostName = ""
    """What it is called; no two may be called the same. Not given: the machine's host name."""
    labels: Annotated[dict[Label, Word], Field(max_length=WORDS_MAX)] = {}
    """What it has, such as gpu or zone. Units may ask for it by `host_labels`."""
    lease_seconds: Annotated[float, Field(ge=LEASE_MIN, le=LEASE_MAX)] = 15.0
    """A host that does not say for so long that it lives is given up, and others take over what it ran. One that cannot
    say so ends its units before that."""
    units_max: Annotated[int, Field(ge=0, le=UNITS_MAX)] = 1000
    """Units that it takes at most, besides those that are pinned to it."""
