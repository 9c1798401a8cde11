"""Layers: five independent protections end a graph that would never end, each of them by itself."""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from flyball.config import Settings
from flyball.config.build import get_tier_limit
from flyball.control.commands import COMMANDS
from flyball.control.context import Context
from flyball.core.decision import Decision, Verb
from flyball.core.event import Cause, Work
from flyball.core.policy import AnyPolicy
from flyball.core.preflight import find_trap
from flyball.core.time import HOUR, MINUTE, SECOND
from flyball.errors import SettingsError
from flyball.policies import Budget, Deadline, Limit, Rounds
from flyball.policies.rounds import ROUNDS_CAP, check_rounds
from flyball.testing.clock import START_OF_TIME
from tests.acceptance.conftest import Supervise
from tests.acceptance.harness import (
    NO_LABELS,
    UNIT,
    Labels,
    Nested,
    Supervisor,
    default_settings,
    primary,
    settings_of,
)

USD = 1_000_000
CENT = 10_000
NODES = ("facilitator", "persona", "check")


def one_step(
    supervisor: Supervisor,
    number: int,
    unit: str = UNIT,
    *,
    usd: int = 0,
    gauges: Mapping[str, float] | None = None,
    fresh: bool = True,
    labels: Labels = NO_LABELS,
) -> Decision:
    """Ask for a step, make it, report it; the first answer that is no leave, or else the last one. With `fresh` every
    call is a new one with a new result."""
    call = f"call {number}" if fresh else f"call {number % 3}"
    asked = supervisor.step(unit, pattern=NODES[number % 3], call=call, usd=usd, labels=labels)
    if not asked.proceeds:
        return asked
    money = {"usd": usd} if usd else {}
    work = Work(
        pattern=NODES[number % 3],
        call=call,
        result=f"result of {call}",
        reserved=money,
        used=money,
        gauges=gauges or {},
    )
    return supervisor.stepped(unit, work, labels=labels)


def one_round(supervisor: Supervisor, number: int, **gauges: float) -> Decision:
    """Three steps, of which the last reports the round."""
    first = 3 * number
    for step in range(first, first + 2):
        decision = one_step(supervisor, step)
        if not decision.proceeds:
            return decision
    return one_step(supervisor, first + 2, gauges={"round": number, **gauges})


# Layer 1: steps.


@pytest.mark.parametrize("kind", ["graph", "session"])
def test_56th_step_is_stopped(supervise: Supervise, kind: str) -> None:
    """S1-03, S1-04, S1-06, S1-39: 55 steps pass and the 56th is stopped, without anything being configured."""
    supervisor = supervise(kind)
    supervisor.start()
    for number in range(55):
        assert one_step(supervisor, number).proceeds
    decision = supervisor.step(call="one more")
    assert decision.verb is Verb.STOP
    assert decision.codes == ("max_steps",)
    assert "(56/55)" in decision.reasons[0].text


def test_steps_are_those_of_fifteen_rounds() -> None:
    """S1-05: 55 steps are 15 rounds of 3 nodes, and 10 more."""
    [limit] = [own for own in default_settings().policies("graph") if isinstance(own, Limit) and own.name == "steps"]
    assert limit.most == ROUNDS_CAP * len(NODES) + 10


@pytest.mark.parametrize("rounds", [5, 6])
def test_normal_run_is_left_alone(supervise: Supervise, rounds: int) -> None:
    """S1-05, S1-27: a normal run, of up to 35 steps in up to 900 s, meets no layer."""
    supervisor = supervise("graph")
    supervisor.start()
    for number in range(1, rounds + 1):
        assert one_round(supervisor, number, convergence=0.1 * number).proceeds
        supervisor.sleep(900 / rounds)
    for number in range(100, 110):
        assert one_step(supervisor, number, usd=CENT).proceeds


def test_steps_are_counted_over_resumes(supervise: Supervise) -> None:
    """S1-03: the count belongs to the work: a resume, and a restart of the supervisor, go on counting."""
    supervisor = supervise("session")
    supervisor.start()
    for number in range(50):
        one_step(supervisor, number)
    supervisor.exit(cause=Cause.STOPPED)
    supervisor.reboot()
    supervisor.resume()
    assert [one_step(supervisor, number).proceeds for number in range(50, 56)] == [True] * 5 + [False]


