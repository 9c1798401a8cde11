"""Hosts as processes, from the tests' side: orders go to them, what they say is collected in the order in which it
comes."""

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

PATIENCE: Final = 30.0
"""Seconds for what takes a fraction of one: this machine may be busy."""


class Process:
    """A host that was not told yet what it is."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.placing.host"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._numbers = count(1)
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self.log: list[dict[str, Any]] = []
        self.ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                said = json.loads(line)
                if "ready" in said:
                    self.ready.set()
                elif "to" in said:
                    self._answers[said["to"]].put(said)
                else:
                    self.log.append(said)

    def ask(self, verb: str, **args: Any) -> Callable[[], Any]:
        """Give an order; what waits for its answer."""
        number = next(self._numbers)
        answers = self._answers[number] = queue.Queue()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([number, verb, args]).encode() + b"\n")
        self._process.stdin.flush()

        def wait() -> Any:
            said = answers.get(timeout=PATIENCE)
            assert "error" not in said, said
            return said["answer"]

        return wait

    def has(self) -> set[str]:
        """What it has, as it said."""
        found: set[str] = set()
        for said in list(self.log):
            if "took" in said:
                assert said["took"] not in found, "taken twice"
                found.add(said["took"])
            if "left" in said:
                found.remove(said["left"])
        return found

    def forget(self) -> None:
        """What it was so far does not matter."""
        self.log.clear()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        self._process.send_signal(signal.SIGKILL)
        self.end()

    def end(self) -> int:
        """No more orders: it ends by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code


class Crew:
    """Hosts of one fleet."""

    def __init__(self, url: str, folder: Path, spares: list[Process]) -> None:
        self.url, self.folder = url, folder
        self._spares = spares
        self.hosts: dict[str, Process] = {}
        self.holders: dict[str, str] = {}

    def begin(self, names: str, items: Sequence[Mapping[str, Any]], **more: Any) -> None:
        """Begin hosts of these names (a letter each), all at once."""
        asked = {}
        while len(self._spares) < len(names):
            self._spares.append(Process())
        assert all(spare.ready.wait(PATIENCE) for spare in self._spares)
        for name in names:
            host = self.hosts[name] = self._spares.pop()
            host.forget()
            asked[name] = host.ask("begin", url=self.url, name=name, folder=str(self.folder), items=[*items], **more)
        for name, wait in asked.items():
            self.holders[name] = wait()

    def fence(self, name: str) -> str:
        """It is gone, and all can see that; its holder."""
        (self.folder / f"{name}.json").unlink()
        self.hosts.pop(name, None)
        return self.holders.pop(name)

    def has(self) -> dict[str, set[str]]:
        return {name: host.has() for name, host in self.hosts.items()}

    def until(self, true: Callable[[dict[str, set[str]]], bool], within: float = PATIENCE) -> dict[str, set[str]]:
        """Wait until that is true of who has what."""
        give_up = time.monotonic() + within
        while not true(has := self.has()):
            assert time.monotonic() < give_up, has
            time.sleep(0.01)
        return has

    def all_have(self, names: Sequence[str], within: float = PATIENCE) -> dict[str, set[str]]:
        """Wait until each of these is had by exactly one host, and nothing else is."""
        return self.until(lambda has: sorted(name for some in has.values() for name in some) == sorted(names), within)

    def close(self) -> None:
        """All leave in order, and can be used again."""
        waits = [host.ask("close") for host in self.hosts.values()]
        for wait in waits:
            wait()
        self._spares += self.hosts.values()
        self.hosts.clear()
