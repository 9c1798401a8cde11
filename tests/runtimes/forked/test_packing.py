"""What goes from process to process arrives, or it is said what of it does not."""

import threading
from dataclasses import dataclass
from typing import Any

import pytest

from flyball.core.decision import Reason, stop
from flyball.runtimes.forked import CannotRead, CannotSend, packing
from flyball.runtimes.refusal import OutOfBudget, Refused


@dataclass
class Note:
    text: str
    lock: Any = None


class Odd(Exception):
    """Its arguments are not those of `__init__`."""

    def __init__(self, code: int, *, where: str) -> None:
        super().__init__(f"{code} at {where}")
        self.code, self.where = code, where


class Holds(Exception):
    """It holds something that cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()
        self.text = text


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (LOCK, "the message cannot be sent to another process: it is a _thread.lock"),
        ({"notes": ["a", LOCK]}, "the message['notes'][1] cannot be"),
        ([Note("a"), Note("b", LOCK)], "the message[1].lock cannot be"),
        ({"deep": {"deeper": (1, {"deepest": lambda: 1})}}, "['deep']['deeper'][1]['deepest'] cannot be"),
    ],
    ids=["itself", "in a list", "in a dataclass", "deep"],
)
def test_unpicklable(value: object, named: str) -> None:
    """What cannot be sent is named by where it is and what it is."""
    with pytest.raises(CannotSend) as refused:
        packing.pack(value)
    assert named in str(refused.value)
    assert "plain data" in refused.value.remedy


def test_secrets_stay() -> None:
    """An error about a message shows nothing that is in it."""
    with pytest.raises(CannotSend) as refused:
        packing.pack({"key": Note("hunter2", LOCK)})
    assert "hunter2" not in str(refused.value)


def test_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message above the maximum is refused with its size, before anything of it is sent."""
    monkeypatch.setattr(packing, "FRAME_MAX", 1_000)
    with pytest.raises(CannotSend, match=r"the message has 10\d\d bytes; allowed: 1000"):
        packing.pack(bytes(1_000))


def test_unreadable() -> None:
    """Bytes that make nothing here are an error that says so, not a crash."""
    with pytest.raises(CannotRead, match="the message cannot be read: ModuleNotFoundError"):
        packing.unpack(b"cno_such_module\nThing\n.")


def anew(error: BaseException) -> BaseException:
    return packing.unpack_error(packing.pack_error(error)).error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a", 1),
        OSError(2, "no such thing", "file"),
        KeyError("k"),
        SystemExit(3),
        ExceptionGroup("g", [ValueError("v")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exception(error: BaseException) -> None:
    """An exception arrives as it was."""
    found = anew(error)
    assert type(found) is type(error)
    assert (str(found), repr(found.args)) == (str(error), repr(error.args))
    assert getattr(found, "errno", None) == getattr(error, "errno", None)


def test_odd_exception() -> None:
    """One whose class could not make it anew arrives with its class, its text and all that it has."""
    found = anew(Odd(7, where="here"))
    assert isinstance(found, Odd)
    assert (str(found), found.code, found.where) == ("7 at here", 7, "here")


def test_holding_exception() -> None:
    """One that holds what cannot be sent arrives without that."""
    found = anew(Holds("a"))
    assert isinstance(found, Holds)
    assert (str(found), found.text, hasattr(found, "lock")) == ("a", "a", False)


def test_refusal() -> None:
    """A refusal arrives with its decision: what a run was refused, its program can tell."""
    decision = stop(Reason("budget", "cost_budget_exceeded", "1.00 of 1.00 usd", "raise it"))
    found = anew(OutOfBudget(decision, 0, "fetch"))
    assert isinstance(found, Refused)
    assert (found.decision, found.code, found.remedy) == (decision, "cost_budget_exceeded", "raise it")


def test_nameless_exception() -> None:
    """One whose class nobody can import arrives as its text, with its stack."""

    class Local(Exception):
        pass

    try:
        raise Local("lost")
    except Local as error:
        raised = packing.unpack_error(packing.pack_error(error))
    assert type(raised.error) is RuntimeError
    assert "Local: lost" in str(raised.error)
    assert 'raise Local("lost")' in raised.trace
