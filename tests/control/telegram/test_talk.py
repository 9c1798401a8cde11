"""What people say to the bot, and what follows from it: the real verbs, on a real governor."""

import asyncio
from typing import Any

import pytest

from flyball.config import Settings
from flyball.control.telegram.buttons import data_of
from flyball.control.telegram.messages import Outcome, Reply
from flyball.control.telegram.offers import LASTS, OFFERS_MAX
from flyball.core.event import Answered, Asked, Held, Released
from flyball.core.time import HOUR
from flyball.store.memory import MemoryStore
from tests.control.fleet import lose, three_hosts
from tests.control.scene import Scene
from tests.control.telegram.chat import ANN, BOB, Chat, buttons

PRINT = "abcdef0123456789"


@pytest.fixture
def chat() -> Chat:
    scene = Scene(MemoryStore())
    scene.everything()
    scene.at(0)
    return Chat(scene)


def _say(chat: Chat, text: str, user: int = ANN) -> Reply:
    return asyncio.run(chat.says(text, user=user))


def _press(chat: Chat, button: Any, user: int = ANN, where: int | None = None) -> Outcome:
    return asyncio.run(chat.presses(button, user=user, where=where))


# Looking.


def test_status(chat: Chat) -> None:
    """It says how the fleet is, what is held and why, and what needs a person; whoever may only look may that."""
    for user in (ANN, BOB):
        text = _say(chat, "/status", user).text
        assert text.startswith("<b>running</b>: 1 of 8 units run\n")
        assert "1 quarantined" in text
        assert "<b>quarantined-one</b> quarantined\nexit 3, 6 times (<code>abcdef01</code>)" in text
        assert "<b>halted-one</b> halted" in text
        assert "2 problems: /problems" in text


def test_status_of_one(chat: Chat) -> None:
    """With a name it is what /why says."""
    assert _say(chat, "/status halted-one") == _say(chat, "/why halted-one")


def test_why(chat: Chat) -> None:
    """The reasons with their numbers, the failures, the last exit, and what happened last."""
    text = _say(chat, "/why quarantined-one", BOB).text
    assert text.startswith("<b>quarantined-one</b> is quarantined for ")
    assert "6 times" in text
    assert "<code>abcdef01</code> exit 3" in text
    assert "last exit " in text
    assert "exited: error: exit 3 (abcdef01)" in text


def test_problems(chat: Chat) -> None:
    """Each with its id, and buttons for what somebody of that right may do about it."""
    reply = _say(chat, "/problems")
    assert reply.text.startswith("<b>2 problems</b>")
    assert f"<code>quarantined-one:quarantined:{PRINT[:8]}</code>" in reply.text
    assert "Reset abcdef01: quarantined-one" in buttons(reply)
    assert not _say(chat, "/problems", BOB).buttons


def test_help(chat: Chat) -> None:
    """It lists what somebody of that right may say."""
    assert "/reset_all" in _say(chat, "/help").text
    assert "/reset" not in _say(chat, "/help", BOB).text
    assert "/why NAME" in _say(chat, "/start", BOB).text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("hello", "I take commands: /help lists them."),
        ("/statsu", "No command <code>/statsu</code>. Did you mean /status? /help lists them."),
        ("/<b>", "No command <code>/&lt;b&gt;</code>. /help lists them."),
        ("/why", "Not done: one name is needed\n<i>Write /why NAME.</i>"),
        ("/why a b", "Not done: one name is needed, and not 2\n<i>Write /why NAME.</i>"),
        ("/pause", "Not done: a name is needed\n<i>Write /pause NAME, or /pause all.</i>"),
        ("/reset", "Not done: one name is needed\n<i>Write /reset FINGERPRINT, or /reset_all.</i>"),
        ("/ack", "Not done: one name is needed\n<i>Write /ack PROBLEM; /problems lists them.</i>"),
        ("/snooze x soon", "Not done: 'soon' is not a length of time"),
        ("/why halted-on", "Not done: no unit 'halted-on'; did you mean halted-one or"),
        ("/reset 77", "Not done: no failure has a fingerprint that begins with '77'"),
        ("/answer nobody yes", "Not done: nobody asks something with the id or name 'nobody'"),
        ("/approve", "Nobody asks anything."),
    ],
)
def test_wrong(text: str, answer: str, chat: Chat) -> None:
    """What cannot be done is answered with why, and what to do; nothing is ordered."""
    before = chat.scene.governor.store.read(()).seq
    assert _say(chat, text).text.startswith(answer)
    assert [order for order in chat.orders() if not order[2]] == []
    assert chat.scene.governor.store.read(()).seq - before <= 1  # the line of the audit trail


