"""What a child reports holds for its limits, its budget and its loop and stall safeguards, in whatever language."""

import asyncio
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from flyball.core.decision import Decision, Verb
from flyball.core.event import Beat, Event, Start
from flyball.core.policy import AnyPolicy
from flyball.core.time import MINUTE, SECOND
from flyball.errors import FlyballError, StoreFull
from flyball.governor import Governor, Rows
from flyball.policies import Budget, Deadline, Exclusive, Limit, Loop, Stall
from flyball.runtimes import tell as tell_module
from flyball.runtimes.notify import Message, Notify
from flyball.runtimes.report import WAITING_MAX, Reporter
from flyball.runtimes.tell import ask
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock
from tests.runtimes.children import WITHIN, command, until

EXAMPLES = Path(__file__).parents[2] / "examples" / "report"
CENT = 10_000


class Bench:
    """A governor, and the reporter of one run of one unit."""

    def __init__(self, *policies: AnyPolicy) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.governor = Governor([Exclusive(lease=60 * MINUTE), *policies], self.store, self.clock)
        assert self.governor.submit(Start(unit="u", run="r")).proceeds
        self.told: list[Decision] = []
        self.paused: list[bool] = []
        self.reporter = Reporter(self.governor, "u", "r", told=self.told.append, pause=self.paused.append)

    def say(self, *pairs: tuple[str, object]) -> dict[str, Any]:
        """Say something as a child would, and the answer to it."""
        return self.say_all([pairs])[0]

    def say_all(self, messages: list[tuple[tuple[str, object], ...]]) -> list[dict[str, Any]]:
        """The same for many messages at once."""
        answers: list[bytes] = []

        async def speak() -> None:
            for pairs in messages:
                lines = tuple((key, value if isinstance(value, str) else json.dumps(value)) for key, value in pairs)
                self.reporter.hear(Message(lines, answer=answers.append))
            await self.reporter.settled()

        asyncio.run(speak())
        return [json.loads(answer) for answer in answers]

    def ask(self, **step: object) -> str:
        return str(self.say(("X_FLYBALL_STEP", step))["verb"])

    def made(self, **step: object) -> str:
        return str(self.say(("X_FLYBALL_STEPPED", step))["verb"])

    @property
    def events(self) -> list[str]:
        """What the journal has after the start."""
        return [entry.event for entry in self.store.entries(limit=10_000)][1:]

    @property
    def journal(self) -> str:
        return "".join(str(entry.body) for entry in self.store.entries(limit=10_000))


def test_a_step_is_asked_for_and_made() -> None:
    """Each is in the journal when it is answered, in its order; the answer carries the request's id."""
    bench = Bench()
    answer = bench.say(("X_FLYBALL_STEP", {"pattern": "search", "call": "a", "id": 7}))
    assert answer == {"verb": "proceed", "reasons": [], "id": 7}
    assert bench.made(pattern="search", call="a", result="b") == "proceed"
    assert bench.events == ["step", "stepped"]
    assert bench.told == []


@pytest.mark.parametrize("asks", [True, False])
def test_the_step_limit_holds_whether_it_asks_or_not(asks: bool) -> None:
    """A child that only reports what it made is counted as one that asks first; the run's driver is told to stop it."""
    bench = Bench(Limit(most=3))
    for number in range(3):
        if asks:
            assert bench.ask(pattern="p", call=str(number)) == "proceed"
        assert bench.made(pattern="p", call=str(number), result=str(number)) == "proceed"
    assert not bench.told
    answer = bench.ask(pattern="p", call="3") if asks else bench.made(pattern="p", call="3")
    assert answer == "stop"
    (decision,) = bench.told
    assert decision.codes == ("max_steps",)


def test_a_loop_is_stopped() -> None:
    """A hundred times the same pattern within a minute."""
    bench = Bench(Loop(repeats_max=10))
    answers = [bench.made(pattern="p", call=str(number), result=str(number)) for number in range(10)]
    assert answers == ["proceed"] * 9 + ["stop"]
    assert bench.told[0].codes == ("loop_detected",)


