"""The start of a daemon fires rules once, and a reload fires none."""

import asyncio
from collections.abc import Iterator

import pytest

from flyball.config.rules import Command, Startup
from flyball.errors import StoreCorrupt
from flyball.runtimes.rule.firing import Spark
from flyball.runtimes.rule.triggers.startup import Startups
from tests.runtimes.rule.triggers.belfry import WAIT_MAX, Belfry, rule, running

TWO = [rule("a", Startup()), rule("other", Command()), rule("b", Command(), Startup())]


def test_once_per_start() -> None:
    """Each rule with such a trigger is fired once at each start, and says when that was."""

    async def play() -> None:
        bell = Belfry()
        for _ in range(2):
            async with running(Startups(bell, bell.governor), TWO):
                await bell.until(len(bell.rang) + 2)
        assert [spark.rule for spark in bell.rang] == ["a", "b", "a", "b"]
        spark = bell.rang[0]
        assert (spark.trigger, spark.joins) == ("startup", True)
        assert spark.data == {"kind": "startup", "at": "2023-11-14T22:13:20+00:00"}

    asyncio.run(play())


def test_not_by_a_reload() -> None:
    """A rule that comes later is not fired; one that goes before its turn neither."""

    async def play() -> None:
        bell = Belfry()
        source = Startups(bell, bell.governor)
        bell.after = lambda _: source.use([rule("a", Startup()), rule("new", Startup())])
        async with running(source, TWO):
            await bell.until(1)
            for _ in range(10):
                await asyncio.sleep(0)
        assert [spark.rule for spark in bell.rang] == ["a"]

    asyncio.run(play())


def test_begun_again() -> None:
    """A source that failed halfway and is run again fires what is left, and nothing twice."""

    async def play() -> None:
        bell = Belfry()
        troubles: Iterator[int] = iter([0])

        def broken(spark: Spark) -> None:
            if spark.rule == "b" and next(troubles, None) is not None:
                raise StoreCorrupt("the file is damaged")

        bell.before = broken
        source = Startups(bell, bell.governor)
        source.use(TWO)
        with pytest.raises(StoreCorrupt):
            await asyncio.wait_for(source.run(), WAIT_MAX)
        async with running(source, TWO):
            await bell.until(2)
        assert [spark.rule for spark in bell.rang] == ["a", "b"]

    asyncio.run(play())
