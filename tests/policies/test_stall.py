"""Stall: an agent that goes round in circles is told, then refused the repeated call, then stopped."""

import msgspec
import pytest

from flyball.core.codec import encode
from flyball.core.decision import PROCEED, Verb
from flyball.core.event import Cause, Stepped, Work
from flyball.core.failure import text_fingerprint
from flyball.core.time import FOREVER, MINUTE, SECOND
from flyball.policies.stall import Stall
from tests.policies.walk import Walk


def work(text: str) -> Work:
    """`c:r` is a call and its result, `c!r` one whose result is an error; `c` a call without a result."""
    if "!" in text:
        call, result = text.split("!")
        return Work(call=call, result=result, error=True)
    call, _, result = text.partition(":")
    return Work(call=call, result=result)


def after(*texts: str, policy: Stall | None = None) -> Walk:
    """An agent that made these steps."""
    walk = Walk(policy or Stall())
    for text in texts:
        walk.stepped(work(text))
    return walk


@pytest.mark.parametrize(
    ("texts", "score"),
    [
        (["a:1"], 0),
        (["a:1", "a:1"], 2),
        (["a:1", "b:2", "a:1"], 2),
        (["a:1", "a:2"], 0),
        (["a:1", "a:1", "a:2"], 2),
        (["a:1", "a:1", "b:1"], 0),
        (["a!x", "b!x"], 1),
        (["a!x", "b!x", "c!x"], 2),
        (["a!x", "b!y"], 0),
        (["a:x", "b!x"], 0),
        (["a:1", "a:1", "a:1"], 4),
        (["a:1", "a:1", "a:1", "b:2", "c:3"], 0),
        (["a!x", "a!x"], 2),
        (["a!x", "b!y", "a!x"], 3),
        (["a!x", "b!y", "a!x", "b!y"], 6),
        (["a!x", "b:1", "a!x"], 2),
        (["a!x", "b:1", "a!x", "c!y", "a!x"], 3),
        (["a:1", "b!y", "a:1"], 2),
        (["a:1", "a:1", "b", "c"], 2),
        (["a:1", "a:1", "b", "b"], 2),
        (["a!x", "a!x", "a!x", "a:1"], 0),
        (["a!x", "a!x", "a:1", "b!x"], 0),
        (["a!x", "a:1", "a!x", "a:1"], 4),
    ],
    ids=str,
)
def test_the_score(texts: list[str], score: int) -> None:
    """+2 for a known pair, +3 for a failure that is gone back to after nothing but failures, +1 for a new call with a
    known error, 0 for a known call with a new result and for what has no result, -2 for new ground, and never below
    0. Where what failed works at last, all is forgiven: its error, too."""
    assert after(*texts).state.score == score


@pytest.mark.parametrize(
    ("nudge_at", "stop_at", "times"), [(4, 6, 4), (4, 4, 3), (2, 2, 2), (1, 1, 2), (1, 2, 3), (5, 6, 5)]
)
def test_nobody_is_stopped_untold(nudge_at: int, stop_at: int, times: int) -> None:
    """Unless both are to happen at once. `times` the same step was made then."""
    walk = Walk(Stall(nudge_at=nudge_at, refuse_at=stop_at, stop_at=stop_at, repeats_max=900))
    decisions = [walk.stepped(work("a:1")) for _ in range(times)]
    assert [decision.verb for decision in decisions[:-1]] == [Verb.PROCEED] * (times - 1)
    assert decisions[-1].verb is Verb.STOP
    assert decisions[-2].codes == ("repeating",) or nudge_at == stop_at


@pytest.mark.parametrize("stop_at", [6, 8])
def test_a_new_call_never_stops_by_the_score(stop_at: int) -> None:
    """It may be the way out: errors that are known, by calls that are not, bring the score to just below. The first
    known pair after them stops it."""
    walk = Walk(Stall(stop_at=stop_at, same_error_max=900))
    for number in range(30):
        assert walk.stepped(work(f"c{number}!{number % 2}")).proceeds
    assert walk.state.score == stop_at - 1
    assert walk.stepped(work("c7!1")).verb is Verb.STOP


