"""Lived time: waits that flyball imposed do not count."""

from flyball.core.lived import UNBORN, Lived
from flyball.core.time import FOREVER


def test_nothing_lived_yet() -> None:
    """Before the first start or exit no time is lived."""
    assert UNBORN.at(5) == 0
    assert UNBORN.since == FOREVER


def test_only_running_counts() -> None:
    """From start to exit it lives; from exit to start it waits."""
    lived = UNBORN.started(10).exited(40, again_at=60)
    assert lived.total == 30
    assert lived.started(100).at(105) == 35
    assert lived.started(100).exited(110, 110) == Lived(40, 110)


def test_without_news_of_a_start_the_wait_is_taken_as_kept() -> None:
    """Until a start says otherwise, it is taken to live again when its wait was over, and not before."""
    lived = UNBORN.started(0).exited(10, again_at=40)
    assert [lived.at(now) for now in (10, 39, 40, 41, 70)] == [10, 10, 10, 11, 40]


def test_an_exit_before_the_wait_is_over_takes_nothing_back() -> None:
    """Lived time never falls, whatever the order of events."""
    assert UNBORN.started(0).exited(10, again_at=40).exited(20, again_at=50).total == 10
