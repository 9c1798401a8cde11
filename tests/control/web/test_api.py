"""Verbs over HTTP: arguments in queries and bodies, errors, the description, files, and what odd requests do."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it ships no types

from flyball.control.board import Frame
from flyball.control.context import Right
from flyball.control.web import asking
from flyball.control.web.bodies import BODY_MAX
from flyball.control.web.files import Files
from flyball.control.web.openapi import document
from flyball.control.web.verbs import method_of, served
from tests.control.web.stage import Stage, on_stage, until

QUERIES: Any = [
    # verb, query, the arguments that reach it
    ("status", "", {}),
    ("status", "units=web&units=db", {"units": ["web", "db"]}),
    ("status", "units=web", {"units": ["web"]}),
    ("events", "limit=5&after=0&since=1.5&unit=web", {"limit": 5, "after": 0, "since": 1.5, "unit": "web"}),
    ("unit", "unit=web%20x", {"unit": "web x"}),
    ("unit", "unit=", {"unit": ""}),
]


@pytest.mark.parametrize(("verb", "query", "args"), QUERIES)
def test_arguments_of_looks(tmp_path: Path, verb: str, query: str, args: dict[str, Any]) -> None:
    """A list is repeated; numbers are numbers."""

    async def case(stage: Stage) -> None:
        await stage.client("look").get(f"/api/v1/{verb}?{query}")
        assert stage.service.asked[-1][1:] == (verb, args)

    on_stage(tmp_path, case)


@pytest.mark.parametrize(
    "query",
    [
        *("limit=x", "limit=1.5", "limit=", "limit=1&limit=2", f"limit={'9' * 30}", "limit=-1", "limit=%C2%B2"),
        *("since=x", "since=nan", "since=inf", "more=1", "unit=a&unit=b"),
    ],
)
def test_wrong_arguments_of_looks(tmp_path: Path, query: str) -> None:
    """A clear error with 400."""

    async def case(stage: Stage) -> None:
        answer = await stage.client("look").get(f"/api/v1/events?{query}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_argument")

    on_stage(tmp_path, case)


JSON = "application/json"
BODIES: Any = [
    # what is sent, as what, the status and the code
    (b'{"units": ["web"]}', JSON, 200, ""),
    (b'{"units": ["web"]}', "application/json; charset=utf-8", 200, ""),
    (b'{"units": ["web"]}', "text/plain", 415, "bad_media"),
    (b'{"units": ["web"]}', "", 415, "bad_media"),
    (b"units=web", "application/x-www-form-urlencoded", 415, "bad_media"),
    (b"", JSON, 400, "bad_argument"),
    (b"nonsense", JSON, 400, "bad_request"),
    (b"[]", JSON, 400, "bad_request"),
    (b"null", JSON, 400, "bad_request"),
    (b'"web"', JSON, 400, "bad_request"),
    (b"\xff\xfe", JSON, 400, "bad_request"),
    (b'{"units": "web"}', JSON, 400, "bad_argument"),
    (b'{"units": [1]}', JSON, 400, "bad_argument"),
    (b'{"unit": "web"}', JSON, 400, "bad_argument"),
    (b'{"units": ["nobody"]}', JSON, 404, "unknown_unit"),
    (b'{"units": ["web"], "note": "' + b"x" * BODY_MAX + b'"}', JSON, 413, "too_long"),
    (b'{"note": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", JSON, 400, "bad_request"),
    (b'{"units": ["web"], "units": 3}', JSON, 400, "bad_argument"),
]


@pytest.mark.parametrize(("body", "kind", "status", "code"), BODIES)
def test_bodies_of_orders(tmp_path: Path, body: bytes, kind: str, status: int, code: str) -> None:
    """Whatever comes in: a clear error, and nothing was done."""

    async def case(stage: Stage) -> None:
        stage.service.scene.start("web")
        before = stage.service.store.read(()).seq
        headers = {"content-type": kind} if kind else {}
        answer = await stage.client("operate").post("/api/v1/pause", content=body, headers=headers)
        said = answer.json()
        assert (answer.status_code, said.get("error", {}).get("code", "")) == (status, code), answer.text
        events = {entry.event for entry in stage.service.store.entries(after=before)}
        assert ("held" in events) == (status == 200)

    on_stage(tmp_path, case)


def test_a_body_in_pieces_that_is_too_long(tmp_path: Path) -> None:
    """Its length need not be told beforehand to be bounded."""

    async def case(stage: Stage) -> None:
        async def pieces() -> Any:
            for _ in range(100):
                yield b"x" * 4096

        client, headers = stage.client("operate"), {"content-type": "application/json"}
        with contextlib.suppress(httpx.TransportError):  # it is closed while more is sent: the answer may be lost
            assert (await client.post("/api/v1/pause", content=pieces(), headers=headers)).status_code == 413
        assert stage.service.asked == []

    on_stage(tmp_path, case)


def test_looks_that_are_alike_are_one(tmp_path: Path) -> None:
    """A hundred who look at the same time cost what one costs; orders are each their own."""

    async def case(stage: Stage) -> None:
        stage.service.scene.start("web")
        stage.service.gate = asyncio.Event()
        client = stage.client("operate")
        looks = [asyncio.ensure_future(client.get("/api/v1/status")) for _ in range(50)]
        other = asyncio.ensure_future(client.get("/api/v1/status?units=web"))
        orders = [asyncio.ensure_future(client.post("/api/v1/resume", json={"units": ["web"]})) for _ in range(3)]
        await until(lambda: len(stage.service.asked) == 5)
        stage.service.gate.set()
        assert {(await look).status_code for look in [*looks, other, *orders]} == {200}
        assert len({(await look).text for look in looks}) == 1
        assert len(stage.service.asked) == 5

    on_stage(tmp_path, case)


def test_too_much_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the daemon cannot take is refused at once, and is welcome later."""
    monkeypatch.setattr(asking, "ASKED_MAX", 2)

    async def case(stage: Stage) -> None:
        stage.service.scene.start("web")
        stage.service.gate = asyncio.Event()
        client = stage.client("operate")
        orders = [asyncio.ensure_future(client.post("/api/v1/resume", json={"units": ["web"]})) for _ in range(2)]
        await until(lambda: len(stage.service.asked) == 2)
        answer = await client.post("/api/v1/resume", json={"units": ["web"]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "busy")
        stage.service.gate.set()
        assert [(await order).status_code for order in orders] == [200, 200]

    on_stage(tmp_path, case)


def test_a_daemon_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while that is said; what was begun goes on."""
    monkeypatch.setattr(asking, "ANSWER_MAX", 0.05)

    async def case(stage: Stage) -> None:
        stage.service.scene.start("web")
        stage.service.gate = asyncio.Event()
        answer = await stage.client("operate").post("/api/v1/pause", json={"units": ["web"]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_answer")
        stage.service.gate.set()
        await until(lambda: any(entry.event == "held" for entry in stage.service.store.entries()))

    on_stage(tmp_path, case)


def test_who_you_are(tmp_path: Path) -> None:
    """And whom you ask."""

    async def case(stage: Stage) -> None:
        said = (await stage.client("operate").get("/api/v1/me")).json()
        assert said.keys() == {"who", "role", "csrf", "host", "version", "pid", "started"}
        assert (said["who"], said["role"], said["csrf"]) == ("operate", "operate", "")

    on_stage(tmp_path, case)


def test_ready(tmp_path: Path) -> None:
    """There from the beginning, ready when all units are begun; neither tells anything else."""

    async def case(stage: Stage) -> None:
        client = stage.client()
        assert (await client.get("/health")).json() == {"ok": True}
        answer = await client.get("/health/ready")
        assert (answer.status_code, answer.json()) == (503, {"ready": False})
        stage.web.ready()
        answer = await client.get("/health/ready")
        assert (answer.status_code, answer.json()) == (200, {"ready": True})

    on_stage(tmp_path, case)


def test_metrics(tmp_path: Path) -> None:
    """As Prometheus wants them, for whoever may look."""

    async def case(stage: Stage) -> None:
        answer = await stage.client("look").get("/metrics")
        assert answer.text == "flyball_up 1\n"
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        stage.service.metrics = None
        assert (await stage.client("look").get("/metrics")).status_code == 404

    on_stage(tmp_path, case)


# The description.


def test_the_description_has_every_verb(tmp_path: Path) -> None:
    """With its method, its arguments and its role; and every reference in it leads somewhere."""
    said = document()
    for name, command in served().items():
        operation = said["paths"][f"/api/v1/{name}"][method_of(command).lower()]
        if command.right is Right.LOOK:
            given = {one["name"] for one in operation["parameters"]}
        else:
            given = set(operation["requestBody"]["content"]["application/json"]["schema"]["properties"])
        assert given == {argument.name for argument in command.arguments}
        assert command.right.name.lower() in operation["description"]
    text = json.dumps(said)
    for part in text.split('"$ref": "#/')[1:]:
        found: Any = said
        for key in part.split('"')[0].split("/"):
            found = found[key]
        assert found

    async def case(stage: Stage) -> None:
        assert (await stage.client("look").get("/openapi.json")).json() == said

    on_stage(tmp_path, case)


def test_the_board_is_as_described(tmp_path: Path) -> None:
    """What the board shows has the shape that the description says."""
    said = document()
    schema = {"$ref": f"#/components/schemas/{Frame.__name__}", "components": said["components"]}

    async def case(stage: Stage) -> None:
        stage.service.scene.everything()
        answer = (await stage.client("look").get("/api/v1/board")).json()
        assert len(answer["units"]) == 8
        Draft202012Validator(schema).validate(answer)

    on_stage(tmp_path, case)


# Files.


def test_files_of_the_page(tmp_path: Path) -> None:
    """With the kind that browsers want, asked for anew each time, and sent only if they changed."""

    async def case(stage: Stage) -> None:
        client = stage.client("look")
        for path, kind in [
            ("/", "text/html"),
            ("/static/api.js", "text/javascript"),
            ("/static/icon.svg", "image/svg"),
        ]:
            answer = await client.get(path)
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith(kind)
            assert answer.headers["cache-control"] == "no-cache"
            again = await client.get(path, headers={"if-none-match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")

    on_stage(tmp_path, case)


@pytest.mark.parametrize(
    "name", ["../secret", "a/../../secret", "/etc/passwd", ".hidden", "a/.hidden", "", ".", "link"]
)
def test_files_that_are_not_of_the_page(tmp_path: Path, name: str) -> None:
    """Nothing leads out of the folder, and nothing hidden is shown."""
    folder = tmp_path / "static"
    (folder / "a").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    for hidden in (folder / ".hidden", folder / "a" / ".hidden"):
        hidden.write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "fine.js").write_text("fine")
    files = Files(folder)
    assert files._find("fine.js") is not None
    assert files._find(name) is None


def test_a_file_that_changed(tmp_path: Path) -> None:
    """Is read anew."""
    file = tmp_path / "a.js"
    file.write_text("one")
    files = Files(tmp_path)
    first = files._find("a.js")
    assert first is not None
    assert files._find("a.js") == first
    file.write_text("other")
    second = files._find("a.js")
    assert second is not None
    assert second[1] == b"other"
    assert second[0] != first[0]
