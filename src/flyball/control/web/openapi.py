"""The description of the API, made from the registry of verbs and the shapes of answers: so it agrees with them."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

import msgspec

from flyball.control.board import Frame
from flyball.control.context import Argument, Command
from flyball.control.shapes import FleetView, UnitView
from flyball.control.web.bodies import BODY_MAX
from flyball.control.web.verbs import PREFIX, method_of, served

KINDS: Final[Mapping[type, dict[str, Any]]] = {
    str: {"type": "string"},
    int: {"type": "integer", "minimum": -(10**17), "maximum": 10**17},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    list: {"type": "array", "items": {"type": "string"}},
    object: {},
}
"""Of arguments."""
ANSWERS: Final = {"unit": "UnitView"}
"""Verbs whose answer is one of the shapes. All others answer with an object of such."""
ERRORS: Final = {
    "400": "What was given is wrong.",
    "401": "No token, or none that is known.",
    "403": "Not with this role, or not from that page.",
    "404": "There is none of that name.",
    "409": "Not as things are now.",
    "413": f"More than {BODY_MAX} bytes.",
    "415": "The body is not JSON, or does not say so.",
    "429": "Too many attempts to come in failed.",
    "503": "Not now: the daemon is starting, ending or busy, or its disk is full.",
}
ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "text", "remedy"],
            "properties": {
                "code": {"type": "string", "description": "For machines; it does not change."},
                "text": {"type": "string", "description": "What is wrong."},
                "remedy": {"type": "string", "description": "What to do."},
            },
        }
    },
}


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    _, shapes = msgspec.json.schema_components((Frame, UnitView, FleetView), ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "flyball",
            "version": version("flyball-governor"),
            "description": "Instants are Unix seconds; money is in millionths of a dollar. Every verb has the same "
            "name, rights and answer here, on the command line and on the socket.",
        },
        "security": [{"token": []}],
        "paths": {**_own(), **{f"{PREFIX}{name}": _verb(command) for name, command in served().items()}},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**shapes, "Error": ERROR},
            "responses": {
                status: {"description": text, "content": {"application/json": {"schema": _ref("Error")}}}
                for status, text in ERRORS.items()
            },
        },
    }


def _verb(command: Command) -> dict[str, Any]:
    method = method_of(command)
    shape = _ref(ANSWERS[command.name]) if command.name in ANSWERS else {"type": "object"}
    said: dict[str, Any] = {
        "operationId": command.name,
        "summary": command.help,
        "description": f"Needs the role `{command.right.name.lower()}`.",
        "tags": [command.right.name.lower()],
        "responses": _responses(shape, "400", "401", "403", "404", "409", "429", "503"),
    }
    if method == "GET":
        said["parameters"] = [_parameter(argument) for argument in command.arguments]
        return {"get": said}
    said["responses"] |= _refused("413", "415")
    body = {
        "type": "object",
        "additionalProperties": False,
        "properties": {one.name: _property(one) for one in command.arguments},
    }
    said["requestBody"] = {"required": False, "content": {"application/json": {"schema": body}}}
    return {"post": said}


def _parameter(argument: Argument) -> dict[str, Any]:
    schema = dict(KINDS[argument.kind])
    if argument.default is not None:
        schema["default"] = argument.default
    more = {"style": "form", "explode": True} if argument.kind is list else {}
    return {"name": argument.name, "in": "query", "description": argument.help, "schema": schema, **more}


def _property(argument: Argument) -> dict[str, Any]:
    kind = KINDS[argument.kind]
    schema = {**kind, "type": [kind["type"], "null"]} if "type" in kind else dict(kind)
    if argument.default is not None:
        schema["default"] = argument.default
    return {**schema, "description": argument.help}


def _own() -> dict[str, Any]:
    """What is no verb."""
    events = {"description": "Events, until one of both goes away.", "content": {"text/event-stream": {}}}
    after = {
        "name": "after",
        "in": "query",
        "description": "Entries with a higher number than this, as far as they are kept; not given: what is new.",
        "schema": {"type": "integer", "minimum": 0, "maximum": 10**17},
    }
    well = {"type": "object"}
    return {
        "/health": {"get": _look("health", "Whether somebody is there.", well, security=[])},
        "/health/ready": {"get": _look("ready", "Whether all units are begun.", well, "503", security=[])},
        f"{PREFIX}me": {"get": _look("me", "Who you are, and whom you ask.", well, "401", "403", "429", "503")},
        f"{PREFIX}board": {
            "get": _look("board", "All units, in one line each.", _ref("Frame"), "401", "403", "429", "503")
        },
        f"{PREFIX}board/stream": {
            "get": {
                "operationId": "watch_board",
                "summary": "The board, and what changes: events `board` (a Frame) and `alive`.",
                "responses": {"200": events, **_refused("401", "403", "429", "503")},
            }
        },
        f"{PREFIX}journal/stream": {
            "get": {
                "operationId": "watch_journal",
                "summary": "The journal: events `entry` (its id is the entry's number), `gap` and `alive`.",
                "parameters": [after],
                "responses": {"200": events, **_refused("400", "401", "403", "429", "503")},
            }
        },
    }


def _look(name: str, summary: str, shape: dict[str, Any], *errors: str, **more: Any) -> dict[str, Any]:
    return {"operationId": name, "summary": summary, "responses": _responses(shape, *errors), **more}


def _responses(shape: dict[str, Any], *errors: str) -> dict[str, Any]:
    return {"200": {"description": "The answer.", "content": {"application/json": {"schema": shape}}}} | _refused(
        *errors
    )


def _refused(*statuses: str) -> dict[str, Any]:
    return {status: {"$ref": f"#/components/responses/{status}"} for status in statuses}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}
