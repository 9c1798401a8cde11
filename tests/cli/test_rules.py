"""`flyball rules`, `queue`, `trigger` and `questions`: without a daemon, and through its socket."""

import io
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.shell_completion import ShellComplete

from flyball.cli import main
from flyball.cli.group import flyball
from flyball.cli.trigger import DATA_MAX
from flyball.config import load
from flyball.config.build import rule_policies
from flyball.control.client import SOCKET
from flyball.control.commands import ok, parse, serve_line
from flyball.core.event import Asked, Cause, Exited, Fired, Start, Step, Stepped, Work
from flyball.core.time import MINUTE, SECOND
from flyball.runtimes.holder import me
from flyball.store.firings import Firing
from tests.cli.state import alone, scene
from tests.control.scene import Scene
from tests.daemon.site import Site, until

FILE = """\
units:
  web:
    command: [sleep, "60"]
rules:
  watch-price:
    labels: {provider: shop}
    triggers:
      - every: 5m
      - webhook: price
        secret: 0123456789abcdef
    actions:
      - id: fetch
        http: "http://127.0.0.1:9/?key=hidden"
      - notify: found
  never-fired:
    triggers:
      - command: true
    actions:
      - notify: hello
"""
LABELS = {"provider": "shop", "runtime": "rule"}

Capture = pytest.CaptureFixture[str]
Trigger = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "flyball.yaml").write_text(FILE)
    return alone(tmp_path, monkeypatch)


@pytest.fixture
def shop(states: Path) -> Iterator[Scene]:
    """The present, with the rules of the file."""
    with scene(states) as made:
        made.at(0)
        made.settings = load()
        for name, policies in rule_policies(made.settings, made.settings.rules).items():
            made.governor.panel.put(name, policies)
        yield made


def _fire(made: Scene, id_: str, **more: Any) -> None:
    firing = Firing(id=id_, rule="watch-price", trigger="webhook price", at=made.clock.now(), **more)
    rows = {firing.key: msgspec.json.encode(firing)}
    made.governor.submit(Fired(unit="watch-price", id=id_, trigger=firing.trigger), rows)


def _begin(made: Scene, id_: str = "a1") -> None:
    made.governor.submit(Start(unit="watch-price", run=f"{id_}.1", labels=LABELS, holder=me()))


def _end(made: Scene, cause: Cause = Cause.DONE, id_: str = "a1", *, keeps: bool = False, **more: Any) -> None:
    key = Firing(id=id_, rule="watch-price", trigger="", at=0).key
    exited = Exited(unit="watch-price", run=f"{id_}.1", labels=LABELS, cause=cause, **more)
    made.governor.submit(exited, {} if keeps else {key: None})


