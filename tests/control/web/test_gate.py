"""Who comes in, and who does not: no path without a token, no page of others, no name that is not ours."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from flyball.control.context import Right
from flyball.control.web import app
from flyball.control.web.attempts import OF_ALL_MAX, OF_ONE_MAX, WINDOW, Attempts
from flyball.control.web.gate import OPEN, Hosts
from flyball.control.web.logins import Logins
from flyball.control.web.streams import Streams
from flyball.control.web.tokens import Tokens
from flyball.control.web.verbs import method_of, served
from tests.control.web.stage import HTML, ROLES, Service, Stage, on_stage, until


def all_routes(folder: Path) -> list[tuple[str, str]]:
    """Every method and path of the app."""

    async def made() -> list[tuple[str, str]]:
        service, tokens = Service(), Tokens(folder)
        house = app.House(
            service=service,
            home=asyncio.get_running_loop(),
            tokens=tokens,
            logins=Logins(folder, tokens),
            attempts=Attempts(),
            hosts=Hosts("127.0.0.1", ()),
            streams=Streams(service),
            is_ready=lambda: True,
        )
        return [
            (method, re.sub(r"\{[^}]*\}", "app.js", route.path))
            for route in app.routes(house)
            if isinstance(route, Route)
            for method in sorted(route.methods or ())
        ]

    return asyncio.run(made())


def test_no_path_without_a_token(tmp_path: Path) -> None:
    """Every route but health, with every method, and every path that is none: 401, and the daemon is asked nothing."""
    routes = all_routes(tmp_path / "other")
    paths = {path for _, path in routes} - {*OPEN, "/login/app.js"}
    assert len(paths) > 20
    tried = [*((method, path) for path in paths for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"))]
    odd = "/nothing /api/v1/nothing /static/../../tokens.py // /health/x /loginx /login/ /login/a/b /act"
    tried += [("GET", path) for path in odd.split()]

    async def case(stage: Stage) -> None:
        bare, wrong = stage.client(), stage.client(cookie=f"flyball_{stage.port}=made-up")
        for method, path in tried:
            for client in (bare, wrong):
                answer = await client.request(method, path)
                assert answer.status_code == 401, (method, path)
                assert answer.headers["www-authenticate"].startswith("Bearer")
                if method != "HEAD":
                    assert answer.json()["error"]["code"] == "unauthorized"
        assert [(await bare.get(path)).status_code for path in OPEN] == [200, 503, 401]
        assert stage.service.asked == []

    on_stage(tmp_path, case)


def test_a_browser_is_shown_the_form(tmp_path: Path) -> None:
    """As the body of the 401; it needs nothing from elsewhere, and its policy lets nothing else in."""

    async def case(stage: Stage) -> None:
        answer = await stage.client(**HTML).get("/")
        assert answer.status_code == 401
        assert 'action="/login"' in answer.text
        assert not re.search(r"<script|https?://|src=|@import|url\(", answer.text)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"https?:|\*", policy)

    on_stage(tmp_path, case)


def test_every_answer_is_kept_from_others(tmp_path: Path) -> None:
    """Nothing lets another page read or frame it, and nothing is kept by a browser or a proxy."""

    async def case(stage: Stage) -> None:
        for client in (stage.client(origin="http://evil.example"), stage.client("admin", origin="http://evil.example")):
            for path in ("/health", "/api/v1/status", "/", "/login", "/nothing", "/openapi.json"):
                answer = await client.get(path)
                assert not [name for name in answer.headers if name.startswith("access-control")]
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
                assert answer.headers["cache-control"] in ("no-store", "no-cache")
            assert "access-control-allow-origin" not in (await client.options("/api/v1/status")).headers

    on_stage(tmp_path, case)


@pytest.mark.parametrize("role", ROLES)
def test_each_verb_with_each_role(tmp_path: Path, role: str) -> None:
    """The registry says which role a verb needs; with less it is refused, and nothing else is."""
    right = ROLES[role]

    async def case(stage: Stage) -> None:
        stage.service.scene.start("web")
        client = stage.client(role)
        for name, command in served().items():
            answer = await client.request(method_of(command), f"/api/v1/{name}")
            refused = answer.status_code == 403 and answer.json()["error"]["code"] == "forbidden"
            assert refused == (right < command.right), (name, answer.text)
            caller, verb, _ = stage.service.asked[-1]
            assert (caller.who, caller.channel, caller.right, verb) == (role, "http", right, name)

    on_stage(tmp_path, case)


def test_what_is_for_the_machine_alone() -> None:
    """Who may come in is not changed by whoever came in."""
    from flyball.control.commands import COMMANDS

    kept = COMMANDS.keys() - served().keys()
    assert kept == {"login_link", "token_add", "token_remove"}
    assert all(COMMANDS[name].right is Right.ADMIN and COMMANDS[name].local for name in kept)


HOSTS: Any = [
    ("127.0.0.1:{port}", (), True),
    ("localhost:{port}", (), True),
    ("LOCALHOST:{port}", (), True),
    ("127.0.0.2:{port}", (), True),
    ("[::1]:{port}", (), True),
    ("evil.example:{port}", (), False),
    ("evil.example", (), False),
    ("127.0.0.1.evil.example:{port}", (), False),
    ("localhost.evil.example:{port}", (), False),
    ("192.168.1.5:{port}", (), False),
    ("127.0.0.1:1", (), False),
    ("127.0.0.1:{port}@evil.example", (), False),
    ("user@127.0.0.1:{port}", (), False),
    ("", (), False),
    ("[", (), False),
    ("127.0.0.1:x", (), False),
    ("flyball.example", ("flyball.example",), True),
    ("Flyball.Example:443", ("flyball.example",), True),
    ("a.flyball.example", ("flyball.example",), False),
]


@pytest.mark.parametrize(("host", "more", "known"), HOSTS)
def test_names_that_are_not_ours(tmp_path: Path, host: str, more: tuple[str, ...], known: bool) -> None:
    """A name that was made to point here (DNS rebinding) gets nothing, not even with a good token."""

    async def case(stage: Stage) -> None:
        reader, writer = await stage.connect()
        lines = ["GET /api/v1/me HTTP/1.1", f"host: {host.format(port=stage.port)}", "connection: close"]
        lines.append(f"authorization: Bearer {stage.token()}")
        writer.write("\r\n".join([*lines, "", ""]).encode())
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200" if known else b"HTTP/1.1 403")
        assert known or b"bad_host" in answer

    on_stage(tmp_path, case, hosts=more)


def test_numbers_of_a_machine_that_others_reach() -> None:
    """Where it listens for other machines, every number is good, and no name that is not set."""
    hosts = Hosts("192.168.1.5", ())
    hosts.port = 8910
    assert hosts.knows("192.168.1.5:8910")
    assert hosts.knows("[fe80::1]:8910")
    assert not hosts.knows("machine:8910")


ORIGINS: Any = [
    # what the browser says of the page: origin, sec-fetch-site, the csrf header, what becomes of a change
    ("own", "same-origin", "good", 200),
    ("own", None, "good", 200),
    (None, "same-origin", "good", 200),
    ("own", "same-origin", "none", 403),
    ("own", "same-origin", "bad", 403),
    ("http://evil.example", "cross-site", "good", 403),
    ("http://evil.example", None, "good", 403),
    ("http://127.0.0.1:1", "same-site", "good", 403),
    ("null", "cross-site", "good", 403),
    (None, "cross-site", "good", 403),
    (None, "same-site", "good", 403),
    (None, None, "good", 403),
    ("own", "cross-site", "good", 403),
]


@pytest.mark.parametrize(("origin", "site", "csrf", "status"), ORIGINS)
def test_changes_by_cookie(tmp_path: Path, origin: str | None, site: str | None, csrf: str, status: int) -> None:
    """Only a page of ours, which knows what others cannot read, changes anything with a cookie."""

    async def case(stage: Stage) -> None:
        stage.service.scene.start("web")
        browser = await stage.browser()
        good = browser.headers["x-flyball-csrf"]
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        headers = {"cookie": cookie}
        if origin is not None:
            headers["origin"] = stage.web.address if origin == "own" else origin
        if site is not None:
            headers["sec-fetch-site"] = site
        if csrf != "none":
            headers["x-flyball-csrf"] = good if csrf == "good" else good[::-1]
        before = len(stage.service.asked)
        answer = await stage.client().post("/api/v1/pause", json={"units": ["web"]}, headers=headers)
        assert answer.status_code == status, answer.text
        assert len(stage.service.asked) == before + (status == 200)
        if status == 200:
            assert stage.service.asked[-1][0].channel == "page"

    on_stage(tmp_path, case)


def test_looks_by_cookie_from_other_pages(tmp_path: Path) -> None:
    """A page of others cannot even look; following a link to the page is no page's doing."""

    async def case(stage: Stage) -> None:
        browser = await stage.browser()
        del browser.headers["origin"]
        for site, mode, dest, status in [
            ("same-origin", "cors", "empty", 200),
            ("none", "navigate", "document", 200),
            ("same-site", "no-cors", "script", 403),
            ("cross-site", "no-cors", "image", 403),
            ("same-site", "navigate", "iframe", 403),
            ("cross-site", "navigate", "document", 200),
        ]:
            headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
            assert (await browser.get("/api/v1/me", headers=headers)).status_code == status

    on_stage(tmp_path, case)


