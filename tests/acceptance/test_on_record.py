"""What there is to read afterwards: the log of a real daemon, the totals that a monitor sees, the words of every view,
and which session cost too much."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import decode

from flyball.control.board import Board
from flyball.control.commands import answer
from flyball.core.time import HOUR
from flyball.store.memory import MemoryStore
from tests.control.metrics.scene import Scraped
from tests.control.scene import Scene
from tests.control.work import Piece
from tests.daemon.site import Site, until

CENT = 10_000
KIND = "abcdef0123456789"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    place = Site(tmp_path, FLYBALL_LOGS__FORMAT="json")
    try:
        yield place
    finally:
        place.clean()


def lines(site: Site) -> list[dict[str, Any]]:
    """The log of the daemon, line by line."""
    return [json.loads(line) for line in (site.state / "daemon.log").read_text().splitlines()]


def test_the_log_of_a_daemon(site: Site) -> None:
    """S0-18, S0-45, S3-12: each failure is a line that says which one it is and how long it is waited, up to the one
    that quarantines; each restart is one with its unit and its number; a storm at the next start is a warning with its
    code."""
    site.write({"web": {"command": ["sh", "-c", "exit 3"]}})
    site.flyball("up", "-d")
    until(lambda: site.status()["web"]["state"] == "quarantined", "the quarantine")
    site.down()
    exits = [line for line in lines(site) if line.get("event") == "exited" and line["unit"] == "web"]
    assert [f"failure {n} of exit 3" in line["text"] for n, line in enumerate(exits[:5], 1)] == [True] * 5
    assert all("waits 20 ms" in line["text"] for line in exits[:5])
    assert "quarantined" in exits[5]["codes"]
    starts = [line["text"] for line in lines(site) if line.get("event") == "start" and line["verdict"] == "proceed"]
    assert starts[0] == "web started"
    assert [text.startswith("web started again") for text in starts[1:]] == [True] * 5
    assert [text.endswith(f"(restart {n})") for n, text in enumerate(starts[1:], 1)] == [True] * 5

    site.env["FLYBALL_SAFETY__GLOBAL_FAILURE_THRESHOLD"] = "5"
    site.flyball("up", "-d")
    [storm] = [line for line in lines(site) if line["level"] == "warning"]
    assert (storm["event"], storm["verdict"], storm["codes"]) == ("booted", "hold", ["restart_storm_detected"])
    assert "nothing is started: restart_storm_detected: more than 5 failures" in storm["text"]


def test_totals_of_the_fleet() -> None:
    """S3-22: restarts of all units, and units that are given up until a person looks, are counted for a monitor."""
    scraped = Scraped(named=["coder", "writer", "fine"])
    scraped.table()
    for unit in ("coder", "writer"):
        for n in range(6):
            scraped.scene.clock.move(HOUR)
            scraped.scene.start(unit, again=n > 0)
            scraped.scene.exit(unit, fingerprint=KIND)
    scraped.scene.start("fine")
    seen = scraped.table()
    restarts = {key[1:]: value for key, value in seen.items() if key[0] == "flyball_restarts_total"}
    assert restarts == {("error", "coder"): 5, ("error", "writer"): 5}
    assert seen["flyball_units_waiting_for_person",] == 2
    assert seen["flyball_units", "quarantined"] == 2
    assert seen["flyball_units", "healthy"] == 1


@pytest.mark.parametrize("word", ["healthy", "degraded", "halted"])
def test_words_of_every_view(word: str) -> None:
    """S4-05: healthy, degraded and halted are the words of the answer to `state`, of the list, of why, and of the board
    that the page shows."""
    scene = Scene(MemoryStore())
    scene.everything()
    unit, context = f"{word}-one", scene.context()
    listed = {one["name"]: one["state"] for one in answer(context, "status", {})["units"]}
    board = Board(scene.context().look)
    board.refresh()
    shown = {one["name"]: one["state"] for one in decode(board.frame(-1, ""))["units"]}
    assert answer(context, "state", {"unit": unit})["state"] == word
    assert listed[unit] == answer(context, "why", {"unit": unit})["unit"]["state"] == shown[unit] == word


@pytest.mark.parametrize(("cents", "found"), [(80, ["s7"]), (39, []), (9, [])])
def test_costly_session(cents: int, found: list[str]) -> None:
    """S1-58: a session that spent more than four times what is usual among all of them is named, with both amounts;
    below that none is."""
    scene = Scene(MemoryStore())
    for n in range(1, 8):
        piece = Piece(scene, f"s{n}")
        piece.begin()
        piece.step(used={"usd": (10 if n < 7 else cents) * CENT})
    costly = answer(scene.context(), "sessions", {})["costly"]
    assert [one["id"] for one in costly] == found
    assert all((one["spent"], one["usual"]) == (cents * CENT, 10 * CENT) for one in costly)
