"""Telegram, by true traffic to a local server that speaks the Bot API."""

import asyncio

import pytest
from msgspec.structs import replace

from flyball.config.alerts import TelegramChannel
from flyball.control.alerts.channel import TEXT_MAX, TITLE_MAX, Action, ChannelError
from flyball.control.alerts.channels import open_channel
from flyball.control.telegram.buttons import data_of
from tests.control.alerts.channels.stage import LINK, MESSAGE, QUICK, WRONG, failed, sent
from tests.servers.telegram import TOKEN, BotApi, Refused


def _settings(api: BotApi, *chats: str, token: str = TOKEN) -> TelegramChannel:
    return TelegramChannel(name="chat", token=token, chats=chats or ("100",), url=api.url, timeout=QUICK)


def test_what_people_see() -> None:
    """Title and text, whatever letters are in them, and a button for each action that has a link. Telegram is told not
    to open links by itself."""
    with BotApi() as api:
        sent(_settings(api))
    (message,) = api.messages()
    assert message.text == f"🚨 {MESSAGE.title}\n{MESSAGE.text}\nOpen the page"
    assert message.buttons == [
        {"text": "Reset 7f3a9c", "url": f"{LINK}one"},
        {"text": "Stop it", "url": f"{LINK}two"},
    ]
    assert api.called("sendMessage")[0]["link_preview_options"] == {"is_disabled": True}
    assert not message.silent


def test_buttons_for_the_bot() -> None:
    """Where a bot listens, every action has a button that it understands, also those that are never links; all of them
    fit into what Telegram allows."""
    with BotApi() as api:
        sent(_settings(api), bot=True)
    buttons = api.messages()[0].buttons
    assert [one["text"] for one in buttons] == ["Reset 7f3a9c", "Stop it", "Raise"]
    assert [one["callback_data"] for one in buttons] == [data_of(one.verb, one.args) for one in MESSAGE.actions]


def test_update() -> None:
    """A later message changes the first; the same once more is not an error; one that was deleted is sent anew."""
    with BotApi() as api:
        first = sent(_settings(api))
        changed = replace(MESSAGE, title="4 units quarantined")
        assert sent(_settings(api), changed, first) == first
        assert sent(_settings(api), changed, first) == first
        (message,) = api.messages()
        assert (message.edits, "4 units" in message.text) == (1, True)
        api.deletes(message)
        assert sent(_settings(api), changed, first) != first
    assert len(api.messages()) == 1


def test_resolved() -> None:
    """When it is over the message says so, and its buttons are gone."""
    with BotApi() as api:
        first = sent(_settings(api))
        sent(_settings(api), replace(MESSAGE, resolved=True), first)
        sent(_settings(api), replace(MESSAGE, severity="info"))
    over, news = api.messages()
    assert over.text.startswith("✅")
    assert not over.buttons
    assert news.silent


def test_long() -> None:
    """The longest message there can be is one that Telegram takes."""
    with BotApi() as api:
        sent(_settings(api), replace(MESSAGE, title="😀" * TITLE_MAX, text="x" + "😀" * TEXT_MAX))
    assert "😀…" in api.messages()[0].text


def test_bad_button() -> None:
    """A button that Telegram does not take costs the button, not the message."""
    local = Action(label="Reset", verb="reset", url="http://localhost/act/one")
    with BotApi() as api:
        sent(_settings(api), replace(MESSAGE, actions=(local,)))
    (message,) = api.messages()
    assert not message.buttons


@pytest.mark.parametrize(
    ("said", "retry", "after", "says"),
    [
        (Refused(429, "Too Many Requests: retry after 17", retry_after=17), True, 17.0, "retry after 17"),
        (Refused(401, "Unauthorized"), False, 0.0, "check its token"),
        (Refused(403, "Forbidden: bot was blocked by the user"), False, 0.0, "blocked"),
        (Refused(400, "Bad Request: chat not found"), False, 0.0, "chat not found"),
        (Refused(400, "Bad Request: group upgraded", migrate_to_chat_id=-100123), False, 0.0, "set -100123"),
        (Refused(500, "Internal Server Error"), True, 0.0, "500"),
        (Refused(502, "Bad Gateway"), True, 0.0, "502"),
    ],
)
@pytest.mark.parametrize("previous", [None, "100:1"], ids=["new", "edit"])
def test_failures(said: Refused, retry: bool, after: float, says: str, previous: str | None) -> None:
    """What may pass is tried again, not before Telegram wants it; what is wrong is not."""
    with BotApi() as api:
        api.refuses(said)
        error = failed(_settings(api), MESSAGE, previous)
    assert (error.retry, error.after) == (retry, after)
    assert says in str(error)
    assert len(api.calls) == 1


def test_real_refusals() -> None:
    """The server's own refusals: a token that is another's, one that is none, a chat that is not known, a user who
    blocked the bot."""
    with BotApi(chats=(100, 200)) as api:
        api.blocks(200)
        errors = [
            failed(_settings(api, token="1:" + "A" * 35)),
            failed(_settings(api, token=WRONG)),
            failed(_settings(api, "300")),
            failed(_settings(api, "200")),
        ]
    assert [error.retry for error in errors] == [False] * 4
    assert not api.messages()


@pytest.mark.parametrize("fault", ["hangs", "drops"])
def test_silence(fault: str) -> None:
    """A server that says nothing is left after the time that the channel has, and tried again."""
    with BotApi() as api:
        getattr(api, fault)()
        assert failed(_settings(api)).retry


def test_several_chats() -> None:
    """Each chat has its message, and an update changes each of them."""
    with BotApi(chats=(100, -5)) as api:
        first = sent(_settings(api, "100", "-5"))
        sent(_settings(api, "100", "-5"), replace(MESSAGE, title="more"), first)
    assert [len(api.messages(chat)) for chat in (100, -5)] == [1, 1]
    assert [api.messages(chat)[0].edits for chat in (100, -5)] == [1, 1]


def test_one_chat_fails() -> None:
    """When one chat could not be told, the next attempt tells that one, and not the others a second time."""
    with BotApi(chats=(100, 200)) as api:

        async def play() -> None:
            channel = open_channel(_settings(api, "100", "200"))
            api.refuses(Refused(500, "Internal Server Error"), method="sendMessage")
            with pytest.raises(ChannelError) as caught:
                await channel.send(MESSAGE, None)
            assert caught.value.retry
            id_ = await channel.send(MESSAGE, None)
            assert len(id_.split()) == 2

        asyncio.run(play())
    assert [len(api.messages(chat)) for chat in (100, 200)] == [1, 1]


def test_one_chat_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    """A chat that nobody can write to any more does not keep the others from being told; the log says so."""
    with BotApi(chats=(100, 200)) as api:
        api.blocks(100)
        sent(_settings(api, "100", "200"))
    assert len(api.messages(200)) == 1
    assert "one of its chats gets nothing" in caplog.text


@pytest.mark.parametrize("previous", ["", "nonsense", "100:x", "7:1", "100:99"])
def test_unknown_previous(previous: str) -> None:
    """An id that is none of ours, or of a chat that is not set any more, makes a new message."""
    with BotApi() as api:
        assert sent(_settings(api), previous=previous).startswith("100:")
    assert len(api.messages()) == 1
