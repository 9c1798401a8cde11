"""Logging in and out: cookies that end when they should, and links that work once."""

import json
import stat
from pathlib import Path

import pytest

from flyball.control.web import logins as module
from flyball.control.web.attempts import OF_ONE_MAX
from flyball.control.web.logins import FILE, LASTS, LINK_LASTS, LINKS_MAX, LOGINS_MAX, Logins, csrf_of
from flyball.control.web.tokens import Tokens
from tests.control.web.stage import HTML, Stage, on_stage


class Desk:
    """Tokens and logins with a clock that can be moved."""

    def __init__(self, folder: Path) -> None:
        self.now = 1_000_000.0
        self.folder = folder
        self.tokens = Tokens(folder)
        self.admin = self.tokens.add("admin", "admin")
        self.logins = self.restarted()

    def restarted(self) -> Logins:
        """As the next daemon knows them."""
        return Logins(self.folder, self.tokens, lambda: self.now)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_login_lasts_over_a_restart_and_not_for_ever(desk: Desk) -> None:
    """Its time runs on while no daemon is there."""
    cookie = desk.logins.begin(desk.admin)
    assert desk.restarted().of(cookie) == desk.admin
    desk.now += LASTS - 1
    assert desk.restarted().of(cookie) == desk.admin
    desk.now += 2
    assert desk.logins.of(cookie) is None
    assert desk.restarted().of(cookie) is None


@pytest.mark.parametrize("how", ["logout", "token removed", "token made anew", "another cookie"])
def test_a_stolen_cookie(desk: Desk, how: str) -> None:
    """What was taken back stays so, also over a restart."""
    cookie = desk.logins.begin(desk.admin)
    match how:
        case "logout":
            desk.logins.end(cookie)
        case "token removed":
            desk.tokens.remove("admin")
        case "token made anew":
            desk.tokens.remove("admin")
            desk.tokens.add("admin", "admin")
        case _:
            cookie = cookie[:-1] + ("A" if cookie[-1] != "A" else "B")
    assert desk.logins.of(cookie) is None
    assert desk.restarted().of(cookie) is None


def test_a_role_that_changed(desk: Desk) -> None:
    """A login has the role that its token has now, not the one that it had then."""
    cookie = desk.logins.begin(desk.admin)
    file = json.loads(desk.tokens.path.read_text())
    file["tokens"][0]["role"] = "look"
    desk.tokens.path.write_text(json.dumps(file))
    now = desk.logins.of(cookie)
    assert now is not None
    assert now.role == "look"


def test_nothing_in_the_file_lets_anybody_in(desk: Desk) -> None:
    """Neither the cookie nor the token; and nobody else can read it."""
    cookie = desk.logins.begin(desk.admin)
    path = desk.folder / FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    assert cookie not in text
    assert desk.admin.token not in text
    for value in json.loads(text)["logins"][0].values():
        assert desk.logins.of(str(value)) is None


