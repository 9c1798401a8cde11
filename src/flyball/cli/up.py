"""`flyball up`, `flyball down` and `flyball reload`: the daemon, from outside."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from flyball import app
from flyball.cli import FAILED, FINE
from flyball.cli.page import address_in_force
from flyball.config.planning import read_plan
from flyball.core.time import parse_span
from flyball.errors import FlyballError
from flyball.runtimes import guardian, kept

if TYPE_CHECKING:
    from flyball.control.client import Client

ERRORS: Final = "daemon.err"
"""What the guardian, and a daemon that cannot start, have to say. Made anew by each `up -d`."""
READY_MAX: Final = 60.0
"""Seconds for a daemon to be ready. It takes a fraction of one; a large store on a slow disk takes a few."""
ERRORS_BYTES_MAX: Final = 4096
"""Of what it said before it ended, that much is repeated."""
LISTEN: Final = "FLYBALL_HTTP__LISTEN"
"""The variable of the setting `http.listen`."""
LOOK: Final = 0.02
"""Seconds between looks at a process that is about to be gone, where the kernel has no event for it."""

EXAMPLES: Final = """\
\b
Examples:
  flyball up -d                      run all units of flyball.yaml in the background
  flyball up --config my.yaml        in the foreground, one line for each decision
  flyball up -d --http 127.0.0.1:80  the page at another address than 127.0.0.1:8910
  flyball up -d --http off           no page
  flyball reload                     apply what changed in the file
  flyball down                       end all units, then the daemon
"""


def listen_address(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    from flyball.config.http_settings import http_address  # noqa: PLC0415 - only if it is given

    try:
        return None if given is None else str(http_address(given))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(epilog=EXAMPLES)
@click.option("-d", "--detach", is_flag=True, help="Run in the background; return when it is ready.")
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings; not given: as they are found."
)
@click.option(
    "--http",
    callback=listen_address,
    metavar="ADDRESS",
    help="Where the page and its API are: a host and a port, or off. Not given: by the settings.",
)
def up(detach: bool, config: Path | None, http: str | None) -> int:
    """Start the daemon and all units of the settings.

    Ctrl-C or SIGTERM ends all units in order, SIGHUP reloads the settings. When the daemon is killed, its units are
    ended with it, except those with `on_supervisor_death: keep`.
    """
    if http is not None:
        os.environ[LISTEN] = json.dumps(http)  # so it stays over a reload; in quotes, for [::1] is a list
    plan, warnings = read_plan(config, os.environ)
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    folder = app.state_dir(os.environ)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    argv = [sys.executable, "-P", "-m", "flyball.daemon_main"]
    if config is not None:
        argv.append(str(config.absolute()))
    places = {"kept": str(folder / kept.FOLDER), "lock": str(folder / guardian.LOCK)}
    given = _hand_over(plan.encode())
    if not detach:
        os.environ[guardian.PLAN] = str(given)
        guardian.guarded(argv, **places, lease=bool(plan.store))
    return _detach(guardian.command(argv, **places, lease=bool(plan.store)), folder, given)


def _hand_over(plan: bytes) -> int:
    """A file that the daemon inherits. It may hold secrets, so it has no name, and is in memory where that can be."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("flyball-plan", 0)
    else:
        with tempfile.TemporaryFile() as file:
            number = os.dup(file.fileno())
    with os.fdopen(os.dup(number), "wb") as writing:
        writing.write(plan)
    os.lseek(number, 0, os.SEEK_SET)
    os.set_inheritable(number, True)
    return number


def _detach(argv: list[str], folder: Path, plan: int) -> int:
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
            pass_fds=[writing, plan],
            env={**os.environ, guardian.READY: str(writing), guardian.PLAN: str(plan)},
        )
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        ready, _, _ = select.select([pipe], [], [], READY_MAX)
        said = os.read(pipe.fileno(), 64) if ready else b""
    if said or not ready:
        process.returncode = 0  # it goes on without us
        errors.replace(folder / ERRORS)
    if said:
        click.echo(f"up: {folder / guardian.LOG}")
        address = address_in_force(folder)
        if address:
            click.echo(f"page: {address} (`flyball page` logs in)")
        return FINE
    if not ready:
        raise FlyballError(
            f"the daemon is not ready after {READY_MAX:g} s", remedy=f"Look into {folder / guardian.LOG}."
        )
    code = process.wait()
    click.echo(errors.read_bytes()[-ERRORS_BYTES_MAX:].decode(errors="replace").rstrip(), err=True)
    errors.unlink()
    return code or FAILED


def _seconds(_: click.Context, __: click.Parameter, given: str) -> float:
    try:
        return parse_span(given) / 1_000_000
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


DOWN_EXAMPLES: Final = """\
\b
Examples:
  flyball down                 end all, as long as it takes, up to a minute
  flyball down --timeout 5m    wait longer for units that end slowly
"""


@click.command(epilog=DOWN_EXAMPLES)
@click.option("--timeout", callback=_seconds, default="60s", metavar="TIME", help="How long to wait; 60s if not given.")
def down(timeout: float) -> int:
    """End all units in order, then the daemon; return when all are gone.

    Exits 0 when they are gone, or nothing ran; 1 if they are not gone in time.
    """
    client = _connect()
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


def _connect() -> "Client | None":
    """To the daemon that runs here; None: none does."""
    from flyball.control.client import connect  # noqa: PLC0415 - `up` starts sooner without it

    return connect(app.state_dir(os.environ))


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


RELOAD_EXAMPLES: Final = """\
\b
Examples:
  flyball check     is the file good?
  flyball reload    apply what changed in it
"""


@click.command(epilog=RELOAD_EXAMPLES)
def reload() -> int:
    """Make the daemon apply what changed in its settings.

    New units are started, those that are gone are ended, changed ones are restarted; all others are not touched. If
    the file is wrong, nothing changes. Exits 0 if it was applied, 2 if not.
    """
    client = _connect()
    if client is None:
        raise FlyballError("no daemon runs here", remedy="Start one: `flyball up -d`.")
    with client:
        changes = client.ask("reload", timeout=None)
    for word in ("added", "removed", "changed"):
        for name in changes[word]:
            click.echo(f"{word}: {name}")
    click.echo(f"unchanged: {changes['unchanged']}")
    if changes.get("later"):
        click.echo(f"warning: {changes['later']}", err=True)
    return FINE
