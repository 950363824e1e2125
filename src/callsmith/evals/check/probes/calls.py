"""Calls that a model makes by itself: whether they are read, and whether clients can run them."""

from callsmith.core.schema import validate
from callsmith.evals.check.exchange import Answer
from callsmith.evals.check.probe import CUT, ModelFault, ProbeContext, probe
from callsmith.evals.check.probes.answers import same_in_stream
from callsmith.evals.check.probes.questions import EMAIL, STOCKS, TWO_QUESTIONS, WEATHER, WEATHER_QUESTION


async def _ask_for_call(context: ProbeContext, *, stream: bool, question: str = WEATHER_QUESTION, anew: int = 0) -> Answer:
    """The answer with a call in it. A call that the server has overlooked is its fault, and none is the model's doing."""
    answer = await context.ask(question, tools=[WEATHER, EMAIL], stream=stream, anew=anew)
    if not answer.calls:
        context.clean(answer, [WEATHER, EMAIL])
        raise ModelFault("the model made no call")
    return answer


@probe("A call that the model makes is read as one")
async def read(context: ProbeContext) -> None:
    await _ask_for_call(context, stream=False)


@probe("A call that the model makes is read as one in a stream")
async def read_in_stream(context: ProbeContext) -> None:
    await _ask_for_call(context, stream=True)


@probe("Calls have ids, a type, a name that was offered, and arguments that are JSON")
async def shape(context: ProbeContext) -> None:
    _is_usable(context, await _ask_for_call(context, stream=False))


@probe("Streamed calls have ids, indices and names where SDKs look for them")
async def shape_in_stream(context: ProbeContext) -> None:
    _is_usable(context, await _ask_for_call(context, stream=True))


@probe("An answer with calls says so at its end")
async def finish(context: ProbeContext) -> None:
    _ends_as_calls(context, await _ask_for_call(context, stream=False))


@probe("A stream with calls says so at its end")
async def finish_in_stream(context: ProbeContext) -> None:
    _ends_as_calls(context, await _ask_for_call(context, stream=True))


@probe("Streamed calls are those of the whole answer")
async def stream_is_whole(context: ProbeContext) -> None:
    await same_in_stream(context, lambda stream, anew: _ask_for_call(context, stream=stream, anew=anew))


@probe("Beside calls the text is clean: no markup, no reasoning, no second copy of the call")
async def text(context: ProbeContext) -> None:
    for stream in (False, True):
        answer = await _ask_for_call(context, stream=stream)
        context.clean(answer, [WEATHER, EMAIL])


@probe("The model's arguments fit the schema")
async def arguments(context: ProbeContext) -> None:
    answer = await _ask_for_call(context, stream=False)
    for call in answer.calls:
        schema = EMAIL.parameters if call.name == EMAIL.name else WEATHER.parameters
        if call.arguments is None or validate(schema, call.arguments):
            raise ModelFault(f"the model called {call.name} with {call.text[:100]}")


@probe("Two calls in one answer have ids of their own")
async def two(context: ProbeContext) -> None:
    await _two(context, stream=False)


@probe("Two calls in one stream have indices and ids of their own")
async def two_in_stream(context: ProbeContext) -> None:
    await _two(context, stream=True)


@probe("A question that needs no tool is answered without one")
async def irrelevant(context: ProbeContext) -> None:
    answer = await context.ask("Write one sentence about the sea.", tools=[STOCKS])
    if answer.calls:
        raise ModelFault(f"the model called {answer.calls[0].name}")
    context.clean(answer, [STOCKS])


async def _two(context: ProbeContext, *, stream: bool) -> None:
    answer = await _ask_for_call(context, stream=stream, question=TWO_QUESTIONS)
    context.shape(answer)
    if len(answer.calls) < 2:
        raise ModelFault("the model made one call")


def _ends_as_calls(context: ProbeContext, answer: Answer) -> None:
    if answer.finish == "length":
        raise ModelFault(CUT)
    context.need(answer.finish == "calls", f"there are calls, and the answer ends with {answer.finish!r}")


def _is_usable(context: ProbeContext, answer: Answer) -> None:
    context.shape(answer)
    for call in answer.calls:
        context.need(call.name in (WEATHER.name, EMAIL.name), f"{call.name!r} was not offered")
        if call.arguments is None and answer.finish != "length":
            raise ModelFault(f"the model's arguments are no JSON object: {call.text[:100]}")
