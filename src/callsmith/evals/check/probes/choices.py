"""Tool choices: required, one tool by its name, none, and one call at a time. None of it is left to the model."""

from callsmith.core.values import Choice
from callsmith.evals.check.answer import Answer
from callsmith.evals.check.probe import Lab, Skipped, Wrong, describe, probe
from callsmith.evals.check.probes.answers import same_in_stream
from callsmith.evals.check.probes.questions import EMAIL, GREETING, STOCKS, TWO_QUESTIONS, WEATHER, WEATHER_QUESTION

_WITH = ("chat", "responses", "anthropic")  # Ollama's chat has no choices
_REQUIRED = Choice("required")
_TOOLS = [WEATHER, EMAIL]


async def _required(lab: Lab, question: str, *, stream: bool, anew: int = 0, choice: Choice = _REQUIRED) -> Answer:
    answer = await lab.ask(question, tools=_TOOLS, choice=choice, stream=stream, anew=anew)
    lab.required(answer)
    lab.shape(answer)
    return answer


@probe("A required call is made", *_WITH)
async def required(lab: Lab) -> None:
    await _required(lab, WEATHER_QUESTION, stream=False)


@probe("A required call is made in a stream", *_WITH)
async def required_in_stream(lab: Lab) -> None:
    await _required(lab, WEATHER_QUESTION, stream=True)


@probe("A required call is made whatever the question is", *_WITH)
async def required_anyway(lab: Lab) -> None:
    await _required(lab, GREETING, stream=False)


@probe("A required call is the same in a stream", *_WITH)
async def required_stream_is_whole(lab: Lab) -> None:
    await same_in_stream(lab, lambda stream, anew: _required(lab, WEATHER_QUESTION, stream=stream, anew=anew))


@probe("The arguments of a required call fit the schema", *_WITH)
async def required_arguments(lab: Lab) -> None:
    answer = await _required(lab, GREETING, stream=False)
    lab.forced(answer, EMAIL if answer.calls[0].name == EMAIL.name else WEATHER)


@probe("The tool that is named is called, and no other", *_WITH)
async def named(lab: Lab) -> None:
    answer = await _required(lab, WEATHER_QUESTION, stream=False, choice=Choice.only(EMAIL.name))
    lab.forced(answer, EMAIL)


@probe("The tool that is named is called in a stream, and no other", *_WITH)
async def named_in_stream(lab: Lab) -> None:
    answer = await _required(lab, WEATHER_QUESTION, stream=True, choice=Choice.only(EMAIL.name))
    lab.forced(answer, EMAIL)


@probe("Where calls are forbidden there are none", *_WITH)
async def none(lab: Lab) -> None:
    await _none(lab, stream=False)


@probe("Where calls are forbidden there are none in a stream", *_WITH)
async def none_in_stream(lab: Lab) -> None:
    await _none(lab, stream=True)


@probe("One call at a time means one call", *_WITH)
async def one_at_a_time(lab: Lab) -> None:
    await _one(lab, stream=False)


@probe("One call at a time means one call in a stream", *_WITH)
async def one_at_a_time_in_stream(lab: Lab) -> None:
    await _one(lab, stream=True)


@probe("A tool that is named and was not offered is refused", "chat")
async def named_unknown(lab: Lab) -> None:
    wrong = {"type": "function", "function": {"name": "no_such_tool"}}
    exchange = await lab.send(lab.body(GREETING, tools=_chat_tools(), tool_choice=wrong))
    if exchange.status == 200:
        raise Wrong("the choice names no tool that was offered, and the request is answered all the same")
    lab.need(400 <= exchange.status < 500, f"it is the client's mistake: {describe(exchange)}")


@probe("A required call without tools does not break the server", "chat")
async def required_without_tools(lab: Lab) -> None:
    exchange = await lab.send(lab.body(GREETING, tool_choice="required"))
    lab.need(exchange.status < 500, f"it is the client's mistake: {describe(exchange)}")
    if exchange.status == 200:
        raise Skipped("this server ignores it")


async def _none(lab: Lab, *, stream: bool) -> None:
    answer = await lab.ask(WEATHER_QUESTION, tools=_TOOLS, choice=Choice("none"), stream=stream)
    lab.need(not answer.calls, "calls were forbidden, and there is one")
    lab.shape(answer)
    lab.clean(answer, _TOOLS)


async def _one(lab: Lab, *, stream: bool) -> None:
    answer = await lab.ask(TWO_QUESTIONS, tools=[WEATHER, STOCKS], choice=_REQUIRED, parallel=False, stream=stream)
    lab.need(len(answer.calls) <= 1, f"one call at a time was asked for, and there are {len(answer.calls)}")
    lab.required(answer)


def _chat_tools() -> list[dict[str, object]]:
    function = {"name": WEATHER.name, "description": WEATHER.description, "parameters": dict(WEATHER.parameters)}
    return [{"type": "function", "function": function}]
