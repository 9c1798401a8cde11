"""What the units and programs of a drill do: `python -m flyball.drill.actor NAME …`. Each misbehaves in one way.

A unit speaks to its supervisor as any child does, by its notify socket; a program opens flyball itself. Nobody here
looks at the answers: who goes on until it is ended is who safeguards are for.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from flyball.errors import FlyballError
from flyball.runtimes.tell import ask

LASTS: Final = 600.0
"""Seconds that something hangs: longer than any drill."""
USUAL: Final = 1
"""What is spent in a period, in millionths: so little that no budget minds."""
CIRCUIT: Final = "provider:drill"
"""The circuit that calls share."""
ESCAPED: Final = "escaped"
"""The file with the number of a process that ran away from its unit."""
YES: Final = "yes"


def _ask(pattern: str, call: str, cost: str = "") -> None:
    ask([("X_FLYBALL_STEP", json.dumps({"pattern": pattern, "call": call, "cost": {"usd": cost} if cost else {}}))])


def _made(**made: Any) -> None:
    ask([("X_FLYBALL_STEPPED", json.dumps(made))])


def steps(times: str, cost: str = "", pattern: str = "") -> None:
    """Ask for so many steps, of so much each, all of one pattern or each of its own."""
    for number in range(int(times)):
        _ask(pattern or f"step-{number}", str(number), cost)


def rounds(times: str) -> None:
    """Deliberate for so many rounds, and then once more. Each is a step with something new in it."""
    for number in range(1, int(times) + 1):
        _made(pattern="round", call=str(number), world=str(number), gauges={"round": float(number)})
    _ask("round", "more")


def agrees() -> None:
    """Agree, and go on talking."""
    _made(pattern="talk", call="1", world="1", gauges={"convergence": 1.0, "agreement": 1.0})
    _ask("talk", "more")


def circles(times: str) -> None:
    """Make the same call with the same result, so many times."""
    for _ in range(int(times)):
        _made(pattern="search", call="the same", result="nothing found")


def spends(periods: str, seconds: str, much: str) -> None:
    """Spend a little in each of so many periods, and then very much in one more."""
    for number in range(int(periods) + 1):
        length = float(seconds)
        time.sleep(length - time.time() % length + length / 10)
        amount = USUAL if number < int(periods) else int(much)
        ask([("X_FLYBALL_SPENT", f"{amount // 1_000_000}.{amount % 1_000_000:06}")])


def pauses(reason: str, after: str = "") -> None:
    """Pause for a reason, for so many seconds. A session that waited for a person is done when it goes on."""
    mark = Path(f"{reason}.paused")
    if not after and mark.exists():
        return
    mark.touch()
    ask([("X_FLYBALL_PAUSE", json.dumps({"reason": reason, "after": float(after) if after else None}))])


def escapes() -> None:
    """Leave a child that nobody is the parent of, and hang. Where the kernel can find it again (Linux), it is in a
    session of its own, too."""
    if not os.fork():
        if sys.platform.startswith("linux"):
            os.setsid()
        if os.fork():
            os._exit(0)
        Path("escaping").write_text(str(os.getpid()))
        Path("escaping").rename(ESCAPED)
    time.sleep(LASTS)


# Programs.


def holds(name: str) -> None:
    """Have one run of an agent, and keep it."""
    import flyball  # noqa: PLC0415 - units need none of it; so below

    with flyball.open("drill") as guard, guard.watch(name):
        time.sleep(LASTS)


def asks_a_person(name: str) -> None:
    """Ask a person; fails unless the answer is yes."""
    import flyball  # noqa: PLC0415 - see above

    with flyball.open("drill") as guard, guard.watch(name) as context:
        said = context.ask_human_and_wait("Is this a drill?", timeout=LASTS)
    sys.exit(said != YES)


def reserves(name: str) -> None:
    """Reserve a millionth, and never settle it."""
    import flyball  # noqa: PLC0415 - see above

    with flyball.open("drill") as guard, guard.watch(name) as context, context.reserve("0.000001"):
        time.sleep(LASTS)


def calls(times: str) -> None:
    """Call something that is down, so many times; fails unless a call is refused."""
    import flyball  # noqa: PLC0415 - see above

    with flyball.open("drill-calls") as guard:

        @guard.call("fetch", breaker=CIRCUIT)
        def fetch() -> None:
            raise OSError("down")

        for _ in range(int(times)):
            try:
                fetch()
            except flyball.CircuitOpen:
                return
            except OSError:
                continue
    sys.exit(1)


def from_the_future(name: str, seconds: str) -> None:
    """Have one run while the clock of this process is so far ahead."""
    true, ahead = time.time_ns, int(float(seconds) * 1e9)
    time.time_ns = lambda: true() + ahead
    import flyball  # noqa: PLC0415 - see above

    with flyball.open("drill") as guard, guard.watch(name):
        pass


def endless_graph() -> None:
    """Put a graph under guard from which no end can be reached; fails unless that is refused."""
    from langgraph.graph import START, StateGraph  # noqa: PLC0415 - only where it is installed

    import flyball  # noqa: PLC0415 - see above
    from flyball.integrations.langgraph import guard  # noqa: PLC0415 - see above

    builder: Any = StateGraph(dict)
    builder.add_node("think", lambda state: state)
    builder.add_node("doubt", lambda state: state)
    builder.add_edge(START, "think")
    builder.add_edge("think", "doubt")
    builder.add_edge("doubt", "think")
    with flyball.open("drill") as opened:
        try:
            guard(builder, name="endless", guard=opened)
        except ValueError:
            return
    sys.exit(1)


ACTORS: Final[dict[str, Callable[..., None]]] = {
    actor.__name__: actor
    for actor in (
        steps,
        rounds,
        agrees,
        circles,
        spends,
        pauses,
        escapes,
        holds,
        asks_a_person,
        reserves,
        calls,
        from_the_future,
        endless_graph,
    )
}


def main(words: Sequence[str]) -> int:
    """Do as the first word says, with the others."""
    try:
        ACTORS[words[0]](*words[1:])
    except FlyballError as error:  # nobody answers, or it was refused: both are seen elsewhere
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
