"""The pages of action links, over HTTP: to open one does nothing, to press its button gives the order, once."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from flyball.control.context import CommandError, Right
from flyball.control.links import KEY_BYTES, LASTS, USED, Links
from flyball.control.web import act
from flyball.errors import StoreFull
from tests.control.web.stage import Service, Stage, staged

UNIT = "quarantined-one"


class Linked:
    """A server with links, and somebody who has no login."""

    def __init__(self, stage: Stage, links: Links) -> None:
        self.stage, self.links = stage, links
        self.scene = stage.service.scene
        self.client = stage.client()

    def path(self, verb: str = "reset", **args: Any) -> str:
        given = args or {"fingerprint": "abcdef"}
        return self.links.url(verb, given, problem="p<1>", channel="phone", label="Reset <abcdef>")

    @property
    def asked(self) -> list[tuple[str, str, Right]]:
        return [(verb, caller.who, caller.right) for caller, verb, _ in self.stage.service.asked]

    @property
    def used(self) -> int:
        return len(self.stage.service.store.states(USED))


def play(folder: Path, case: Callable[[Linked], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        service = Service()
        service.scene.quarantine(UNIT)
        links = Links(service.scene.governor, b"k" * KEY_BYTES, "")
        service.act = act.routes(links, service.ask, asyncio.get_running_loop())
        async with staged(folder, service) as stage:
            await case(Linked(stage, Links(service.scene.governor, b"k" * KEY_BYTES, stage.web.address)))

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_open_and_press(tmp_path: Path) -> None:
    """To open a link says what it orders and does nothing, however often and by whomever; its button gives the order,
    in the name of the link, and the second time it is refused."""

    async def case(linked: Linked) -> None:
        path = linked.path()
        for method in ("GET", "HEAD", "GET"):
            shown = await linked.client.request(method, path)
            assert shown.status_code == 200
        assert "Reset &lt;abcdef&gt;" in shown.text
        assert "p&lt;1&gt;" in shown.text
        assert '<form method="post">' in shown.text
        assert (linked.asked, linked.used) == ([], 0)
        done = await linked.client.post(path)
        assert done.status_code == 200
        assert "forgot 1 kind of failure of 1 unit" in done.text
        assert linked.asked == [("reset", "link:phone", Right.OPERATE)]
        assert not linked.scene.context().look().unit(UNIT).failures
        for method in ("GET", "POST"):
            again = await linked.client.request(method, path)
            assert (again.status_code, "used already" in again.text) == (401, True)
        assert len(linked.asked) == 1

    play(tmp_path, case)


def test_on_the_audit_trail(tmp_path: Path) -> None:
    """What a link ordered is on the audit trail, with the channel that it was sent by."""

    async def case(linked: Linked) -> None:
        await linked.client.post(linked.path())
        admin = linked.stage.client("admin")
        (line,) = (await admin.get("/api/v1/audit")).json()["audit"]
        assert (line["verb"], line["by"], line["channel"], line["refused"]) == ("reset", "link:phone", "link", "")

    play(tmp_path, case)


def test_what_is_none(tmp_path: Path) -> None:
    """Whatever is no link, in whatever way it is asked for, is answered with 401 and a page that says nothing but
    that."""

    async def case(linked: Linked) -> None:
        for token in ("", "x", "a.b", "a/b", "%2e%2e/health", "%00", "%ff", "a" * 2000):
            for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
                answer = await linked.client.request(method, f"/act/{token}")
                assert (answer.status_code, token, method) == (401, token, method)
                assert answer.headers["content-type"].startswith("text/html")
        assert (linked.asked, linked.used) == ([], 0)

    play(tmp_path, case)


def test_too_old_or_changed(tmp_path: Path) -> None:
    """A link that is too old, or was changed, does nothing."""

    async def case(linked: Linked) -> None:
        path, other = linked.path(), linked.path("pause", units=[UNIT])
        mixed = path.rpartition(".")[0] + "." + other.rpartition(".")[2]
        before = linked.scene.clock.now()
        for method in ("GET", "POST"):
            assert (await linked.client.request(method, mixed)).status_code == 401
        linked.scene.clock.set(before + LASTS)
        for method in ("GET", "POST"):
            answer = await linked.client.request(method, path)
            assert (answer.status_code, "too old" in answer.text) == (401, True)
        assert (linked.asked, linked.used) == ([], 0)

    play(tmp_path, case)


def test_no_links(tmp_path: Path) -> None:
    """Where there are no links, every one is wrong."""

    async def whole() -> None:
        service = Service()
        service.act = act.routes(None, service.ask, asyncio.get_running_loop())
        async with staged(tmp_path, service) as stage:
            assert (await stage.client().get("/act/x.y")).status_code == 401

    asyncio.run(whole())


def test_never_more_than_an_operator(tmp_path: Path) -> None:
    """Even a link that was signed for an order of an admin is refused that order."""

    async def case(linked: Linked) -> None:
        from flyball.control import links as module

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_may_be_linked", lambda _: True)
            path = linked.path("settle", unit=UNIT, nothing=True)
        answer = await linked.client.post(path)
        assert answer.status_code == 409
        assert "may operate, but not `settle`" in answer.text

    play(tmp_path, case)


def test_order_that_cannot_be_done(tmp_path: Path) -> None:
    """An order that cannot be done says why, and its link is used up."""

    async def case(linked: Linked) -> None:
        path = linked.path("pause", units=["no-such-unit"])
        answer = await linked.client.post(path)
        assert answer.status_code == 409
        assert "no unit" in answer.text
        assert (await linked.client.post(path)).status_code == 401

    play(tmp_path, case)


def test_store_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it cannot be written that a link is used, nothing is done, and the link stays good."""

    async def case(linked: Linked) -> None:
        path = linked.path()

        def full(*_: object, **__: object) -> None:
            raise StoreFull("no room at /a/secret/path")

        with monkeypatch.context() as without:
            without.setattr(linked.stage.service.store, "transact", full)
            answer = await linked.client.post(path)
        assert (answer.status_code, "secret" in answer.text, linked.asked) == (503, False, [])
        assert (await linked.client.post(path)).status_code == 200

    play(tmp_path, case)


