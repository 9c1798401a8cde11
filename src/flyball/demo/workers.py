"""What the units of the demo do: one function for each temper, run as `python -m flyball.demo.workers TEMPER`.

They are programs like any other. What they tell flyball goes through the notify socket, as `flyball report` would, and
none of them knows what will become of it.
"""

import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final, NoReturn

from flyball.runtimes.tell import ask

API: Final = "DEMO_API"
"""The variable with the address of the shop's API."""
API_PATIENCE: Final = 2.0
"""Seconds until a request is given up: the shop answers within milliseconds, or not at all."""
ERRORS: Final = (
    RuntimeError("no model is loaded"),
    OSError("out of file handles"),
    ValueError("bad header"),
    LookupError("no such voice"),
    EOFError("the pipe is broken"),
)
"""Never the same one twice in a row: so it is no one failure that could be quarantined."""


def honest() -> NoReturn:
    """Does its work, says so, and pays what it said it would."""
    _step("read", "inbox", cost="0.40", result="38 new mails")
    for number in count(1):
        if _step("sort", f"mail {number}", cost="0.001", result=f"mail {number} sorted"):
            print(f"sorted mail {number}", flush=True)
        time.sleep(2)
    raise AssertionError


def crashes() -> NoReturn:
    """Stumbles over the same invoice, each time that it is started."""
    print("reading invoice 4711", flush=True)
    time.sleep(0.2)
    invoice: dict[str, str] = {}
    print(invoice["total"])
    sys.exit(0)


def flaps() -> NoReturn:
    """Is gone soon after each start, and gives another reason every time."""
    before = Path("translator.lives")
    lives = int(before.read_text()) if before.exists() else 0
    before.write_text(str(lives + 1))
    print(f"life {lives + 1} begins", flush=True)
    time.sleep(0.2)
    raise ERRORS[lives % len(ERRORS)]


def hangs(then: str = "") -> None:
    """Waits for an answer that never comes. Started once more, with `--continue`, it gets it."""
    print("asking three libraries", flush=True)
    if then != "--continue":
        time.sleep(3600)
    time.sleep(0.5)
    print("all three have answered", flush=True)


def circles() -> None:
    """Honest steps first; then two pages that lead to each other, for ever."""
    pages = {"/": "Welcome. See /docs.", "/docs": "Read /docs/start.", "/docs/start": "Go back to /docs."}
    for path in ("/", "/docs", "/docs/start", *["/docs", "/docs/start"] * 50):
        _step("fetch", path, cost="0.10", result=pages[path])
        print(f"fetched {path}", flush=True)
        time.sleep(0.8)


def spends() -> None:
    """Edits one more file, at fifteen cents each, until it is told to stop."""
    for number in count(1):
        if not _step("edit", f"file {number}", cost="0.15", result=f"file {number} is better now"):
            return
        print(f"edited file {number}", flush=True)
        time.sleep(0.7)


def pauses() -> int:
    """Reads one page more, and pauses: the provider has had enough of it for now. It never gets to the end."""
    kept = Path(os.environ["FLYBALL_CHECKPOINT"])
    pages = int(kept.read_text() or 0) + 1
    time.sleep(0.3)
    kept.write_text(str(pages))
    ask([("X_FLYBALL_CHECKPOINT", json.dumps({"stage": f"page {pages}"}))])
    print(f"read page {pages} of 100", flush=True)
    ask([("X_FLYBALL_PAUSE", json.dumps({"reason": "rate_limit", "after": 2.0}))])
    return 0


def imports(what: str) -> None:
    """Fetches page after page from the shop, until that says it was the last."""
    # Whatever proxy is set up outside has nothing to do with this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for page in count(1):
        with opener.open(f"{os.environ[API]}/api/{what}?page={page}", timeout=API_PATIENCE) as answer:
            last = json.load(answer)["last"]
        print(f"page {page} of {what}", flush=True)
        time.sleep(0.3)
        if last:
            return


def _step(pattern: str, call: str, *, cost: str = "", result: str) -> bool:
    """Ask for leave, make the step, tell what came of it; whether there was leave. What is repeated is asked again."""
    step: dict[str, Any] = {"pattern": pattern, "call": call}
    if _told("X_FLYBALL_STEP", step | ({"cost": {"usd": cost}} if cost else {}))["verb"] != "proceed":
        return False
    _told("X_FLYBALL_STEPPED", step | {"result": result} | ({"used": {"usd": cost}} if cost else {}))
    return True


def _told(key: str, value: Mapping[str, Any]) -> dict[str, Any]:
    answer = ask([(key, json.dumps(value))])
    for reason in answer["reasons"]:
        print(f"flyball says {answer['verb']}: {reason['text']}", flush=True)
    return answer


TEMPERS: Final[Mapping[str, Callable[..., object]]] = {
    function.__name__: function for function in (honest, crashes, flaps, hangs, circles, spends, pauses, imports)
}


if __name__ == "__main__":
    sys.exit(TEMPERS[sys.argv[1]](*sys.argv[2:]))  # type: ignore[arg-type]  # none, or a number
