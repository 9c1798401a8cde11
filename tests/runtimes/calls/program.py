"""A program with one guarded call, run as a process of its own: `program.py FOLDER OPTIONS COMMAND…`.

OPTIONS is JSON for `calls("fetch", …)`. Each command is made so often, and its outcome printed: `well:3`, `fail:5`.
`hang` waits to be killed in the middle of an attempt; `stay` waits before the end until its input ends.
"""

import json
import sys
import time
from pathlib import Path

from flyball.config import load
from flyball.core.policy import AnyPolicy
from flyball.governor import Governor
from flyball.runtimes.calls import Calls
from flyball.runtimes.refusal import Refused
from flyball.store.sqlite import SqliteStore


class Broken(Exception):
    """What is called is down."""


def say(word: str) -> None:
    print(word, flush=True)


def main(folder: str, options: str, *commands: str) -> None:
    store = SqliteStore(Path(folder, "state.db"))
    governor = Governor([], store)

    def put(policy: AnyPolicy) -> None:
        governor.panel.put("program", (*governor.panel.policies_of("program"), policy))

    settings = load(env={})
    calls = Calls(governor, "program", settings, put)

    @calls("fetch", **json.loads(options))
    def fetch(how: str) -> None:
        if how == "fail":
            raise Broken
        if how == "hang":
            say("hanging")
            time.sleep(60)

    for command in commands:
        how, _, times = command.partition(":")
        if how == "stay":
            say("staying")
            sys.stdin.read()
            continue
        for _ in range(int(times or 1)):
            try:
                fetch(how)
                say("well")
            except Broken:
                say("broken")
            except Refused as refused:
                say(refused.code)
    # Neither the calls nor the store are closed: that is the business of whoever ends the interpreter.


if __name__ == "__main__":
    main(*sys.argv[1:])
