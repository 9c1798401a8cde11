"""A message as plain text, for channels without buttons: what is the matter, then what can be done."""

from flyball.control.alerts.channel import Message


def plain(message: Message) -> str:
    """Without its title, which every channel shows by itself."""
    parts = [message.text] if message.text else []
    links = [f"{action.label}: {action.url}" for action in message.actions if action.url]
    if links and not message.resolved:
        parts.append("\n".join(links))
    if message.url:
        parts.append(f"More: {message.url}")
    return "\n\n".join(parts)
