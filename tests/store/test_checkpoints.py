"""Checkpoints: bounded, whole or not used, and the last good one is found whatever became of the others."""

import logging
from collections.abc import Callable

import msgspec
import pytest

from flyball.core.policy import Key
from flyball.store import Draft, Store, checkpoints
from flyball.store.checkpoints import (
    BYTES_MAX,
    KEPT_MAX,
    CheckpointChanged,
    CheckpointDamaged,
    CheckpointError,
    CheckpointNotFound,
    CheckpointRefused,
)
from flyball.store.memory import MemoryStore

UNIT = "work"


def put(store: Store, rows: checkpoints.Rows) -> None:
    store.transact([], lambda snapshot: Draft(snapshot.at, rows, None))


def keep(store: Store, data: bytes, stage: str = "stage", version: str = "") -> None:
    put(store, checkpoints.rows(store, UNIT, stage, data, 1_000, version=version))


def filled(count: int, version: str = "") -> MemoryStore:
    store = MemoryStore()
    for number in range(1, count + 1):
        keep(store, b'{"n":%d}' % number, f"stage-{number}", version)
    return store


def loaded(store: Store, id: str | None = None) -> bytes | None:  # noqa: A002 - as the function has it
    found = checkpoints.load(store, UNIT, id)
    return None if found is None else found.data


def test_none_yet() -> None:
    """Work that has kept nothing begins at its beginning."""
    store = MemoryStore()
    assert checkpoints.read_index(store, UNIT) == []
    assert checkpoints.load(store, UNIT) is None


@pytest.mark.parametrize(
    "data", [b"{}", b'{"a": [1, "\xc3\xa4"]}', b"", b"\xff\x00\xfe", b"plain\x00text", b"x" * BYTES_MAX]
)
def test_comes_back_as_it_was(data: bytes) -> None:
    """Any bytes, up to the limit."""
    store = MemoryStore()
    keep(store, data, "first", "2")
    found = checkpoints.load(store, UNIT)
    assert found is not None
    assert (found.id, found.stage, found.at, found.version, found.data) == ("1", "first", 1_000, "2", data)
    [kept] = checkpoints.read_index(store, UNIT)
    assert (kept.id, kept.stage, kept.at, kept.bytes) == ("1", "first", 1_000, len(data))


def test_too_large() -> None:
    """What is too large is refused, and nothing is to be written."""
    with pytest.raises(CheckpointRefused, match=f"{BYTES_MAX + 1} bytes") as raised:
        checkpoints.rows(MemoryStore(), UNIT, "stage", b"x" * (BYTES_MAX + 1), 0)
    assert raised.value.remedy


def test_people_can_read_them() -> None:
    """What is text is stored as text, whatever tool looks into the store."""
    store = filled(1)
    assert msgspec.json.decode(store.states("checkpoint")[checkpoints.data_key(UNIT, 1)])["text"] == '{"n":1}'


def test_so_many_are_kept() -> None:
    """The newest few; the others are gone, not only forgotten; numbers go on."""
    store = filled(KEPT_MAX + 3)
    assert [kept.number for kept in checkpoints.read_index(store, UNIT)] == [4, 5, 6, 7, 8]
    assert len(store.states("checkpoint")) == KEPT_MAX
    assert loaded(store) == b'{"n":8}'


def test_named() -> None:
    """Each that is kept can be named; what is not there is said, with those that are."""
    store = filled(7)
    assert [loaded(store, name) for name in ("3", "7", "005", " 4 ")] == [
        b'{"n":3}',
        b'{"n":7}',
        b'{"n":5}',
        b'{"n":4}',
    ]
    for name in ("1", "8", "latest", "-3", "0"):
        with pytest.raises(CheckpointNotFound) as raised:
            checkpoints.load(store, UNIT, name)
        assert "3, 4, 5, 6, 7" in raised.value.remedy
    with pytest.raises(CheckpointNotFound) as raised:
        checkpoints.load(MemoryStore(), UNIT, "1")
    assert "none yet" in raised.value.remedy


def _flip(data: bytes) -> bytes | None:
    return data.replace(b'{\\"n\\"', b'{\\"m\\"')


def _other_stage(data: bytes) -> bytes | None:
    return data.replace(b"stage-", b"Stage-")


