"""A message, and how it fares with a channel."""

import asyncio
from typing import Final

from flyball.config.alerts import ChannelSettings
from flyball.control.alerts.channel import Action, ChannelError, Message
from flyball.control.alerts.channels import open_channel
from flyball.core.time import SECOND

AT: Final = 1_800_000_000 * SECOND
QUICK: Final = SECOND // 2
"""As long as a test waits for who is silent."""
HORSE: Final = "correct horse battery"
WRONG: Final = "another one, and wrong"
SIGNS: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LINK: Final = "https://flyball.example.org/act/"
MESSAGE: Final = Message(
    title="coder-3 quarantined",
    text="3 failures of <Error> & co within 1 h",
    severity="critical",
    kind="quarantined",
    unit="coder-3",
    url="https://flyball.example.org/#/unit/coder-3",
    actions=(
        Action(label="Reset 7f3a9c", verb="reset", args={"fingerprint": "7f3a9c"}, url=f"{LINK}one"),
        Action(label="Stop it", verb="stop", args={"units": ["coder-3"]}, url=f"{LINK}two", destructive=True),
        Action(label="Raise", verb="raise", args={"unit": "coder-3", "more": "1.00"}),
    ),
    at=AT,
    tags=("quarantined",),
    problem="coder-3:quarantined:7f3a9c",
    group="quarantined:7f3a9c",
    id="quarantined:7f3a9c-1-1",
)


def sent(
    settings: ChannelSettings, message: Message = MESSAGE, previous: str | None = None, *, bot: bool = False
) -> str:
    """What sending it said."""

    async def play() -> str:
        channel = open_channel(settings, bot=bot)
        try:
            return await channel.send(message, previous)
        finally:
            await channel.close()

    return asyncio.run(play())


def failed(settings: ChannelSettings, message: Message = MESSAGE, previous: str | None = None) -> ChannelError:
    """Why it could not be sent."""
    try:
        said = sent(settings, message, previous)
    except ChannelError as error:
        return error
    raise AssertionError(f"it was sent: {said!r}")