# Layer 2: preflight.


@pytest.mark.parametrize(
    "edges",
    [
        {"facilitator": ["persona"], "persona": ["check"], "check": ["facilitator", "vote"], "vote": []},
        {"a": ["b", "vote"], "b": ["a"], "vote": []},
        {"a": ["vote"], "vote": []},
    ],
    ids=["deliberation", "one edge out", "no cycle"],
)
def test_safe_graph_is_accepted(edges: Mapping[str, list[str]]) -> None:
    """S1-07, S1-08, S1-10: cycles are fine as long as an end can be reached from every node."""
    assert find_trap(edges, ends=["vote"]) is None


@pytest.mark.parametrize(
    ("edges", "stuck"),
    [
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, {"a", "b", "c"}),
        ({"start": ["a", "vote"], "a": ["b"], "b": ["c"], "c": ["a"]}, {"a", "b", "c"}),
        ({"a": ["b", "x"], "b": ["a"], "x": ["a"]}, {"a", "b", "x"}),
        ({"a": ["vote", "b"], "b": []}, {"b"}),
    ],
    ids=["no way out", "beside a way out", "two cycles into each other", "dead end"],
)
def test_unsafe_graph_is_rejected(edges: Mapping[str, list[str]], stuck: set[str]) -> None:
    """S1-07, S1-09, S1-11, S1-39: a graph is rejected before anything runs if from some node no end can be reached; two
    cycles that lead only into each other have edges out, and no end."""
    trap = find_trap(edges, ends=["vote"])
    assert trap is not None
    assert set(trap.nodes) == stuck


# Layer 3: rounds and convergence.


@pytest.mark.parametrize(
    ("settings", "last_round", "code"),
    [
        (None, 7, "max_rounds"),
        ({"graph": {"max_rounds": 5}}, 5, "max_rounds"),
        ({"graph": {"max_rounds": 15}}, 15, "hard_cap_15_rounds"),
    ],
    ids=["default 7", "least 5", "most 15"],
)
def test_rounds(supervise: Supervise, settings: Nested | None, last_round: int, code: str) -> None:
    """S1-12, S1-13, S1-14, S1-17, S1-18, S1-39: it goes on to its end in the last round, with the reason; at 15
    whatever was asked for."""
    supervisor = supervise("graph", settings)
    supervisor.start()
    for number in range(1, last_round):
        assert one_round(supervisor, number, convergence=0.2).proceeds
    decision = one_round(supervisor, last_round, convergence=0.2)
    assert decision.verb is Verb.FINISH
    assert decision.codes == (code,)


def test_rounds_are_counted_over_resumes(supervise: Supervise) -> None:
    """S1-12, S1-13: a session that has had its rounds gets no more of them by being resumed."""
    supervisor = supervise("session")
    supervisor.start()
    for number in range(1, 8):
        one_round(supervisor, number)
    supervisor.exit(cause=Cause.STOPPED)
    assert "max_rounds" in (*supervisor.resume().codes, *supervisor.step(call="one more").codes)


@pytest.mark.parametrize("rounds", [0, 4, 16, 100])
def test_rounds_outside_the_range_are_refused(rounds: int) -> None:
    """S1-13, S1-14, S1-19: `max_rounds` goes from 5 to 15, in a file and in code."""
    with pytest.raises(SettingsError, match="max_rounds"):
        settings_of({"graph": {"max_rounds": rounds}})
    with pytest.raises(ValueError, match="max_rounds"):
        Rounds(most=rounds)


@pytest.mark.parametrize(
    ("before", "after", "most", "said"),
    [(3, 2, 7, "went back"), (0, 1, 16, "never above 15"), (7, 8, 7, "above max_rounds 7")],
    ids=["a round that falls", "max_rounds above 15", "a round above max_rounds"],
)
def test_broken_round_counter_is_an_error(before: int, after: int, most: int, said: str) -> None:
    """S1-19: the invariants of the counter, each of which raises ValueError when it is broken."""
    with pytest.raises(ValueError, match=said):
        check_rounds(before, after, most)


