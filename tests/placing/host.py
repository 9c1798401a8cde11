"""A host of a fleet that places items and runs nothing: a process that the tests give orders to, a line each. It says
what it takes and leaves. Who lives is what the files in a folder say."""

import asyncio
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flyball.config.plan import HostPlan
from flyball.errors import FlyballError
from flyball.placing import chores, placing
from flyball.placing.items import Item


def say(**what: Any) -> None:
    """One line, in one go."""
    os.write(1, json.dumps({**what, "at": time.monotonic()}).encode() + b"\n")


class Host:
    """Obeys."""

    def __init__(self) -> None:
        self._left: dict[str, asyncio.Event] = {}
        self._ending = 0.0

    async def take(self, item: Item) -> None:
        left = self._left[item.name] = asyncio.Event()
        say(took=item.name)
        await left.wait()
        say(left=item.name)

    async def leave(self, item: Item) -> None:
        if item.name in self._left:
            await asyncio.sleep(self._ending)
            self._left[item.name].set()

    def live(self) -> Mapping[str, int]:
        found = (json.loads(path.read_text()) for path in self._folder.glob("*.json"))
        return {one["holder"]: one["units"] for one in found}

    async def begin(self, *, url: str, name: str, folder: str, items: list[dict[str, Any]], **more: Any) -> str:
        """Join, and take items."""
        holder = f"{name}/{os.getpid()}/{more.get('life', 1)}"
        self._folder = Path(folder)
        self._ending = more.get("ending", 0.0)
        chores.STUCK_MAX = more.get("stuck_max", 2.0)  # type: ignore[misc]  # a busy machine is no host that cannot
        placing.SPREAD_WAIT = more.get("spread_wait", 0.5)  # type: ignore[misc]  # as the next
        placing.TEND_EVERY = more.get("tend_every", 5.0)  # type: ignore[misc]  # so that tests need not wait for it
        units_max = more.get("units_max", 1000)
        self._entry, self._holder, self._units_max = self._folder / f"{name}.json", holder, units_max
        self.be_known(units_max)
        host = HostPlan(name=name, labels=more.get("labels", {}), units_max=units_max)
        self._placing = placing.Placing(url, holder, name, host, live=self.live)
        self._items = [Item(**item) for item in items]
        await self._placing.open(self._items, self.take, self.leave)
        return holder

    def be_known(self, units: int) -> None:
        """As one that takes so many units."""
        written = self._entry.with_suffix(".new")
        written.write_text(json.dumps({"holder": self._holder, "units": units}))
        written.rename(self._entry)

    async def do(self, verb: str, **args: Any) -> Any:
        """One order; its answer."""
        if verb == "begin":
            return await self.begin(**args)
        part = self._placing
        match verb:
            case "change":
                return await part.change([Item(**item) for item in args["items"]])
            case "drain":
                self.be_known(0)
                return await part.drain()
            case "undrain":
                self.be_known(self._units_max)
                return await part.undrain()
            case "threads":
                return threading.active_count()
            case "held":
                return part.held
            case _:
                return await getattr(part, verb)(**args)


async def main() -> None:
    """Obey until there are no more orders. Orders are not waited for: an order may come while another is obeyed."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    host = Host()
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    tasks = set()

    async def obey(number: int, verb: str, args: dict[str, Any]) -> None:
        try:
            say(answer=await host.do(verb, **args), to=number)
        except FlyballError as error:
            say(error=f"{error}. {error.remedy}", to=number)
        except Exception as error:
            say(error=repr(error), to=number)
            raise

    while line := await orders.readline():
        number, verb, args = json.loads(line)
        task = asyncio.create_task(obey(number, verb, args))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    import flyball.placing.engine  # noqa: F401 - before the first order: it takes a while

    say(ready=True)
    asyncio.run(main())