@pytest.mark.parametrize("text", ["", "nonsense", '{"logins": 3}', '{"logins": [{"id": 1}]}'])
def test_a_file_that_is_wrong(desk: Desk, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """Everybody logs in anew; the daemon starts all the same."""
    cookie = desk.logins.begin(desk.admin)
    (desk.folder / FILE).write_text(text)
    assert desk.restarted().of(cookie) is None
    assert "nobody is logged in" in caplog.text


def test_a_disk_that_is_full(desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """One can log in and out; what was taken back does not come back."""
    first = desk.logins.begin(desk.admin)

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_private", full)
    second = desk.logins.begin(desk.admin)
    assert desk.logins.of(second) == desk.admin
    desk.logins.end(first)
    assert desk.logins.of(first) is None
    assert desk.restarted().of(first) is None
    assert "not kept over a restart" in caplog.text


def test_too_many_logins(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest one is out."""
    assert LOGINS_MAX >= 100
    monkeypatch.setattr(module, "LOGINS_MAX", 5)
    cookies = []
    for _ in range(6):
        desk.now += 1
        cookies.append(desk.logins.begin(desk.admin))
    assert desk.logins.of(cookies[0]) is None
    assert desk.logins.of(cookies[1]) == desk.admin
    assert len(json.loads((desk.folder / FILE).read_text())["logins"]) == 5


def test_links(desk: Desk) -> None:
    """One works once, within its time, while its token is there; and there are not many."""
    code = desk.logins.link(desk.admin)
    assert desk.logins.use(code) == desk.admin
    assert desk.logins.use(code) is None
    late = desk.logins.link(desk.admin)
    desk.now += LINK_LASTS + 1
    assert desk.logins.use(late) is None
    codes = [desk.logins.link(desk.admin) for _ in range(LINKS_MAX + 1)]
    assert desk.logins.use(codes[0]) is None
    desk.tokens.remove("admin")
    assert desk.logins.use(codes[1]) is None


# Over HTTP.


def test_in_and_out(tmp_path: Path) -> None:
    """By the form; the cookie cannot be read by scripts, and is sent to no other site; out is out."""

    async def case(stage: Stage) -> None:
        client = stage.client(**HTML, origin=stage.web.address)
        answer = await client.post("/login", data={"token": f" {stage.token()} "})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "path=/" in cookie
        assert "secure" not in cookie
        assert "domain" not in cookie
        assert stage.token() not in cookie
        page = await client.get("/")
        assert page.status_code == 200
        assert "text/html" in page.headers["content-type"]
        me = (await client.get("/api/v1/me")).json()
        assert (me["who"], me["role"]) == ("admin", "admin")
        kept = dict(client.cookies)
        assert me["csrf"] == csrf_of(kept[f"flyball_{stage.port}"])
        answer = await client.post("/logout", headers={"x-flyball-csrf": me["csrf"]})
        assert answer.status_code == 200
        assert client.cookies == {}
        assert (await stage.client(cookie="; ".join(f"{k}={v}" for k, v in kept.items())).get("/")).status_code == 401

    on_stage(tmp_path, case)


def test_out_needs_a_page_of_ours(tmp_path: Path) -> None:
    """Nobody is logged out by another page."""

    async def case(stage: Stage) -> None:
        browser = await stage.browser()
        csrf = browser.headers.pop("x-flyball-csrf")
        assert (await browser.post("/logout")).status_code == 403
        assert (await browser.get("/api/v1/me")).status_code == 200
        assert (await browser.post("/logout", headers={"x-flyball-csrf": csrf})).status_code == 200

    on_stage(tmp_path, case)


def test_in_as_json(tmp_path: Path) -> None:
    """For programs that want a cookie; through a proxy that encrypts, it is kept to that."""

    async def case(stage: Stage) -> None:
        answer = await stage.client().post("/login", json={"token": stage.token("look")})
        assert answer.status_code == 200
        assert answer.json()["role"] == "look"
        proxied = stage.client(host="fly.example", origin="https://fly.example")
        answer = await proxied.post("/login", json={"token": stage.token("look")})
        assert "secure" in answer.headers["set-cookie"].lower()

    on_stage(tmp_path, case, hosts=("fly.example",))


def test_nobody_logs_somebody_else_in(tmp_path: Path) -> None:
    """A page of others cannot make a browser log in here, not even with a good token."""

    async def case(stage: Stage) -> None:
        for headers in ({"origin": "http://evil.example"}, {"sec_fetch_site": "cross-site"}, {"origin": "null"}):
            answer = await stage.client(**headers).post("/login", data={"token": stage.token()})
            assert answer.status_code == 403
            assert "set-cookie" not in answer.headers

    on_stage(tmp_path, case)


@pytest.mark.parametrize(
    "given",
    [
        {"data": {"token": "wrong"}},
        {"data": {}},
        {"json": {}},
        {"json": {"token": 3}},
        {"json": {"token": None}},
        {"content": b"\xff\xfe", "headers": {"content-type": "application/x-www-form-urlencoded"}},
        {"content": b"token=a&" * 20, "headers": {"content-type": "application/x-www-form-urlencoded"}},
    ],
)
def test_wrong_logins(tmp_path: Path, given: dict[str, object]) -> None:
    """401, and no cookie."""

    async def case(stage: Stage) -> None:
        answer = await stage.client().post("/login", **given)  # type: ignore[arg-type]  # of httpx, by name
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers

    on_stage(tmp_path, case)


def test_a_link_over_http(tmp_path: Path) -> None:
    """It logs in once, as its token; asking whether it is there does not use it up."""

    async def case(stage: Stage) -> None:
        stage.token("look")
        link, name = stage.web.link("look")
        assert name == "look"
        assert link.startswith(stage.web.address)
        assert (await stage.client().head(link)).status_code == 401
        client = stage.client()
        assert (await client.get(link)).status_code == 303
        assert (await client.get("/api/v1/me")).json()["role"] == "look"
        again = await stage.client().get(link)
        assert again.status_code == 401
        assert "flyball page" in again.text
        assert "set-cookie" not in again.headers

    on_stage(tmp_path, case)


def test_a_link_in_a_page_of_others(tmp_path: Path) -> None:
    """A picture that leads here is no attempt to come in, and uses nothing up; a link that a person follows does."""

    async def case(stage: Stage) -> None:
        link, _ = stage.web.link()
        picture = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
        for _ in range(OF_ONE_MAX + 1):
            assert (await stage.client(**picture).get("/login/guess")).status_code == 403
        assert stage.web.failed_logins == 0
        assert (await stage.client(**picture).get(link)).status_code == 403
        follows = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        answer = await stage.client(**follows).get(link)
        # No redirect: the cookie, which is sent to no step of another page, would not be sent with it.
        assert (answer.status_code, 'content="0; url=/"' in answer.text) == (200, True)
        assert "set-cookie" in answer.headers

    on_stage(tmp_path, case)


def test_two_daemons_on_one_host(tmp_path: Path) -> None:
    """Each has a cookie of its own name: a browser sends both to both, and neither is taken for the other."""

    async def case(stage: Stage) -> None:
        browser = await stage.browser()
        [name] = browser.cookies
        assert name == f"flyball_{stage.port}"
        value = browser.cookies[name]
        assert (await stage.client(cookie=f"flyball_1=x; {name}={value}").get("/api/v1/me")).status_code == 200
        assert (await stage.client(cookie=f"flyball_1={value}").get("/api/v1/me")).status_code == 401

    on_stage(tmp_path, case)
