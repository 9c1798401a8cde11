"""The store over links that break: what was answered as written is there, once, whatever happened to the answer of
another; and who says that nothing was written, is right."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet import writer
from tests.fleet.judge import gaps
from tests.fleet.net import STORE, Net, net
from tests.servers.postgres import PostgresServer

WRITERS = ("a", "b", "c")
LASTS = 8.0
BACK_WITHIN = 20.0
"""Seconds for all to write again over good links. A link that was cut for long is tried again ever more seldom by the
kernel, too."""
NOTHING = "nothing was written"


class Storm:
    """Writers at places of a network, and what they were answered."""

    def __init__(self, folder: Path, network: Net, server: PostgresServer) -> None:
        self._folder, self.network, self.server = folder, network, server
        with network.at(STORE):
            self._dsn = server.database()
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for name in WRITERS:
            command = [sys.executable, writer.__file__, self.network.reach(name, self._dsn), name]
            with self.network.at(name):
                self._processes.append(subprocess.Popen([*command, str(self._folder / name)]))
        self.all_write()

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def said(self, name: str) -> list[list[Any]]:
        path = self._folder / name
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def all_write(self) -> None:
        """Wait until each writer has written something more."""
        before = {name: self._written(name) for name in WRITERS}
        give_up = time.monotonic() + BACK_WITHIN
        while any(self._written(name) == before[name] for name in WRITERS):
            assert time.monotonic() < give_up, {name: (self._written(name), self.said(name)[-3:]) for name in WRITERS}
            time.sleep(0.05)

    def _written(self, name: str) -> int:
        return sum(word == "written" for word, *_ in self.said(name))

    def journal(self) -> list[dict[str, Any]]:
        select = "SELECT seq, at, unit, body FROM flyball.journal ORDER BY seq"
        with self.network.at(STORE):
            rows = self.server.sql(select, database=self._dsn.rpartition("/")[2])
        return [dict(zip(("seq", "at", "unit", "body"), row, strict=True)) for row in rows]


@pytest.fixture
def storm(tmp_path: Path) -> Iterator[Storm]:
    """A PostgreSQL and its writers, each at its place."""
    with net(WRITERS) as network:
        with network.at(STORE):
            server = PostgresServer(host=network.address)
        made = Storm(tmp_path, network, server)
        try:
            made.start()
            yield made
        finally:
            made.end()
            server.clean()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(os.environ.get("FLYBALL_FLEET_LINKS", "1"))))
def test_answers_are_true(seed: int, storm: Storm) -> None:
    """Links cut, deaf and slow, and a database that is killed, by dice: no answer lies, nothing is written twice, the
    journal has no gap, and all write again over good links."""
    dice = random.Random(seed)
    network, ends = storm.network, time.monotonic() + LASTS
    while time.monotonic() < ends:
        name = dice.choice(WRITERS)
        harm = dice.choice(("cut", "deafen", "deafen", "slow", "kill"))
        if harm == "kill":
            storm.server.kill()
            time.sleep(dice.uniform(0, 0.5))
            with network.at(STORE):
                storm.server.start()
        else:
            getattr(network, harm)(name)
            time.sleep(dice.choice((0.05, 0.3, 1.0, 4.0)) * dice.uniform(0.5, 1))
            network.heal(name)
        time.sleep(dice.uniform(0, 0.3))
    storm.all_write()
    storm.end()
    _judge(storm)


def _judge(storm: Storm) -> None:
    journal = storm.journal()
    assert gaps(journal) == []
    bodies = [json.loads(entry["body"]) for entry in journal]
    assert [body["count"] for body in bodies] == list(range(1, len(journal) + 1)), "each saw what was before it"
    there = Counter((entry["unit"], body["number"]) for entry, body in zip(journal, bodies, strict=True))
    assert [who for who, times in there.items() if times > 1] == [], "written twice"
    for name in WRITERS:
        said = storm.said(name)
        answered = {number for word, number, *_ in said if word == "written"}
        assert [number for number in answered if not there[name, number]] == [], "answered as written, and not there"
        lies = [number for word, number, *text in said if word == "not" and NOTHING in text[0] and there[name, number]]
        assert lies == [], "said not to be written, and there"