def test_a_new_world_is_new_ground() -> None:
    """A repeated call that changed the world did something; a world that was seen before does not count."""
    walk = after("a:1", "a:1")
    walk.stepped(Work(call="a", result="1", world="w1"))
    assert walk.state.score == 0
    walk.stepped(Work(call="a", result="1", world="w1"))
    assert walk.state.score == 2


@pytest.mark.parametrize(
    ("texts", "score", "verb", "codes"),
    [
        (("a:1", "x!e", "a:1", "y!e"), 3, Verb.PROCEED, ()),
        (("a:1", "b:1", "a:1", "b:1"), 4, Verb.PROCEED, ("repeating",)),
        (("a:1", "x!e", "a:1", "y!e", "z!e"), 4, Verb.PROCEED, ("repeating",)),
        (("a:1", "x!e", "a:1", "y!e", "a:1"), 5, Verb.WAIT, ("repeated_call",)),
        (("a:1", "b:1", "a:1", "b:1", "a:1"), 6, Verb.STOP, ("going_in_circles",)),
    ],
)
def test_nudge_refuse_stop(texts: tuple[str, ...], score: int, verb: Verb, codes: tuple[str, ...]) -> None:
    """Told at 4, refused the repeated call at 5, stopped at 6."""
    walk = after(*texts)
    assert walk.state.score == score
    decision = walk.step(call="a")
    assert (decision.verb, decision.codes) == (verb, codes)


def test_at_five_only_the_repeated_call_is_refused() -> None:
    """Another call is not; the refusal has no end and leaves no trace."""
    walk = after("a:1", "x!e", "a:1", "y!e", "a:1")
    assert walk.state.score == 5
    before = walk.state
    refused = walk.step(call="a")
    assert (refused.verb, refused.until, refused.codes) == (Verb.WAIT, FOREVER, ("repeated_call",))
    assert walk.state == before
    assert walk.step(call="new").proceeds


def test_an_agent_that_insists_is_stopped() -> None:
    """Refusing alone does not stop an agent: the refusal is reported back as a step, and counts."""
    walk = after("a:1", "x!e", "a:1", "y!e", "a:1")
    assert walk.step(call="a").verb is Verb.WAIT
    assert walk.stepped(Work(call="a", result="refused", refused=True)).verb is Verb.STOP


def test_a_cautious_profile() -> None:
    """It stops at 8."""
    walk = after("a:1", "b:1", "a:1", "b:1", "a:1", policy=Stall(stop_at=8, repeats_max=9))
    assert walk.state.score == 6
    assert walk.says().proceeds
    assert walk.stepped(work("b:1")).verb is Verb.STOP


@pytest.mark.parametrize("period", [1, 2, 3, 7, 40])
def test_circles_of_any_period(period: int) -> None:
    """With results it is found after three repeats at the latest (the score is often sooner), and it says where the
    circle began."""
    walk = Walk(Stall(nudge_at=900, refuse_at=900, stop_at=900))
    begin = 4
    for number in range(begin - 1):
        walk.stepped(work(f"before{number}:x"))
    for number in range(4 * period):
        assert walk.says().proceeds
        walk.stepped(work(f"c{number % period}:r"))
    decision = walk.says()
    assert decision.verb is Verb.STOP
    assert f"since step {begin} " in decision.reasons[0].text


@pytest.mark.parametrize(("repeats", "stopped"), [(4, False), (5, True)])
def test_without_results_five_repeats(repeats: int, stopped: bool) -> None:
    """Calls alone say less: they are given five."""
    walk = after("a", *["a"] * repeats)
    assert (walk.says().verb is Verb.STOP) is stopped
    assert walk.state.score == 0


