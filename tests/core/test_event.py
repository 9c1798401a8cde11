"""Events: a closed set, each of which survives being written down."""

import msgspec
import pytest
from hypothesis import given

from flyball.core.codec import Body, decode_body, decode_event, decode_state, encode, encode_body
from flyball.core.decision import Reason, Verb, hold
from flyball.core.event import (
    Acknowledged,
    Answered,
    AnyEvent,
    Asked,
    Beat,
    Booted,
    Cause,
    Event,
    Exited,
    Fired,
    Held,
    Joined,
    Left,
    Ordered,
    Raised,
    Released,
    Request,
    Resume,
    Revise,
    Settled,
    Start,
    Step,
    Stepped,
    Work,
    is_failure,
)
from flyball.core.failures import Failures as CooldownState
from flyball.core.policy import Gate, hears
from flyball.testing.laws import event_survives, events

FULL: list[Event] = [
    Start(unit="u", run="r", labels={"provider": "p"}, again=True, holder="h:1"),
    Resume(unit="u", run="r", again=True, holder="h:1", checkpoint="c"),
    Step(unit="u", run="r", pattern="p", call="c", cost={"usd": 1}, steps=7, last=True),
    Revise(unit="u", revision="abc", by="ann"),
    Stepped(
        unit="u",
        run="r",
        done=(
            Work(
                pattern="p",
                call="c",
                result="r",
                world="w",
                error=True,
                refused=True,
                polling=True,
                reserved={"usd": 2},
                used={"usd": 1},
                gauges={"round": 3.0},
                ago=5,
            ),
            Work(),
        ),
        allowed=3,
        returned={"usd": 4},
        heard=True,
    ),
    Beat(unit="u", run="r"),
    Asked(unit="u", run="r", id="q", text="Deploy?", choices=("yes", "no"), until=5, default="no"),
    Answered(unit="u", run="r", id="q", answer="yes", heard=True, by="ann", note="why"),
    Fired(unit="u", id="f", trigger="cron", depth=2, dropped="queue_full"),
    Exited(
        unit="u", run="r", cause=Cause.LOST, fingerprint="f", version=1, error="e", code=137, signal=9, detail="…\n\x00"
    ),
    Booted(holder="h:1", units=9, skew=-5),
    Joined(host="a", holder="a/1/2"),
    Left(host="a", holder="a/1/2", lost=True, runs=3, by="b"),
    Held(unit="u", scope="fleet", verb=Verb.FINISH, order="kill", host="a", by="ann", note="why"),
    Released(
        unit="u",
        scope="fleet",
        policies=("storm",),
        fingerprint="f",
        order="restart",
        host="a",
        by="ann",
        note="why",
    ),
    Settled(unit="u", run="r", reserved={"usd": 3}, used={"usd": 2}, by="ann", note="why"),
    Raised(unit="u", run="r", scope="run", more={"usd": 5, "tokens": 1}, by="ann", note="why"),
    Acknowledged(unit="u", problem="u:quarantined:f", until=9, count=6, by="ann", note="why"),
    Ordered(
        unit="u", verb="raise", asked="unit u, more 1.00", effect="…", refused="not_found", by="ann", channel="http"
    ),
]


@pytest.mark.parametrize("event", FULL, ids=lambda event: type(event).__name__)
def test_survives_being_written_down(event: Event) -> None:
    """Every field of every event comes back, and so does the kind."""
    event_survives(event)
    assert type(decode_event(encode(event))) is type(event)
    decision = hold(Reason("p", "c", "t", "r"))
    assert decode_body(encode_body(event, decision, ("fault",))) == Body(event, decision, ("fault",))  # type: ignore[arg-type]  # only the closed set exists


@given(events().filter(lambda event: "nan" not in repr(event)))
def test_any_event_survives(event: Event) -> None:
    """Whatever they say. (NaN is not equal to itself, before as after.)"""
    event_survives(event)


