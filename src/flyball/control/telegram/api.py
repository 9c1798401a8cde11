"""Telegram's Bot API, by python-telegram-bot: the only module that knows that library. What it raises becomes an
`ApiError` here, of a kind that says what to do about it; and the token is in nothing that leaves this module."""

import logging
import warnings
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

import telegram
from telegram import error as errors
from telegram.constants import ParseMode
from telegram.request import HTTPXRequest
from telegram.warnings import PTBDeprecationWarning

from flyball.control.telegram.faults import ApiError, Fault
from flyball.control.telegram.messages import Nothing, Pressed, Reply, Said, Update
from flyball.core.hiding import hide

log = logging.getLogger(__name__)
T = TypeVar("T")

POLL: Final = 25
"""Seconds that Telegram keeps a question for news open. Below the 30 after which many proxies give up."""
SLACK: Final = 10.0
"""Seconds more than that before the line counts as dead."""
ANSWER_MAX: Final = 15.0
"""Seconds for anything else."""
UPDATES_MAX: Final = 100
"""At a time; Telegram gives no more."""
KINDS: Final = ("message", "callback_query")
"""What is asked for. What was edited later is not: a command is what it was when it was sent."""


class Api:
    """One bot."""

    def __init__(self, token: str, base_url: str) -> None:
        # Its log has every address in full, and the token is a part of it.
        for name in ("httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.WARNING)
        # Of a change that is to come in a later version of the library, and of which nobody here can do anything.
        warnings.simplefilter("ignore", PTBDeprecationWarning)
        self._token = token
        self._listens, self._speaks = _line(), _line()
        self._bot = telegram.Bot(
            token,
            base_url=f"{base_url}/bot",
            base_file_url=f"{base_url}/file/bot",
            request=self._speaks,
            get_updates_request=self._listens,
        )

    async def __aenter__(self) -> "Api":
        # Not that of the bot: it asks Telegram who it is, and fails where Telegram is away.
        for request in (self._listens, self._speaks):
            await request.initialize()
        return self

    async def __aexit__(self, *_: object) -> None:
        for request in (self._listens, self._speaks):
            await request.shutdown()

    async def name(self) -> str:
        """What the bot is called in groups."""
        return (await self._asked(self._bot.get_me())).username or ""

    async def offer(self, commands: Sequence[tuple[str, str]]) -> None:
        """Have them completed when somebody types."""
        await self._asked(self._bot.set_my_commands(list(commands)))

    async def news(self, after: int | None, *, wait: bool) -> list[Update]:
        """What came in from that number on; if nothing did, a while is waited for something."""
        found = await self._asked(
            self._bot.get_updates(
                offset=after,
                limit=UPDATES_MAX,
                timeout=POLL if wait else 0,
                read_timeout=SLACK,  # on top of that
                allowed_updates=KINDS,
            )
        )
        return [_update(one) for one in found]

    async def send(self, chat: int, reply: Reply) -> None:
        """Say something in a chat."""
        text = hide(reply.text, [self._token])
        await self._asked(
            self._bot.send_message(
                chat,
                text,
                parse_mode=ParseMode.HTML,
                reply_markup=_keyboard(reply),
                link_preview_options=telegram.LinkPreviewOptions(is_disabled=True),
            )
        )

    async def edit(self, chat: int, number: int, reply: Reply) -> None:
        """Say something else instead."""
        text = hide(reply.text, [self._token])
        await self._asked(
            self._bot.edit_message_text(
                text, chat_id=chat, message_id=number, parse_mode=ParseMode.HTML, reply_markup=_keyboard(reply)
            )
        )

    async def answer(self, press: str, toast: str) -> None:
        """A button was pressed, and that was seen."""
        await self._asked(self._bot.answer_callback_query(press, text=toast or None))

    async def _asked(self, work: Awaitable[T]) -> T:
        """What Telegram answers. ApiError if that is no."""
        try:
            return await work
        except errors.TelegramError as error:
            raise self._error(error) from None
        except Exception as error:
            # The library could not read the answer.
            log.exception("Telegram's answer was not understood")
            raise ApiError(Fault.NETWORK, f"its answer was not understood: {type(error).__name__}") from None

    def _error(self, error: errors.TelegramError) -> ApiError:
        text = hide(error.message, [self._token])
        match error:
            case errors.RetryAfter():
                after = error.retry_after
                return ApiError(Fault.WAIT, text, after=float(after if isinstance(after, int) else after.seconds))
            case errors.Conflict():
                return ApiError(Fault.CONFLICT, text)
            case errors.InvalidToken():
                return ApiError(Fault.TOKEN, text)
            case errors.BadRequest() | errors.Forbidden() | errors.ChatMigrated():
                return ApiError(Fault.REFUSED, text)
        return ApiError(Fault.NETWORK, text)


def _line() -> HTTPXRequest:
    """A connection. Listening has its own, so that nothing that is said waits for it."""
    return HTTPXRequest(
        connection_pool_size=1,
        connect_timeout=ANSWER_MAX,
        read_timeout=ANSWER_MAX,
        write_timeout=ANSWER_MAX,
        pool_timeout=ANSWER_MAX,
    )


def _update(update: telegram.Update) -> Update:
    """What came in, without the library."""
    message, press = update.message, update.callback_query
    if message is not None and message.from_user is not None and message.text:
        return Said(
            number=update.update_id,
            chat=message.chat.id,
            private=message.chat.type == telegram.Chat.PRIVATE,
            sender=message.from_user.id,
            text=message.text,
            at=message.date.timestamp(),
            own=message.forward_origin is None and message.via_bot is None and message.sender_chat is None,
        )
    if press is not None and press.data and isinstance(press.message, telegram.Message):
        return Pressed(
            number=update.update_id,
            chat=press.message.chat.id,
            private=press.message.chat.type == telegram.Chat.PRIVATE,
            sender=press.from_user.id,
            press=press.id,
            data=press.data,
            message=press.message.message_id,
        )
    return Nothing(number=update.update_id, chat=0, private=False, sender=0)


def _keyboard(reply: Reply) -> telegram.InlineKeyboardMarkup | None:
    if not reply.buttons:
        return None
    return telegram.InlineKeyboardMarkup(
        [
            [telegram.InlineKeyboardButton(button.label, callback_data=button.data) for button in row]
            for row in reply.buttons
        ]
    )
