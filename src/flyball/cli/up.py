"""`flyball up`, `flyball down` and `flyball reload`: the daemon, from outside."""

import logging
import logging.handlers
import os
import select
import subprocess
import sys
import tempfile
import time
from io import TextIOWrapper
from pathlib import Path
from typing import Final

import click

from flyball import app, daemon
from flyball.cli import FAILED, FINE
from flyball.control.client import connect
from flyball.core.time import parse_span
from flyball.errors import FlyballError
from flyball.runtimes import guardian, kept

LOG: Final = "daemon.log"
ERRORS: Final = "daemon.err"
"""What the guardian, and a daemon that cannot start, have to say. Made anew by each `up -d`."""
LOG_BYTES_MAX: Final = 5 * 1024 * 1024
LOG_FILES: Final = 3
"""The log and those before it: 20 MB at most."""
READY_MAX: Final = 60.0
"""Seconds for a daemon to be ready. It takes a fraction of one; a large store on a slow disk takes a few."""
ERRORS_BYTES_MAX: Final = 4096
"""Of what it said before it ended, that much is repeated."""
LOOK: Final = 0.02
"""Seconds between looks at a process that is about to be gone, where the kernel has no event for it."""

EXAMPLES: Final = """\
\b
Examples:
  flyball up -d                      run all units of flyball.yaml in the background
  flyball up --config my.yaml        in the foreground, one line for each decision
  flyball reload                     apply what changed in the file
  flyball down                       end all units, then the daemon
"""


@click.command(epilog=EXAMPLES)
@click.option("-d", "--detach", is_flag=True, help="Run in the background; return when it is ready.")
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings; not given: as they are found."
)
def up(detach: bool, config: Path | None) -> int:
    """Start the daemon and all units of the settings.

    Ctrl-C or SIGTERM ends all units in order, SIGHUP reloads the settings. When the daemon is killed, its units are
    ended with it, except those with `on_supervisor_death: keep`.
    """
    if guardian.is_guarded(os.environ):
        return _be_the_daemon(config)
    settings = daemon.settings_to_run(config, os.environ)
    for warning in settings.warnings():
        click.echo(f"warning: {warning}", err=True)
    folder = app.state_dir(os.environ)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    argv = [sys.executable, "-P", "-m", "flyball", "up"]
    if config is not None:
        argv += ["--config", str(config.absolute())]
    places = {"kept": str(folder / kept.FOLDER), "lock": str(folder / daemon.LOCK)}
    if not detach:
        guardian.guarded(argv, **places)
    return _detach(guardian.command(argv, **places), folder)


def _be_the_daemon(config: Path | None) -> int:
    env = dict(os.environ)
    # Neither is for the units.
    detached = os.environ.pop(daemon.READY, None) is not None
    handler: logging.Handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("flyball: %(message)s"))
    if detached:
        handler = _LogFile(app.state_dir(env) / LOG, maxBytes=LOG_BYTES_MAX, backupCount=LOG_FILES)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("flyball").setLevel(logging.INFO)
    return daemon.run(config, env)


class _LogFile(logging.handlers.RotatingFileHandler):
    """A log that nobody else can read."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return TextIOWrapper(os.fdopen(descriptor, "ab"), encoding="utf-8")


def _detach(argv: list[str], folder: Path) -> int:
    """Start it in a session of its own, and wait until it is ready or says why not."""
    reading, writing = os.pipe()
    # Of its own until it is ready: it may turn out that another daemon runs here, which has this file already.
    number, name = tempfile.mkstemp(prefix=f"{ERRORS}.", dir=folder)
    errors = Path(name)
    with os.fdopen(number, "wb") as stream:
        process = subprocess.Popen(  # noqa: S603 - it is ourselves
            argv,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            pass_fds=[writing],
            env={**os.environ, daemon.READY: str(writing)},
        )
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        ready, _, _ = select.select([pipe], [], [], READY_MAX)
        said = os.read(pipe.fileno(), 64) if ready else b""
    if said or not ready:
        process.returncode = 0  # it goes on without us
        errors.replace(folder / ERRORS)
    if said:
        click.echo(f"up: {folder / LOG}")
        return FINE
    if not ready:
        raise FlyballError(f"the daemon is not ready after {READY_MAX:g} s", remedy=f"Look into {folder / LOG}.")
    code = process.wait()
    click.echo(errors.read_bytes()[-ERRORS_BYTES_MAX:].decode(errors="replace").rstrip(), err=True)
    errors.unlink()
    return code or FAILED


def _seconds(_: click.Context, __: click.Parameter, given: str) -> float:
    try:
        return parse_span(given) / 1_000_000
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option("--timeout", callback=_seconds, default="60s", metavar="TIME", help="How long to wait; 60s if not given.")
def down(timeout: float) -> int:
    """End all units in order, then the daemon; return when all are gone.

    Exits 0 when they are gone, or nothing ran; 1 if they are not gone in time.
    """
    client = connect(app.state_dir(os.environ))
    if client is None:
        click.echo("no daemon runs here", err=True)
        return FINE
    with client:
        told = client.ask("down")
    until = time.monotonic() + timeout
    for pid in (told["pid"], told["guardian"]):
        if not _gone_by(pid, until):
            click.echo(f"error: process {pid} is not gone after {timeout:g} s; it goes on ending its units", err=True)
            return FAILED
    click.echo("down")
    return FINE


def _gone_by(pid: int, until: float) -> bool:
    """Whether a process that is about to end is gone by then."""
    if hasattr(os, "pidfd_open"):
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return True
        try:
            return bool(select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0])
        finally:
            os.close(descriptor)
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(LOOK)
    return False


@click.command()
def reload() -> int:
    """Make the daemon apply what changed in its settings.

    New units are started, those that are gone are ended, changed ones are restarted; all others are not touched. If
    the file is wrong, nothing changes. Exits 0 if it was applied, 2 if not.
    """
    client = connect(app.state_dir(os.environ))
    if client is None:
        raise FlyballError("no daemon runs here", remedy="Start one: `flyball up -d`.")
    with client:
        changes = client.ask("reload", timeout=None)
    for word in ("added", "removed", "changed"):
        for name in changes[word]:
            click.echo(f"{word}: {name}")
    click.echo(f"unchanged: {changes['unchanged']}")
    return FINE
