"""The ways to people, one a file. What one of them needs is in memory only where the settings name it."""

from typing import TYPE_CHECKING

from flyball.config.alerts import AppriseChannel, ChannelSettings, Email, Ntfy, TelegramChannel, WebhookChannel

if TYPE_CHECKING:
    from flyball.control.alerts.channel import Channel


def open_channel(settings: ChannelSettings, *, bot: bool = False) -> "Channel":
    """The channel of these settings. FlyballError if it needs something that is not installed. `bot`: a bot with the
    same token listens for what people press, so Telegram's buttons need no links."""
    match settings:
        case Ntfy():
            from flyball.control.alerts.channels.ntfy import NtfyChannel  # noqa: PLC0415 - see above

            return NtfyChannel(settings)
        case WebhookChannel():
            from flyball.control.alerts.channels.webhook import SignedWebhook  # noqa: PLC0415 - see above

            return SignedWebhook(settings)
        case Email():
            from flyball.control.alerts.channels.email import Mail  # noqa: PLC0415 - see above

            return Mail(settings)
        case TelegramChannel():
            from flyball.control.alerts.channels.telegram import TelegramMessages  # noqa: PLC0415 - see above

            return TelegramMessages(settings, bot=bot)
        case AppriseChannel():
            from flyball.control.alerts.channels.apprise import AppriseServices  # noqa: PLC0415 - see above

            return AppriseServices(settings)
