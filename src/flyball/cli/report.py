"""`flyball report`: what a child tells its supervisor, from a shell. The answer is the exit code, the reasons are text.

| exit code | meaning |
|---|---|
| 0 | go on |
| 2 | bad usage, or nobody answered: no leave was given |
| 10 | wait: do not make this step; make another one, or ask again later |
| 11 | finish: wrap up, deliver what there is, exit |
| 12 | stop: the run is being ended |
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import click

from flyball.cli import FINE
from flyball.core.failure import MESSAGE_MAX, call_fingerprint
from flyball.core.time import parse_span, seconds
from flyball.runtimes.tell import ANSWER_MAX, ask, tell

WAIT: Final = 10
FINISH: Final = 11
STOP: Final = 12
_CODES: Final = {"proceed": FINE, "wait": WAIT, "finish": FINISH, "stop": STOP, "hold": STOP}

CALL_MAX: Final = 1_000
"""Characters of a call that are sent as they are. A longer one is sent as its fingerprint, which tells it as well."""

TEXT_MAX: Final = 1_000
"""Characters of a pattern or of a progress text that are sent. Both are for people to read at a glance."""

EXAMPLES: Final = """\
\b
Examples:
  flyball report ask --pattern search --call "$query" --cost 0.05 || exit
  flyball report step --pattern search --call "$query" --result "$hits" --spent 0.02
  flyball report progress "12 of 40 files"
  flyball report checkpoint --stage fetch
  flyball report pause rate_limit --after 90s

\b
Exit codes:
  0   go on
  2   bad usage, or nobody answered: no leave was given
  10  wait: do not make this step; make another one, or ask again later
  11  finish: wrap up, deliver what there is, exit
  12  stop: the run is being ended
