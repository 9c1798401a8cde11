"""The layers that end a graph from inside: steps, rounds, money; and what is seen of it."""

import logging
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.types import Send

from flyball.core.codec import decode_state
from flyball.core.decision import PROCEED, Decision, Reason, Verb, refuse, stop
from flyball.core.event import Cause, Event, Held, Step
from flyball.core.policy import Gate, Key
from flyball.core.policy import State as PolicyState
from flyball.core.time import SECOND
from flyball.integrations.langgraph import OverBudget, StepLimit, Stopped, TimedOut, guard
from flyball.policies import Limit
from flyball.policies.limit import State as Counted
from flyball.runtimes.refusal import Refused
from flyball.testing.clock import FakeClock
from tests.integrations.langgraph.scene import (
    WAYS,
    Run,
    State,
    a_guard,
    counts,
    endless,
    exits,
    line,
    next_round,
    of_thread,
    only_unit,
    says,
    starts,
    steps,
)


class Times(PolicyState, frozen=True):
    """How often."""

    times: int = 0


INLINE: dict[str, Any] = {"isolation": "inline", "name": "board"}

every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())


# Layer 1.


@every_way
def test_the_56th_step(way: Run) -> None:
    """S1-03, S1-04, S1-06: 55 steps are made; the next raises LangGraph's own error, with what there is."""
    ran: list[str] = []
    with a_guard() as opened:
        graph = guard(endless(ping=counts(ran), pong=counts(ran)), guard=opened, **INLINE)
        with pytest.raises(GraphRecursionError) as raised:
            way(graph, {"log": ["begun"]}, None)
        assert len(ran) == 55
        assert isinstance(raised.value, StepLimit)
        assert isinstance(raised.value, Refused)
        assert "(56/55)" in str(raised.value)
        outcome = raised.value.outcome
        assert outcome is not None
        assert outcome is graph.last
        assert (outcome.layer, outcome.stop_reason, outcome.status) == (1, "max_steps", "stopped")
        assert outcome["log"] == ["begun"]
        [exited] = exits(opened, only_unit(opened))
        assert (exited.cause, exited.error, exited.policy) == (Cause.STOPPED, "max_steps", "steps")
        assert steps(opened, only_unit(opened)) == 55


def test_a_step_is_a_superstep() -> None:
    """S1-03: nodes that run side by side are one step, as LangGraph counts them."""
    builder = line("ping", "pong")
    for number in range(5):
        builder.add_node(f"side {number}", says("side"))
        builder.add_edge("ping", f"side {number}")
    with a_guard() as opened:
        graph = guard(builder, guard=opened, steps=2, **INLINE)
        assert sorted(graph.invoke({"log": []})["log"]) == ["ping", "pong", *["side"] * 5]
        assert steps(opened, only_unit(opened)) == 2


def test_a_kill_leaves_steps_to_be_resumed_with() -> None:
    """S1-63: what was granted and not made counts as used if the run is killed: that is never much of the limit."""
    counted: list[int] = []
    with a_guard() as opened:

        def count(_: State) -> dict[str, Any]:
            key = Key("steps", "unit", "board@7")
            counted.append(decode_state(Counted, opened.governor.store.read([key]).records[key]).count)
            return {}

        graph = guard(endless(ping=count, pong=count), guard=opened, **INLINE)
        with pytest.raises(StepLimit):
            graph.invoke({"log": []}, of_thread("7"))
    assert len(counted) == 55
    assert all(made <= granted <= min(55, made + 5) for made, granted in enumerate(counted, 1))


def test_langgraph_s_own_limit_is_the_first_layer_too() -> None:
    """S1-04: whoever gives a lower `recursion_limit` gets LangGraph's error, and it is layer 1."""
    with a_guard() as opened:
        graph = guard(endless(), guard=opened, **INLINE)
        with pytest.raises(GraphRecursionError, match="Recursion limit of 10"):
            graph.invoke({"log": []}, {"recursion_limit": 10})
        assert graph.last is not None
        assert (graph.last.layer, graph.last.stop_reason) == (1, "max_steps")
        [exited] = exits(opened, only_unit(opened))
        assert (exited.cause, exited.policy) == (Cause.STOPPED, "steps")


