"""A program with DBOS workflows under a guard, and a conductor that forks one life of it after the other and kills some
of them. What a life says (one line on a pipe, written at once) has happened: it is heard though the life was killed.

The conductor imports once what each life needs, and has no threads when it forks.
"""

import json
import os
import random
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from dbos import DBOS, DBOSConfig, SetWorkflowID, error

import flyball
from flyball.config import Settings
from flyball.core.decision import Decision
from flyball.core.event import Event
from flyball.integrations.dbos import Guarded

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE: Final = 120.0
"""Seconds for one life, which takes two: the machine may be busy."""
COST: Final = "0.01"
"""Of each step that pays."""
PAYS: Final = 6
"""Steps of the workflow that pays."""
LINES_MAX: Final = 16
"""Lines to hear at most before a life is killed."""
RACERS: Final = 3
"""Who take over from one dead executor."""

# After a death no time is to be lost; what is tested here is counted, not timed.
SETTINGS: Final = {
    "quarantine": {"cooldown_ladder_seconds": [0.001], "max_failures_before_quarantine": 10_000},
    "circuit_breaker": {"failure_threshold": 10_000},
    "crash_policy": {"transient_delay_seconds": 0.001, "flap_threshold": 9, "flapping_delay_seconds": 0.001},
    "restart_policy": {"max_restarts_per_hour": 10_000, "max_restarts_in_a_row": 10_000},
    "safety": {"global_failure_threshold": 10_000},
}


@dataclass(frozen=True)
class Plan:
    """What the lives of one program have in common."""

    folder: str
    """Of flyball's state, and of DBOS' where that is on SQLite."""
    url: str
    """Where DBOS keeps its own."""
    store: str = ""
    """Where flyball does, if that is a PostgreSQL."""
    workflow: str = "dies"
    ids: tuple[str, ...] = ("w1",)
    resumes: int = 3
    guarded: bool = True
    lives: int = 12
    """Lives at most."""
    kills: int = 0
    """Lives that are killed from outside, at a random instant."""
    seed: str = "1"
    again: int = 0
    """Lives after one came to its end."""
    new_executors: bool = False
    """Each life has an executor id of its own, and takes over from the one before it."""


@dataclass
class Life:
    """What one life said, and how it ended."""

    code: int
    lines: list[str] = field(default_factory=list)


def settings_of(plan: Plan) -> Settings:
    """Those of the program."""
    return Settings.model_validate({**SETTINGS, **({"store": plan.store} if plan.store else {})})


