"""The addresses that a daemon opens: whether they are free, who has them otherwise, and who else can reach them."""

import contextlib
import errno
import ipaddress
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from flyball.config.plan import OFF
from flyball.config.rules import Webhook
from flyball.control.web import ADDRESS
from flyball.control.web.listener import DEFAULT
from flyball.doctor.finding import Finding, bad, ok, warning
from flyball.doctor.scene import Scene
from flyball.http_server import parts

BEYOND: Final = "Put a proxy with TLS before it, or listen on 127.0.0.1; see the how-to on the HTTP API."


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address that is wanted, and what came of trying it."""

    setting: str
    listen: str
    what: str
    given: bool = True
    """By the settings: else another port may be taken."""
    error: int = 0
    """What the system said; 0: it is free."""
    said: str = ""
    by: str = ""
    """Who listens there, as far as that can be known."""
    ours: bool = False
    """It is our own daemon that listens there."""


def check(scene: Scene) -> Iterator[Finding]:
    """The page, and webhooks where a rule has one."""
    settings, ping = scene.fallback, scene.ping
    daemon = int(ping["pid"]) if isinstance(ping, Mapping) else 0
    serving = address_of(scene.folder) if daemon else ""
    if settings.http.listen == OFF:
        yield ok("http.listen is off: there is no page")
    else:
        listen = settings.http.listen or DEFAULT
        given = settings.http.listen is not None
        yield from judge(tried("http.listen", listen, "the page", given=given, serving=serving, daemon=daemon))
    if any(isinstance(trigger, Webhook) for rule in settings.rules for trigger in rule.triggers):
        yield from judge(tried("rule.listen", settings.rule.listen, "webhooks", daemon=daemon))


def judge(address: Address) -> Iterator[Finding]:
    """Whether it can be opened, and what that means."""
    what = f"{address.setting}: {address.what} at {address.listen}"
    if address.ours:
        yield ok(f"{what} is served by the daemon that runs")
    elif address.error == errno.EADDRINUSE:
        by = f" ({address.by})" if address.by else ""
        if address.given:
            yield bad(f"{what}: something else listens there{by}", f"End it, or set `{address.setting}`.")
        else:
            text = f"{what}: something else listens there{by}, so any free port is taken"
            yield warning(text, f"End it, or set `{address.setting}`; `flyball page` prints where the page is.")
    elif address.error:
        remedy = f"Set `{address.setting}` to an address of this machine, with a port above 1023."
        yield bad(f"{what} cannot be opened: {address.said}", remedy)
    else:
        yield ok(f"{what} is free")
    if not is_loopback(parts(address.listen)[0]):
        yield warning(f"{what} can be reached from other machines, and is not encrypted", BEYOND)


def tried(setting: str, listen: str, what: str, *, given: bool = True, serving: str = "", daemon: int = 0) -> Address:
    """Try the address for a moment. `serving` is where our own daemon says that it is, `daemon` is its process."""
    host, port = parts(listen)
    address = Address(setting=setting, listen=listen, what=what, given=given)
    if serving and same(listen, serving):
        return replace(address, ours=True)
    try:
        found = socket.getaddrinfo(host or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        with socket.socket(family, kind, protocol) as trying:
            trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the daemon does
            trying.bind(where)
            trying.listen(1)
    except OSError as error:
        said = error.strerror or str(error)
        by = listener(int(port)) if error.errno == errno.EADDRINUSE else ""
        ours = bool(daemon) and by.endswith(f" {daemon}")
        return replace(address, error=error.errno or -1, said=said, by=by, ours=ours)
    return address


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def same(listen: str, serving: str) -> bool:
    """Whether a daemon that serves there has that port."""
    return parts(listen)[1] == str(urlsplit(serving if "//" in serving else f"//{serving}").port)


def address_of(folder: Path) -> str:
    """Where the daemon of that folder serves its page; nothing: nowhere."""
    try:
        return str(json.loads((folder / ADDRESS).read_bytes())["address"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def listener(port: int, proc: Path = Path("/proc")) -> str:
    """Who listens on a port: the name and the number of its process, where it may be seen; nothing otherwise."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return ""
    for process in proc.iterdir():
        if process.name.isdigit() and _has(process, inodes):
            with contextlib.suppress(OSError):
                return f"{(process / 'comm').read_text().strip()}, pid {process.name}"
    return ""


def _has(process: Path, inodes: set[str]) -> bool:
    with contextlib.suppress(OSError):
        for entry in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if str(entry.readlink()) in inodes:
                    return True
    return False
