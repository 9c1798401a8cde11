"""Settings of the page and its API."""

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from flyball.config.plan import OFF
from flyball.config.section import Section

HOSTS_MAX: Final = 16
"""Names of one machine."""


def http_address(given: object) -> object:
    """A host and a port, or off. Where it is read as YAML has it, off is false."""
    if given is None:
        return None
    if given is False or given == OFF:
        return OFF
    host, _, port = given.rpartition(":") if isinstance(given, str) else ("", "", "")
    if not host or not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535 or re.search(r"[\s/@]", host):
        raise ValueError("should be a host and a port, such as 127.0.0.1:8910 (port 0: any free one), or off")
    return f"{host}:{port}"


HttpListen = Annotated[
    str | None,
    BeforeValidator(http_address),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string"}, {"type": "null"}, {"const": False}],
            "$comment": "a host and a port, such as 127.0.0.1:8910, or off",
        }
    ),
]
Host = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$",
        json_schema_extra={"$comment": "a name, without a port"},
    ),
]


class Http(Section):
    """The page and its API. Whoever comes in needs a token: `flyball token`."""

    listen: HttpListen = None
    """Where they are: a host and a port, or off. Not given: 127.0.0.1:8910, or any free port if that is taken."""
    hosts: Annotated[tuple[Host, ...], Field(strict=False, max_length=HOSTS_MAX)] = ()
    """Names by which browsers reach it beside localhost and its number: through a proxy, or from other machines."""