def test_a_retry_policy_does_not_get_round_a_refusal() -> None:
    """S1-64: LangGraph retries what nodes raise, and hands errors to handlers; a refusal is neither."""
    from langgraph.types import RetryPolicy

    handled: list[str] = []
    builder = endless()
    builder.nodes["ping"].retry_policy = RetryPolicy(max_attempts=5, retry_on=Exception)
    builder.set_node_defaults(error_handler=counts(handled))
    with a_guard() as opened:
        with pytest.raises(StepLimit):
            guard(builder, guard=opened, steps=4, **INLINE).invoke({"log": []})
        assert not handled


@dataclass(frozen=True, slots=True, kw_only=True)
class NoWays:
    """A safeguard of somebody's own: it counts how often each run came to `pong`, and stops it the third time."""

    name: str = "no_ways"
    by: str = "run"
    at: Gate = Gate.STEP

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Step)

    def initial(self) -> Times:
        return Times()

    def evolve(self, state: Times, event: Event, now: int) -> Times:
        return Times(state.times + 1) if isinstance(event, Step) and event.pattern == "pong" else state

    def decide(self, state: Times, now: int) -> Decision:
        return stop(Reason(self.name, "pong", "pong came three times")) if state.times > 2 else PROCEED


def test_a_policy_of_one_s_own() -> None:
    """S1-02: where somebody's own safeguard judges more of a step than that it was one, it is asked for each."""
    with a_guard() as opened:
        opened.put_policy(NoWays())
        graph = guard(endless(), guard=opened, **INLINE)
        with pytest.raises(Stopped, match="pong came three times"):
            graph.invoke({"log": []})
        assert steps(opened, only_unit(opened)) == 5


def test_threads_of_one_tree_share_its_steps() -> None:
    """S1-03: what a tree has, its threads have together: one does not hold what another needs."""
    with a_guard() as opened:
        opened.put_policy(Limit(most=32, by="tree", name="tree_steps"))
        graph = guard(line(*"abcdefghij"), guard=opened, tree="family", **INLINE)
        streams = [graph.stream({"log": []}, of_thread(str(thread))) for thread in range(4)]
        for turn in range(32):
            next(streams[turn % 4])
        with pytest.raises(Stopped, match="33/32"):
            next(streams[0])
        for stream in streams:
            stream.close()  # type: ignore[attr-defined]  # it is a generator


# Layer 3.


@every_way
def test_rounds(way: Run) -> None:
    """S1-12, S1-14, S1-17, S1-18: after the seventh round it goes on to the node that wraps up, which is told why."""
    with a_guard() as opened:
        graph = guard(endless(pong=next_round), guard=opened, wrap_up="end", **INLINE)
        values = way(graph, {"log": []}, None)
        assert values["log"] == ["ping", "pong"] * 7 + ["end"]
        assert (values["round"], values["should_stop"], values["stop_reason"]) == (7, True, "max_rounds")
        assert graph.last is not None
        assert (graph.last.layer, graph.last.stop_reason, graph.last.status) == (3, "max_rounds", "completed")
        [exited] = exits(opened, only_unit(opened))
        assert (exited.cause, exited.error) == (Cause.DONE, "max_rounds")


def test_the_cap() -> None:
    """S1-13, S1-66: fifteen rounds may be asked for, and end by the cap, which says what helps instead."""
    with a_guard() as opened:
        graph = guard(endless(pong=next_round), guard=opened, wrap_up="end", rounds=15, steps=100, **INLINE)
        values = graph.invoke({"log": []})
        assert (values["round"], values.stop_reason) == (15, "hard_cap_15_rounds")
        assert "moderator" in values.reasons[0].remedy


@pytest.mark.parametrize("gauges", [{"convergence": 0.90}, {"agreement": 0.80}], ids=["alike", "four of five agree"])
def test_consensus(gauges: dict[str, float]) -> None:
    """S1-15, S1-16, S1-20: who agrees in round 5 goes on to the vote."""

    def check(state: State) -> dict[str, Any]:
        update = next_round(state)
        return {**update, **gauges} if update["round"] == 5 else update

    with a_guard() as opened:
        values = guard(endless(pong=check), guard=opened, wrap_up="end", **INLINE).invoke({"log": []})
        assert (values["round"], values.stop_reason, values.layer) == (5, "consensus", 3)
        assert values["log"][-1] == "end"


