"""Traces: what happened to a run, as a span."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from flyball.control.metrics import traces
from flyball.control.metrics.traces import Tracer, Traces, exporter_of
from flyball.core.event import Beat, Cause, Exited, Start, Step, Stepped, Work
from flyball.core.time import MINUTE, SECOND
from flyball.errors import FlyballError, StoreError
from flyball.governor import Governor
from flyball.store import Draft, Line
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock
from tests.control.scene import Scene


class Watched:
    """A fleet, and what was exported of it."""

    def __init__(self) -> None:
        self.clock = FakeClock(1_700_000_000 * SECOND)
        self.governor = Governor([], MemoryStore(), self.clock)
        self.exporter = InMemorySpanExporter()
        self.traces = Traces(self.governor.store, self.exporter)

    def spans(self) -> tuple[ReadableSpan, ...]:
        """All of them; nothing more comes."""
        self.traces.catch_up()
        self.traces.end()
        return self.exporter.get_finished_spans()


@pytest.fixture
def watched() -> Iterator[Watched]:
    one = Watched()
    yield one
    one.traces.end()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_run_is_a_span_with_its_steps(watched: Watched) -> None:
    """From its start to its exit by the journal's clock, with labels, steps and decisions; a failure is an error, with
    its stack trace."""
    submit, clock = watched.governor.submit, watched.clock
    submit(Start(unit="coder", run="r1", labels={"user": "ann"}, again=True, down=2 * SECOND))
    clock.move(SECOND)
    submit(Step(unit="coder", run="r1", pattern="look_up"))
    done = (Work(pattern="look_up", lasted=SECOND, used={"usd": 5}), Work(pattern="write", error=True))
    submit(Stepped(unit="coder", run="r1", done=done))
    clock.move(MINUTE)
    submit(Exited(unit="coder", run="r1", cause=Cause.ERROR, error="KeyError", fingerprint="f1", detail="at line 3"))
    (span,) = watched.spans()
    assert span.name == "run"
    assert span.end_time is not None
    assert span.start_time is not None
    assert span.end_time - span.start_time == 61_000_000_000
    assert span.start_time == 1_700_000_000_000_000_000
    told = attributes(span)
    assert told["flyball.unit"] == "coder"
    assert told["flyball.label.user"] == "ann"
    assert told["flyball.again"]
    assert told["flyball.down_seconds"] == 2.0
    assert (told["flyball.cause"], told["error.type"], told["flyball.fingerprint"]) == ("error", "KeyError", "f1")
    assert span.status.status_code is StatusCode.ERROR
    assert [event.name for event in span.events] == ["step", "stepped", "stepped", "exited", "exception"]
    first = dict(span.events[1].attributes or {})
    assert (first["flyball.pattern"], first["flyball.used.usd"], first["flyball.lasted_seconds"]) == ("look_up", 5, 1.0)
    assert dict(span.events[-1].attributes or {})["exception.stacktrace"] == "at line 3"
    assert span.resource.attributes["service.name"] == "flyball"
    assert span.parent is None


def test_decisions_are_told_with_their_codes() -> None:
    """Who said what about a step or an exit."""
    scene = Scene(MemoryStore())
    exporter = InMemorySpanExporter()
    tracing = Traces(scene.governor.store, exporter)
    scene.fail("coder")
    tracing.catch_up()
    tracing.end()
    (span,) = exporter.get_finished_spans()
    exited: dict[str, Any] = dict(span.events[0].attributes or {})
    assert exited["flyball.verdict"] == "wait"
    assert "cooldown" in exited["flyball.policies"]
    assert len(exited["flyball.codes"]) == len(exited["flyball.policies"])


@pytest.mark.parametrize("cause", [Cause.DONE, Cause.STOPPED], ids=str)
def test_an_end_that_is_no_failure_is_no_error(watched: Watched, cause: Cause) -> None:
    """Done, or told to end."""
    watched.governor.submit(Start(unit="u", run="r"))
    watched.governor.submit(Exited(unit="u", run="r", cause=cause))
    (span,) = watched.spans()
    assert span.status.status_code is StatusCode.UNSET


def test_runs_are_told_apart(watched: Watched) -> None:
    """Each has its own span and trace, though they are of one unit."""
    for run in ("a", "b"):
        watched.governor.submit(Start(unit="u", run=run))
    for run in ("a", "b"):
        watched.governor.submit(Beat(unit="u", run=run, stuck="here"))
        watched.governor.submit(Exited(unit="u", run=run, cause=Cause.DONE))
    spans = watched.spans()
    assert {attributes(span)["flyball.run"] for span in spans} == {"a", "b"}
    assert len({span.to_json().partition('"trace_id": ')[2][:36] for span in spans}) == 2
    assert all([event.name for event in span.events] == ["beat", "exited"] for span in spans)


def test_a_run_from_before_has_no_span() -> None:
    """What began before anybody looked is not guessed at."""
    governor = Governor([], MemoryStore(), FakeClock(0))
    governor.submit(Start(unit="u", run="r"))
    exporter = InMemorySpanExporter()
    tracing = Traces(governor.store, exporter)
    governor.submit(Exited(unit="u", run="r", cause=Cause.DONE))
    tracing.catch_up()
    tracing.end()
    assert exporter.get_finished_spans() == ()


def test_what_lives_when_the_daemon_ends_is_told(watched: Watched) -> None:
    """As unfinished."""
    watched.governor.submit(Start(unit="u", run="r"))
    (span,) = watched.spans()
    assert attributes(span)["flyball.unfinished"]


def test_open_spans_are_bounded(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many runs that live the oldest has its span ended."""
    monkeypatch.setattr(traces, "OPEN_MAX", 3)
    for number in range(5):
        watched.governor.submit(Start(unit=f"u{number}", run="r"))
    watched.traces.catch_up()
    watched.governor.submit(Exited(unit="u0", run="r", cause=Cause.DONE))
    spans = watched.spans()
    unfinished = {attributes(span)["flyball.unit"] for span in spans if "flyball.unfinished" in attributes(span)}
    assert len(spans) == 5
    assert unfinished == {"u2", "u3", "u4"}


