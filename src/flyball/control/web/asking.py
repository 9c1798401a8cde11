"""Asks the daemon, which lives in another loop, and bounds how much of it at a time.

Looks that are alike and asked for at the same time are one: a hundred pages that are opened at once cost the daemon
what one costs.
"""

import asyncio
from typing import Any, Final

import msgspec

from flyball.control.context import Args, Caller, Command, CommandError, Right
from flyball.control.web.crossing import ANSWER_MAX, cross
from flyball.control.web.service import Service

ASKED_MAX: Final = 64
"""Questions in flight. The daemon answers one after the other: with more than this the last one would wait for long."""


class Asking:
    """Made in the server's loop; `home` is the daemon's."""

    def __init__(self, service: Service, home: asyncio.AbstractEventLoop) -> None:
        self._service = service
        self._home = home
        self._in_flight = 0
        self._looks: dict[tuple[str, bytes], asyncio.Future[bytes]] = {}

    async def ask(self, caller: Caller, command: Command, args: Args) -> bytes:
        """The answer, as JSON. CommandError says why there is none."""
        if command.right is not Right.LOOK:
            return await self._ask(caller, command.name, args)
        key = (command.name, msgspec.json.encode(args, order="sorted"))
        look = self._looks.get(key)
        if look is None:
            look = self._looks[key] = asyncio.ensure_future(self._ask(caller, command.name, args))
            look.add_done_callback(lambda done: self._answered(key, done))
        return await asyncio.shield(look)  # one who goes away takes it from nobody

    def _answered(self, key: tuple[str, bytes], done: "asyncio.Future[bytes]") -> None:
        self._looks.pop(key, None)
        if not done.cancelled():
            done.exception()

    async def _ask(self, caller: Caller, verb: str, args: Args) -> bytes:
        if self._in_flight >= ASKED_MAX:
            raise CommandError("busy", f"{ASKED_MAX} others are asking", remedy="Try again in a moment.")
        self._in_flight += 1
        try:
            return msgspec.json.encode(await self._cross(caller, verb, args))
        finally:
            self._in_flight -= 1

    async def _cross(self, caller: Caller, verb: str, args: Args) -> Any:
        late = f"the daemon did not answer `{verb}` within {ANSWER_MAX:g} s; it may still be done"
        return await cross(
            self._service.ask(caller, verb, args),
            self._home,
            ANSWER_MAX,
            late=CommandError("no_answer", late, remedy="Look at its log."),
            ending=CommandError("ending", "the daemon is ending", remedy="Start it anew: `flyball up -d`."),
        )
