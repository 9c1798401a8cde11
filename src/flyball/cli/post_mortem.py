"""The story of a session as lines, for `flyball why`."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from flyball.cli.sessions import why
from flyball.control.text import ago, clock_time, length, one_line, table, times
from flyball.core.amounts import MONEY, amount_text

TIMES_MAX: Final = 10
"""Kinds of steps whose times are printed: those that took longest. `--json` has more."""


def post_mortem_lines(session: Mapping[str, Any], told: Mapping[str, Any], now: float) -> Iterable[str]:
    """All of it."""
    reason = why(session, now)
    yield f"{session['kind'].capitalize() + ':':<12}{session['status']}" + (f": {one_line(reason)}" if reason else "")
    last = session["checkpoints"][-1] if session["checkpoints"] else None
    if last is not None:
        after = f" after {one_line(last['stage'])}" if last["stage"] else ""
        yield f"Checkpoint: {last['id']}{after}, {ago(last['at'], now)} ago"
    yield from ("", "What each layer saw:")
    for layer in told["layers"]:
        fired = "  <- this one ended it" if layer["fired"] else ""
        yield f"  {layer['layer']} {layer['name']}: {layer['text']}{fired}"
    yield from ("", "Its story:" if told["whole"] else "Its story, as far as the journal has it:")
    yield from (f"  {clock_time(moment['at'], now)}  {one_line(moment['text'])}" for moment in told["timeline"])
    yield from _times(told)
    if told["causes"]:
        yield from ("", "Why it may have taken so long:", *(f"  {one_line(cause)}" for cause in told["causes"]))


def _times(told: Mapping[str, Any]) -> Iterable[str]:
    if not told["times"]:
        return
    rows = [
        (
            ("  in them: " if one["part"] else "") + (one["pattern"] or "(no name)"),
            times(one["times"]),
            length(one["seconds"]),
            length(one["longest"]),
            str(one["errors"] or "-"),
            amount_text(MONEY, one["spent"]) if one["spent"] else "-",
        )
        for one in sorted(told["times"], key=lambda one: (one["part"], -one["seconds"]))[:TIMES_MAX]
    ]
    yield from ("", "Where the time went:")
    yield from (f"  {line}" for line in table(("STEP", "MADE", "TOOK", "LONGEST", "FAILED", "SPENT"), rows))
    yield f"  outside of them, or in one that did not end: {length(told['between'])}"