def test_graph_with_a_broken_counter_is_stopped(supervise: Supervise) -> None:
    """S1-19: a graph whose round falls is stopped, and told so."""
    supervisor = supervise("graph")
    supervisor.start()
    one_step(supervisor, 1, gauges={"round": 3})
    decision = one_step(supervisor, 2, gauges={"round": 2})
    assert decision.verb is Verb.STOP
    assert "went back from 3 to 2" in decision.reasons[0].text


def test_cap_says_what_helps(supervise: Supervise) -> None:
    """S1-66: who needs more than 15 rounds is told what helps instead: convergence, a moderator, a smaller question."""
    supervisor = supervise("graph", {"graph": {"max_rounds": 15}})
    supervisor.start()
    remedy = one_step(supervisor, 1, gauges={"round": 15}).reasons[0].remedy
    assert all(word in remedy for word in ("convergence", "moderator", "smaller question"))


@pytest.mark.parametrize(
    ("gauges", "ends"),
    [
        ({"convergence": 0.90}, True),
        ({"convergence": 0.86}, True),
        ({"convergence": 0.85}, False),
        ({"convergence": 0.40}, False),
        ({"agreement": 0.80}, True),
        ({"agreement": 1.00}, True),
        ({"agreement": 0.79}, False),
    ],
)
def test_consensus(supervise: Supervise, gauges: Mapping[str, float], ends: bool) -> None:
    """S1-15, S1-16, S1-17, S1-18, S1-20: a score above 0.85, or 80 % of the personas agreed, in round 5: it goes on to
    the vote with `consensus`; 0.85 exactly is not yet above."""
    supervisor = supervise("graph")
    supervisor.start()
    for number in range(1, 5):
        assert one_round(supervisor, number, convergence=0.1 * number).proceeds
    decision = one_round(supervisor, 5, **gauges)
    assert (decision.verb is Verb.FINISH) is ends
    assert decision.codes == (("consensus",) if ends else ())


# Layer 4: deadline.


@pytest.mark.parametrize(
    ("kind", "settings", "lasts"),
    [
        ("graph", None, 3600),
        ("session", None, 3600),
        ("graph", {"graph": {"timeout_seconds": 300}}, 300),
        ("graph", {"graph": {"timeout_seconds": 86400}}, 86400),
        ("rule", None, 300),
    ],
    ids=["graph", "session", "development", "testing", "rule"],
)
def test_deadline(supervise: Supervise, kind: str, settings: Nested | None, lasts: float) -> None:
    """S1-21, S1-22, S1-39: a run that lasts as long as it may is stopped; until then leave is a lease that ends
    there."""
    supervisor = supervise(kind, settings)
    started = supervisor.now
    supervisor.start()
    assert supervisor.opinion("deadline").until == started + lasts * SECOND
    supervisor.sleep(lasts - 0.001)
    assert supervisor.step(call="in time").proceeds
    supervisor.sleep(0.001)
    decision = supervisor.step(call="too late")
    assert decision.verb is Verb.STOP
    assert decision.codes == ("timeout",)


def test_deadline_from_the_environment() -> None:
    """S1-22, S1-30: the documented names of environment variables are read."""
    settings = settings_of({}, {"DELIBERATION_TIMEOUT_SECONDS": "300", "MAX_COST_PER_SESSION": "5.00"})
    assert settings.graph.timeout_seconds == 300
    assert get_tier_limit(None, settings) == 5 * USD


@pytest.mark.parametrize("kind", ["process", "agent"])
def test_service_has_no_deadline(supervise: Supervise, kind: str) -> None:
    """S1-21: a process or agent has no deadline by itself: it may live for months."""
    supervisor = supervise(kind)
    supervisor.start()
    supervisor.sleep(90 * 24 * 3600)
    assert supervisor.step(call="still here").proceeds


def test_done_in_time_leaves_nothing(supervise: Supervise) -> None:
    """S1-21: a run that is done within its deadline is just done, and the next one has all its time."""
    supervisor = supervise("graph")
    supervisor.start()
    supervisor.sleep(3599)
    assert supervisor.exit().reasons[0].code == "ended_done"
    supervisor.start(again=False)
    supervisor.sleep(3599)
    assert supervisor.step(call="a step").proceeds


