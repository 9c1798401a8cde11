"""The composition root: the only module that knows every part, and the only one that picks a store."""

from collections.abc import Mapping
from pathlib import Path

from flyball.config import Settings
from flyball.control.tables import failures_view
from flyball.governor import Governor
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


def open_store(settings: Settings, env: Mapping[str, str]) -> SqliteStore:
    """The store of the state folder, made if it is not there. Close it after use."""
    views = {"failures": failures_view(settings.quarantine.max_failures_before_quarantine)}
    return SqliteStore(state_dir(env) / "state.db", views=views, journal_max=settings.journal.max_entries)


def open_governor(settings: Settings, env: Mapping[str, str]) -> Governor:
    """A governor over that store. Units that are not plain processes get their policies by `governor.panel.put`."""
    return Governor(settings.policies(), open_store(settings, env))


def scratch_store() -> Store:
    """A store that is gone with the process: for simulations, which must leave no trace."""
    return MemoryStore()