def test_keys_of_the_gauges() -> None:
    """S1-12: the round may have another name in the state; what is called so then means nothing."""
    with a_guard() as opened:
        graph = guard(endless(pong=next_round), guard=opened, round_key="lap", steps=30, **INLINE)
        with pytest.raises(StepLimit):
            graph.invoke({"log": []})


@pytest.mark.parametrize(
    ("rounds", "says_what"), [([3, 2], "went back"), ([8], "above max_rounds")], ids=["falls", "too high"]
)
def test_broken_rounds(rounds: list[int], says_what: str) -> None:
    """S1-19: a round that falls, or is above the limit, is an error of the graph."""
    left = iter(rounds)
    with a_guard() as opened:
        graph = guard(endless(pong=lambda _: {"round": next(left)}), guard=opened, **INLINE)
        with pytest.raises(ValueError, match=says_what):
            graph.invoke({"log": []})
        assert graph.last is not None
        assert graph.last.status == "failed"
        assert exits(opened, only_unit(opened))[0].cause is Cause.ERROR


def test_the_wrap_up_by_reason() -> None:
    """S1-17: each reason may have its own node that wraps up."""
    with a_guard() as opened:
        wrap_up = {"max_rounds": "ping", "consensus": "end"}
        graph = guard(endless(pong=says("pong", agreement=1.0)), guard=opened, wrap_up=wrap_up, **INLINE)
        assert graph.invoke({"log": []})["log"] == ["ping", "pong", "end"]


def test_without_a_wrap_up() -> None:
    """S1-35: without a node that wraps up it ends with what there is."""
    with a_guard() as opened:
        graph = guard(endless(pong=next_round), guard=opened, **INLINE)
        values = graph.invoke({"log": []})
        assert values["log"] == ["ping", "pong"] * 7
        assert (values["should_stop"], values["stop_reason"], values.status) == (True, "max_rounds", "completed")


def test_a_graph_that_stops_by_itself() -> None:
    """S1-17: a graph that counts its rounds itself, and leads to its own end, is not cut off there."""
    builder = endless(pong=lambda state: {**next_round(state), "should_stop": state.get("round", 0) >= 6})
    builder.branches["pong"].clear()
    builder.add_conditional_edges("pong", lambda state: "end" if state["should_stop"] else "ping", ["ping", "end"])
    with a_guard() as opened:
        values = guard(builder, guard=opened, **INLINE).invoke({"log": []})
        assert values["log"][-1] == "end"
        assert (values["round"], values.stop_reason, values.status) == (7, "max_rounds", "completed")


def test_a_graph_that_only_says_that_it_stops(caplog: pytest.LogCaptureFixture) -> None:
    """S1-02: one that says so and goes on has ten more steps, and no more."""
    ran: list[str] = []
    builder = endless(ping=counts(ran), pong=lambda _: {"agreement": 1.0, "should_stop": True})
    with a_guard() as opened:
        values = guard(builder, guard=opened, steps=1000, **INLINE).invoke({"log": []})
        assert len(ran) == 1 + 5
        assert values.stop_reason == "consensus"
        assert "does not come to its end" in caplog.text


def test_a_wrap_up_that_goes_on_for_ever() -> None:
    """S1-02: nor does a wrap-up that leads back into the graph."""
    builder = endless(pong=lambda _: {"agreement": 1.0})
    builder.edges.discard(("end", "__end__"))
    builder.add_conditional_edges("end", lambda _: "ping", ["ping", "__end__"])
    with a_guard() as opened:
        values = guard(builder, guard=opened, steps=1000, wrap_up="end", **INLINE).invoke({"log": []})
        assert values["log"].count("end") == 1
        assert steps(opened, only_unit(opened)) == 2 + 10


# Layer 4, as far as it is seen from inside.


