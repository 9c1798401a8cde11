"""Streams of events: the board and the journal, to many readers, to slow ones and to those who come back."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from flyball import http_server
from flyball.control.web import sse, streams
from flyball.control.web.sse import PACE_MIN, PACE_PER_STREAM, pace
from flyball.core.event import Held
from flyball.store.memory import MemoryStore
from tests.control.web.stage import Events, Service, Stage, on_stage, until, watch

BOARD = "/api/v1/board/stream"
JOURNAL = "/api/v1/journal/stream"


def change(service: Service, unit: str = "web") -> None:
    """Something happens, and the store's file tells of it."""
    service.scene.governor.submit(Held(unit=unit, by="ann"))
    service.ring()


async def frame(events: Events) -> dict[str, Any]:
    _, _, data = await events.next("board")
    found: dict[str, Any] = json.loads(data)
    return found


def test_the_board(tmp_path: Path) -> None:
    """First all of it, then what changed, soon after it did; the same as a look at it shows."""

    async def case(stage: Stage) -> None:
        for unit in ("web", "db"):
            stage.service.scene.start(unit)
        events = await watch(stage, BOARD)
        first = await frame(events)
        assert first["full"]
        assert [row["name"] for row in first["units"]] == ["db", "web"]
        change(stage.service)
        told = await frame(events)
        assert not told["full"]
        assert told["epoch"] == first["epoch"]
        assert told["rev"] > first["rev"]
        assert [(row["name"], row["state"]) for row in told["units"]] == [("web", "paused")]
        shown = (await stage.client("look").get("/api/v1/board")).json()
        assert shown["full"]
        assert {row["name"]: row["state"] for row in shown["units"]}["web"] == "paused"
        events.close()
        await until(lambda: not stage.web.streams)
        await until(lambda: not stage.service.rings)

    on_stage(tmp_path, case)


def test_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when nothing happens, as an event and as a comment."""
    monkeypatch.setattr(sse, "ALIVE_EVERY", 0.05)

    async def case(stage: Stage) -> None:
        for path in (BOARD, JOURNAL):
            events = await watch(stage, path)
            _, _, data = await events.next("alive")
            assert json.loads(data)["at"] > 0
            events.close()

    on_stage(tmp_path, case)


def test_many_readers_share_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change is made into bytes once, and all are told; readers make the pace slower."""
    made: list[str] = []

    def event(name: str, data: bytes, number: int | None = None) -> bytes:
        made.append(name)
        return sse.event(name, data, number)

    monkeypatch.setattr(streams, "event", event)

    async def case(stage: Stage) -> None:
        stage.service.scene.start("web")
        readers = [await watch(stage, BOARD) for _ in range(60)]
        for reader in readers:
            assert (await frame(reader))["full"]
        await until(lambda: stage.web.streams == 60)
        made.clear()
        change(stage.service)
        for reader in readers:
            told = await frame(reader)
            assert [row["name"] for row in told["units"]] == ["web"]
        assert made.count("board") <= 2
        for reader in readers:
            reader.close()

    on_stage(tmp_path, case)
    assert pace(1) == PACE_MIN
    assert pace(1000) == pytest.approx(1000 * PACE_PER_STREAM)


def test_a_reader_that_was_away_is_told_what_it_missed(tmp_path: Path) -> None:
    """Every entry after its position, then what is new; each once, in order."""

    async def case(stage: Stage) -> None:
        scene = stage.service.scene
        for unit in range(700):
            scene.governor.submit(Held(unit=f"u{unit}", by="ann"))
        events = await watch(stage, f"{JOURNAL}?after=40")
        for seq in range(41, 701):
            kind, number, data = await events.next("entry", "gap")
            assert (kind, number) == ("entry", str(seq))
            assert json.loads(data)["unit"] == f"u{seq - 1}"
        change(stage.service, "late")
        _, number, data = await events.next("entry")
        assert (number, json.loads(data)["unit"]) == ("701", "late")
        events.close()

    on_stage(tmp_path, case)


