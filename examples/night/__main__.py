"""A night of agents in a minute, with its page: what `make demo` shows.

    python examples/night            until Ctrl-C, where it is a terminal; otherwise until everything has happened once
    python examples/night --once     only until then

Everything happens in a scratch state folder, which is gone afterwards.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FLYBALL = [sys.executable, "-m", "flyball"]
HAPPENED_WITHIN = 90.0
"""Seconds: it takes about fifteen."""
EXPECTED = {"coder": "quarantined", "refactor": "stopped", "digest": "finished"}


def main() -> int:
    stays = sys.stdout.isatty() and "--once" not in sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="flyball-demo-") as folder:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # one of the agents calls `flyball` itself
        env = {**os.environ, "PATH": path, "FLYBALL_STATE_DIR": folder, "COLUMNS": "150"}
        _flyball(env, "up", "-d")
        try:
            print("\nsix agents are running; in about fifteen seconds some of them have gone wrong\n", flush=True)
            if stays:
                _flyball(env, "page")
            happened = _wait(env)
            _flyball(env, "status")
            _flyball(env, "why", "coder")
            _flyball(env, "reset", "--all", "--yes")
            if stays:
                print("\nthe page goes on; Ctrl-C ends it", flush=True)
                _until_told()
        finally:
            _flyball(env, "down")
    if not happened:
        print(f"not everything happened within {HAPPENED_WITHIN:.0f} s: {EXPECTED}", file=sys.stderr)
    return 0 if happened else 1


def _wait(env: dict[str, str]) -> bool:
    """Until everything has happened once; whether it has."""
    ends = time.monotonic() + HAPPENED_WITHIN
    while time.monotonic() < ends:
        states = {unit["name"]: unit["state"] for unit in _status(env)["units"]}
        if EXPECTED.items() <= states.items():
            return True
        time.sleep(0.5)
    return False


def _until_told() -> None:
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        print()


def _flyball(env: dict[str, str], *arguments: str) -> None:
    print(f"\n$ flyball {' '.join(arguments)}", flush=True)
    subprocess.run([*FLYBALL, *arguments], cwd=HERE, env=env, check=False)  # noqa: S603 - ourselves


def _status(env: dict[str, str]) -> dict[str, Any]:
    said = subprocess.run([*FLYBALL, "status", "--json"], cwd=HERE, env=env, capture_output=True, check=True)  # noqa: S603 - ourselves
    answer: dict[str, Any] = json.loads(said.stdout)
    return answer


if __name__ == "__main__":
    sys.exit(main())
