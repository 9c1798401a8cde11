"""Files that come, change or go: real ones, in real folders, watched by the real system."""

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flyball.config.rules import FileChange, Rule
from flyball.core.policy import Key
from flyball.core.time import SECOND
from flyball.errors import FlyballError
from flyball.governor import SystemClock
from flyball.runtimes.rule.firing import Spark
from flyball.runtimes.rule.triggers import files, fileset, watcher
from flyball.runtimes.rule.triggers.files import Files
from flyball.runtimes.rule.triggers.fileset import FILE, LISTING
from flyball.runtimes.rule.triggers.listing import Pattern, identity
from flyball.runtimes.rule.triggers.watcher import Change
from flyball.store import Draft, Store
from flyball.store.sqlite import SqliteStore
from tests.runtimes.rule.triggers.belfry import WAIT_MAX, Belfry, Killed, rule, running

ALL = ("created", "modified", "deleted")


class Real(SystemClock):
    """The machine's clock, for a bell that wants one to move."""


class House:
    """A folder, a store, and daemons that come and go."""

    def __init__(self, folder: Path, pattern: str = "inbox/*.csv", on: Sequence[str] = ALL) -> None:
        self.folder = folder
        self.inbox = folder / "inbox"
        self.rules: list[Rule] = [rule("import", FileChange(pattern=str(folder / pattern), on=tuple(on)))]
        self.bell = Belfry(clock=Real())  # type: ignore[arg-type]  # it is not moved here
        self.source = Files(self.bell, self.bell.governor)

    def up(self, *rules: Rule) -> Any:
        """A daemon is there."""
        self.source = Files(self.bell, self.bell.governor)
        self.is_watched = asyncio.Event()
        lists = self.source._up

        def up() -> None:
            self.is_watched.set()
            lists()

        self.source._up = up  # type: ignore[method-assign]  # nobody else knows when the system tells of all
        return running(self.source, rules or self.rules)

    @property
    def said(self) -> list[tuple[str, str]]:
        """What rang: which change, of which file."""
        return [(spark.data["change"], spark.data["path"]) for spark in self.bell.rang]

    @property
    def names(self) -> list[tuple[str, str]]:
        """The same, by the names of the files, in the order of the alphabet."""
        return sorted((spark.data["change"], spark.data["name"]) for spark in self.bell.rang)

    async def settled(self) -> None:
        """Wait until all that there is to see was seen: a mark is set, and has rung."""
        await watched(self)
        await marked(self)


