"""All stores are alike: whatever is done to them, in whatever order, they come to the same."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.store import Draft, Line, Snapshot, Store
from flyball.store.memory import MemoryStore
from flyball.store.sqlite import SqliteStore
from flyball.testing.conformance import ALL_MAX, key

SUBJECTS = st.sampled_from("abc")
CHANGES = st.dictionaries(SUBJECTS, st.none() | st.integers(0, 9), max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("write"), CHANGES, st.booleans(), st.integers(-1, 3)),
    st.tuples(st.just("trim"), st.integers(0, 12)),
    st.tuples(st.just("read"), st.lists(SUBJECTS, max_size=3)),
)


def do(store: Store, step: tuple[Any, ...]) -> object:
    """Do it; what came of it, whatever it is."""
    if step[0] == "trim":
        return store.trim(step[1])
    if step[0] == "read":
        return store.read([key(subject) for subject in step[1]])
    _, changes, says, after = step

    def draft(seen: Snapshot) -> Draft:
        records = {key(subject): None if value is None else b"%d" % value for subject, value in changes.items()}
        return Draft(seen.at + after, records, Line("u", "e", "v", b"{}") if says else None)

    try:
        return store.transact([key(subject) for subject in changes], draft, sync=False)
    except ValueError as error:
        return str(error)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, max_size=40))
def test_alike(steps: list[tuple[Any, ...]]) -> None:
    """A file and memory answer every step alike, and end with the same states, journal and base."""
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "store") as durable:
        memory = MemoryStore()
        for step in steps:
            assert do(durable, step) == do(memory, step)
        assert durable.states() == memory.states()
        assert durable.entries(limit=ALL_MAX) == memory.entries(limit=ALL_MAX)
        assert durable.last_entries(limit=3) == memory.last_entries(limit=3)
        assert durable.base() == memory.base()
        assert list(durable.integrity()) == []
