"""`flyball trigger`: fire a rule by hand, and see what becomes of it."""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from flyball.cli import FAILED, FINE
from flyball.cli.ask import Asking
from flyball.cli.complete import rule_names
from flyball.cli.show import print_json
from flyball.cli.status import why
from flyball.control.commands import LINE_MAX
from flyball.control.forwarding import FORWARDED
from flyball.control.looking import EVENTS_MAX
from flyball.control.text import event_line, exit_text, one_line
from flyball.core.time import MINUTE, Span, format_span, parse_span, seconds
from flyball.errors import FlyballError
from flyball.runtimes.process.spawn import RUN_VARIABLE, UNIT_VARIABLE

WAIT: Final = 10 * MINUTE
"""How long --wait waits if nothing else is said: twice as long as a run of a rule may last by default."""
LOOK_SECONDS: Final = 0.2
"""Between two looks: no longer than an eye waits."""
DATA_MAX: Final = LINE_MAX - 4096
"""Bytes of --data: it goes to the daemon in one request, with a name and some marks."""
STILL_WAITS: Final = 3
"""The exit code when the time to wait is over before there was an end."""

FATES: Final = {
    "queued": "fired",
    "joined": "one that says the same waits already: one run is for both",
    "skipped": "not run: its condition does not hold",
    "queue_full": "not run: its queue is full, or that of all rules. `flyball queue {rule}` shows what waits",
    "chain_too_long": "not run: too many rules fired each other",
    "too_long": "not run: --data says more than is kept",
    "unknown_rule": "not run: the rule is not there any more",
    FORWARDED: "left to the host that looks after the rules: `flyball events {rule}` shows what comes of it",
}
"""What became of it, for people."""
WAITS: Final = ("queued", "joined")

EXAMPLES: Final = """\
\b
Examples:
  flyball trigger watch-price                          fire it
  flyball trigger watch-price --data '{"amount": 3}'   with something to say: trigger.data
  flyball trigger watch-price --data @order.json       from a file; --data - reads what is piped in
  flyball trigger watch-price --wait 2m                and see how it ends

\b
Exit codes with --wait: 0 done, 1 failed, held or not run, 3 it still waits or runs.
"""


