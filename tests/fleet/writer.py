"""A process that writes to the shared store, one entry after another, and writes down what it was answered: `begun`
before it asks, then `written`, or `not` with the error's text. Started by its path, in a place of the network."""

import json
import os
import sys

from flyball.core.policy import Key
from flyball.errors import StoreError
from flyball.store import Draft, Line, Snapshot
from flyball.store.postgres import PostgresStore

COUNT = Key("count", "unit", "all")


def main(dsn: str, name: str, notes: str) -> None:
    """Write until killed."""
    store = PostgresStore(dsn)
    answers = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    number = 0
    while True:
        number += 1
        _note(answers, ["begun", number])
        try:
            store.transact([COUNT], lambda seen: _one_more(seen, name, number, store.clock.now()))  # noqa: B023 - now
            _note(answers, ["written", number])
        except StoreError as error:
            _note(answers, ["not", number, str(error)])


def _one_more(seen: Snapshot, name: str, number: int, at: int) -> Draft:
    count = int(seen.records.get(COUNT, b"0")) + 1
    line = Line(name, "wrote", "proceed", json.dumps({"number": number, "count": count}).encode())
    return Draft(max(at, seen.at), {COUNT: str(count).encode()}, line)


def _note(answers: int, said: list[object]) -> None:
    os.write(answers, f"{json.dumps(said)}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
