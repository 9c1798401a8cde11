"""Webhooks: signed requests that fire rules. Whether one is taken is judged here without any I/O; what is refused is
counted, and leaves no other trace.

Senders sign as the Standard Webhooks specification says, in the headers `webhook-id`, `webhook-timestamp` and
`webhook-signature`. The id of what was taken is written with its firing, so a request that comes twice fires once, also
when the daemon was killed in between. A sender that comes again with it is told that all is well: else it would come
again and again with what was taken long ago.

Names of hooks are no secrets. A wrong one is answered as such, so that people find their mistake.
"""

import asyncio
import contextlib
import hashlib
import itertools
import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from flyball.config.rules import Rule, Webhook
from flyball.core.policy import Key
from flyball.core.time import DAY, SECOND, Instant, Span
from flyball.errors import StoreError
from flyball.governor import Governor
from flyball.runtimes.bridge import write
from flyball.runtimes.rule.firing import DATA_MAX, Bell, Fate, Spark
from flyball.signing import is_signed

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from flyball.http_server import HttpServer

log = logging.getLogger(__name__)

ID_MAX: Final = 256
"""Characters of a request's id. Senders take a UUID or the like."""
NESTED_MAX: Final = 64
"""Lists and objects within each other. Whatever goes through a body goes down as deep."""
DISCARDED_MAX: Final = 16 * 1024 * 1024
"""Bytes beyond what is taken that are read and thrown away, so that the sender sees the answer instead of an error."""
SEEN: Final = "webhook"
"""The name of the record of an id that was taken, where policies have theirs."""
SEEN_MAX: Final = 10_000
"""Ids that are remembered of one hook of one rule: sixteen a second, for as long as one is valid by default."""
SEEN_FOR: Final[Span] = 1 * DAY
"""How much longer than it is valid an id is remembered, if there is room: senders sign anew and come again for hours
when an answer was lost."""
FORGOTTEN_MAX: Final = 10
"""Old ids that are forgotten with each new one: more than one, so that they get fewer."""
FULL_WAIT: Final = 30
"""Seconds after which a sender may come again where there was no room."""
OPEN_AGAIN: Final = 30.0
"""Seconds until an address is tried again that could not be opened."""

UNKNOWN: Final = ""
"""The hook whose counts are of requests to none that there is."""
_KEPT_OUT: Final = ("authorization", "cookie", "signature", "secret", "token", "api-key")
"""A header with one of these in its name may be a secret: rules do not get it."""
_TAKEN: Final = (Fate.QUEUED, Fate.JOINED, Fate.SKIPPED)


# Judging.


@dataclass(frozen=True, slots=True)
class Refusal:
    """It is not taken."""

    status: int
    code: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """It is signed, new, and says this."""

    id: str
    body: Any
    valid_until: Instant
    """Somebody who caught it could send it again until then."""


NO_SIGNATURE: Final = Refusal(401, "no_signature")
BAD_SIGNATURE: Final = Refusal(401, "bad_signature")
BAD_ID: Final = Refusal(400, "bad_id")
BAD_TIME: Final = Refusal(400, "bad_time")
TOO_OLD: Final = Refusal(400, "too_old")
TOO_NEW: Final = Refusal(400, "too_new")
BAD_JSON: Final = Refusal(400, "bad_json")
ALREADY: Final = Refusal(200, "already")
UNKNOWN_HOOK: Final = Refusal(404, "unknown_hook")
NOT_POST: Final = Refusal(405, "not_post")
BEING_TAKEN: Final = Refusal(409, "being_taken")
TOO_LONG: Final = Refusal(413, "too_long")
QUEUE_FULL: Final = Refusal(429, "queue_full")
TOO_OFTEN: Final = Refusal(429, "too_often")
FAULT: Final = Refusal(500, "fault")
STORE_TROUBLE: Final = Refusal(503, "store_trouble")

_COMES_AGAIN: Final = {BEING_TAKEN: 1, QUEUE_FULL: FULL_WAIT, TOO_OFTEN: FULL_WAIT, STORE_TROUBLE: FULL_WAIT}
"""After how many seconds a sender may come again with what was refused so."""
_DROPPED: Final = {Fate.FULL: QUEUE_FULL, Fate.TOO_LONG: TOO_LONG, Fate.UNKNOWN: UNKNOWN_HOOK}


