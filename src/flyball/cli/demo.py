"""`flyball demo`: the first minute. What happens on stage is in `flyball.demo`; here it is printed."""

import os
import shutil
import signal
import sys
import textwrap
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from flyball.cli import FAILED, FINE
from flyball.cli.problems import what_to_type
from flyball.cli.show import colour_option, coloured, faint, print_json, strong, width
from flyball.cli.up import listen_address
from flyball.config.plan import OFF
from flyball.control.text import one_line, table

if TYPE_CHECKING:
    from flyball.demo.director import Outcome, Tour
    from flyball.demo.narrator import Line
    from flyball.demo.stage import Stage

ANYWHERE: Final = "127.0.0.1:0"
"""Any free port of this machine: the demo is in nobody's way, and several may run at once."""
NAME_WIDTH: Final = 17
"""Of the column with the names of units."""
LEAST_WIDTH: Final = 40
"""Of a line's text: on a narrower terminal it breaks as the terminal has it."""
STAYS_LOOK: Final = 0.5
"""Seconds between looks for something new when the tour is over."""
BY_SIGNAL: Final = 128
"""Added to the number of the signal that ended it."""

EXAMPLES: Final = """\
\b
Examples:
  flyball demo                    the tour, then the page to play with, until Ctrl-C
  flyball demo --once             the tour only; exits 0 if every unit ended as it should
  flyball demo --once --json      for a script
  flyball demo --port 8910        the page at this port
  flyball demo --no-open          print the link to the page, open no browser
"""


@click.command(epilog=EXAMPLES)
@click.option("--once", is_flag=True, help="End when the tour is over; so it is, too, where there is no terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print what became of each unit as JSON, and end: for scripts.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT", help="The page's port; not given: a free one.")
@click.option(
    "--http",
    callback=listen_address,
    metavar="ADDRESS",
    help="Where the page is: a host and a port, or off. It wins over --port.",
)
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@colour_option
def demo(once: bool, as_json: bool, port: int | None, http: str | None, no_open: bool) -> int:
    """Show in about a minute what flyball does: agents and automations that go wrong in the usual ways, what becomes of
    each, and why. All of it is real, in a folder of its own; Ctrl-C leaves nothing behind.

    Exits 0 if every unit ended as it should, 1 if one did not.
    """
    from flyball.demo.signals import Signals, Told  # noqa: PLC0415 - only when it is played
    from flyball.demo.stage import set_up  # noqa: PLC0415 - as above

    on_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    stays = on_terminal and not once and not as_json
    listen = http or (ANYWHERE if port is None else f"127.0.0.1:{port}")
    show = Show(stays=stays, opens=not no_open, to_stderr=as_json)
    with Signals() as signals, set_up() as stage:
        try:
            with signals.heard():
                outcomes = show.play(stage, listen)
                if as_json:
                    print_json(show.summary(stage, outcomes))
                if stays:
                    show.stay(stage)
        except Told as told:
            ended = show.ended_well if show.is_over and told.number == signal.SIGINT else None
            code = BY_SIGNAL + told.number if ended is None else FINE if ended else FAILED
            show.bow(told.number)
        else:
            code = FINE if show.ended_well else FAILED
    return code