# Ordering.


@pytest.mark.parametrize(
    "text", ["/reset abc", "/reset@flyball_bot abcdef0123456789", "/RESET abcdef01", "/reset\nabc"]
)
def test_reset(text: str, chat: Chat) -> None:
    """One failure is forgotten, by the first digits of its fingerprint; the journal says who did it, and how."""
    reply = _say(chat, text)
    assert reply.text.startswith("Done: reset.\n")
    assert "<b>quarantined-one</b>: exit 3 6 times" in reply.text
    assert chat.state("quarantined-one") != "quarantined"
    assert chat.orders() == [("telegram:ann", "reset", "")]
    (released,) = chat.events("released")
    assert isinstance(released, Released)
    assert (released.by, released.note, released.fingerprint) == ("telegram:ann", "via telegram", PRINT)


@pytest.mark.parametrize("text", ["/reset_all", "/reset-all", "/Reset-All@flyball_bot", "/reset all"])
def test_reset_all_asks(text: str, chat: Chat) -> None:
    """All failures are forgotten only after a yes to a question that has the count."""
    reply = _say(chat, text)
    assert reply.text.startswith("Forget ")
    assert "of 4 units, and lift their quarantines?" in reply.text
    assert not chat.events("released")
    outcome = _press(chat, buttons(reply)["Yes, reset 4 units"])
    assert outcome.edit is not None
    assert outcome.edit.text.startswith("Done: reset.\n")
    assert chat.state("quarantined-one") != "quarantined"
    assert chat.orders() == [("telegram:ann", "reset", "")]
    assert _say(chat, text).text == "No failure is remembered: there is nothing to reset."


def test_no(chat: Chat) -> None:
    """After a no nothing is done, and the yes beside it is void."""
    both = buttons(_say(chat, "/reset_all"))
    outcome = _press(chat, both["No"])
    assert outcome.edit == Reply("Nothing was done.")
    assert _press(chat, both["Yes, reset 4 units"]).toast == "This was done, or is too old. Ask again."
    assert not chat.events("released")


def test_pressed_twice(chat: Chat) -> None:
    """A yes counts once."""
    yes = buttons(_say(chat, "/reset_all"))["Yes, reset 4 units"]
    _press(chat, yes)
    released = len(chat.events("released"))
    assert _press(chat, yes).toast == "This was done, or is too old. Ask again."
    assert len(chat.events("released")) == released


def test_pressed_by_another(chat: Chat) -> None:
    """Only who asked may say yes, and only where it was asked; the question stays open for them."""
    yes = buttons(_say(chat, "/reset_all"))["Yes, reset 4 units"]
    assert _press(chat, yes, BOB).toast == "Only who asked may press this."
    assert _press(chat, yes, BOB, where=ANN).toast == "Only who asked may press this."
    assert _press(chat, yes, where=-5).toast == "Only who asked may press this."
    assert not chat.events("released")
    assert _press(chat, yes).edit is not None
    assert chat.events("released")


@pytest.mark.parametrize(("seconds", "counts"), [(LASTS - 1, True), (LASTS, False), (LASTS + 3600, False)])
def test_pressed_late(seconds: float, counts: bool, chat: Chat) -> None:
    """A question can be answered for five minutes."""
    yes = buttons(_say(chat, "/reset_all"))["Yes, reset 4 units"]
    chat.now += seconds
    outcome = _press(chat, yes)
    assert (outcome.toast == "This is too old. Ask again.") is not counts
    assert bool(chat.events("released")) is counts


