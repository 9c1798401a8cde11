"""The `flyball` command: parsing and printing, nothing else. What a command does lives in the module that it calls.

Here is the list of commands and what becomes of an error. Click, which takes commands apart, is imported only when
there is one to take apart, and a command's module only when it is run: so `flyball --help` costs little more than
starting Python.

| exit code | meaning |
|---|---|
| 0 | fine |
| 1 | what was asked about is not fine: a check failed, a bound was not kept, a unit is still held |
| 2 | bad usage, bad settings, a store that cannot be used, or nobody who could do it |
| 130 | ended by Ctrl-C |
| 141 | whoever read the output went away |

`run`, `report` and `trigger --wait` have more of them, which are in `run_report`, `report` and `trigger`.
"""

import errno
import os
import sys
from collections.abc import Sequence
from typing import Final

from flyball.errors import FlyballError

FINE: Final = 0
FAILED: Final = 1
BAD: Final = 2
INTERRUPTED: Final = 130
CUT_OFF: Final = 141
PLAIN: Final = frozenset(
    (
        "ambiguous",
        "bad_argument",
        "bad_line",
        "bad_settings",
        "exists",
        "failed",
        "not_found",
        "settings_error",
        "unknown_unit",
    )
)
"""Topics of errors whose text says all there is: no page is offered with them."""

COMMANDS: Final = {
    "run": ("flyball.cli.run:run", "Guard one command in the foreground."),
    "demo": ("flyball.cli.demo:demo", "Show what it does, in a minute, and leave nothing behind."),
    "up": ("flyball.cli.up:up", "Start the daemon and all units of the settings."),
    "down": ("flyball.cli.up:down", "End all units and the daemon."),
    "reload": ("flyball.cli.up:reload", "Make the daemon apply what changed in the settings."),
    "page": ("flyball.cli.page:page", "Print a link that opens the page of the daemon."),
    "token": ("flyball.cli.token:token", "Show, make and remove tokens for the page and its API."),
    "status": ("flyball.cli.status:status", "Show the fleet and its units."),
    "top": ("flyball.cli.top:top", "Watch all units on the whole screen, with keys to put things right."),
    "why": ("flyball.cli.why:why", "Say why a unit is what it is, and what to do."),
    "problems": ("flyball.cli.problems:problems", "Show what waits for a person, and what to type."),
    "failures": ("flyball.cli.failures:failures", "Show failures by fingerprint, in all units."),
    "budgets": ("flyball.cli.budgets:budgets", "Show who may spend how much, and has."),
    "hosts": ("flyball.cli.hosts:hosts", "Show the hosts of a fleet, and how much each runs."),
    "sessions": ("flyball.cli.sessions:sessions", "Show sessions: work that can be paused and resumed."),
    "session": ("flyball.cli.sessions:session", "Show one session and its checkpoints."),
    "rules": ("flyball.cli.rules:rules", "Show rules: what fires them, what waits, how they ended."),
    "queue": ("flyball.cli.rules:queue", "Show what waits for a rule, or forget it."),
    "trigger": ("flyball.cli.trigger:trigger", "Fire a rule now."),
    "events": ("flyball.cli.events:events", "Print what happened, and follow it."),
    "logs": ("flyball.cli.logs:logs", "Print what a unit printed, and follow it."),
    "audit": ("flyball.cli.audit:audit", "Show who asked for what, and what came of it."),
    "pause": ("flyball.cli.orders:pause", "End units and hold them until they are resumed."),
    "resume": ("flyball.cli.orders:resume", "Let go on what is paused, halted or waits for a person."),
    "reset": ("flyball.cli.orders:reset", "Forget failures, lift a quarantine."),
    "settle": ("flyball.cli.settle:settle", "Say what runs that died really spent."),
    "raise": ("flyball.cli.raise_:raise_", "Allow more than a budget says."),
    "stop": ("flyball.cli.orders:stop", "End units in order."),
    "start": ("flyball.cli.orders:start", "Start units."),
    "restart": ("flyball.cli.orders:restart", "End units in order and start them again."),
    "kill": ("flyball.cli.orders:kill", "End units at once."),
    "drain": ("flyball.cli.hosts:drain", "Have a host leave its units to others."),
    "move": ("flyball.cli.hosts:move", "Have a unit run on another host."),
    "alerts": ("flyball.cli.alerts:alerts", "Show alerts and their channels, or try them."),
    "questions": ("flyball.cli.answer:questions", "Show what units ask people."),
    "answer": ("flyball.cli.answer:answer", "Answer what a unit asks a person."),
    "approve": ("flyball.cli.approve:approve", "Say yes to what a unit asks a person."),
    "ack": ("flyball.cli.acknowledge:ack", "Say that you have seen a problem."),
    "snooze": ("flyball.cli.acknowledge:snooze", "Hear no more of a problem for a while."),
    "report": ("flyball.cli.report:report", "Tell flyball, from inside a unit, what it does."),
    "init": ("flyball.cli.init:init", "Write a first settings file, with what is found here."),
    "doctor": ("flyball.cli.doctor:doctor", "Say what is wrong with this machine and these settings."),
    "explain": ("flyball.cli.explain:explain", "Say what a code means, why, and what to do."),
    "check": ("flyball.cli.check:check", "Say what is wrong with a settings file."),
    "config": ("flyball.cli.config_:config", "Show every effective setting and where it came from."),
    "schema": ("flyball.cli.schema:schema", "Print the JSON Schema of the settings, for editors."),
    "simulate": ("flyball.cli.simulate:simulate", "Show what the settings do to a unit that misbehaves."),
    "replay": ("flyball.cli.replay:replay", "Show what other settings would have made of what happened."),
    "drill": ("flyball.cli.drill:drill", "Provoke every safeguard, and see it fire."),
    "completion": ("flyball.cli.completion:completion", "Print the completion script of a shell."),
}
"""Each command: where it is found, and what it does."""

