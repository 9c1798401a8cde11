"""Is it alive, seen from outside? One probe by command, HTTP or TCP, and what was wrong in words.

Nothing is kept here: how often to look and how many failures are too many is for `liveness` to say. The words are
stable, so that the same trouble has the same fingerprint, and never show a secret that a URL carries.
"""

import asyncio
import base64
import contextlib
import os
import signal
import ssl
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from flyball.config.units import Probe, Unit
from flyball.core.time import format_span, seconds
from flyball.runtimes.notify import INHERITED

STATUS_LINE_MAX: Final = 4_096
"""Bytes of the answer that are read: its first line. The rest says nothing about being alive."""
GONE_WITHIN: Final = 5.0
"""Seconds to wait for a killed probe to be gone. One that is stuck in the kernel is left to end by itself."""

FINE: Final = ""


async def check(probe: Probe, unit: Unit) -> str:
    """Probe once. What was wrong, or FINE."""
    try:
        async with asyncio.timeout(seconds(probe.timeout)):
            if probe.command:
                return await _by_command(probe.command, unit)
            return await _by_http(probe.http) if probe.http else await _by_tcp(probe.tcp)
    except TimeoutError:
        return f"{_what(probe)}: no answer within {format_span(probe.timeout)}"
    except (OSError, ValueError, EOFError) as error:
        return f"{_what(probe)}: {_why(error)}"


async def _by_command(command: tuple[str, ...], unit: Unit) -> str:
    options: dict[str, Any] = {}
    if unit.user:
        options["user"] = unit.user
    if unit.group:
        options["group"] = unit.group
    running = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=unit.cwd or None,
        env={**_inherited(), **unit.env, "FLYBALL_UNIT": unit.name},
        # In our session, which no unit can get into. What is in another one and does not say yet whose it is, because
        # it is just becoming the probe's program, would be taken for something that a run left behind.
        process_group=0,
        **options,
    )
    try:
        code = await running.wait()
    finally:
        # With all that it started: a probe leaves nothing behind, however it ends.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(running.pid, signal.SIGKILL)
        if running.returncode is None:
            await _gone(running)
    if code < 0:
        return f"{command[0]}: ended by {signal.Signals(-code).name}"
    return f"{command[0]}: exit {code}" if code else FINE


def _inherited() -> dict[str, str]:
    """Our own environment, without what would make a probe look like a run."""
    return {name: value for name, value in os.environ.items() if name not in INHERITED}


async def _gone(running: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(running.wait()), GONE_WITHIN)


async def _by_http(url: str) -> str:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if secure else 80)
    reader, writer = await asyncio.open_connection(
        host, port, ssl=ssl.create_default_context() if secure else None, limit=STATUS_LINE_MAX
    )
    try:
        writer.write(_request(parts))
        await writer.drain()
        line = await _first_line(reader)
    finally:
        writer.transport.abort()
    version, _, rest = line.partition(b" ")
    status = rest[:3].decode("ascii", "replace")
    if not version.startswith(b"HTTP/") or not status.isdecimal():
        return f"{_shown(parts)}: the answer is not HTTP"
    return FINE if 100 <= int(status) < 400 else f"{_shown(parts)}: status {status}"


async def _first_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:
        return b""  # longer than any status line


def _request(parts: SplitResult) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"GET {target} HTTP/1.1", f"Host: {parts.netloc.rpartition('@')[2]}"]
    if parts.username is not None:
        given = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        lines.append(f"Authorization: Basic {base64.b64encode(given).decode()}")
    lines += ["User-Agent: flyball", "Accept: */*", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("ascii", "replace")


async def _by_tcp(address: str) -> str:
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    writer.transport.abort()
    return FINE


def _what(probe: Probe) -> str:
    if probe.command:
        return probe.command[0]
    try:
        return _shown(urlsplit(probe.http)) if probe.http else probe.tcp
    except ValueError:
        return "http"


def _shown(parts: SplitResult) -> str:
    """A URL without what may be secret in it: user, password and query."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _why(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
