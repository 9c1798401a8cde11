"""Lines of the daemon's log as JSON, one object a line, for whoever collects logs.

Python's own logging with a formatter is enough: what is logged is a text and at most a handful of named values, and a
library for structured logs would be one more thing in the memory of every daemon.
"""

import logging
from datetime import UTC, datetime
from typing import Any, Final

from flyball.core.codec import encode
from flyball.core.decision import Decision
from flyball.core.event import Event

NAMED: Final = ("unit", "run", "event", "verdict", "codes")
"""What a record may have beside its text, in this order."""


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, where it is from, text, and what is named; a traceback as `trace`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": record.getMessage(),
        }
        line |= {name: value for name in NAMED if (value := getattr(record, name, None))}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return encode(line).decode()


def named(unit: str, event: Event, decision: Decision) -> dict[str, Any]:
    """What to log as `extra` with a decision, so that it can be searched for."""
    return {
        "unit": unit,
        "run": event.run,
        "event": type(event).__name__.lower(),
        "verdict": decision.verb.name.lower(),
        "codes": decision.codes,
    }
