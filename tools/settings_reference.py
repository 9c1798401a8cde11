"""Writes docs/reference/settings.md from the table of settings. `make docs` runs it; a test sees when it is stale."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flyball.config.schema import json_schema

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "settings.md"

HEAD = """\
# Settings

This page is made from the table of settings by `make docs`.

Settings come from `flyball.yaml` (also found as `flyball.yml`, `framework.yaml`, or `[tool.flyball]` in
`pyproject.toml`), and from the environment as `FLYBALL_SECTION__KEY`, with values in YAML:
`FLYBALL_QUARANTINE__COOLDOWN_LADDER_SECONDS='[0.05]'`. The environment wins over the file, the file over the defaults.
`flyball config --origin` shows every value in force and where it came from; `flyball check` says what is wrong, and
which thresholds can never be reached. With this first line an editor knows all keys (the file is what `flyball schema`
prints):

```yaml
# yaml-language-server: $schema=flyball.schema.json
```

No safeguard can be switched off; its numbers can be widened.
"""


def page() -> str:
    """The whole page."""
    root = json_schema()
    parts = [HEAD]
    for name, section in root["properties"].items():
        parts.extend(_section(root, name, _resolved(root, section)))
    return "\n".join(parts)


def _section(root: Mapping[str, Any], name: str, section: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{_sentence(section)}\n"
    each = section.get("additionalProperties")
    if isinstance(each, dict):
        section = _resolved(root, each)
        yield f"For each name: {_sentence(section)}\n"
    properties = section.get("properties")
    if not properties:
        return
    yield "| key | default | what it does |"
    yield "|---|---|---|"
    nested = []
    for key, value in properties.items():
        resolved = _resolved(root, value)
        if "Another name of" in _sentence(value):
            continue
        if resolved.get("properties"):
            nested.append((f"{name}.{key}", resolved))
            continue
        each = resolved.get("additionalProperties")
        if isinstance(each, dict) and _resolved(root, each).get("properties"):
            nested.append((f"{name}.{key}", resolved))
        yield f"| `{key}` | `{_default(value)}` | {_sentence(value)} |"
    yield ""
    for full, part in nested:
        yield from _section(root, full, part)


def _resolved(root: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    """The value with what its reference points to; what it says itself wins."""
    choices = [value, *value.get("anyOf", ())]
    pointer = next((choice["$ref"] for choice in choices if "$ref" in choice), None)
    if pointer is None:
        return value
    target: Any = root
    for part in pointer.removeprefix("#/").split("/"):
        target = target[part]
    return {**target, **{key: said for key, said in value.items() if key != "$ref"}}


def _default(value: Mapping[str, Any]) -> str:
    default = value.get("default")
    return "none" if default is None else str(default)


def _sentence(value: Mapping[str, Any]) -> str:
    return " ".join(str(value.get("description", "")).split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} is up to date\n")
