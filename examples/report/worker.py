"""A Python worker that reports with the standard library alone: the protocol is one datagram each way.

    flyball run --no-tty --budget 0.10 --name py-worker -- python examples/report/worker.py

Any language can do the same: connect a SOCK_DGRAM unix socket to $NOTIFY_SOCKET, bind it to get answers, send KEY=VALUE
lines, read the answer as JSON.
"""

import json
import os
import socket
import tempfile
from typing import Any


def report(key: str, value: object) -> dict[str, Any]:
    """Tell the supervisor, and return its answer. Without one there is nobody to ask."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return {"verb": "proceed", "reasons": []}
    text = value if isinstance(value, str) else json.dumps(value)
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        asking.bind(f"{folder}/answer")  # on Linux `asking.bind("")` does as well, and needs no folder
        asking.settimeout(10)
        asking.connect(path)
        asking.send(f"{key}={text}\nX_FLYBALL_RUN={os.environ['FLYBALL_RUN']}".encode())
        answer: dict[str, Any] = json.loads(asking.recv(65_536))
        return answer


def main() -> None:
    for file in ("one", "two", "three", "four", "five", "six"):
        step = {"pattern": "summarise", "call": file}
        leave = report("X_FLYBALL_STEP", {**step, "cost": {"usd": "0.03", "tokens": 1000}})
        if leave["verb"] == "wait":
            continue
        if leave["verb"] != "proceed":
            print("told to wrap up:", *(reason["text"] for reason in leave["reasons"]))
            return
        summary = f"summary of {file}"  # here the work is done
        report("X_FLYBALL_STEPPED", {**step, "result": summary, "used": {"usd": "0.02", "tokens": 740}})
        report("X_FLYBALL_PROGRESS", f"{file} done")
        print(summary)


if __name__ == "__main__":
    main()