def test_the_only_reader_leaves_and_comes_back(tmp_path: Path) -> None:
    """Who left before the newest piece came to them, and comes back when there is more, misses none of both."""

    async def case(stage: Stage) -> None:
        change(stage.service, "first")
        events = await watch(stage, f"{JOURNAL}?after=0")
        assert (await events.next("entry"))[1] == "1"
        change(stage.service, "second")
        assert (await events.next("entry"))[1] == "2"  # as if it had not: it comes back with the number before
        events.close()
        await until(lambda: stage.web.streams == 0)
        change(stage.service, "third")
        again = await watch(stage, f"{JOURNAL}?after=1")
        assert [(await again.next("entry", "gap"))[1] for _ in range(2)] == ["2", "3"]
        again.close()

    on_stage(tmp_path, case)


def test_by_the_header_of_browsers(tmp_path: Path) -> None:
    """It wins over the address, which a browser that comes back asks for again."""

    async def case(stage: Stage) -> None:
        for number in range(5):
            stage.service.scene.governor.submit(Held(unit=f"u{number}", by="ann"))
        events = await watch(stage, f"{JOURNAL}?after=1", last_event_id="3")
        assert [(await events.next("entry"))[1] for _ in range(2)] == ["4", "5"]
        events.close()

    on_stage(tmp_path, case)


def test_without_a_position_only_what_is_new(tmp_path: Path) -> None:
    """Nothing of the past."""

    async def case(stage: Stage) -> None:
        change(stage.service, "before")
        events = await watch(stage, JOURNAL)
        await until(lambda: stage.web.streams == 1)
        change(stage.service, "after")
        _, _, data = await events.next("entry")
        assert json.loads(data)["unit"] == "after"
        events.close()

    on_stage(tmp_path, case)


def test_entries_that_are_gone(tmp_path: Path) -> None:
    """A reader is told which ones it missed for good, and then the rest."""
    store = MemoryStore()
    service = Service(store)
    for number in range(300):
        service.scene.governor.submit(Held(unit=f"u{number % 3}", by="ann", note=str(number)))
        store.trim(50)
    first = store.entries(limit=1)[0].seq
    assert first > 1

    async def case(stage: Stage) -> None:
        events = await watch(stage, f"{JOURNAL}?after=0")
        kind, _, data = await events.next("gap", "entry")
        assert kind == "gap"
        assert json.loads(data) == {"from": 1, "to": first - 1}
        assert (await events.next("gap", "entry"))[1] == str(first)
        events.close()

    on_stage(tmp_path, case, service=service)


def test_a_position_of_another_journal(tmp_path: Path) -> None:
    """One beyond the end is told of as a gap, and then what is new."""

    async def case(stage: Stage) -> None:
        change(stage.service, "before")
        events = await watch(stage, f"{JOURNAL}?after=999")
        kind, _, data = await events.next("gap", "entry")
        assert (kind, json.loads(data)) == ("gap", {"from": 2, "to": 999})
        change(stage.service, "after")
        assert (await events.next("gap", "entry"))[1] == "2"
        events.close()

    on_stage(tmp_path, case)


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "9" * 30, "%C2%B2"])
def test_positions_that_are_none(tmp_path: Path, after: str) -> None:
    """A clear error, before the stream begins."""

    async def case(stage: Stage) -> None:
        answer = await stage.client("look").get(f"{JOURNAL}?after={after}")
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "bad_argument"

    on_stage(tmp_path, case)


