"""The composition root: the only module that knows every part, and the only one that picks a store."""

import functools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flyball.config.plan import Plan
from flyball.control.tables import failures_view, postgres_failures_view
from flyball.core.name import IN_WORDS, is_name
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.store import Store
from flyball.store.address import without_password
from flyball.store.memory import MemoryStore
from flyball.store.sqlite import SqliteStore

if TYPE_CHECKING:  # a daemon needs neither, and has them in its memory if they are imported
    from flyball.config import Settings
    from flyball.guard import Guard


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


def is_fresh(settings: "Settings", env: Mapping[str, str]) -> bool:
    """Nothing ran here yet: there is no store, and to look makes none. A database that many share is never fresh."""
    return not settings.store and not (_folder(env) / "state.db").exists()


def store_name(settings: "Settings", env: Mapping[str, str]) -> str:
    """Where it is, for people."""
    return without_password(settings.store) if settings.store else str(_folder(env) / "state.db")


def open_store(settings: "Settings", env: Mapping[str, str]) -> Store:
    """The store of the settings, made if it is not there. Close it after use."""
    return _opener(settings, env)()


def _opener(settings: "Settings", env: Mapping[str, str]) -> Callable[[], Store]:
    """Opens the store of the settings: in this process, or in that of an agent."""
    quarantined_at = settings.quarantine.max_failures_before_quarantine
    return _opener_of(settings.store, quarantined_at, settings.journal.max_entries, env)


def _opener_of(url: str, quarantined_at: int, journal_max: int, env: Mapping[str, str]) -> Callable[[], Store]:
    if url:
        return functools.partial(_open_postgres, url, quarantined_at=quarantined_at, journal_max=journal_max)
    path = (_folder(env) / "state.db").absolute()
    return functools.partial(
        SqliteStore, path, views={"failures": failures_view(quarantined_at)}, journal_max=journal_max
    )


def _open_postgres(url: str, *, quarantined_at: int, journal_max: int) -> Store:
    try:
        from flyball.store.postgres import PostgresStore  # noqa: PLC0415 - only where the settings want it
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "psycopg":
            raise
        raise FlyballError(
            "the store is a PostgreSQL, and what speaks to it is not installed",
            remedy="Install it: `pip install 'flyball-governor[fleet]'`.",
        ) from None
    views = {"failures": postgres_failures_view(quarantined_at)}
    return PostgresStore(url, views=views, journal_max=journal_max)


def open_planned(plan: Plan, env: Mapping[str, str]) -> Governor:
    """The governor of a daemon, which has a plan and no settings."""
    return Governor(plan.policies, _opener_of(plan.store, plan.quarantined_at, plan.journal_max, env)())


def open_governor(settings: "Settings", env: Mapping[str, str]) -> Governor:
    """A governor over that store. Units that are not plain processes get their policies by `governor.panel.put`."""
    return Governor(settings.policies(), open_store(settings, env))


def open(  # noqa: A001 - it is flyball.open, as files are opened
    name: str | None = None,
    *,
    config: str | Path | None = None,
    settings: "Settings | None" = None,
    state_dir: str | Path | None = None,
    scratch: bool = False,
) -> "Guard":
    """A guard for the program at hand, on the settings that are found (or given) and the store of the state folder.

    `name` is the program's own; not given: the name of its script. `config` is the path of a settings file. With
    `scratch` nothing is kept: the store is gone with the process.
    """
    from flyball.config import load  # noqa: PLC0415 - only for programs that open a guard
    from flyball.guard import Guard  # noqa: PLC0415 - as above

    env = {**os.environ, **({"FLYBALL_STATE_DIR": str(state_dir)} if state_dir is not None else {})}
    if settings is None:
        settings = load(Path(config) if config is not None else None, env=env)
    name = name or _program()
    if not isinstance(name, str) or not is_name(name):
        raise FlyballError(f"{name!r} is no name for a program", remedy=f"A name has {IN_WORDS}.")
    if scratch:
        return Guard(settings, Governor(settings.policies(), scratch_store()), name=name)
    reopen = _opener(settings, env)
    governor = Governor(settings.policies(), reopen())
    return Guard(settings, governor, name=name, file=_folder(env).absolute() / CHANGES, reopen=reopen)


def _program() -> str:
    """The name of the script that runs."""
    stem = Path(sys.argv[0]).stem if sys.argv else ""
    return stem if is_name(stem) else "python"


def scratch_store() -> Store:
    """A store that is gone with the process: for simulations, which must leave no trace."""
    return MemoryStore()