def test_nothing_ran_yet(states: Path, capsys: Capture) -> None:
    """The rules of the settings are shown, and no file is made."""
    assert main(["rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"RULE +STATE +QUEUE +LAST RUN +NEXT +FIRED BY", lines[0])
    assert re.fullmatch(r"never-fired +healthy +- +- +- +command", lines[1])
    assert re.fullmatch(r"watch-price +healthy +- +- +- +every 5 min; webhook price", lines[2])
    assert not states.exists()


def test_no_rules(states: Path, capsys: Capture) -> None:
    """That is said, too."""
    (states.parent / "flyball.yaml").write_text("units: {web: {command: [sleep, '60']}}\n")
    assert main(["rules"]) == 0
    assert capsys.readouterr().out == "There are no rules.\n"


def test_one_rule(shop: Scene, capsys: Capture) -> None:
    """By its name: all that there is to see of it, and no secret."""
    _begin(shop)
    _end(shop, Cause.ERROR, error="HttpStatus", fingerprint="abcdef0123456789")
    _fire(shop, "b2", attempt=1, joined=2)
    assert main(["rules", "watch-price"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("watch-price is cooling\n")
    for part in (
        "Fired by:   every 5 min\n",
        "Fired by:   webhook price\n",
        "Does:       fetch: http; notify\n",
        "Last run:   error: HttpStatus (abcdef01), ",
        "Queue:      b2 by webhook price, ",
        "ago, waits for attempt 2, for 3 at once\n",
    ):
        assert part in shown
    assert "hidden" not in shown
    assert "0123456789abcdef" not in shown.replace("abcdef01", "")


def test_many_in_the_queue(shop: Scene, capsys: Capture) -> None:
    """A long queue is cut, and says where all of it is."""
    for number in range(25):
        _fire(shop, f"f{number:02}")
    assert main(["rules", "watch-price"]) == 0
    shown = capsys.readouterr().out
    assert "f19 by" in shown
    assert "f20 by" not in shown
    assert "and 5 more: `flyball queue watch-price`" in shown
    assert main(["queue", "watch-price"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 26


def test_status_and_why(shop: Scene, capsys: Capture) -> None:
    """Rules are among the units, marked, with what waits; `why` has the queue and what can be done."""
    assert main(["pause", "watch-price"]) == 0
    for id_ in ("a1", "b2", "c3"):
        _fire(shop, id_)
    capsys.readouterr()
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^never-fired \(rule\) +healthy .* not fired yet$", shown, re.MULTILINE)
    assert re.search(r"^watch-price \(rule\) +paused .*paused by .*; queue: 3 wait$", shown, re.MULTILINE)
    assert re.search(r"^web  ", shown, re.MULTILINE)
    assert main(["why", "watch-price"]) == 0
    shown = capsys.readouterr().out
    assert "Fired by:   webhook price\n" in shown
    assert "Queue:      a1 by webhook price" in shown
    assert "to forget it: `flyball queue watch-price --clear`." in shown
    assert main(["resume", "watch-price"]) == 0
    assert capsys.readouterr().out == "watch-price: healthy: queue: 3 wait\n"


def test_json(shop: Scene, capsys: Capture) -> None:
    """For scripts: these keys."""
    _fire(shop, "a1")
    assert main(["rules", "watch-price", "--json"]) == 0
    (rule,) = json.loads(capsys.readouterr().out)["rules"]
    assert set(rule) == {
        *("name", "state", "held", "running", "until", "reasons", "defined", "triggers", "when", "actions", "next"),
        *("queue", "waiting", "last_run", "counts", "questions", "priority", "labels"),
    }
    assert set(rule["queue"][0]) == {"id", "trigger", "at", "attempt", "joined", "depth", "running", "by_person"}
    assert set(rule["triggers"][0]) == {"text", "next"}


def test_clear(shop: Scene, capsys: Capture) -> None:
    """A dry run only says what would be forgotten; then it is."""
    for id_ in ("a1", "b2"):
        _fire(shop, id_)
    assert main(["queue", "watch-price", "--clear", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("watch-price: 2 firings would be forgotten\nID ")
    assert main(["queue", "watch-price", "--clear"]) == 0
    assert capsys.readouterr().out == "watch-price: 2 firings forgotten\n"
    assert main(["queue", "watch-price"]) == 0
    assert capsys.readouterr().out == "watch-price: nothing waits\n"
    assert main(["queue", "watch-price", "--dry-run"]) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["trigger", "watch-price"], "no daemon runs here, so there is nobody to run watch-price\nStart one: "),
        (["trigger", "web"], "web is a unit, and no rule"),
        (["trigger", "watch-prize"], "no rule 'watch-prize'; did you mean watch-price?"),
        (["trigger", "watch-price", "--data", "{"], "--data is not JSON: "),
        (["trigger", "watch-price", "--data", "NaN"], "--data is not JSON: "),
        (["trigger", "watch-price", "--data", "@none.json"], "--data: none.json: No such file"),
        (["trigger", "watch-price", "--data", "@binary"], "--data: binary is no text"),
        (["trigger", "watch-price", "--data", f'"{"x" * DATA_MAX}"'], f"--data: more than {DATA_MAX} bytes"),
        (["trigger", "watch-price", "--wait", "soon"], "'soon' is not a length of time"),
        (["restart", "watch-price"], "watch-price is a rule: there is nothing to restart"),
        (["queue", "web"], "web is a unit, and no rule"),
        (["rules", "x"], "no rule 'x'; there are never-fired, watch-price"),
    ],
)
def test_errors(states: Path, arguments: list[str], says: str, capsys: Capture) -> None:
    """Each says what is wrong and what to do, and makes no files."""
    (states.parent / "binary").write_bytes(b"\xff\xfe")
    assert main(arguments) == 2
    assert says in capsys.readouterr().err
    assert not states.exists()


# With a daemon.


@contextmanager
def daemon(states: Path, made: Scene, trigger: Trigger) -> Iterator[list[Mapping[str, Any]]]:
    """Something that serves the socket as the daemon does, and answers `trigger` itself; what it was asked to fire."""
    fired: list[Mapping[str, Any]] = []
    context = made.context(who="peer", channel="socket", poke=lambda _, __: None)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(states / SOCKET))
    server.listen()

    def answered(line: bytes) -> bytes:
        request = parse(line)
        if request.verb != "trigger":
            return serve_line(context, line)
        fired.append(request.args)
        return ok(request.id, {"rule": request.args["rule"], **trigger(request.args)})

    def serve() -> None:
        try:
            while True:
                connection, _ = server.accept()
                with connection, connection.makefile("rb") as lines:
                    for line in lines:
                        connection.sendall(answered(line))
        except OSError:
            return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield fired
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


def _done(made: Scene) -> Trigger:
    """A daemon that runs it at once."""

    def trigger(_: Mapping[str, Any]) -> Mapping[str, Any]:
        _fire(made, "a1", attempt=1)
        _begin(made)
        step: dict[str, Any] = {"unit": "watch-price", "run": "a1.1", "labels": LABELS}
        made.governor.submit(Step(pattern="fetch:watch-price", **step))
        made.governor.submit(Stepped(done=(Work(pattern="fetch:watch-price"),), **step))
        _end(made)
        return {"id": "a1", "fate": "queued"}

    return trigger


@pytest.mark.parametrize(
    ("given", "piped", "told"),
    [
        ([], "", None),
        (["--data", '{"amount": 3}'], "", {"amount": 3}),
        (["--data", '"now"'], "", "now"),
        (["--data", "@order.json"], "", [1, 2]),
        (["--data", "-"], '{"piped": true}', {"piped": True}),
    ],
)
def test_trigger(  # noqa: PLR0917 - the case and its fixtures
    states: Path, shop: Scene, given: list[str], piped: str, told: Any, capsys: Capture, monkeypatch: Any
) -> None:
    """The daemon is told which rule, and what it is to be told."""
    (states.parent / "order.json").write_text("[1, 2]")
    monkeypatch.setattr("sys.stdin", io.StringIO(piped))
    with daemon(states, shop, _done(shop)) as fired:
        assert main(["trigger", "watch-price", *given]) == 0
    assert fired == [{"rule": "watch-price", "data": told}]
    assert capsys.readouterr().out == "watch-price: fired (a1)\n"


@pytest.mark.parametrize(
    ("fate", "code", "says"),
    [
        ("joined", 0, "one that says the same waits already: one run is for both (a1)"),
        ("skipped", 1, "not run: its condition does not hold"),
        ("queue_full", 1, "not run: its queue is full, or that of all rules. `flyball queue watch-price` shows"),
        ("too_long", 1, "not run: --data says more than is kept"),
    ],
)
def test_fates(  # noqa: PLR0917 - the case and its fixtures
    states: Path, shop: Scene, fate: str, code: int, says: str, capsys: Capture
) -> None:
    """What became of it is said; what is not run is no success."""
    _fire(shop, "a1")
    with daemon(states, shop, lambda _: {"id": "a1" if code == 0 else "", "fate": fate}):
        assert main(["trigger", "watch-price"]) == code
        assert says in capsys.readouterr().out
        assert main(["trigger", "watch-price", "--json"]) == code
        assert json.loads(capsys.readouterr().out)["fate"] == fate


@pytest.mark.parametrize(("order", "state"), [("pause", "paused"), ("stop", "stopped")])
def test_trigger_of_what_is_held(order: str, state: str, states: Path, shop: Scene, capsys: Capture) -> None:
    """It waits, and whoever fired it is told for whom."""
    assert main([order, "watch-price"]) == 0
    _fire(shop, "a1")
    with daemon(states, shop, lambda _: {"id": "a1", "fate": "queued"}):
        assert main(["trigger", "watch-price"]) == 0
    shown = capsys.readouterr()
    assert "watch-price: fired (a1)" in shown.out
    assert f"watch-price is {state}, so it waits" in shown.err
    assert "flyball resume watch-price" in shown.err


def test_wait_until_done(states: Path, shop: Scene, capsys: Capture) -> None:
    """What happens to it is shown as it happens; done is 0."""
    with daemon(states, shop, _done(shop)):
        assert main(["trigger", "watch-price", "--wait"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[2] for line in lines] == [
        "fired (a1)",
        "fired by webhook price",
        "started",
        "action fetch",
        "action fetch done",
        "exited: done",
        "done",
    ]


@pytest.mark.parametrize("keeps", [True, False])
def test_wait_until_failed(states: Path, shop: Scene, keeps: bool, capsys: Capture) -> None:
    """A failing run is 1, and says whether it is tried again."""

    def trigger(_: Mapping[str, Any]) -> Mapping[str, Any]:
        _fire(shop, "a1", attempt=1)
        _begin(shop)
        _end(shop, Cause.ERROR, error="HttpStatus", fingerprint="f1", keeps=keeps)
        return {"id": "a1", "fate": "queued"}

    with daemon(states, shop, trigger):
        assert main(["trigger", "watch-price", "--wait", "1m"]) == 1
    shown = capsys.readouterr().out.splitlines()[-1]
    assert shown.startswith("watch-price: error: HttpStatus")
    assert ("it is tried again" in shown) is keeps
    assert "`flyball why watch-price`" in shown


@pytest.mark.parametrize(
    ("outcome", "code"), [("held", 1), ("stopped", 1), ("dropped", 1), ("gone", 1), ("waiting", 3)], ids=str
)
def test_wait_for_what_does_not_run(states: Path, shop: Scene, outcome: str, code: int, capsys: Capture) -> None:
    """Held, dropped and gone are 1, each with its reason; what only waits is 3 when the time is over."""

    def trigger(_: Mapping[str, Any]) -> Mapping[str, Any]:
        if outcome != "gone":
            _fire(shop, "a1")
        if outcome == "dropped":
            shop.governor.submit(Fired(unit="watch-price", id="a1", trigger="command", dropped="rule_removed"))
        return {"id": "a1", "fate": "queued"}

    if outcome in {"held", "stopped"}:
        assert main(["pause" if outcome == "held" else "stop", "watch-price"]) == 0
        capsys.readouterr()
    with daemon(states, shop, trigger):
        assert main(["trigger", "watch-price", "--wait", "1ms", "--json"]) == code
    said = json.loads(capsys.readouterr().out)
    assert said["outcome"] == {"gone": "dropped", "stopped": "held"}.get(outcome, outcome)
    texts = {"held": "for a person: paused", "stopped": "for a person: stopped"}
    texts |= {"dropped": "rule_removed", "gone": "was not run", "waiting": "still waits"}
    assert texts[outcome] in said["text"]


def test_others_do_not_count(states: Path, shop: Scene) -> None:
    """A run of another firing is not this one's end."""

    def trigger(_: Mapping[str, Any]) -> Mapping[str, Any]:
        _fire(shop, "a1")
        _fire(shop, "a11", attempt=1)
        _begin(shop, "a11")
        _end(shop, id_="a11")
        return {"id": "a1", "fate": "queued"}

    with daemon(states, shop, trigger):
        assert main(["trigger", "watch-price", "--wait", "1ms"]) == 3


# Questions.


def test_questions(shop: Scene, capsys: Capture) -> None:
    """Unit by unit, with what to type; then all of a unit are answered alike."""
    assert main(["questions"]) == 0
    assert capsys.readouterr().out == "Nobody asks anything.\n"
    shop.at(10 * SECOND)
    for unit, id_ in (("watch-price", "a1"), ("web", "b1"), ("watch-price", "a2")):
        text = f"Pay\n{id_}?"
        asked = Asked(unit=unit, run="r", id=id_, text=text, choices=("yes", "no"), until=shop.now + MINUTE // 2)
        shop.governor.submit(msgspec.structs.replace(asked, default="no"))
        shop.clock.move(SECOND)
    shop.at(0)
    assert main(["questions"]) == 0
    shown = re.sub(r"[\d.]+ s", "N s", capsys.readouterr().out).splitlines()
    assert shown == [
        "watch-price asks 2 questions:",
        "  a1  Pay a1? (yes, no), N s ago; takes no in N s",
        "  a2  Pay a2? (yes, no), N s ago; takes no in N s",
        "  Answer: `flyball answer watch-price --id a1 TEXT`; all alike: `flyball answer watch-price --all TEXT`",
        "web asks 1 question:",
        "  b1  Pay b1? (yes, no), N s ago; takes no in N s",
        "  Answer: `flyball answer web TEXT`",
    ]
    assert main(["answer", "watch-price", "--all", "maybe"]) == 2
    assert "'maybe' is no answer" in capsys.readouterr().err
    assert main(["answer", "watch-price", "--all", "yes"]) == 0
    assert capsys.readouterr().out == "watch-price: answered yes: Pay a1?\nwatch-price: answered yes: Pay a2?\n"
    assert main(["questions", "--json"]) == 0
    assert [one["id"] for one in json.loads(capsys.readouterr().out)["questions"]] == ["b1"]


# With a real daemon.


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    try:
        yield made
    finally:
        made.clean()


def test_from_end_to_end(site: Site) -> None:
    """Fired by hand and seen to its end; while it is paused what fires it waits, and can be forgotten; a resume lets
    the rest run."""
    action = {"run": ["echo", "hello {{ trigger.data.name }}"]}
    site.write({}, rules={"hello": {"triggers": [{"command": True}], "actions": [action]}})
    site.flyball("up", "-d")
    shown = site.flyball("trigger", "hello", "--data", '{"name": "ann"}', "--wait").stdout
    assert "action run done" in shown
    assert shown.endswith("hello: done\n")
    site.order("pause", "hello")
    assert site.ask("trigger", rule="hello", data={"name": "bob"})["fate"] == "queued"
    assert site.flyball("queue", "hello", "--clear").stdout == "hello: 1 firing forgotten\n"
    assert site.ask("trigger", rule="hello", data={"name": "eve"})["fate"] == "queued"
    (rule,) = site.ask("rules")["rules"]
    assert (rule["state"], rule["waiting"], rule["counts"]) == ("paused", 1, {"queued": 3})
    site.order("resume", "hello")
    until(lambda: site.ask("rules")["rules"][0]["queue"] == [], "the run")
    assert site.flyball("logs", "hello").stdout == "hello ann\nhello eve\n"


# What a shell completes.


def _offered(line: str, begun: str) -> list[str]:
    command, *words = line.split()
    shell = ShellComplete(flyball, {}, "flyball", "_FLYBALL_COMPLETE")
    return [item.value for item in shell.get_completions([command, *words], begun)]


@pytest.mark.parametrize(
    ("line", "begun", "offered"),
    [
        ("trigger", "", ["never-fired", "watch-price"]),
        ("queue", "w", ["watch-price"]),
        ("rules watch-price", "", ["never-fired"]),
        ("why", "", ["never-fired", "watch-price", "web"]),
        ("pause web", "w", ["watch-price"]),
        ("logs", "x", []),
    ],
)
def test_names_are_completed(line: str, begun: str, offered: list[str], states: Path) -> None:
    """Names of rules where a rule is meant, of all units elsewhere; what the line has already is not offered again."""
    assert sorted(_offered(line, begun)) == offered
    assert not states.exists()


def test_nothing_is_completed_from_broken_settings(states: Path, capsys: Capture) -> None:
    """Where there is no answer nothing is offered, and nothing is said."""
    (states.parent / "flyball.yaml").write_text("rules: 5")
    assert _offered("trigger", "") == []
    assert capsys.readouterr() == ("", "")