def judge(
    hook: Webhook, headers: Mapping[str, str], body: bytes, now: Instant, seen: Callable[[str], bool]
) -> Accepted | Refusal:
    """Whether a request is taken. Who has not signed it learns nothing but that. Names of headers are in lower case."""
    id_, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    signatures = headers.get("webhook-signature", "")
    if not (id_ and at and signatures):
        return NO_SIGNATURE
    if not is_signed(hook.secret, id_, at, body, signatures):
        return BAD_SIGNATURE
    # With a full stop in it, another id, time and body could have the same signature.
    if len(id_) > ID_MAX or "." in id_ or not id_.isascii() or not id_.isprintable():
        return BAD_ID
    if not at.isascii() or not at.isdigit() or len(at) > 12:
        return BAD_TIME
    sent = int(at) * SECOND
    if sent < now - hook.tolerance:
        return TOO_OLD
    if sent > now + hook.tolerance:
        return TOO_NEW
    if seen(id_):
        return ALREADY
    try:
        said = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return BAD_JSON
    if _is_nested(said):
        return BAD_JSON
    return Accepted(id_, said, sent + hook.tolerance)


def _is_nested(value: Any) -> bool:
    """Whether it goes deeper than is taken."""
    level = [value]
    for _ in range(NESTED_MAX + 1):
        level = [one for one in level if isinstance(one, list | dict)]
        if not level:
            return False
        level = [inner for outer in level for inner in (outer if isinstance(outer, list) else outer.values())]
    return True


# What was taken.


class _Seen:
    """The ids that were taken of one hook of one rule, those that came first at the front."""

    def __init__(self) -> None:
        self._valid_until: dict[Key, Instant] = {}
        self.being_taken: set[Key] = set()

    def __contains__(self, key: Key) -> bool:
        return key in self._valid_until

    def add(self, key: Key, valid_until: Instant) -> None:
        """It was taken, and that is on disk."""
        self._valid_until[key] = valid_until

    def forget(self, gone: Iterable[Key]) -> None:
        """These are not on disk any more."""
        for key in gone:
            self._valid_until.pop(key, None)

    def old(self, now: Instant) -> list[Key]:
        """A few that need not be remembered any more: they have had their time, or others need the room."""
        is_full = len(self._valid_until) + len(self.being_taken) >= SEEN_MAX
        before = now - (0 if is_full else SEEN_FOR)
        first = itertools.islice(self._valid_until.items(), FORGOTTEN_MAX)
        return [key for key, valid_until in first if valid_until < before]

    def has_room(self, now: Instant) -> bool:
        """Whether one more can be remembered. What cannot be remembered could be sent again by others."""
        return len(self._valid_until) + len(self.being_taken) < SEEN_MAX or bool(self.old(now))


def _key(rule: str, hook: str, id_: str) -> Key:
    return Key(SEEN, "unit", f"{rule}/{hook}/{hashlib.blake2b(id_.encode(), digest_size=16).hexdigest()}")


def _instant(data: bytes) -> Instant:
    """Until when what was taken is valid; of a record that cannot be read, never."""
    try:
        return msgspec.json.decode(data, type=int)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return 0


# The source.


