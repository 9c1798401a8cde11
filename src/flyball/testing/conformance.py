"""What every store has to do, as tests. Whoever writes a store subclasses one of these in a pytest file and is done:

    class TestMyStore(DurableStoreConformance):
        opener = MyStore            # called with a path, also in other processes: it must be importable

Nothing here knows how a store does it. The claims are those of `flyball.store`.
"""

import json
import multiprocessing
import os
import random
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Protocol, Self

import pytest

from flyball.core.policy import Key
from flyball.core.time import Instant
from flyball.errors import StoreClosed
from flyball.store import Draft, Drafter, Entry, Line, Snapshot, Store

KILLS: Final = int(os.environ.get("FLYBALL_KILLS", "40"))
"""How many writers the kill campaign kills. A longer one: `FLYBALL_KILLS=1000`."""

SILENCE_MAX: Final = 120.0
"""Seconds without a word from any of the processes, after which the test gives up instead of hanging."""

ALL_MAX: Final = 1_000_000
"""A limit that means "all of them" here."""


def key(subject: str, policy: str = "counter", by: str = "unit") -> Key:
    """Some key."""
    return Key(policy, by, subject)


def put(subject: str, value: int | None, *, after: int = 1) -> Drafter:
    """A draft that sets a record (None deletes it) and says so in the journal, so that it can be replayed."""

    def draft(seen: Snapshot) -> Draft:
        return _draft(seen.at + after, subject, value)

    return draft


def count(subject: str) -> Drafter:
    """A draft that adds one to a record: if another one comes in between unseen, a number is lost."""

    def draft(seen: Snapshot) -> Draft:
        return _draft(seen.at + 1, subject, int(seen.records.get(key(subject), b"0")) + 1)

    return draft


def _draft(at: Instant, subject: str, value: int | None) -> Draft:
    data = None if value is None else str(value).encode()
    line = Line(subject, "put", "PROCEED", json.dumps({"subject": subject, "value": value}).encode())
    return Draft(at, {key(subject): data}, line)


def replay(base: Snapshot, entries: Sequence[Entry]) -> Mapping[Key, bytes]:
    """The states that follow from a base and the entries after it."""
    records = dict(base.records)
    for entry in entries:
        body = json.loads(entry.body)
        if body["value"] is None:
            records.pop(key(body["subject"]), None)
        else:
            records[key(body["subject"])] = str(body["value"]).encode()
    return records


class Opener(Protocol):
    """Opens the store at a path, or makes a new one there."""

    def __call__(self, path: Path, /) -> Store: ...


class _Oops(Exception):
    """What a draft raises here."""


def _fail(_: Snapshot) -> Draft:
    raise _Oops