class Show:
    """What is printed, in the order in which it comes."""

    def __init__(self, *, stays: bool, opens: bool, to_stderr: bool) -> None:
        self._stays, self._opens, self._to_stderr = stays, opens, to_stderr
        self._began = time.time()
        self._tour: Tour | None = None
        self._took = 0.0
        self.is_over = False
        """The tour is over, and what comes is play."""
        self.ended_well = False

    def play(self, stage: "Stage", listen: str) -> "list[Outcome]":
        """The whole tour, from the cast to the closing table."""
        from flyball.demo.director import Tour  # noqa: PLC0415 - only when it is played

        self._introduce(stage)
        self._began = time.time()
        stage.begin(listen)
        if listen != OFF:
            self._point_to_page(stage)
        self._tour = Tour(stage.scratch, stage.shop, stage.members, self._line)
        outcomes = self._tour.run()
        self._took = time.time() - self._began
        self.ended_well = not any(one.wrong for one in outcomes)
        self._close(outcomes)
        self.is_over = True
        return outcomes

    def stay(self, stage: "Stage") -> None:
        """Until somebody ends it; what they do on the page, or in another terminal, is told, too."""
        assert self._tour is not None  # noqa: S101 - it stays after it was played
        self._say("")
        self._say(strong("It stays up: play with it.") + " On the page, or in another terminal:")
        if shutil.which("flyball") is None:
            self._say(f"  export PATH={Path(sys.executable).parent}:$PATH")
        self._say(f"  export FLYBALL_STATE_DIR={stage.scratch.state}")
        self._say("  flyball status; flyball why invoice-parser; flyball page")
        self._say("What you do is told here. Ctrl-C ends it, and nothing is left behind.")
        self._say("")
        while True:
            self._tour.look()
            time.sleep(STAYS_LOOK)

    def bow(self, number: int) -> None:
        """Somebody ended it. Where that was the end of the terminal, nobody hears."""
        if number != signal.SIGHUP:
            self._say("\nends all of it; nothing is left behind")

    def summary(self, stage: "Stage", outcomes: "list[Outcome]") -> dict[str, Any]:
        """For scripts."""
        from flyball.demo.cast import install  # noqa: PLC0415 - only when it is played

        return {
            "ok": self.ended_well,
            "seconds": round(self._took, 1),
            "members": [
                {
                    "name": one.member.name,
                    "does": one.member.does,
                    "expected": {"state": one.member.state, "code": one.member.code},
                    "units": one.states,
                    "policy": one.reason.get("policy", ""),
                    "code": one.reason.get("code", ""),
                    "text": one.reason.get("text", ""),
                    "type": what_to_type(one.actions),
                    "wrong": one.wrong,
                }
                for one in outcomes
            ],
            "left_out": [{"name": one.name, "does": one.does, "install": install(one.extra)} for one in stage.left_out],
        }

    def _introduce(self, stage: "Stage") -> None:
        from flyball.demo.cast import install  # noqa: PLC0415 - only when it is played

        self._say(strong("Agents and automations that go wrong, and what becomes of them. It takes about a minute."))
        self._say(f"All of it is real, and in {stage.scratch.folder}, which is gone afterwards; waits are shortened.")
        self._say("")
        for member in stage.members:
            self._say(f"  {member.name:<{NAME_WIDTH}} {member.does}")
        for member in stage.left_out:
            self._say(faint(f"  {member.name:<{NAME_WIDTH}} left out ({member.does}): {install(member.extra)}"))
        if not stage.in_browser:
            self._say(faint(f"  For a rule in a real browser: {install('browser,rules')}, and Chromium."))
        self._say("")

    def _point_to_page(self, stage: "Stage") -> None:
        said = stage.scratch.ask("login_link")
        opened = self._opens and self._stays and _has_screen() and webbrowser.open(said["link"])
        # The link logs in once: when it was opened, there is nothing to be had by it any more.
        self._say(
            f"{strong('The page')}, in your browser: {said['address']}"
            if opened
            else f"{strong('The page')}: {said['link']}"
        )
        self._say("")

    def _line(self, line: "Line") -> None:
        at, unit = f"{line.at - self._began:5.1f} s  ", f"{line.unit:<{NAME_WIDTH}} "
        first, *more = _wrapped(one_line(line.text), len(at + unit))
        self._say(faint(at) + strong(unit) + coloured(first, line.tone))
        for text in more:
            self._say(f"{'':{len(at + unit)}}{coloured(text, line.tone)}")
        for text in _wrapped(line.explained, len(at + unit)) if line.explained else ():
            self._say(f"{'':{len(at + unit)}}{faint(text)}")

    def _close(self, outcomes: "list[Outcome]") -> None:
        head = ("unit", "what it does", "ended as", "safeguard", "what a person types")
        rows = [
            (
                one.member.name,
                one.member.does,
                ", ".join(dict.fromkeys(one.states.values())),
                one.reason.get("policy", "-"),
                what_to_type(one.actions) or "-",
            )
            for one in outcomes
        ]
        self._say("")
        first, *others = table(head, rows)
        self._say(strong(first))
        for line in others:
            self._say(line)
        self._say("")
        well = sum(not one.wrong for one in outcomes)
        self._say(f"{well} of {len(outcomes)} ended as they should, after {self._took:.0f} s")
        for one in outcomes:
            if one.wrong:
                click.echo(coloured(f"not as it should: {one.member.name}: {one.wrong}", "failed"), err=True)

    def _say(self, text: str) -> None:
        click.echo(text, err=self._to_stderr)


def _wrapped(text: str, indent: int) -> list[str]:
    """Lines that fit beside so much, where there is a terminal; otherwise one."""
    wide = width()
    return [text] if wide is None else textwrap.wrap(text, max(LEAST_WIDTH, wide - indent))


def _has_screen() -> bool:
    """Whether a browser that is opened would be seen: on a bare terminal some are found that would take it over."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
