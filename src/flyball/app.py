"""The composition root: the only module that knows every part, and the only one that picks a store."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from flyball.config import Settings
from flyball.config.layers import load
from flyball.control.tables import failures_view
from flyball.core.name import is_name
from flyball.governor import Governor
from flyball.guard import Guard
from flyball.store import Store
from flyball.store.memory import MemoryStore
from flyball.store.sqlite import SqliteStore


def state_dir(env: Mapping[str, str]) -> Path:
    """Where states are kept: FLYBALL_STATE_DIR, or a folder of ours where the system keeps states."""
    if env.get("FLYBALL_STATE_DIR"):
        return Path(env["FLYBALL_STATE_DIR"]).expanduser()
    # The XDG standard: a path that is not absolute is to be ignored.
    if Path(env.get("XDG_STATE_HOME", "")).is_absolute():
        return Path(env["XDG_STATE_HOME"]) / "flyball"
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    return home / ".local" / "state" / "flyball"


_folder = state_dir

CHANGES: Final = "state.db-wal"
"""The file in the state folder that every commit changes."""


def open_store(settings: Settings, env: Mapping[str, str]) -> SqliteStore:
    """The store of the state folder, made if it is not there. Close it after use."""
    views = {"failures": failures_view(settings.quarantine.max_failures_before_quarantine)}
    return SqliteStore(_folder(env) / "state.db", views=views, journal_max=settings.journal.max_entries)


def open_governor(settings: Settings, env: Mapping[str, str]) -> Governor:
    """A governor over that store. Units that are not plain processes get their policies by `governor.panel.put`."""
    return Governor(settings.policies(), open_store(settings, env))


def open(  # noqa: A001 - it is flyball.open, as files are opened
    name: str | None = None,
    *,
    config: str | Path | None = None,
    settings: Settings | None = None,
    state_dir: str | Path | None = None,
    scratch: bool = False,
) -> Guard:
    """A guard for the program at hand, on the settings that are found (or given) and the store of the state folder.

    `name` is the program's own; not given: the name of its script. `config` is the path of a settings file. With
    `scratch` nothing is kept: the store is gone with the process.
    """
    env = {**os.environ, **({"FLYBALL_STATE_DIR": str(state_dir)} if state_dir is not None else {})}
    if settings is None:
        settings = load(Path(config) if config is not None else None, env=env)
    store = scratch_store() if scratch else open_store(settings, env)
    changes = None if scratch else _folder(env) / CHANGES
    return Guard(settings, Governor(settings.policies(), store), name=name or _program(), file=changes)


def _program() -> str:
    """The name of the script that runs."""
    stem = Path(sys.argv[0]).stem if sys.argv else ""
    return stem if is_name(stem) else "python"


def scratch_store() -> Store:
    """A store that is gone with the process: for simulations, which must leave no trace."""
    return MemoryStore()
