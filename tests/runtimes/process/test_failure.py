"""The name of a failed exit: the same when the same thing fails again, another when something else does."""

import pytest

from flyball.core.event import DETAIL_MAX, Cause
from flyball.core.failure import FINGERPRINT_VERSION
from flyball.runtimes.process.failure import ERROR_MAX, ending_of, ending_of_told, find_traceback, readable
from flyball.runtimes.process.kernel import UNKNOWN, Status
from tests.runtimes.process.stage import Stage, run

TRACEBACK = """\
starting 17
Traceback (most recent call last):
  File "/srv/app/main.py", line {line}, in <module>
    main()
  File "/srv/app/work.py", line 7, in main
    raise ValueError("no such {thing}")
ValueError: no such {thing}
"""


def named(tail: str = "", code: int | None = 1, signal: int | None = None, pid: int = 4711) -> str:
    return ending_of("u", Status(code, signal), tail, pid=pid).fingerprint


def test_done() -> None:
    """Exit 0 has no fingerprint, whatever was printed."""
    assert ending_of("u", Status(0, None), "error: never mind").fingerprint == ""


def test_version() -> None:
    """The rule's version goes with every fingerprint."""
    assert ending_of("u", Status(1, None), "").version == FINGERPRINT_VERSION


def test_code_and_signal_are_fields() -> None:
    """Another exit code or signal is another failure; 137 is not SIGKILL."""
    names = {named(code=1), named(code=3), named(code=137), named(code=None, signal=9), named(code=None, signal=15)}
    assert len(names) == 5


def test_another_unit() -> None:
    """Another unit's failure is another failure."""
    assert ending_of("u", Status(1, None), "").fingerprint != ending_of("v", Status(1, None), "").fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("step 41 of 100\n", "step 97 of 100\n"),
        ("2026-01-01 10:00:00 ERROR [4711] no database\n", "2026-02-03 11:12:13 ERROR [8150] no database\n"),
        ("app[4711]: fatal: no route\n", "app[99]: fatal: no route\n"),
        ("error in process 4711\n", "error in process 4712\n"),
        ("error: pid 321 died\n", "error: pid 654 died\n"),
        ("sh: line 1: 31337 Segmentation fault\n", "sh: line 1: 4242 Segmentation fault\n"),
        ("error: /tmp/a1b2/x is gone\n", "error: /tmp/c3d4/x is gone\n"),
        ("\x1b[31merror\x1b[0m: no\n", "error: no\n"),
    ],
)
def test_the_same_failure(one: str, other: str) -> None:
    """Progress, times, process numbers, temporary paths and colours do not make a failure another one."""
    first, second = readable(one.encode()), readable(other.encode())
    assert named(first, pid=4711) == named(second, pid=4712)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("error: no database\n", "error: no network\n"),
        ("3 failed\n", "2 failed\n"),
        ("error: 429 Too Many Requests\n", "error: 500 Internal Server Error\n"),
        ("error [404]\n", "error [503]\n"),
        (TRACEBACK.format(line=3, thing="x"), TRACEBACK.format(line=3, thing="x").replace("ValueError", "KeyError")),
        (TRACEBACK.format(line=3, thing="x"), TRACEBACK.format(line=3, thing="x").replace("work.py", "play.py")),
        (TRACEBACK.format(line=3, thing="x"), ""),
    ],
)
def test_another_failure(one: str, other: str) -> None:
    """Another message, exception or place is another failure."""
    assert named(one) != named(other)


def test_traceback() -> None:
    """A Python traceback gives the error its name; lines and messages may change, the place may not."""
    ending = ending_of("u", Status(1, None), TRACEBACK.format(line=3, thing="table"))
    assert (ending.cause, ending.error, ending.code) == (Cause.ERROR, "ValueError: no such table", 1)
    assert ending.fingerprint == named(TRACEBACK.format(line=9, thing="row"))


def test_the_last_traceback_counts() -> None:
    """An exception that was raised while another was handled is the one that ended the process."""
    chained = (
        TRACEBACK.format(line=1, thing="x")
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + TRACEBACK.format(line=2, thing="y").replace("ValueError", "app.errors.Broken")
    )
    found = find_traceback(chained.splitlines())
    assert found is not None
    assert (found.type, found.frames) == ("app.errors.Broken", ("main.py:<module>", "work.py:main"))


def test_a_traceback_whose_head_was_cut_off() -> None:
    """The innermost frames are enough."""
    whole = TRACEBACK.format(line=3, thing="x")
    assert find_traceback(whole.splitlines()[4:]) is not None


def test_syntax_error() -> None:
    """A traceback without functions is one, too."""
    lines = ['  File "x.py", line 1', "    def", "       ^", "SyntaxError: invalid syntax"]
    found = find_traceback(lines)
    assert found is not None
    assert found.type == "SyntaxError"


def test_frames_without_an_exception() -> None:
    """A stack that was only printed is not a failure."""
    assert find_traceback(['  File "x.py", line 1, in f', "    g()"]) is None


def test_killed_after_a_traceback() -> None:
    """A signal keeps its name, with what was raised before it."""
    ending = ending_of("u", Status(None, 6), TRACEBACK.format(line=3, thing="x"))
    assert (ending.error, ending.signal) == ("SIGABRT after ValueError: no such x", 6)


def test_an_unknown_signal() -> None:
    """Real-time signals have numbers."""
    assert ending_of("u", Status(None, 50), "").error == "signal 50"


def test_lost() -> None:
    """Of a process whose end nobody saw it is said that it is lost."""
    ending = ending_of("u", UNKNOWN, "last words")
    assert (ending.cause, ending.error, ending.code, ending.signal) == (Cause.LOST, "lost", None, None)
    assert "last words" in ending.detail


def test_told_to_end() -> None:
    """What was told to end has one name, however it obeyed: whoever told it knows why."""
    first = ending_of_told("u", Status(None, 9), "at work")
    second = ending_of_told("u", Status(0, None), "at home")
    assert first.cause is second.cause is Cause.STOPPED
    assert first.fingerprint == second.fingerprint
    assert (first.detail, first.signal, second.code) == ("at work", 9, 0)


def test_bounded() -> None:
    """However much is printed, error and detail are cut."""
    tail = TRACEBACK.format(line=1, thing="x" * 50_000)
    ending = ending_of("u", Status(1, None), tail)
    assert len(ending.detail) <= DETAIL_MAX
    assert len(ending.error) <= ERROR_MAX


def test_a_real_exception_twice(stage: Stage) -> None:
    """The same program that fails twice fails by the same name."""

    async def play() -> tuple[str, str, str]:
        hands = stage.hands("python3", "-c", "import os\ndef f(): raise OSError(os.getpid())\nf()")
        one, two = await stage.ending(hands), await stage.ending(hands)
        other = await stage.ending(stage.hands("python3", "-c", "def g(): raise OSError\ng()"))
        assert one.error.startswith("OSError: ")
        return one.fingerprint, two.fingerprint, other.fingerprint

    one, two, other = run(play())
    assert one == two != other