def test_a_child_that_goes_round_in_circles_is_nudged_and_stopped() -> None:
    """The same call with the same result, again and again: the answer says so, then the run is ended."""
    bench = Bench(Stall())
    answers = [bench.say(("X_FLYBALL_STEPPED", {"pattern": "p", "call": "c", "result": "r"})) for _ in range(4)]
    assert [answer["verb"] for answer in answers] == ["proceed", "proceed", "proceed", "stop"]
    assert "repeating yourself" in answers[2]["reasons"][0]["text"]
    assert bench.told[-1].codes == ("going_in_circles",)


def test_a_refused_call_counts_against_who_insists() -> None:
    """A repeated call is refused (wait), not stopped; asking for it once more is."""
    bench = Bench(Stall(nudge_at=2, refuse_at=4, stop_at=6, repeats_max=99))
    for _ in range(3):
        assert bench.made(pattern="p", call="c", result="r") == "proceed"
    assert bench.ask(pattern="p", call="c") == "wait"
    assert not bench.told
    assert bench.ask(pattern="p", call="another") == "proceed"
    assert bench.ask(pattern="p", call="c") == "stop"
    assert bench.told[0].verb is Verb.STOP


def test_progress_is_new_ground() -> None:
    """A child that says how far it got, each time something new, is not taken for one that goes round in circles."""
    steady, stuck = Bench(Stall()), Bench(Stall())
    for number in range(12):
        steady.say(("X_FLYBALL_PROGRESS", f"{number} of 12 files"))
        assert steady.made(pattern="p", call="next", result="ok") == "proceed"
    for _ in range(12):
        stuck.say(("X_FLYBALL_PROGRESS", "still at it"))
        stuck.made(pattern="p", call="next", result="ok")
    assert not steady.told
    assert stuck.told


def test_money_is_reserved_before_a_step_and_settled_after_it() -> None:
    """The worst case has to fit; what it really cost counts. The limit is never passed."""
    bench = Bench(Budget(limit=10 * CENT))
    assert bench.ask(pattern="p", call="1", cost={"usd": "0.08"}) == "proceed"
    assert bench.ask(pattern="p", call="2", cost={"usd": 0.08}) == "finish"
    assert bench.told.pop().codes == ("cost_budget_exceeded",)
    assert bench.made(pattern="p", call="1", used={"usd": "0.01"}) == "proceed"
    assert bench.ask(pattern="p", call="2", cost={"usd": 0.08}) == "proceed"


def test_spending_beside_steps_counts() -> None:
    """`spent` alone is enough for a budget to hold; it is exact to the millionth."""
    bench = Bench(Budget(limit=30 * CENT))
    assert bench.say(("X_FLYBALL_SPENT", "0.1"))["verb"] == "proceed"
    assert bench.say(("X_FLYBALL_SPENT", "0.199999"))["verb"] == "proceed"
    assert bench.say(("X_FLYBALL_SPENT", "0.000001"))["verb"] == "finish"
    assert bench.told[0].codes == ("cost_budget_exceeded",)


def test_tokens_have_a_budget_of_their_own() -> None:
    """Other meters than money are counted whole."""
    bench = Bench(Budget(limit=1_000, meter="tokens"))
    assert bench.ask(pattern="p", call="1", cost={"tokens": 900}) == "proceed"
    assert bench.made(pattern="p", call="1", used={"tokens": 950}) == "proceed"
    assert bench.ask(pattern="p", call="2", cost={"tokens": 51}) == "finish"


def test_a_wait_says_for_how_long() -> None:
    """Seconds from now: whoever asks may have another clock."""
    bench = Bench(Budget(limit=CENT, every=60 * MINUTE, over=Verb.WAIT))
    answer = bench.say(("X_FLYBALL_STEP", {"pattern": "p", "cost": {"usd": 1}}))
    assert answer["verb"] == "wait"
    assert 0 < answer["seconds"] <= 3600
    assert not bench.told


