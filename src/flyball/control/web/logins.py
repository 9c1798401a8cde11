"""Who is logged in with a browser, and links that log in once.

A login is a random number in a cookie; here is its digest, and whose token it came by. So it ends with that token, with
a logout and with its time, also over restarts of the daemon: nothing that was once taken back comes back.
"""

import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from flyball.control.web.tokens import Token, Tokens, TokensRefused, digest_of, read_private, write_private

log = logging.getLogger(__name__)

FILE: Final = "logins.json"
"""Its name in the state folder. There is no secret in it that lets anybody in."""
LASTS: Final = 7 * 24 * 3600.0
"""Seconds that a login lasts: a phone is not logged in anew every night."""
LOGINS_MAX: Final = 200
"""At a time. With more than this the oldest one is out."""
LINK_LASTS: Final = 300.0
"""Seconds that a link logs in: from the terminal to the browser beside it."""
LINKS_MAX: Final = 20
"""Links that nobody used yet; with more than this the oldest one is no more."""
BYTES: Final = 32


class Login(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One browser that is logged in."""

    id: str
    """The digest of what is in its cookie."""
    name: str
    token: str
    """The digest of the token that it came by."""
    until: float


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    logins: tuple[Login, ...] = ()


class Logins:
    """Those of a state folder."""

    def __init__(self, folder: Path, tokens: Tokens, now: Callable[[], float] = time.time) -> None:
        self._path = folder / FILE
        self._tokens = tokens
        self._now = now
        self._logins: dict[str, Login] = {login.id: login for login in self._read()}
        self._links: dict[str, tuple[str, float]] = {}
        self._turn = threading.Lock()
        """Links are made in the daemon's thread, and used in that of the server."""

    def begin(self, token: Token) -> str:
        """Log in: what to put into the cookie."""
        cookie = secrets.token_urlsafe(BYTES)
        login = Login(id=digest_of(cookie), name=token.name, token=token.digest, until=self._now() + LASTS)
        self._logins[login.id] = login
        self._forget_old()
        self._write()
        return cookie

    def of(self, cookie: str) -> Token | None:
        """The token by which this cookie was got, as it is now; None if it is no login, or not any more."""
        login = self._logins.get(digest_of(cookie))
        if login is None or login.until <= self._now():
            return None
        token = self._tokens.named(login.name)
        return token if token is not None and hmac.compare_digest(token.digest, login.token) else None

    def end(self, cookie: str) -> None:
        """Log out."""
        if self._logins.pop(digest_of(cookie), None) is not None:
            self._write()

    # Links.

    def link(self, token: Token) -> str:
        """The code of a link that logs in once, as that token would."""
        code = secrets.token_urlsafe(BYTES)
        with self._turn:
            self._links[digest_of(code)] = (token.name, self._now() + LINK_LASTS)
            while len(self._links) > LINKS_MAX:
                del self._links[next(iter(self._links))]
        return code

    def use(self, code: str) -> Token | None:
        """Whom this code logs in. It is used up then, also if nobody is."""
        with self._turn:
            name, until = self._links.pop(digest_of(code), ("", 0.0))
        return self._tokens.named(name) if until > self._now() else None

    # The file.

    def _forget_old(self) -> None:
        now = self._now()
        kept = sorted((login for login in self._logins.values() if login.until > now), key=lambda login: login.until)
        self._logins = {login.id: login for login in kept[-LOGINS_MAX:]}

    def _read(self) -> tuple[Login, ...]:
        """What is there from before. What cannot be read is as good as nothing: everybody logs in anew."""
        try:
            return msgspec.json.decode(read_private(self._path), type=_File).logins
        except FileNotFoundError:
            return ()
        except (TokensRefused, OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("nobody is logged in any more: %s", error)
            return ()

    def _write(self) -> None:
        try:
            write_private(self._path, msgspec.json.encode(_File(tuple(self._logins.values()))))
        except OSError as error:
            # A login that was taken back must not come back with the next daemon.
            self._path.unlink(missing_ok=True)
            log.warning("logins are not kept over a restart: %s", error)


def csrf_of(cookie: str) -> str:
    """What a page of ours has to send with a change. It comes from the cookie, which a page of others cannot read."""
    return hmac.digest(cookie.encode("utf-8", "surrogateescape"), b"csrf", hashlib.sha256).hex()
