"""What people order, and through what: the same words by the local socket, by the API and on the command line."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flyball.cli import main
from flyball.control.client import SOCKET, connect
from flyball.control.commands import answer, serve_line
from flyball.control.server import Server
from flyball.core.decision import Verb
from flyball.core.event import Booted, Held, Start
from flyball.core.time import HOUR, MINUTE
from flyball.store.memory import MemoryStore
from tests.cli.state import alone
from tests.cli.state import scene as scene_of
from tests.control.scene import Scene
from tests.control.web.stage import Service, Stage, on_stage

KIND, OTHER = "abcdef0123456789", "0123456789abcdef"
WAIT_MAX = 30.0

Ask = Callable[..., Any]
Case = Callable[[Scene, Ask], None]


@contextmanager
def socket_of(scene: Scene, folder: Path) -> Iterator[Ask]:
    """The local socket, as a daemon serves it."""
    loop = asyncio.new_event_loop()

    async def serve(_uid: int, line: bytes) -> bytes:
        return await asyncio.to_thread(serve_line, scene.context(channel="socket"), line)

    server = Server(folder / SOCKET, serve)
    loop.run_until_complete(server.open())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    client = connect(folder)
    assert client is not None
    try:
        with client:
            yield lambda verb, **args: client.ask(verb, args)
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(WAIT_MAX)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_MAX)
        loop.close()


def by_socket(folder: Path, case: Case) -> None:
    scene = Scene(MemoryStore())
    with socket_of(scene, folder) as ask:
        case(scene, ask)


def by_api(folder: Path, case: Case) -> None:
    """The HTTP API, as somebody with a token of an operator."""
    service = Service()

    async def play(stage: Stage) -> None:
        client, loop = stage.client("operate"), asyncio.get_running_loop()

        async def request(verb: str, args: dict[str, Any]) -> Any:
            looks = verb in ("status", "problems", "failures", "audit", "state")
            path = f"/api/v1/{verb}"
            said = await (client.get(path, params=args) if looks else client.post(path, json=args))
            assert said.status_code == 200, said.text
            return said.json()

        def ask(verb: str, **args: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(request(verb, args), loop).result(WAIT_MAX)

        await asyncio.to_thread(case, service.scene, ask)

    on_stage(folder, play, service=service)


@pytest.fixture(params=[by_socket, by_api], ids=["socket", "api"])
def through(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Case], None]:
    """Plays a case through one channel."""
    return lambda case: request.param(tmp_path, case)


def states(ask: Ask) -> dict[str, str]:
    return {unit["name"]: unit["state"] for unit in ask("status")["units"]}


def test_quarantine_waits_for_a_person(through: Callable[[Case], None]) -> None:
    """S0-36: At the sixth failure it is a problem of the worst kind, with what to do about it; one, not six."""

    def case(scene: Scene, ask: Ask) -> None:
        scene.quarantine("coder", KIND)
        [problem] = ask("problems")["problems"]
        assert (problem["unit"], problem["code"], problem["severity"]) == ("coder", "quarantined", "critical")
        assert (problem["fingerprint"], problem["count"]) == (KIND, 6)
        assert problem["actions"][0]["verb"] == "reset"

    through(case)


def test_reset_of_one(through: Callable[[Case], None]) -> None:
    """S0-37: `reset <fingerprint>` forgets that failure, in every unit that has it, and no other; who did it is
    on record."""

    def case(scene: Scene, ask: Ask) -> None:
        scene.quarantine("coder", KIND)
        scene.quarantine("other", OTHER)
        ask("reset", fingerprint=KIND[:6])
        assert states(ask)["other"] == "quarantined"
        assert states(ask)["coder"] != "quarantined"
        assert [one["fingerprint"] for one in ask("failures")["failures"]] == [OTHER]
        assert [(line["verb"], line["asked"]) for line in ask("audit")["audit"]] == [("reset", "fingerprint=abcdef")]

    through(case)


def test_reset_of_all(through: Callable[[Case], None]) -> None:
    """S0-38: `reset --all` forgets everything; what it would forget can be seen before."""

    def case(scene: Scene, ask: Ask) -> None:
        scene.quarantine("coder", KIND)
        scene.quarantine("other", OTHER)
        would = ask("reset", all=True, dry_run=True)
        assert {one["unit"] for one in would["cleared"]} == {"coder", "other"}
        assert set(states(ask).values()) == {"quarantined"}
        assert {one["unit"] for one in ask("reset", all=True)["cleared"]} == {"coder", "other"}
        assert ask("failures")["failures"] == []

    through(case)


def test_status(through: Callable[[Case], None]) -> None:
    """S0-39: `status` names what is quarantined, and why."""

    def case(scene: Scene, ask: Ask) -> None:
        scene.quarantine("coder", KIND)
        scene.start("fine")
        said = {unit["name"]: unit for unit in ask("status")["units"]}
        assert {name: unit["state"] for name, unit in said.items()} == {"coder": "quarantined", "fine": "healthy"}
        assert "6 failures of exit 3 (abcdef01)" in said["coder"]["reasons"][0]["text"]

    through(case)


def test_resume(through: Callable[[Case], None]) -> None:
    """S0-40: `resume` ends a pause that a storm brought about, and nothing else does."""

    def case(scene: Scene, ask: Ask) -> None:
        for number in range(11):
            scene.fail(f"u{number}", f"{number:016x}", lives=0)
        scene.governor.submit(Booted(holder="here", units=11))
        assert ask("status")["fleet"]["state"] == "paused"
        scene.clock.move(HOUR)
        assert ask("status")["fleet"]["state"] == "paused"
        ask("resume")
        assert ask("status")["fleet"]["state"] == "running"

    through(case)


def test_who_did_it(through: Callable[[Case], None]) -> None:
    """S0-41: Commands come by the API as well as by the socket, and the audit trail tells them apart."""

    def case(scene: Scene, ask: Ask) -> None:
        scene.start("web")
        ask("pause", units=["web"])
        [line] = ask("audit")["audit"]
        assert (line["verb"], line["effect"]) == ("pause", "web paused")
        assert line["channel"] in ("socket", "http")
        assert line["by"]
        assert scene.governor.look(Start(unit="web", run="next")).verb is Verb.HOLD

    through(case)


def test_commands_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S0-37, S0-39, S0-41: The same words, on the store, where no daemon runs."""
    states = alone(tmp_path, monkeypatch)
    with scene_of(states) as made:
        made.quarantine("coder", KIND)
    main(["status"])
    assert "quarantined" in capsys.readouterr().out
    assert main(["reset", KIND[:6]]) == 0
    capsys.readouterr()
    main(["status"])
    assert "quarantined" not in capsys.readouterr().out
    with scene_of(states) as again:
        [line] = answer(again.context(), "audit", {})["audit"]
    assert (line["verb"], line["channel"]) == ("reset", "cli")