class Webhooks:
    """Fires rules by what comes in at `listen`. The address is open while there is a rule with a webhook."""

    def __init__(self, bell: Bell, governor: Governor, listen: str) -> None:
        self._bell, self._governor, self._listen = bell, governor, listen
        self._hooks: dict[str, dict[str, list[Webhook]]] = {}
        """By hook and rule. A rule may have one hook twice, while its secret is changed."""
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._changed = asyncio.Event()
        self._server: HttpServer | None = None
        self.counts: dict[str, Counter[str]] = {}
        """By hook, how often something was refused since the daemon began, by code."""
        self.trouble = ""
        """Why nothing comes in, if that is so."""

    @property
    def port(self) -> int:
        """Where it listens now; 0: nowhere."""
        return 0 if self._server is None else self._server.port

    def use(self, rules: Sequence[Rule]) -> None:
        """Take requests for these rules, and for no others."""
        hooks: dict[str, dict[str, list[Webhook]]] = {}
        for rule in rules:
            for trigger in rule.triggers:
                if isinstance(trigger, Webhook):
                    hooks.setdefault(trigger.hook, {}).setdefault(rule.name, []).append(trigger)
        self._hooks = hooks
        self.counts = {hook: count for hook, count in self.counts.items() if hook in hooks or hook == UNKNOWN}
        self._changed.set()

    async def run(self) -> None:
        """Listen while there is something to listen for, until it is cancelled."""
        await self._recall()
        try:
            while True:
                self._changed.clear()
                if self._hooks and self._server is None:
                    await self._open()
                elif not self._hooks:
                    await self._close()
                is_shut = bool(self._hooks) and self._server is None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(OPEN_AGAIN if is_shut else None):
                        await self._changed.wait()
        finally:
            await self._close()

    async def _open(self) -> None:
        # What has no webhooks has nothing of this in its memory.
        from starlette.routing import Route  # noqa: PLC0415 - see above

        from flyball.http_server import CannotListen, HttpServer, is_loopback, routed  # noqa: PLC0415 - see above

        app = routed([Route("/hooks/{hook}", endpoint=_App(self))])
        server = HttpServer(self._listen, app, lambda code: self._count(UNKNOWN, code), setting="rule.listen")
        try:
            await server.open()
        except CannotListen as error:
            if str(error) != self.trouble:
                log.error("no webhooks come in: %s. It is tried again. %s", error, error.remedy)
            self.trouble = str(error)
            return
        self._server, self.trouble = server, ""
        log.info("webhooks come in at %s", self._listen)
        if not is_loopback(self._listen):
            log.warning("webhooks come in from other machines, in plain text: a proxy in front of it can encrypt them")

    async def _close(self) -> None:
        server, self._server, self.trouble = self._server, None, ""
        if server is not None:
            await server.close()
            log.info("webhooks come in no more")

    async def _recall(self) -> None:
        """Know again what was taken before, and forget what is long over."""
        records = await asyncio.to_thread(self._governor.store.states, SEEN)
        now = self._governor.clock.now()
        valid = {key: _instant(data) for key, data in records.items()}
        over = [key for key, valid_until in valid.items() if valid_until < now - SEEN_FOR]
        self._seen = {}
        for key, valid_until in sorted(valid.items(), key=lambda item: item[1]):
            rule, hook, _ = key.subject.rsplit("/", 2)
            self._seen.setdefault((rule, hook), _Seen()).add(key, valid_until)
        for known in self._seen.values():
            known.forget(over)

        if over:
            await write(self._governor, dict.fromkeys(over), sync=False)

    # One request.

    async def take(self, method: str, hook: str, headers: Mapping[str, str], body: bytes | None) -> Fate | Refusal:
        """What becomes of a request. None for a body: it is too long."""
        rules = self._hooks.get(hook)
        if rules is None:
            return self._refused(UNKNOWN, UNKNOWN_HOOK)
        if method != "POST":
            return self._refused(hook, NOT_POST)
        if body is None:
            return self._refused(hook, TOO_LONG)
        fates: list[Fate] = []
        refusals: list[Refusal] = []
        for rule, triggers in rules.items():
            said = self._judge(rule, triggers, headers, body)
            fate = await self._ring(rule, hook, said, headers) if isinstance(said, Accepted) else said
            if isinstance(fate, Refusal):
                refusals.append(fate)
            else:
                fates.append(fate)
        # Where a rule could not take it now, the sender has to come again: the others know its id by then.
        again = [refusal for refusal in refusals if refusal in _COMES_AGAIN]
        if again or not fates:
            return self._refused(hook, again[0] if again else max(refusals, key=_is_of_a_signed_one))
        return fates[0]

    def _judge(
        self, rule: str, triggers: Sequence[Webhook], headers: Mapping[str, str], body: bytes
    ) -> Accepted | Refusal:
        now = self._governor.clock.now()
        hook = triggers[0].hook
        known = self._seen.setdefault((rule, hook), _Seen())
        said = [judge(one, headers, body, now, lambda id_: _key(rule, hook, id_) in known) for one in triggers]
        accepted = next((one for one in said if isinstance(one, Accepted)), None)
        return accepted or max((one for one in said if isinstance(one, Refusal)), key=_is_of_a_signed_one)

    async def _ring(self, rule: str, hook: str, said: Accepted, headers: Mapping[str, str]) -> Fate | Refusal:
        known, key, now = self._seen[rule, hook], _key(rule, hook, said.id), self._governor.clock.now()
        if key in known.being_taken:
            return BEING_TAKEN
        if not known.has_room(now):
            return TOO_OFTEN
        old = known.old(now)
        data = {"kind": "webhook", "hook": hook, "id": said.id, "body": said.body, "headers": _shown(headers)}
        rows: dict[Key, bytes | None] = {key: msgspec.json.encode(said.valid_until), **dict.fromkeys(old)}
        spark = Spark(rule=rule, trigger=f"webhook {hook}", data=data, rows=rows, comes_again=True)
        known.being_taken.add(key)
        try:
            fate = await self._bell.ring(spark)
        except StoreError:  # whoever looks after the store says what is wrong with it
            return STORE_TROUBLE
        finally:
            known.being_taken.discard(key)
        if fate in _TAKEN:
            known.add(key, said.valid_until)
            known.forget(old)
            return fate
        return _DROPPED.get(fate, FAULT)

    def _refused(self, hook: str, refusal: Refusal) -> Refusal:
        self._count(hook, refusal.code)
        return refusal

    def fault(self, hook: str, error: Exception) -> Refusal:
        """A fault of ours. What the error says is left out: it may be of the body."""
        name = hook if hook in self._hooks else UNKNOWN
        where = "".join(traceback.format_tb(error.__traceback__))
        log.error("webhook %s: %s\n%s", name, type(error).__name__, where)
        return self._refused(name, FAULT)

    def _count(self, hook: str, code: str) -> None:
        counts = self.counts.setdefault(hook, Counter())
        counts[code] += 1
        if str(counts[code]).strip("0") == "1":  # the 1st, 10th, 100th, …
            log.warning("webhook %s: refused, %s (%d so far)", hook or "of no rule", code, counts[code])


