"""`flyball top`: what the screen shows and what keys do; and on a real terminal, that it is left as it was found."""

import contextlib
import os
import re
import signal
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.cli.top import keys_of
from flyball.cli.top_screen import SORTS, Order, Top
from tests.cli.running import FLYBALL, Place, Screen, until
from tests.daemon.site import Site
from tests.page.fake import row

LOCAL_MODES = 3
NOW = 1_700_000_000.0


def _row(name: str, **more: Any) -> dict[str, Any]:
    return row(name, **{"since": NOW - 60, **more})


def _problem(unit: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"{unit}:quarantined:7f3a9c21",
        "unit": unit,
        "title": f"{unit} quarantined",
        "text": "6 failures of E",
        "severity": "critical",
        "fingerprint": "7f3a9c2100000000",
        "error": "E",
        "since": NOW - 120,
        "acknowledged": False,
        "snoozed_until": None,
        **more,
    }


def _frame(*rows: dict[str, Any], full: bool = True, **more: Any) -> dict[str, Any]:
    given = {
        "epoch": "e",
        "rev": 1,
        "full": full,
        "at": NOW,
        "units": list(rows),
        "gone": [],
        "fleet": {"state": "running"},
        "totals": {"units": len(rows), "running": len(rows)},
        "problems": [],
    }
    return {**given, **more}


def _top(*rows: dict[str, Any], **more: Any) -> Top:
    shown = Top()
    shown.take(_frame(*rows, **more))
    return shown


def _picture(shown: Top, rows: int = 20, columns: int = 100) -> list[str]:
    return shown.picture(rows, columns, colours=False)


def _press(shown: Top, *keys: str) -> Order | None:
    order = None
    for key in keys:
        order = shown.key(key)
    return order


# The screen.


def test_picture() -> None:
    """The fleet, what needs a person, the units with the worst first, and the keys."""
    shown = _top(
        _row("web", spent=1_500_000, limit=2_000_000),
        _row("bad", state="quarantined", running=False, reason="6 failures of E", problem="x", restarts=5, often=True),
        totals={"units": 2, "running": 1, "quarantined": 1, "spent_day": 1_500_000, "limit_day": 0},
        problems=[_problem("bad")],
    )
    lines = _picture(shown)
    assert lines[0] == "Fleet running: 1 of 2 units run, 1 quarantined, 1.50 USD today"
    assert lines[1] == "! bad quarantined for 2 min: 6 failures of E"
    assert lines[3].split() == ["UNIT", "STATE", "SINCE", "RESTARTS", "SPENT", "WHY"]
    assert lines[4].split()[:5] == ["bad", "quarantined", "1", "min", "5/h"]
    assert "1.50 USD of 2.00 USD" in lines[5]
    assert lines[-1].startswith("2 by need  |  j/k move")
    assert len(lines) == 20


def test_nothing_wrong() -> None:
    """It says so."""
    assert "Nothing needs you." in _picture(_top(_row("a")))


@given(
    rows=st.integers(1, 60),
    columns=st.integers(1, 200),
    names=st.lists(st.text(min_size=1, max_size=80), max_size=30, unique=True),
    text=st.text(max_size=300),
    keys=st.lists(
        st.sampled_from(["j", "k", "/", "x", "s", "p", "y", "R", "G", "escape", "pagedown", "enter"]), max_size=12
    ),
)
def test_fits(rows: int, columns: int, names: list[str], text: str, keys: list[str]) -> None:
    """Whatever is in it and wherever somebody is: exactly as many lines as there are, none too long, and nothing that
    steers a terminal."""
    problems = [_problem(name, title=text, text=text) for name in names]
    shown = _top(*(_row(name, reason=text, state="cooling", until=NOW + 5) for name in names), problems=problems)
    _press(shown, *keys)
    lines = _picture(shown, rows, columns)
    assert len(lines) == rows
    assert all(len(line) <= columns for line in lines)
    assert all(line.isprintable() for line in lines)


def test_many() -> None:
    """Ten thousand units, a change in some of them, and a picture: far below the time between two looks. The last can
    be reached."""
    shown = _top(*(_row(f"u{number:05}") for number in range(10_000)))
    _picture(shown)
    began = time.perf_counter()
    for turn in range(10):
        shown.take(_frame(*(_row(f"u{number:05}", restarts=turn) for number in range(200)), full=False, rev=turn + 2))
        _picture(shown)
    assert (time.perf_counter() - began) / 10 < 0.4
    _press(shown, "G")
    assert any(line.startswith("u09999") for line in _picture(shown))
    _press(shown, "g")
    assert any(line.startswith("u00000") for line in _picture(shown))


