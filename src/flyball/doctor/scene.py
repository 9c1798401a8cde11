"""Where a doctor looks: the environment, the settings and the state folder, each read once, and none of them changed.

Nothing here judges. What cannot be read is kept as that: a doctor is called when things are broken.
"""

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flyball import app
from flyball.config import Settings, load
from flyball.control.client import connect
from flyball.doctor.store_seen import Seen, look
from flyball.errors import FlyballError, SettingsError

if TYPE_CHECKING:
    from flyball.control.client import Client

PING_MAX: Final = 5.0
"""Seconds for a daemon to say that it lives. It takes milliseconds."""


class Scene:
    """What there is."""

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        config: Path | None = None,
        cwd: Path | None = None,
        send: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`config` is the file of the settings; not given: as they are found from `cwd`. `send`: test messages may be
        sent. `clock` has the present, in seconds."""
        self.env, self.cwd, self.send, self.clock = env, cwd or Path.cwd(), send, clock
        self.config = config
        self.folder = (self.cwd / app.state_dir(env)).absolute()
        """The state folder, which need not be there."""

    @cached_property
    def _loaded(self) -> tuple[Settings | None, list[str]]:
        try:
            return load(self.config, env=self.env, cwd=self.cwd), []
        except SettingsError as error:
            return None, error.problems
        except FlyballError as error:
            return None, [f"{error}. {error.remedy}".rstrip(". ") + "."]

    @property
    def settings(self) -> Settings | None:
        """The settings in force; None: they are wrong."""
        return self._loaded[0]

    @property
    def problems(self) -> list[str]:
        """What is wrong with them."""
        return self._loaded[1]

    @cached_property
    def fallback(self) -> Settings:
        """The settings in force; the defaults where they are wrong: what does not hang on them can be looked at."""
        return self.settings or Settings()

    @cached_property
    def store(self) -> Seen:
        """What is kept in the store."""
        return look(self.fallback, self.folder)

    @cached_property
    def ping(self) -> Mapping[str, Any] | FlyballError | None:
        """What the daemon of the state folder says of itself; why it says nothing; None: there is none."""
        try:
            client = connect(self.folder)
            if client is None:
                return None
            with client:
                said: Mapping[str, Any] = client.ask("ping", timeout=PING_MAX)
                return said
        except FlyballError as error:
            return error

    def connect(self) -> "Client | None":
        """The daemon, if it answers."""
        return connect(self.folder) if isinstance(self.ping, Mapping) else None
