"""Answers: data as JSON, and errors in one shape, with the status that fits their code."""

from typing import Any, Final

import msgspec
from starlette.responses import Response

from flyball.control.context import CommandError
from flyball.errors import FlyballError, StoreError

JSON: Final = "application/json"

STATUS: Final = {
    "bad_argument": 400,
    "bad_request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "bad_origin": 403,
    "bad_host": 403,
    "not_found": 404,
    "unknown_unit": 404,
    "unknown_host": 404,
    "unknown_verb": 404,
    "bad_method": 405,
    "too_long": 413,
    "bad_media": 415,
    "too_many_failures": 429,
    "busy": 503,
    "ending": 503,
    "failed": 503,
    "needs_daemon": 503,
    "no_answer": 503,
    "starting": 503,
    "tokens_refused": 503,
}
"""By the code of an error."""
CONFLICT: Final = 409
"""Of all other codes: it could be done, but not as things are now."""


def data_reply(data: Any, status: int = 200) -> Response:
    return json_reply(msgspec.json.encode(data), status)


def json_reply(encoded: bytes, status: int = 200) -> Response:
    return Response(encoded, status, media_type=JSON)


def error_reply(error: FlyballError, headers: dict[str, str] | None = None) -> Response:
    code = error.code if isinstance(error, CommandError) else "failed"
    # That the store cannot be written is no fault of who asks, and may be over soon.
    status = 503 if isinstance(error, StoreError) else STATUS.get(code, CONFLICT)
    said = {"error": {"code": code, "text": str(error), "remedy": error.remedy}}
    return Response(msgspec.json.encode(said), status, headers, media_type=JSON)