def test_a_circle_that_is_left_is_none() -> None:
    """One step of new ground, and it starts anew."""
    walk = Walk(Stall(nudge_at=900, refuse_at=900, stop_at=900))
    for _ in range(9):
        for text in ("a:1", "a:1", "a:1"):
            walk.stepped(work(text))
        walk.stepped(work(f"new{walk.state.step}:x"))
        assert walk.says().proceeds


@pytest.mark.parametrize("period", [1, 2, 5])
def test_a_chant(period: int) -> None:
    """What an agent says over and over, calling nothing, is a circle without results; told in other words each time it
    is none, and a text said before each call that leads on is none either."""
    chant, varied, between = Walk(Stall()), Walk(Stall()), Walk(Stall())
    for number in range(6 * period):
        assert chant.says().proceeds
        chant.stepped(Work(call=text_fingerprint(f"Let me think. {number % period} At 12:00:{number:02}.")))
        varied.stepped(Work(call=text_fingerprint(f"Now part {number}.")))
        between.stepped(Work(call=text_fingerprint("Next one.")), work(f"read{number}:{number}"))
        assert varied.says() == between.says() == PROCEED
    assert chant.says().codes == ("going_in_circles",)


def test_words_do_not_make_up_for_repetition() -> None:
    """An agent that says something new before each repetition is stopped like one that does not."""
    walk = Walk(Stall())
    for number in range(4):
        assert walk.says().proceeds
        walk.stepped(Work(call=text_fingerprint(f"Attempt {number}.")))
        walk.stepped(work("a:1"))
    assert walk.says().verb is Verb.STOP


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (["a:1"] * 4, "a circle of one step since step 1 (score 6; search)"),
        (["x:0", "a:1", "b:2", "a:1", "b:2", "a:1"], "a circle of 2 steps since step 2 (score 6; search, search)"),
        (["x:0", "a:1", "b:2", "b:2", "a:1", "c", "b:2"], "a circle of 3 steps since step 4 (score 6; search, …)"),
        ([f"c{number}!e" for number in range(8)], "8 errors in a row that it had before, since step 1; the last: sea"),
    ],
    ids=["period 1", "period 2", "one step of three", "errors"],
)
def test_says_where_it_began(steps: list[str], text: str) -> None:
    """The step, and what kind of call it is."""
    walk = Walk(Stall(stop_at=6))
    for step in steps:
        decision = walk.stepped(msgspec.structs.replace(work(step), pattern="search"))
    assert decision.verb is Verb.STOP
    assert text in decision.reasons[0].text


def test_a_refusal_does_not_move_the_beginning() -> None:
    """An agent that insists is stopped, and still told where the circle began."""
    walk = Walk(Stall(stop_at=8, repeats_max=9))
    walk.stepped(*map(work, ("x:0", "a:1", "b:2", "a:1", "b:2", "a:1")))
    for _ in range(2):
        assert walk.step(call="a").codes == ("repeated_call",)
        decision = walk.stepped(Work(call="a", refused=True))
    assert decision.verb is Verb.STOP
    assert "a circle of 2 steps since step 2 (score 8" in decision.reasons[0].text


def test_the_state_has_a_bound() -> None:
    """However many steps, and however long their names: it is as large after 15,000 as after 5,000."""
    walk = Walk(Stall(nudge_at=10**9, refuse_at=10**9, stop_at=10**9, repeats_max=10**9, same_error_max=10**9))
    policy, state, sizes = walk.policy, walk.state, []
    for number in range(15_000):
        name = f"{number if number % 4 else number - 4:>060}"
        done = Work(pattern="p" * 190, call=name, result=name * 3, world=name, error=number % 3 == 0)
        state = policy.evolve(state, Stepped(unit="shop", run="r", done=(done,)), walk.now)
        if number % 20 == 0:
            sizes.append(len(encode(state)))
    assert max(sizes[500:]) <= 1.05 * max(sizes[:250]) < 65_536