def test_texts_of_calls_and_results_are_not_kept() -> None:
    """They may carry secrets: the journal and the states have fingerprints."""
    bench = Bench(Stall(), Loop())
    bench.ask(pattern="search", call="key=hush")
    bench.made(pattern="search", call="key=hush", result="hush found", world="hush")
    bench.say(("X_FLYBALL_PROGRESS", "hush"))
    assert "search" in bench.journal
    assert "hush" not in bench.journal + str(bench.store.states())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("X_FLYBALL_STEP", "{"),
        ("X_FLYBALL_STEP", "[]"),
        ("X_FLYBALL_STEP", {"patern": "p"}),
        ("X_FLYBALL_STEP", {"cost": {"usd": -1}}),
        ("X_FLYBALL_STEP", {"cost": {"tokens": 1.5}}),
        ("X_FLYBALL_STEP", {"cost": {"tokens": "1e400"}}),
        ("X_FLYBALL_STEP", {"cost": {str(number): 1 for number in range(9)}}),
        ("X_FLYBALL_STEP", {"cost": {"": 1}}),
        ("X_FLYBALL_STEPPED", {"used": {"usd": "a lot"}}),
        ("X_FLYBALL_STEPPED", {"gauges": {str(number): 1 for number in range(17)}}),
        ("X_FLYBALL_STEPPED", '{"gauges": {"round": NaN}}'),
        ("X_FLYBALL_STEPPED", {"error": "yes"}),
        ("X_FLYBALL_SPENT", ""),
        ("X_FLYBALL_SPENT", "NaN"),
        ("X_FLYBALL_SPENT", "1e99"),
        ("X_FLYBALL_SPENT", "-0.01"),
    ],
)
def test_nonsense_is_answered_and_changes_nothing(key: str, value: object) -> None:
    """What is wrong is said; nothing of that message counts, and the next one is heard."""
    bench = Bench(Limit(most=3), Budget())
    answer = bench.say(("X_FLYBALL_STEP", {"pattern": "fine"}), (key, value))
    assert answer["error"].startswith(key.removeprefix("X_FLYBALL_").lower())
    assert bench.events == []
    assert bench.ask(pattern="p") == "proceed"


def test_several_reports_in_one_message_get_one_answer() -> None:
    """What was made, what it cost, and the next step: in one datagram, in that order."""
    bench = Bench()
    answer = bench.say(
        ("X_FLYBALL_STEPPED", {"pattern": "p", "call": "1"}),
        ("X_FLYBALL_SPENT", "0.01"),
        ("X_FLYBALL_STEP", {"pattern": "p", "call": "2"}),
        ("STATUS", "busy"),
    )
    assert answer["verb"] == "proceed"
    assert bench.events == ["step", "stepped", "stepped", "step"]


def test_what_is_not_about_work_is_left_to_others() -> None:
    """READY, WATCHDOG and STATUS put nothing to the governor by themselves."""
    bench = Bench()
    assert bench.say_all([(("READY", "1"),), (("WATCHDOG", "1"), ("STATUS", "x"))]) == []
    assert bench.events == []


def test_a_beat_is_the_runs_own_sign_of_life() -> None:
    """It puts off the idle deadline, which the holder's silent beats do not; many at once are one."""
    bench = Bench(Deadline(lasts_max=10 * SECOND, idle=True))

    async def beat() -> None:
        for _ in range(5):
            bench.reporter.beat()
        await bench.reporter.settled()

    bench.clock.move(9 * SECOND)
    asyncio.run(beat())
    assert bench.events == ["beat"]
    bench.clock.move(9 * SECOND)
    assert bench.governor.submit(Beat(unit="u", run="r", silent=True)).proceeds
    bench.clock.move(2 * SECOND)
    asyncio.run(beat())
    assert bench.told[0].codes == ("idle_timeout",)