# The local socket.


def test_state_over_the_socket(tmp_path: Path) -> None:
    """S4-18, S4-20: `state` says healthy, degraded or halted, in just these words, with the flaps in a row."""
    scene = Scene(MemoryStore())
    with socket_of(scene, tmp_path) as ask:
        scene.start("web")
        assert ask("state", unit="web") == {"state": "healthy", "consecutive_flaps": 0, "exits_in_window": 0}
        scene.flap("web", 3)
        assert ask("state", unit="web") == {"state": "degraded", "consecutive_flaps": 1, "exits_in_window": 3}
        scene.flap("web", 4)
        assert ask("state", unit="web") == {"state": "halted", "consecutive_flaps": 5, "exits_in_window": 7}


def test_resume_over_the_socket(tmp_path: Path) -> None:
    """S4-17: `resume` leaves a halt: healthy, an empty history, no flaps; the next exit is the first again."""
    scene = Scene(MemoryStore())
    with socket_of(scene, tmp_path) as ask:
        scene.flap("web", 7)
        scene.clock.move(HOUR)
        assert ask("state", unit="web")["state"] == "halted"
        ask("resume", units=["web"])
        assert ask("state", unit="web") == {"state": "healthy", "consecutive_flaps": 0, "exits_in_window": 0}
        scene.clock.move(MINUTE)
        scene.flap("web", 1)
        assert ask("state", unit="web") == {"state": "healthy", "consecutive_flaps": 0, "exits_in_window": 1}


def test_a_pause_that_a_person_ordered_is_no_problem(tmp_path: Path) -> None:
    """S0-36: Whoever ordered a pause knows: only what nobody ordered waits for a person."""
    scene = Scene(MemoryStore())
    with socket_of(scene, tmp_path) as ask:
        scene.start("web")
        scene.governor.submit(Held(unit="web", by="ann"))
        assert ask("problems")["problems"] == []