def test_timed_out_session_can_be_resumed(supervise: Supervise) -> None:
    """S1-24, S1-42, S1-63: a timeout is a failure like any other: after its cooldown the session may be resumed from
    its checkpoint, and has a new deadline; steps and money go on where they were."""
    supervisor = supervise("session")
    supervisor.start()
    one_step(supervisor, 1, usd=10 * CENT)
    supervisor.sleep(3600)
    assert supervisor.step(call="too late").codes == ("timeout",)
    supervisor.exit(cause=Cause.TIMEOUT, error="timeout")
    supervisor.clock.set(supervisor.resume().until)
    assert supervisor.resume(checkpoint="latest").proceeds
    assert supervisor.step(call="on we go").proceeds
    assert supervisor.states("steps")[0].count == 2
    assert supervisor.states("budget")[0].spent == 10 * CENT


# Layer 5: cost.


@pytest.mark.parametrize(
    ("tier", "limit"),
    [("free", 50 * CENT), ("pro", 2 * USD), ("enterprise", 10 * USD), (None, 1 * USD)],
)
def test_tiers(supervise: Supervise, tier: str | None, limit: int) -> None:
    """S1-28, S1-29, S1-30, S1-32, S1-39: free 0.50, pro 2.00, enterprise 10.00, no tier 1.00: all of it can be spent,
    and not one millionth more."""
    assert get_tier_limit(tier, default_settings()) == limit
    supervisor = supervise("session", tier=tier)
    supervisor.start()
    assert supervisor.look_step(usd=limit).proceeds
    assert supervisor.look_step(usd=limit + 1).codes == ("cost_budget_exceeded",)


def test_unknown_tier_gets_the_default(caplog: pytest.LogCaptureFixture) -> None:
    """S1-32: an unknown tier gets what no tier gets, with a warning."""
    with caplog.at_level(logging.WARNING):
        assert get_tier_limit("platinum", default_settings()) == 1 * USD
    assert "platinum" in caplog.text


def test_free_tier_ends_before_it_is_overspent(supervise: Supervise) -> None:
    """S1-28, S1-33, S1-34, S1-38: on the free tier rounds at 0.20 and 0.40 pass; the step that would lead to 0.55 is
    not begun, and the answer is to finish with what there is."""
    supervisor = supervise("session", tier="free")
    supervisor.start()
    assert one_step(supervisor, 1, usd=20 * CENT).proceeds
    assert one_step(supervisor, 2, usd=20 * CENT).proceeds
    before = supervisor.known()
    decision = supervisor.step(call="persona", usd=15 * CENT)
    assert decision.verb is Verb.FINISH
    assert decision.codes == ("cost_budget_exceeded",)
    assert "0.40 USD spent" in decision.reasons[0].text
    assert supervisor.known() == before, "nothing was reserved for the step that was not begun"


def test_money_is_kept_back_for_the_synthesis(supervise: Supervise) -> None:
    """S1-35: with a part kept back, a session that is over budget can still pay for its last step, the synthesis."""
    supervisor = supervise("session", {"budget": {"kept_back": "0.10"}}, tier="free")
    supervisor.start()
    assert one_step(supervisor, 1, usd=40 * CENT).proceeds
    assert supervisor.step(call="persona", usd=1 * CENT).codes == ("cost_budget_exceeded",)
    assert supervisor.step(call="synthesis", usd=10 * CENT, last=True).proceeds
    assert supervisor.step(call="synthesis", usd=1, last=True).verb is Verb.FINISH


def test_worst_case_is_reserved_before_the_spend(supervise: Supervise) -> None:
    """S1-34: what is reserved counts at once; when less was used, the rest is free again."""
    supervisor = supervise("session")
    supervisor.start()
    assert supervisor.step(call="a", usd=80 * CENT).proceeds
    assert supervisor.look_step(usd=30 * CENT).codes == ("cost_budget_exceeded",)
    supervisor.stepped(UNIT, Work(call="a", reserved={"usd": 80 * CENT}, used={"usd": 10 * CENT}))
    assert supervisor.look_step(usd=90 * CENT).proceeds
    assert not supervisor.look_step(usd=91 * CENT).proceeds


