"""What one evaluation of a condition costs, compiled once, beside what people evaluate conditions with today:
simpleeval, which walks Python's own tree, and cel-python, which is CEL in Python. All get the same names and have to
give the same answer.

Ours reads what the condition names out of larger data, and looks at it before it is evaluated: its size, its depth and
its numbers. The peers' names are given to them as they like them, made once: simpleeval gets dicts, cel-python its own
types.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import celpy
import simpleeval
from celpy.adapter import json_to_cel

from bench.measure import Row, best_of_each
from flyball.config.expressions import compiled

CEL = 'trigger.kind == "webhook" && trigger.body.amount > 10 && units["shop"].state == "healthy" && time.hour >= 8'
PYTHON = (
    'trigger["kind"] == "webhook" and trigger["body"]["amount"] > 10'
    ' and units["shop"]["state"] == "healthy" and time["hour"] >= 8'
)
EVALUATIONS = 200
REPEAT = 30


def names() -> dict[str, Any]:
    """As the engine has them."""
    now = datetime(2024, 5, 6, 9, 30, tzinfo=UTC)
    return {
        "trigger": {
            "kind": "webhook",
            "hook": "price",
            "id": "a1",
            "headers": {"content-type": "application/json"},
            "body": {"amount": 20, "items": [{"name": "a", "price": 1.5}, {"name": "b", "price": 2.5}]},
        },
        "rule": {"name": "watch-price", "labels": {"provider": "shop"}, "priority": 5},
        "firing": {"id": "f1", "attempt": 0, "joined": 0, "at": now.isoformat()},
        "units": {name: {"state": "healthy", "failures": 0} for name in ("shop", "bank", "mail")},
        "values": {"last_price": 2.5},
        "time": {
            "now": now,
            "hour": now.hour,
            "minute": now.minute,
            "weekday": "mon",
            "date": "2024-05-06",
            "unix": now.timestamp(),
        },
    }


def ours() -> Callable[[], bool]:
    """This project's."""
    condition, given = compiled(CEL), names()
    return lambda: condition.holds(given)


def by_simpleeval() -> Callable[[], object]:
    """Parsed once; evaluated on the tree."""
    evaluator = simpleeval.EvalWithCompoundTypes(names=names())
    parsed = evaluator.parse(PYTHON)
    return lambda: evaluator.eval(PYTHON, previously_parsed=parsed)


def by_cel_python() -> Callable[[], object]:
    """Compiled once."""
    environment = celpy.Environment()
    program = environment.program(environment.compile(CEL))
    given = {name: json_to_cel(value) for name, value in names().items()}
    return lambda: program.evaluate(given)


def repeat(work: Callable[[], object]) -> Callable[[], None]:
    def many() -> None:
        for _ in range(EVALUATIONS):
            work()

    return many


def rows() -> list[Row]:
    """All rows of this file: microseconds an evaluation."""
    works: list[Callable[[], object]] = [ours(), by_simpleeval(), by_cel_python()]
    assert [bool(work()) for work in works] == [True, True, True]
    mine, simple, python = (time / EVALUATIONS * 1e6 for time in best_of_each([repeat(work) for work in works], REPEAT))
    name = "one evaluation of a condition"
    return [
        Row(name, mine, "simpleeval", simple, "us", "below", mine < simple),
        Row(name, mine, "cel-python", python, "us", "below", mine < python),
    ]


if __name__ == "__main__":
    print(*rows(), sep="\n")