def test_many_questions(chat: Chat) -> None:
    """So many can be open; the oldest are void first."""
    first = buttons(_say(chat, "/reset_all"))["Yes, reset 4 units"]
    for _ in range(OFFERS_MAX // 2):
        last = buttons(_say(chat, "/reset_all"))["Yes, reset 4 units"]
    assert "too old" in _press(chat, first).toast
    assert _press(chat, last).edit is not None


def test_nobody_elses_button(chat: Chat) -> None:
    """What a changed client makes up is nothing."""
    assert "too old" in _press(chat, "of:0000").toast
    assert "another version" in _press(chat, "rm -rf").toast
    assert _press(chat, data_of("pause", {"all": True})).toast == "That is settled already."
    assert not chat.orders()


def test_pause_and_resume(chat: Chat) -> None:
    """A unit is paused, and goes on."""
    assert _say(chat, "/pause healthy-one").text == "Done: pause.\n<b>healthy-one</b> is paused"
    (*_, held) = chat.events("held")
    assert isinstance(held, Held)
    assert (held.unit, held.by, held.note) == ("healthy-one", "telegram:ann", "via telegram")
    assert "healthy-one" in _say(chat, "/resume healthy-one").text
    assert chat.state("healthy-one") != "paused"
    assert chat.orders() == [("telegram:ann", "pause", ""), ("telegram:ann", "resume", "")]


def test_pause_all_asks(chat: Chat) -> None:
    """The whole fleet is paused only after a yes, and /resume lets it go on."""
    reply = _say(chat, "/pause all")
    assert reply.text == "Pause all 8 units? 1 of them run now, and are ended."
    assert not chat.orders()
    _press(chat, buttons(reply)["Yes, pause 8"])
    assert _say(chat, "/status").text.startswith("<b>paused</b>")
    assert _say(chat, "/resume").text.startswith("Done: resume.")
    assert _say(chat, "/status").text.startswith("<b>running</b>")
    assert _say(chat, "/resume").text.startswith("There was nothing to resume.")


def test_resume_all_asks(chat: Chat) -> None:
    """All that waits for a person goes on only after a yes that names it."""
    reply = _say(chat, "/resume all")
    assert reply.text == "Resume halted-one, paused-one?"
    _press(chat, buttons(reply)["Yes, resume 2"])
    assert chat.state("halted-one") != "halted"
    assert _say(chat, "/resume all").text == "Nothing waits for a person: there is nothing to resume."


@pytest.mark.parametrize("text", ["/pause healthy-one", "/reset abc", "/reset_all", "/pause all", "/resume", "/ack x"])
def test_only_looking(text: str, chat: Chat) -> None:
    """Who may look may order nothing."""
    before = chat.scene.governor.store.states()
    assert "200 may look, but not" in _say(chat, text, BOB).text
    assert chat.scene.governor.store.states() == before


# Questions.


def _asks(chat: Chat, id_: str = "3fa90001", choices: tuple[str, ...] = ("yes", "no"), text: str = "Deploy?") -> None:
    run = chat.scene.governor.live_runs("healthy-one")[0][1]
    chat.scene.governor.submit(Asked(unit="healthy-one", run=run, id=id_, text=text, choices=choices))


@pytest.mark.parametrize(
    "text", ["/approve", "/approve 3fa", "/approve healthy-one", "/answer 3fa yes", "/answer healthy-one YES"]
)
def test_approve(text: str, chat: Chat) -> None:
    """What a unit asks is answered, by its id, its unit's name, or just so if nothing else is asked."""
    _asks(chat)
    assert "answered: yes" in _say(chat, text).text
    (answered,) = chat.events("answered")
    assert isinstance(answered, Answered)
    assert (answered.answer, answered.by, answered.note) == ("yes", "telegram:ann", "via telegram")


def test_approve_which(chat: Chat) -> None:
    """If more than one thing is asked, they are listed with their answers as buttons."""
    _asks(chat)
    _asks(chat, "77770000", ("blue", "red"), "Which <colour>?")
    reply = _say(chat, "/approve")
    assert reply.text.startswith("<b>2 questions</b>")
    assert "Which &lt;colour&gt;?" in reply.text
    assert not chat.events("answered")
    outcome = _press(chat, buttons(reply)["red: healthy-one"])
    assert "answered: red" in outcome.replies[0].text
    assert "answered: no" in _say(chat, "/answer 3fa no").text


# Problems.


def test_button_of_a_problem(chat: Chat) -> None:
    """A button under the list of problems does what it says, once."""
    button = buttons(_say(chat, "/problems"))["Reset abcdef01: quarantined-one"]
    (reply,) = _press(chat, button).replies
    assert reply.text.startswith("Done: reset.")
    assert chat.state("quarantined-one") != "quarantined"
    assert "too old" in _press(chat, button).toast


@pytest.mark.parametrize("digits", [8, 16])
def test_button_of_an_alert(digits: int, chat: Chat) -> None:
    """A button under an alert does what the problem still offers, for whoever may do that; of a settled one nothing."""
    data = data_of("reset", {"fingerprint": PRINT[:digits]})
    assert len(data.encode()) <= 64
    (reply,) = _press(chat, data, BOB).replies
    assert "may look, but not" in reply.text
    (reply,) = _press(chat, data, where=-100).replies
    assert reply.text.startswith("Done: reset.")
    assert chat.state("quarantined-one") != "quarantined"
    assert _press(chat, data).toast == "That is settled already."


def test_seen_by_a_button(chat: Chat) -> None:
    """A button under an alert says that somebody has seen it."""
    data = data_of("acknowledge", {"problem": f"quarantined-one:quarantined:{PRINT[:8]}"})
    (reply,) = _press(chat, data).replies
    assert reply.text.startswith("Done: acknowledge.")
    assert "(seen)" in _say(chat, "/problems").text
    assert chat.orders() == [("telegram:ann", "acknowledge", "")]


def test_destructive_button_of_an_alert(chat: Chat) -> None:
    """What concerns all units asks back first."""
    scene = chat.scene
    for number in range(5):
        scene.start(f"u{number}")
        scene.exit(f"u{number}", fingerprint=f"{number:016x}")
    data = data_of("reset", {"breaker": "fleet"})
    (question,) = _press(chat, data).replies
    assert "Close the circuit" in question.text
    assert not chat.orders()
    outcome = _press(chat, buttons(question)["Yes"])
    assert outcome.edit is not None
    assert "circuit fleet is closed" in outcome.edit.text


def test_acknowledge_and_snooze(chat: Chat) -> None:
    """A problem that somebody has seen is said to be seen; one that is snoozed comes back."""
    problem = f"quarantined-one:quarantined:{PRINT[:8]}"
    assert _say(chat, f"/ack {problem}").text.startswith("Done: acknowledge.")
    assert "(seen)" in _say(chat, "/problems").text
    assert "1 problem: /problems" in _say(chat, "/status").text
    assert _say(chat, f"/snooze {problem} 2h").text.startswith("Done: snooze.")
    assert "(snoozed)" in _say(chat, "/problems").text
    chat.scene.clock.move(3 * HOUR)
    assert "(snoozed)" not in _say(chat, "/problems").text


@pytest.mark.parametrize(
    ("text", "mine"),
    [
        ("/status", True),
        ("/status@flyball_bot", True),
        ("/status@FLYBALL_BOT x", True),
        ("/status@other_bot", False),
        ("status", False),
        ("a /status", False),
        ("", False),
    ],
)
def test_for_whom(text: str, mine: bool, chat: Chat) -> None:
    """In a group a command may be for another bot."""
    assert chat.talk.is_for_me(text) is mine


# Hosts.


@pytest.fixture
def fleet() -> Chat:
    scene = Scene(MemoryStore(), ago=0)
    units = {"web": {"command": ["true"]}, "gpu": {"command": ["true"], "host": "b"}}
    three_hosts(scene, {"b": ["web", "gpu"]}, Settings.model_validate({"units": units}))
    lose(scene.governor, "c", runs=2, by="a")
    return Chat(scene)


def test_hosts(fleet: Chat, chat: Chat) -> None:
    """Who lives and runs how much, and who is lost; in the status too, and of a unit where it runs. Whoever may only
    look may that."""
    text = _say(fleet, "/hosts", BOB).text
    assert text.startswith("<b>3 hosts</b>\n<b>a</b> up for 0 s: runs 0 units\n<b>b</b> up for 0 s: runs 2 units\n")
    assert "<b>c</b> lost for 0 s: had 2 units" in text
    assert "<b>host c lost</b>: its lease ran out, a found; it had 2 runs, which others take over" in text
    assert _say(fleet, "/status").text.startswith(
        "<b>running</b>: 2 of 2 units run on 2 hosts\n<b>Lost:</b> c: /hosts\n"
    )
    assert _say(fleet, "/why web").text.startswith("<b>web</b> is healthy for 0 s, on b\n")
    assert (
        _say(chat, "/hosts").text
        == "There are no hosts: they share a PostgreSQL (`store: postgresql://…`), and one runs where a daemon does."
    )


def test_drain(fleet: Chat) -> None:
    """It asks back with what would go and what would run nowhere; then it is done, and undone by a word."""
    reply = _say(fleet, "/drain b")
    assert reply.text == ("Drain <b>b</b>? It takes no units any more.\ngo to others: web\nwould run nowhere: gpu")
    assert "draining" not in _say(fleet, "/hosts").text
    outcome = _press(fleet, reply.buttons[0][0])
    assert outcome.edit is not None
    assert "b drains: 1 unit left to others" in outcome.edit.text
    assert "<b>b</b> draining" in _say(fleet, "/hosts").text
    assert _say(fleet, "/drain b").text == "<b>b</b> drains already. /undrain b ends that."
    assert "b takes units again" in _say(fleet, "/undrain b").text
    assert "may look, but not" in _say(fleet, "/undrain b", BOB).text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("/drain", "Not done: one name is needed\n<i>Write /drain HOST; /hosts lists them.</i>"),
        ("/drain x", "Not done: no host 'x'; there are a, b"),
        ("/drain c", "Not done: the host c is lost"),
    ],
)
def test_wrong_host(text: str, answer: str, fleet: Chat) -> None:
    """What cannot be done is answered with why."""
    assert _say(fleet, text).text.startswith(answer)
