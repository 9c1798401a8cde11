"""How a session came to be what it is: its timeline, where its time went, what each layer saw, and what can be done.

It tells what there is to see and what to look at; it does not guess which of it was the cause.
"""

from collections.abc import Iterator
from typing import Final

from flyball.control.shapes import LayerView, MomentView, PostMortemView, SessionView, SessionWord, TimeView
from flyball.control.story import Story
from flyball.control.text import counted, entry_text, length, times
from flyball.core.amounts import MONEY, amount_text
from flyball.core.event import Beat, Exited, Released, Resume, Start, Step, Stepped
from flyball.core.layers import LAYERS, layer_of
from flyball.core.time import Instant, seconds
from flyball.policies.limit import OUT_OF_RESUMES, RESUMES
from flyball.policies.session import CALL

TIMELINE_MAX: Final = 100
"""Moments that are told: the newest. `flyball events` has all."""
STEPS_NORMAL: Final = 35
"""A run that converges takes 25 to 35 steps."""
LASTS_NORMAL: Final = (300, 900)
"""Seconds that a run normally takes."""
MOST: Final = 0.5
"""The share of the time from which on one pattern is worth being named."""
"""The policy that counts them: what a person makes it forget is counted anew."""
ENDED_EARLY: Final = (SessionWord.TIMED_OUT, SessionWord.BUDGET_EXCEEDED, SessionWord.STOPPED)


def post_mortem(session: SessionView, told: Story, now: Instant) -> PostMortemView:
    """All of it, for one session."""
    spent_on = told.times()
    covered = sum(time.seconds for time in spent_on if not time.part)
    between = max(0.0, seconds(told.lived(now)) - covered)
    return PostMortemView(
        timeline=tuple(_timeline(session, told))[-TIMELINE_MAX:],
        whole=told.whole,
        times=spent_on,
        between=between,
        layers=tuple(_layers(session)),
        causes=tuple(_causes(session, told, spent_on, between)) if session.status is SessionWord.TIMED_OUT else (),
        ways_on=tuple(_ways_on(session)),
    )


# What happened.


def _timeline(session: SessionView, told: Story) -> Iterator[MomentView]:
    """Everything but the steps that were made: there are many, and their times are told by pattern."""
    resumes = steps = money = 0
    started: Instant | None = None
    for at, event, decision in told.told:
        text = ""
        match event:
            case Stepped():
                steps += 0 if event.part else sum(work.times for work in event.done if not work.refused)
                money += sum(work.used.get(MONEY, 0) for work in event.done)
                if not decision.reasons or not event.done:
                    continue
            case Step() | Beat() if decision.proceeds:
                continue
            case Start() if decision.proceeds:
                resumes += event.again or isinstance(event, Resume)
                started = at
                text = _granted(session, event, resumes)
            case Released() if event.frees(RESUMES, "unit"):
                resumes = 0
            case Exited():
                took = "" if started is None else f"after {length(seconds(at - started))}, "
                took += f"{counted(steps, 'step')}, {amount_text(MONEY, money)}"
                text = f"{_fired(event)}{took}: {entry_text(event, decision, at)}"
                started, steps, money = None, 0, 0
        yield MomentView(at=seconds(at), text=text or entry_text(event, decision, at))


def _granted(session: SessionView, event: Start, resumes: int) -> str:
    if not (event.again or isinstance(event, Resume)):
        return "began"
    most = f" of {session.resumes.max}" if session.resumes is not None else ""
    source = f" from checkpoint {event.checkpoint}" if isinstance(event, Resume) and event.checkpoint else ""
    return f"resume {resumes}{most}{source}"


def _fired(event: Exited) -> str:
    layer = layer_of(event.error)
    return "" if layer is None else f"layer {layer} ({LAYERS[layer]}): "


# What each layer saw.


def _layers(session: SessionView) -> Iterator[LayerView]:
    for layer, name in LAYERS.items():
        text = _saw(session, layer)
        if text:
            yield LayerView(layer=layer, name=name, text=text, fired=session.layer == layer)


