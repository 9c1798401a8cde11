"""What comes in with a request: bodies within their bounds, and arguments of verbs from a query or from JSON."""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request

from flyball.control.commands import LINE_MAX
from flyball.control.context import Argument, Command, CommandError

BODY_MAX: Final = LINE_MAX
"""Bytes, as on the socket."""
JSON_TYPE: Final = re.compile(r"application/json\s*(;.*)?", re.IGNORECASE)
WORDS: Final = {"true": True, "1": True, "false": False, "0": False}


async def body_of(request: Request) -> bytes:
    """All of it. CommandError if it is too long."""
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > BODY_MAX:
                text = f"a body has at most {BODY_MAX} bytes"
                raise CommandError("too_long", text, remedy="Name fewer units in one request.")
            parts.append(part)
    except ClientDisconnect:
        raise CommandError("bad_request", "the request came only in part", remedy="Send it again.") from None
    return b"".join(parts)


async def json_of(request: Request) -> dict[str, Any]:
    """The object of arguments in the body; nothing there: none. CommandError if it is something else."""
    body = await body_of(request)
    if not body:
        return {}
    if not JSON_TYPE.fullmatch(request.headers.get("content-type", "")):
        text = "the body has to be JSON, and to say so"
        raise CommandError("bad_media", text, remedy="Send the header `Content-Type: application/json`.")
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CommandError("bad_request", f"the body is not JSON: {error}", remedy="Check it.") from None
    if not isinstance(found, dict):
        remedy = 'Send an object, such as {"units": ["web"]}.'
        raise CommandError("bad_request", "the body has to be an object of arguments", remedy=remedy)
    return found


def query_of(request: Request, command: Command) -> Mapping[str, Any]:
    """Arguments from the query, each in its own kind. What the command does not know stays as it is: it says so."""
    known = {argument.name: argument for argument in command.arguments}
    args: dict[str, Any] = {}
    for name in request.query_params:
        given = request.query_params.getlist(name)
        argument = known.get(name)
        if argument is not None and argument.kind is list:
            args[name] = given
        elif len(given) > 1:
            raise _wrong(command, name, "given once")
        else:
            args[name] = given[0] if argument is None else _value(command, argument, given[0])
    return args


def _value(command: Command, argument: Argument, text: str) -> Any:
    kind = argument.kind
    if kind is bool:
        if text.lower() not in WORDS:
            raise _wrong(command, argument.name, "true or false")
        return WORDS[text.lower()]
    if kind is int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            raise _wrong(command, argument.name, "a whole number")
        return int(text)
    if kind is float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise _wrong(command, argument.name, "a number")
        return number
    if kind is object:
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise _wrong(command, argument.name, "JSON") from None
    return text


def _wrong(command: Command, name: str, wanted: str) -> CommandError:
    text = f"`{command.name}`: {name} has to be {wanted}"
    return CommandError("bad_argument", text, remedy="Give it as that.")