class StoreConformance:
    """For every store. Say how to open a new, empty one."""

    def open_store(self, folder: Path) -> Store:
        """A new store; `folder` is empty, and its own."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """A new store."""
        store = self.open_store(tmp_path)
        yield store
        store.close()

    def test_new(self, store: Store) -> None:
        """A new store is empty, begins at zero, and is sound."""
        assert store.read([key("a")]) == Snapshot(0, 0, {})
        assert list(store.entries()) == list(store.last_entries()) == []
        assert dict(store.states()) == {}
        assert store.base() == Snapshot(0, 0, {})
        assert list(store.integrity()) == []

    @pytest.mark.parametrize("sync", [True, False])
    def test_write(self, store: Store, sync: bool) -> None:
        """What a draft makes is there when transact returns: the record, the entry, and the end of the journal."""
        entry = store.transact([key("a")], put("a", 7, after=50), sync=sync)
        assert entry == Entry(1, 50, "a", "put", "PROCEED", b'{"subject": "a", "value": 7}')
        assert store.read([key("a")]) == Snapshot(1, 50, {key("a"): b"7"})
        assert list(store.entries()) == [entry]

    def test_sees(self, store: Store) -> None:
        """A draft sees the records of its keys as last committed, and the end of the journal, and no other records."""
        for n in range(3):
            store.transact([key("a")], put("a", n))
            store.transact([key("b")], put("b", n * 10))
        seen: list[Snapshot] = []
        store.transact([key("a"), key("none")], seen.append)
        assert seen == [Snapshot(6, 6, {key("a"): b"2"})]

    def test_same_object(self, store: Store) -> None:
        """As long as a record is unchanged it is the very same object, so that it has to be decoded only once."""
        store.transact([key("a"), key("b")], put("a", 10**6))
        seen: list[bytes] = []
        for n in range(3):
            store.transact([key("a")], lambda snapshot: seen.append(snapshot.records[key("a")]))
            store.transact([key("b")], put("b", n))
            seen.append(store.read([key("a")]).records[key("a")])
        assert all(record is seen[0] for record in seen)

    @pytest.mark.parametrize(
        "draft",
        [lambda _: None, lambda seen: Draft(seen.at + 5, {}, None)],
        ids=["none", "neither changes nor line"],
    )
    def test_nothing(self, store: Store, draft: Drafter) -> None:
        """A draft that wants nothing leaves no trace."""
        store.transact([key("a")], put("a", 1))
        assert store.transact([key("a")], draft) is None
        assert store.read([key("a")]) == Snapshot(1, 1, {key("a"): b"1"})

    def test_changes_without_a_line(self, store: Store) -> None:
        """A draft may change records without a word in the journal."""
        assert store.transact([], lambda seen: Draft(seen.at, {key("a"): b"1"}, None)) is None
        assert store.read([key("a")]) == Snapshot(0, 0, {key("a"): b"1"})

    def test_a_line_without_changes(self, store: Store) -> None:
        """A draft may add to the journal without changing a record."""
        entry = store.transact([], lambda _: Draft(9, {}, Line("u", "refused", "WAIT", b"{}")))
        assert entry == Entry(1, 9, "u", "refused", "WAIT", b"{}")
        assert dict(store.states()) == {}

    def test_raises(self, store: Store) -> None:
        """What a draft raises is raised to its caller; nothing is written, and the next one is served."""
        store.transact([key("a")], put("a", 1))
        with pytest.raises(_Oops):
            store.transact([key("a")], _fail)
        assert store.read([key("a")]) == Snapshot(1, 1, {key("a"): b"1"})
        assert store.transact([key("a")], put("a", 2)) is not None
        assert [entry.seq for entry in store.entries()] == [1, 2]

    def test_delete(self, store: Store) -> None:
        """A change to None deletes the record, also one that is not there; it can come back."""
        for value, there in ((None, {}), (1, {key("a"): b"1"}), (None, {}), (2, {key("a"): b"2"})):
            store.transact([key("a")], put("a", value))
            assert store.read([key("a")]).records == there
            assert dict(store.states()) == there

    def test_all_or_nothing(self, store: Store) -> None:
        """All changes of a draft are written together."""
        changes = {key(str(n)): b"1" for n in range(100)}
        store.transact([], lambda _: Draft(1, changes, Line("u", "e", "v", b"{}")))
        assert dict(store.states()) == changes

    def test_time_never_falls(self, store: Store) -> None:
        """A draft at an instant before the last entry is refused with ValueError; the same instant is allowed."""
        store.transact([key("a")], put("a", 1, after=1000))
        with pytest.raises(ValueError, match="back"):
            store.transact([key("a")], put("a", 2, after=-1))
        assert store.read([key("a")]) == Snapshot(1, 1000, {key("a"): b"1"})
        assert store.transact([key("a")], put("a", 2, after=0)) is not None
        assert [entry.at for entry in store.entries()] == [1000, 1000]

    @pytest.mark.parametrize(
        "text", ["", "a'b\"c", "two\nlines", "naïve ☃ 🙂", "x" * 5000, "nul\0inside", "%_?1"], ids=ascii
    )
    def test_any_text(self, store: Store, text: str) -> None:
        """Names and JSON come back as they went in, whatever is in them."""
        body = json.dumps({"text": text}, ensure_ascii=False).encode()
        name = Key(text, text, text)
        entry = store.transact([name], lambda _: Draft(1, {name: body}, Line(text, text, text, body)))
        assert entry == Entry(1, 1, text, text, text, body)
        assert list(store.entries(unit=text)) == [entry]
        assert dict(store.states()) == dict(store.states(text)) == {name: body}

    def test_entries_of_some_kinds(self, store: Store) -> None:
        """Entries of some kinds of events come in order, also after a number, of one unit, and only so many."""
        for n in range(1, 10):
            line = Line(f"u{n % 2}", ("start", "exited", "held")[n % 3], "proceed", b"{}")
            store.transact([], lambda _, n=n, line=line: Draft(n, {}, line))  # type: ignore[misc]  # bound now

        def numbers(**wanted: Any) -> list[int]:
            return [entry.seq for entry in store.entries(**wanted)]

        assert numbers(events=("held",)) == [2, 5, 8]
        assert numbers(events=("held", "start")) == [2, 3, 5, 6, 8, 9]
        assert numbers(events=("held", "start"), after=4, limit=2) == [5, 6]
        assert numbers(events=("held",), unit="u0") == [2, 8]
        assert numbers(events=("nothing",)) == []

        def newest(**wanted: Any) -> list[int]:
            return [entry.seq for entry in store.last_entries(**wanted)]

        assert newest(events=("held",), limit=2) == [5, 8]
        assert newest(events=("held", "start"), limit=3) == [6, 8, 9]
        assert newest(events=("held",), unit="u0") == [2, 8]
        assert newest(events=("nothing",)) == []

    @pytest.mark.parametrize(
        ("arguments", "numbers"),
        [
            ({}, range(1, 11)),
            ({"after": 7}, (8, 9, 10)),
            ({"after": 10}, ()),
            ({"after": 99}, ()),
            ({"limit": 3}, (1, 2, 3)),
            ({"limit": 0}, ()),
            ({"after": 2, "limit": 2}, (3, 4)),
            ({"unit": "odd"}, (1, 3, 5, 7, 9)),
            ({"unit": "odd", "after": 3, "limit": 2}, (5, 7)),
            ({"unit": "nobody"}, ()),
        ],
        ids=str,
    )
    def test_entries(self, store: Store, arguments: dict[str, Any], numbers: Sequence[int]) -> None:
        """Entries come in order, from where and as many and of whom one asks."""
        self._ten(store)
        assert [entry.seq for entry in store.entries(**arguments)] == list(numbers)

    @pytest.mark.parametrize(
        ("arguments", "numbers"),
        [
            ({}, range(1, 11)),
            ({"limit": 3}, (8, 9, 10)),
            ({"limit": 0}, ()),
            ({"unit": "even", "limit": 2}, (8, 10)),
            ({"unit": "nobody"}, ()),
        ],
        ids=str,
    )
    def test_last_entries(self, store: Store, arguments: dict[str, Any], numbers: Sequence[int]) -> None:
        """The newest entries come in order too."""
        self._ten(store)
        assert [entry.seq for entry in store.last_entries(**arguments)] == list(numbers)

    def _ten(self, store: Store) -> None:
        for n in range(1, 11):
            store.transact([], put("odd" if n % 2 else "even", n))

    def test_states_of_one_policy(self, store: Store) -> None:
        """States can be had for one policy."""
        keys = [key(subject, policy) for policy in ("p", "q") for subject in ("a", "b")]
        store.transact([], lambda _: Draft(1, dict.fromkeys(keys, b"1"), None))
        assert set(store.states()) == set(keys)
        assert set(store.states("q")) == set(keys[2:])
        assert dict(store.states("r")) == {}

    def test_soon(self, store: Store) -> None:
        """transact_soon does the same for callers that must not block, in the order in which they came."""
        futures = [store.transact_soon([key("a")], count("a")) for _ in range(50)]
        entries = [future.result(SILENCE_MAX) for future in futures]
        assert [entry.seq for entry in entries if entry] == list(range(1, 51))
        assert store.read([key("a")]).records == {key("a"): b"50"}

    def test_soon_raises(self, store: Store) -> None:
        """What a draft raises is in its own future, and in no other."""
        drafts = [count("a"), _fail, count("a"), lambda _: None, count("a")]
        first, bad, second, nothing, third = [store.transact_soon([key("a")], draft) for draft in drafts]
        assert isinstance(bad.exception(SILENCE_MAX), _Oops)
        assert nothing.result(SILENCE_MAX) is None
        numbers = [entry.seq for future in (first, second, third) if (entry := future.result(SILENCE_MAX))]
        assert numbers == [1, 2, 3]

    def test_threads(self, store: Store) -> None:
        """Threads that add to the same record never lose a number, and each gets the entry that is its own."""
        mine: list[list[Entry]] = [[] for _ in range(8)]

        def work(place: int) -> None:
            for n in range(40):
                entry = store.transact([key("all")], count("all"), sync=n % 2 == 0)
                assert entry is not None
                mine[place].append(entry)

        _together([partial(work, place) for place in range(8)])
        entries = list(store.entries(limit=ALL_MAX))
        assert [entry.seq for entry in entries] == list(range(1, 321))
        assert [json.loads(entry.body)["value"] for entry in entries] == list(range(1, 321))
        assert sorted(entry for each in mine for entry in each) == entries
        assert all(each == sorted(each) for each in mine)

    def test_readers_see_whole_commits(self, store: Store) -> None:
        """Whoever reads while others write sees a commit whole or not at all."""
        left, right = key("left"), key("right")
        done = threading.Event()
        torn: list[Snapshot] = []

        def both(seen: Snapshot) -> Draft:
            number = str(seen.seq + 1).encode()
            return Draft(seen.at + 1, {left: number, right: number}, Line("u", "e", "v", b"{}"))

        def write() -> None:
            for _ in range(150):
                store.transact([], both, sync=False)
            done.set()

        def look() -> None:
            while not done.is_set():
                seen = store.read([left, right])
                said = {int(record) for record in seen.records.values()} or {0}
                if said != {seen.seq} or seen.at != seen.seq:
                    torn.append(seen)

        _together([write, look, look])
        assert torn == []

    def test_trim(self, store: Store) -> None:
        """Trimming keeps at least as many entries as asked, and a base from which they lead to the states of today;
        done again and again, it keeps the journal bounded."""
        dice = random.Random(7)
        history: dict[int, Mapping[Key, bytes]] = {0: {}}
        for _ in range(12):
            for _ in range(10):
                subject = dice.choice("abcdef")
                entry = store.transact([key(subject)], put(subject, dice.choice([None, 1, 2, 3])), sync=False)
                assert entry is not None
                history[entry.seq] = dict(store.states())
            before = store.base()
            forgotten = store.trim(15)
            base, entries = store.base(), store.entries(limit=ALL_MAX)
            head = store.read([]).seq
            assert base.seq == before.seq + forgotten
            assert [entry.seq for entry in entries] == list(range(base.seq + 1, head + 1))
            assert len(entries) >= min(15, head)
            assert base.records == history[base.seq]
            assert replay(base, entries) == dict(store.states())
            assert list(store.integrity()) == []
        assert base.seq > 0
        assert len(entries) <= 40
        assert store.entries(after=base.seq - 5, limit=1)[0].seq == base.seq + 1

    def test_trim_to_nothing(self, store: Store) -> None:
        """A journal can be forgotten whole. The next entry goes on where it ended, in number and in time."""
        self._ten(store)
        at = store.read([]).at
        assert store.trim(0) == 10
        assert store.base() == Snapshot(10, at, dict(store.states()))
        assert list(store.entries()) == list(store.last_entries()) == []
        assert store.read([]).seq == 10
        with pytest.raises(ValueError, match="back"):
            store.transact([], put("a", 1, after=-1))
        entry = store.transact([], put("a", 1))
        assert entry is not None
        assert entry.seq == 11
        assert list(store.entries()) == [entry]
        assert list(store.integrity()) == []

    def test_trim_too_little(self, store: Store) -> None:
        """Asked to keep more than there is, a store forgets nothing."""
        self._ten(store)
        assert store.trim(10) == store.trim(11) == store.trim(10**9) == 0
        assert len(store.entries()) == 10

    def test_close(self, store: Store) -> None:
        """Closing finishes what is waiting. After it nothing is taken any more, and closing again does nothing."""
        futures = [store.transact_soon([key("a")], count("a")) for _ in range(30)]
        store.close()
        assert [entry.seq for future in futures if (entry := future.result(SILENCE_MAX))] == list(range(1, 31))
        with pytest.raises(StoreClosed):
            store.transact([key("a")], count("a"))
        with pytest.raises(StoreClosed):
            store.transact_soon([key("a")], count("a"))
        with pytest.raises(StoreClosed):
            store.read([key("a")])
        store.close()


def _together(tasks: Sequence[Callable[[], None]]) -> None:
    """Run these at once, each in a thread, and raise what any of them raised."""
    failed: list[BaseException] = []
    start = threading.Barrier(len(tasks))

    def run(task: Callable[[], None]) -> None:
        start.wait()
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - it is raised in the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


class DurableStoreConformance(StoreConformance):
    """For stores that outlive their process, and that several processes may use at once."""

    opener: ClassVar[Opener]
    """Opens the store at a path, or makes a new one there. Importable, since other processes call it."""

    processes: ClassVar[int] = 3
    """Writers in the kill campaign."""

    kills: ClassVar[int] = KILLS
    """How many of them are killed."""

    def open_store(self, folder: Path) -> Store:
        return type(self).opener(folder / "store")

    def test_reopen(self, tmp_path: Path) -> None:
        """Whoever opens the store again finds everything as it was."""
        store = self.open_store(tmp_path)
        for n in range(20):
            store.transact([key(str(n % 3))], count(str(n % 3)), sync=n % 2 == 0)
        store.trim(5)
        entries, states, base = store.entries(), store.states(), store.base()
        store.close()
        again = self.open_store(tmp_path)
        assert (again.entries(), again.states(), again.base()) == (entries, states, base)
        assert list(again.integrity()) == []
        again.close()

    def test_two_at_once(self, tmp_path: Path) -> None:
        """Two that have the same store open see each other's commits at once, in drafts and in reads."""
        one, other = self.open_store(tmp_path), self.open_store(tmp_path)
        for n in range(1, 21):
            writer, reader = (one, other) if n % 2 else (other, one)
            assert writer.transact([key("a")], count("a"), sync=False) is not None
            assert reader.read([key("a")]) == Snapshot(n, n, {key("a"): str(n).encode()})
        one.trim(0)
        assert other.base() == one.base()
        for n in range(21, 25):
            writer = one if n % 2 else other
            writer.transact([key("a")], count("a"), sync=False)
        assert replay(one.base(), one.entries()) == one.states() == other.states()
        one.close()
        other.close()

    def test_processes(self, tmp_path: Path) -> None:
        """Processes that add to the same record never lose a number, and none of them starves. A store that lets one
        starve does so each time; a machine that is busy with other things does not."""
        counts: list[list[int]] = []
        with _Crew(type(self).opener, tmp_path / "store", 4) as crew:
            while len(counts) < 3 and not any(min(count) >= max(count) / 4 for count in counts):
                crew.wait_for_all()
                crew.listen(until=lambda: sum(crew.said) >= 1600)
                counts.append(crew.said)
        crew.check()
        assert min(counts[-1]) >= max(counts[-1]) / 4, f"unfair: {counts}"

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", [1])
    def test_kills(self, tmp_path: Path, seed: int) -> None:
        """Writers that are killed at any instant (kill -9) leave a sound store, with all that was acknowledged."""
        dice = random.Random(seed)
        with _Crew(type(self).opener, tmp_path / "store", self.processes) as crew:
            for _ in range(self.kills):
                victim = dice.randrange(self.processes)
                enough = crew.said[victim] + dice.randrange(1, 40)
                crew.listen(until=lambda: crew.said[victim] >= enough)  # noqa: B023 - used in this round only
                crew.kill(victim)
                crew.start(victim)
        crew.check()