def test_reservation_of_a_dead_holder_counts_as_spent(supervise: Supervise) -> None:
    """S1-34, S1-45: money reserved by a run that died without a report is not free for the next one."""
    supervisor = supervise("session")
    supervisor.start()
    supervisor.step(call="a", usd=80 * CENT)
    supervisor.reboot()
    supervisor.clock.set(supervisor.start().until)
    assert supervisor.start().proceeds
    assert supervisor.step(call="b", usd=30 * CENT).codes == ("cost_budget_exceeded",)


def test_person_settles_what_the_dead_held(supervise: Supervise) -> None:
    """S1-34, S1-45: what a dead run had reserved is known, and a person says what it really cost: the rest is free."""
    supervisor = supervise("session")
    supervisor.start()
    supervisor.step(call="a", usd=80 * CENT)
    supervisor.exit(cause=Cause.ERROR, error="killed")
    context = Context(governor=supervisor.governor, settings=Settings(), who="ann", channel="test")
    settled = COMMANDS["settle"](context, {"unit": UNIT, "usd": "0.10"})["settled"]
    assert [one["reserved"] for one in settled] == [{"usd": 80 * CENT}]
    assert supervisor.look_step(usd=90 * CENT).proceeds
    assert "cost_budget_exceeded" in supervisor.look_step(usd=91 * CENT).codes


def test_unusual_spend_is_told(supervise: Supervise) -> None:
    """S1-58: an agent that spends far more than it used to is told of once, as soon as it does, and goes on."""
    supervisor = supervise("agent")
    told = []
    for hour, cents in enumerate([20] * 8 + [200] * 2):
        supervisor.clock.set(START_OF_TIME + hour * HOUR)
        told.append(supervisor.stepped(UNIT, Work(used={"usd": cents * CENT})))
    assert all(decision.proceeds for decision in told)
    assert [decision.codes for decision in told] == [()] * 8 + [("spend_anomaly",), ()]


@pytest.mark.parametrize(
    ("tier", "usd_a_round", "least", "most"),
    [("free", 125_000, 3, 5), ("pro", 225_000, 7, 10), ("enterprise", 225_000, 15, 15)],
)
def test_rounds_that_a_tier_pays_for(supervise: Supervise, tier: str, usd_a_round: int, least: int, most: int) -> None:
    """S1-31: at typical prices a free session pays for 3 to 5 rounds, a pro session for 7 to 10, and an enterprise
    session for all 15, where the cap ends it and not the money."""
    supervisor = supervise("session", {"graph": {"max_rounds": 15}}, tier=tier)
    supervisor.start()
    for number in count(1):
        decision = one_step(supervisor, number, usd=usd_a_round, gauges={"round": number})
        if not decision.proceeds:
            break
    rounds = number if decision.codes == ("hard_cap_15_rounds",) else number - 1
    assert least <= rounds <= most
    assert (decision.codes == ("hard_cap_15_rounds",)) is (tier == "enterprise")


def test_budget_per_user(supervise: Supervise) -> None:
    """S1-59: a limit per user is over all of that user's sessions, and over nobody else's."""
    supervisor = supervise("session", {"budget": {"per_user": "1.50"}})
    for unit, user in (("one", "user-1"), ("two", "user-1"), ("three", "user-2")):
        supervisor.start(unit, labels={"user": user})
    assert one_step(supervisor, 1, "one", usd=90 * CENT, labels={"user": "user-1"}).proceeds
    assert supervisor.step("two", call="x", usd=70 * CENT, labels={"user": "user-1"}).codes == ("cost_budget_exceeded",)
    assert supervisor.step("three", call="x", usd=70 * CENT, labels={"user": "user-2"}).proceeds


# Several at once.


def test_cost_and_convergence(supervise: Supervise) -> None:
    """S1-40, S1-41, S1-65: money and convergence end a session together: one primary reason, both listed."""
    supervisor = supervise("session", tier="free")
    supervisor.start()
    one_step(supervisor, 1, usd=40 * CENT)
    supervisor.stepped(UNIT, Work(call="check", result="yes", gauges={"convergence": 0.95}))
    decision = supervisor.step(call="persona", usd=20 * CENT)
    assert decision.verb is Verb.FINISH
    assert decision.codes == ("cost_budget_exceeded", "consensus")