@every_way
def test_a_deadline_between_two_nodes(way: Run, caplog: pytest.LogCaptureFixture) -> None:
    """S1-21, S1-23, S1-25: its time over, it goes no further; that is a TimeoutError, and logged as an error."""
    clock = FakeClock()

    def slow(_: State) -> dict[str, Any]:
        clock.move(61 * SECOND)
        return {"log": ["slow"]}

    with a_guard(clock) as opened:
        graph = guard(line("slow", "next", slow=slow), guard=opened, timeout=60, **INLINE)
        with pytest.raises(TimeoutError) as raised:
            way(graph, {"log": []}, None)
        assert isinstance(raised.value, TimedOut)
        outcome = raised.value.outcome
        assert outcome is not None
        assert (outcome.layer, outcome.stop_reason, outcome.status) == (4, "timeout", "timed_out")
        assert outcome["log"] == ["slow"]
        [exited] = exits(opened, only_unit(opened))
        assert (exited.cause, exited.error) == (Cause.TIMEOUT, "timeout")
        assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
            f"{only_unit(opened)} timed out"
        ]


def test_a_timeout_keeps_the_checkpoint() -> None:
    """S1-24, S1-42, S1-63: what was done is there, and the thread goes on where it was."""
    clock = FakeClock()
    saver = InMemorySaver()
    late = [True]

    def slow(_: State) -> dict[str, Any]:
        clock.move(61 * SECOND if late.pop() else 0)
        late.append(False)
        return {"log": ["slow"]}

    with a_guard(clock) as opened:
        graph = guard(line("slow", "next", slow=slow), guard=opened, timeout=60, checkpointer=saver, **INLINE)
        with pytest.raises(TimedOut):
            graph.invoke({"log": []}, of_thread("7"))
        state = graph.get_state(of_thread("7"))
        assert state.values["log"] == ["slow"]
        assert state.next == ("next",)
        clock.move(3600 * SECOND)
        assert graph.invoke(None, of_thread("7"))["log"] == ["slow", "next"]
        assert starts(opened, "board@7") == ["Start", "Resume"]


# People.


@pytest.mark.parametrize(("verb", "ends"), [(Verb.STOP, "stopped"), (Verb.FINISH, "completed")], ids=["stop", "finish"])
def test_a_person_ends_it_while_it_runs(verb: Verb, ends: str) -> None:
    """S1-60: whoever keeps the lease hears the order within seconds, though the node that is at work asks nothing."""
    with a_guard() as opened:
        heard = threading.Event()

        def works(_: State) -> dict[str, Any]:
            opened.governor.submit(Held(unit="board@7", verb=verb, by="ann"))
            assert heard.wait(30)
            return {"log": ["works"]}

        graph = guard(line("works", "next", works=works), guard=opened, wrap_up="next", **INLINE)
        stream = graph.stream({"log": []}, of_thread("7"), stream_mode="values")
        next(stream)
        gate = _block_of(stream).graph_run.gate
        gate._heard = lambda _: heard.set()
        if verb is Verb.STOP:
            with pytest.raises(Stopped, match="ann"):
                list(stream)
        else:
            assert list(stream)[-1]["log"] == ["works", "next"]
        assert graph.last is not None
        assert graph.last.status == ends


def test_what_a_person_orders_is_heard_at_once() -> None:
    """S1-60, S1-61: whoever keeps the lease passes it on, and the next node is not begun; to finish is to wrap up."""
    with a_guard() as opened:
        graph = guard(endless(), guard=opened, wrap_up="end", **INLINE)
        stream = graph.stream({"log": []}, of_thread("7"), stream_mode="values")
        assert next(stream)["log"] == []
        block = _block_of(stream)
        block.heard(_order(Verb.FINISH))
        assert list(stream)[-1]["log"][-1] == "end"
        assert graph.last is not None
        assert graph.last.stop_reason == "finishing"
        stream = graph.stream({"log": []}, of_thread("8"), stream_mode="values")
        next(stream)
        _block_of(stream).heard(_order(Verb.STOP))
        with pytest.raises(Stopped, match="ann"):
            list(stream)


def _order(verb: Verb) -> Any:
    code = "finishing" if verb is Verb.FINISH else "stopped"
    return refuse(verb, Reason("manual", code, f"{code} by ann"))


