"""Tokens: who may come in over HTTP, and what they may do. A file in the state folder that only its owner can read.

A token is made here and never chosen by a person, so nobody can guess it. A file that others could read, or could have
written, is refused: then nobody comes in until a person has put it right.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from flyball.control.context import CommandError, Right
from flyball.errors import FlyballError

FILE: Final = "tokens.json"
"""Its name in the state folder."""
MODE: Final = 0o600
FIRST: Final = "admin"
"""The name of the token that is there from the beginning."""
TOKENS_MAX: Final = 100
"""People and programs that come in: a team, not the public."""
BYTES_MAX: Final = 64 * 1024
"""Of the file: far more than so many tokens take."""
SECRET_BYTES: Final = 32
"""Of chance in a token: nobody guesses 256 bits."""
PREFIX: Final = "flyball_"
"""What a token begins with, so that one that got lost is known for what it is."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
ROLES: Final = {right.name.lower(): right for right in Right}


class TokensRefused(FlyballError):
    """The file of tokens cannot be trusted, or cannot be read."""


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of them. Its text is a secret."""

    name: str
    role: str
    token: str
    made: float = 0.0

    def __repr__(self) -> str:
        return f"Token({self.name!r}, {self.role!r})"

    def shown(self) -> dict[str, Any]:
        """What anybody may see of it."""
        return {"name": self.name, "role": self.role, "made": self.made}

    @property
    def right(self) -> Right:
        return ROLES[self.role]

    @property
    def digest(self) -> str:
        """What it is known by where its text should not be."""
        return digest_of(self.token)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: tuple[Token, ...] = ()


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


class Tokens:
    """The tokens of a state folder. Changes of the file count at once; many requests read it once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._seen: tuple[int, ...] = ()
        self._known: dict[str, Token] = {}

    def all(self) -> Sequence[Token]:
        """All of them; none if there is no file. TokensRefused if it cannot be trusted."""
        self._look()
        return list(self._known.values())

    def of(self, text: str) -> Token | None:
        """The token with that text. It is found by its digest, so the time that takes says nothing of others."""
        self._look()
        return self._known.get(digest_of(text))

    def has(self, token: Token) -> bool:
        """Whether it is still one of them, with the same role."""
        self._look()
        return self._known.get(token.digest) == token

    def named(self, name: str) -> Token | None:
        return next((token for token in self.all() if token.name == name), None)

    def make_first(self) -> bool:
        """Make the file with one token of an admin, if there is none; whether it did."""
        with self._changing() as tokens:
            if self.path.exists():
                return False
            self._write([*tokens, _made(FIRST, "admin")])
        return True

    def add(self, name: str, role: str) -> Token:
        """A new token. CommandError if there is one of that name, or it cannot be."""
        if not NAME.fullmatch(name):
            text = f"{name!r} is no name for a token"
            raise CommandError("bad_argument", text, remedy="A name has up to 64 letters, digits and _ . @ -")
        if role not in ROLES:
            raise CommandError("bad_argument", f"{role!r} is no role", remedy=f"There are {', '.join(ROLES)}.")
        with self._changing() as tokens:
            if any(token.name == name for token in tokens):
                text = f"there is a token {name!r} already"
                raise CommandError("exists", text, remedy="Remove it first, or take another name.")
            if len(tokens) >= TOKENS_MAX:
                text = f"there are {TOKENS_MAX} tokens already"
                raise CommandError("too_many", text, remedy="Remove some that nobody uses.")
            token = _made(name, role)
            self._write([*tokens, token])
        return token

    def remove(self, name: str) -> Token:
        """The token that is no more: whoever came in by it is out. CommandError if there is none of that name."""
        with self._changing() as tokens:
            gone = next((token for token in tokens if token.name == name), None)
            if gone is None:
                raise unknown(name, tokens)
            self._write([token for token in tokens if token is not gone])
        return gone

    # The file.

    def _look(self) -> None:
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            self._seen, self._known = (), {}
            return
        except OSError as error:
            raise TokensRefused(f"{self.path}: {error.strerror or error}", remedy=_REMEDY) from None
        seen = (found.st_mtime_ns, found.st_ino, found.st_size, found.st_mode, found.st_uid)
        if seen != self._seen:
            try:
                # Set in one go: another thread may look at the same time.
                self._known = {token.digest: token for token in _read(self.path, found)}
            except TokensRefused:
                self._seen, self._known = (), {}
                raise
            self._seen = seen

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Sequence[Token]]:
        """One change at a time, also of other processes."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield self.all()
        finally:
            os.close(folder)

    def _write(self, tokens: Sequence[Token]) -> None:
        data = msgspec.json.format(msgspec.json.encode(_File(tuple(tokens)))) + b"\n"
        try:
            write_private(self.path, data)
        except OSError as error:
            raise not_written(self.path, error) from None
        self._seen = ()


_REMEDY: Final = "Put it right, or remove it: `flyball up` makes a new one."


def unknown(name: str, tokens: Sequence[Token]) -> CommandError:
    """What to say of a name that no token has."""
    there = ", ".join(token.name for token in tokens) or "none"
    return CommandError("not_found", f"no token {name!r}; there are: {there}", remedy="`flyball token` lists them.")


def _made(name: str, role: str, now: Callable[[], float] = time.time) -> Token:
    return Token(name=name, role=role, token=PREFIX + secrets.token_urlsafe(SECRET_BYTES), made=round(now(), 3))


def _read(path: Path, found: os.stat_result) -> Sequence[Token]:
    data = read_private(path, found)
    try:
        tokens = msgspec.json.decode(data, type=_File).tokens
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # The error of the decoder may repeat what is in the file.
        raise TokensRefused(f"{path}: it is no file of tokens", remedy=_REMEDY) from None
    if len(tokens) > TOKENS_MAX:
        raise TokensRefused(f"{path}: more than {TOKENS_MAX} tokens", remedy="Remove some.")
    for token in tokens:
        if token.role not in ROLES:
            text = f"{path}: {token.name!r} has the role {token.role!r}; there are {', '.join(ROLES)}"
            raise TokensRefused(text, remedy="Put it right.")
        if len(token.token) < SECRET_BYTES:
            text = f"{path}: the token of {token.name!r} is too short: it could be guessed"
            raise TokensRefused(text, remedy="Remove it, and have one made: `flyball token add NAME`.")
    return tokens


def read_private(path: Path, found: os.stat_result | None = None) -> bytes:
    """A file of ours that nobody else can read or write. TokensRefused if it is not that."""
    found = os.lstat(path) if found is None else found
    if not stat.S_ISREG(found.st_mode):
        raise TokensRefused(f"{path}: it is no plain file", remedy="Remove it, and let flyball make one.")
    if found.st_uid != os.geteuid():
        text = f"{path}: it belongs to user {found.st_uid}, and flyball runs as user {os.geteuid()}"
        raise TokensRefused(text, remedy="Give it to the user that flyball runs as, or remove it.")
    if stat.S_IMODE(found.st_mode) & 0o077:
        text = f"{path}: its mode is {stat.S_IMODE(found.st_mode):04o}, so other users may know what is in it"
        remedy = f"Have new tokens made: remove it and restart; or, if nobody looked: chmod 600 {path}"
        raise TokensRefused(text, remedy=remedy)
    if found.st_size > BYTES_MAX:
        raise TokensRefused(f"{path}: it is longer than {BYTES_MAX} bytes", remedy="Remove what does not belong there.")
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(number, "rb") as file:
            return file.read(BYTES_MAX)
    except OSError as error:
        raise TokensRefused(f"{path}: {error.strerror or error}", remedy="Check its owner and mode.") from None


def not_written(path: Path, error: OSError) -> FlyballError:
    """What to say of a file of ours that could not be written."""
    remedy = "Make room there, or put its rights right; then try again. Nothing was changed."
    return FlyballError(f"{path}: it cannot be written: {error.strerror or error}", remedy=remedy)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, all of it or nothing."""
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # of mode 0600 from the beginning
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
