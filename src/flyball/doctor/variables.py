"""Variables that begin with FLYBALL_: whether each of them means something. One with a slip in it says nothing."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from flyball.config import json_schema
from flyball.config.layers import BETWEEN, PREFIX
from flyball.control.text import counted
from flyball.doctor.finding import Finding, ok, warning
from flyball.doctor.scene import Scene

OURS: Final = frozenset(("FLYBALL_STATE_DIR", "FLYBALL_CONFIG", "FLYBALL_STORE", "FLYBALL_CHROMIUM"))
"""Those that people set, beside the settings."""
FOR_UNITS: Final = frozenset(
    (
        "FLYBALL_UNIT",
        "FLYBALL_RUN",
        "FLYBALL_SESSION",
        "FLYBALL_CHECKPOINT",
        "FLYBALL_CHECKPOINT_ID",
        "FLYBALL_RESUMED",
        "FLYBALL_STEP",
        "FLYBALL_STEPPED",
        "FLYBALL_SPENT",
        "FLYBALL_PROGRESS",
        "FLYBALL_PAUSE",
        "FLYBALL_FIRING",
        "FLYBALL_ATTEMPT",
        "FLYBALL_TRIGGER",
        "FLYBALL_DUMP_SIGNAL",
        "FLYBALL_RUN_VARIABLES",
    )
)
"""Those that a unit finds, or reads: this command may be called by one."""
INNER: Final = frozenset(
    (
        "FLYBALL_GUARDIAN",
        "FLYBALL_PLAN",
        "FLYBALL_ANEW",
        "FLYBALL_READY",
        "FLYBALL_WITHOUT_SUBREAPER",
        "FLYBALL_SCRATCH",
        "FLYBALL_DUMP",
        "FLYBALL_COMPLETE",
        "FLYBALL_KILLS",
        "FLYBALL_SEED",
        "FLYBALL_FLEET_SEEDS",
    )
)
"""Those of our own, and of tests."""


def check(scene: Scene) -> Iterator[Finding]:
    """Settings with a slip in them are found as settings: they say FLYBALL_SECTION__KEY."""
    names = [name for name in scene.env if name.startswith(PREFIX)]
    yield from judge(names, as_variables())
    folder = scene.env.get("FLYBALL_STATE_DIR", "")
    if folder and not folder.startswith(("/", "~")):
        text = f"FLYBALL_STATE_DIR is {folder!r}: each folder that a command is called in has another state"
        yield warning(text, "Give the whole path.")


def judge(names: Sequence[str], settings: Sequence[str]) -> Iterator[Finding]:
    """`settings` are the variables of all settings, for who forgot an underscore."""
    known = OURS | FOR_UNITS | INNER
    unknown = [name for name in names if BETWEEN not in name.removeprefix(PREFIX) and name not in known]
    for name in sorted(unknown):
        bare = {known.removeprefix(PREFIX): known for known in OURS}
        near = _meant(name, settings) or [bare[one] for one in get_close_matches(name.removeprefix(PREFIX), bare, n=1)]
        hint = f"did you mean {near[0]}?" if near else "nothing reads it"
        yield warning(f"{name} names nothing; {hint}", "Correct its spelling, or unset it.")
    if not unknown:
        of_settings = sum(BETWEEN in name.removeprefix(PREFIX) for name in names)
        yield ok(f"{counted(len(names), 'variable')} with {PREFIX}, {of_settings} of them settings")


def _meant(name: str, settings: Sequence[str]) -> list[str]:
    """The setting that it would be if underscores did not count."""
    bare = name.replace("_", "")
    return [setting for setting in settings if setting.replace("_", "") == bare]


@lru_cache(maxsize=1)
def as_variables() -> tuple[str, ...]:
    """All settings of sections, as variables."""
    schema = json_schema()
    return tuple(_walk(schema, schema, ()))


def _walk(schema: Mapping[str, Any], part: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    target = part
    for choice in (part, *part.get("anyOf", ())):
        if "$ref" in choice:
            target = schema["$defs"][choice["$ref"].rsplit("/", 1)[1]]
    for key, value in target.get("properties", {}).items():
        yield from _walk(schema, value, (*path, key))
    if "properties" not in target and len(path) > 1:
        yield PREFIX + BETWEEN.join(path).upper()
