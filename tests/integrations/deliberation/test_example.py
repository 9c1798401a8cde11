"""The board of personas: its parts by themselves, and the whole, run as people run it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_openai import ChatOpenAI

import flyball
from flyball.config.settings import ModelPrice
from flyball.config.settings import Prices as PriceSettings
from tests.zygote import zygote_of

EXAMPLE = Path(__file__).parents[3] / "examples" / "deliberation"
MODULES = ("scripted", "model", "board")
PRICES = flyball.Prices(PriceSettings(models={"m": ModelPrice(input=Decimal(1), output=Decimal(2))}))


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The modules of the example, gone again after the test: their names are anybody's."""
    monkeypatch.syspath_prepend(EXAMPLE)
    try:
        yield SimpleNamespace(**{name: import_module(name) for name in MODULES})
    finally:
        for name in MODULES:
            sys.modules.pop(name, None)


@contextlib.contextmanager
def served(example: Any, **script: bool) -> Iterator[tuple[str, Any]]:
    with example.scripted.serve(example.scripted.Script(**script)) as url:
        yield url, example.model.Model(url, "key", "m", PRICES, proxies=False)


# Its parts.


def test_scripted_model_speaks_the_protocol(example: Any) -> None:
    """The scripted model is one to OpenAI's own client: text and usage are where it looks for them."""
    with served(example) as (url, _):
        client = ChatOpenAI(base_url=url, api_key="key", model="m", max_retries=0)  # type: ignore[arg-type]
        said = client.invoke([("system", "Task: decompose."), ("user", "Should we move?")])
    assert "options" in str(said.content)
    assert said.usage_metadata is not None
    assert said.usage_metadata["output_tokens"] > 0


def test_cost_is_what_was_used(example: Any) -> None:
    """A call costs what its usage says, and never more than its worst case, also if the model thinks."""
    for script in ({}, {"thinks": True}):
        with served(example, **script) as (_, model):
            answer = model.ask("Task: facilitate.", "Round 1. " + "ü" * 100_000)
        assert 0 < answer.cost <= model.worst_case


def test_wrong_address(example: Any) -> None:
    """An endpoint that is none is a clear error, and the key is not in it."""
    with served(example) as (url, _):
        model = example.model.Model(f"{url}/elsewhere", "s3cret", "m", PRICES, proxies=False)
        with pytest.raises(flyball.FlyballError, match="answered 404") as raised:
            model.ask("Task: facilitate.", "Round 1.")
    assert "OPENAI_BASE_URL" in raised.value.remedy
    assert "s3cret" not in str(raised.value)


def test_newer_models(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that knows the bound of its answer by another name is asked once more, by that name, and then always."""
    asked: list[set[str]] = []
    completion = example.scripted._completion

    def picky(script: Any, given: dict[str, Any]) -> dict[str, Any]:
        asked.append(given.keys() & {"max_tokens", "max_completion_tokens"})
        if "max_tokens" in given:
            raise example.scripted.Refused("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        made: dict[str, Any] = completion(script, given)
        return made

    monkeypatch.setattr(example.scripted, "_completion", picky)
    with served(example) as (_, model):
        for _ in range(2):
            assert model.ask("Task: facilitate.", "Round 1.").text
    assert asked == [{"max_tokens"}, {"max_completion_tokens"}, {"max_completion_tokens"}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [('{"a": 1}', {"a": 1}), ('Sure:\n```json\n{"a": 1}\n```', {"a": 1}), ("no", {}), ("{]}", {}), ("[1]", {})],
)
def test_answers_are_read_leniently(example: Any, text: str, expected: dict[str, int]) -> None:
    """A model that writes around its JSON is understood; one that writes none is no error."""
    assert example.model.read_json(text) == expected


@pytest.mark.parametrize(
    ("script", "reason", "rounds"), [({}, "consensus", 3), ({"never_agree": True}, "max_rounds", 7)]
)
def test_board_without_a_guard(example: Any, script: dict[str, bool], reason: str, rounds: int) -> None:
    """S1-10, S1-20: the graph itself comes to its end by its rounds, with a vote and a recommendation."""
    spent: list[Decimal] = []
    with served(example, **script) as (_, model):
        graph = example.board.build(model, spent.append, 7).compile()
        ended = graph.invoke({"question": "Should we move?"}, {"recursion_limit": 60})
    assert (ended["stop_reason"], ended["round"]) == (reason, rounds)
    assert len(ended["votes"]) == 5
    assert ended["recommendation"]
    assert ended["cost"] == pytest.approx(float(sum(spent)))


def test_positions_that_are_none(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1-16: voices of which nobody knows what they want do not agree with each other."""
    monkeypatch.setattr(example.scripted, "_view", lambda *asked: {"position": "", "text": asked[1][:60]})
    with served(example) as (_, model):
        graph = example.board.build(model, lambda _: None, 5).compile()
        ended = graph.invoke({"question": "Should we move?"}, {"recursion_limit": 60})
    assert ended["agreement"] == 0.0
    assert set(ended["votes"].values()) == {None}


# The whole.


def env_in(folder: Path, **env: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "FLYBALL_"))}
    return {**kept, "FLYBALL_STATE_DIR": str(folder / "state"), **env}


