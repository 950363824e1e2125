"""Structured output: the text is JSON that fits a schema."""

import json

from callsmith.core.schema import validate
from callsmith.core.values import Output
from callsmith.evals.check.exchange import Answer
from callsmith.evals.check.probe import ModelFault, ProbeContext, Wrong, probe
from callsmith.evals.check.probes.questions import tool

_SCHEMA = tool("x", {"city": {"type": "string"}, "degrees": {"type": "integer"}, "sky": {"enum": ["clear", "cloudy"]}}).parameters
_QUESTION = "In Paris it is 17 degrees and cloudy. Write that as JSON with the keys city, degrees and sky."
_WITH = ("chat", "responses", "ollama")


def _fits(answer: Answer) -> None:
    if answer.finish == "length":
        raise ModelFault("the JSON was not finished within the tokens that it had")
    try:
        value = json.loads(answer.text)
    except ValueError:
        raise Wrong(f"the text is no JSON: {answer.text[:200]!r}") from None
    if complaints := validate(_SCHEMA, value):
        raise Wrong(f"the text does not fit the schema: {'; '.join(map(str, complaints))[:300]}")


@probe("Structured output fits its schema", *_WITH)
async def schema(context: ProbeContext) -> None:
    answer = await context.ask(_QUESTION, output=Output(schema=_SCHEMA, strict=True))
    context.shape(answer)
    _fits(answer)


@probe("Structured output fits its schema in a stream", *_WITH)
async def schema_in_stream(context: ProbeContext) -> None:
    answer = await context.ask(_QUESTION, output=Output(schema=_SCHEMA, strict=True), stream=True)
    context.shape(answer)
    _fits(answer)


@probe("Structured output fits its schema whatever was asked", *_WITH)
async def schema_anyway(context: ProbeContext) -> None:
    answer = await context.ask("Tell me a joke about clouds.", output=Output(schema=_SCHEMA, strict=True))
    _fits(answer)
