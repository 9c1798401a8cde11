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
    shown: dict[str, str] = {}
    for name, section in root["properties"].items():
        parts.extend(_section(root, name, section, shown))
    return "\n".join(parts)


def _section(root: Mapping[str, Any], name: str, given: Mapping[str, Any], shown: dict[str, str]) -> Iterator[str]:
    """A section, and those in it. `shown` are the kinds of sections that were there before, and where."""
    section = _resolved(root, given)
    yield f"## {name}\n"
    yield f"{_sentence(section)}\n"
    is_list = "items" in section
    each = section["items"] if is_list else section.get("additionalProperties")
    if isinstance(each, dict):
        given, section = each, _resolved(root, each)
        said = _sentence(section)
        yield f"{'Each' if is_list else 'For each name'}: {said}\n"
    properties = section.get("properties")
    if not properties:
        return
    kind = _reference(given)
    if kind in shown:
        yield f"Its keys are those of `{shown[kind]}`.\n"
        return
    if kind:
        shown[kind] = name
    yield "| key | default | what it does |"
    yield "|---|---|---|"
    nested = []
    for key, value in properties.items():
        resolved = _resolved(root, value)
        if "Another name of" in _sentence(value):
            continue
        each = resolved.get("additionalProperties") or resolved.get("items")
        has_keys = isinstance(each, dict) and bool(_resolved(root, each).get("properties"))
        if resolved.get("properties") or has_keys:
            nested.append((f"{name}.{key}", value))
        if not resolved.get("properties"):
            yield f"| `{key}` | `{_default(value)}` | {_sentence(value)} |"
    yield ""
    for full, part in nested:
        yield from _section(root, full, part, shown)


def _reference(value: Mapping[str, Any]) -> str:
    choices = [value, *value.get("anyOf", ())]
    return next((choice["$ref"] for choice in choices if "$ref" in choice), "")


def _resolved(root: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    """The value with what its reference points to; what it says itself wins."""
    pointer = _reference(value)
    if not pointer:
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
