"""Values and exceptions as bytes, between a program and its forked run: pickled, because both are the same program.

What cannot be pickled is named. An exception always arrives: if it cannot be made anew as it was, with what can be kept
of it; and if its class cannot be found, as its text.
"""

import dataclasses
import pickle
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, Final

from flyball.core.event import DETAIL_MAX
from flyball.errors import FlyballError
from flyball.runtimes.forked.frames import FRAME_MAX

DEPTH_MAX: Final = 8
"""How deep it is looked for what cannot be pickled."""
PARTS_MAX: Final = 1_000
"""Parts of one thing that are looked at for that."""


class CannotSend(FlyballError):
    """It cannot be sent to another process."""

    remedy = "Send plain data: no open files, connections, locks, generators, lambdas or functions inside functions."


class CannotRead(FlyballError):
    """What came from another process cannot be made anew here."""

    remedy = "Send instances of classes that are defined at the top level of a module."


def pack(value: object, what: str = "the message") -> bytes:
    """The value as bytes. CannotSend says what of it cannot be, and where that is; it shows no values."""
    try:
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        where, part = _culprit(value, what)
        kind = type(part)
        text = f"{where} cannot be sent to another process: it is a {kind.__module__}.{kind.__qualname__}"
        raise CannotSend(text) from error
    if len(data) > FRAME_MAX:
        raise CannotSend(
            f"{what} has {len(data)} bytes; allowed: {FRAME_MAX}",
            remedy="Put what is that large into a file, and send its name.",
        )
    return data


def unpack(data: bytes | bytearray, what: str = "the message") -> Any:
    """The value. CannotRead if it cannot be made anew here."""
    try:
        return pickle.loads(data)  # noqa: S301 - it is a fork of our own that made it
    except Exception as error:
        raise CannotRead(f"{what} cannot be read: {type(error).__name__}: {error}") from error


def _culprit(value: object, where: str) -> tuple[str, object]:
    """The innermost part that cannot be pickled, and where it is."""
    for _ in range(DEPTH_MAX):
        for name, part in _parts(value):
            try:
                pickle.dumps(part, pickle.HIGHEST_PROTOCOL)
            except Exception:  # noqa: BLE001 - whatever it is, this is the part
                value, where = part, f"{where}{name}"
                break
        else:
            break
    return where, value


def _parts(value: object) -> Iterator[tuple[str, object]]:
    found: Iterator[tuple[str, object]]
    if isinstance(value, Mapping):
        found = ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        found = ((f"[{place}]", part) for place, part in enumerate(value))
    elif dataclasses.is_dataclass(value):
        found = ((f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value))
    else:
        found = ((f".{name}", part) for name, part in getattr(value, "__dict__", {}).items())
    for _, part in zip(range(PARTS_MAX), found, strict=False):
        yield part


@dataclasses.dataclass(frozen=True, slots=True)
class Raised:
    """The run raised that."""

    error: BaseException
    trace: str
    """Its stack trace, which the exception has as a note, too."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Bare:
    """An exception that cannot make itself anew: because `__init__` takes other arguments than it passed on, or
    because something that it holds cannot be pickled."""

    kind: type[BaseException]
    args: tuple[Any, ...]
    rest: dict[str, Any]

    def anew(self) -> BaseException:
        """The exception, without calling its `__init__`."""
        error = self.kind.__new__(self.kind, *self.args)
        error.args = self.args
        error.__dict__.update(self.rest)
        return error


def pack_error(error: BaseException) -> bytes:
    """An exception as bytes, whatever it is."""
    trace = "".join(traceback.format_exception(error))[-DETAIL_MAX:]
    text = "".join(traceback.format_exception_only(error)).strip()[:DETAIL_MAX]
    rest = {name: value for name, value in error.__dict__.items() if _form(value) is not None}
    form = _form(error) or _form(_Bare(type(error), error.args, rest))
    return pickle.dumps((form, text, trace), pickle.HIGHEST_PROTOCOL)


def unpack_error(data: bytes | bytearray) -> Raised:
    """The exception, with the stack of where it was raised."""
    form, text, trace = pickle.loads(data)  # noqa: S301 - it is a fork of our own that made it
    try:
        error = _anew(form)
    except Exception:  # noqa: BLE001 - then its text has to do
        error = RuntimeError(text)
    return Raised(error, trace)


def _form(value: object) -> bytes | None:
    """The value as bytes; None where it would not arrive. That it can be pickled is not enough."""
    try:
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        _anew(data)
    except Exception:  # noqa: BLE001 - whatever it is, the answer is no
        return None
    return data if len(data) <= FRAME_MAX // 2 else None


def _anew(form: bytes) -> Any:
    found = pickle.loads(form)  # noqa: S301 - it is a fork of our own that made it
    return found.anew() if isinstance(found, _Bare) else found
