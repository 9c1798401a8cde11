"""What PostgreSQL's errors mean here: what is wrong, where, and what to do. Never a password.

Two things can go wrong with what was sent. The server said no: then nothing of it was done. Or the connection broke:
then nobody knows, until the server is asked.
"""

from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from flyball.errors import StoreAway, StoreCorrupt, StoreError, StoreFull, StoreReadOnly

_REMEDIES: Final = {
    "full": "Make room on the database's disk and try again; nothing was lost.",
    "leave": "Give the user of the URL what it needs: `GRANT CREATE ON DATABASE … TO …`, or make the schema for it: "
    "`CREATE SCHEMA flyball AUTHORIZATION …`.",
    "login": "Check user and password in the URL (setting `store`), and pg_hba.conf on the server.",
    "read_only": "Give the address of the primary, or several and ?target_session_attrs=read-write.",
    "crowded": "Raise max_connections, or let fewer programs use this server; each host needs up to eight connections.",
    "database": "Make it (`createdb`), or correct the URL (setting `store`).",
    "url": "A URL looks like postgresql://user:password@host:5432/database; special characters are %-encoded.",
    "away": "See that the database runs and that its address is right (setting `store`); it is tried again by itself.",
    "busy": "Look for somebody who holds a lock in the schema flyball (pg_stat_activity), then try again.",
    "tables": "Use a database of its own for flyball; what is there was left untouched.",
}
_DOWN: Final = ("57P01", "57P02", "57P03", "57P05", "25P03", "25P04")
_BUSY: Final = ("55P03", "57014", "40001", "40P01")
OTHER_TABLES: Final = ("42P01", "42703", "42883", "3F000", "42804", "42P10")
_OF_A_WISH: Final = ("22", "23", "54")
"""Classes of errors that come from what one caller wanted written, and not from the database."""
_SAID: Final = (
    # What a server says that lets nobody in has no code for a client to see.
    (("too many clients", "too many connections", "remaining connection slots"), "crowded"),
    (("authentication failed", "no password supplied", "no pg_hba.conf entry", 'role "', "permission denied"), "login"),
    (("read-only", "hot standby mode is disabled"), "read_only"),
)


class Lost(Exception):
    """The connection broke: whether what was sent was done is not known."""


class Refused(Exception):
    """The server said no: nothing of it was done."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(text)
        self.state = state

    @property
    def of_a_wish(self) -> bool:
        """It is because of what one caller wanted written; the others are not to suffer for it."""
        return self.state[:2] in _OF_A_WISH


def refusal(result: Any) -> Refused:
    """What an answer of the server says that is an error."""
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    text = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
    return Refused(state, text or " ".join(result.error_message.decode(errors="replace").split()))


def place(dsn: str) -> str:
    """Where a database is, for people: no password, whatever else the URL says."""
    given = _parsed(dsn)
    if given is None:
        return "the database"
    user, host, port = given.get("user"), given.get("host") or given.get("hostaddr"), given.get("port")
    server = f"{host or 'localhost'}{f':{port}' if port else ''}"
    return f"postgresql://{f'{user}@' if user else ''}{server}/{given.get('dbname') or user or ''}"


def _parsed(dsn: str) -> dict[str, Any] | None:
    """What the URL says; None if it says nothing, or if a piece of an unencoded password is where it should not be."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error:
        return None
    strange = "@" in f"{given.get('host', '')}{given.get('dbname', '')}"
    ports = str(given.get("port", "")).replace(",", "")
    return None if strange or (ports and not ports.isdecimal()) else given


def not_connected(error: BaseException, dsn: str) -> StoreError:
    """Why there is no connection."""
    if _parsed(dsn) is None:
        # What libpq says of a wrong URL may be a piece of the password.
        return StoreError("the URL of the store is not one that PostgreSQL understands", remedy=_REMEDIES["url"])
    text = _short(str(error))
    where = place(dsn)
    if "does not exist" in text and 'database "' in text:
        return StoreError(f"{where}: there is no such database", remedy=_REMEDIES["database"])
    for said, what in _SAID:
        if any(part in text for part in said):
            kind = StoreAway if what == "crowded" else StoreReadOnly
            return kind(f"{where}: {text}", remedy=_REMEDIES[what])
    if "ssl" in text.lower() or "certificate" in text.lower():
        return StoreAway(f"{where}: {text}", remedy="Check sslmode and the certificates that the URL names.")
    return StoreAway(f"{where} cannot be reached: {text}", remedy=_REMEDIES["away"])


def explain(error: BaseException, where: str) -> StoreError:
    """What an error means here."""
    if isinstance(error, StoreError):
        return type(error)(str(error), remedy=error.remedy)
    if isinstance(error, Refused):
        return _refused(error, where)
    if isinstance(error, Lost):
        return StoreAway(f"{where}: the connection was lost ({_short(str(error))}); nothing was written")
    text = _short(str(error)) or type(error).__name__
    return StoreError(f"{where}: {text}; nothing was written", remedy="Look at the database and its log.")


def _refused(error: Refused, where: str) -> StoreError:
    text = _short(str(error))
    if error.state == "53100":
        return StoreFull(f"{where}: no room left on the database's disk; nothing was written", remedy=_REMEDIES["full"])
    if error.state == "53300":
        return StoreAway(f"{where}: {text}", remedy=_REMEDIES["crowded"])
    if error.state == "42501":
        return StoreReadOnly(f"{where}: {text}", remedy=_REMEDIES["leave"])
    if error.state == "25006":
        return StoreReadOnly(f"{where} only reads: {text}", remedy=_REMEDIES["read_only"])
    if error.state in _BUSY:
        return StoreError(f"{where} is busy: {text}; nothing was written", remedy=_REMEDIES["busy"])
    if error.state in _DOWN:
        return StoreAway(f"{where}: {text}; nothing was written", remedy=_REMEDIES["away"])
    if error.state in OTHER_TABLES:
        return StoreCorrupt(f"{where}: the tables in the schema flyball are not as they should be: {text}")
    return StoreError(f"{where}: {text} ({error.state}); nothing was written", remedy="Look at the database's log.")


def _short(text: str) -> str:
    """One line of it, without what is said already."""
    line = " ".join(text.split())
    return line.rpartition("FATAL: ")[2].removeprefix("connection failed: ").strip()[:500]
