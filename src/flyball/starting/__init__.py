"""The first settings file: what there is in a folder that flyball could look after, and a file that offers it.

Nothing that is found is started, executed or trusted: it becomes comments, which a person reads before using them.
"""

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from flyball import app
from flyball.config import load
from flyball.config.layers import FILES
from flyball.errors import FlyballError
from flyball.starting import agents, files
from flyball.starting.agents import ON_PATH
from flyball.starting.found import Found, Offer, named
from flyball.starting.text import text_of
from flyball.starting.writing import Written, check, write

__all__ = ["ON_PATH", "Found", "Offer", "Written", "check", "survey", "text_of", "write"]


def survey(folder: Path, env: Mapping[str, str], which: Callable[[str], str | None] | None = None) -> Found:
    """What there is: agents on PATH, what files of the folder start, graphs, settings, and states of earlier."""
    found = which or partial(shutil.which, path=env.get("PATH"))
    offers = [*agents.find(found), *files.find(folder), *files.find_services(env)]
    settings = tuple(name for name in FILES if _has_settings(folder / name))
    return Found(
        offers=named(offers),
        notes=(*_unread(folder), *_graphs(folder), *_elsewhere(folder), *_states(env)),
        settings=settings,
        sources=tuple(dict.fromkeys(offer.source for offer in offers)),
    )


def _has_settings(file: Path) -> bool:
    try:
        return file.is_file() and (file.suffix != ".toml" or b"tool.flyball" in file.read_bytes())
    except OSError:
        return False


def _unread(folder: Path) -> list[str]:
    """What is a program, and is not run only to be looked into."""
    names = [
        f"ecosystem.config.{end}" for end in ("js", "cjs", "mjs") if (folder / f"ecosystem.config.{end}").is_file()
    ]
    return [f"{name} is a program, so it was not read: name its apps here by hand." for name in names]


def _graphs(folder: Path) -> list[str]:
    if not (folder / "langgraph.json").is_file():
        return []
    return ["langgraph.json: put its graphs under five layers in their own program: flyball.integrations.langgraph."]


def _elsewhere(folder: Path) -> list[str]:
    """Settings that flyball reads if it is told where they are."""
    file = folder / ".apex" / "config.yaml"
    if not file.is_file():
        return []
    try:
        load(file, env={})
    except FlyballError:
        return [".apex/config.yaml has keys that flyball does not know: copy those that it knows."]
    return [".apex/config.yaml can be read by flyball as it is: FLYBALL_CONFIG=.apex/config.yaml."]


def _states(env: Mapping[str, str]) -> list[str]:
    folder = app.state_dir(env)
    return [f"States of earlier runs are in {folder}: `flyball status`."] if (folder / "state.db").exists() else []
