"""A rule that clicks on what is not there: slowed, quarantined, kept so over a crash, put right, and run afresh.

    python examples/bad_selector
    python examples/bad_selector --no-browser

The first needs Chromium and `pip install 'flyball-governor[browser,rules]'`; the second sends an HTTP request to where
nobody is any more, instead of clicking. Everything is real (a web page, a daemon, a kill -9), on this machine, in a
folder that is removed, on a ladder whose longest wait is a second. The exit code is 0 only if all eight steps were
seen.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import page

from flyball.runtimes.rule.browser import VARIABLE, find_browser

LADDER = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Seconds to wait after the first five failures. The sixth one is the last."""
RULE = "buy-tea"
WITHIN = 120.0
"""Seconds for what is to be seen. On a quiet machine all of it takes 30."""
LOOK_EVERY = 0.1
OLD, NEW = "buy-old", "buy"

SETTINGS = """\
quarantine:
  cooldown_ladder_seconds: {ladder}
retry:
  max_attempts: 1 # in one run: each failure is one of the rule
rule:
  auto_reload: false # `flyball reload` is one of the steps

rules:
  {rule}:
    triggers:
      - command: true
    actions:
{action}
"""

BROWSER = """\
      - browser:
          - goto: {url}/
          - click: "#{button}"
            timeout: 2s
          - wait: "#thanks"
"""

HTTP = """\
      - http:
          url: {url}/{button}
          method: POST
"""


class NotSeen(Exception):
    """A step did not come about."""