"""


@click.group(epilog=EXAMPLES)
def report() -> None:
    """Tell the supervisor about the work of this run.

    For use inside a command that flyball runs. What is reported counts for its limits, its budget and its loop and
    stall safeguards.
    """


def _seconds(_: click.Context, __: click.Parameter, given: str | None) -> float | None:
    if given is None:
        return None
    try:
        return float(given) if given.isdecimal() else seconds(parse_span(given))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_json_option = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
_timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0, 600, min_open=True),
    default=ANSWER_MAX,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the answer.",
)


@report.command("ask")
@click.option("--pattern", required=True, metavar="NAME", help="What kind of step: a tool, a node, an action.")
@click.option("--call", default="", metavar="TEXT", help="The call with its arguments; only a fingerprint is kept.")
@click.option("--cost", metavar="USD", help="The most that it can cost; reserved before it is made.")
@click.option("--tokens", type=click.IntRange(0), metavar="N", help="The most tokens that it can take.")
@click.option("--last", is_flag=True, help="The step that wraps up: it may use what was kept back for it.")
@_timeout_option
@_json_option
def ask_(
    *, pattern: str, call: str, cost: str | None, tokens: int | None, last: bool, timeout: float, as_json: bool
) -> int:
    """May this step be made? Ask before it is."""
    step = {"pattern": pattern[:TEXT_MAX], "call": _sent(call), "cost": _amounts(cost, tokens), "last": last}
    return _report("X_FLYBALL_STEP", json.dumps(step), timeout, as_json=as_json)


@report.command()
@click.option("--pattern", required=True, metavar="NAME", help="What kind of step: a tool, a node, an action.")
@click.option("--call", default="", metavar="TEXT", help="The call with its arguments; only a fingerprint is kept.")
@click.option("--result", default="", metavar="TEXT", help="What came of it; only a fingerprint is kept.")
@click.option("--error", is_flag=True, help="It failed: the result is an error.")
@click.option("--world", default="", metavar="TEXT", help="A digest of the world after it, such as a commit's hash.")
@click.option("--polling", is_flag=True, help="It is asked again and again until something changes.")
@click.option("--spent", metavar="USD", help="What it cost.")
@click.option("--tokens", type=click.IntRange(0), metavar="N", help="The tokens that it took.")
@click.option("--round", "round_", type=click.IntRange(0), metavar="N", help="The round that it finished.")
@click.option("--gauge", "gauges", type=(str, float), multiple=True, metavar="NAME VALUE", help="A reading.")
@_timeout_option
@_json_option
def step(
    *,
    pattern: str,
    call: str,
    result: str,
    error: bool,
    world: str,
    polling: bool,
    spent: str | None,
    tokens: int | None,
    round_: int | None,
    gauges: tuple[tuple[str, float], ...],
    timeout: float,
    as_json: bool,
) -> int:
    """A step was made. If it was not asked for before, that is done now: it counts."""
    readings = dict(gauges) if round_ is None else {**dict(gauges), "round": float(round_)}
    made = {
        "pattern": pattern[:TEXT_MAX],
        "call": _sent(call),
        # A fingerprint looks no further than this.
        "result": result[: 2 * MESSAGE_MAX],
        "world": _sent(world),
        "error": error,
        "polling": polling,
        "used": _amounts(spent, tokens),
        "gauges": readings,
    }
    return _report("X_FLYBALL_STEPPED", json.dumps(made, ensure_ascii=False), timeout, as_json=as_json)


@report.command()
@click.argument("amount", metavar="USD")
@_timeout_option
@_json_option
def spend(amount: str, timeout: float, as_json: bool) -> int:
    """So much was spent, beside what was reported with steps."""
    return _report("X_FLYBALL_SPENT", amount, timeout, as_json=as_json)


@report.command()
@click.argument("text")
@_timeout_option
@_json_option
def progress(text: str, timeout: float, as_json: bool) -> int:
    """Say how far it is. A text that was not said before counts as new ground."""
    return _report("X_FLYBALL_PROGRESS", text[:TEXT_MAX], timeout, as_json=as_json)


@report.command()
@click.option("--stage", default="", metavar="NAME", help="After which stage: it counts as a step of that name.")
@_timeout_option
@_json_option
def checkpoint(stage: str, timeout: float, as_json: bool) -> int:
    """A session's file has a new checkpoint: keep it.

    The file is the one that FLYBALL_CHECKPOINT names. When this returns, what was in it is on disk, and a later run
    goes on from there.
    """
    return _report("X_FLYBALL_CHECKPOINT", json.dumps({"stage": stage[:TEXT_MAX]}), timeout, as_json=as_json)


@report.command()
@click.argument("reason")
@click.option(
    "--after", callback=_seconds, metavar="TIME", help="For how long: 90s, 5m; not given: as the settings say."
)
@_timeout_option
@_json_option
def pause(reason: str, after: float | None, timeout: float, as_json: bool) -> int:
    """A session pauses: say so, then exit. It is resumed when the time has come.

    REASON is rate_limit, usage_limit, session_limit, or any other name; what is paused for a `person` waits for one.
    The exit code does not matter then.
    """
    pauses = {"reason": reason[:TEXT_MAX], "after": after}
    return _report("X_FLYBALL_PAUSE", json.dumps(pauses), timeout, as_json=as_json)


@report.command()
def beat() -> None:
    """It is alive: for the watchdog and the idle deadline."""
    tell([("WATCHDOG", "1")])


@report.command()
def ready() -> None:
    """It is up: for units with `ready: notify`."""
    tell([("READY", "1")])


def _report(key: str, value: str, timeout: float, *, as_json: bool) -> int:
    answer = ask([(key, value.replace("\n", " "))], answer_max=timeout)
    if as_json:
        click.echo(json.dumps(answer))
    else:
        _print(answer)
    return _CODES.get(str(answer.get("verb")), STOP)


def _print(answer: Mapping[str, Any]) -> None:
    verb = answer.get("verb")
    for reason in answer.get("reasons", ()):
        click.echo(f"{'note' if verb == 'proceed' else verb}: {reason['text']}", err=True)
        if reason["remedy"]:
            click.echo(f"  {reason['remedy']}", err=True)


def _sent(text: str) -> str:
    return text if len(text) <= CALL_MAX else call_fingerprint("", text)


def _amounts(usd: str | None, tokens: int | None) -> dict[str, str | int]:
    given: dict[str, str | int | None] = {"usd": usd, "tokens": tokens}
    return {meter: amount for meter, amount in given.items() if amount is not None}