def _length(_: click.Context, __: click.Parameter, given: str | None) -> Span | None:
    if given is None:
        return None
    try:
        return parse_span(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(epilog=EXAMPLES)
@click.argument("rule", shell_complete=rule_names)
@click.option("--data", metavar="JSON|@FILE|-", help="What it is told: `trigger.data` in its condition and templates.")
@click.option(
    "--wait",
    is_flag=False,
    flag_value=f"{seconds(WAIT):g}s",
    callback=_length,
    metavar="[TIME]",
    help=f"Wait until it is done, failed or held; {format_span(WAIT)} if no time is given.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def trigger(rule: str, data: str | None, wait: Span | None, as_json: bool) -> int:
    """Fire RULE now. Its condition, its limits and all safeguards hold as ever. Needs a daemon."""
    told = None if data is None else _json(data)
    with Asking() as ask:
        after = 0 if ask.fresh else ask("events", limit=0)["last"]
        said = ask("trigger", rule=rule, data=told, **_from_inside())
        if not as_json:
            click.echo(f"{rule}: {_fate(said)}")
        waits = said["fate"] in WAITS
        if said["fate"] == FORWARDED:  # nobody here knows by which id
            if as_json:
                print_json(said)
            return FINE if wait is None else STILL_WAITS
        if not waits or wait is None:
            if as_json:
                print_json(said)
            elif waits:
                _say_how_it_stands(ask, rule)
            return FINE if waits else FAILED
        ended = _Following(ask, said, after, quiet=as_json).until(time.monotonic() + seconds(wait))
    if as_json:
        print_json({**said, **ended})
    else:
        click.echo(f"{rule}: {one_line(ended['text'])}")
    return {"done": FINE, "waiting": STILL_WAITS}.get(ended["outcome"], FAILED)


def _from_inside() -> dict[str, str]:
    """Which unit this command is run by, and in which run of it. Then no person fires the rule."""
    inside = {"unit": os.environ.get(UNIT_VARIABLE, ""), "run": os.environ.get(RUN_VARIABLE, "")}
    return inside if inside["unit"] else {}


def _fate(said: Mapping[str, Any]) -> str:
    text = FATES.get(said["fate"], said["fate"]).format(rule=said["rule"])
    return f"{text} ({said['id']})" if said["fate"] in WAITS and said.get("id") else text


def _say_how_it_stands(ask: Asking, rule: str) -> None:
    """What was fired may have to wait for a person: that is worth a line."""
    unit = ask("unit", unit=rule)
    if _waits_for_a_person(unit):
        click.echo(f"{rule} is {unit['state']}, so it waits: {one_line(why(unit, time.time()))}", err=True)
        for remedy in dict.fromkeys(reason["remedy"] for reason in unit["reasons"] if reason["remedy"]):
            click.echo(one_line(remedy), err=True)


def _waits_for_a_person(unit: Mapping[str, Any]) -> bool:
    """Whether it is held, or was stopped: by a person, or as a loop."""
    return bool(unit["held"] or (unit["state"] == "stopped" and unit["reasons"]))


def _json(given: str) -> Any:
    """What is to be said. FlyballError if it cannot be."""
    text = given
    if given == "-":
        text = sys.stdin.read(DATA_MAX + 1)
    elif given.startswith("@"):
        try:
            with Path(given[1:]).open(encoding="utf-8") as file:
                text = file.read(DATA_MAX + 1)
        except OSError as error:
            raise FlyballError(f"--data: {given[1:]}: {error.strerror}", remedy="Check the name of the file.") from None
        except UnicodeDecodeError:
            raise FlyballError(f"--data: {given[1:]} is no text", remedy="Give a file with JSON, in UTF-8.") from None
    size = len(text.encode(errors="replace"))
    if size > DATA_MAX:
        remedy = "Put it into a file, and give the name of that file."
        raise FlyballError(f"--data: more than {DATA_MAX} bytes", remedy=remedy)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        remedy = """It has to be JSON: --data '{"amount": 3}'; a text in quotes: --data '"now"'."""
        raise FlyballError(f"--data is not JSON: {error}", remedy=remedy) from None


class _Following:
    """Follows one firing through the journal."""

    def __init__(self, ask: Asking, said: Mapping[str, Any], after: int, *, quiet: bool) -> None:
        self._ask = ask
        self._rule: str = said["rule"]
        self._id: str = said["id"]
        self._last = after
        self._quiet = quiet

    def until(self, end: float) -> dict[str, Any]:
        """What became of it: `outcome` (done, failed, held, dropped, waiting), and a text."""
        while True:
            # The queue is looked at before the journal: what is gone from it by now is in there.
            rule = self._ask("rules", rules=[self._rule])["rules"][0]
            for data in self._news():
                if data["event"] == "exited":
                    return self._ended(data)
                if data["event"] == "fired" and data["data"].get("dropped"):
                    return {"outcome": "dropped", "text": data["text"]}
            if not any(firing["id"] == self._id for firing in rule["queue"]):
                return {"outcome": "dropped", "text": "it is gone from the queue, and was not run"}
            if _waits_for_a_person(rule):
                reason = rule["reasons"][0]
                return {"outcome": "held", "text": f"it waits for a person: {reason['text']}. {reason['remedy']}"}
            if time.monotonic() >= end:
                return {"outcome": "waiting", "text": f"it still {'runs' if rule['running'] else 'waits'}"}
            time.sleep(LOOK_SECONDS)

    def _news(self) -> list[dict[str, Any]]:
        """What happened to it since the last look."""
        said = self._ask("events", unit=self._rule, after=self._last, limit=EVENTS_MAX)
        self._last = said["last"]
        mine = [data for data in said["events"] if self._is_of_it(data["data"])]
        if not self._quiet:
            for data in mine:
                click.echo(event_line(data, time.time()))
        return mine

    def _is_of_it(self, event: Mapping[str, Any]) -> bool:
        return event.get("id") == self._id or event.get("run", "").rpartition(".")[0] == self._id

    def _ended(self, data: Mapping[str, Any]) -> dict[str, Any]:
        ended = data["data"]
        if ended["cause"] == "done":
            return {"outcome": "done", "text": "done", "exit": ended}
        rule = self._ask("rules", rules=[self._rule])["rules"][0]
        kept = any(firing["id"] == self._id for firing in rule["queue"])
        again = "; it is tried again when the safeguards let it" if kept else ""
        how = exit_text(ended["cause"], ended.get("error", ""), ended.get("code"), ended.get("signal"))
        return {"outcome": "failed", "text": f"{how}{again}. `flyball why {self._rule}`", "exit": ended}
