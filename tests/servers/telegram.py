"""A local server that speaks Telegram's Bot API: what flyball says to it is true traffic, what people say is made here.

It takes what the real one takes (arguments in the query, as a form or as JSON), refuses what the real one refuses, in
its words, and remembers what each chat shows. A test is the people: it says things, taps on buttons, blocks the bot.
"""

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from tests.servers.http import WAIT_MAX, Asked, Drop, Hang, OnSite, Reply

TEXT_MAX: Final = 4096
"""Of a message, in units of UTF-16, after its markup was taken out."""
DATA_MAX: Final = 64
"""Bytes of what a button carries."""
ALERT_MAX: Final = 200
"""Characters of the answer to a tap."""
TOKEN: Final = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"  # noqa: S105 - of nobody: the form that real ones have
_TOKEN_FORM: Final = re.compile(r"\d+:[\w-]{30,}")
_COMMAND: Final = re.compile(r"(?:^|(?<=\s))/[A-Za-z0-9_]{1,32}(?:@\w{5,32})?")
_TAGS: Final = frozenset(("b", "strong", "i", "em", "u", "ins", "s", "del", "code", "pre", "a", "blockquote"))


@dataclass
class Message:
    """One message in a chat, as it is shown now."""

    id: int
    chat: int
    text: str
    markup: list[list[dict[str, Any]]] = field(default_factory=list)
    edits: int = 0
    raw: str = ""
    """The text as it was sent, with its markup."""
    silent: bool = False

    @property
    def buttons(self) -> list[dict[str, Any]]:
        return [button for row in self.markup for button in row]


