"""One agent of the demo, in the temper that it is given. It needs nothing but Python: it reports to its supervisor by
one datagram each way, as examples/report/worker.py explains."""

import json
import os
import random
import socket
import sys
import tempfile
import time
from typing import Any, NoReturn


def ask(cost: str) -> bool:
    """Ask for leave to spend so much; whether it was given."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return True
    step = {"pattern": "edit", "call": str(time.time_ns())}
    asked = {**step, "cost": {"usd": cost}}
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        asking.bind(f"{folder}/answer")
        asking.settimeout(10)
        asking.connect(path)
        asking.send(f"X_FLYBALL_STEP={json.dumps(asked)}\nX_FLYBALL_RUN={os.environ['FLYBALL_RUN']}".encode())
        answer: dict[str, Any] = json.loads(asking.recv(65_536))
        if answer["verb"] != "proceed":
            print("told to wrap up:", *(reason["text"] for reason in answer["reasons"]))
            return False
        done = {**step, "used": {"usd": cost}}
        asking.send(f"X_FLYBALL_STEPPED={json.dumps(done)}\nX_FLYBALL_RUN={os.environ['FLYBALL_RUN']}".encode())
        asking.recv(65_536)
    return True


def steady() -> NoReturn:
    while True:
        print("sorted a mail", flush=True)
        time.sleep(1)


def fails() -> NoReturn:
    print("opening the page", flush=True)
    time.sleep(0.3)
    sys.exit('SelectorNotFound: "#login-btn" is not on the page')


def flaky() -> NoReturn:
    while True:
        print("fetched a page", flush=True)
        time.sleep(1)
        if random.random() < 0.05:
            sys.exit(f"ConnectionError: page {random.randrange(1000)} did not answer")


def spends() -> None:
    while ask("0.02"):
        print("edited a file", flush=True)
        time.sleep(1)


def hangs() -> NoReturn:
    print("waiting for an answer that never comes", flush=True)
    time.sleep(3600)
    sys.exit(0)


if __name__ == "__main__":
    {"steady": steady, "fails": fails, "flaky": flaky, "spends": spends, "hangs": hangs}[sys.argv[1]]()
