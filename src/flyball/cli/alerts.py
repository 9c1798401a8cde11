"""`flyball alerts`: what people were told of, how the channels are; and `flyball alerts test`, which tries them."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from flyball.cli import FAILED, FINE
from flyball.cli.ask import Asking
from flyball.cli.show import coloured, print_json, width
from flyball.control.text import ago, clock_time, one_line, table

HEAD: Final = ("SEVERITY", "KIND", "UNITS", "COUNT", "SINCE", "TEXT")
CHANNEL_HEAD: Final = ("CHANNEL", "TYPE", "STATE", "SENT", "WAITS", "LAST", "ERROR")
WAIT_MAX: Final = 40.0
"""Seconds that a test is waited for: a channel has thirty at most."""
LOOK_EVERY: Final = 0.2
UNITS_MAX: Final = 3
"""Units that a line names."""

EXAMPLES: Final = """\
\b
Examples:
  flyball alerts               what is open, and how the channels are
  flyball alerts --json        for a script
  flyball alerts test          try all channels
  flyball alerts test phone    try one
"""


@click.group(epilog=EXAMPLES, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def alerts(context: click.Context, as_json: bool) -> int:
    """Show alerts that are open, and how the channels are; exit code 1 if one of those does not work. Needs no
    daemon."""
    if context.invoked_subcommand is not None:
        return FINE
    with Asking() as ask:
        said = ask("alerts")
    if as_json:
        print_json(said)
    else:
        _print(said)
    return FAILED if any(channel["dead"] for channel in said["channels"]) else FINE


@alerts.command()
@click.argument("channel", required=False, default="")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def test(channel: str, as_json: bool) -> int:
    """Send a test message by CHANNEL, or by all, and wait until it is sent; exit code 1 if one is not. Needs the
    daemon."""
    with Asking() as ask:
        asked = ask("test_alert", channel=channel)
        fates = _wait(ask, asked["id"], asked["channels"])
    if as_json:
        print_json({"id": asked["id"], "channels": fates})
    else:
        for name, fate in fates.items():
            good = fate["state"] == "sent"
            word = coloured(fate["state"], "healthy" if good else "failed")
            click.echo(f"{name}: {word}" + (f": {one_line(fate['error'])}" if fate["error"] else ""))
    return FINE if all(fate["state"] == "sent" for fate in fates.values()) else FAILED


def _wait(ask: Asking, id_: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What became of it, by channel."""
    end = time.monotonic() + WAIT_MAX
    while True:
        known = ask("alerts", test=id_)["test"]
        fates = {name: known.get(name) or {"state": "waiting", "error": ""} for name in names}
        if all(fate["state"] != "waiting" for fate in fates.values()) or time.monotonic() >= end:
            return fates
        time.sleep(LOOK_EVERY)


def _print(said: Mapping[str, Any]) -> None:
    now = said["at"]
    if not said["channels"]:
        click.echo("There are no channels, so nobody is told anything: name one under `alerts:` in the settings.")
        return
    if said["groups"]:
        for line in table(HEAD, [_row(group, now) for group in said["groups"]], width()):
            click.echo(line)
    else:
        click.echo("No alerts are open.")
    click.echo()
    shown = table(CHANNEL_HEAD, [_channel_row(channel, now) for channel in said["channels"]], width())
    click.echo(shown[0])
    for line, channel in zip(shown[1:], said["channels"], strict=True):
        click.echo(coloured(line, "failed") if channel["dead"] else line)


def _row(group: Mapping[str, Any], now: float) -> Sequence[str]:
    units = group["units"]
    more = group["problems"] - UNITS_MAX
    named = ", ".join(units[:UNITS_MAX]) + (f" and {more} more" if more > 0 and len(units) > UNITS_MAX else "")
    seen = " (acknowledged)" if group["acknowledged"] else ""
    if group["snoozed_until"] is not None:
        seen = f" (snoozed until {clock_time(group['snoozed_until'], now)})"
    return (
        group["severity"] + seen,
        group["kind"],
        named or "-",
        str(group["count"]),
        f"{ago(group['since'], now)} ago",
        one_line(group["text"]),
    )


def _channel_row(channel: Mapping[str, Any], now: float) -> Sequence[str]:
    state = (
        "dead" if channel["dead"] else "fails" if channel["failures"] else "works" if channel["worked"] else "unused"
    )
    waits = [f"{channel['pending']} wait"] if channel["pending"] else []
    waits += [f"{channel['held_back']} held back"] if channel["held_back"] else []
    waits += [f"{channel['given_up']} given up"] if channel["given_up"] else []
    last = channel["worked"]
    return (
        channel["name"],
        channel["type"],
        state,
        str(channel["sent"]),
        ", ".join(waits) or "-",
        f"{ago(last, now)} ago" if last is not None else "-",
        one_line(channel["error"]) or "-",
    )