class Refused(Exception):
    """The Bot API says no."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code, self.description, self.parameters = code, description, parameters


class BotApi(OnSite):
    """The server, the chats, and the people in them. Its `url` is what a client takes instead of
    https://api.telegram.org: `/bot<token>/<method>` comes after it."""

    def __init__(self, token: str = TOKEN, *, chats: tuple[int, ...] = (100,), clock: Callable[[], float] = time.time):
        self.token = token
        self._chats = set(chats)
        self._clock = clock
        super().__init__()
        self._lock = self._site.changed
        """One for all: whoever waits for an update holds no other."""
        self._blocked: set[int] = set()
        self._messages: dict[int, Message] = {}
        self._last_message = 0
        self._updates: list[dict[str, Any]] = []
        self._last_update = 1000
        self._last_query = 0
        self._open_queries: set[str] = set()
        self._pollers = 0
        self._next_fault: list[tuple[str, Refused | type[Exception]]] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        """Every call, with its arguments, also those that were refused."""
        self.taps_answered: list[dict[str, Any]] = []
        self.commands: list[dict[str, str]] = []

    # What a test sees.

    def messages(self, chat: int = 100) -> list[Message]:
        """What the bot wrote in a chat, the oldest first."""
        with self._lock:
            return [message for message in self._messages.values() if message.chat == chat]

    def called(self, method: str) -> list[dict[str, Any]]:
        with self._lock:
            return [params for name, params in self.calls if name == method]

    def wait(self, until: Callable[[], bool]) -> bool:
        """Whether it came to be so, within the time that a test has. Looked at after every call."""
        return self._site.wait(until)

    # What people do.

    def says(
        self, text: str, *, user: int = 100, chat: int | None = None, at: float | None = None, name: str = "ann"
    ) -> int:
        """Somebody writes to the bot; the number of the update. `at`: when, in Unix seconds."""
        with self._lock:
            self._last_message += 1
            message: dict[str, Any] = {
                "message_id": self._last_message,
                "from": _person(user, name),
                "chat": _chat(user if chat is None else chat, name),
                "date": int(self._clock() if at is None else at),
                "text": text,
            }
            entities = [
                {"type": "bot_command", "offset": _units(text[: found.start()]), "length": _units(found[0])}
                for found in _COMMAND.finditer(text)
            ]
            if entities:
                message["entities"] = entities
            return self._updated({"message": message})

    def taps(
        self, message: Message, button: int | str = 0, *, user: int | None = None, name: str = "ann", data: str = ""
    ) -> str:
        """Somebody taps on a button, by its place or its words; the id of the tap. `data`: what no button carries, as a
        changed client would send it."""
        with self._lock:
            buttons = message.buttons
            one = buttons[button] if isinstance(button, int) else next(b for b in buttons if b["text"] == button)
            self._last_query += 1
            id_ = f"tap{self._last_query}"
            self._open_queries.add(id_)
            self._updated(
                {
                    "callback_query": {
                        "id": id_,
                        "from": _person(message.chat if user is None else user, name),
                        "chat_instance": "1",
                        "data": data or one["callback_data"],
                        "message": self._shown(message),
                    }
                }
            )
            return id_

    def forgets_tap(self, id_: str) -> None:
        """It is too old to be answered."""
        with self._lock:
            self._open_queries.discard(id_)

    def blocks(self, chat: int) -> None:
        with self._lock:
            self._blocked.add(chat)

    def deletes(self, message: Message) -> None:
        with self._lock:
            self._messages.pop(message.id, None)

    def _updated(self, update: dict[str, Any]) -> int:
        self._last_update += 1
        self._updates.append({"update_id": self._last_update, **update})
        self._lock.notify_all()
        return self._last_update

    # What goes wrong.

    def fails(self, code: int, description: str, *, method: str = "", times: int = 1, **parameters: int) -> None:
        """The next calls (of that method) are refused: `fails(429, "Too Many Requests", retry_after=3)`."""
        self.refuses(Refused(code, description, **parameters), method=method, times=times)

    def refuses(self, refusal: Refused, *, method: str = "", times: int = 1) -> None:
        """The same."""
        with self._lock:
            self._next_fault += [(method, refusal)] * times

    def hangs(self, method: str = "", *, times: int = 1) -> None:
        with self._lock:
            self._next_fault += [(method, Hang)] * times

    def drops(self, method: str = "", *, times: int = 1) -> None:
        with self._lock:
            self._next_fault += [(method, Drop)] * times

    # The protocol.

    def _answer(self, asked: Asked) -> Reply:
        parts = urlsplit(asked.path)
        found = re.fullmatch(r"/bot([^/]*)/(\w+)", parts.path)
        try:
            if found is None or not _TOKEN_FORM.fullmatch(found[1]):
                raise Refused(404, "Not Found")
            if found[1] != self.token:
                raise Refused(401, "Unauthorized")
            params = _params(asked, parts.query)
            handler = _METHODS.get(found[2].lower())
            with self._lock:
                self.calls.append((found[2], params))
                self._fault(found[2])
            if handler is None:
                raise Refused(404, "Not Found")
            return _reply(200, {"ok": True, "result": handler(self, params)})
        except Refused as refused:
            said: dict[str, Any] = {"ok": False, "error_code": refused.code, "description": refused.description}
            if refused.parameters:
                said["parameters"] = refused.parameters
            return _reply(refused.code, said)

    def _fault(self, method: str) -> None:
        for place, (name, fault) in enumerate(self._next_fault):
            if not name or name.lower() == method.lower():
                del self._next_fault[place]
                raise fault

    def _get_me(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"id": 110201543, "is_bot": True, "first_name": "flyball", "username": "flyball_bot"}

    def _send_message(self, params: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            chat = self._chat_of(params)
            text = _plain(params)
            markup = _markup(params)
            self._last_message += 1
            message = Message(self._last_message, chat, text, markup, raw=str(params["text"]))
            message.silent = params.get("disable_notification") in (True, "true", "True")
            self._messages[message.id] = message
            return self._shown(message)

    def _edit_message_text(self, params: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            message = self._message_of(params)
            text, markup = _plain(params), _markup(params)
            if text == message.text and markup == message.markup and str(params["text"]) == message.raw:
                raise Refused(
                    400,
                    "Bad Request: message is not modified: specified new message content and reply markup are exactly "
                    "the same as a current content and reply markup of the message",
                )
            message.text, message.markup, message.raw = text, markup, str(params["text"])
            message.edits += 1
            return self._shown(message)

    def _edit_message_reply_markup(self, params: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            message = self._message_of(params)
            markup = _markup(params)
            if markup == message.markup:
                raise Refused(400, "Bad Request: message is not modified")
            message.markup = markup
            message.edits += 1
            return self._shown(message)

    def _delete_message(self, params: Mapping[str, Any]) -> bool:
        with self._lock:
            chat = self._chat_of(params)
            message = self._messages.get(int(params.get("message_id", 0)))
            if message is None or message.chat != chat:
                raise Refused(400, "Bad Request: message to delete not found")
            del self._messages[message.id]
            return True

    def _answer_callback_query(self, params: Mapping[str, Any]) -> bool:
        with self._lock:
            if len(str(params.get("text") or "")) > ALERT_MAX:
                raise Refused(400, "Bad Request: MESSAGE_TOO_LONG")
            if params.get("callback_query_id") not in self._open_queries:
                raise Refused(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
            self._open_queries.discard(str(params["callback_query_id"]))
            self.taps_answered.append(dict(params))
            return True

    def _set_my_commands(self, params: Mapping[str, Any]) -> bool:
        given = params.get("commands")
        commands = msgspec.json.decode(given) if isinstance(given, str) else given or []
        for one in commands:
            if not re.fullmatch(r"[a-z0-9_]{1,32}", str(one.get("command", "")).removeprefix("/")):
                raise Refused(400, "Bad Request: BOT_COMMAND_INVALID")
            if not 1 <= len(str(one.get("description", ""))) <= 256:
                raise Refused(400, "Bad Request: BOT_COMMAND_DESCRIPTION_INVALID")
        with self._lock:
            self.commands = list(commands)
        return True

    def _get_my_commands(self, _: Mapping[str, Any]) -> list[dict[str, str]]:
        with self._lock:
            return list(self.commands)

    def _get_updates(self, params: Mapping[str, Any]) -> list[dict[str, Any]]:
        offset, limit = int(params.get("offset") or 0), int(params.get("limit") or 100)
        seconds = min(float(params.get("timeout") or 0), WAIT_MAX)
        allowed = params.get("allowed_updates")
        kinds = msgspec.json.decode(allowed) if isinstance(allowed, str) else allowed

        def ready() -> list[dict[str, Any]]:
            found = [update for update in self._updates if not kinds or kinds_of(update) & set(kinds)]
            return found[: max(1, min(limit, 100))]

        with self._lock:
            self._pollers += 1
            mine = self._pollers
            self._lock.notify_all()
            if offset > 0:
                self._updates = [update for update in self._updates if update["update_id"] >= offset]
            elif offset < 0:
                self._updates = self._updates[offset:]
            self._lock.wait_for(lambda: ready() or self._site.ending.is_set() or self._pollers != mine, seconds)
            if self._pollers != mine:
                text = "terminated by other getUpdates request; make sure that only one bot instance is running"
                raise Refused(409, f"Conflict: {text}")
            return ready()

    def _true(self, _: Mapping[str, Any]) -> bool:
        return True

    def _get_webhook_info(self, _: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            return {"url": "", "has_custom_certificate": False, "pending_update_count": len(self._updates)}

    # Chats and messages.

    def _chat_of(self, params: Mapping[str, Any]) -> int:
        given = str(params.get("chat_id") or "")
        if not given:
            raise Refused(400, "Bad Request: chat_id is empty")
        chat = int(given) if re.fullmatch(r"-?\d+", given) else 0
        if chat not in self._chats:
            raise Refused(400, "Bad Request: chat not found")
        if chat in self._blocked:
            raise Refused(403, "Forbidden: bot was blocked by the user")
        return chat

    def _message_of(self, params: Mapping[str, Any]) -> Message:
        chat = self._chat_of(params)
        message = self._messages.get(int(params.get("message_id") or 0))
        if message is None or message.chat != chat:
            raise Refused(400, "Bad Request: message to edit not found")
        return message

    def _shown(self, message: Message) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "message_id": message.id,
            "from": self._get_me({}),
            "chat": _chat(message.chat, "ann"),
            "date": int(self._clock()),
            "text": message.text,
        }
        if message.markup:
            shown["reply_markup"] = {"inline_keyboard": message.markup}
        if message.edits:
            shown["edit_date"] = int(self._clock())
        return shown


_METHODS: Final[Mapping[str, Callable[[BotApi, Mapping[str, Any]], Any]]] = {
    "getme": BotApi._get_me,
    "sendmessage": BotApi._send_message,
    "editmessagetext": BotApi._edit_message_text,
    "editmessagereplymarkup": BotApi._edit_message_reply_markup,
    "deletemessage": BotApi._delete_message,
    "answercallbackquery": BotApi._answer_callback_query,
    "setmycommands": BotApi._set_my_commands,
    "getmycommands": BotApi._get_my_commands,
    "getupdates": BotApi._get_updates,
    "deletewebhook": BotApi._true,
    "sendchataction": BotApi._true,
    "getwebhookinfo": BotApi._get_webhook_info,
}


def kinds_of(update: Mapping[str, Any]) -> set[str]:
    return set(update) - {"update_id"}


def _reply(status: int, said: object) -> Reply:
    return Reply(status, msgspec.json.encode(said))


def _params(asked: Asked, query: str) -> dict[str, Any]:
    params: dict[str, Any] = {name: values[-1] for name, values in parse_qs(query).items()}
    kind = asked.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        with contextlib.suppress(msgspec.MsgspecError):
            params |= msgspec.json.decode(asked.body, type=dict[str, Any])
    elif kind == "application/x-www-form-urlencoded":
        params |= {name: values[-1] for name, values in parse_qs(asked.body.decode()).items()}
    return params


def _markup(params: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    given = params.get("reply_markup")
    markup = msgspec.json.decode(given) if isinstance(given, str) and given else given or {}
    rows: list[list[dict[str, Any]]] = markup.get("inline_keyboard") or []
    for button in (button for row in rows for button in row):
        if not button.get("text"):
            raise Refused(400, 'Bad Request: can\'t parse inline keyboard button: Field "text" must be of type String')
        if "callback_data" in button and not 1 <= len(str(button["callback_data"]).encode()) <= DATA_MAX:
            raise Refused(400, "Bad Request: BUTTON_DATA_INVALID")
        if "url" in button and not re.match(r"(https?|tg)://[^/\s]+\.[^/\s]+", str(button["url"])):
            raise Refused(400, f"Bad Request: inline keyboard button URL '{button['url']}' is invalid: Wrong HTTP URL")
        if len({"callback_data", "url"} & set(button)) != 1:
            raise Refused(400, "Bad Request: can't parse inline keyboard button: Text buttons are unallowed")
    return rows


class _Html(HTMLParser):
    """The few tags that a message may have."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.open = "", list[str]()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in _TAGS:
            raise Refused(400, f'Bad Request: can\'t parse entities: Unsupported start tag "{tag}"')
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise Refused(400, f'Bad Request: can\'t parse entities: Unmatched end tag "{tag}"')

    def handle_data(self, data: str) -> None:
        self.text += data


def _plain(params: Mapping[str, Any]) -> str:
    """The text without its markup."""
    text = str(params.get("text") or "")
    if str(params.get("parse_mode") or "").upper() == "HTML":
        reader = _Html()
        reader.feed(text)
        reader.close()
        if reader.open:
            raise Refused(
                400, f"Bad Request: can't parse entities: Can't find end tag corresponding to {reader.open[0]}"
            )
        text = reader.text
    if not text.strip():
        raise Refused(400, "Bad Request: message text is empty")
    if _units(text) > TEXT_MAX:
        raise Refused(400, "Bad Request: message is too long")
    return text.strip()


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _person(user: int, name: str) -> dict[str, Any]:
    return {"id": user, "is_bot": False, "first_name": name.title(), "username": name}


def _chat(chat: int, name: str) -> dict[str, Any]:
    if chat < 0:
        return {"id": chat, "type": "group", "title": "watch"}
    return {"id": chat, "type": "private", "first_name": name.title(), "username": name}