async def marked(house: House) -> None:
    """Everything before the mark has rung when the mark has."""
    house.inbox.mkdir(exist_ok=True)
    before = len(house.bell.rang)
    mark = house.inbox / f"mark{before}.csv"
    mark.write_text("x")
    async with asyncio.timeout(WAIT_MAX):
        while not any(spark.data["name"] == mark.name for spark in house.bell.rang):
            await house.bell.until(len(house.bell.rang) + 1)
    house.bell.rang = [spark for spark in house.bell.rang if spark.data["name"] != mark.name]


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that nobody tells of."""
    async with asyncio.timeout(WAIT_MAX):
        while not condition():
            await asyncio.sleep(0.01)


async def watched(house: House) -> None:
    """Wait until the system tells of changes in the folders."""
    await asyncio.wait_for(house.is_watched.wait(), WAIT_MAX)


async def listed(house: House) -> None:
    """Wait until it is known what is there already."""
    await until(lambda: house.bell.store.states(LISTING))


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are looked at more often than usual."""
    monkeypatch.setattr(files, "LOOK_EVERY", SECOND // 5)


# Patterns.


@pytest.mark.parametrize(
    ("pattern", "folder", "deep", "meant", "not_meant"),
    [
        ("/in/*.csv", "/in", False, ["a.csv", "a.b.csv", "a\nb.csv"], [".a.csv", "a.txt", "a/b.csv", "csv"]),
        ("/in/a.csv", "/in", False, ["a.csv"], ["b.csv", "a/a.csv"]),
        ("/in/**/*.csv", "/in", True, ["a.csv", "x/a.csv", "x/y/z/a.csv"], [".x/a.csv", "x/.a.csv", "x/a.txt"]),
        ("/in/**", "/in", True, ["a", "a/b"], [".a", "a/.b"]),
        ("/in/*/a.csv", "/in", True, ["x/a.csv"], ["a.csv", "x/y/a.csv"]),
        ("/in/x*/**/y/?.c", "/in", True, ["x/y/a.c", "xx/z/y/a.c"], ["x/a.c", "z/y/a.c", "x/y/ab.c"]),
        ("/in/.hidden/*.csv", "/in/.hidden", False, ["a.csv"], [".a.csv"]),
        ("/in/.*", "/in", False, [".a"], ["a"]),
        ("/in/[ab].csv", "/in", False, ["[ab].csv"], ["a.csv"]),
        ("/in/[ab]*.csv", "/in", False, ["[ab]c.csv"], ["a.csv"]),
        ("/in//x/../y/*.csv", "/in/y", False, ["a.csv"], []),
        ("/*", "/", False, ["a"], ["a/b"]),
    ],
)
def test_pattern(pattern: str, folder: str, deep: bool, meant: list[str], not_meant: list[str]) -> None:
    """`*` and `?` stand for letters of a name, `**` for any folders, none of them for a dot at the beginning, and
    nothing else is special."""
    found = Pattern(pattern)
    assert found.folder == folder
    assert found.is_deep is deep
    assert [name for name in meant if not found.matches(name)] == []
    assert [name for name in not_meant if found.matches(name)] == []


def test_hostile_name() -> None:
    """A long name that is nearly meant takes no longer than others."""
    pattern = Pattern("/in/" + "*a" * 30 + ".csv")
    assert not pattern.matches("a" * 200)


@pytest.mark.parametrize("pattern", ["*.csv", "**/*.csv", "*/*.csv", "**"])
def test_listing_agrees(tmp_path: Path, pattern: str) -> None:
    """What is listed is what is meant: files and links to them, not folders, nor what is behind links to folders."""
    for name in ("a.csv", "x/b.csv", "x/y/c.csv", ".h/d.csv", "x/e.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "link.csv").symlink_to("a.csv")
    (tmp_path / "dangling.csv").symlink_to("nothing")
    (tmp_path / "x/round").symlink_to("..")
    os.mkfifo(tmp_path / "pipe.csv")
    found = Pattern(f"{tmp_path}/{pattern}")
    real = {"a.csv", "x/b.csv", "x/y/c.csv", ".h/d.csv", "x/e.txt", "link.csv"}
    listed = {os.path.relpath(path, tmp_path) for path, _ in found.files(100)}
    assert listed == {name for name in real if found.matches(name)}


# What fires.


def test_created_modified_deleted(tmp_path: Path) -> None:
    """Each change fires once, and says which file it is about."""

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        async with house.up():
            await house.settled()
            file = house.inbox / "a.csv"
            file.write_text("1")
            await house.bell.until(1)
            file.write_text("12")
            await house.bell.until(2)
            file.unlink()
            await house.bell.until(3)
            (house.inbox / "a.txt").write_text("1")
            await house.settled()
        assert house.said == [(change, str(file)) for change in ALL]
        spark = house.bell.rang[0]
        assert spark.data == {"kind": "file", "path": str(file), "name": "a.csv", "change": "created"}
        assert (spark.rule, spark.trigger, spark.joins) == ("import", "file", True)
        assert house.bell.rang[2].trigger == "file deleted"

    asyncio.run(play())


@pytest.mark.parametrize("on", [("created",), ("modified",), ("deleted",), ("created", "modified")])
def test_only_what_is_asked_for(tmp_path: Path, on: tuple[str, ...]) -> None:
    """Changes that the trigger does not name fire nothing, and are remembered all the same."""

    async def play() -> None:
        house = House(tmp_path, on=on)
        house.inbox.mkdir()
        file = house.inbox / "a.csv"
        listed = Key(FILE, "unit", f"import/0/{identity(str(file))}")
        expected = [change for change in ALL if change in on]

        def size() -> int | None:
            data = house.bell.store.states(FILE).get(listed)
            return None if data is None else int(msgspec.json.decode(data)["size"])

        async with house.up():
            await watched(house)
            file.write_text("1")
            await until(lambda: size() == 1)
            file.write_text("12")
            await until(lambda: size() == 2)
            file.unlink()
            # What rang is known a moment after it is on disk.
            await until(lambda: size() is None and len(house.said) >= len(expected))
        assert [change for change, _ in house.said] == expected

    asyncio.run(play())


def test_what_is_there_already(tmp_path: Path) -> None:
    """At the very first start nothing fires for what is there; nor does it at a later one, if nothing changed."""

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        for number in range(5):
            (house.inbox / f"{number}.csv").write_text("x")
        for _ in range(3):
            async with house.up():
                await house.settled()
        assert house.said == []

    asyncio.run(play())


def test_right_after_it_is_in_force(tmp_path: Path) -> None:
    """As soon as it is known what is there already, whatever comes fires: at the start, and with other rules."""

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        async with house.up():
            await house.source.settled()
            (house.inbox / "first.csv").touch()
            await house.bell.until(1)
            for number in range(5):
                house.source.use([rule("texts", FileChange(pattern=str(house.inbox / f"*.t{number}")))])
                await house.source.settled()
                (house.inbox / f"next.t{number}").touch()
                await house.bell.until(2 + number)
        assert house.names == [("created", "first.csv"), *(("created", f"next.t{number}") for number in range(5))]

    asyncio.run(play())


def test_while_nobody_was_there(tmp_path: Path) -> None:
    """What changed while nobody was there is found at the next start, once."""

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        for name in ("same", "changed", "gone"):
            (house.inbox / f"{name}.csv").write_text("x")
        async with house.up():
            await watched(house)
        (house.inbox / "new.csv").write_text("x")
        (house.inbox / "changed.csv").write_text("xx")
        (house.inbox / "gone.csv").unlink()
        for _ in range(2):
            async with house.up():
                await house.settled()
        assert house.names == [("created", "new.csv"), ("deleted", "gone.csv"), ("modified", "changed.csv")]

    asyncio.run(play())


@pytest.mark.parametrize("reports", ["all", "first"])
def test_many_small_writes(tmp_path: Path, reports: str) -> None:
    """A file that is written bit by bit is one firing, and it comes when the file is whole; also where the system tells
    only of the first bit."""

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        sizes: list[int] = []
        house.bell.before = lambda spark: sizes.append(Path(spark.data["path"]).stat().st_size)
        async with house.up():
            tell, told = house.source._told, 0

            def only_first(changes: Sequence[Change]) -> None:
                nonlocal told
                told += 1
                if reports == "all" or told == 1 or sizes:
                    tell(changes)

            house.source._told = only_first  # type: ignore[method-assign]  # reports get lost
            await watched(house)
            with (house.inbox / "a.csv").open("wb", buffering=0) as file:
                for _ in range(60):
                    file.write(b"x" * 10)
                    await asyncio.sleep(0.02)  # as a slow writer does
            await house.bell.until(1)
            await house.settled()
        assert house.names == [("created", "a.csv")]
        assert sizes[0] == 600

    asyncio.run(play())


def test_changed_while_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changes at the very moment at which it is looked at for the last time fires for that as well."""

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        file = house.inbox / "a.csv"
        looks = files._stamps
        reported = asyncio.Event()

        def slow(paths: list[str]) -> object:
            found = looks(paths)
            if not reported.is_set():
                file.write_text("changed")
                asyncio.run_coroutine_threadsafe(asyncio.wait_for(reported.wait(), WAIT_MAX), loop).result()
            return found

        loop = asyncio.get_running_loop()
        async with house.up():
            await watched(house)
            await house.settled()
            monkeypatch.setattr(files, "_stamps", slow)
            file.write_text("x")
            async with asyncio.timeout(WAIT_MAX):
                while not reported.is_set():
                    await asyncio.sleep(0.01)
                    touches = [touch for one in house.source._sets.values() for touch in one.touched.values()]
                    if any(touch.stamp is not None and touch.stamp.size == 7 for touch in touches):
                        reported.set()
            await house.settled()
        size = next(
            msgspec.json.decode(data)["size"] for data in house.bell.store.states(FILE).values() if b"a.csv" in data
        )
        assert size == 7

    asyncio.run(play())


def test_never_comes_to_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is written all the time is waited for only so long."""
    for module in (files, fileset):
        monkeypatch.setattr(module, "WRITES_MAX", SECOND)

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        async with house.up():
            await watched(house)
            with (house.inbox / "log.csv").open("wb", buffering=0) as file:
                async with asyncio.timeout(WAIT_MAX):
                    while not house.bell.rang:
                        file.write(b"x")
                        await asyncio.sleep(0.01)
        assert house.names == [("created", "log.csv")]

    asyncio.run(play())


def test_replaced(tmp_path: Path) -> None:
    """A file that is replaced by another one, as editors do it, is modified; one that is only touched in its mode is
    not."""

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        file = house.inbox / "a.csv"
        file.write_text("x")
        async with house.up():
            await watched(house)
            (house.inbox / ".a.csv.swp").write_text("xx")
            file.rename(house.inbox / "a.csv~")
            (house.inbox / ".a.csv.swp").rename(file)
            await house.bell.until(1)
            file.chmod(0o600)
            await house.settled()
        assert house.names == [("modified", "a.csv")]

    asyncio.run(play())


def test_folder_that_comes_and_goes(tmp_path: Path) -> None:
    """The folder need not be there yet, may be removed, and come again."""

    async def play() -> None:
        house = House(tmp_path, pattern="later/inbox/*.csv")
        folder = tmp_path / "later/inbox"
        async with house.up():
            await listed(house)
            for count in range(3):
                folder.mkdir(parents=True)
                (folder / "a.csv").write_text("x")
                await house.bell.until(2 * count + 1)
                shutil.rmtree(tmp_path / "later")
                await house.bell.until(2 * count + 2)
        assert [change for change, _ in house.said] == ["created", "deleted"] * 3

    asyncio.run(play())


def test_folder_is_replaced_at_once(tmp_path: Path) -> None:
    """A folder that is another one from one moment to the next is noticed, and watched."""

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        (house.inbox / "a.csv").write_text("x")
        other = tmp_path / "other"
        other.mkdir()
        (other / "b.csv").write_text("x")
        async with house.up():
            await watched(house)
            house.inbox.rename(tmp_path / "old")
            other.rename(house.inbox)
            await house.bell.until(2)
            (house.inbox / "c.csv").write_text("x")
            await house.bell.until(3)
            (tmp_path / "old/d.csv").write_text("x")
            await house.settled()
        assert house.names == [("created", "b.csv"), ("created", "c.csv"), ("deleted", "a.csv")]

    asyncio.run(play())


def test_folder_comes_again_with_the_same_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is removed and made anew may look like the old one from outside: it is watched all the same."""
    monkeypatch.setattr(files, "_identified", lambda _: (1, 1))

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        (house.inbox / "a.csv").write_text("x")
        async with house.up():
            await watched(house)
            shutil.rmtree(house.inbox)
            house.inbox.mkdir()
            await house.bell.until(1)
            (house.inbox / "b.csv").write_text("x")
            await house.bell.until(2)
        assert house.names == [("created", "b.csv"), ("deleted", "a.csv")]

    asyncio.run(play())


def test_deep(tmp_path: Path) -> None:
    """With `**`, folders that come with files in them, or go, are seen as well."""

    async def play() -> None:
        house = House(tmp_path, pattern="inbox/**/*.csv")
        house.inbox.mkdir()
        elsewhere = tmp_path / "elsewhere"
        (elsewhere / "y").mkdir(parents=True)
        (elsewhere / "y/b.csv").write_text("x")
        async with house.up():
            await watched(house)
            (house.inbox / "x").mkdir()
            (house.inbox / "x/a.csv").write_text("x")
            await house.bell.until(1)
            elsewhere.rename(house.inbox / "moved")
            await house.bell.until(2)
            (house.inbox / "moved").rename(elsewhere)
            await house.bell.until(3)
        assert house.names == [("created", "a.csv"), ("created", "b.csv"), ("deleted", "b.csv")]

    asyncio.run(play())


def test_links(tmp_path: Path) -> None:
    """A folder that is a link is the folder; the paths are as the rule has them. A link to a file is a file, one to a
    folder or to nothing is none."""

    async def play() -> None:
        house = House(tmp_path)
        real = tmp_path / "real"
        real.mkdir()
        house.inbox.symlink_to(real)
        async with house.up():
            await watched(house)
            (real / "a.csv").write_text("x")
            await house.bell.until(1)
            (tmp_path / "target").write_text("x")
            (real / "b.csv").symlink_to(tmp_path / "target")
            await house.bell.until(2)
            (real / "c.csv").symlink_to(tmp_path)
            (real / "d.csv").symlink_to(tmp_path / "nothing")
            (real / "e.csv").symlink_to("e.csv")
            await house.settled()
        assert house.said == [("created", str(house.inbox / "a.csv")), ("created", str(house.inbox / "b.csv"))]

    asyncio.run(play())


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (b"new\nline.csv", "new\nline.csv"),
        (b"bad\xff.csv", "bad\\xff.csv"),
        ("größe €.csv".encode(), "größe €.csv"),
        (b"-rf $(x) {{ y }}.csv", "-rf $(x) {{ y }}.csv"),
        (b"x" * 250 + b".csv", "x" * 250 + ".csv"),
    ],
)
@pytest.mark.skipif(sys.platform == "darwin", reason="file names are text there")
def test_odd_names(tmp_path: Path, name: bytes, path: str) -> None:
    """Any name is seen, live and after a restart, once; what is no text in it is shown with backslashes."""

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        file = os.path.join(os.fsencode(house.inbox), name)  # noqa: PTH118 - a path of bytes
        async with house.up():
            await watched(house)
            with open(file, "w") as writing:  # noqa: PTH123 - a path of bytes
                writing.write("x")
            await house.bell.until(1)
        async with house.up():
            await house.settled()
        os.unlink(file)  # noqa: PTH108 - a path of bytes
        async with house.up():
            await house.settled()
        assert house.names == [("created", path), ("deleted", path)]
        assert house.bell.rang[0].data["path"] == f"{house.inbox}/{path}"
        assert msgspec.json.encode(house.bell.rang[0].data)

    asyncio.run(play())


# Many of them, and what goes wrong.


@pytest.mark.parametrize("count", [1_000, pytest.param(9_990, marks=pytest.mark.slow)])
def test_thousands(tmp_path: Path, count: int) -> None:
    """Thousands of files that come while nobody is there, and as many that are there already: each is fired once."""

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        for number in range(count // 2):
            (house.inbox / f"{number}.csv").touch()
        async with house.up():
            await listed(house)
        for number in range(count // 2, count):
            (house.inbox / f"{number}.csv").touch()
        async with house.up():
            await house.bell.until(count // 2)
            await house.settled()
        assert len(house.said) == len(set(house.said)) == count // 2

    asyncio.run(play())


@pytest.mark.parametrize("restarts", [False, True])
def test_queue_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool) -> None:
    """Files that the queue has no room for wait on the disk, and are fired when there is room, the oldest first, each
    once; also if the daemon was restarted in between."""
    monkeypatch.setattr(files, "FULL_WAIT", SECOND // 10)
    monkeypatch.setattr(files, "RINGS_MAX", 4)
    names = [f"{number}.csv" for number in range(10)]

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        async with house.up():
            await listed(house)
        for age, name in enumerate(names):
            (house.inbox / name).touch()
            os.utime(house.inbox / name, (1_700_000_000 + age,) * 2)
        house.bell.room = 6
        refused = asyncio.Event()
        house.bell.before = lambda _: refused.set() if house.bell.room <= 0 else None
        async with house.up():
            await asyncio.wait_for(refused.wait(), WAIT_MAX)
            assert house.names == [("created", name) for name in names[:6]]
            if not restarts:
                house.bell.room = 100
                await house.bell.until(10)
        house.bell.room = 100
        async with house.up():
            await house.bell.until(10)
            await house.settled()
        assert house.names == [("created", name) for name in names]

    asyncio.run(play())


def test_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Of more files than are remembered, only what is seen at once fires, and that is said once."""
    monkeypatch.setattr(files, "LISTED_MAX", 5)

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        for number in range(5):
            (house.inbox / f"{number}.csv").touch()
        async with house.up():
            await watched(house)
            (house.inbox / "new.csv").write_text("x")
            await house.bell.until(1)
            await until(lambda: not house.bell.store.states(FILE))
            (house.inbox / "new.csv").write_text("xx")
            await house.bell.until(2)
            (house.inbox / "new.csv").unlink()
            await house.bell.until(3)
            (house.inbox / "newer.csv").write_text("x")
            await house.bell.until(4)
        (house.inbox / "meanwhile.csv").write_text("x")
        async with house.up():
            await house.settled()
        assert [(spark.data["change"], spark.data["name"]) for spark in house.bell.rang] == [
            ("created", "new.csv"),
            ("modified", "new.csv"),
            ("deleted", "new.csv"),
            ("created", "newer.csv"),
        ]

    asyncio.run(play())
    assert caplog.text.count("too many files to remember") == 1


def test_too_many_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of all rules together are bounded as well."""
    monkeypatch.setattr(files, "LISTED_ALL_MAX", 7)

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        for number in range(5):
            (house.inbox / f"{number}.csv").touch()
        pattern = FileChange(pattern=str(house.inbox / "*.csv"))
        async with house.up(rule("one", pattern), rule("two", pattern)):
            await watched(house)
            assert len(house.bell.store.states(FILE)) == 5

    asyncio.run(play())


def test_rules_change(tmp_path: Path) -> None:
    """A trigger that stays goes on; a new one begins with what is there; one that is gone is forgotten."""

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        (house.inbox / "old.csv").touch()
        (house.inbox / "old.txt").touch()
        texts = rule("texts", FileChange(pattern=str(house.inbox / "*.txt")))
        async with house.up():
            await watched(house)
            house.source.use([*house.rules, texts])
            await until(lambda: len(house.bell.store.states(LISTING)) == 2)
            (house.inbox / "new.csv").touch()
            (house.inbox / "new.txt").touch()
            await house.bell.until(2)
            assert house.names == [("created", "new.csv"), ("created", "new.txt")]
            house.source.use([texts])
            await until(lambda: len(house.bell.store.states(LISTING)) == 1)
            assert {key.subject.rpartition("/")[0] for key in house.bell.store.states(FILE)} == {"texts/0"}
            (house.inbox / "newer.csv").touch()
            (house.inbox / "newer.txt").touch()
            await house.bell.until(3)
        async with house.up():  # the other way round, over a restart
            await house.settled()
        assert {key.subject for key in house.bell.store.states(LISTING)} == {"import/0"}
        assert house.names[2:] == [("created", "newer.txt")]

    asyncio.run(play())


def test_cannot_be_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Where the system does not tell, because there are too many watches, files are looked at now and then, and that is
    said once."""

    class Limited:
        @staticmethod
        def watch(*_: object, **__: object) -> Iterator[object]:
            raise OSError("OS file watch limit reached")

    monkeypatch.setattr(watcher, "watchfiles", lambda: Limited)

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        async with house.up():
            await listed(house)
            for count in range(3):
                (house.inbox / f"{count}.csv").touch()
                await house.bell.until(count + 1)
        assert house.names == [("created", f"{count}.csv") for count in range(3)]

    asyncio.run(play())
    assert caplog.text.count("cannot be watched") == 1


def test_lost_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system did not tell of is found when everything is listed."""
    monkeypatch.setattr(files, "LIST_EVERY", SECOND // 2)
    monkeypatch.setattr(Files, "_told", lambda *_: None)

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        async with house.up():
            await watched(house)
            (house.inbox / "a.csv").touch()
            await house.bell.until(1)
        assert house.names == [("created", "a.csv")]

    asyncio.run(play())


def test_disk_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that does not answer is not an empty one: nothing is taken for deleted."""

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        (house.inbox / "a.csv").touch()
        async with house.up():
            await watched(house)

        def broken(*_: object) -> object:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "scandir", broken)
            async with house.up():
                await until(lambda: "cannot be listed now" in caplog.text)
        async with house.up():
            await house.settled()
        assert house.said == []

    asyncio.run(play())


def test_damaged_rows(tmp_path: Path) -> None:
    """Records that cannot be read are forgotten: what they were about starts fresh."""

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        (house.inbox / "a.csv").touch()
        async with house.up():
            await watched(house)
        for name in (FILE, LISTING):
            (key,) = house.bell.store.states(name)
            house.bell.store.transact([key], lambda snapshot, key=key: Draft(snapshot.at, {key: b"{\xff"}, None))  # type: ignore[misc]  # a default argument binds it
        async with house.up():
            await house.settled()
        assert house.said == []
        assert all(b"\xff" not in data for data in house.bell.store.states().values())

    asyncio.run(play())


def test_no_watchfiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package that watches, it is said what to install."""
    monkeypatch.setitem(sys.modules, "watchfiles", None)

    async def play() -> None:
        bell = Belfry()
        with pytest.raises(FlyballError, match="watchfiles") as error:
            Files(bell, bell.governor)
        assert "flyball-governor[rules]" in error.value.remedy

    asyncio.run(play())


def test_nothing_is_left(tmp_path: Path) -> None:
    """When it is cancelled, no thread of it is left."""
    import threading

    async def play() -> None:
        house = House(tmp_path)
        house.inbox.mkdir()
        async with house.up():
            await watched(house)
            assert any(thread.name == "flyball-files" for thread in threading.enumerate())
        assert not any(thread.name == "flyball-files" for thread in threading.enumerate())

    asyncio.run(play())


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed(tmp_path: Path, when: str) -> None:
    """Killed before or after any of the writes, each change fires once."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    rules = [rule("import", FileChange(pattern=str(inbox / "*.csv"), on=ALL))]

    def killed(_: Spark) -> None:
        raise Killed

    async def life(kill: bool, fires: int) -> int:
        store: Store = SqliteStore(tmp_path / "state.db")
        try:
            bell = Belfry(store, Real())  # type: ignore[arg-type]  # it is not moved here
            if kill:
                setattr(bell, when, killed)
            source = Files(bell, bell.governor)
            source.use(rules)
            task = asyncio.ensure_future(source.run())
            done = asyncio.ensure_future(until(lambda: len(bell.journal) >= fires and store.states(LISTING)))
            await asyncio.wait((task,) if kill else (done,), timeout=WAIT_MAX)
            for wait in (task, done):
                wait.cancel()
            await asyncio.gather(task, done, return_exceptions=True)
            return len(bell.journal)
        finally:
            store.close()

    assert asyncio.run(life(kill=False, fires=0)) == 0
    changes: list[Callable[[], object]] = [
        lambda: (inbox / "a.csv").write_text("x"),
        lambda: (inbox / "a.csv").write_text("xx"),
        (inbox / "a.csv").unlink,
    ]
    for count, change in enumerate(changes, 1):
        change()
        asyncio.run(life(kill=True, fires=count))
        assert asyncio.run(life(kill=False, fires=count)) == count
