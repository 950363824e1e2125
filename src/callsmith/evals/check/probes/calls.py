"""Calls that a model makes by itself: whether they are read, and whether clients can run them."""

from callsmith.core.schema import validate
from callsmith.evals.check.answer import Answer
from callsmith.evals.check.probe import CUT, Lab, Weak, probe
from callsmith.evals.check.probes.answers import same_in_stream
from callsmith.evals.check.probes.questions import EMAIL, STOCKS, TWO_QUESTIONS, WEATHER, WEATHER_QUESTION


async def _called(lab: Lab, *, stream: bool, question: str = WEATHER_QUESTION, anew: int = 0) -> Answer:
    """The answer with a call in it. A call that the server has overlooked is its fault, and none is the model's doing."""
    answer = await lab.ask(question, tools=[WEATHER, EMAIL], stream=stream, anew=anew)
    if not answer.calls:
        lab.clean(answer, [WEATHER, EMAIL])
        raise Weak("the model made no call")
    return answer


@probe("A call that the model makes is read as one")
async def read(lab: Lab) -> None:
    await _called(lab, stream=False)


@probe("A call that the model makes is read as one in a stream")
async def read_in_stream(lab: Lab) -> None:
    await _called(lab, stream=True)


@probe("Calls have ids, a type, a name that was offered, and arguments that are JSON")
async def shape(lab: Lab) -> None:
    _is_usable(lab, await _called(lab, stream=False))


@probe("Streamed calls have ids, indices and names where SDKs look for them")
async def shape_in_stream(lab: Lab) -> None:
    _is_usable(lab, await _called(lab, stream=True))


@probe("An answer with calls says so at its end")
async def finish(lab: Lab) -> None:
    _ends_as_calls(lab, await _called(lab, stream=False))


@probe("A stream with calls says so at its end")
async def finish_in_stream(lab: Lab) -> None:
    _ends_as_calls(lab, await _called(lab, stream=True))


@probe("Streamed calls are those of the whole answer")
async def stream_is_whole(lab: Lab) -> None:
    await same_in_stream(lab, lambda stream, anew: _called(lab, stream=stream, anew=anew))


@probe("Beside calls the text is clean: no markup, no reasoning, no second copy of the call")
async def text(lab: Lab) -> None:
    for stream in (False, True):
        answer = await _called(lab, stream=stream)
        lab.clean(answer, [WEATHER, EMAIL])


@probe("The model's arguments fit the schema")
async def arguments(lab: Lab) -> None:
    answer = await _called(lab, stream=False)
    for call in answer.calls:
        schema = EMAIL.parameters if call.name == EMAIL.name else WEATHER.parameters
        if call.arguments is None or validate(schema, call.arguments):
            raise Weak(f"the model called {call.name} with {call.text[:100]}")


@probe("Two calls in one answer have ids of their own")
async def two(lab: Lab) -> None:
    await _two(lab, stream=False)


@probe("Two calls in one stream have indices and ids of their own")
async def two_in_stream(lab: Lab) -> None:
    await _two(lab, stream=True)


@probe("A question that needs no tool is answered without one")
async def irrelevant(lab: Lab) -> None:
    answer = await lab.ask("Write one sentence about the sea.", tools=[STOCKS])
    if answer.calls:
        raise Weak(f"the model called {answer.calls[0].name}")
    lab.clean(answer, [STOCKS])


async def _two(lab: Lab, *, stream: bool) -> None:
    answer = await _called(lab, stream=stream, question=TWO_QUESTIONS)
    lab.shape(answer)
    if len(answer.calls) < 2:
        raise Weak("the model made one call")


def _ends_as_calls(lab: Lab, answer: Answer) -> None:
    if answer.finish == "length":
        raise Weak(CUT)
    lab.need(answer.finish == "calls", f"there are calls, and the answer ends with {answer.finish!r}")


def _is_usable(lab: Lab, answer: Answer) -> None:
    lab.shape(answer)
    for call in answer.calls:
        lab.need(call.name in (WEATHER.name, EMAIL.name), f"{call.name!r} was not offered")
        if call.arguments is None and answer.finish != "length":
            raise Weak(f"the model's arguments are no JSON object: {call.text[:100]}")
