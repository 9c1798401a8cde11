"""Traces: a span for each run, made of the journal; its steps and the decisions about them are events of the span.

Off unless settings name an exporter. Then the journal is read every second, from the end that it has when the daemon
starts; a run that was begun before that has no span. Where spans go, which of them and with which names, is said by
OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME, …).
"""

import logging
import os
import threading
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from flyball.core.codec import Body, decode_body
from flyball.core.decision import Decision
from flyball.core.event import Asked, Event, Exited, Resume, Start, Step, Stepped, Work
from flyball.core.time import Instant
from flyball.errors import FlyballError, StoreCorrupt
from flyball.store import Entry, Store

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

log = logging.getLogger(__name__)

GROUP: Final = "opentelemetry_traces_exporter"
"""Where exporters are registered, by the names that OTEL_TRACES_EXPORTER has for them, too."""
SERVICE: Final = "flyball"
LOOK_EVERY: Final = 1.0
"""Seconds between looks at the journal."""
ENDS_WITHIN: Final = 5.0
"""Seconds for the last spans to be handed over: an exporter that hangs holds nobody up."""
CHUNK_MAX: Final = 2_000
"""Entries in memory at a time."""
OPEN_MAX: Final = 10_000
"""Runs whose spans are open. Of more than this the oldest is ended as it is: whoever exits that late has no span."""
DONE_MAX: Final = 20
"""Steps of one report that are told each; more than this are told together. A span keeps 128 events if OpenTelemetry's
variables do not say otherwise."""

Attributes = dict[str, Any]


