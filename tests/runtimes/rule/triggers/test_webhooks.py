"""Signed requests that fire rules: judged without I/O, then over real sockets. What is refused is counted and leaves no
other trace; nothing is left running."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from flyball import http_server
from flyball.config.rules import Action, Command, Notify, Rule, Webhook
from flyball.core.event import Fired
from flyball.core.policy import Key
from flyball.core.time import MINUTE, SECOND, Instant
from flyball.errors import StoreFull
from flyball.governor import Governor
from flyball.http_server import CONNECTIONS_MAX, HEAD_MAX, HEAD_PART, is_loopback
from flyball.runtimes.bridge import submit
from flyball.runtimes.rule.firing import DATA_MAX, Fate, Spark
from flyball.runtimes.rule.triggers import webhooks
from flyball.runtimes.rule.triggers.webhooks import (
    ALREADY,
    BAD_ID,
    BAD_JSON,
    BAD_SIGNATURE,
    BAD_TIME,
    ID_MAX,
    NESTED_MAX,
    NO_SIGNATURE,
    SEEN,
    SEEN_FOR,
    TOO_NEW,
    TOO_OLD,
    Accepted,
    Refusal,
    Webhooks,
    judge,
)
from flyball.signing import SIGNATURES_MAX
from flyball.store import Draft, Store
from flyball.store.memory import MemoryStore
from flyball.store.sqlite import SqliteStore
from flyball.testing.clock import FakeClock
from tests.runtimes.rule.triggers import hooked
from tests.runtimes.rule.triggers.hooked import SECRET, Hooked

WAIT_MAX = 30.0
EXAMPLE = Path(__file__).parents[4] / "examples" / "send_webhook.py"
NOW = FakeClock().now()
NEW = b"the new and secret one"
SHORT = b"whsec_AAAAAAAAAA"
KEY = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
HOOK = Webhook(hook="price", secret=SECRET)
BODY = b'{"amount": 12}'


def signed(
    body: bytes = BODY, *, id_: str = "msg_1", at: str | int = NOW // SECOND, key: bytes = KEY, **others: str
) -> dict[str, str]:
    """The headers of a sender."""
    content = f"{id_}.{at}.".encode("latin-1") + body
    signature = "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
    named = {name.replace("_", "-"): value for name, value in others.items()}
    return {"webhook-id": id_, "webhook-timestamp": str(at), "webhook-signature": signature, **named}


def judged(headers: Mapping[str, str], body: bytes = BODY, *, hook: Webhook = HOOK, now: Instant = NOW) -> Any:
    return judge(hook, headers, body, now, lambda id_: id_ == "taken")


# Judging.


def test_as_the_specification_has_it() -> None:
    """The example that implementations of Standard Webhooks are tested with, signature and all."""
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    said = judged(headers, b'{"test": 2432232314}', now=1614265330 * SECOND)
    assert said == Accepted("msg_p5jXN8AQM9LWM0D4loKWxJek", {"test": 2432232314}, (1614265330 + 300) * SECOND)


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        (SECRET, KEY),
        (SECRET.removeprefix("whsec_"), KEY),
        ("whsec_" + base64.b64encode(b"s" * 25).decode().rstrip("="), b"s" * 25),
        ("a plain text with spaces", b"a plain text with spaces"),
        ("whsec_not base64 at all!", b"whsec_not base64 at all!"),
        ("0123456789abcdef", b"0123456789abcdef"),
        ("schlüssel mit umlauten", "schlüssel mit umlauten".encode()),
    ],
)
def test_secrets(secret: str, key: bytes) -> None:
    """As the specification has them, without their prefix, without padding; or any text, as it is."""
    assert isinstance(judged(signed(key=key), hook=replace(HOOK, secret=secret)), Accepted)
    assert judged(signed(key=key + b"x"), hook=replace(HOOK, secret=secret)) == BAD_SIGNATURE


def test_a_short_secret_is_not_made_shorter() -> None:
    """What would be few bytes as base64 is taken as text alone."""
    hook = replace(HOOK, secret=SHORT.decode())
    assert judged(signed(key=base64.b64decode("AAAAAAAAAA==")), hook=hook) == BAD_SIGNATURE
    assert isinstance(judged(signed(key=SHORT), hook=hook), Accepted)


GOOD = signed()["webhook-signature"]
WRONG = "v1," + base64.b64encode(bytes(32)).decode()


@pytest.mark.parametrize(
    ("signatures", "is_taken"),
    [
        (GOOD, True),
        (f"{WRONG} {GOOD}", True),
        (f"v1a,abc v2,{GOOD[3:]} {GOOD}", True),
        (f"  {GOOD}  ", True),
        (f"nonsense , v1, {GOOD}", True),
        (" ".join([WRONG] * (SIGNATURES_MAX - 1) + [GOOD]), True),
        (" ".join([WRONG] * SIGNATURES_MAX + [GOOD]), False),
        (WRONG, False),
        ("v1,", False),
        ("v1", False),
        (GOOD[:-2], False),
        (GOOD[3:], False),
        (f"v2,{GOOD[3:]}", False),
        (f"v1a,{GOOD[3:]}", False),
        (GOOD.replace("v1", "V1"), False),
        (f"{GOOD},{GOOD}", False),
        ("v1,\xff\xfe", False),
    ],
)
def test_signatures(signatures: str, is_taken: bool) -> None:
    """Several may be given, of any version; one of ours has to be right, and of many only the first are looked at."""
    said = judged({**signed(), "webhook-signature": signatures})
    assert isinstance(said, Accepted) if is_taken else said == BAD_SIGNATURE


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("how", ["missing", "empty"])
def test_headers_that_are_missing(name: str, how: str) -> None:
    """Not signed."""
    headers = signed()
    headers[name] = ""
    if how == "missing":
        del headers[name]
    assert judged(headers) == NO_SIGNATURE


@pytest.mark.parametrize("part", ["webhook-id", "webhook-timestamp", "webhook-signature", "body"])
def test_any_character_matters(part: str) -> None:
    """Whatever is changed, wherever: the signature does not fit."""
    headers = signed()
    text = BODY.decode() if part == "body" else headers[part]
    for place in range(3 if part == "webhook-signature" else 0, len(text) - (part == "webhook-signature")):
        changed = text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]
        body = changed.encode() if part == "body" else BODY
        said = judged(headers if part == "body" else {**headers, part: changed}, body)
        assert said == BAD_SIGNATURE, changed


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, None), (-300, None), (300, None), (-301, TOO_OLD), (301, TOO_NEW), (-(10**9), TOO_OLD), (10**9, TOO_NEW)],
)
def test_time(seconds: int, said: Refusal | None) -> None:
    """Five minutes back and ahead are allowed, and how long it can be sent again is counted from its own time."""
    found = judged(signed(at=NOW // SECOND + seconds))
    if said is None:
        assert found.valid_until == NOW + seconds * SECOND + 5 * MINUTE
    else:
        assert found == said


@pytest.mark.parametrize("at", ["now", "1.5", "-5", "+5", " 5", "1e9", "٣", "9" * 13, "0x5", "²"])
def test_times_that_are_none(at: str) -> None:
    """Signed, and still no time."""
    with contextlib.suppress(UnicodeEncodeError):
        assert judged(signed(at=at)) == BAD_TIME


@pytest.mark.parametrize(
    ("id_", "said"),
    [
        ("x" * ID_MAX, None),
        ("evt:1/2=3+4_5-6", None),
        ("x" * (ID_MAX + 1), BAD_ID),
        ("a.1", BAD_ID),
        ("a\tb", BAD_ID),
        ("ä", BAD_ID),
        ("taken", ALREADY),
    ],
)
def test_ids(id_: str, said: Refusal | None) -> None:
    """Any short word without a full stop, once."""
    found = judged(signed(id_=id_))
    assert isinstance(found, Accepted) if said is None else found == said


def test_a_full_stop_could_make_another_request_of_it() -> None:
    """Why ids have none: the same signature fits another id, time and body."""
    at = NOW // SECOND
    original = signed(f"{at}.5".encode(), id_="msg_1", at=at)
    moved = {**original, "webhook-id": f"msg_1.{at}", "webhook-timestamp": str(at)}
    assert isinstance(judged(original, f"{at}.5".encode()), Accepted)
    assert judged(moved, b"5") == BAD_ID


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{}", {}),
        (b"null", None),
        (b' [1, "\xc3\xa4"] ', [1, "ä"]),
        (b"[" * NESTED_MAX + b"]" * NESTED_MAX, ...),
        (b'{"a":' * NESTED_MAX + b"1" + b"}" * NESTED_MAX, ...),
        (b"[" * (NESTED_MAX + 1) + b"]" * (NESTED_MAX + 1), BAD_JSON),
        (b'{"a":' * (NESTED_MAX + 1) + b"1" + b"}" * (NESTED_MAX + 1), BAD_JSON),
        (b"[" * 100_000, BAD_JSON),
        (b"[" * 100_000 + b"]" * 100_000, BAD_JSON),
        (b"", BAD_JSON),
        (b"{", BAD_JSON),
        (b"a=1", BAD_JSON),
        (b"NaN", BAD_JSON),
        (b"1e999", BAD_JSON),
        (b"{} {}", BAD_JSON),
        (b'"\xff"', BAD_JSON),
        (b"9" * 10_000, BAD_JSON),
    ],
)
def test_bodies(body: bytes, said: Any) -> None:
    """JSON of any shape, not too deep; whatever else it is, it is refused, and nothing breaks."""
    found = judged(signed(body), body)
    if isinstance(said, Refusal):
        assert found == said
    elif said is not ...:
        assert found.body == said
    else:
        assert isinstance(found, Accepted)


def test_who_has_not_signed_learns_nothing() -> None:
    """With a bad id, an old time, a known id and a broken body, all that is said is that it is not signed."""
    headers = {**signed(b"{", id_="taken", at=5), "webhook-signature": WRONG}
    assert judged(headers, b"{") == BAD_SIGNATURE


@pytest.mark.parametrize(
    ("listen", "is_so"),
    [
        ("127.0.0.1:1", True),
        ("127.8.0.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("192.0.2.7:1", False),
        ("example.org:1", False),
    ],
)
def test_addresses_of_this_machine(listen: str, is_so: bool) -> None:
    """Only those are safe without encryption."""
    assert is_loopback(listen) is is_so


# Over real sockets.


@dataclass
class Desk:
    """Who is rung, instead of the engine: writes what it is told to, as the engine does."""

    governor: Governor
    fate: Fate = Fate.QUEUED
    error: Exception | None = None
    rung: list[Spark] = field(default_factory=list)
    gate: asyncio.Event | None = None

    async def ring(self, spark: Spark) -> Fate:
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.rung.append(spark)
        if self.fate is not Fate.FULL or not spark.comes_again:
            await submit(self.governor, Fired(unit=spark.rule, trigger=spark.trigger), spark.rows)
        return self.fate


def rule(name: str = "watch", *triggers: Webhook) -> Rule:
    action = Action(id="say", deed=Notify(text="hello"))
    return Rule(name=name, triggers=triggers or (HOOK,), actions=(action,))


@dataclass
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def word(self) -> str:
        said = json.loads(self.body)
        return str(said.get("status") or said.get("error"))


class House:
    """Hooks that are open at a free port, and a sender."""

    def __init__(self, store: Store | None = None, *rules: Rule) -> None:
        self.clock = FakeClock()
        self.governor = Governor([], store or MemoryStore(), self.clock)
        self.desk = Desk(self.governor)
        self.hooks = Webhooks(self.desk, self.governor, "127.0.0.1:0")
        self.hooks.use(rules or (rule(),))

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["House"]:
        running = asyncio.ensure_future(self.hooks.run())
        try:
            await until(lambda: self.hooks.port > 0 or running.done())
            yield self
        finally:
            running.cancel()
            await asyncio.wait([running])
        assert self.hooks.port == 0

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.hooks.port)

    async def send(self, raw: bytes) -> Reply:
        """Send these bytes, and read one answer."""
        reader, writer = await self.connect()
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(raw)
                await writer.drain()
            return await answer(reader)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def post(
        self, body: bytes = BODY, headers: Mapping[str, str] | None = None, *, path: str = "/hooks/price"
    ) -> Reply:
        return await self.send(request(body, signed(body) if headers is None else headers, path=path))

    def counts(self) -> dict[str, dict[str, int]]:
        return {hook: dict(count) for hook, count in self.hooks.counts.items()}

    def remembered(self) -> list[Key]:
        return list(self.governor.store.states(SEEN))


def request(
    body: bytes, headers: Mapping[str, str], *, path: str = "/hooks/price", method: str = "POST", version: str = "1.1"
) -> bytes:
    lines = [f"{method} {path} HTTP/{version}", "host: here", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


async def answer(reader: asyncio.StreamReader) -> Reply:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    length = headers.get("content-length")
    body = await reader.read() if length is None else await reader.readexactly(int(length))
    return Reply(int(head[0].split()[1]), headers, body)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_MAX):
        while not holds():
            await asyncio.sleep(0.005)


Case = Callable[[House], Coroutine[Any, Any, None]]


def within(case: Case, store: Store | None = None, *rules: Rule) -> House:
    """Run a case with hooks that are open; when it is over, nothing is."""

    async def bounded() -> House:
        async with asyncio.timeout(WAIT_MAX):
            house = House(store, *rules)
            async with house.open():
                await case(house)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return house

    return asyncio.run(bounded())


def nothing_happened(house: House) -> None:
    """What was refused has left no trace but a count."""
    assert house.desk.rung == []
    assert house.governor.store.read(()).seq == 0
    assert house.governor.store.states() == {}


@pytest.mark.parametrize("fate", [Fate.QUEUED, Fate.JOINED, Fate.SKIPPED])
def test_taken(fate: Fate) -> None:
    """It is on disk with its id when that is said; rules get body and headers, but no secrets."""

    async def case(house: House) -> None:
        house.desk.fate = fate
        secrets = {"authorization": "Bearer x", "cookie": "a=b", "x-hub-signature": "s", "x-api-key": "k"}
        reply = await house.post(BODY, {**signed(x_kind="sale"), **secrets})
        assert (reply.status, json.loads(reply.body)) == (202, {"id": "msg_1", "status": fate})
        assert reply.headers["content-type"] == "application/json"
        assert "GMT" in reply.headers["date"]
        assert "server" not in reply.headers

    house = within(case)
    (spark,) = house.desk.rung
    assert (spark.rule, spark.trigger, spark.joins, spark.comes_again) == ("watch", "webhook price", False, True)
    assert {name: spark.data[name] for name in ("kind", "hook", "id", "body")} == {
        "kind": "webhook",
        "hook": "price",
        "id": "msg_1",
        "body": {"amount": 12},
    }
    assert set(spark.data["headers"]) == {"host", "content-length", "webhook-id", "webhook-timestamp", "x-kind"}
    assert house.remembered() == list(spark.rows)
    assert len(house.remembered()) == 1
    assert house.counts() == {}


@pytest.mark.parametrize(
    ("raw", "status", "hook", "code"),
    [
        (request(BODY, {}), 401, "price", "no_signature"),
        (request(BODY, signed(key=b"x" * 24)), 401, "price", "bad_signature"),
        (request(BODY, signed(at=5)), 400, "price", "too_old"),
        (request(b"{", signed(b"{")), 400, "price", "bad_json"),
        (request(b"", signed(b"")), 400, "price", "bad_json"),
        (request(BODY, signed(id_="a.b")), 400, "price", "bad_id"),
        (request(BODY, signed(), path="/hooks/other"), 404, "", "unknown_hook"),
        (request(BODY, signed(), path="/hooks/price%0Afoo"), 404, "", "unknown_hook"),
        (request(b"", signed(b""), method="GET"), 405, "price", "not_post"),
        (request(BODY, signed(), method="PUT"), 405, "price", "not_post"),
        (request(b"x" * (DATA_MAX + 1), signed(b"x" * (DATA_MAX + 1))), 413, "price", "too_long"),
        (request(b"x" * 10_000_000, signed(b"x" * 10_000_000)), 413, "price", "too_long"),
        (request(b"x" * 10_000_000, {"connection": "close"}), 413, "price", "too_long"),
        (
            request(b"", {"content-length": "10000000000"}).replace(b"content-length: 0\r\n", b""),
            413,
            "price",
            "too_long",
        ),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03garbage\r\n\r\n", 400, "", "not_http"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nhost : b\r\n\r\n", 400, "", "not_http"),
        (b"GET /" + b"x" * HEAD_MAX, 400, "", "not_http"),
        (request(b"", {"x": "y" * (HEAD_MAX + HEAD_PART)}), 400, "", "not_http"),
        (request(b"", {"content-length": "1"}), 400, "", "not_http"),
        (request(b"", {"content-length": "9" * 30}), 400, "", "not_http"),
        (b"POST /hooks/price HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400, "", "not_http"),
    ],
)
def test_refused(raw: bytes, status: int, hook: str, code: str, caplog: pytest.LogCaptureFixture) -> None:
    """With a status that says why; it is counted, logged once, and nothing else happens."""

    async def case(house: House) -> None:
        assert (await house.send(raw)).status == status
        assert house.counts() == {hook: {code: 1}}
        assert (await house.post()).status == 202  # others are not affected

    with caplog.at_level(logging.WARNING):
        house = within(case)
    assert len(house.desk.rung) == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"webhook {hook or 'of no rule'}: refused, {code} (1 so far)"
    ]


@pytest.mark.parametrize(
    "path", ["/", "/hooks", "/hooks/", "/hooks/price/", "/hooks/price/x", "/Hooks/price", "//hooks/price"]
)
def test_paths_that_lead_nowhere(path: str) -> None:
    """There is nothing but the hooks."""

    async def case(house: House) -> None:
        reply = await house.post(path=path)
        assert reply.status == 404

    nothing_happened(within(case))


@pytest.mark.parametrize(
    ("fate", "status", "code"),
    [
        (Fate.FULL, 429, "queue_full"),
        (Fate.TOO_LONG, 413, "too_long"),
        (Fate.UNKNOWN, 404, "unknown_hook"),
        (Fate.TOO_DEEP, 500, "fault"),
    ],
)
def test_not_taken_after_all(fate: Fate, status: int, code: str) -> None:
    """What the engine did not take may come again with the same id, and is taken then."""

    async def case(house: House) -> None:
        house.desk.fate = fate
        reply = await house.post()
        assert (reply.status, reply.word) == (status, code)
        assert reply.headers.get("retry-after") == ("30" if fate is Fate.FULL else None)
        assert house.counts() == {"price": {code: 1}}
        house.desk.fate = Fate.QUEUED
        assert (await house.post()).status == 202

    within(case)


def test_a_full_queue_remembers_nothing() -> None:
    """Else the next attempt would be taken for the second of one that was taken."""

    async def case(house: House) -> None:
        house.desk.fate = Fate.FULL
        await house.post()
        assert house.remembered() == []

    within(case)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(StoreFull("no room: s3cr3t"), 503, "store_trouble"), (ValueError("no: s3cr3t"), 500, "fault")],
)
def test_trouble_of_ours(error: Exception, status: int, code: str, caplog: pytest.LogCaptureFixture) -> None:
    """The sender is told to come again; the log says where, and nothing of what was sent."""

    async def case(house: House) -> None:
        house.desk.error = error
        reply = await house.post(b'"s3cr3t"')
        assert (reply.status, reply.word) == (status, code)
        house.desk.error = None
        assert (await house.post(b'"s3cr3t"')).status == 202

    with caplog.at_level(logging.DEBUG):
        within(case)
    assert "s3cr3t" not in caplog.text
    assert SECRET not in caplog.text
    assert ("in ring" in caplog.text) is (code == "fault")


def test_the_same_id_twice() -> None:
    """It fires once. The sender is told that all is well, or it would come again and again."""

    async def case(house: House) -> None:
        assert (await house.post()).status == 202
        reply = await house.post()
        assert (reply.status, json.loads(reply.body)) == (200, {"id": "msg_1", "status": "already"})
        house.clock.move(20 * MINUTE)  # signed anew, because the first answer was lost
        reply = await house.post(BODY, signed(at=house.clock.now() // SECOND))
        assert reply.word == "already"
        assert house.counts() == {"price": {"already": 2}}

    assert len(within(case).desk.rung) == 1


def test_the_same_id_at_once() -> None:
    """While the first is being written, the second is told to come again: what becomes of it is not known yet."""

    async def case(house: House) -> None:
        house.desk.gate = asyncio.Event()
        first = asyncio.ensure_future(house.post())
        await until(lambda: bool(house.hooks._seen) and bool(house.hooks._seen["watch", "price"].being_taken))
        second = await house.post()
        assert (second.status, second.word, second.headers["retry-after"]) == (409, "being_taken", "1")
        house.desk.gate.set()
        assert (await first).status == 202
        assert (await house.post()).word == "already"

    assert len(within(case).desk.rung) == 1


def test_after_a_restart_on_the_same_store(tmp_path: Path) -> None:
    """The first daemon is gone without a word: the next one knows what it took."""

    async def case(house: House) -> None:
        assert (await house.post()).status == 202

    async def after(house: House) -> None:
        assert (await house.post()).word == "already"
        assert (await house.post(BODY, signed(id_="msg_2"))).status == 202

    killed = SqliteStore(tmp_path / "flyball.db")
    within(case, killed)
    store = SqliteStore(tmp_path / "flyball.db")
    try:
        house = within(after, store)
        assert [spark.data["id"] for spark in house.desk.rung] == ["msg_2"]
        assert len(house.remembered()) == 2
    finally:
        store.close()
        killed.close()


def test_old_ids_are_forgotten() -> None:
    """A day after they were valid, with the next request or at the next start. The store does not grow for ever."""
    store = MemoryStore()

    async def case(house: House) -> None:
        for number in range(15):
            await house.post(BODY, signed(id_=f"old_{number}"))
        house.clock.move(SEEN_FOR + 5 * MINUTE)
        assert len(house.remembered()) == 15
        at = house.clock.move(SECOND) // SECOND
        await house.post(BODY, signed(id_="new", at=at))
        assert len(house.remembered()) == 6  # ten of the old ones at a time
        assert (await house.post(BODY, signed(id_="new", at=at))).word == "already"

    house = within(case, store)

    async def later(again: House) -> None:
        again.clock.set(house.clock.now())
        await again.hooks._recall()
        assert len(again.remembered()) == 1

    within(later, store)


@pytest.mark.parametrize("data", [b'"?"', b"\xff", b"", b"{}"])
def test_a_record_that_cannot_be_read(data: bytes) -> None:
    """It is forgotten at the next start, and the hooks open all the same."""
    store = MemoryStore()
    damaged = Key(SEEN, "unit", "watch/price/abc")
    store.transact([damaged], lambda _: Draft(NOW, {damaged: data}, None))

    async def case(house: House) -> None:
        assert house.remembered() == []

    within(case, store)


def test_more_ids_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """While they are valid none is forgotten, so others have to wait; then the oldest make room."""
    monkeypatch.setattr(webhooks, "SEEN_MAX", 3)

    async def case(house: House) -> None:
        for number in range(3):
            assert (await house.post(BODY, signed(id_=f"m{number}"))).status == 202
        reply = await house.post(BODY, signed(id_="m3"))
        assert (reply.status, reply.word, reply.headers["retry-after"]) == (429, "too_often", "30")
        assert (await house.post(BODY, signed(id_="m0"))).word == "already"
        at = house.clock.move(6 * MINUTE) // SECOND
        assert (await house.post(BODY, signed(id_="m3", at=at))).status == 202
        assert len(house.remembered()) == 1

    within(case)


def test_two_hundred_at_once() -> None:
    """All are taken, each once, and each is told so."""

    async def case(house: House) -> None:
        sent = (house.post(BODY, signed(id_=f"m{number}")) for number in range(200))
        replies = await asyncio.gather(*sent)
        assert [reply.status for reply in replies] == [202] * 200

    house = within(case)
    assert sorted(spark.data["id"] for spark in house.desk.rung) == sorted(f"m{number}" for number in range(200))
    assert len(house.remembered()) == 200


def test_refusals_are_logged_at_powers_of_ten(caplog: pytest.LogCaptureFixture) -> None:
    """A flood of them is a few lines."""

    async def case(house: House) -> None:
        for _ in range(105):
            await house.hooks.take("POST", "price", {}, BODY)

    with caplog.at_level(logging.WARNING):
        house = within(case)
    assert house.counts() == {"price": {"no_signature": 105}}
    assert [record.getMessage().split("(")[1] for record in caplog.records] == [
        "1 so far)",
        "10 so far)",
        "100 so far)",
    ]
    nothing_happened(house)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_versions_of_http(version: str) -> None:
    """The old one closes after its answer."""

    async def case(house: House) -> None:
        reader, writer = await house.connect()
        writer.write(request(BODY, signed(), version=version))
        assert (await answer(reader)).status == 202
        if version == "1.0":
            assert await reader.read() == b""
        else:
            writer.write(request(BODY, signed()))
            assert (await answer(reader)).word == "already"
        writer.close()
        await writer.wait_closed()

    within(case)


def chunked(*parts: bytes) -> bytes:
    return b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ((BODY,), 202),
        ((BODY[:3], BODY[3:]), 202),
        ((), 400),
        ((b"x" * 65_536,) * 5, 413),
        ((b"x" * 65_536,) * 160, 413),
    ],
)
def test_bodies_in_chunks(parts: tuple[bytes, ...], status: int) -> None:
    """Of unknown length, and bounded all the same."""

    async def case(house: House) -> None:
        headers = {**signed(b"".join(parts)), "transfer-encoding": "chunked"}
        head = request(b"", headers).replace(b"content-length: 0\r\n", b"")
        assert (await house.send(head + chunked(*parts))).status == status

    within(case)


def test_a_body_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many bytes nobody listens any more."""
    monkeypatch.setattr(webhooks, "DISCARDED_MAX", 1024 * 1024)

    async def case(house: House) -> None:
        reader, writer = await house.connect()
        writer.write(b"POST /hooks/price HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        assert house.counts() == {"price": {"too_long": 1}}

    nothing_happened(within(case))


def test_who_asks_first_is_told_at_once() -> None:
    """A sender that waits for leave to send ten megabytes does not get it, and sends nothing."""

    async def case(house: House) -> None:
        head = request(b"", {"expect": "100-continue"}).replace(b"length: 0", b"length: 10000000")
        reply = await house.send(head)
        assert (reply.status, reply.word) == (413, "too_long")

    nothing_happened(within(case))


def test_who_asks_first_may_go_on() -> None:
    """With a body that is not too long it gets leave."""

    async def case(house: House) -> None:
        reader, writer = await house.connect()
        writer.write(request(BODY, signed(expect="100-continue"))[: -len(BODY)])
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(BODY)
        assert (await answer(reader)).status == 202
        writer.close()
        await writer.wait_closed()

    within(case)


@pytest.mark.parametrize("what", ["nothing", "headers", "body", "next request"])
def test_slow_senders(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not keep a connection: after its time it is cut off, wherever it was."""
    monkeypatch.setattr(http_server, "REQUEST_WITHIN", 0.3)

    async def case(house: House) -> None:
        reader, writer = await house.connect()
        raw = request(b"x" * 5000, {"x": "y" * 5000})
        if what == "next request":
            writer.write(request(BODY, signed()))
            assert (await answer(reader)).status == 202
        if what == "body":
            writer.write(raw[:6000])
            raw = raw[6000:]
        reading = asyncio.ensure_future(reader.read())
        with contextlib.suppress(ConnectionError):
            for byte in raw if what != "nothing" else b"":
                if reading.done():
                    break
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.wait([reading], timeout=0.02)
        try:
            assert (await reading).startswith(b"HTTP/1.1 408 ")
        except ConnectionError:
            assert what != "nothing"  # a byte was on its way when it was closed, and so the answer is lost
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        assert house.counts() == {"": {"too_slow": 1}}

    within(case)


def test_a_sender_that_goes_away() -> None:
    """In the middle of its body: nothing happens, and nothing waits for it."""

    async def case(house: House) -> None:
        _, writer = await house.connect()
        writer.write(request(BODY, signed())[:-3])
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        server = house.hooks._server
        assert server is not None
        await until(lambda: not server._state.connections and not server._state.tasks)
        assert house.counts() == {}

    nothing_happened(within(case))


def test_too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one above the limit is told so and closed; when others leave there is room again."""
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 3)
    assert CONNECTIONS_MAX > 200

    async def case(house: House) -> None:
        held = [await house.connect() for _ in range(3)]
        server = house.hooks._server
        assert server is not None
        await until(lambda: len(server._state.connections) == 3)
        reader, writer = await house.connect()
        assert (await answer(reader)).status == 503
        writer.close()
        assert house.counts() == {"": {"too_many_connections": 1}}
        for _, other in held:
            other.close()
        await until(lambda: not server._state.connections)
        assert (await house.post()).status == 202

    within(case)


def test_two_requests_in_one_go() -> None:
    """Each is answered, in order; and half a request behind them waits for its other half."""

    async def case(house: House) -> None:
        reader, writer = await house.connect()
        third = request(BODY, signed(id_="m3"))
        writer.write(request(BODY, signed(id_="m1")) + request(BODY, signed(id_="m2")) + third[:-5])
        assert [(await answer(reader)).status for _ in range(2)] == [202, 202]
        writer.write(third[-5:])
        assert (await answer(reader)).status == 202
        writer.close()
        await writer.wait_closed()

    assert [spark.data["id"] for spark in within(case).desk.rung] == ["m1", "m2", "m3"]


def test_half_a_request_behind_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is bounded as well, though its first half came with the one before."""
    monkeypatch.setattr(http_server, "REQUEST_WITHIN", 0.3)

    async def case(house: House) -> None:
        reader, writer = await house.connect()
        writer.write(request(BODY, signed(id_="m1")) + request(BODY, signed(id_="m2"))[:-5])
        assert (await answer(reader)).status == 202
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()
        await writer.wait_closed()

    assert len(within(case).desk.rung) == 1


def test_one_hook_of_two_rules() -> None:
    """Both are fired; where one has no room, the sender comes again, and only that one is fired."""
    rules = (rule("one"), rule("two"))

    async def case(house: House) -> None:
        taking = house.desk.ring

        async def ring(spark: Spark) -> Fate:
            house.desk.fate = Fate.FULL if spark.rule == "two" and len(house.desk.rung) < 2 else Fate.QUEUED
            return await taking(spark)

        house.desk.ring = ring  # type: ignore[method-assign]  # a queue that is full once
        assert (await house.post()).status == 429
        assert (await house.post()).status == 202
        assert (await house.post()).word == "already"

    assert [spark.rule for spark in within(case, None, *rules).desk.rung] == ["one", "two", "two"]


def test_a_secret_that_is_being_changed() -> None:
    """The old and the new one are both good while the rule has both; a third is not."""
    both = rule("watch", HOOK, replace(HOOK, secret=NEW.decode()))

    async def case(house: House) -> None:
        assert (await house.post(BODY, signed(id_="m1"))).status == 202
        assert (await house.post(BODY, signed(id_="m2", key=NEW))).status == 202
        assert (await house.post(BODY, signed(id_="m2"))).word == "already"
        assert (await house.post(BODY, signed(id_="m3", key=NEW + b"x"))).status == 401

    within(case, None, both)


def test_other_rules() -> None:
    """The address is open while there is a hook, and closed when the last one goes; counts of those that stay stay."""

    async def case(house: House) -> None:
        await house.post(BODY, {})
        await house.post(path="/hooks/nowhere")
        port = house.hooks.port
        other = rule("watch", replace(HOOK, hook="other"))
        house.hooks.use([other, rule("more")])
        assert house.hooks.port == port
        assert (await house.post(path="/hooks/other")).status == 202
        assert house.counts() == {"price": {"no_signature": 1}, "": {"unknown_hook": 1}}
        house.hooks.use([other])
        assert (await house.post()).status == 404
        assert house.counts() == {"": {"unknown_hook": 2}}
        house.hooks.use([replace(other, triggers=(Command(),))])
        await until(lambda: house.hooks.port == 0)
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await asyncio.open_connection("127.0.0.1", port)
        house.hooks.use([other])
        await until(lambda: house.hooks.port > 0)
        assert (await house.post(BODY, signed(id_="m2"), path="/hooks/other")).status == 202

    within(case)


def test_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once, with what to do; the rest goes on, and when the port is free the hooks open."""
    monkeypatch.setattr(webhooks, "OPEN_AGAIN", 0.02)

    async def case() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            house = House()
            house.hooks._listen = f"127.0.0.1:{taken.getsockname()[1]}"
            running = asyncio.ensure_future(house.hooks.run())
            await until(lambda: bool(house.hooks.trouble))
            assert house.hooks.trouble == f"{house.hooks._listen} cannot be opened: something else listens there"
            await asyncio.sleep(0.1)
        await until(lambda: house.hooks.port > 0)
        assert house.hooks.trouble == ""
        assert (await house.post()).status == 202
        running.cancel()
        await asyncio.wait([running])

    with caplog.at_level(logging.ERROR):
        asyncio.run(case())
    (record,) = caplog.records
    assert "rule.listen" in record.getMessage()


@pytest.mark.parametrize("listen", ["192.0.2.1:80", "127.0.0.1:99999", "no such host.invalid:80", "127.0.0.1:x"])
def test_addresses_that_cannot_be_opened(listen: str) -> None:
    """A clear error, whatever is wrong with it."""

    refused: list[str] = []

    async def case() -> None:
        server = http_server.HttpServer(listen, http_server.routed([]), refused.append, setting="rule.listen")
        with pytest.raises(http_server.CannotListen, match=r"cannot be opened: ."):
            await server.open()
        assert server.port == 0
        await server.close()

    asyncio.run(case())


def test_the_end_waits_for_answers_within_bounds(caplog: pytest.LogCaptureFixture) -> None:
    """A request that is being written down is answered; half a one, and idle connections, are closed at once."""

    async def case() -> None:
        house = House()
        house.desk.gate = asyncio.Event()
        async with house.open():
            idle, half = await house.connect(), await house.connect()
            half[1].write(request(BODY, signed(id_="half"))[:-1])
            posted = asyncio.ensure_future(house.post())
            await until(lambda: bool(house.hooks._seen) and bool(house.hooks._seen["watch", "price"].being_taken))
            asyncio.get_running_loop().call_later(0.05, house.desk.gate.set)
        assert (await posted).status == 202
        for reader, writer in (idle, half):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    asyncio.run(case())
    assert caplog.records == []


def test_the_end_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be written down in time is not answered: its sender comes again."""
    monkeypatch.setattr(http_server, "END_WITHIN", 0.05)

    async def case() -> None:
        house = House()
        house.desk.gate = asyncio.Event()
        async with house.open():
            posted = asyncio.ensure_future(house.post())
            await until(lambda: bool(house.hooks._seen) and bool(house.hooks._seen["watch", "price"].being_taken))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await posted
        nothing_happened(house)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(case())


def test_signals_stay_with_the_daemon() -> None:
    """An open server has not taken over what SIGINT and SIGTERM do."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    async def case(house: House) -> None:
        await house.post()
        # asyncio's own runner takes SIGINT; nobody else may.
        assert signal.getsignal(signal.SIGTERM) == handlers[1]
        assert "uvicorn" not in repr(signal.getsignal(signal.SIGINT))

    within(case)


def test_the_whole_path(tmp_path: Path) -> None:
    """The example sends, a real engine takes it and runs the rule, once; also if it comes again to the next daemon."""
    done: list[Any] = []

    async def send(port: int, body: str, id_: str, secret: str = SECRET) -> tuple[int, str]:
        url = f"http://127.0.0.1:{port}/hooks/price"
        env = {**os.environ, "HOOK_SECRET": secret}
        command = [sys.executable, str(EXAMPLE), url, body, "--id", id_]
        process = await asyncio.create_subprocess_exec(*command, env=env, stdout=asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode().strip()

    async def daemon(work: Callable[[Hooked], Coroutine[Any, Any, None]]) -> None:
        with contextlib.closing(SqliteStore(tmp_path / "flyball.db")) as store:
            up = Hooked(store, tmp_path, when="trigger.body.amount > 10")
            await up.begin()
            try:
                async with asyncio.timeout(WAIT_MAX):
                    await work(up)
            finally:
                await up.engine.end()
            done.extend(up.done)

    async def first(up: Hooked) -> None:
        port = up.hooks.port
        assert await send(port, '{"amount": 12}', "a") == (0, '202 {"id":"a","status":"queued"}')
        assert await send(port, '{"amount": 12}', "a") == (0, '200 {"id":"a","status":"already"}')
        assert await send(port, '{"amount": 3}', "b") == (0, '202 {"id":"b","status":"skipped"}')
        assert await send(port, '{"amount": 12}', "c", "another secret") == (1, '401 {"error":"bad_signature"}')
        await until(lambda: len(up.done) == 1)

    async def second(up: Hooked) -> None:
        port = up.hooks.port
        assert await send(port, '{"amount": 12}', "a") == (0, '200 {"id":"a","status":"already"}')
        assert await send(port, '{"amount": 99}', "d") == (0, '202 {"id":"d","status":"queued"}')
        await until(lambda: len(up.done) == 1)

    asyncio.run(daemon(first))
    asyncio.run(daemon(second))
    assert done == [{"amount": 12}, {"amount": 99}]


@pytest.mark.slow
def test_kill_9(tmp_path: Path) -> None:
    """A daemon is killed again and again while many send, and each sends until it is told that it was taken. In the end
    each id has fired once: none was lost, none came twice."""
    senders, each, kills = 8, 25, 3
    taken: list[str] = []
    port = 0

    async def daemon() -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", hooked.__name__, str(tmp_path)]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        nonlocal port
        port = int(await process.stdout.readline())
        return process

    async def send(id_: str) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request(BODY, signed(id_=id_, at=int(time.time()))))
            return (await answer(reader)).status
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def sender(number: int) -> None:
        for turn in range(each):
            id_, status = f"m{number}-{turn}", 0
            while status not in (200, 202):
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    status = await send(id_)
                await asyncio.sleep(0.01)
            taken.append(id_)

    async def case() -> None:
        sending: list[asyncio.Task[None]] = []
        for kill in range(kills + 1):
            process = await daemon()
            try:
                sending = sending or [asyncio.ensure_future(sender(number)) for number in range(senders)]
                so_many = (kill + 1) * senders * each // (kills + 1)
                while len(taken) < so_many:
                    await asyncio.sleep(0.005)
            finally:
                process.kill()
                await process.wait()
        await asyncio.gather(*sending)

    asyncio.run(asyncio.wait_for(case(), 4 * WAIT_MAX))
    with contextlib.closing(SqliteStore(tmp_path / "flyball.db")) as store:
        fired = store.entries(events=("fired",), limit=100_000)
        assert len(fired) == len(taken) == len(set(taken)) == senders * each
        assert len(store.states(SEEN)) == senders * each
        assert store.integrity() == []


@pytest.mark.parametrize(
    ("args", "secret", "says"),
    [
        (["http://127.0.0.1:1/hooks/x", "{"], SECRET, "not JSON"),
        (["http://127.0.0.1:1/hooks/x"], "", "HOOK_SECRET is not set"),
        (["file:///etc/passwd"], SECRET, "is not an address"),
        (["http://127.0.0.1:1/hooks/x"], "whsec_?", "not base64"),
        (["http://127.0.0.1:1/hooks/x"], SECRET, "not sent:"),
    ],
)
def test_the_example_says_what_is_wrong(args: list[str], secret: str, says: str) -> None:
    """In one line, without a traceback, and without the secret."""
    env = {**os.environ, "HOOK_SECRET": secret}
    command = [sys.executable, str(EXAMPLE), *args]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=WAIT_MAX, check=False)
    assert done.returncode != 0
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stderr
