"""The narrator: entries of a journal in, sentences out. Everything that it says is in the entry, but for the one
sentence that explains a code."""

from typing import Any

from flyball.demo.cast import everybody
from flyball.demo.narrator import BAD, BUSY, EXPLAINED, GOOD, Line, Narrator


def entry(
    event: str, verb: str = "proceed", *reasons: dict[str, Any], at: float = 100.0, **more: Any
) -> dict[str, Any]:
    """One entry as the verb `events` answers it."""
    unit, until = more.pop("unit", "coder"), more.pop("until", None)
    data = {"event": event, "unit": unit, "labels": {}, **more}
    return {
        "at": at,
        "unit": unit,
        "event": event,
        "verb": verb,
        "until": until,
        "text": "",
        "reasons": list(reasons),
        "data": data,
    }


def reason(code: str, text: str, verb: int, policy: str = "p") -> dict[str, Any]:
    return {"policy": policy, "code": code, "text": text, "remedy": "", "verb": verb}


def told(*entries: dict[str, Any]) -> list[Line]:
    return list(Narrator().tell(entries))


COOLING = reason("cooling", "failure 2 of KeyError: 'x' (7f3a9c21): waits 5 s", 1)
FAILED = entry("exited", "wait", COOLING, until=105.0, cause="error", error="KeyError: 'x'")


def test_failure() -> None:
    """A failure is told with its number and its wait, each once, and what a ladder is."""
    [line] = told(FAILED)
    assert line == Line(
        100.0, "coder", "fails → waits 5 s: failure 2 of KeyError: 'x' (7f3a9c21)", BUSY, EXPLAINED["cooling"]
    )


def test_explained_once() -> None:
    """A code is explained the first time that it is met, and not again, of whatever unit."""
    first, second = told(FAILED, {**FAILED, "unit": "other"})
    assert first.explained
    assert not second.explained


def test_short_wait_is_left_out() -> None:
    """Of two reasons to wait that say the same, the one with the number is told."""
    [line] = told(
        entry(
            "exited",
            "wait",
            COOLING,
            reason("restarting", "a failing exit: waits 2 s", 1),
            until=105.0,
            cause="error",
            error="KeyError: 'x'",
        )
    )
    assert "a failing exit" not in line.text


def test_held() -> None:
    """What is held is told as such, by the strictest reason alone."""
    quarantined = reason("quarantined", "6 failures within 9 s; the limit is 6", 4)
    [line] = told(entry("exited", "hold", COOLING, quarantined, cause="error", error="KeyError: 'x'"))
    assert line.text == "fails: KeyError: 'x' → held: 6 failures within 9 s; the limit is 6"
    assert line.tone == BAD


def test_hung() -> None:
    """Of what hangs it is told how long it gave no sign of life: since the last one in the journal."""
    lines = told(
        entry("start", at=96.0),
        entry("beat", at=97.0),
        entry("exited", "wait", COOLING, until=105.0, cause="timeout", error="idle_timeout", policy="idle"),
    )
    assert [line.text.partition("; ")[0] for line in lines] == ["fails → waits 5 s: no sign of life for 3 s"]
    assert lines[0].explained == EXPLAINED["idle_timeout"]


def test_nudged_then_stopped() -> None:
    """An agent that goes in circles: the nudge, the stop and the end are a line each; what is repeated is none."""
    nudge, stop = (
        reason("repeating", "You are repeating yourself", 0),
        reason("going_in_circles", "a circle of 2 steps", 3),
    )
    ended = reason("ended_by_policy", "its last run ended: going_in_circles; no other follows", 2)
    lines = told(
        entry("stepped", "proceed", nudge),
        entry("stepped", "stop", stop),
        entry("step", "stop", stop),
        entry("exited", "finish", ended, cause="stopped", error="going_in_circles", policy="stall"),
        entry("start", "finish", ended),
    )
    assert [line.text for line in lines] == [
        "is told: You are repeating yourself",
        "is stopped: a circle of 2 steps",
        "is ended; no other run follows by itself",
    ]


def test_paused() -> None:
    """What a person paused is told to be held by that person."""
    paused = reason("paused", "paused by ann", 4)
    [line] = told(entry("exited", "hold", paused, cause="stopped", error="SIGTERM"))
    assert line.text == "is ended: SIGTERM → held: paused by ann"


def test_reason_is_kept() -> None:
    """The numbers for which it was stopped are kept for the closing table, not the bare code of its exit."""
    narrator = Narrator()
    stop = reason("max_steps", "Step limit reached (56/55)", 3, "steps")
    exited = entry("exited", "finish", cause="stopped", error="max_steps", policy="steps")
    list(narrator.tell([entry("step", "stop", stop), exited]))
    assert narrator.given["coder"]["max_steps"]["text"] == "Step limit reached (56/55)"


def test_resumed() -> None:
    """Pauses and resumes of a session are told, and the resumes are counted."""
    paused = entry(
        "exited",
        "wait",
        reason("waits_to_resume", "paused: rate_limit", 1),
        until=102.0,
        cause="stopped",
        pause="rate_limit",
    )
    held = entry("resume", "hold", reason("max_resume_attempts_exceeded", "Maximum resume attempts exceeded (4/3)", 4))
    texts = [line.text for line in told(paused, entry("resume"), paused, entry("resume"), held)]
    assert texts == [
        "pauses → waits 2 s: paused: rate_limit",
        "is resumed from its checkpoint, resume 1",
        "pauses → waits 2 s: paused: rate_limit",
        "is resumed from its checkpoint, resume 2",
        "is held: Maximum resume attempts exceeded (4/3)",
    ]


def test_circuit_is_told_once() -> None:
    """When many are refused for the same circuit, the first is told."""
    waits = reason("circuit_open", "circuit open: 5 failures within 15 s", 1)
    lines = told(*(entry("start", "wait", waits, unit=unit) for unit in ("a", "b", "c")))
    assert [line.unit for line in lines] == ["a"]


def test_what_goes_well() -> None:
    """Starts, steps and beats that go well are not worth a line; that something is done is."""
    ended = reason("ended_done", "its last run ended: done", 2)
    lines = told(entry("start"), entry("step"), entry("beat"), entry("exited", "finish", ended, cause="done", code=0))
    assert lines == [Line(100.0, "coder", "is done", GOOD)]


def test_orders_are_told() -> None:
    """What a person does is told; that the page was opened is not."""

    def ordered(verb: str) -> dict[str, Any]:
        return entry("ordered") | {"text": f"ann asked to {verb}", "data": {"verb": verb, "by": "ann"}}

    assert told(ordered("login_link")) == []
    assert [line.text for line in told(ordered("reset"))] == ["ann asked to reset"]


def test_terminal_is_not_steered() -> None:
    """What a unit's error says cannot move the cursor."""
    [line] = told(entry("exited", "hold", cause="error", error="\x1b[2Jgone\nnext"))
    assert line.text.isprintable()


def test_every_ending_is_explained() -> None:
    """Each member's reason has its sentence, so that nothing on the tour ends without one."""
    for in_browser in (True, False):
        codes = {member.code for member in everybody("http://shop", in_browser=in_browser)} - {""}
        assert codes <= EXPLAINED.keys()
