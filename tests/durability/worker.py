"""A process that is going to be killed: it asks the governor for leave in a loop, and acts each time it gets it.

An act is one line on standard output, written after leave was given and before the next is asked: the parent counts
acts by what it reads, so an act that happened cannot be lost by the kill.
"""

import os
import random
import sys
from collections.abc import Callable, Sequence

from flyball.core.decision import Verb
from flyball.core.event import Cause, Exited, Resume, Start, Step, Stepped, Work
from flyball.core.policy import AnyPolicy
from flyball.core.time import DAY
from flyball.governor import Governor
from flyball.policies import Budget, Exclusive, Limit, Quarantine, Restart, resume_limit
from flyball.runtimes.allowance import RunSteps
from flyball.store.sqlite import SqliteStore

STEPS_MAX = 400
RESUMES_MAX = 25
ROW_MAX = 30
LIMIT = 3_000_000
WORST = 9_000

# Leases of no length: a run whose process was killed is lost as soon as somebody asks for its place.
POLICIES: dict[str, Sequence[AnyPolicy]] = {
    "steps": [Limit(most=STEPS_MAX, by="unit")],
    "allowance": [Limit(most=STEPS_MAX, by="unit")],
    "resumes": [resume_limit(RESUMES_MAX)],
    "starts": [Exclusive(lease=0), Restart(row_max=ROW_MAX, restarts_max=10_000), Quarantine(failures_max=10_000)],
    "budget": [Budget(limit=LIMIT, by="unit"), Budget(limit=LIMIT, by="tree"), Budget(limit=LIMIT * 10, by="run")],
}


def act(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def steps(governor: Governor, me: str, dice: random.Random) -> None:
    while governor.submit(Step(unit="u", run=me)).proceeds:
        act("step")


def allowance(governor: Governor, me: str, dice: random.Random) -> None:
    run = RunSteps(governor, "u", me, steps_max=dice.randint(1, 16), lasts_max=DAY)
    while run.ask().proceeds:
        act("step")
        run.made(Work())


def resumes(governor: Governor, me: str, dice: random.Random) -> None:
    while governor.submit(Resume(unit="u", run=me)).proceeds:
        act("resume")


def starts(governor: Governor, me: str, dice: random.Random) -> None:
    number = 0
    while True:
        number += 1
        run = f"{me}.{number}"
        decision = governor.submit(Start(unit="u", run=run, holder=me))
        if decision.verb is Verb.HOLD:
            return
        if decision.proceeds:
            act("start")
            governor.submit(Exited(unit="u", run=run, cause=Cause.ERROR, fingerprint=str(dice.random())))


def budget(governor: Governor, me: str, dice: random.Random) -> None:
    number = 0
    while True:
        number += 1
        asked = dice.randint(1, WORST)
        run, labels = f"{me}.{number}", {"tree": "t"}
        if not governor.submit(Step(unit="u", run=run, labels=labels, cost={"usd": asked})).proceeds:
            if asked < WORST // 10:
                return
            continue
        used = dice.randint(0, asked)
        act(f"spent {used}")
        work = Work(reserved={"usd": asked}, used={"usd": used})
        governor.submit(Stepped(unit="u", run=run, labels=labels, done=(work,)))


JOBS: dict[str, Callable[[Governor, str, random.Random], None]] = {
    "steps": steps,
    "allowance": allowance,
    "resumes": resumes,
    "starts": starts,
    "budget": budget,
}


def main() -> None:
    job, path, me, seed = sys.argv[1:]
    with SqliteStore(path) as store:
        JOBS[job](Governor(POLICIES[job], store), me, random.Random(int(seed)))
    act("refused")


if __name__ == "__main__":
    main()