def test_none_is_left_out() -> None:
    """The list above has every kind there is."""
    assert {type(event) for event in FULL} == set(AnyEvent.__args__)


@pytest.mark.parametrize(
    ("event", "asks"),
    [*((event, True) for event in FULL[:4]), *((event, False) for event in FULL[4:])],
    ids=lambda case: type(case).__name__,
)
def test_who_asks(event: Event, asks: bool) -> None:
    """Start, resume, step and revise ask leave; everything else has happened."""
    assert event.asks is asks is isinstance(event, Request)


@pytest.mark.parametrize(
    ("cause", "failed"),
    [
        (Cause.DONE, False),
        (Cause.STOPPED, False),
        (Cause.ERROR, True),
        (Cause.TIMEOUT, True),
        (Cause.STARVED, True),
        (Cause.LOST, True),
    ],
)
def test_failures(cause: Cause, failed: bool) -> None:
    """Done and stopped are no failures; error, timeout, starved and lost are."""
    assert cause.failed is failed
    assert is_failure(Exited(cause=cause)) is failed
    assert not is_failure(Beat())


def test_fields_of_a_later_version_are_no_error() -> None:
    """What an older version does not know, it leaves aside; what a newer one added gets its default."""
    assert decode_event(b'{"event":"beat","unit":"u","mood":"good"}') == Beat(unit="u")
    assert decode_state(CooldownState, b'{"later":1}') == CooldownState()


@pytest.mark.parametrize("data", [b"", b"{}", b'{"event":"nap"}', b'{"event":"exited"}', b"\xff"])
def test_what_is_no_event_is_an_error(data: bytes) -> None:
    """An unknown kind, or one without what it needs, is not taken for another."""
    with pytest.raises(msgspec.DecodeError):
        decode_event(data)


@pytest.mark.parametrize(
    ("released", "policy", "by", "frees"),
    [
        (Released(), "storm", "unit", True),
        (Released(), "storm", "fleet", False),
        (Released(scope="fleet"), "storm", "fleet", True),
        (Released(policies=("storm",)), "storm", "unit", True),
        (Released(policies=("clock",)), "storm", "unit", False),
    ],
)
def test_whom_a_release_frees(released: Released, policy: str, by: str, frees: bool) -> None:
    """Those of its scope; of these, the ones it names, or all."""
    assert released.frees(policy, by) is frees


@pytest.mark.parametrize(
    ("gate", "heard"),
    [
        (Gate.CHANGE, {Revise}),
        (Gate.START, {Start, Resume, Revise, Exited, Booted, Held, Released}),
        (Gate.STEP, set(AnyEvent.__args__) - {Fired, Joined, Left, Acknowledged, Ordered}),
    ],
)
def test_who_hears_what(gate: Gate, heard: set[type[Event]]) -> None:
    """Steps are many: only those who are asked at steps are told of them. Everybody hears of a change, and
    nobody of what fired, for a start follows, nor of hosts, nor of what people have seen and asked for."""
    assert {kind for kind in AnyEvent.__args__ if hears(gate, kind)} == heard


@pytest.mark.parametrize("text", ["lone \udcff surrogate", "\ud800"])
def test_a_text_that_is_no_text_survives(text: str) -> None:
    """The last lines of a process can be any bytes: the fact that it exited is written down all the same."""
    body = decode_body(encode_body(Exited(cause=Cause.ERROR, detail=text), hold(Reason("p", "c", "t"))))
    assert body.event.cause is Cause.ERROR  # type: ignore[union-attr]  # it is an exit


def test_a_reading_that_is_no_number_survives() -> None:
    """A gauge of NaN can be written down, and what was written can be read again: replay must not end there."""
    body = encode_body(Stepped(done=(Work(gauges={"convergence": float("nan")}),)), hold(Reason("p", "c", "t")))
    assert decode_body(body).decision.verb is Verb.HOLD