_WORD: Final = struct.Struct("<QQ")


class _Crew:
    """Processes that write to one store, and tell over a pipe what was acknowledged to them: (own number, entry). None
    is left when the block ends."""

    def __init__(self, opener: Opener, path: Path, size: int) -> None:
        self._opener = opener
        self._path = path
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[int, Any] = {}
        self._pipes: dict[int, Connection] = {}
        self.said = [0] * size
        self._acknowledged: list[tuple[int, int, int]] = []
        opener(path).close()
        for place in range(size):
            self.start(place)

    def start(self, place: int) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(self._opener, self._path, place, theirs), daemon=True)
        process.start()
        theirs.close()
        self._processes[place] = process
        self._pipes[place] = ours
        ours.send_bytes(b"go")

    def wait_for_all(self) -> None:
        """Nobody is ahead because he was started first: begin to count when all have been heard, and each time anew."""
        self.listen(until=lambda: min(self.said) > 0)
        self.said = [0] * len(self.said)

    def listen(self, until: Callable[[], bool]) -> None:
        while not until():
            ready = wait(list(self._pipes.values()), timeout=SILENCE_MAX)
            assert ready, "no process says anything any more"
            for place, pipe in self._pipes.items():
                if pipe in ready:
                    assert self._hear(place), "a writer ended by itself"

    def _hear(self, place: int) -> bool:
        try:
            number, seq = _WORD.unpack(self._pipes[place].recv_bytes())
        except (EOFError, ConnectionResetError):
            return False
        self.said[place] += 1
        self._acknowledged.append((place, number, seq))
        return True

    def kill(self, place: int) -> None:
        """kill -9; what it had said before still counts."""
        self._processes[place].kill()
        self._processes[place].join()
        while self._hear(place):
            pass
        self._pipes.pop(place).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for place in list(self._pipes):
            self.kill(place)

    def check(self) -> None:
        """Nothing that was acknowledged is missing, nothing was counted twice, the journal has no gap."""
        store = self._opener(self._path)
        problems = list(store.integrity())
        entries = store.entries(limit=ALL_MAX)
        states = store.states()
        store.close()
        assert problems == []
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        bodies = [json.loads(entry.body) for entry in entries]
        assert [body["all"] for body in bodies] == list(range(1, len(entries) + 1))
        for place, number, seq in self._acknowledged:
            assert (bodies[seq - 1]["place"], bodies[seq - 1]["own"]) == (place, number)
        for place in range(len(self.said)):
            own = [body["own"] for body in bodies if body["place"] == place]
            assert own == list(range(1, len(own) + 1))
            assert states[key(str(place))] == str(len(own)).encode()
        assert states[key("all")] == str(len(entries)).encode()


def _work(opener: Opener, path: Path, place: int, pipe: Connection) -> None:
    """Add to one's own record and to that of all, until killed; tell what was acknowledged."""
    own, everyone = key(str(place)), key("all")

    def draft(seen: Snapshot) -> Draft:
        mine, total = (int(seen.records.get(each, b"0")) + 1 for each in (own, everyone))
        body = json.dumps({"place": place, "own": mine, "all": total}).encode()
        changes = {own: str(mine).encode(), everyone: str(total).encode()}
        return Draft(seen.at + 1, changes, Line(str(place), "counted", "PROCEED", body))

    store = opener(path)
    pipe.recv_bytes()
    sync = True
    while True:
        entry = store.transact([own, everyone], draft, sync=sync)
        assert entry is not None
        pipe.send_bytes(_WORD.pack(json.loads(entry.body)["own"], entry.seq))
        sync = not sync
