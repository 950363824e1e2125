"""OpenTelemetry: a recorder that makes a span of every turn and, inside it, one of every call that was run here.

    recorder = CombinedRecorder(Trace(), Spans())

Spans are made when the turn is over, with its recorded times. They go to the process's own tracer provider, or to one given here
(`tracer_provider`: of the SDK, configured by the standard OTEL_* environment variables), and are children of the span that is
current then.
"""

import os
from collections.abc import Iterator
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from callsmith.core.errors import MissingExtra, UnknownName
from callsmith.runtime.telemetry.turns import CallRecord, Outcome, TurnRecord

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.util.types import AttributeValue

# The names of OpenTelemetry's conventions for generative AI. They are not final yet, so they stand here and nowhere else.
OPERATION = "gen_ai.operation.name"
CHAT, INVOKE_AGENT, EXECUTE_TOOL = "chat", "invoke_agent", "execute_tool"
PROVIDER = "gen_ai.provider.name"
MODEL = "gen_ai.request.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST = "gen_ai.response.time_to_first_chunk"
INPUT, OUTPUT = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
CACHED, REASONING = "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.reasoning.output_tokens"
TOOL_NAME, TOOL_TYPE, CALL_ID = "gen_ai.tool.name", "gen_ai.tool.type", "gen_ai.tool.call.id"
ARGUMENTS, RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
ERROR = "error.type"
# What the conventions have no name for.
CHOICE, OFFER, ANSWERS = "callsmith.tool_choice", "callsmith.offer", "callsmith.answers"
OUTCOME, REPAIRS = "callsmith.call.outcome", "callsmith.call.repairs"
CALLS, SCORE, THRESHOLD = "callsmith.decision.calls", "callsmith.decision.score", "callsmith.decision.threshold"

_ELSEWHERE: frozenset[Outcome] = frozenset({"passed_on", "ignored", "waiting"})  # the call was not run here

SERVICE = "callsmith"  # the service's name, where the environment gives none
_EXPORTERS = "OTEL_TRACES_EXPORTER"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_GROUP = "opentelemetry_traces_exporter"  # the entry points that exporters are installed under
_UNKNOWN = "unknown_service"  # what the SDK calls a service that has no name


class Spans:
    """A recorder that makes spans of turns."""

    def __init__(self, provider: "trace.TracerProvider | None" = None) -> None:
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise MissingExtra("otel", "OpenTelemetry") from error
        self._trace = trace
        self._tracer = trace.get_tracer("callsmith", version("callsmith"), provider)

    def add(self, turn: TurnRecord) -> None:
        operation = CHAT if turn.external else INVOKE_AGENT
        kind = self._trace.SpanKind.CLIENT if turn.external else self._trace.SpanKind.INTERNAL
        name, start = f"{operation} {turn.model}", _nanoseconds(turn.when)
        span = self._tracer.start_span(name, kind=kind, start_time=start, attributes=_of_turn(turn, operation))
        if turn.reason == "error":
            span.set_status(self._trace.StatusCode.ERROR)
        inside = self._trace.set_span_in_context(span)
        for call in turn.calls:
            if call.outcome in _ELSEWHERE:
                continue
            begun = turn.when + call.at
            attributes = _of_call(call)
            tool = self._tracer.start_span(
                f"{EXECUTE_TOOL} {call.tool}", context=inside, start_time=_nanoseconds(begun), attributes=attributes
            )
            if call.outcome != "ok":
                tool.set_status(self._trace.StatusCode.ERROR)
            tool.end(_nanoseconds(begun + (call.seconds or 0.0)))
        span.end(_nanoseconds(turn.when + turn.seconds))


def _of_turn(turn: TurnRecord, operation: str) -> dict[str, "AttributeValue"]:
    attributes: dict[str, AttributeValue] = {
        OPERATION: operation,
        PROVIDER: "callsmith",
        MODEL: turn.model,
        FINISH_REASONS: (turn.reason,),
        INPUT: turn.usage.prompt,
        OUTPUT: turn.usage.completion,
        CACHED: turn.usage.cached,
        REASONING: turn.usage.reasoning,
        CHOICE: turn.choice,
        OFFER: turn.offer,
        ANSWERS: turn.answers,
    }
    if turn.first is not None:
        attributes[FIRST] = turn.first
    if turn.error:
        attributes[ERROR] = turn.error
    if turn.decision is not None:
        attributes |= {CALLS: turn.decision.calls, SCORE: turn.decision.score, THRESHOLD: turn.decision.threshold}
    return attributes


def _of_call(call: CallRecord) -> dict[str, "AttributeValue"]:
    attributes: dict[str, AttributeValue] = {
        OPERATION: EXECUTE_TOOL,
        TOOL_NAME: call.tool,
        TOOL_TYPE: "function",
        OUTCOME: call.outcome,
        REPAIRS: call.repairs,
    }
    optional = {CALL_ID: call.id, ARGUMENTS: call.arguments, RESULT: call.result}
    attributes |= {name: value for name, value in optional.items() if value}
    if call.outcome != "ok":
        attributes[ERROR] = call.code or call.outcome
    return attributes


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def tracer_provider() -> "TracerProvider":
    """The provider that the environment describes. `shutdown()` exports what is left.

    OTEL_TRACES_EXPORTER names the exporters (otlp, console, none, or any that is installed; otlp if it is not set),
    OTEL_EXPORTER_OTLP_ENDPOINT where OTLP goes, OTEL_SERVICE_NAME the service. All other variables are read by the SDK itself:
    headers, batches, samplers, resource attributes, OTEL_SDK_DISABLED.
    """
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise MissingExtra("otel", "OpenTelemetry")
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, _UNKNOWN)).startswith(_UNKNOWN):
        resource = resource.merge(Resource({SERVICE_NAME: SERVICE}))
    exporters = list(_exporters())
    provider = TracerProvider(resource=resource)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _exporters() -> "Iterator[SpanExporter]":
    installed = {point.name: point for point in entry_points(group=_GROUP)}
    for name in (os.environ.get(_EXPORTERS) or "otlp").split(","):
        wanted = name.strip()
        if wanted.lower() == "none":
            continue
        wanted = _otlp() if wanted == "otlp" else wanted
        if wanted == "otlp_proto_http" and wanted not in installed:
            raise MissingExtra("otel", "the OTLP exporter of OpenTelemetry")
        if wanted not in installed:
            raise UnknownName(f"exporter in {_EXPORTERS}", wanted, [*installed, "otlp", "none"])
        yield installed[wanted].load()()


def _otlp() -> str:
    """The exporter of the wanted OTLP protocol: over HTTP, unless gRPC is asked for."""
    protocol = next((os.environ[name] for name in _PROTOCOLS if os.environ.get(name)), "http/protobuf")
    return {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}.get(protocol.strip(), protocol)