def _cut(data: bytes) -> bytes | None:
    return data[: len(data) // 2]


def _text(data: bytes) -> bytes | None:
    return b"[1]"


def _gone(data: bytes) -> bytes | None:
    return None


DAMAGES: list[Callable[[bytes], bytes | None]] = [_flip, _other_stage, _cut, _text, _gone]


def damage(store: MemoryStore, how: Callable[[bytes], bytes | None], *numbers: int) -> None:
    states = store.states("checkpoint")
    keys = [checkpoints.data_key(UNIT, number) for number in numbers]
    changed = {key: how(states[key]) for key in keys}
    assert all(changed[key] != states[key] for key in keys)
    put(store, changed)


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_newest(how: Callable[[bytes], bytes | None], caplog: pytest.LogCaptureFixture) -> None:
    """The last good one is used instead, and that is said."""
    store = filled(3)
    damage(store, how, 3)
    with caplog.at_level(logging.WARNING):
        assert loaded(store) == b'{"n":2}'
    assert "checkpoint 3 of work is damaged" in caplog.text
    damage(store, how, 2)
    assert loaded(store) == b'{"n":1}'


@pytest.mark.parametrize("how", DAMAGES)
def test_all_damaged(how: Callable[[bytes], bytes | None]) -> None:
    """No good one is an error, and not a beginning from nothing."""
    store = filled(3)
    damage(store, how, 1, 2, 3)
    with pytest.raises(CheckpointDamaged, match="all checkpoints of work"):
        checkpoints.load(store, UNIT)


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_and_named(how: Callable[[bytes], bytes | None]) -> None:
    """Whoever names one wants that one: no other takes its place."""
    store = filled(3)
    damage(store, how, 2)
    with pytest.raises(CheckpointDamaged, match="checkpoint 2 of work is damaged"):
        checkpoints.load(store, UNIT, "2")


def test_another_ones_checkpoint() -> None:
    """A checkpoint that was copied from another session, or another place, is not taken for this one's."""
    store = filled(2)
    states = store.states("checkpoint")
    put(store, {checkpoints.data_key(UNIT, 2): states[checkpoints.data_key(UNIT, 1)]})
    assert loaded(store) == b'{"n":1}'
    put(store, {checkpoints.data_key("other", 1): states[checkpoints.data_key(UNIT, 1)]})
    put(store, {checkpoints.index_key("other"): store.states("checkpoints")[checkpoints.index_key(UNIT)]})
    with pytest.raises(CheckpointDamaged):
        checkpoints.load(store, "other", "1")


def test_damaged_index(caplog: pytest.LogCaptureFixture) -> None:
    """The index is a convenience: without it the checkpoints of this session, and no other, are found one by one."""
    store = filled(7)
    put(store, checkpoints.rows(store, "work2", "other", b"{}", 5))
    before = checkpoints.read_index(store, UNIT)
    put(store, {checkpoints.index_key(UNIT): b"{broken"})
    with caplog.at_level(logging.WARNING):
        assert checkpoints.read_index(store, UNIT) == before
    assert loaded(store) == b'{"n":7}'
    assert "cannot be read" in caplog.text


def test_version() -> None:
    """What another version of the work kept is not handed to this one; who does not ask is not told."""
    store = filled(2, version="1")
    assert checkpoints.load(store, UNIT, version="1") is not None
    assert checkpoints.load(store, UNIT) is not None
    for name in (None, "1"):
        with pytest.raises(CheckpointChanged, match=r"version '1'.*version '2'") as raised:
            checkpoints.load(store, UNIT, name, version="2")
        assert raised.value.remedy


def test_new_work() -> None:
    """When new work of that name begins, nothing is left of the old one's, and numbers begin anew."""
    store = filled(7)
    put(store, checkpoints.cleared(checkpoints.read_index(store, UNIT), UNIT))
    assert not store.states("checkpoint")
    assert not store.states("checkpoints")
    keep(store, b"{}")
    assert [kept.number for kept in checkpoints.read_index(store, UNIT)] == [1]


def test_choice() -> None:
    """What a person chose is known until it is used; one that cannot be read chooses nothing."""
    store = filled(2)
    assert checkpoints.chosen(store, UNIT) is None
    put(store, checkpoints.choose(UNIT, "1"))
    assert checkpoints.chosen(store, UNIT) == "1"
    put(store, {checkpoints.chosen_key(UNIT): b"[]"})
    assert checkpoints.chosen(store, UNIT) is None
    put(store, checkpoints.choose(UNIT, None))
    assert Key("resume_from", "unit", UNIT) not in store.states()


def test_values() -> None:
    """What is in one, for those who keep JSON; anything else is said to be none."""
    store = filled(1)
    found = checkpoints.load(store, UNIT)
    assert found is not None
    assert found.values == {"n": 1}
    keep(store, b"[1]")
    found = checkpoints.load(store, UNIT)
    assert found is not None
    with pytest.raises(CheckpointError, match="not a JSON object"):
        _ = found.values