def test_a_reader_that_never_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps nobody else waiting, gets nothing kept beyond a bound, and is let go after a while."""
    assert http_server.TAKEN_WITHIN <= 60
    monkeypatch.setattr(http_server, "TAKEN_WITHIN", 0.5)
    service = Service()
    for number in range(5_000):  # more than what is under way between two ends of a connection
        service.scene.governor.submit(Held(unit="web", by="ann", note=f"{number} {'x' * 1900}"))

    async def case(stage: Stage) -> None:
        other = await watch(stage, BOARD)
        await frame(other)
        stuck = await watch(stage, f"{JOURNAL}?after=0")
        stuck._reader._transport.pause_reading()  # type: ignore[attr-defined]  # there is no other way
        await until(lambda: stage.web.streams == 2)
        change(stage.service, "other")
        assert [row["name"] for row in (await frame(other))["units"]] == ["other"]
        await until(lambda: stage.web.streams == 1)
        change(stage.service, "another")
        assert [row["name"] for row in (await frame(other))["units"]] == ["another"]

    on_stage(tmp_path, case, service=service)


@pytest.mark.slow
def test_a_thousand_readers_and_one_that_never_reads(tmp_path: Path) -> None:
    """All are told of a change, while looks and orders are answered and decisions are made."""

    async def case(stage: Stage) -> None:
        stage.service.scene.start("web")
        stuck = await watch(stage, BOARD)
        stuck._reader._transport.pause_reading()  # type: ignore[attr-defined]  # there is no other way
        readers = [await watch(stage, BOARD) for _ in range(1000)]
        await until(lambda: stage.web.streams == 1001)
        for reader in readers:
            assert (await frame(reader))["full"]
        client = stage.client("operate")
        assert (await client.post("/api/v1/pause", json={"units": ["web"]})).status_code == 200
        stage.service.ring()
        for reader in readers:
            assert [row["state"] for row in (await frame(reader))["units"]] == ["paused"]
        assert (await client.get("/api/v1/status")).status_code == 200
        for reader in readers:
            reader.close()
        await until(lambda: stage.web.streams == 1)

    on_stage(tmp_path, case)


def test_too_many_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is told so; others are still answered."""
    assert sse.STREAMS_MAX >= 1_000
    monkeypatch.setattr(sse, "STREAMS_MAX", 2)

    async def case(stage: Stage) -> None:
        readers = [await watch(stage, path) for path in (BOARD, JOURNAL)]
        await until(lambda: stage.web.streams == 2)
        answer = await stage.client("look").get(BOARD)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "busy")
        assert (await stage.client("look").get("/api/v1/status")).status_code == 200
        for reader in readers:
            reader.close()
        await until(lambda: stage.web.streams == 0)
        again = await watch(stage, BOARD)
        assert (await frame(again))["full"]
        again.close()

    on_stage(tmp_path, case)


def test_the_end_of_the_server_ends_streams(tmp_path: Path) -> None:
    """At once: nobody waits for readers that would stay for ever."""

    async def case(stage: Stage) -> None:
        events = await watch(stage, BOARD)
        await frame(events)
        before = asyncio.get_running_loop().time()
        await stage.web.stop()
        assert asyncio.get_running_loop().time() - before < http_server.END_WITHIN
        await events.rest()
        assert not (tmp_path / "http.json").exists()

    on_stage(tmp_path, case)


def test_a_store_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers stay, and are told when it can be read again."""
    from flyball.errors import StoreError

    monkeypatch.setattr(streams, "AGAIN_AFTER", 0.05)
    monkeypatch.setattr(streams, "LOOK_EVERY", 0.05)

    class Broken(MemoryStore):
        broken = False

        def entries(self, **more: Any) -> Any:
            if self.broken:
                raise StoreError("the disk is away")
            return super().entries(**more)

    store = Broken()

    async def case(stage: Stage) -> None:
        board, journal = await watch(stage, BOARD), await watch(stage, JOURNAL)
        await frame(board)
        store.broken = True
        stage.service.scene.governor.submit(Held(unit="web", by="ann"))
        stage.service.ring()
        await asyncio.sleep(0.1)
        store.broken = False
        assert [row["name"] for row in (await frame(board))["units"]] == ["web"]
        assert json.loads((await journal.next("entry"))[2])["unit"] == "web"
        board.close()
        journal.close()

    logging.getLogger("flyball").setLevel(logging.ERROR)
    try:
        on_stage(tmp_path, case, service=Service(store))
    finally:
        logging.getLogger("flyball").setLevel(logging.NOTSET)


def test_a_head_of_a_stream(tmp_path: Path) -> None:
    """Is an answer without an end to wait for."""

    async def case(stage: Stage) -> None:
        answer = await stage.client("look").head(BOARD)
        assert answer.status_code == 200
        assert stage.web.streams == 0

    on_stage(tmp_path, case)
