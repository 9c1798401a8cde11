"""The queue: who is next, what joins what, and how long that takes among thousands."""

import time
from typing import Any

import pytest

from flyball.runtimes.rule.firing import Firing
from flyball.runtimes.rule.queue import Queue, encode

MANY = 10_000


def firing(number: int, **more: Any) -> Firing:
    return Firing(**{"id": f"{number:05}", "rule": "rule", "trigger": "file", "at": number, "tree": "", **more})


def queue_of(*firings: Firing) -> Queue:
    queue = Queue(MANY)
    for one in firings:
        queue.take_room(one.rule, 1)
        queue.put(one, 1)
    return queue


def taken(queue: Queue) -> list[str]:
    """All that can be taken, in that order."""
    found = []
    while (one := queue.take("rule")) is not None:
        found.append(one.id)
    return found


def test_order() -> None:
    """What people asked for comes first, then the oldest; what is left behind comes again in its place."""
    queue = queue_of(*(firing(number, by_person=number in (2, 4)) for number in range(5)))
    assert taken(queue) == ["00002", "00004", "00000", "00001", "00003"]
    queue.leave(firing(3))
    queue.leave(firing(0))
    assert taken(queue) == ["00000", "00003"]
    for number in range(5):
        queue.drop(firing(number))
    assert (len(queue), queue.number("rule"), list(queue.rules())) == (0, 0, [])


def test_load_is_in_order() -> None:
    """A queue from the store is in the order in which it came."""
    queue = Queue(MANY)
    rows = {one.key: encode(one) for one in (firing(3), firing(1), firing(2))}
    assert queue.load(rows) == []
    assert taken(queue) == ["00001", "00002", "00003"]


def test_joins() -> None:
    """Only what waits, was not begun, and is about the same."""
    one, other = firing(1, data={"path": "/a"}), firing(2, data={"path": "/b"})
    queue = queue_of(one, other, firing(3, trigger="every 1s", data={}), firing(4, data={"path": "/c"}, attempt=1))
    assert queue.waits("rule", "file", "/a") == one
    assert queue.waits("rule", "file", "/b") == other
    assert queue.waits("rule", "file", "/c") is None
    assert queue.waits("rule", "file", None) is None
    assert queue.waits("another", "file", "/a") is None
    assert queue.waits("rule", "every 1s", None) == firing(3, trigger="every 1s", data={})
    assert queue.claim(one)
    assert not queue.claim(one)
    assert queue.waits("rule", "file", "/a") is None
    queue.leave(one)
    assert queue.waits("rule", "file", "/a") == one
    queue.drop(one)
    assert queue.waits("rule", "file", "/a") is None
    assert not queue.claim(one)


@pytest.mark.parametrize("by_person", [False, True])
def test_thousands(by_person: bool) -> None:
    """To take one of thousands, and to find the twin of one, takes no longer than of a few: all of them together less
    than looking through all for each would take."""
    queue = queue_of(*(firing(n, data={"path": f"/{n}"}, by_person=by_person) for n in range(MANY)))
    began = time.process_time()
    for number in range(MANY):
        assert queue.waits("rule", "file", f"/{number}") is not None
        one = queue.take("rule")
        assert one is not None
        queue.drop(one)
    assert time.process_time() - began < 2
