"""What was seen before: against a plain map of everything."""

from hypothesis import given
from hypothesis import strategies as st

from flyball.core.codec import decode_state, encode
from flyball.core.policy import State
from flyball.core.seen import FRESH_MAX, GENERATION_MAX, NOTHING_SEEN, Seen


class Holder(State, frozen=True):
    """A state that has seen something."""

    seen: Seen = NOTHING_SEEN


@given(st.lists(st.integers(0, 300), max_size=400))
def test_remembers_the_latest(names: list[int]) -> None:
    """Below the bound nothing is forgotten, and the number is that of the last time."""
    seen, truth = NOTHING_SEEN, {}
    for step, number in enumerate(names):
        seen = seen.with_({str(number): step})
        truth[str(number)] = step
    assert all(seen.get(name) == step for name, step in truth.items())
    assert seen.get("never") is None


def test_bounded_and_forgets_the_oldest() -> None:
    """However many there were, so many are kept; the newest are among them, the oldest are not."""
    seen = NOTHING_SEEN
    for step in range(10_000):
        seen = seen.with_({f"a{step}": step, f"b{step}": step})
        assert len(seen.fresh) <= FRESH_MAX
        assert len(seen.recent) <= GENERATION_MAX
        assert len(seen.older) <= GENERATION_MAX + FRESH_MAX + 2
        assert seen.get(f"a{step}") == step
        if step > GENERATION_MAX:
            assert seen.get(f"b{step - GENERATION_MAX // 2}") == step - GENERATION_MAX // 2
    assert seen.get("a0") is None


def test_an_old_thing_seen_again_is_new() -> None:
    """The latest number counts, in whichever generation the older one lies."""
    seen = NOTHING_SEEN.with_({"again": 1})
    for step in range(600):
        seen = seen.with_({str(step): step})
    assert seen.get("again") == 1
    assert seen.with_({"again": 700}).get("again") == 700


def test_is_a_value() -> None:
    """Adding leaves what was there as it was, and it survives being written down."""
    before = NOTHING_SEEN.with_({"a": 1})
    after = before.with_({"b": 2})
    assert before.get("b") is None
    assert NOTHING_SEEN.get("a") is None
    assert decode_state(Holder, encode(Holder(after))).seen == after