def test_a_flood_is_slowed_down_and_nothing_is_lost() -> None:
    """Above a number that wait, the socket is not read; when all are answered, it is again."""
    bench = Bench()
    flood = [(("X_FLYBALL_STEP", {"pattern": str(number)}),) for number in range(3 * WAITING_MAX)]
    assert len(bench.say_all(list(flood))) == 3 * WAITING_MAX
    assert bench.events == ["step"] * 3 * WAITING_MAX
    assert bench.paused == [True, False]


def test_a_store_that_cannot_write_gives_no_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was not written down is granted; when there is room again, so is leave."""
    bench = Bench()

    def full(_: Event, __: Rows) -> "Future[Decision]":
        answer: Future[Decision] = Future()
        answer.set_exception(StoreFull("the disk is full"))
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(bench.governor, "submit_soon", full)
        assert bench.say(("X_FLYBALL_STEP", {"pattern": "p"})) == {"error": "the disk is full"}
    assert bench.ask(pattern="p") == "proceed"


# The same over a real socket, by real children.


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def supervised(bench: Bench, folder: Path, work: Callable[[Mapping[str, str]], Any]) -> Any:
    """Do that in a thread, as children of a run whose socket is heard here."""

    async def listen() -> Any:
        notify = Notify.open(folder, "u")
        notify.expect("r")
        notify.listen(os.getpid(), bench.reporter.hear)
        # The command as a script finds it, whether the package is installed or not.
        command_file = folder / "flyball"
        command_file.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m flyball "$@"\n')
        command_file.chmod(0o700)
        try:
            env = {**os.environ, **notify.env("r"), "PATH": f"{folder}:{os.environ['PATH']}"}
            return await asyncio.wait_for(asyncio.to_thread(work, env), 3 * WITHIN)
        finally:
            notify.rest()
            await bench.reporter.settled()
            notify.close()

    return asyncio.run(listen())


def flyball(*arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "flyball", "report", *arguments]
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=WITHIN)


def test_the_command_reports_and_its_exit_code_is_the_answer(folder: Path) -> None:
    """0 go on, 10 wait, 11 finish, 12 stop, with the reason and the remedy; as text and as JSON."""
    bench = Bench(Budget(limit=10 * CENT), Limit(most=1))

    def work(env: Mapping[str, str]) -> None:
        asked = flyball("ask", "--pattern", "p", "--call", "c" * 5_000, "--cost", "0.05", env=env)
        assert (asked.returncode, asked.stdout, asked.stderr) == (0, "", "")
        made = flyball(
            *["step", "--pattern", "p", "--call", "c" * 5_000, "--result", "ü\n" * 5_000, "--error"],
            *["--spent", "0.02", "--tokens", "900", "--round", "3", "--gauge", "convergence", "0.5"],
            env=env,
        )
        assert (made.returncode, made.stderr) == (0, "")
        refused = flyball("ask", "--pattern", "p", env=env)
        assert refused.returncode == 12
        assert "stop: Step limit reached (2/1)" in refused.stderr
        as_json = flyball("spend", "0.09", "--json", env=env)
        assert as_json.returncode == 11
        assert json.loads(as_json.stdout)["reasons"][0]["code"] == "cost_budget_exceeded"
        finish = flyball("progress", "a\nb", env=env)
        assert finish.returncode == 11
        assert "finish: 0.11 USD spent" in finish.stderr
        wrong = flyball("spend", "much", env=env)
        assert wrong.returncode == 2
        assert "spent: it is 'much': usd should be an amount such as 0.50" in wrong.stderr
        assert "Traceback" not in wrong.stderr

    supervised(bench, folder, work)
    done = json.loads(next(entry.body for entry in bench.store.entries(limit=100) if entry.event == "stepped"))
    work_done = done["event"]["done"][0]
    assert work_done["used"] == {"usd": 2 * CENT, "tokens": 900}
    assert work_done["reserved"] == {"usd": 5 * CENT}
    assert work_done["gauges"] == {"round": 3.0, "convergence": 0.5}
    assert work_done["error"] is True


def test_beat_and_ready_speak_plain_sd_notify(folder: Path) -> None:
    """They work with any supervisor that sets NOTIFY_SOCKET; an abstract address too."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0flyball-test-" + folder.name)
        listening.settimeout(WITHIN)
        env = {**os.environ, "NOTIFY_SOCKET": "@flyball-test-" + folder.name, "FLYBALL_RUN": ""}
        assert flyball("beat", env=env).returncode == 0
        assert listening.recv(100) == b"WATCHDOG=1"
        assert flyball("ready", env=env).returncode == 0
        assert listening.recv(100) == b"READY=1"


