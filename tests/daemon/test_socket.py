"""The daemon's socket: who is let in, and what may come."""

import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.daemon.site import Site

SLEEPS = {"command": "sleep 1000"}


def _raw(site: Site, data: bytes) -> dict[str, object]:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(site.state / "flyball.sock"))
        client.sendall(data)
        answer: dict[str, object] = json.loads(client.makefile("rb").readline())
        return answer


def test_bad_requests(site: Site) -> None:
    """Whatever comes over the socket, the answer is an answer, and the daemon goes on."""
    site.write({"a": SLEEPS})
    site.flyball("up", "-d")
    site.all_up("a")
    bad = [
        b"\n",
        b"{}\n",
        b"\xff\xfe\n",
        b"[" * 5000 + b"\n",
        b'{"v":2,"id":1,"verb":"ping"}\n',
        b"x" * 200_000 + b"\n",
    ]
    bad += [b'{"v":1,"id":7,"verb":"explode"}\n', b'{"v":1,"id":7,"verb":"pause","args":{"units":5}}\n']
    for data in bad:
        answer = _raw(site, data)
        assert answer["ok"] is False, data[:50]
    assert _raw(site, b'{"v":1,"id":7,"verb":"ping"}\n')["id"] == 7


def test_slow_clients(site: Site) -> None:
    """Clients that connect and say nothing, or never read, keep nobody waiting."""
    site.write({"a": SLEEPS})
    site.flyball("up", "-d")
    idle = []
    for _ in range(50):
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(site.state / "flyball.sock"))
        client.sendall(b'{"v":1,"id":1,"verb":"status"}')
        idle.append(client)
    started = time.monotonic()
    assert site.ping()["pid"]
    assert time.monotonic() - started < 5
    for client in idle:
        client.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user() -> None:
    """Another user cannot connect; and if the modes let it, the kernel's word decides."""
    with tempfile.TemporaryDirectory() as folder:  # where others can get to
        site = Site(Path(folder))
        try:
            _another_user(site)
        finally:
            site.clean()


def _another_user(site: Site) -> None:
    site.write({"a": SLEEPS})
    site.flyball("up", "-d")
    path = site.state / "flyball.sock"
    client = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.connect(sys.argv[1])\n"
        's.sendall(b\'{"v":1,"id":1,"verb":"down"}\\n\')\n'
        "print(s.makefile().readline())\n"
    )
    argv = ["setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/env", "python3", "-c", client, str(path)]
    site.folder.chmod(0o755)
    site.state.chmod(0o755)
    assert "PermissionError" in subprocess.run(argv, capture_output=True, text=True, check=False).stderr
    path.chmod(0o666)
    said = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    assert json.loads(said)["error"]["code"] == "forbidden"
    assert site.ping()["pid"]
