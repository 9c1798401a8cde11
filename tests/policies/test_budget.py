"""Budget: spent + reserved + worst case never goes above the limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.codec import decode_state
from flyball.core.decision import Verb
from flyball.core.event import Cause, Raised, Settled, Step, Work
from flyball.core.policy import weigh
from flyball.core.time import DAY, FOREVER
from flyball.policies.budget import RAISED_MAX, Budget, State
from tests.policies.walk import Walk

CENT = 10_000
"""Of a dollar, in micro-dollars."""


def spend(walk: Walk, cents: int, *, used: int | None = None, last: bool = False) -> bool:
    """A step that may cost so many cents, and then does; whether it was granted."""
    cost = {"usd": cents * CENT}
    if not walk.step(cost=cost, last=last).proceeds:
        return False
    really = cost if used is None else {"usd": used * CENT}
    walk.stepped(Work(reserved=cost, used=really))
    return True


def test_the_free_tier() -> None:
    """0.20 and 0.40 pass; the step that would lead to 0.55 is not begun. (S1-28, S1-34, S1-38)"""
    walk = Walk(Budget(limit=50 * CENT))
    assert spend(walk, 20)
    assert spend(walk, 20)
    refused = walk.step(cost={"usd": 15 * CENT})
    assert (refused.verb, refused.codes, refused.until) == (Verb.FINISH, ("cost_budget_exceeded",), FOREVER)
    assert refused.reasons[0].text == "0.40 USD spent and 0.15 USD reserved of 0.50 USD per run"
    assert walk.state.spent == 40 * CENT
    assert walk.state.reserved == 0
    assert spend(walk, 10)


@pytest.mark.parametrize(("cost", "granted"), [(999_999, True), (1_000_000, True), (1_000_001, False)])
def test_boundary(cost: int, granted: bool) -> None:
    """To the last micro-dollar, and not one beyond."""
    assert Walk(Budget()).step(cost={"usd": cost}).proceeds is granted


def test_reserved_counts_until_it_is_settled() -> None:
    """Two steps at once cannot both have the rest; what the first did not need is free again."""
    walk = Walk(Budget(by="unit"))
    assert walk.step(cost={"usd": 60 * CENT}).proceeds
    assert not walk.step(cost={"usd": 60 * CENT}).proceeds
    walk.stepped(Work(reserved={"usd": 60 * CENT}, used={"usd": 10 * CENT}))
    assert walk.step(cost={"usd": 60 * CENT}).proceeds
    assert (walk.state.spent, walk.state.reserved) == (10 * CENT, 60 * CENT)


def test_used_up_is_finish() -> None:
    """When all is spent it ends, even if the next step is free; and whoever uses more than it said is noticed."""
    walk = Walk(Budget())
    spend(walk, 100)
    assert walk.says().verb is Verb.FINISH
    assert walk.step().verb is Verb.FINISH
    over = Walk(Budget())
    over.step(cost={"usd": 1})
    assert over.stepped(Work(reserved={"usd": 1}, used={"usd": 200 * CENT})).verb is Verb.FINISH


def test_kept_back_for_the_last_step() -> None:
    """Only the step that wraps up may use it, and there is always enough for that one."""
    walk = Walk(Budget(kept_back=20 * CENT))
    assert spend(walk, 80)
    assert not walk.step(cost={"usd": 1}).proceeds
    assert not walk.step(cost={"usd": 21 * CENT}, last=True).proceeds
    assert spend(walk, 20, last=True)
    assert not walk.step(cost={"usd": 1}, last=True).proceeds
    assert walk.state.spent == 100 * CENT


@pytest.mark.parametrize(
    ("by", "kept"), [("run", False), ("unit", True), ("user", True), ("tree", True), ("fleet", True)]
)
@pytest.mark.parametrize("cause", [Cause.DONE, Cause.LOST])
def test_what_a_dead_run_held(by: str, kept: bool, cause: Cause) -> None:
    """A run's own budget goes with the run. Otherwise money belongs to the work: what was spent stays spent, and what
    a dead run had reserved stays reserved until somebody settles it."""
    walk = Walk(Budget(by=by))
    spend(walk, 30)
    walk.step(cost={"usd": 50 * CENT})
    walk.end(cause=cause)
    assert walk.forgot() is not kept
    assert walk.step(cost={"usd": 21 * CENT}).proceeds is not kept
    if kept:
        walk.stepped(returned={"usd": 50 * CENT})
        assert walk.step(cost={"usd": 70 * CENT}).proceeds


def test_a_release_forgives_what_was_spent_not_what_is_reserved() -> None:
    """A person gives it the limit once more; money that is on its way is still on its way."""
    walk = Walk(Budget(by="unit"))
    spend(walk, 60)
    walk.step(cost={"usd": 40 * CENT})
    walk.release()
    assert (walk.state.spent, walk.state.reserved) == (0, 40 * CENT)
    assert not walk.step(cost={"usd": 61 * CENT}).proceeds


@pytest.mark.parametrize(("over", "verb"), [(Verb.FINISH, Verb.FINISH), (Verb.WAIT, Verb.WAIT)])
def test_a_budget_a_day(over: Verb, verb: Verb) -> None:
    """At midnight UTC it starts anew; a wait is until then, to the microsecond."""
    walk = Walk(Budget(every=DAY, over=over, by="user"))
    midnight = (walk.now // DAY + 1) * DAY
    spend(walk, 100)
    refused = walk.step(cost={"usd": 1})
    assert refused.verb is verb
    assert refused.until == (midnight if over is Verb.WAIT else FOREVER)
    walk.now = midnight - 1
    assert not walk.step(cost={"usd": 1}).proceeds
    walk.now = midnight
    assert walk.step(cost={"usd": 100 * CENT}).proceeds


def test_what_is_reserved_over_midnight_stays_reserved() -> None:
    """Otherwise a step at midnight could be paid twice; it is spent on the day on which it is reported."""
    walk = Walk(Budget(every=DAY, by="user"))
    walk.step(cost={"usd": 70 * CENT})
    walk.pass_span(DAY)
    assert not walk.step(cost={"usd": 31 * CENT}).proceeds
    walk.stepped(Work(reserved={"usd": 70 * CENT}, used={"usd": 70 * CENT}))
    assert not walk.step(cost={"usd": 31 * CENT}).proceeds
    assert walk.step(cost={"usd": 30 * CENT}).proceeds


def test_other_meters_are_not_its_business() -> None:
    """A budget of tokens does not count dollars."""
    walk = Walk(Budget(meter="tokens", limit=100))
    assert walk.step(cost={"usd": 10**9, "tokens": 100}).proceeds
    assert "100 tokens reserved of 100 tokens" in Walk(Budget(meter="tokens", limit=100)).step(
        cost={"tokens": 101}
    ).reasons[0].text.replace("101", "100")


@given(
    st.lists(
        st.tuples(st.integers(1, 400_000), st.integers(1, 5), st.integers(0, 100), st.booleans()),
        max_size=30,
    ),
    st.sampled_from([0, 150_000]),
)
def test_never_above_the_limit(asks: list[tuple[int, int, int, bool]], kept_back: int) -> None:
    """Whatever is asked for, one step or many, settled or never: spent + reserved stays within the limit."""
    policy = Budget(kept_back=kept_back, by="unit")
    walk = Walk(policy)
    for cost, steps, share, settled in asks:
        step = Step(unit="shop", run="r", cost={"usd": cost}, steps=steps)
        outcome = weigh([policy], [walk.state], step, walk.now)
        walk.state = outcome.changed.get(0, walk.state)
        assert walk.state.spent + walk.state.reserved <= policy.limit - kept_back
        if outcome.decision.proceeds and settled:
            assert isinstance(outcome.event, Step)
            work = Work(reserved={"usd": cost}, used={"usd": cost * share // 100})
            walk.stepped(*[work] * outcome.event.steps)


def test_wrapping_up_for_nothing_is_always_granted() -> None:
    """With everything spent, a last step that costs nothing may still be made."""
    walk = Walk(Budget())
    spend(walk, 100)
    assert walk.step(last=True).proceeds


def test_to_forget_a_failure_forgives_no_money() -> None:
    """A release that names one failure is not about money."""
    walk = Walk(Budget(by="unit"))
    spend(walk, 60)
    walk.release(fingerprint="broken")
    assert walk.state.spent == 60 * CENT


@pytest.mark.parametrize("by", ["unit", "user", "tree", "fleet"])
@pytest.mark.parametrize(("used", "spent"), [(0, 30), (20, 50), (50, 80), (90, 120)])
def test_a_person_settles_what_a_dead_run_held(by: str, used: int, spent: int) -> None:
    """It is reserved no more, and what the person says was spent, also if that is more than was reserved."""
    walk = Walk(Budget(by=by))
    spend(walk, 30)
    walk.step(cost={"usd": 50 * CENT})
    walk.tell(Settled(unit="shop", reserved={"usd": 50 * CENT}, used={"usd": used * CENT}, by="ann"))
    assert (walk.state.spent, walk.state.reserved) == (spent * CENT, 0)


def test_a_dead_run_needs_its_own_budget_no_more() -> None:
    """By run, a settlement is the end of it."""
    walk = Walk(Budget())
    spend(walk, 30)
    walk.tell(Settled(unit="shop", reserved={"usd": 50 * CENT}, by="ann"))
    assert walk.forgot()


@pytest.mark.parametrize("meter", ["usd", "tokens"])
def test_states_of_earlier_versions(meter: str) -> None:
    """They say nothing of the meter: they are read, and counted on from."""
    walk = Walk(Budget(by="unit", meter=meter, limit=100))
    walk.state = decode_state(State, b'{"spent":40,"reserved":30}')
    assert not walk.step(cost={meter: 31}).proceeds
    walk.stepped(Work(reserved={meter: 30}, used={meter: 10}))
    assert (walk.state.spent, walk.state.reserved, walk.state.meter) == (50, 0, meter)


def raise_(walk: Walk, cents: int, *, scope: str = "", meter: str = "usd") -> None:
    """A person raises the limit by so many cents, or tokens."""
    amount = cents * CENT if meter == "usd" else cents
    walk.tell(Raised(unit="shop", run=f"r{walk.runs}", scope=scope or walk.policy.by, more={meter: amount}, by="ann"))


@pytest.mark.parametrize("by", ["run", "unit", "user", "tree", "fleet"])
def test_a_raised_limit(by: str) -> None:
    """So much more may be spent, to the last micro-dollar; and the numbers say who allowed it."""
    walk = Walk(Budget(by=by))
    spend(walk, 100)
    assert not walk.says().proceeds
    raise_(walk, 50)
    assert walk.says().proceeds
    assert not walk.step(cost={"usd": 50 * CENT + 1}).proceeds
    assert spend(walk, 50)
    said = walk.step()
    assert (said.verb, said.codes) == (Verb.FINISH, ("cost_budget_exceeded",))
    assert (
        said.reasons[0].text
        == f"1.50 USD spent and 0.00 USD reserved of 1.50 USD per {by}, 0.50 USD of it raised by a person"
    )


def test_raised_before_anything_was_spent() -> None:
    """A budget at rest can be raised, and twice; what is kept back stays kept back."""
    walk = Walk(Budget(by="unit", kept_back=20 * CENT))
    raise_(walk, 30)
    raise_(walk, 20)
    assert walk.state.raised == 50 * CENT
    assert not walk.step(cost={"usd": 131 * CENT}).proceeds
    assert spend(walk, 130)
    assert spend(walk, 20, last=True)


@pytest.mark.parametrize(
    ("scope", "meter"), [("fleet", "usd"), ("user", "usd"), ("run", "usd"), ("unit", "tokens")], ids=str
)
def test_another_budget_is_raised(scope: str, meter: str) -> None:
    """A raise is of one scope and one meter: every other budget stays as it is."""
    walk = Walk(Budget(by="unit"))
    raise_(walk, 50, scope=scope, meter=meter)
    assert walk.forgot()


def test_raised_for_the_period_at_hand() -> None:
    """At midnight the limit of the settings is in force again, also if nothing happened meanwhile."""
    walk = Walk(Budget(every=DAY, by="user"))
    spend(walk, 100)
    raise_(walk, 100)
    assert spend(walk, 100)
    walk.now = (walk.now // DAY + 1) * DAY
    assert not walk.step(cost={"usd": 101 * CENT}).proceeds
    assert spend(walk, 100)
    assert walk.state.raised == 0


def test_what_was_reserved_under_a_raised_limit() -> None:
    """Over midnight, and over a release, it stays reserved: so much of the raise stays, and no more."""
    for forget in ("midnight", "release"):
        walk = Walk(Budget(every=DAY, by="user"))
        raise_(walk, 100)
        assert walk.step(cost={"usd": 130 * CENT}).proceeds
        if forget == "release":
            walk.release()
        else:
            walk.now = (walk.now // DAY + 1) * DAY
        assert not walk.step(cost={"usd": 1}).proceeds
        walk.stepped(Work(reserved={"usd": 130 * CENT}, used={"usd": 10 * CENT}))
        assert (walk.state.spent, walk.state.reserved, walk.state.raised) == (10 * CENT, 0, 30 * CENT), forget


def test_a_release_takes_a_raise_back() -> None:
    """The limit of the settings once more: what was allowed for once is not allowed each time."""
    walk = Walk(Budget(by="unit"))
    raise_(walk, 100)
    spend(walk, 150)
    walk.release()
    assert walk.forgot()


def test_a_run_takes_its_raise_with_it() -> None:
    """The next run has the limit of the settings."""
    walk = Walk(Budget())
    walk.start()
    raise_(walk, 100)
    walk.end()
    assert walk.forgot()


def test_a_raise_has_an_end() -> None:
    """However often it is raised, the sum stays where every JSON reader keeps it exactly."""
    budget = Budget(by="unit")
    walk = Walk(budget)
    for _ in range(5):
        walk.tell(Raised(unit="shop", more={"usd": 2**53}))
    assert walk.state.raised == RAISED_MAX
    assert budget.limit + walk.state.raised < 2**53


@pytest.mark.parametrize(
    ("policy", "data", "left"),
    [
        (Budget(by="unit"), b'{"spent":600000,"reserved":300000}', 100_000),
        (Budget(by="unit", meter="tokens", limit=100), b'{"spent":40,"meter":"tokens"}', 60),
        (Budget(by="user", every=DAY), b'{"spent":600000,"period":0}', 1_000_000),
    ],
    ids=["money", "tokens", "of an earlier day"],
)
def test_states_from_before_limits_could_be_raised(policy: Budget, data: bytes, left: int) -> None:
    """They are read as never raised, are counted on from, and can be raised."""
    walk = Walk(policy)
    walk.state = decode_state(State, data)
    assert not walk.step(cost={policy.meter: left + 1}).proceeds
    walk.tell(Raised(unit="shop", scope=policy.by, more={policy.meter: 5}, by="ann"))
    assert not walk.step(cost={policy.meter: left + 6}).proceeds
    assert walk.step(cost={policy.meter: left + 5}).proceeds


_MOVES = st.one_of(
    st.tuples(st.just("ask"), st.integers(1, 900_000), st.integers(1, 4)),
    st.tuples(st.just("settle"), st.integers(0, 5), st.integers(0, 100)),
    st.tuples(st.just("raise"), st.integers(1, 500_000), st.just(0)),
    st.tuples(st.just("release"), st.just(0), st.just(0)),
    st.tuples(st.just("die"), st.integers(0, 5), st.integers(0, 100)),
    st.tuples(st.just("wait"), st.sampled_from([1, DAY // 3, DAY]), st.just(0)),
)


@given(
    st.lists(_MOVES, max_size=40), st.sampled_from([0, 150_000]), st.sampled_from([0, DAY]), st.sampled_from(list(Verb))
)
def test_never_above_what_people_allow(
    moves: list[tuple[str, int, int]], kept_back: int, every: int, over: Verb
) -> None:
    """Whatever is asked, settled, raised, released, or left behind by the dead, over midnights too: at every instant
    spent + reserved <= limit + raised, and nothing was granted that is not within all that people allowed."""
    policy = Budget(kept_back=kept_back, every=every, over=over or Verb.FINISH, by="unit")
    walk = Walk(policy)
    held: list[int] = []
    for what, one, two in moves:
        if what == "ask":
            step = Step(unit="shop", run="r", cost={"usd": one}, steps=two)
            outcome = weigh([policy], [walk.state], step, walk.now)
            walk.state = outcome.changed.get(0, walk.state)
            if outcome.decision.proceeds:
                assert isinstance(outcome.event, Step)
                held += [one] * outcome.event.steps
        elif what in ("settle", "die") and one < len(held):
            reserved = held.pop(one)
            used = reserved * two // 100
            if what == "settle":
                walk.stepped(Work(reserved={"usd": reserved}, used={"usd": used}))
            else:
                walk.tell(Settled(unit="shop", reserved={"usd": reserved}, used={"usd": used}, by="ann"))
        elif what == "raise":
            walk.tell(Raised(unit="shop", more={"usd": one}, by="ann"))
        elif what == "release":
            walk.release()
        elif what == "wait":
            walk.pass_span(one)
        now = policy.current(walk.state, walk.now)
        assert now.reserved == sum(held)
        assert now.spent + now.reserved <= policy.limit + now.raised