class Program:
    """One life: a guard, workflows, and DBOS."""

    def __init__(self, plan: Plan, said: int, number: int) -> None:
        self._plan, self._said, self._number = plan, said, number
        self.guard = flyball.open("program", settings=settings_of(plan), state_dir=plan.folder)
        self.guarded = Guarded(self.guard)
        self._define()

    def say(self, *words: object) -> None:
        os.write(self._said, (" ".join(map(str, words)) + "\n").encode())

    def _define(self) -> None:
        guarded, plan, say = self.guarded, self._plan, self.say

        def workflow(function: Callable[P, R]) -> Callable[P, R]:
            return (guarded.workflow(resumes=plan.resumes) if plan.guarded else DBOS.workflow())(function)

        def step(function: Callable[P, R]) -> Callable[P, R]:
            return (guarded.step() if plan.guarded else DBOS.step())(function)

        def pays(function: Callable[P, R]) -> Callable[P, R]:
            return (guarded.step(cost=COST) if plan.guarded else DBOS.step())(function)

        @step
        def begin(name: str) -> int:
            say("step", name, "begin")
            return os.getpid()

        @step
        def die(name: str) -> None:
            say("step", name, "die")
            os.kill(os.getpid(), signal.SIGKILL)

        @pays
        def pay(name: str, number: int) -> int:
            say("step", name, f"pay{number}")
            return number

        @workflow
        def dies(name: str) -> str:
            say("begun", name)
            begin(name)
            die(name)
            return "alive"

        @workflow
        def spends(name: str) -> str:
            say("begun", name)
            for number in range(PAYS):
                pay(name, number)
            return "spent"

        @workflow
        def ends(name: str) -> str:
            say("begun", name)
            begin(name)
            self._die_when_done()
            return "alive"

        self._workflows = {"dies": dies, "spends": spends, "ends": ends}

    def _die_when_done(self) -> None:
        """The worker dies when the end of its run is written, and before DBOS hears of it."""
        governor = self.guard.governor
        submit = governor.submit_living

        def submit_and_die(fact: Event) -> Decision | None:
            submit(fact)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError

        governor.submit_living = submit_and_die  # type: ignore[method-assign]  # it is the last one of this life

    def live(self) -> None:
        plan = self._plan
        executor = f"executor-{self._number}" if plan.new_executors else "executor"
        config: DBOSConfig = {
            "name": "program",
            "system_database_url": plan.url,
            "executor_id": executor,
            "application_version": "1",
            "log_level": "ERROR",
            "sys_db_pool_size": 4,
        }
        DBOS(config=config)
        DBOS.launch()
        if plan.new_executors:
            for before in range(self._number):
                self._take_over(f"executor-{before}")
        for name in plan.ids:
            with SetWorkflowID(name):
                DBOS.start_workflow(self._workflows[plan.workflow], name)
        for name in plan.ids:
            try:
                self.say("done", name, DBOS.retrieve_workflow(name).get_result(polling_interval_sec=0.02))
            except flyball.SessionFailed as failed:
                self.say("refused", name, failed.code, failed.verb.name, *failed.metadata.values())
            except error.DBOSAwaitedWorkflowMaxRecoveryAttemptsExceeded:
                self.say("given up", name)
        self.say("over")

    def _take_over(self, dead: str) -> None:
        """Several notice it at once."""
        ready = threading.Barrier(RACERS)

        def race(_: int) -> None:
            ready.wait()
            taken = self.guarded.take_over(dead)
            if taken:
                self.say("took", dead, *taken)

        with ThreadPoolExecutor(RACERS) as racers:
            list(racers.map(race, range(RACERS)))


def live(plan: Plan, said: int, number: int) -> None:
    """One life, to its end."""
    Program(plan, said, number).live()


class Conductor:
    """Forks and kills."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._dice = random.Random(plan.seed)

    def play(self) -> list[Life]:
        """Lives, until one comes to its end; and some more."""
        lives: list[Life] = []
        while len(lives) < self._plan.lives and sum(not life.code for life in lives) <= self._plan.again:
            lives.append(self._life(len(lives)))
        return lives

    def _life(self, number: int) -> Life:
        hear, said = os.pipe()
        killed = number < self._plan.kills
        wait, lines = self._dice.random() * 0.05, self._dice.randint(1, LINES_MAX)
        pid = os.fork()
        if pid == 0:
            try:
                os.close(hear)
                live(self._plan, said, number)
                os._exit(0)
            except BaseException as failed:  # noqa: BLE001 - told, as everything
                os.write(said, f"failed {type(failed).__name__}: {failed}\n".encode())
            finally:
                os._exit(1)
        os.close(said)
        heard = b""
        ends = time.monotonic() + PATIENCE
        while (left := ends - time.monotonic()) > 0 and select.select([hear], [], [], left)[0]:
            data = os.read(hear, 65_536)
            if not data:
                break
            before, heard = heard.count(b"\n"), heard + data
            if killed and before < lines <= heard.count(b"\n"):
                ends = time.monotonic() + wait
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        while data := os.read(hear, 65_536):
            heard += data
        os.close(hear)
        _, status = os.waitpid(pid, 0)
        return Life(os.waitstatus_to_exitcode(status), heard.decode().splitlines())


def main() -> None:
    lives = Conductor(Plan(**json.loads(sys.argv[1]))).play()
    sys.stdout.write(json.dumps([asdict(life) for life in lives]))
    sys.stdout.flush()


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'dbos.sqlite'}"


if __name__ == "__main__":
    main()