@pytest.mark.parametrize(("times", "verb", "codes"), [(3, Verb.PROCEED, ()), (4, Verb.PROCEED, ("repeating",))])
def test_the_same_error_nudges(times: int, verb: Verb, codes: tuple[str, ...]) -> None:
    """The same error four times, across different calls, is a reason to say so."""
    walk = Walk(Stall(nudge_at=900, refuse_at=900, stop_at=900))
    for number in range(times):
        decision = walk.stepped(work(f"c{number}!e"))
    assert (decision.verb, decision.codes) == (verb, codes)


@pytest.mark.parametrize(("times", "stopped"), [(7, False), (8, True)])
def test_the_same_error_stops(times: int, stopped: bool) -> None:
    """And eight times to stop; another result in between starts it anew, another error that is known does not."""
    for between, expected in ((False, stopped), (True, False)):
        walk = Walk(Stall(nudge_at=900, refuse_at=900, stop_at=900))
        for number in range(times):
            walk.stepped(work(f"c{number}!e"))
            if between and number == 3:
                walk.stepped(work("fine:x"))
        assert (walk.says().verb is Verb.STOP) is expected
    walk = Walk(Stall(nudge_at=900, refuse_at=900, stop_at=900))
    walk.stepped(work("x!e"), work("y!f"))
    for number in range(times - 1):
        walk.stepped(work(f"c{number}!{'ef'[number % 2]}"))
    assert (walk.says().verb is Verb.STOP) is stopped


def test_a_person_who_says_something_new() -> None:
    """The score is 0 then, but what was seen stays seen."""
    walk = after("a:1", "a:1", "a:1")
    walk.stepped(heard=True)
    assert walk.state.score == 0
    walk.stepped(work("a:1"))
    assert walk.state.score == 2


def poll(walk: Walk, result: str = "pending") -> Verb:
    """One more look at something that is waited for."""
    return walk.stepped(Work(call="status", result=result, polling=True)).verb


@pytest.mark.parametrize(("lasted", "stopped"), [(30 * MINUTE, False), (30 * MINUTE + 1, True)])
def test_polling_has_a_time_budget_instead(lasted: int, stopped: bool) -> None:
    """However often; half an hour without anything new is too long."""
    walk = Walk(Stall())
    for _ in range(500):
        assert poll(walk) is Verb.PROCEED
    walk.pass_span(lasted)
    assert (poll(walk) is Verb.STOP) is stopped
    assert (walk.step(call="x").codes == ("polled_too_long",)) is stopped


def test_news_starts_the_time_anew() -> None:
    """A result that was not seen before is something new."""
    walk = Walk(Stall())
    for number in range(10):
        poll(walk, f"{number} %")
        walk.pass_span(20 * MINUTE)
    assert walk.says().proceeds


@pytest.mark.parametrize(
    "texts", [("a:1",), ("a:1", "b:1", "a:1", "b:1"), ("a:1", "x!e", "a:1", "y!e", "a:1")], ids=str
)
def test_a_bad_score_does_not_make_polling_free(texts: tuple[str, ...]) -> None:
    """The time budget holds whatever the score was before."""
    walk = after(*texts)
    poll(walk)
    walk.pass_span(30 * MINUTE + SECOND)
    assert poll(walk) is Verb.STOP


@pytest.mark.parametrize("cause", list(Cause))
def test_goes_with_the_run(cause: Cause) -> None:
    """The next run has not repeated anything yet."""
    walk = after("a:1", "a:1")
    walk.end(cause=cause)
    assert walk.forgot()


def test_steps_within_an_allowance_are_dated_back() -> None:
    """Reported together, they count from when they were made."""
    walk = Walk(Stall(polling_max=MINUTE))
    first, second = (Work(call="status", result="pending", polling=True, ago=ago) for ago in (2 * MINUTE, 0))
    assert walk.stepped(first, second).verb is Verb.STOP