HELP: Final = f"""\
Usage: flyball [OPTIONS] COMMAND [ARGS]...

  Keeps agents and automations from running away.

Options:
  --version   Show the version and exit.
  -h, --help  Show this message and exit.

Commands:
{chr(10).join(f"  {name:<10}  {does}" for name, (_, does) in COMMANDS.items())}

Examples:
  flyball demo                                 what is this, in a minute?
  flyball run -- my-agent --task x             guard one command
  flyball up -d                                run all units of my settings
  flyball status                               how are they?
  flyball why web                              why does it not run?
  flyball init                                 write a first settings file
  flyball doctor                               what is wrong with this machine?
  flyball explain quarantined                  what does this code mean?
  flyball check                                what is wrong with my settings?
  flyball config --origin                      which settings are in force, and why?
  flyball simulate always-fails --uptime 29s   what happens to a unit that always fails?

Exit codes: 0 fine, 1 what was asked about is not fine, 2 bad usage or settings.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code. Never a traceback for what a person can put right."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given in (["--help"], ["-h"]):
            sys.stdout.write(HELP)
            code = FINE
        elif sys.platform == "win32":
            raise FlyballError("flyball runs on Linux and macOS, not on Windows", remedy="Use it inside WSL 2.")
        else:
            from flyball.cli.group import run  # noqa: PLC0415 - it imports click

            code = run(given)
        sys.stdout.flush()
    except FlyballError as error:
        _print(error)
        return BAD
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return CUT_OFF
    except OSError as error:
        _discard_output()
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "Free some disk space, then" if full else "Check that it is there and may be used, then"
        _print(FlyballError(str(error), remedy=f"{remedy} try again."))
        return BAD
    return code


def _discard_output() -> None:
    """Python flushes once more at its end: that must not fail aloud."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(error: FlyballError) -> None:
    for line in str(error).splitlines():
        sys.stderr.write(f"error: {_printable(line)}\n")
    if error.remedy:
        sys.stderr.write(f"{_printable(error.remedy)}\n")
    if error.topic and error.topic not in PLAIN:
        sys.stderr.write(f"More: flyball explain {_printable(error.topic)}\n")


def _printable(text: str) -> str:
    """What units and programs are called, and say, must not steer a terminal."""
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)
