"""OpenTelemetry: a recorder that makes a span of every turn and, inside it, one of every call that was run here.

    recorder = CombinedRecorder(Trace(), Spans())

Spans are made when the turn is over, with its recorded times. They go to the process's own tracer provider, or to one given here
(`span_export.tracer_provider`), and are children of the span that is current then.
"""

from importlib.metadata import version
from typing import TYPE_CHECKING

from callsmith.core.errors import MissingExtra
from callsmith.runtime.telemetry.turns import CallRecord, Outcome, TurnRecord

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
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


class Spans:
    """A recorder that makes spans of turns."""

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
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
