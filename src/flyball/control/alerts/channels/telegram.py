"""Telegram: a bot's message to each chat, changed in place by later ones about the same thing.

Its buttons carry what the bot understands, where one listens; else they are links, if there are any. A button that
Telegram does not take never costs the message: it goes out without buttons then.
"""

import html
import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from flyball.config.alerts import TelegramChannel
from flyball.control.alerts.channel import ID_MAX, Action, ChannelError, Message
from flyball.control.alerts.channels.parts import Parts
from flyball.control.alerts.channels.posting import Answer, post, refused
from flyball.control.telegram.buttons import data_of

log = logging.getLogger(__name__)

BUTTONS_MAX: Final = 6
"""Under one message: what fits on a phone without scrolling."""
TEXT_UNITS_MAX: Final = 3_500
"""Units of UTF-16 that a text may have: Telegram counts in them, takes 4,096, and there is a title too."""
LABEL_MAX: Final = 40
"""Characters of a button. Telegram cuts longer ones where nobody sees it."""
MARKS: Final = {"info": "ℹ️", "warning": "⚠️", "critical": "🚨"}
RESOLVED_MARK: Final = "✅"

_SAME: Final = re.compile("message is not modified", re.IGNORECASE)
_GONE: Final = re.compile("message (to edit not found|can't be edited|identifier is not specified)", re.IGNORECASE)
_BAD_BUTTON: Final = re.compile("button|BUTTON_|Wrong HTTP URL|inline keyboard", re.IGNORECASE)


class TelegramMessages:
    """Messages to some chats."""

    def __init__(self, settings: TelegramChannel, *, bot: bool) -> None:
        self.name = settings.name
        self._settings = settings
        self._bot = bot
        self._parts = Parts()
        self._secrets = [settings.token, settings.token.partition(":")[2]]

    async def send(self, message: Message, previous: str | None) -> str:
        before, after = dict(_pairs(previous or "")), self._parts.of(message.id)
        failed: list[ChannelError] = []
        for chat in self._settings.chats:
            if chat in after:
                continue
            try:
                after[chat] = await self._to(chat, message, before.get(chat, ""))
            except ChannelError as error:
                failed.append(error)
        if failed and (not after or any(error.retry for error in failed)):
            raise min(failed, key=lambda error: not error.retry)
        for lost in failed:
            log.warning("channel %s: one of its chats gets nothing: %s", self.name, lost)
        return _joined(after)

    async def close(self) -> None:
        pass

    async def _to(self, chat: str, message: Message, previous: str) -> str:
        said = written(message, bot=self._bot)
        said["chat_id"] = chat
        if previous:
            answer = await self._call("editMessageText", {**said, "message_id": int(previous)})
            wrong = _description(answer)
            if answer.is_good or _SAME.search(wrong):
                return previous
            if not _GONE.search(wrong):
                raise self._refused(answer)
        if message.severity == "info" or message.resolved:
            said["disable_notification"] = True
        answer = await self._call("sendMessage", said)
        if not answer.is_good:
            raise self._refused(answer)
        result = answer.json.get("result")
        return str(result["message_id"]) if isinstance(result, dict) and "message_id" in result else ""

    async def _call(self, method: str, said: Mapping[str, Any]) -> Answer:
        url = f"{self._settings.url}/bot{self._settings.token}/{method}"
        answer = await post(url, msgspec.json.encode(said), {}, self._settings.timeout)
        is_bad = answer.status == HTTPStatus.BAD_REQUEST and _BAD_BUTTON.search(_description(answer))
        if is_bad and "reply_markup" in said:
            bare = {name: value for name, value in said.items() if name != "reply_markup"}
            answer = await post(url, msgspec.json.encode(bare), {}, self._settings.timeout)
        return answer

    def _refused(self, answer: Answer) -> ChannelError:
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND):
            return ChannelError(f"{answer.host} does not know the bot: check its token", retry=False)
        error = refused(answer, self._secrets, _description(answer))
        parameters = answer.json.get("parameters")
        if isinstance(parameters, dict):
            if isinstance(wait := parameters.get("retry_after"), int):
                error.after = float(wait)
            if moved := parameters.get("migrate_to_chat_id"):
                return ChannelError(f"the group has a new number: set {moved} in `chats`", retry=False)
        return error


def written(message: Message, *, bot: bool) -> dict[str, Any]:
    """What is sent. Links are not looked up by Telegram: it would open them."""
    mark = RESOLVED_MARK if message.resolved else MARKS.get(message.severity, MARKS["warning"])
    text = f"{mark} <b>{html.escape(message.title, quote=False)}</b>"
    if message.text:
        text += f"\n{html.escape(_cut(message.text), quote=False)}"
    if message.url:
        text += f'\n<a href="{html.escape(message.url)}">Open the page</a>'
    said: dict[str, Any] = {"text": text, "parse_mode": "HTML", "link_preview_options": {"is_disabled": True}}
    rows = [[button] for action in message.actions if (button := _button(action, bot=bot))]
    if rows and not message.resolved:
        said["reply_markup"] = {"inline_keyboard": rows[:BUTTONS_MAX]}
    return said


def _button(action: Action, *, bot: bool) -> Mapping[str, str] | None:
    label = action.label[:LABEL_MAX]
    if bot:
        return {"text": label, "callback_data": data_of(action.verb, action.args)}
    return {"text": label, "url": action.url} if action.url else None


def _cut(text: str) -> str:
    data = text.encode("utf-16-le")
    if len(data) <= 2 * TEXT_UNITS_MAX:
        return text
    return data[: 2 * TEXT_UNITS_MAX].decode("utf-16-le", "ignore") + "…"


def _description(answer: Answer) -> str:
    return str(answer.json.get("description", ""))


# The ids of one message in several chats.


def _pairs(kept: str) -> Sequence[tuple[str, str]]:
    return [(chat, id_) for pair in kept.split() for chat, _, id_ in [pair.rpartition(":")] if id_.isdigit()]


def _joined(ids: Mapping[str, str]) -> str:
    """As many as may be kept. A chat that is left out gets a new message the next time."""
    kept = ""
    for chat, id_ in ids.items():
        more = f"{kept} {chat}:{id_}".lstrip()
        if id_ and len(more) <= ID_MAX:
            kept = more
    return kept
