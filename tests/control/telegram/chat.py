"""A chat with the bot without Telegram: what is said goes through the real verbs to a real governor."""

from typing import Any

from flyball.control.commands import perform
from flyball.control.context import Args, Caller, Right
from flyball.control.telegram.messages import Button, Outcome, Pressed, Reply, Said
from flyball.control.telegram.talk import Person, Talk
from flyball.core.codec import decode_body
from flyball.core.event import Event
from tests.control.scene import Scene

ANN, BOB, EVE = 100, 200, 666
PEOPLE = {
    ANN: Person("telegram:ann", Right.OPERATE),
    BOB: Person("telegram:200", Right.LOOK),
}


class Chat:
    """Ann may operate, Bob may look."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.now = scene.now / 1e6
        self.talk = Talk(self.ask, me="flyball_bot")
        self.asked: list[tuple[Caller, str, Args]] = []
        self._number = 0

    async def ask(self, caller: Caller, verb: str, args: Args) -> Any:
        self.asked.append((caller, verb, args))
        context = self.scene.context(who=caller.who, channel=caller.channel, right=caller.right)
        return perform(context, verb, args)

    async def says(self, text: str, *, user: int = ANN) -> Reply:
        """What is answered to it."""
        return await self.talk.said(said(text, user=user, at=self.now), PEOPLE[user], self.now)

    async def presses(self, button: Button | str, *, user: int = ANN, where: int | None = None) -> Outcome:
        """What follows."""
        data = button if isinstance(button, str) else button.data
        self._number += 1
        pressed = Pressed(
            number=self._number,
            chat=user if where is None else where,
            private=True,
            sender=user,
            press=f"p{self._number}",
            data=data,
            message=7,
        )
        return await self.talk.pressed(pressed, PEOPLE[user], self.now)

    def orders(self) -> list[tuple[str, str, str]]:
        """The audit trail: who, verb, and why not."""
        return [(one.by, one.verb, one.refused) for one in self.events("ordered")]  # type: ignore[attr-defined]  # by its kind

    def events(self, kind: str) -> list[Event]:
        entries = self.scene.governor.store.entries(limit=10_000, events=[kind])
        return [decode_body(entry.body).event for entry in entries]

    def state(self, unit: str) -> str:
        return str(perform(self.scene.context(), "unit", {"unit": unit}).state)


def said(text: str, *, user: int = ANN, chat: int | None = None, number: int = 1, at: float = 0.0, **more: Any) -> Said:
    """Something that somebody wrote."""
    where = user if chat is None else chat
    return Said(number=number, chat=where, private=where > 0, sender=user, text=text, at=at, **more)


def buttons(reply: Reply) -> dict[str, Button]:
    """Those under it, by what stands on them."""
    return {button.label: button for row in reply.buttons for button in row}