class Walk:
    """The eight steps, and what is seen at each."""

    def __init__(self, folder: Path, shop: page.Shop, action: str) -> None:
        self._folder, self._shop, self._action = folder, shop, action
        # Nothing that is set outside has a say here, but where the browser is.
        own = {name: value for name, value in os.environ.items() if not name.startswith("FLYBALL_") or name == VARIABLE}
        self._env = {**own, "FLYBALL_STATE_DIR": str(folder / "state"), "NO_PROXY": "127.0.0.1"}
        self._before: dict[str, Any] = {}

    def steps(self) -> dict[str, Callable[[], None]]:
        """Each with what it is."""
        return {
            "a rule that does what cannot be done": self.define,
            "it is fired, and fails": self.fire,
            "it is tried again, and waits longer each time": self.climb,
            "after the 6th failure it is quarantined, and a person is told": self.quarantine,
            "the daemon is killed, and started again": self.crash,
            "it is still quarantined, and nothing was begun anew": self.look_again,
            "the rule is put right: its failures are cleared by the change": self.fix,
            "it runs afresh, and is done": self.finish,
        }

    def define(self) -> None:
        self._write(OLD)
        self._flyball("check")
        self._flyball("up", "--detach")
        self._say(f"{RULE} is for {OLD}; the page at {self._shop.url} has {NEW}")
        self._say(self._flyball("rules").splitlines()[-1])

    def fire(self) -> None:
        self._say(self._flyball("trigger", RULE))
        first = self._wait(lambda: self._exits()[:1])[0]
        self._expect(first["data"]["cause"] == "error", first["text"])
        self._say(f"{first['data']['error']}: {first['data']['detail'].splitlines()[0]}")

    def climb(self) -> None:
        self._wait(lambda: len(self._exits()) > len(LADDER))
        starts = self._events("start")
        for number, (seconds, failed, again) in enumerate(zip(LADDER, self._exits(), starts[1:], strict=False), 1):
            waited = again["at"] - failed["at"]
            said = f"failure {number} of "
            self._expect(said in failed["text"] and waited >= seconds, f"{failed['text']}; it waited {waited:.3f} s")
        in_log = [line for line in self._log() if f"{RULE} exited" in line]
        self._expect(len(in_log) == len(LADDER) + 1, f"the log has {len(in_log)} exits")
        for line in in_log[: len(LADDER)]:
            self._say(line)

    def quarantine(self) -> None:
        unit = self._wait(lambda: (unit := self._unit())["state"] == "quarantined" and unit)
        [failure] = unit["failures"]
        self._expect(failure["count"] == len(LADDER) + 1 and failure["quarantined"], str(failure))
        self._expect(any("is held" in line for line in self._log()), "the log does not say that it is held")
        self._say(self._log()[-1])
        for line in self._flyball("status").splitlines()[-2:]:
            self._say(line)
        self._say(unit["reasons"][0]["remedy"])
        self._before = {"starts": len(self._events("start")), "queue": self._queue()}

    def crash(self) -> None:
        supervisor = int(self._events("start")[-1]["data"]["holder"].split("/")[1])
        guardian = self._guardian()
        os.kill(supervisor, signal.SIGKILL)
        self._wait(lambda: not _is_there(guardian))
        self._say(f"kill -9 {supervisor}: it is gone, and its guardian {guardian} after it")
        self._flyball("up", "--detach")
        self._expect(self._guardian() != guardian, "it is the same daemon")
        self._say(f"up again: {self._guardian()}")

    def look_again(self) -> None:
        unit = self._unit()
        self._expect(unit["state"] == "quarantined", f"it is {unit['state']}")
        # Whatever a daemon begins when it starts is begun by the time it has answered this.
        now = {"starts": len(self._events("start")), "queue": self._queue()}
        self._expect(now == self._before, f"before: {self._before}, now: {now}")
        self._say(
            f"{RULE} is {unit['state']}; {now['starts']} starts, as before; in the queue, as before: {now['queue']}"
        )

    def fix(self) -> None:
        self._write(NEW)
        self._say(self._flyball("reload").splitlines()[0])
        self._say(self._wait(lambda: [line for line in self._log() if "cleared by change" in line])[-1])

    def finish(self) -> None:
        self._wait(lambda: self._exits()[-1]["data"]["cause"] == "done")
        unit = self._wait(lambda: (unit := self._unit())["state"] == "healthy" and unit)
        self._expect(unit["failures"] == [], f"it has failures: {unit['failures']}")
        self._expect(self._queue() == [], f"in the queue: {self._queue()}")
        self._expect(self._shop.sold == 1, f"sold {self._shop.sold} times")
        self._say(self._log()[-1])
        self._say(f"{RULE} is {unit['state']}; nothing waits; the shop has sold {self._shop.sold}")

    def end(self) -> None:
        """Leave nothing running, whatever happened."""
        self._run("down")
        guardian = self._guardian()
        if guardian and _is_there(guardian):
            os.kill(guardian, signal.SIGKILL)

    # What is seen, and by which means.

    def _write(self, button: str) -> None:
        action = self._action.format(url=self._shop.url, button=button).rstrip()
        text = SETTINGS.format(ladder=list(LADDER), rule=RULE, action=action)
        (self._folder / "flyball.yaml").write_text(text)

    def _run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(  # noqa: S603 - nothing of it comes from outside
            [sys.executable, "-m", "flyball", *words],
            cwd=self._folder,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
        )

    def _flyball(self, *words: str) -> str:
        """What that command prints."""
        done = self._run(*words)
        self._expect(done.returncode == 0, f"flyball {' '.join(words)}: {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def _events(self, kind: str) -> list[dict[str, Any]]:
        """What the journal has of the rule; of its starts those that were granted."""
        lines = self._flyball("events", RULE, "--lines", "10000", "--json").splitlines()
        found = [event for event in map(json.loads, lines) if event["event"] == kind]
        return [event for event in found if kind != "start" or event["verb"] == "proceed"]

    def _exits(self) -> list[dict[str, Any]]:
        return self._events("exited")

    def _unit(self) -> dict[str, Any]:
        [unit] = json.loads(self._flyball("status", "--json"))["units"]
        found: dict[str, Any] = unit
        return found

    def _queue(self) -> list[str]:
        said = json.loads(self._flyball("queue", RULE, "--json"))["queue"]
        return [f"{firing['id']}, begun {firing['attempt']} times" for firing in said]

    def _log(self) -> list[str]:
        return (self._folder / "state" / "daemon.log").read_text().splitlines()

    def _guardian(self) -> int:
        """The pid of the process above the daemon; 0: there was none."""
        try:
            return int((self._folder / "state" / "flyball.lock").read_text() or 0)
        except FileNotFoundError:
            return 0

    def _wait(self, look: Callable[[], Any]) -> Any:
        end = time.monotonic() + WITHIN
        while not (seen := look()):
            self._expect(
                time.monotonic() < end, f"nothing of it within {WITHIN:g} s; the log:\n" + "\n".join(self._log())
            )
            time.sleep(LOOK_EVERY)
        return seen

    def _expect(self, held: bool, otherwise: str) -> None:
        if not held:
            raise NotSeen(otherwise)

    def _say(self, line: str) -> None:
        print(f"    {line.strip()}", flush=True)


def _is_there(pid: int) -> bool:
    """Whether it lives. One that nobody has asked for its exit code yet does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:  # there is no /proc, or it has just gone
        return not Path("/proc/self/stat").exists()
    return state != "Z"


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="bad_selector", description="Walk a rule with a bad selector through it all.")
    parser.add_argument("--no-browser", action="store_true", help="send an HTTP request instead of clicking")
    options = parser.parse_args()
    if not options.no_browser and find_browser(os.environ) is None:
        print(f"There is no browser: install Chromium, or set {VARIABLE} to its path; or try --no-browser.")
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = Path(tempfile.mkdtemp(prefix="flyball-example-"))
    try:
        with page.opened() as shop:
            walk = Walk(folder, shop, HTTP if options.no_browser else BROWSER)
            try:
                return _walked(walk)
            finally:
                walk.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _walked(walk: Walk) -> int:
    for number, (title, step) in enumerate(walk.steps().items(), 1):
        print(f"{number} {title}", flush=True)
        try:
            step()
        except NotSeen as missing:
            print(f"    NOT SEEN: {missing}")
            return 1
    print("All eight steps were seen.")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