def _block_of(stream: Any) -> Any:
    """The run that a stream is in, as whoever keeps its lease has it."""
    while stream.gi_yieldfrom is not None and "block" not in stream.gi_frame.f_locals:
        stream = stream.gi_yieldfrom
    return stream.gi_frame.f_locals["block"]


# Several at once, and what is seen.


def test_several_layers_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """S1-40, S1-41, S1-48, S1-65: one primary reason, all of them listed, each layer logged as a warning."""

    def check(state: State) -> dict[str, Any]:
        opened.reserve("0.50").settle("0.50")
        return {**next_round(state), "agreement": 1.0}

    caplog.set_level(logging.WARNING)
    with a_guard() as opened:
        graph = guard(endless(pong=check), guard=opened, tier="free", **INLINE)
        values = graph.invoke({"log": []})
        assert {reason.code for reason in values.reasons} == {"consensus", "cost_budget_exceeded"}
        assert values.stop_reason == "consensus"
        assert values.layer == 3
        assert "layer 3 ended it" in caplog.text
        assert "layer 5 ended it" in caplog.text
        assert all(record.levelno == logging.WARNING for record in caplog.records if "layer" in record.message)


def test_a_run_that_just_ends_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """S1-65: no layer fired: nothing is logged, and the outcome says that it is complete."""
    caplog.set_level(logging.WARNING)
    with a_guard() as opened:
        values = guard(line("a", "b"), guard=opened, **INLINE).invoke({"log": []})
        assert values == {"log": ["a", "b"]}
        assert (values.layer, values.stop_reason, values.status, values.reasons) == (None, None, "completed", ())
        assert not caplog.records


def test_an_error_of_a_node() -> None:
    """S1-65: what a node raises is raised as it is; its outcome says that no layer did it."""

    def broken(_: State) -> dict[str, Any]:
        raise KeyError("the key")

    with a_guard() as opened:
        graph = guard(line("a", "b", b=broken), guard=opened, **INLINE)
        with pytest.raises(KeyError, match="the key") as raised:
            graph.invoke({"log": []})
        outcome = raised.value.outcome  # type: ignore[attr-defined]  # added by the guard
        assert (outcome.layer, outcome.status, outcome["log"]) == (None, "failed", ["a"])
        [exited] = exits(opened, only_unit(opened))
        assert exited.cause is Cause.ERROR
        assert "KeyError" in exited.error


def test_no_leave_to_begin() -> None:
    """S1-60: what a person holds does not begin, and no node runs."""
    ran: list[str] = []
    with a_guard() as opened:
        graph = guard(line("a", a=counts(ran)), guard=opened, user="ann", **INLINE)
        opened.governor.submit(Held(labels={"user": "ann"}, scope="user", verb=Verb.HOLD, by="bob"))
        with pytest.raises(Stopped, match="bob"):
            graph.invoke({"log": []})
        assert not ran


def test_a_fan_out_that_is_told_to_finish() -> None:
    """S1-35: of nodes side by side, those that were paid for are kept, and those that were not are skipped."""
    builder = line("plan", "end")
    builder.add_node("work", says("work"))
    builder.edges.discard(("plan", "end"))
    builder.add_conditional_edges("plan", lambda _: [Send("work", {}) for _ in range(20)], ["work"])
    builder.add_edge("work", "end")
    with a_guard() as opened:
        graph = guard(builder, guard=opened, costs={"work": "0.10"}, budget="0.50", wrap_up="end", **INLINE)
        values = graph.invoke({"log": []})
        assert values["log"] == ["plan", *["work"] * 5, "end"]
        assert (values.stop_reason, values.layer, values.status) == ("cost_budget_exceeded", 5, "budget_exceeded")
        assert str(values.spent) == "0.5"


def test_money_for_the_very_first_node() -> None:
    """S1-34: where there is none, no node runs, and there is an outcome all the same."""
    ran: list[str] = []
    with a_guard() as opened:
        graph = guard(line("a", a=counts(ran)), guard=opened, costs={"a": "2.00"}, **INLINE)
        values = graph.invoke({"log": ["begun"]})
        assert not ran
        assert (values["log"], values.status) == (["begun"], "budget_exceeded")
        assert not issubclass(OverBudget, GraphRecursionError)
