"""How a command gets its answer: from the daemon, if one listens; otherwise from the store.

Looking makes no files: where nothing ran yet, an empty store in memory answers.
"""

import contextlib
import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import click

from flyball import app
from flyball.config import Settings, load
from flyball.config.build import rule_policies, unit_policies
from flyball.control.board import Board
from flyball.control.client import Client, connect
from flyball.control.commands import answer, find
from flyball.control.context import CommandError, Context, Right
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.runtimes.holder import is_gone

CHANNEL: Final = "cli"
LASTING: Final = ("pause", "stop", "kill")
"""Orders that mean something even where nothing ran yet."""


class Asking:
    """Asks one thing after another. Opened once; close it after use."""

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        self._env = env
        self.folder: Path = app.state_dir(env)
        self._client: Client | None = connect(self.folder)
        self._settings: Settings | None = None
        self._context: Context | None = None
        self.warning = ""
        """Why it is not the daemon that answers; nothing: it does, or there was none."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._client is not None:
            self._client.close()
        if self._context is not None:
            self._context.governor.store.close()

    @property
    def by_daemon(self) -> bool:
        """A daemon answers."""
        return self._client is not None

    @property
    def fresh(self) -> bool:
        """Nothing ran here yet."""
        return self._client is None and app.is_fresh(self.settings, self._env)

    def __call__(self, verb: str, /, **args: Any) -> Any:
        """The answer, as plain data. CommandError if it cannot be given."""
        if self._client is not None:
            try:
                return self._client.ask(verb, args)
            except CommandError as error:
                if error.code != "no_answer" or find(verb).right is not Right.LOOK:
                    raise
                self.warning = f"{error}; this is what the store says"
                click.echo(f"warning: {self.warning}", err=True)
                self._client.close()
                self._client = None
        if self._context is None and self.fresh:
            return self._first(verb, args)
        if self._context is None:
            self._context = self._context_of(app.open_governor(self.settings, self._env))
        return answer(self._context, verb, args)

    def renew(self) -> None:
        """Whoever asks again and again finds a daemon that came meanwhile."""
        if self._client is None:
            with contextlib.suppress(CommandError):
                self._client = connect(self.folder)
            self.warning = self.warning if self._client is None else ""

    def board(self) -> Board:
        """All units, live, as the store has them. FlyballError where nothing ran yet: looking makes no files."""
        if self._context is None and self.fresh:
            raise FlyballError("nothing ran here yet", remedy="Start something: `flyball up -d`, or `flyball run`.")
        if self._context is None:
            self._context = self._context_of(app.open_governor(self.settings, self._env))
        return Board(self._context.look)

    def record(self, verb: str, args: Mapping[str, Any], data: Any) -> None:
        """Put on the audit trail what was done without the daemon, and not by the store."""
        if self._context is None:
            self._context = self._context_of(app.open_governor(self.settings, self._env))
        self._context.trail.done(self._context, find(verb), args, data)

    def _first(self, verb: str, args: Mapping[str, Any]) -> Any:
        """The answer where nothing ran yet. A mistake makes no files; an order that stands makes them."""
        store = app.scratch_store()
        said = answer(self._context_of(Governor(self.settings.policies(), store)), verb, args)
        if verb not in LASTING or args.get("dry_run"):
            return said
        self._context = self._context_of(app.open_governor(self.settings, self._env))
        return answer(self._context, verb, args)

    @property
    def settings(self) -> Settings:
        """The settings that are found. A daemon has its own."""
        if self._settings is None:
            self._settings = load(env=self._env)
        return self._settings

    def _context_of(self, governor: Governor) -> Context:
        for unit in self.settings.units:
            governor.panel.put(unit.name, unit_policies(self.settings, unit))
        for rule, policies in rule_policies(self.settings, self.settings.rules).items():
            governor.panel.put(rule, policies)
        return Context(
            governor=governor,
            settings=self.settings,
            who=user_name(),
            channel=CHANNEL,
            gone=is_gone,
            log_of=self._log_of,
        )

    def _log_of(self, unit: str) -> Path:
        from flyball.runtimes.process.output import log_path  # noqa: PLC0415 - only whoever asks for a log pays for it

        return log_path(self.folder / "logs", unit)


def user_name() -> str:
    """Who runs this command."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