class Traces:
    """Makes spans of a journal. For one thread at a time; it blocks."""

    def __init__(self, store: Store, exporter: "SpanExporter") -> None:
        from opentelemetry.context import Context  # noqa: PLC0415 - only where it is asked for
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above

        self._store = store
        self._seq = store.read(()).seq
        self._nothing = Context()
        """Every span is the root of a trace."""
        name = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": SERVICE}
        self._provider = TracerProvider(resource=Resource.create(name), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("flyball")
        self._open: dict[tuple[str, str], Span] = {}

    def catch_up(self) -> None:
        """Read what is new in the journal."""
        while entries := self._store.entries(after=self._seq, limit=CHUNK_MAX):
            for entry in entries:
                try:
                    self._hear(entry, decode_body(entry.body))
                except StoreCorrupt:
                    continue  # it says nothing; `flyball events` names it
            self._seq = entries[-1].seq

    def end(self) -> None:
        """Hand over what is there: runs that live on end as `unfinished`."""
        for span in self._open.values():
            span.set_attribute("flyball.unfinished", True)
            span.end()
        self._open.clear()
        self._provider.shutdown()

    def _hear(self, entry: Entry, said: Body) -> None:
        event, at = said.event, _nanoseconds(entry.at)
        run = (event.unit, event.run)
        if isinstance(event, Start) and said.decision.proceeds and event.run:
            self._begin(run, event, at)
            return
        span = self._open.get(run)
        if span is None:
            return
        for name, attributes in _told(event):
            span.add_event(name, {**attributes, **_decided(said.decision)}, at)
        if isinstance(event, Exited):
            self._end(self._open.pop(run), event, at)

    def _begin(self, run: tuple[str, str], start: Start, at: int) -> None:
        attributes: Attributes = {
            "flyball.unit": start.unit,
            "flyball.run": start.run,
            "flyball.again": start.again,
            "flyball.resumed": isinstance(start, Resume),
            **{f"flyball.label.{name}": value for name, value in start.labels.items()},
        }
        if start.down:
            attributes["flyball.down_seconds"] = start.down / 1_000_000
        while len(self._open) >= OPEN_MAX:
            self._open.pop(next(iter(self._open))).end(at)
        self._open[run] = self._tracer.start_span("run", self._nothing, start_time=at, attributes=attributes)

    def _end(self, span: "Span", exited: Exited, at: int) -> None:
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - as above

        span.set_attributes(
            {
                "flyball.cause": str(exited.cause),
                **({"error.type": exited.error} if exited.error else {}),
                **({"flyball.fingerprint": exited.fingerprint} if exited.fingerprint else {}),
                **({"flyball.policy": exited.policy} if exited.policy else {}),
            }
        )
        if exited.cause.failed:
            span.set_status(Status(StatusCode.ERROR, exited.error))
            if exited.detail:
                named = {"exception.type": exited.error, "exception.stacktrace": exited.detail}
                span.add_event("exception", named, at)
        span.end(at)


class Tracer:
    """Makes them in a thread of its own, from `start` to `stop`."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flyball-traces", daemon=True)

    def start(self) -> None:
        """From now on."""
        self._thread.start()

    def stop(self) -> None:
        """Hand over what there is. Blocks, within bounds."""
        self._ending.set()
        self._thread.join(ENDS_WITHIN)

    def _run(self) -> None:
        failed = False
        while not self._ending.wait(LOOK_EVERY):
            failed = self._look(failed)
        self._look(failed)
        self._traces.end()

    def _look(self, failed: bool) -> bool:
        """Whether it failed; told once, until it works again."""
        try:
            self._traces.catch_up()
        except Exception:  # a store that cannot be read now, or a fault of ours: neither is the end of tracing
            if not failed:
                log.exception("what happens cannot be traced now")
            return True
        return False


def exporter_of(name: str) -> "SpanExporter":
    """The exporter of that name, as OpenTelemetry finds it. FlyballError says what to install."""
    remedy = "Or leave `traces.exporter` out."
    try:
        import opentelemetry.sdk.trace.export  # noqa: F401, PLC0415 - whether it is there
    except ImportError:
        text = "traces need OpenTelemetry, which is not installed"
        raise FlyballError(text, remedy=f"`pip install flyball-governor[opentelemetry]`. {remedy}") from None
    known = {point.name: point for point in entry_points(group=GROUP)}
    if name not in known:
        there = ", ".join(sorted(known)) or "none"
        text = f"traces.exporter: there is no exporter {name!r} for OpenTelemetry here; there are: {there}"
        raise FlyballError(text, remedy=f"One is in `pip install opentelemetry-exporter-otlp-proto-http`. {remedy}")
    try:
        exporter: SpanExporter = known[name].load()()
    except Exception as error:  # noqa: BLE001 - whatever an exporter does not like is told as it says it
        text = f"traces.exporter: {name} cannot be used: {type(error).__name__}: {error}"
        raise FlyballError(text, remedy=f"See OpenTelemetry's variables for it. {remedy}") from None
    return exporter


def _told(event: Event) -> list[tuple[str, Attributes]]:
    """What an entry is in its span: mostly one event; of a report of several steps, one for each."""
    if isinstance(event, Stepped) and 0 < len(event.done) <= DONE_MAX:
        return [("stepped", _work(work)) for work in event.done]
    attributes: Attributes = {}
    match event:
        case Step():
            attributes = {"flyball.pattern": event.pattern, "flyball.steps": event.steps}
        case Stepped():
            attributes = {"flyball.steps": sum(work.times for work in event.done)}
        case Asked():
            attributes = {"flyball.question": event.text}
    return [(type(event).__name__.lower(), attributes)]


def _work(work: Work) -> Attributes:
    attributes: Attributes = {"flyball.pattern": work.pattern, "flyball.steps": work.times, "flyball.error": work.error}
    if work.lasted:
        attributes["flyball.lasted_seconds"] = work.lasted / 1_000_000
    return attributes | {f"flyball.used.{meter}": amount for meter, amount in work.used.items()}


def _decided(decision: Decision) -> Attributes:
    told: Attributes = {"flyball.verdict": decision.verb.name.lower()}
    if decision.reasons:
        told["flyball.codes"] = decision.codes
        told["flyball.policies"] = tuple(reason.policy for reason in decision.reasons)
    return told


def _nanoseconds(at: Instant) -> int:
    return at * 1_000