def test_many_press_at_once(tmp_path: Path) -> None:
    """Of many who press at once one order is given."""

    async def case(linked: Linked) -> None:
        path = linked.path()
        answers = await asyncio.gather(*(linked.client.post(path) for _ in range(10)))
        assert sorted(answer.status_code for answer in answers) == [200, *[401] * 9]
        assert len(linked.asked) == 1

    play(tmp_path, case)


def test_headers(tmp_path: Path) -> None:
    """Nobody keeps a page of a link, tells others where it was, or shows it inside another; it loads nothing."""

    async def case(linked: Linked) -> None:
        answer = await linked.client.get(linked.path())
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "http" not in answer.text.partition("<body>")[2]

    play(tmp_path, case)


def test_daemon_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for too long is told that it may still be done; what was begun is not taken back."""
    monkeypatch.setattr(act, "ANSWER_MAX", 0.05)

    async def case(linked: Linked) -> None:
        linked.stage.service.gate = asyncio.Event()
        answer = await linked.client.post(linked.path())
        assert (answer.status_code, "may still be done" in answer.text) == (409, True)
        linked.stage.service.gate.set()
        async with asyncio.timeout(20):
            while linked.scene.context().look().unit(UNIT).failures:
                await asyncio.sleep(0.01)

    play(tmp_path, case)


def test_daemon_is_gone() -> None:
    """When the daemon ends meanwhile, the page says so."""

    async def gone() -> object:
        raise AssertionError("nobody asks a daemon that is gone")

    loop = asyncio.new_event_loop()
    loop.close()

    async def case() -> None:
        with pytest.raises(CommandError, match="ending"):
            await act._asked(gone, loop)

    asyncio.run(case())


def test_another_host(tmp_path: Path) -> None:
    """A link that is asked for under a name that is not ours is refused like everything else."""

    async def case(linked: Linked) -> None:
        answer: httpx.Response = await linked.client.post(linked.path(), headers={"host": "evil.example"})
        assert (answer.status_code, linked.asked) == (403, [])

    play(tmp_path, case)