def test_a_token_beats_a_cookie(tmp_path: Path) -> None:
    """A wrong token is not mended by a cookie that came with it."""

    async def case(stage: Stage) -> None:
        browser = await stage.browser()
        assert (await browser.get("/api/v1/me", headers={"authorization": "Bearer x"})).status_code == 401
        for odd in ("Basic YTpi", "Bearer", "", "Bearer " + "x" * 5000, f"Bearer {stage.token()}x"):
            assert (await browser.get("/api/v1/me", headers={"authorization": odd})).status_code == 401

    on_stage(tmp_path, case)


# Too many failures.


def test_attempts() -> None:
    """So many of one address, and of all; then a wait that ends by itself. Others are not kept out by one."""
    now = [0.0]
    attempts = Attempts(lambda: now[0])
    for number in range(OF_ONE_MAX):
        assert attempts.wait("a") == 0
        now[0] = number * 0.1
        attempts.failed("a")
    assert attempts.wait("a") == pytest.approx(WINDOW - now[0], abs=0.2)
    assert attempts.wait("b") == 0
    now[0] = WINDOW - 0.001
    assert attempts.wait("a") > 0
    now[0] = WINDOW + 0.001
    assert attempts.wait("a") == 0
    now[0] = 10 * WINDOW
    for number in range(OF_ALL_MAX):
        assert attempts.wait(str(number)) == 0
        attempts.failed(str(number))
    assert attempts.wait("somebody else") > 0
    now[0] += WINDOW + 0.001
    assert attempts.wait("somebody else") == 0


