"""Action links: signed, each once, until a time, and never an order of an admin."""

import base64
import contextlib
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flyball.control import links as module
from flyball.control.alerts.channel import Action, Message
from flyball.control.commands import COMMANDS
from flyball.control.context import Right
from flyball.control.links import FILE, KEY_BYTES, LASTS, TOKEN_MAX, USED, LinkRefused, Links, key_of
from flyball.core.policy import Key
from flyball.core.time import SECOND
from flyball.errors import FlyballError, StoreFull
from flyball.governor import Governor
from flyball.store import Draft, Store
from flyball.store.memory import MemoryStore
from flyball.store.sqlite import SqliteStore
from flyball.testing.clock import FakeClock

KEY = bytes(range(KEY_BYTES))
BASE = "https://flyball.example.org"
ARGS = {"fingerprint": "7f3a9c"}


class Desk:
    """Links, and a clock that can be moved."""

    def __init__(self, store: Store | None = None, base: str = BASE) -> None:
        self.clock = FakeClock()
        self.store = store or MemoryStore()
        self.links = Links(Governor([], self.store, self.clock), KEY, base)

    def token(self, verb: str = "reset", args: dict[str, Any] | None = None) -> str:
        url = self.links.url(verb, ARGS if args is None else args, problem="p1", channel="phone", label="Reset")
        return url.removeprefix(f"{BASE}/act/")

    @property
    def used(self) -> int:
        return len(self.store.states(USED))


def refusal(do: Any, *args: Any) -> str:
    with pytest.raises(LinkRefused) as caught:
        do(*args)
    assert caught.value.remedy
    return caught.value.code


def test_says_what_it_orders() -> None:
    """A link carries its order, its problem and its channel; to read it writes nothing, however often."""
    desk = Desk()
    token = desk.token()
    for _ in range(3):
        deed = desk.links.read(token)
        assert (deed.verb, deed.args, deed.problem, deed.channel) == ("reset", ARGS, "p1", "phone")
    assert desk.used == 0
    assert desk.store.read(()).seq == 0


def test_once() -> None:
    """It is used once; then neither used nor shown as if it could be. Another link to the same is another."""
    desk = Desk()
    token, other = desk.token(), desk.token()
    assert desk.links.use(token).verb == "reset"
    assert refusal(desk.links.use, token) == "used"
    assert refusal(desk.links.read, token) == "used"
    assert desk.links.use(other).verb == "reset"


def test_once_after_a_restart(tmp_path: Path) -> None:
    """That it was used is known to whoever opens the same store."""
    with contextlib.closing(SqliteStore(tmp_path / "store")) as store:
        desk = Desk(store)
        token = desk.token()
        desk.links.use(token)
    with contextlib.closing(SqliteStore(tmp_path / "store")) as store:
        assert refusal(Desk(store).links.use, token) == "used"


