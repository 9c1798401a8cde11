"""Writes docs/reference/api.md from the description of the API that a daemon serves itself (`GET /openapi.json`).

    python tools/api_reference.py

`make docs` runs it; a test sees when the page is stale.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from flyball.control.web.openapi import document

PAGE: Final = Path(__file__).parent.parent / "docs" / "reference" / "api.md"

HEAD: Final = """\
# HTTP API

This page is made by `make docs` from the description that a daemon serves at `/openapi.json`. How to come in, to ask
and to watch: [Use the page and its API](../how-to/http-api.md).

- A program sends `Authorization: Bearer TOKEN`. The role that it needs stands beside each path.
- Looks are GET, with arguments in the query (a list is repeated). Everything else is POST, with a JSON object.
- Instants are Unix seconds, lengths are seconds, money is in millionths of a dollar.
- Each verb is the same here, [on the socket](commands.md#the-socket) and on the command line; what it answers is
  described there. `GET /metrics` is for Prometheus: [metrics](metrics.md).
"""
ROLES: Final = {
    "": "No role is needed for these: the first two answer everybody, the others whoever has a token.",
    "look": "For every token: they change nothing.",
    "operate": "For tokens with the role `operate` or `admin`.",
    "admin": "For tokens with the role `admin`: they cost money, or concern the daemon itself.",
}
"""The roles, in the order of the page. Without one: what is no verb."""


def page() -> str:
    """The whole page."""
    described = document()
    parts = [HEAD]
    for role, about in ROLES.items():
        parts += [f"## {role.capitalize() if role else 'To begin with'}", "", f"{about}", ""]
        for path, methods in described["paths"].items():
            for method, call in methods.items():
                if role in (call.get("tags") or [""]):
                    parts.extend(_call(path, method, call))
    parts.extend(_errors(described["components"]))
    parts.extend(_shapes(described["components"]["schemas"]))
    return "\n".join(parts).rstrip("\n") + "\n"


def _call(path: str, method: str, call: Mapping[str, Any]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`"
    yield ""
    yield _text(call["summary"])
    yield ""
    rows = [(one["name"], one["schema"], one.get("description", "")) for one in call.get("parameters", ())]
    body = call.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    rows += [(name, schema, schema.get("description", "")) for name, schema in body.get("properties", {}).items()]
    if rows:
        yield from _table("argument", rows)
    answer = call["responses"]["200"]["content"].get("application/json", {}).get("schema", {})
    if "$ref" in answer:
        yield f"Answers with a {_kind(answer)}."
        yield ""


def _table(head: str, rows: list[tuple[str, Mapping[str, Any], str]]) -> Iterator[str]:
    """Names, what each is, and what is said about it, if anything is said about any of them."""
    told = [(name, _kind(schema), f"{_text(about)}{_not_given(schema)}") for name, schema, about in rows]
    columns = 3 if any(about for _, _, about in told) else 2
    yield f"| {' | '.join((head, 'is', '')[:columns])} |"
    yield "|---" * columns + "|"
    for name, kind, about in told:
        yield f"| {' | '.join((f'`{name}`', kind, about)[:columns])} |"
    yield ""


def _not_given(schema: Mapping[str, Any]) -> str:
    default = schema.get("default")
    return f" Not given: `{default}`." if default not in (None, "", False) else ""


def _kind(schema: Mapping[str, Any]) -> str:
    """What kind of value it is, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    kinds = schema.get("type", "anything")
    named = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "null"]
    if named == ["array"]:
        return f"list of {_kind(schema.get('items', {}))}"
    return " or ".join(named)


def _errors(components: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## What is refused", "", 'Always with `{"error": {"code", "text", "remedy"}}`.', "")
    yield from ("| status | |", "|---|---|")
    for status, response in components["responses"].items():
        yield f"| {status} | {_text(response['description'])} |"
    yield ""


def _shapes(schemas: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## Shapes", "", "What answers are made of. Keys are added, not renamed or taken away.", "")
    for name, schema in sorted(schemas.items()):
        yield from (f"### {name}", "")
        if schema.get("description"):
            yield from (_text(schema["description"]), "")
        if "enum" in schema:
            yield from (f"One of {_kind(schema)}.", "")
        rows = [(key, value, value.get("description", "")) for key, value in schema.get("properties", {}).items()]
        if rows:
            yield from _table("key", rows)


def _text(said: str) -> str:
    return " ".join(said.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} is up to date\n")
