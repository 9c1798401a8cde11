"""The store: whether it opens, is sound, and of which version it is. A copy is looked at, and nothing is changed."""

from collections.abc import Iterator
from typing import Final

import apsw

from flyball.doctor.finding import Finding, bad, ok, warning
from flyball.doctor.scene import Scene
from flyball.doctor.store_seen import Seen
from flyball.errors import FlyballError
from flyball.store.file import SQLITE_MIN

PROBLEMS_MAX: Final = 5
"""Problems of the store that are listed; of more, how many."""
SERVER_MIN: Final = 140_000
"""PostgreSQL 14."""
CONNECTIONS: Final = 8
"""Connections that one process may have open."""
UPGRADE: Final = "Nothing to do: the next flyball that writes takes it to its own version."
RESTORE: Final = "Move it away and restore a copy, or start with a new one; flyball has not changed it."


def check(scene: Scene) -> Iterator[Finding]:
    """Of a file also the library that will open it."""
    if not scene.fallback.store:
        yield judge_library(apsw.sqlite_lib_version(), apsw.apsw_version())
    yield from judge(scene.store)


def judge_library(sqlite: str, apsw_version: str) -> Finding:
    """Whether it is safe to write with."""
    text = f"SQLite {sqlite} (apsw {apsw_version})"
    if tuple(int(part) for part in sqlite.split(".")) < SQLITE_MIN:
        safe = ".".join(map(str, SQLITE_MIN))
        said = f"{text} can corrupt a file that several processes write; {safe} is the first safe one"
        return bad(said, "Install a current one: `pip install --upgrade apsw`.")
    return ok(text)


def judge(seen: Seen) -> Iterator[Finding]:
    """What there is to say of what was seen."""
    if seen.error is not None:
        yield bad(_whole(seen.error), seen.error.remedy)
        return
    if seen.health is not None:
        yield from _judge_server(seen)
    if not seen.there:
        yield ok(f"{seen.where}: there is none yet; the first run makes it")
        return
    if not seen.copied:
        yield warning(
            f"{seen.where} was not looked into: {seen.why_not}", "Look when less is written, or `flyball down` first."
        )
        return
    size = f" {seen.bytes / 2**20:.1f} MiB," if seen.bytes else ""
    of = f"version {seen.version}" if seen.version == seen.newest else f"version {seen.version} of {seen.newest}"
    text = f"{seen.where}:{size} {of}, the journal ends with entry {seen.entries}"
    if seen.problems:
        for problem in seen.problems[:PROBLEMS_MAX]:
            yield bad(problem if problem.startswith(seen.where) else f"{seen.where}: {problem}", RESTORE)
        if len(seen.problems) > PROBLEMS_MAX:
            yield bad(f"{seen.where}: and {len(seen.problems) - PROBLEMS_MAX} more such problems", RESTORE)
    elif seen.version < seen.newest:
        yield warning(f"{text}; it opens, and is sound", UPGRADE)
    else:
        yield ok(f"{text}; it opens, and is sound")


def _judge_server(seen: Seen) -> Iterator[Finding]:
    """Of a database: the server, and what may be done there."""
    health = seen.health
    assert health is not None  # noqa: S101 - asked only then
    server = f"PostgreSQL {health.server // 10_000}.{health.server % 10_000}"
    if health.server < SERVER_MIN:
        yield bad(f"{server} is too old", f"Use PostgreSQL {SERVER_MIN // 10_000} or newer.")
    else:
        yield ok(
            f"{server} can be reached; it takes {health.connections_max} connections, a process up to {CONNECTIONS}"
        )
    if health.standby:
        remedy = "Name all servers, and which is meant: `?target_session_attrs=read-write`."
        yield bad(f"{seen.where} is a standby, and only reads", remedy)
    elif seen.there and not health.may_write:
        yield bad(
            f"{seen.where}: this user may not write the tables of the schema flyball", "Use the one that owns them."
        )
    elif not seen.there and not health.may_make:
        remedy = "As its owner: `CREATE SCHEMA flyball AUTHORIZATION user`."
        yield bad(f"{seen.where}: this user may not make the schema flyball", remedy)
    if not health.fsync:
        yield bad(
            f"{seen.where}: fsync is off, so a power cut may forget what was promised", "Switch it on: `fsync = on`."
        )


def _whole(error: FlyballError) -> str:
    return " ".join(str(error).split())