def _is_of_a_signed_one(refusal: Refusal) -> bool:
    """Of several, that one says more."""
    return refusal not in (NO_SIGNATURE, BAD_SIGNATURE)


def _shown(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if not any(word in name for word in _KEPT_OUT)}


class _App:
    """The hooks as an app of the server."""

    def __init__(self, hooks: Webhooks) -> None:
        self._hooks = hooks

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
        hook: str = scope["path_params"]["hook"]
        try:
            body = await _body(headers, receive)
        except ConnectionError:
            return
        try:
            fate = await self._hooks.take(scope["method"], hook, headers, body)
        except Exception as error:  # noqa: BLE001 - a fault of ours, not the end of the server
            fate = self._hooks.fault(hook, error)
        for message in _answer(headers.get("webhook-id", ""), fate):
            await send(message)


async def _body(headers: Mapping[str, str], receive: "Receive") -> bytes | None:
    """What was sent; None if it is too long. ConnectionError if the sender is gone."""
    length = headers.get("content-length", "")
    said = int(length) if length.isdigit() else 0
    if said > DISCARDED_MAX or (said > DATA_MAX and "expect" in headers):
        return None
    kept, size = bytearray(), 0
    while size <= DISCARDED_MAX:
        message = await receive()
        if message["type"] != "http.request":
            raise ConnectionError
        part: bytes = message.get("body", b"")
        size += len(part)
        if size <= DATA_MAX:
            kept += part
        else:
            kept.clear()
        if not message.get("more_body", False):
            break
    return bytes(kept) if size <= DATA_MAX else None


def _answer(id_: str, fate: Fate | Refusal) -> "tuple[Message, Message]":
    status, word = (fate.status, fate.code) if isinstance(fate, Refusal) else (202, str(fate))
    told = {"id": id_, "status": word} if status < 300 else {"error": word}
    body = msgspec.json.encode(told)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if isinstance(fate, Refusal) and fate in _COMES_AGAIN:
        headers.append((b"retry-after", str(_COMES_AGAIN[fate]).encode()))
    if fate is NOT_POST:
        headers.append((b"allow", b"POST"))
    return (
        {"type": "http.response.start", "status": status, "headers": headers},
        {"type": "http.response.body", "body": body},
    )