def _saw(session: SessionView, layer: int) -> str:
    steps, rounds, deadline, budget = session.steps, session.rounds, session.deadline, session.budget
    if layer == 1 and steps is not None:
        return f"{steps.used} of {steps.max} steps"
    if layer == 2 and session.kind != "session":
        return "every node has a way to an end: looked at before anything ran"
    if layer == 3 and rounds is not None:
        gauges = [("convergence", rounds.convergence), ("agreement", rounds.agreement)]
        read = "".join(f", {name} {value:.2f}" for name, value in gauges if value is not None)
        return f"{rounds.reached} of {rounds.max} rounds{read}"
    if layer == 4 and deadline is not None:
        return f"its last run took {length(deadline.lasted)} of {length(deadline.limit)}"
    if layer == 5 and budget is not None:
        held = f" and {amount_text(MONEY, budget.reserved)} reserved" if budget.reserved else ""
        return f"{amount_text(MONEY, budget.spent)} spent{held} of {amount_text(MONEY, budget.limit)}"
    return ""


# What to look at, and what to do.


def _causes(session: SessionView, told: Story, spent_on: tuple[TimeView, ...], between: float) -> Iterator[str]:
    """What makes a run last longer than it normally does, with what speaks for each."""
    low, high = LASTS_NORMAL
    yield f"A run that goes well takes {low} to {high} s."
    total = between + sum(time.seconds for time in spent_on if not time.part)
    slow = next((time for time in spent_on if time.seconds >= MOST * total), None)
    if between >= MOST * total:
        last = f" The last leave was for {told.unfinished}." if told.unfinished else ""
        yield (
            f"A slow API? {length(between)} of {length(total)} were outside of all steps that ended: it hung in one, "
            f"or between two.{last}"
        )
    elif slow is not None:
        name = slow.pattern or "steps without a name"
        yield (
            f"A slow API? {name} took {length(slow.seconds)} of {length(total)} ({times(slow.times)}, "
            f"the longest {length(slow.longest)})."
        )
    else:
        yield "A slow API? No kind of step took most of the time."
    steps, rounds = session.steps, session.rounds
    made = counted(steps.used, "step") if steps is not None else "its steps"
    if rounds is not None and rounds.reached:
        converged = "" if rounds.convergence is None else f", convergence {rounds.convergence:.2f}"
        made += f", {counted(rounds.reached, 'round')}{converged}"
    more = f", more than the {STEPS_NORMAL} of a run that converges" * (steps is not None and steps.used > STEPS_NORMAL)
    yield f"Layers 1 to 3 not ending it? It made {made}{more}."
    failed = f"{told.errors} of its steps and calls failed" if told.errors else "No step or call was reported as failed"
    yield f"Retries over a bad network? {failed}."


def _ways_on(session: SessionView) -> Iterator[str]:
    name, resumes = session.id, session.resumes
    if session.status in (SessionWord.RUNNING, SessionWord.COMPLETED, SessionWord.PENDING):
        return
    if session.checkpoints:
        last = session.checkpoints[-1]
        after = f" after {last.stage}" if last.stage else ""
        yield f"See what there is so far{after}: `flyball session show {name} --checkpoint {last.id}`."
    if session.failure_reason == OUT_OF_RESUMES and resumes is not None:
        yield (
            f"Find out why it keeps pausing, split the work, or raise `sessionRecovery.maxResumeAttempts` "
            f"({resumes.max}); then give it as many resumes once more: `flyball resume {name}`."
        )
    elif session.kind == CALL:
        yield "It was one call, without a thread: nothing is left of it to resume. Call it again."
    elif resumes is not None:
        left = max(0, resumes.max - resumes.used)
        yield f"Resume it, now or later: `flyball resume {name}` ({left} of {resumes.max} resumes are left)."
    if len(session.checkpoints) > 1:
        earlier = session.checkpoints[-2]
        yield f"Or from an earlier checkpoint: `flyball resume {name} --checkpoint {earlier.id}`."
    raised = {
        1: "`graph.recursion_limit`",
        3: "`graph.max_rounds` (to 15 at most)",
        4: "`graph.timeout_seconds`",
        5: "its budget or tier",
    }
    if session.layer in raised and session.status in ENDED_EARLY:
        yield f"If the work honestly needs more, raise {raised[session.layer]} first."
    yield f"To have somebody else look at it, send `flyball why {name} --json`: it has all of this."