@pytest.mark.parametrize("case", ["no socket", "nobody listens", "nobody answers"])
def test_without_an_answer_there_is_no_leave(folder: Path, case: str) -> None:
    """Exit code 2, with what is wrong and what to do, and no traceback."""
    path = folder / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as silent:
        if case == "nobody answers":
            silent.bind(os.fspath(path))
        env = {**os.environ, "NOTIFY_SOCKET": "" if case == "no socket" else str(path)}
        asked = flyball("ask", "--pattern", "p", "--timeout", "0.05", env=env)
    assert asked.returncode == 2
    assert asked.stderr.startswith("error: ")
    assert len(asked.stderr.splitlines()) == 2
    assert "Traceback" not in asked.stderr


def test_where_the_system_makes_up_no_names_the_answer_comes_to_a_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS has no made-up addresses: the asking socket is a file for as long as it asks."""
    monkeypatch.setattr(tell_module, "MAKES_UP_NAMES", False)
    bench = Bench()
    answer = supervised(bench, folder, lambda env: ask([("X_FLYBALL_STEP", '{"pattern": "p"}')], env))
    assert answer["verb"] == "proceed"
    with pytest.raises(FlyballError, match="NOTIFY_SOCKET is not set"):
        ask([("X_FLYBALL_STEP", "{}")], {})


@pytest.mark.parametrize("words", [("sh", "worker.sh"), (sys.executable, "worker.py")])
def test_the_examples_stop_where_their_budget_ends(folder: Path, words: tuple[str, str]) -> None:
    """0.10 dollars and 0.02 a step: four steps, because the fifth could cost 0.03. Then they wrap up by themselves."""
    bench = Bench(Budget(limit=10 * CENT), Stall(), Loop())

    def work(env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
        script = [words[0], str(EXAMPLES / words[1])]
        return subprocess.run(script, env=env, capture_output=True, text=True, check=False, timeout=2 * WITHIN)

    ended = supervised(bench, folder, work)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[:4] == [f"summary of {file}" for file in ("one", "two", "three", "four")]
    assert ended.stdout.splitlines()[4].startswith("told to wrap up")
    assert bench.told[0].codes == ("cost_budget_exceeded",)


def test_the_examples_run_without_a_supervisor() -> None:
    """A worker that reports is a worker still when it is started by hand."""
    for words in (("sh", "worker.sh"), (sys.executable, "worker.py")):
        with command(words[0], str(EXAMPLES / words[1]), env={"NOTIFY_SOCKET": ""}) as child:
            output, _ = child.communicate(timeout=WITHIN)
            assert child.returncode == 0
            assert len(output.splitlines()) == 6


def test_what_a_child_says_last_is_counted_before_its_exit(folder: Path) -> None:
    """It spends, and is gone at once: what it said waits in the socket and is heard when the run is over."""
    bench = Bench(Budget(by="unit", limit=100 * CENT))
    script = """
import os, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect(os.environ["NOTIFY_SOCKET"])
for _ in range(5): s.send(b"X_FLYBALL_SPENT=0.01\\nX_FLYBALL_RUN=r")
os.kill(os.getpid(), 9)
"""

    async def listen() -> None:
        notify = Notify.open(folder, "u")
        notify.expect("r")
        with command(sys.executable, "-c", script, env=notify.env("r")) as child:
            notify.listen(child.pid, bench.reporter.hear)
            await until(lambda: child.poll() is not None)
            notify.rest()
            await bench.reporter.settled()
        notify.close()

    asyncio.run(listen())
    assert bench.events == ["stepped"] * 5
