"""Lines of the daemon's log as JSON."""

import json
import logging
import sys
from typing import Any

import pytest

from flyball.control.log_lines import JsonLines, named
from flyball.core.decision import Reason, hold
from flyball.core.event import Cause, Exited


def written(text: str, *args: object, trace: bool = False, **extra: Any) -> dict[str, Any]:
    """A record as it stands in the log: one line."""
    record = logging.makeLogRecord(
        {"msg": text, "args": args, "name": "flyball.fleet", "levelname": "INFO", "created": 1_700_000_000.25, **extra}
    )
    if trace:
        record.exc_info = sys.exc_info()
    line = JsonLines().format(record)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_plain_line() -> None:
    """Time with its zone, level, where it is from, text; and nothing that it is not about."""
    assert written("up: %d units", 3) == {
        "time": "2023-11-14T22:13:20.250000+00:00",
        "level": "info",
        "logger": "flyball.fleet",
        "text": "up: 3 units",
    }


def test_a_decision() -> None:
    """The unit, its run, the event, the verdict and the codes can be searched for."""
    decision = hold(Reason("quarantine", "quarantined", "6 failures of one kind"))
    line = written("coder exited", **named("coder", Exited(unit="coder", run="r1", cause=Cause.ERROR), decision))
    assert line["unit"] == "coder"
    assert line["run"] == "r1"
    assert (line["event"], line["verdict"], line["codes"]) == ("exited", "hold", ["quarantined"])


@pytest.mark.parametrize(
    "text", ['say "hi"', "two\nlines", "back\\slash", "\x00\x1b[31m", "\u2028", "\udcff no text", "☃"], ids=ascii
)
def test_any_text_is_one_line(text: str) -> None:
    """Whatever a unit says, it is inside one text of one line; what is no text becomes `?`."""
    assert written("%s", text)["text"] == text.replace("\udcff", "?")


def test_a_traceback_is_inside_of_its_line() -> None:
    """And not after it, where no reader of lines would find it."""
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        line = written("it failed", trace=True)
    assert line["trace"].startswith("Traceback")
    assert line["trace"].endswith("ZeroDivisionError: by nothing")