def test_strictest_is_the_primary_reason(supervise: Supervise) -> None:
    """S1-40, S1-42, S1-65: a timeout beside spent money, a reached round limit and consensus: it is stopped, the
    timeout is the primary reason, and all are listed."""
    supervisor = supervise("session", tier="free")
    supervisor.start()
    one_step(supervisor, 1, usd=50 * CENT, gauges={"round": 7, "convergence": 0.95})
    supervisor.sleep(3600)
    decision = supervisor.step(call="too late", usd=1)
    assert decision.verb is Verb.STOP
    assert set(decision.codes) == {"cost_budget_exceeded", "consensus", "max_rounds", "timeout"}
    assert primary(supervisor.opinions()) == "timeout"


# The five layers, one by one.

LAYERS: Mapping[str, Callable[[AnyPolicy], bool]] = {
    "steps": lambda policy: isinstance(policy, Limit) and policy.name == "steps",
    "preflight": lambda _: False,
    "rounds": lambda policy: isinstance(policy, Rounds),
    "deadline": lambda policy: isinstance(policy, Deadline),
    "cost": lambda policy: isinstance(policy, Budget),
}
ENDLESS = {"facilitator": ["persona"], "persona": ["check"], "check": ["facilitator"]}
STEPS_AT_MOST = {"steps": 55, "preflight": 0, "rounds": 21, "deadline": 60, "cost": 50}
STOPPED_WITH = {"steps": "max_steps", "rounds": "max_rounds", "deadline": "timeout", "cost": "cost_budget_exceeded"}


