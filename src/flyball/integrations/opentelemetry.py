"""OpenTelemetry: a span processor that makes a step of each span of a tool or a model, by the GenAI conventions.

    provider.add_span_processor(GenAISpans())

It serves every framework that writes such spans, and it can refuse nothing: a span is known when it is over. What it
reports are facts. An answer that ends the run reaches whoever runs it: an agent is ended, and so is a coroutine inside
`async with guard.watch(name)`; a thread only finds its next own step refused. Nudges reach nobody but the journal.

Circles are found only where the spans carry arguments and results, which many libraries leave out unless told to.
"""

import contextlib
import logging
import queue
import threading
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from flyball.core.event import Work
from flyball.core.failure import call_fingerprint, result_fingerprint, text_fingerprint
from flyball.errors import FlyballError
from flyball.integrations.feed import MODEL, OPEN_MAX, Feed, Usage, meant
from flyball.integrations.missing import missing
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.step import canonical
from flyball.runtimes.amounts import whole
from flyball.runtimes.prices import Prices

try:
    from opentelemetry.context import Context as SpanContext
    from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
    from opentelemetry.trace import StatusCode
except ImportError:
    raise missing("OpenTelemetry", "opentelemetry") from None

log = logging.getLogger(__name__)

OPERATION: Final = "gen_ai.operation.name"
TOOLS: Final = frozenset({"execute_tool"})
MODELS: Final = frozenset({"chat", "generate_content", "text_completion", "embeddings"})
TOOL: Final = "gen_ai.tool.name"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"
ERROR: Final = "error.type"
ANSWER: Final = "gen_ai.output.messages"
MODEL_NAMES: Final = ("gen_ai.response.model", "gen_ai.request.model")
USED: Final = (("gen_ai.usage.input_tokens", "input_tokens"), ("gen_ai.usage.output_tokens", "output_tokens"))
CACHED: Final = ("gen_ai.usage.cache_read.input_tokens", "cache_read_tokens")

WAITING_MAX: Final = 1_000
"""Steps that wait to be reported. Then whoever ends a span waits: a fact that is dropped is one that does not count."""
FLUSH: Final = 30_000
"""Milliseconds that a flush waits, as OpenTelemetry has it."""

Attributes = Mapping[str, Any]


class GenAISpans(SpanProcessor):
    """Reports to the run that a span is begun in, or to the `context` that it is given. Spans outside of any run are
    left alone.

    Tools in `polling` are meant to be asked again and again; `prices` say what a call of a model cost.
    """

    def __init__(
        self, context: Context | None = None, *, polling: Collection[str] = (), prices: Prices | None = None
    ) -> None:
        self._feed = Feed(context, polling=polling, prices=prices)
        self._runs: dict[int, Context] = {}
        """By span, the run that it was begun in: it may be ended elsewhere."""
        self._waiting: queue.Queue[tuple[Context, Work] | None] = queue.Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def on_start(self, span: Span, parent_context: SpanContext | None = None) -> None:
        """Note whose span it is."""
        with contextlib.suppress(FlyballError):
            run, context = self._feed.context, span.get_span_context()
            while len(self._runs) >= OPEN_MAX:
                self._runs.pop(next(iter(self._runs)), None)
            self._runs[context.span_id] = run

    def on_end(self, span: ReadableSpan) -> None:
        """Report it, if it is of a tool or a model. The store is not waited for here: this may be an event loop."""
        context = span.get_span_context()
        run = self._runs.pop(context.span_id, None) if context is not None else None
        work = self._work(span, span.attributes or {}) if run is not None else None
        if run is not None and work is not None:
            self._start()
            self._waiting.put((run, work))

    def force_flush(self, timeout_millis: int = FLUSH) -> bool:
        """Wait until all that was handed over is reported; false if that takes too long."""
        waiting = self._waiting
        with waiting.all_tasks_done:
            return waiting.all_tasks_done.wait_for(lambda: not waiting.unfinished_tasks, timeout_millis / 1000)

    def shutdown(self) -> None:
        """Report what is left, and end."""
        with self._starting:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._waiting.put(None)
            thread.join()

    # Reporting.

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._report, name="flyball spans", daemon=True)
                self._thread.start()

    def _report(self) -> None:
        while (handed := self._waiting.get()) is not None:
            try:
                _make(*handed)
            except FlyballError as error:
                log.error("a step of %s cannot be reported: %s", handed[0].unit, error)
            finally:
                self._waiting.task_done()
        self._waiting.task_done()

    # From spans to steps.

    def _work(self, span: ReadableSpan, attributes: Attributes) -> Work | None:
        error = span.status.status_code is StatusCode.ERROR or ERROR in attributes
        operation = attributes.get(OPERATION)
        if operation in TOOLS:
            return self._tool(attributes, span.status.description or str(attributes.get(ERROR, "")), error)
        if operation in MODELS:
            text, usage = _text(attributes), _usage(attributes)
            used = whole(self._feed.used(usage)) if usage is not None else {}
            call = text_fingerprint(text) if text.strip() else ""
            return Work(pattern=MODEL, call=call, error=error, used=used)
        return None

    def _tool(self, attributes: Attributes, failure: str, error: bool) -> Work:
        name = str(attributes.get(TOOL, "tool"))
        arguments, result = attributes.get(ARGUMENTS), attributes.get(RESULT)
        if result is None and error:
            result = failure
        return Work(
            pattern=name,
            call="" if arguments is None else call_fingerprint(name, canonical(meant(arguments))),
            result="" if result is None else result_fingerprint(canonical(result)),
            error=error,
            polling=self._feed.polls(name),
        )


def _make(run: Context, work: Work) -> None:
    """Ask leave for what was made already, so that it is counted; and if it is not given, the fact counts all the
    same."""
    asked = run.steps.ask(work.pattern, work.call)
    if asked.proceeds:
        run.heed(run.steps.made(work))
    else:
        run.heed(asked | run.happened(work))


def _usage(attributes: Attributes) -> Usage | None:
    report = {name: int(attributes[key]) for key, name in (*USED, CACHED) if key in attributes}
    if not report:
        return None
    model = next((str(attributes[key]) for key in MODEL_NAMES if attributes.get(key)), "")
    return Usage(model, report, report.get("input_tokens", 0) + report.get("output_tokens", 0))


def _text(attributes: Attributes) -> str:
    """What the model said: the parts of its messages that are text."""
    try:
        messages = msgspec.json.decode(attributes.get(ANSWER, "[]"))
        parts = [part for message in messages for part in message["parts"]]
        return "\n".join(part["content"] for part in parts if part["type"] == "text")
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""