def test_too_many_logins_fail(tmp_path: Path) -> None:
    """Then no other one is tried for a while, by form, as JSON or by a link; but nobody shuts the owner out by that:
    who is in stays in, and the right token still logs in."""

    async def case(stage: Stage) -> None:
        client, inside = stage.client(), await stage.browser()
        for _ in range(OF_ONE_MAX // 2):
            assert (await client.post("/login", json={"token": "guess"})).status_code == 401
            assert (await client.post("/login", data={"token": "guess"})).status_code == 401
        for given in ({"json": {"token": "guess"}}, {"data": {"token": "guess"}}):
            answer = await client.post("/login", **given)  # type: ignore[arg-type]  # of httpx, by name
            assert answer.status_code == 429
            assert 0 < int(answer.headers["retry-after"]) <= WINDOW + 1
        assert (await client.post("/login", json={"token": stage.token()})).status_code == 200
        assert (await client.post("/login", data={"token": stage.token()})).status_code == 303
        wrong = await stage.client(authorization="Bearer guess").get("/api/v1/me")
        assert wrong.status_code == 429
        assert (await stage.client().get("/login/guess")).status_code == 429
        assert (await inside.get("/api/v1/me")).status_code == 200
        assert (await stage.client("admin").get("/api/v1/me")).status_code == 200
        link, _ = stage.web.link()
        assert (await stage.client().get(link)).status_code == 303

    on_stage(tmp_path, case)


# The tokens file goes bad.


def test_a_tokens_file_that_others_can_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody comes in while it is so, and the log says once what to do; then all is well again."""

    async def case(stage: Stage) -> None:
        client, browser = stage.client("admin"), await stage.browser()
        assert (await client.get("/api/v1/me")).status_code == 200
        stage.tokens.path.chmod(0o644)
        for one in (client, browser, client):
            answer = await one.get("/api/v1/me")
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "tokens_refused"
            assert str(tmp_path) not in answer.text
        assert (await stage.client().post("/login", json={"token": "x"})).status_code == 503
        assert (await client.get("/health")).status_code == 200
        stage.tokens.path.chmod(0o600)
        assert (await client.get("/api/v1/me")).status_code == 200

    on_stage(tmp_path, case)
    told = [record.getMessage() for record in caplog.records if "nobody can come in" in record.getMessage()]
    assert len(told) == 1
    assert "chmod 600" in told[0]


def test_a_token_that_is_removed_ends_its_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever watches is asked again now and then, and is out with the token."""
    from flyball.control.web import sse
    from tests.control.web.stage import watch

    monkeypatch.setattr(sse, "ALIVE_EVERY", 0.05)

    async def case(stage: Stage) -> None:
        gone, stays = await watch(stage, "/api/v1/board/stream"), await watch(stage, "/api/v1/board/stream", "admin")
        await gone.next("alive")
        stage.tokens.remove("look")
        with pytest.raises(EOFError):
            await gone.next("nothing that is ever told")
        await stays.next("alive")
        await stays.next("alive")
        stays.close()
        gone.close()
        await until(lambda: stage.web.streams == 0)

    on_stage(tmp_path, case)


def test_errors_have_one_shape(tmp_path: Path) -> None:
    """Whatever is refused, and wherever: code, text, remedy."""

    async def case(stage: Stage) -> None:
        client = stage.client("admin")
        for method, path, status, code in [
            ("GET", "/nothing", 404, "not_found"),
            ("GET", "/api/v1/nothing", 404, "not_found"),
            ("GET", "/api/v1/status/", 404, "not_found"),
            ("POST", "/api/v1/status", 405, "bad_method"),
            ("GET", "/api/v1/pause", 405, "bad_method"),
            ("GET", "/api/v1/unit?unit=nobody", 404, "unknown_unit"),
            ("GET", "/api/v1/events?limit=x", 400, "bad_argument"),
            ("GET", "/static/nothing.js", 404, "not_found"),
            ("GET", "/api/v1/journal/stream?after=x", 400, "bad_argument"),
        ]:
            answer = await client.request(method, path)
            error = json.loads(answer.text)["error"]
            assert (answer.status_code, error["code"]) == (status, code), path
            assert error["text"]
            assert error["remedy"]

    on_stage(tmp_path, case)
