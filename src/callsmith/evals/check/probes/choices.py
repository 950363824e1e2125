"""Tool choices: required, one tool by its name, none, and one call at a time. None of it is left to the model."""

from callsmith.core.values import Choice
from callsmith.evals.check.exchange import Answer
from callsmith.evals.check.probe import ProbeContext, Skipped, Wrong, probe
from callsmith.evals.check.probes.answers import same_in_stream
from callsmith.evals.check.probes.questions import EMAIL, GREETING, STOCKS, TWO_QUESTIONS, WEATHER, WEATHER_QUESTION

_WITH = ("chat", "responses", "anthropic")  # Ollama's chat has no choices
_REQUIRED = Choice("required")
_TOOLS = [WEATHER, EMAIL]


async def _ask_required(
    context: ProbeContext, question: str, *, stream: bool, anew: int = 0, choice: Choice = _REQUIRED
) -> Answer:
    answer = await context.ask(question, tools=_TOOLS, choice=choice, stream=stream, anew=anew)
    context.require_call(answer)
    context.shape(answer)
    return answer


@probe("A required call is made", *_WITH)
async def required(context: ProbeContext) -> None:
    await _ask_required(context, WEATHER_QUESTION, stream=False)


@probe("A required call is made in a stream", *_WITH)
async def required_in_stream(context: ProbeContext) -> None:
    await _ask_required(context, WEATHER_QUESTION, stream=True)


@probe("A required call is made whatever the question is", *_WITH)
async def required_anyway(context: ProbeContext) -> None:
    await _ask_required(context, GREETING, stream=False)


@probe("A required call is the same in a stream", *_WITH)
async def required_stream_is_whole(context: ProbeContext) -> None:
    await same_in_stream(context, lambda stream, anew: _ask_required(context, WEATHER_QUESTION, stream=stream, anew=anew))


@probe("The arguments of a required call fit the schema", *_WITH)
async def required_arguments(context: ProbeContext) -> None:
    answer = await _ask_required(context, GREETING, stream=False)
    context.require_fitting_call(answer, EMAIL if answer.calls[0].name == EMAIL.name else WEATHER)


@probe("The tool that is named is called, and no other", *_WITH)
async def named(context: ProbeContext) -> None:
    answer = await _ask_required(context, WEATHER_QUESTION, stream=False, choice=Choice.only(EMAIL.name))
    context.require_fitting_call(answer, EMAIL)


@probe("The tool that is named is called in a stream, and no other", *_WITH)
async def named_in_stream(context: ProbeContext) -> None:
    answer = await _ask_required(context, WEATHER_QUESTION, stream=True, choice=Choice.only(EMAIL.name))
    context.require_fitting_call(answer, EMAIL)


@probe("Where calls are forbidden there are none", *_WITH)
async def none(context: ProbeContext) -> None:
    await _none(context, stream=False)


@probe("Where calls are forbidden there are none in a stream", *_WITH)
async def none_in_stream(context: ProbeContext) -> None:
    await _none(context, stream=True)


@probe("One call at a time means one call", *_WITH)
async def one_at_a_time(context: ProbeContext) -> None:
    await _one(context, stream=False)


@probe("One call at a time means one call in a stream", *_WITH)
async def one_at_a_time_in_stream(context: ProbeContext) -> None:
    await _one(context, stream=True)


@probe("A tool that is named and was not offered is refused", "chat")
async def named_unknown(context: ProbeContext) -> None:
    wrong = {"type": "function", "function": {"name": "no_such_tool"}}
    exchange = await context.send(context.body(GREETING, tools=_chat_tools(), tool_choice=wrong))
    if exchange.status == 200:
        raise Wrong("the choice names no tool that was offered, and the request is answered all the same")
    context.need_refusal(exchange)


@probe("A required call without tools does not break the server", "chat")
async def required_without_tools(context: ProbeContext) -> None:
    exchange = await context.send(context.body(GREETING, tool_choice="required"))
    if exchange.status == 200:
        raise Skipped("this server ignores it")
    context.need_refusal(exchange)


async def _none(context: ProbeContext, *, stream: bool) -> None:
    answer = await context.ask(WEATHER_QUESTION, tools=_TOOLS, choice=Choice("none"), stream=stream)
    context.need(not answer.calls, "calls were forbidden, and there is one")
    context.shape(answer)
    context.clean(answer, _TOOLS)


async def _one(context: ProbeContext, *, stream: bool) -> None:
    answer = await context.ask(TWO_QUESTIONS, tools=[WEATHER, STOCKS], choice=_REQUIRED, parallel=False, stream=stream)
    context.need(len(answer.calls) <= 1, f"one call at a time was asked for, and there are {len(answer.calls)}")
    context.require_call(answer)


def _chat_tools() -> list[dict[str, object]]:
    function = {"name": WEATHER.name, "description": WEATHER.description, "parameters": dict(WEATHER.parameters)}
    return [{"type": "function", "function": function}]
