"""The JSON Schema of the settings, for editors, and what it allows, in words, for people."""

from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from flyball.config.names import keys_of
from flyball.config.rule_settings import OR_TEXT
from flyball.config.settings import Settings
from flyball.config.unit_settings import LENGTH_WORDS
from flyball.core.time import SECOND

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema of a settings file. `load` is stricter where a schema cannot say more: a value that contradicts
    another one, an amount finer than a millionth, a 7.0 where a whole number should be."""
    schema = Settings.model_json_schema()
    _complete(Settings, schema, schema["$defs"], set())
    return {"$schema": DIALECT, **schema, "title": "flyball settings"}


def _complete(
    section: type[BaseModel],
    definition: dict[str, Any],
    definitions: dict[str, dict[str, Any]],
    done: set[type[BaseModel]],
) -> None:
    """Put in what the table knows and the schema does not: other names of keys, that a section may be empty, and that
    some may be a text instead."""
    if section in done:
        return
    done.add(section)
    properties = definition["properties"]
    for key in keys_of(section):
        known = properties[key.name]
        if key.section is not None:
            inner = definitions[key.section.__name__]
            _complete(key.section, inner, definitions, done)
            if "$ref" in known:
                known |= {"anyOf": [{"$ref": known.pop("$ref")}, {"type": "null"}]}
            elif key.by_name:
                known["type"] = ["object", "null"]
            known.setdefault("description", inner["description"])
        if known.pop(OR_TEXT, False):
            known["anyOf"].append({"type": "string"})
        if known.get("$comment") == LENGTH_WORDS:
            known["default"] /= SECOND
        known.pop("also", None)
        for name in key.also:
            properties[name] = {**known, "description": f"Another name of {key.name}."}


@cache
def _bare() -> dict[str, Any]:
    """Made once: a file may have a hundred wrong values."""
    return Settings.model_json_schema()


def allowed(path: tuple[str | int, ...]) -> str:
    """What may stand at a path, in words."""
    schema = _bare()
    here: dict[str, Any] = schema
    for step in path:
        if isinstance(step, int):
            here = here.get("items", here)
        else:
            here = here.get("properties", {}).get(step) or here.get("additionalProperties") or {}
        here = next((kind for kind in here.get("anyOf", ()) if "$ref" in kind), here)
        if "$ref" in here:
            here = schema["$defs"][here["$ref"].rpartition("/")[2]]
    return _words(here)


def _words(schema: dict[str, Any]) -> str:
    match schema:
        case {"$comment": str(words)}:
            return words
        case {"$ref": str(reference)}:
            return _words(_bare()["$defs"][reference.rpartition("/")[2]])
        case {"anyOf": [first, {"type": "null"}]}:
            return f"{_words(first)}, or null"
        case {"enum": list(choices)}:
            return " or ".join(choices)
        case {"const": True}:
            return "true"
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "integer"}:
            return f"a whole number {_range(schema)}"
        case {"type": "number"}:
            return f"a number {_range(schema)}"
        case {"type": "array", "items": items, "maxItems": most}:
            return f"a list of at most {most}, each {_words(items)}"
        case {"type": "object", "properties": properties}:
            return f"a section with {', '.join(properties)}"
        case {"type": "object", "additionalProperties": value}:
            return f"names, each with {_words(value)}"
    raise AssertionError(f"a kind of setting that nobody put into words: {schema}")


def _range(schema: dict[str, Any]) -> str:
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    return " and ".join(f"{word} {_number(schema[bound])}" for bound, word in words.items() if bound in schema)


def _number(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")
