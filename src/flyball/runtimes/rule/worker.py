"""The worker: a process for what a run of a rule does in Python, its calls and its browser. Only flyball starts it.

Its standard input is a socket to the daemon, over which it is asked one thing after the other. It is begun for one run
and lives as long as that: what one action left in it, the next one finds. It is never asked to end: it is ended, with
all that it started; and it dies with the daemon, whatever it is doing.
"""

import contextlib
import errno
import faulthandler
import importlib
import io
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, NoReturn

import msgspec

from flyball.runtimes.lifeline import connected, die_with
from flyball.runtimes.rule import wire
from flyball.runtimes.rule.failed import ActionFailed

NOBODY: Final = 3
"""The exit code of a worker that nobody asks anything."""
STDERR: Final = 2
EARLY: Final = 0.5
"""Seconds before its time is over at which a function's stacks are written down: where it hangs is what tells why. It
takes a millisecond; the machine may be busy."""
AT_ONCE: Final = 0.001
TEXT_MAX: Final = 2_000
"""Characters of what an exception says."""
STARVED: Final = frozenset(
    {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
)
"""Too little of something on this machine: not the function's fault."""

Handler = Callable[[dict[str, Any], dict[str, Any]], Any]
"""Does something; given what the worker keeps as long as it lives, and what is asked."""


def main() -> NoReturn:
    """Answer, until nobody asks."""
    given = connected()
    if given is None:
        os._exit(NOBODY)
    channel, line = given
    die_with(line)
    faulthandler.enable(STDERR)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what was printed before it was killed is what tells why
    own, state = os.getpid(), dict[str, Any]()
    with channel, channel.makefile("rb") as lines:
        while data := lines.readline(wire.ASKED_MAX + 1):
            answer = _answer(state, msgspec.json.decode(data, type=wire.Asked))
            if os.getpid() != own:  # the function forked, and this is the fork, which came back from it
                os._exit(isinstance(answer, wire.Failed))
            _say(channel, answer)
    os._exit(0)


def _answer(state: dict[str, Any], asked: wire.Asked) -> wire.Answer:
    left = max(AT_ONCE, asked.until - time.monotonic())
    faulthandler.dump_traceback_later(left - min(EARLY, left / 2), file=STDERR)
    try:
        result = HANDLERS[asked.verb](state, asked.what)
        return wire.Done(_encoded(result))
    except ActionFailed as failed:
        return wire.Failed.of(failed)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer: SystemExit, too
        return _failed(error)
    finally:
        faulthandler.cancel_dump_traceback_later()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # it may have been closed or replaced
                stream.flush()


def _say(channel: socket.socket, answer: wire.Answer) -> None:
    try:
        channel.sendall(msgspec.json.encode(answer) + b"\n")
    except OSError:  # the daemon does not listen: it is about to end this process, or is gone
        os._exit(NOBODY)


def _encoded(result: Any) -> msgspec.Raw:
    try:
        data = msgspec.json.encode(result)
    except (TypeError, ValueError, RecursionError) as error:
        text = f"it returned a {type(result).__name__} that is no JSON: {error}"
        raise ActionFailed("ResultNotJson", text[:TEXT_MAX], final=True) from None
    if len(data) > wire.RESULT_MAX:
        text = (
            f"its result takes {len(data)} bytes; allowed: {wire.RESULT_MAX}; write it to a file, and return its name"
        )
        raise ActionFailed("ResultTooLong", text, final=True)
    return msgspec.Raw(data)


# Calls.


def call(_: dict[str, Any], asked: dict[str, Any]) -> Any:
    """Call a function of a module that is looked for in `path` first."""
    path, arguments = asked["path"], asked["arguments"]
    if path and sys.path[:1] != [path]:
        sys.path.insert(0, path)
        os.chdir(path)  # a file that it names is looked for beside the rule's own, too
    function = _found(asked["function"])
    try:
        result = function(**arguments)
    except TypeError as error:
        if _own(error.__traceback__) is not None:
            raise
        text = f"{asked['function']} cannot be called so: {error}"
        raise ActionFailed("BadArguments", text, target=asked["function"], final=True) from None
    return _awaited(result) if hasattr(result, "__await__") else result


def _found(place: str) -> Callable[..., Any]:
    name, _, inside = place.partition(":")
    try:
        found = importlib.import_module(name)
        for part in inside.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there, and what it needs is not
        raise _not_found(place, f"there is no module {error.name}") from None
    except (AttributeError, TypeError, ValueError) as error:
        if _own(error.__traceback__) is not None:
            raise
        raise _not_found(place, f"{name} has no {inside}" if inside else "it is not of the form module:name") from None
    if not callable(found):
        raise _not_found(place, f"it is a {type(found).__name__}")
    return found


def _not_found(place: str, why: str) -> ActionFailed:
    return ActionFailed("FunctionNotFound", f"{place} cannot be called: {why}", target=place, final=True)


def _awaited(result: Any) -> Any:
    import asyncio  # noqa: PLC0415 - a quarter of the time that a worker needs to be there

    async def wait() -> Any:
        return await result

    return asyncio.run(wait())


# Browsers.


def browser(state: dict[str, Any], asked: dict[str, Any]) -> Any:
    """Steps on the run's page."""
    from flyball.runtimes.rule.browser import do  # noqa: PLC0415 - only where it serves

    return do(state, asked)


HANDLERS: Final[Mapping[str, Handler]] = {"call": call, "browser": browser}
"""What a worker can be asked to do."""


# What went wrong.

_PYTHONS: Final = os.__file__.rpartition("/")[0]
_LEADS_TO_IT: Final = (__file__, "<frozen importlib", f"{_PYTHONS}/asyncio/", f"{_PYTHONS}/importlib/")


def _failed(error: BaseException) -> wire.Failed:
    """An exception of the function, by its type and where it was raised: what it says may differ each time."""
    own = _own(error.__traceback__)
    frames = traceback.extract_tb(own)[-wire.FRAMES_MAX :]
    number = error.errno if isinstance(error, OSError) else None
    try:
        text = str(error)[:TEXT_MAX]
    except Exception:  # noqa: BLE001 - it is somebody else's
        text = ""
    return wire.Failed(
        error=_name(type(error)),
        text=text or _name(type(error)),
        target=", ".join(f"{frame.filename.rpartition('/')[2]}:{frame.name}" for frame in frames),
        errno=number if isinstance(number, int) else None,
        detail="".join(traceback.format_exception(type(error), error, own))[-wire.DETAIL_MAX :],
        starved=isinstance(error, MemoryError) or number in STARVED or _says_so(error),
    )


def _own(trace: TracebackType | None) -> TracebackType | None:
    """The function's own frames: without ours, and without those of Python's that lead to it."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_LEADS_TO_IT):
        trace = trace.tb_next
    return trace


def _name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _says_so(error: BaseException) -> bool:
    """It is flyball's own word for what is used up. Who raised it has loaded it: nothing is opened for this, because
    files may be what is used up."""
    ending = sys.modules.get("flyball.runtimes.agent.ending")
    return ending is not None and isinstance(error, ending.Starved)


if __name__ == "__main__":
    main()