def test_a_long_report_is_one_event(watched: Watched) -> None:
    """A thousand steps reported together do not push all else out of the span."""
    watched.governor.submit(Start(unit="u", run="r"))
    watched.governor.submit(Stepped(unit="u", run="r", done=tuple(Work(pattern=str(n)) for n in range(1_000))))
    (span,) = watched.spans()
    assert [(event.name, dict(event.attributes or {})["flyball.steps"]) for event in span.events] == [("stepped", 1000)]


def test_an_entry_that_cannot_be_read_is_left_out(watched: Watched) -> None:
    """The others are told."""
    store = watched.governor.store
    store.transact((), lambda snapshot: Draft(snapshot.at, {}, Line("u", "start", "proceed", b"{")))
    watched.governor.submit(Start(unit="u", run="r"))
    watched.governor.submit(Exited(unit="u", run="r", cause=Cause.DONE))
    assert len(watched.spans()) == 1


def test_each_entry_is_told_once(watched: Watched) -> None:
    """However often somebody looks."""
    watched.governor.submit(Start(unit="u", run="r"))
    for _ in range(3):
        watched.traces.catch_up()
    watched.governor.submit(Exited(unit="u", run="r", cause=Cause.DONE))
    assert len(watched.spans()) == 1


def test_an_exporter_that_is_not_there() -> None:
    """What is there, and what to install, is said."""
    with pytest.raises(FlyballError, match=r"no exporter 'nowhere'.*console") as refused:
        exporter_of("nowhere")
    assert "pip install" in refused.value.remedy


def test_an_exporter_by_its_name() -> None:
    """As OpenTelemetry has them registered."""
    exporter = exporter_of("console")
    assert type(exporter).__name__ == "ConsoleSpanExporter"
    exporter.shutdown()


def test_a_thread_of_its_own_tells_what_is_left(watched: Watched) -> None:
    """What happened until it is stopped is told, though it looks only now and then."""
    tracer = Tracer(watched.traces)
    tracer.start()
    watched.governor.submit(Start(unit="u", run="r"))
    watched.governor.submit(Exited(unit="u", run="r", cause=Cause.DONE))
    tracer.stop()
    assert len(watched.exporter.get_finished_spans()) == 1


def test_a_look_that_fails_is_not_the_end(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """It is told once, and tried again."""
    broken = iter([True, True, False])
    real = watched.traces.catch_up

    def looks() -> None:
        if next(broken, False):
            raise StoreError("the disk is gone")
        real()

    watched.traces.catch_up = looks  # type: ignore[method-assign]  # a store that fails twice
    tracer = Tracer(watched.traces)
    watched.governor.submit(Start(unit="u", run="r"))
    assert tracer._look(False)
    assert tracer._look(True)
    assert not tracer._look(True)
    assert len(caplog.records) == 1