def test_changes() -> None:
    """Rows are changed, come and go; what did not change stays."""
    shown = _top(_row("a"), _row("b"))
    shown.take(
        _frame(_row("b", state="paused"), _row("c"), full=False, gone=["a"], fleet=None, totals=None, problems=None)
    )
    assert shown.listed == ["b", "c"]
    assert shown.fleet == {"state": "running"}
    shown.take(_frame(_row("z")))
    assert shown.listed == ["z"]


def test_chosen_stays() -> None:
    """The unit that somebody is on stays theirs when others come or change places."""
    shown = _top(_row("b"), _row("c"))
    _press(shown, "j")
    assert shown.chosen == "c"
    shown.take(_frame(_row("a"), _row("c", state="failed"), full=False))
    assert shown.listed == ["c", "a", "b"]
    assert _press(shown, "r") == Order("resume", {"units": ["c"]})


# Keys.


def test_filter() -> None:
    """What is typed after / is looked for in names, states and reasons; Enter keeps it, Esc clears it."""
    shown = _top(_row("web-1"), _row("web-2", state="cooling"), _row("db", reason="waits for WEB"))
    _press(shown, "/", *"coolx", "backspace")
    assert shown.listed == ["web-2"]
    assert _picture(shown)[-1] == "/cool_"
    _press(shown, "enter")
    assert _picture(shown)[-1].startswith("1 by need like 'cool'  |  j/k move")
    _press(shown, "/", *["backspace"] * 9, *"web")
    assert sorted(shown.listed) == ["db", "web-1", "web-2"]
    _press(shown, "escape")
    assert (shown.filter, shown.typing) == ("", False)
    _press(shown, "/", *"nobody", "enter")
    assert "No unit is like that." in _picture(shown)
    assert _press(shown, "p") is None
    assert "no unit" in shown.note


def test_sort() -> None:
    """By need, name, restarts, spent and since, by turns."""
    shown = _top(
        _row("a", restarts=1, spent=5, since=NOW - 5),
        _row("b", restarts=9, spent=1, since=NOW - 9),
        _row("c", state="halted", problem="x", spent=9, since=NOW - 7),
    )
    found = {}
    for _ in SORTS:
        found[shown.sort] = "".join(shown.listed)
        _press(shown, "s")
    assert found == {"need": "cab", "name": "abc", "restarts": "bac", "spent": "cab", "since": "acb"}
    assert shown.sort == "need"


def test_pause_asks() -> None:
    """A pause ends a process: it is asked for, and only y means yes."""
    shown = _top(_row("a"))
    assert _press(shown, "p") is None
    assert _picture(shown)[-1] == "Pause a? y/n"
    assert _press(shown, "n") is None
    assert shown.note == "Nothing was done."
    assert _press(shown, "p", "y") == Order("pause", {"units": ["a"]})


def test_reset_asks() -> None:
    """The failure that quarantines a unit is forgotten after a yes; where there is none, it says so."""
    shown = _top(_row("a", problem="x"), _row("b"), problems=[_problem("a")])
    assert _press(shown, "R") is None
    assert _picture(shown)[-1] == "Forget E (7f3a9c21), also of other units? y/n"
    assert _press(shown, "y") == Order("reset", {"fingerprint": "7f3a9c2100000000"})
    assert _press(shown, "j", "R") is None
    assert shown.note == "b has no failure that is quarantined."


def test_daemon_is_gone() -> None:
    """Then that is said, and nothing can be ordered; looking at what was there still can."""
    shown = _top(_row("a"))
    shown.gone = "The daemon does not answer"
    assert "The daemon does not answer" in _picture(shown)
    assert _press(shown, "r") is None
    assert _press(shown, "p") is None
    assert (shown.asking, shown.note) == (None, "Nothing can be ordered now.")
    shown.take(_frame(_row("a")))
    assert _press(shown, "r") == Order("resume", {"units": ["a"]})


def test_text() -> None:
    """Why a unit is what it is takes the place of the list, can be scrolled, and is left again."""
    shown = _top(_row("a"))
    assert _press(shown, "enter") == Order("why", {"unit": "a"})
    shown.text = [f"line {number}" for number in range(50)]
    assert "line 0" in _picture(shown)
    _press(shown, "j", "j")
    assert "line 1" not in _picture(shown)
    _press(shown, *["pagedown"] * 9)
    assert "line 49" in _picture(shown)
    _press(shown, "q")
    assert shown.text is None