def test_once_of_many(tmp_path: Path) -> None:
    """Of many who press at the same instant one is taken."""
    with contextlib.closing(SqliteStore(tmp_path / "store")) as store:
        desk = Desk(store)
        token, start, taken = desk.token(), threading.Barrier(8), list[str]()

        def press() -> None:
            start.wait()
            with contextlib.suppress(LinkRefused):
                taken.append(desk.links.use(token).verb)

        threads = [threading.Thread(target=press) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert taken == ["reset"]


def test_until() -> None:
    """It is good for a day, to the microsecond."""
    desk = Desk()
    token = desk.token()
    desk.clock.move(LASTS - 1)
    desk.links.read(token)
    desk.clock.move(1)
    assert refusal(desk.links.read, token) == "expired"
    assert refusal(desk.links.use, token) == "expired"
    assert desk.used == 0


def test_tampering() -> None:
    """A link that was changed anywhere is none, whatever was changed."""
    desk = Desk()
    token = desk.token()
    payload, _, signature = token.partition(".")
    other = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=="))
    other[3] = "kill"
    forged = base64.urlsafe_b64encode(msgspec.json.encode(other)).rstrip(b"=").decode()
    for wrong in (
        "",
        ".",
        payload,
        f"{payload}.",
        f".{signature}",
        f"{forged}.{signature}",
        f"{payload}.{signature[:-2]}",
        f"{payload}=.{signature}",
        f"{token}.{signature}",
        token.upper(),
        "ä" * 40,
        "\udcff.\udcff",
        "a" * (TOKEN_MAX + 1),
    ):
        assert refusal(desk.links.read, wrong) == "bad"
        assert refusal(desk.links.use, wrong) == "bad"
    for place in range(len(token)):
        letter = "A" if token[place] != "A" else "B"
        changed = token[:place] + letter + token[place + 1 :]
        # The last letter of base64 has bits that mean nothing: such a link is the same one.
        with contextlib.suppress(LinkRefused):
            assert desk.links.read(changed) == desk.links.read(token)
            assert place == len(token) - 1
    assert desk.used == 0


def test_another_key() -> None:
    """Without the key nobody makes one; with a new key all that are out are worth nothing."""
    desk = Desk()
    stranger = Links(Governor([], MemoryStore(), desk.clock), b"x" * KEY_BYTES, BASE)
    token = stranger.url("reset", ARGS, problem="", channel="phone", label="").rpartition("/")[2]
    assert refusal(desk.links.use, token) == "bad"


def test_only_orders_of_operators() -> None:
    """No link gives an order of an admin, or merely looks; and one to a verb that there is none is none."""
    desk = Desk()
    linked = {name for name in COMMANDS if desk.token(name, {})}
    assert linked == {name for name, command in COMMANDS.items() if command.right is Right.OPERATE}
    assert not linked & {"raise", "settle", "reload", "down", "status"}
    assert not desk.token("nonsense")


def test_no_link() -> None:
    """Without an address there are no links; nor for an order that is too long for one."""
    desk = Desk(base="")
    assert desk.links.url("reset", ARGS, problem="", channel="phone", label="") == ""
    assert Desk().token("pause", {"units": ["x" * TOKEN_MAX]}) == ""


def test_on_a_message() -> None:
    """A message gets links for what a link may order; the rest stays as it is."""
    actions = (
        Action(label="Reset", verb="reset", args=ARGS),
        Action(label="Raise", verb="raise", args={"unit": "a", "more": "1.00"}),
    )
    desk = Desk()
    linked = desk.links.on(Message(title="t", problem="p1", actions=actions), "mail")
    assert linked.actions[1] == actions[1]
    deed = desk.links.read(linked.actions[0].url.removeprefix(f"{BASE}/act/"))
    assert (deed.channel, deed.problem, deed.label, deed.args) == ("mail", "p1", "Reset", ARGS)


def test_forgotten() -> None:
    """Used links are remembered as long as they would be good, and no longer."""
    desk = Desk()
    for _ in range(5):
        desk.links.use(desk.token())
    assert desk.used == 5
    desk.clock.move(LASTS + SECOND)
    desk.links.use(desk.token())
    assert desk.used == 1


def test_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When more were used than can be remembered, none is until some are too old: what is forgotten could be used
    twice."""
    monkeypatch.setattr(module, "USED_MAX", 2)
    desk = Desk()
    late = [desk.token() for _ in range(3)]
    for token in late[:2]:
        desk.links.use(token)
    assert refusal(desk.links.use, late[2]) == "full"
    desk.clock.move(LASTS + SECOND)
    desk.links.use(desk.token())


def test_record_that_cannot_be_read() -> None:
    """A record that somebody changed still counts as used, and is forgotten with the old ones."""
    desk = Desk()
    token = desk.token()
    desk.links.use(token)
    (key,) = desk.store.states(USED)
    _write(desk, key, b"nonsense")
    assert refusal(desk.links.use, token) == "used"


def _write(desk: Desk, key: Key, data: bytes) -> None:
    desk.store.transact([key], lambda snapshot: Draft(snapshot.at, {key: data}, None))


def test_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be written down as used is not used: then nothing may be done."""
    desk = Desk()
    token = desk.token()

    def full(*_: object, **__: object) -> None:
        raise StoreFull("no room")

    with monkeypatch.context() as without:
        without.setattr(desk.store, "transact", full)
        with pytest.raises(StoreFull):
            desk.links.use(token)
    assert desk.links.use(token).verb == "reset"


# The key.


def test_key(tmp_path: Path) -> None:
    """It is made once, by chance, and only its owner can read it."""
    key = key_of(tmp_path)
    assert len(key) == KEY_BYTES
    assert key_of(tmp_path) == key
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / "other").mkdir()
    assert key_of(tmp_path / "other") != key
    assert key.hex() not in repr(Links(Governor([], MemoryStore(), FakeClock()), key, BASE))


def test_key_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key there are no links; that is an error that can be told, and no half of a key stays."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FlyballError, match="cannot be written: No space left"):
        key_of(tmp_path)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606])
def test_key_of_others(tmp_path: Path, mode: int) -> None:
    """A key that others could know is refused, and the error says what to do, not what it is."""
    key = key_of(tmp_path)
    (tmp_path / FILE).chmod(mode)
    with pytest.raises(FlyballError) as caught:
        key_of(tmp_path)
    assert caught.value.remedy
    assert key.hex() not in str(caught.value)


def test_key_that_is_none(tmp_path: Path) -> None:
    """A file that is no key, and a link to somewhere else, are refused."""
    path = tmp_path / FILE
    path.write_bytes(b"short")
    path.chmod(0o600)
    with pytest.raises(FlyballError, match="no key"):
        key_of(tmp_path)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(KEY)
    with pytest.raises(FlyballError, match="no plain file"):
        key_of(tmp_path)