@pytest.mark.parametrize("layer", LAYERS)
def test_each_layer_alone_ends_an_endless_graph(supervise: Supervise, layer: str) -> None:
    """S1-01, S1-02, S1-44, S1-46: with the other four layers taken away, and every other safeguard too, the fifth alone
    ends a graph that has no end; each of the five."""
    supervisor = supervise("graph", only=LAYERS[layer])
    if layer == "preflight":
        assert find_trap(ENDLESS, ends=["vote"]) is not None
        return
    assert supervisor.start().proceeds
    for number in range(1000):
        decision = one_step(supervisor, number, usd=2 * CENT, gauges={"round": number // 3})
        if not decision.proceeds:
            break
        supervisor.clock.move(MINUTE)
    assert decision.codes == (STOPPED_WITH[layer],)
    assert decision.verb in (Verb.FINISH, Verb.STOP)
    assert number <= STEPS_AT_MOST[layer]


def test_without_any_layer_it_would_never_end(supervise: Supervise) -> None:
    """S1-02: the same graph with no layer at all goes on: it is the layers that ended it."""
    supervisor = supervise("graph", only=lambda _: False)
    supervisor.start()
    assert all(
        one_step(supervisor, number, usd=2 * CENT, gauges={"round": number // 3}).proceeds for number in range(200)
    )


@pytest.mark.parametrize(
    ("usd", "seconds", "gauges", "code"),
    [
        (0, 0.0, False, "max_steps"),
        (0, 0.0, True, "max_rounds"),
        (0, 100.0, False, "timeout"),
        (5 * CENT, 0.0, False, "cost_budget_exceeded"),
    ],
    ids=["routing bug", "no convergence", "slow model", "dear model"],
)
def test_real_cases_by_layer(supervise: Supervise, usd: int, seconds: float, gauges: bool, code: str) -> None:
    """S1-47, S1-65: a routing bug is ended by steps, a debate that never agrees by rounds, a slow model by the
    deadline, a dear one by cost; the answer names the layer. (A forgotten way out is found by preflight, before it
    starts.)"""
    supervisor = supervise("graph")
    supervisor.start()
    for number in range(1000):
        supervisor.sleep(seconds)
        decision = one_step(supervisor, number, usd=usd, gauges={"round": number // 3} if gauges else None)
        if not decision.proceeds:
            break
    assert decision.codes == (code,)


@pytest.mark.parametrize(
    "given",
    [
        {"supervisor": {"enabled": False}},
        {"restart_policy": {"enabled": False}},
        {"daemon": {"sessionRecovery": {"enabled": False}}},
        {"graph": {"recursion_limit": 1_000_000, "timeout_seconds": 86400}, "budget": {"max_cost_per_session": 100}},
    ],
    ids=["no supervisor", "no restarts", "no recovery", "raised"],
)
@pytest.mark.parametrize("kind", ["process", "agent", "rule", "graph", "session"])
def test_no_setting_takes_a_safeguard_away(kind: str, given: Nested) -> None:
    """S1-06, S1-13, S1-64: whatever is set, every safeguard of a kind of unit is there; only its numbers change."""
    by_default = {(policy.name, policy.by) for policy in default_settings().policies(kind)}
    assert {(policy.name, policy.by) for policy in settings_of(given).policies(kind)} >= by_default


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("graph", "recursion_limit", 0),
        ("graph", "timeout_seconds", 0),
        ("budget", "max_cost_per_session", 0),
        ("graph", "convergence_threshold", 1.0),
        ("graph", "enabled", False),
    ],
)
def test_no_value_switches_a_layer_off(section: str, key: str, value: object) -> None:
    """S1-64: a value that would mean "off" is an error."""
    with pytest.raises(SettingsError, match=key):
        settings_of({section: {key: value}})


# Many sessions.


def test_hundred_sessions_at_once(supervise: Supervise) -> None:
    """S1-43, S1-44, S1-45: of 100 sessions that go on for ever, eight at a time, each is ended within its limits, and
    the money on record is what was spent."""
    supervisor = supervise("session", {"budget": {"max_cost_per_session": "0.10", "per_fleet": "1000.00"}})
    units = [f"session-{n}" for n in range(100)]

    def endless(unit: str) -> int:
        supervisor.start(unit)
        for number in count(1):
            if not one_step(supervisor, number, unit, usd=2 * CENT).proceeds:
                return number
        raise AssertionError("unreachable: count() does not end")

    with ThreadPoolExecutor(8) as pool:
        steps = list(pool.map(endless, units))
    assert steps == [5] * 100
    spent = {state.spent for unit in units for state in supervisor.states("budget", unit)}
    assert spent == {10 * CENT, 100 * 10 * CENT}, "of each session, and of the fleet"


# Going round in circles.


def test_rehashing_is_noticed(supervise: Supervise) -> None:
    """S1-55: contributions that only repeat what was said are told apart from new ones: a nudge first, then the
    repeated call is refused, and who insists is stopped."""
    supervisor = supervise("session")
    supervisor.start()
    verbs = []
    for number in range(20):
        decision = one_step(supervisor, number, fresh=False)
        verbs.append(decision)
        if decision.verb is Verb.STOP:
            break
        if decision.verb is Verb.WAIT:
            supervisor.stepped(UNIT, Work(call=f"call {number % 3}", result="refused", refused=True))
    assert verbs[-1].codes == ("going_in_circles",)
    assert any(decision.proceeds and decision.codes == ("repeating",) for decision in verbs)
    assert len(verbs) < 10


def test_new_ground_is_left_alone(supervise: Supervise) -> None:
    """S1-55: a session that says something new each time is never told to."""
    supervisor = supervise("session")
    supervisor.start()
    assert all(one_step(supervisor, number).reasons == () for number in range(50))


# What people do.


@pytest.mark.parametrize(("verb", "code"), [(Verb.STOP, "stopped"), (Verb.FINISH, "finishing"), (Verb.HOLD, "paused")])
def test_session_ended_by_a_person(supervise: Supervise, verb: Verb, code: str) -> None:
    """S1-60: a person ends one session: its next step is refused, and another session is not touched."""
    supervisor = supervise("session")
    supervisor.start("one")
    supervisor.start("two")
    supervisor.order(verb, "one")
    decision = supervisor.step("one", call="x")
    assert (decision.verb, decision.codes) == (verb, (code,))
    assert supervisor.step("two", call="x").proceeds


def test_all_sessions_of_a_user_are_ended(supervise: Supervise) -> None:
    """S1-61: a person ends all sessions of one user, running or to come; those of others go on."""
    supervisor = supervise("session")
    for unit, user in (("one", "user-1"), ("two", "user-1"), ("three", "user-2")):
        supervisor.start(unit, labels={"user": user})
    supervisor.order(Verb.STOP, scope="user", labels={"user": "user-1"})
    for unit in ("one", "two"):
        assert supervisor.step(unit, call="x", labels={"user": "user-1"}).verb is Verb.STOP
    assert supervisor.start("four", labels={"user": "user-1"}).verb is Verb.STOP
    assert supervisor.step("three", call="x", labels={"user": "user-2"}).proceeds