def test_keys() -> None:
    """Arrows and their like are keys; what is not known is none."""
    assert list(keys_of("j\x1b[A\x1b[6~\x1bOB\x1b[15~\r\x7fä\x1b")) == [
        "j",
        "up",
        "pagedown",
        "down",
        "enter",
        "backspace",
        "ä",
        "escape",
    ]


def test_colours() -> None:
    """Colours change nothing but colours."""
    shown = _top(_row("a", state="failed"), _row("b"), problems=[_problem("a")])
    painted = shown.picture(20, 100, colours=True)
    assert [click.unstyle(line).rstrip() for line in painted] == [line.rstrip() for line in _picture(shown)]
    assert any("\x1b[31m" in line for line in painted)


# On a terminal.


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    site = Site(tmp_path)
    made = Place(tmp_path)
    made.env |= site.env | {"TERM": "xterm", "COLUMNS": "", "LINES": ""}
    made.env = {name: value for name, value in made.env.items() if value}
    site.write({"web": {"command": "sleep 1000"}, "worker": {"command": "sleep 1000"}})
    yield made
    site.clean()


@contextlib.contextmanager
def _screen(place: Place) -> Iterator[Screen]:
    with Screen(place, command=(*FLYBALL, "top"), rows=24, columns=100) as screen:
        before = screen.mode()
        yield screen
        assert screen.mode() == before


def test_no_terminal(place: Place) -> None:
    """Without a terminal it says what to use instead."""
    done = place.flyball("top")
    assert done.returncode == 2
    assert "top needs a terminal" in done.stderr
    assert "flyball status --json" in done.stderr


def test_nothing_ran(place: Place) -> None:
    """Where nothing ran it says so, and makes no files."""
    with _screen(place) as screen:
        screen.shows("nothing ran here yet")
        assert screen.code() == 2
    assert not place.state.exists()


def test_on_a_terminal(place: Place) -> None:
    """The units are seen, one is paused and resumed, why is read, the window changes its size; q leaves the terminal
    as it was."""
    site = Site(place.folder)
    site.env |= place.env
    site.flyball("up", "-d")
    site.all_up("web", "worker")
    with _screen(place) as screen:
        screen.shows(re.escape("\x1b[?1049h"))
        screen.shows("2 of 2 units run")
        assert not screen.mode()[LOCAL_MODES] & (termios.ICANON | termios.ECHO)
        screen.shows("web .*healthy")
        screen.type("/worker\r")
        screen.shows("1 by need like 'worker'")
        screen.type("p")
        screen.shows(re.escape("Pause worker? y/n"))
        screen.type("y")
        screen.shows("Done: pause. worker is paused")
        until(lambda: site.running().keys() == {"web"}, "the end of it")
        screen.shows("1 of 2 units run")
        screen.type("\r")
        screen.shows("worker is paused")
        screen.type("q")
        screen.shows("like 'worker'")
        screen.type("r")
        screen.shows("Done: resume.")
        site.all_up("web", "worker")
        screen.resize(12, 60)
        os.kill(screen.process.pid, signal.SIGWINCH)
        screen.shows("units run")
        screen.type("q")
        screen.shows(re.escape("\x1b[?1049l"))
        assert screen.code() == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_ended_by_a_signal(number: signal.Signals, place: Place) -> None:
    """A signal ends it, and the terminal is as it was."""
    site = Site(place.folder)
    site.env |= place.env
    site.flyball("up", "-d")
    with _screen(place) as screen:
        screen.shows("units run")
        os.kill(screen.process.pid, number)
        screen.shows(re.escape("\x1b[?1049l"))
        assert screen.code() in (130, 128 + number)


@pytest.mark.slow
def test_daemon_goes_and_comes(place: Place) -> None:
    """A daemon that goes away is told at once, and one that comes is seen."""
    site = Site(place.folder)
    site.env |= place.env
    site.flyball("up", "-d")
    site.all_up("web", "worker")
    with _screen(place) as screen:
        screen.shows("2 of 2 units run")
        site.down()
        screen.shows("The daemon does not answer")
        screen.type("r")
        screen.shows("Nothing can be ordered now")
        site.flyball("up", "-d")
        screen.shows("2 of 2 units run")
        screen.type("q")
        assert screen.code() == 0


@pytest.mark.slow
def test_without_a_daemon(place: Place) -> None:
    """The store is shown, and what is ordered stands when a daemon comes."""
    site = Site(place.folder)
    site.env |= place.env
    site.flyball("up", "-d")
    site.all_up("web", "worker")
    site.down()
    with _screen(place) as screen:
        screen.shows("0 of 2 units run")
        screen.type("py")
        screen.shows("Done: pause. web is paused")
        screen.type("q")
        assert screen.code() == 0