def begun(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE), *arguments],
        env=env_in(folder),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    zygote = zygote_of("flyball.app", "flyball.integrations.deliberation", "flyball.integrations.langgraph")
    return zygote.run(str(EXAMPLE), *arguments, cwd=folder, env=env_in(folder, **env), timeout=120)


def result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


INLINE = pytest.mark.parametrize("where", [(), ("--inline",)], ids=["process", "inline"])


@pytest.mark.slow
@INLINE
def test_agrees(where: tuple[str, ...], tmp_path: Path) -> None:
    """S1-15, S1-16, S1-17: it ends with a recommendation, the cost, the rounds and the reason."""
    done = run(tmp_path, "--offline", *where, "Should we move to the cloud?")
    assert done.returncode == 0, done.stdout + done.stderr
    for said in (
        "round 2: Sceptic",
        "\nrecommendation: ",
        "stop_reason  consensus",
        "rounds       3",
        "layer        3",
    ):
        assert said in done.stdout


@pytest.mark.slow
def test_never_agrees(tmp_path: Path) -> None:
    """S1-13, S1-14: voices that never agree are ended after the last round, with what there is."""
    done = run(tmp_path, "--offline", "--never-agree", "--json")
    assert done.returncode == 0, done.stderr
    ended = result(done)
    assert (ended["stop_reason"], ended["layer"], ended["rounds"]) == ("max_rounds", 3, 7)
    assert ended["recommendation"]


@pytest.mark.slow
@INLINE
def test_too_expensive(where: tuple[str, ...], tmp_path: Path) -> None:
    """S1-28, S1-35, S1-36, S1-38: on the free tier it ends with a partial recommendation, and never spends more."""
    done = run(tmp_path, "--offline", "--expensive", "--tier", "free", "--json", *where)
    assert done.returncode == 0, done.stderr
    ended = result(done)
    assert (ended["status"], ended["stop_reason"], ended["layer"]) == ("budget_exceeded", "cost_budget_exceeded", 5)
    assert ended["recommendation"]
    assert 0 < Decimal(ended["spent_usd"]) <= Decimal("0.50")


@pytest.mark.slow
def test_budget_of_the_environment(tmp_path: Path) -> None:
    """S1-30: without a tier MAX_COST_PER_SESSION is the budget."""
    done = run(tmp_path, "--offline", "--expensive", "--json", MAX_COST_PER_SESSION="0.30")
    ended = result(done)
    assert ended["stop_reason"] == "cost_budget_exceeded"
    assert Decimal(ended["spent_usd"]) <= Decimal("0.30")


@pytest.mark.slow
def test_hangs(tmp_path: Path) -> None:
    """S1-21, S1-22, S1-25: a model that does not answer is ended in time, and what there was is known."""
    done = run(tmp_path, "--offline", "--hang", "--json", DELIBERATION_TIMEOUT_SECONDS="2")
    assert done.returncode == 3, done.stdout + done.stderr
    ended = result(done)
    assert (ended["status"], ended["layer"], ended["rounds"]) == ("timed_out", 4, 1)


@pytest.mark.slow
def test_session_goes_on(tmp_path: Path) -> None:
    """S1-24, S1-63: a session that ran out of time is taken up again where it was left, and is over when it is over."""
    late = run(tmp_path, "--offline", "--hang", "--session", "q3", "--json", DELIBERATION_TIMEOUT_SECONDS="2")
    assert result(late)["status"] == "timed_out"
    again = run(tmp_path, "--offline", "--session", "q3", "--json")
    assert "goes on" in again.stderr
    assert (result(again)["status"], result(again)["rounds"]) == ("completed", 3)
    assert "is over already" in run(tmp_path, "--offline", "--session", "q3", "--json").stderr
    other = run(tmp_path, "--offline", "--session", "q3", "Something else?")
    assert (other.returncode, other.stdout) == (1, "")
    assert "is about another question" in other.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_killed(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """S1-24: a session that is killed, or interrupted, goes on from the round it was in, with its steps counted on."""
    with begun(tmp_path, "--offline", "--hang", "--session", "q3") as process:
        assert process.stdout is not None
        assert any("round 1 is over" in line for line in process.stdout)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == code
    again = run(tmp_path, "--offline", "--session", "q3", "--json")
    assert "goes on" in again.stderr
    assert "parts: " not in again.stderr
    assert (result(again)["status"], result(again)["rounds"]) == ("completed", 3)


@pytest.mark.parametrize(
    ("arguments", "env", "said", "code"),
    [
        (["--rounds", "20"], {}, "5 to 15, or auto", 2),
        (["--hang"], {}, "are for --offline", 2),
        (["--price", "cheap"], {}, "two numbers", 2),
        ([""], {}, "a question has 1 to", 2),
        ([], {}, "OPENAI_API_KEY is not set", 1),
        ([], {"OPENAI_BASE_URL": "file:///etc/passwd"}, "begins with http", 1),
        (["--model", "nobody-knows"], {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, "price of the model", 1),
        (["--price", "1,2"], {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, "127.0.0.1:9", 1),
    ],
)
@pytest.mark.slow
def test_bad_input(arguments: list[str], env: dict[str, str], said: str, code: int, tmp_path: Path) -> None:
    """What is wrong is said in a line, with what to do, and without a traceback."""
    done = run(tmp_path, *arguments, **env)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
