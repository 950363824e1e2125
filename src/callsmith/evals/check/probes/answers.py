"""Answers without tools: their shape, whole and streamed, and the options that every client uses."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from callsmith.core.types.tables import as_object, as_objects
from callsmith.evals.check.exchange import Answer
from callsmith.evals.check.probe import CUT, ModelFault, ProbeContext, Skipped, Wrong, describe, probe
from callsmith.evals.check.probes.questions import GREETING, WEATHER_QUESTION

Asking: TypeAlias = Callable[[bool, int], Awaitable[Answer]]  # (streamed?, for which time)

_COUNTS = {
    "chat": ("prompt_tokens", "completion_tokens"),
    "responses": ("input_tokens", "output_tokens"),
    "anthropic": ("input_tokens", "output_tokens"),
    "ollama": ("prompt_eval_count", "eval_count"),
}


@probe("The models are listed", "chat")
async def models(context: ProbeContext) -> None:
    exchange = await context.target.send("GET", "models")
    context.need(exchange.status == 200, f"GET models: {describe(exchange)}")
    context.need(as_objects(as_object(exchange.json()).get("data")), 'the list has no array "data", or an empty one')


@probe("A model that is not there is refused, with words")
async def unknown_model(context: ProbeContext) -> None:
    exchange = await context.send({**context.body(GREETING), "model": "no-such-model-0"})
    if exchange.status == 200:
        raise Skipped("this server answers for whatever model it is asked")
    context.need_refusal(exchange)
    context.need(isinstance(exchange.json(), dict), "the error is no JSON")


@probe("A whole answer has the shape that clients expect")
async def whole(context: ProbeContext) -> None:
    answer = await context.ask(GREETING)
    context.shape(answer)
    _says_something(context, answer)


@probe("A streamed answer has the shape that clients expect")
async def stream(context: ProbeContext) -> None:
    answer = await context.ask(GREETING, stream=True)
    context.shape(answer)
    _says_something(context, answer)


@probe("A streamed answer says what a whole one says")
async def stream_is_whole(context: ProbeContext) -> None:
    await same_in_stream(context, lambda stream, anew: context.ask(GREETING, stream=stream, anew=anew))


@probe("A whole answer says how many tokens it took")
async def usage(context: ProbeContext) -> None:
    _usage(context, await context.ask(GREETING))


@probe("A stream says how many tokens it took, when asked to")
async def usage_in_stream(context: ProbeContext) -> None:
    _usage(context, await context.ask(GREETING, stream=True, counted=True))


@probe("An answer is no longer than it may be, and says that it was cut")
async def max_tokens(context: ProbeContext) -> None:
    most = 16 if context.dialect.name == "responses" else 8  # Responses knows no lower limit
    question = "Write a story of three hundred words about the sea."
    answer = await context.ask(question, max_tokens=most)
    words, counted = len(answer.text.split()), (answer.usage or {}).get(_COUNTS[context.dialect.name][1])
    context.need(words <= 2 * most, f"{most} tokens were allowed, and {words} words came")
    context.need(not isinstance(counted, int) or counted <= most, f"{most} tokens were allowed, and {counted} came")
    if answer.finish == "stop" and not answer.thoughts:
        longer = await context.ask(question, max_tokens=2 * most)
        if not longer.text.startswith(answer.text) or longer.text == answer.text:
            raise ModelFault("the model stopped by itself before the limit")
    context.need(answer.finish == "length", f'the answer was cut, and ends with {answer.finish!r} in place of "length"')


@probe("A stop sequence ends the answer, and is not in it", "chat", "anthropic", "ollama")
async def stop(context: ProbeContext) -> None:
    answer = await context.ask("Write these words, and nothing else: alpha beta gamma delta", stop=("gamma",))
    context.need("gamma" not in answer.text, f"the stop sequence is in the text: {answer.text[:100]!r}")
    if "alpha" not in answer.text.lower():
        raise ModelFault("the model did not write what it was asked to")


@probe("Characters of several bytes arrive whole in a stream")
async def characters(context: ProbeContext) -> None:
    answer = await context.ask("Write this line, and nothing else: Zürich 東京 🦜 naïve ½", stream=True)
    context.need("\ufffd" not in answer.text, f"characters were broken on the way: {answer.text[:100]!r}")
    if not any(ord(character) > 127 for character in answer.text):
        raise ModelFault("the model wrote no such characters")


@probe("Without tools there are no calls")
async def no_tools(context: ProbeContext) -> None:
    answer = await context.ask(WEATHER_QUESTION)
    context.need(not answer.calls, "there is a call, and no tool was offered")
    context.shape(answer)


async def same_in_stream(context: ProbeContext, ask: Asking) -> None:
    """A stream and a whole answer are alike, on a server that gives the same answer to the same question."""
    whole, stream = await ask(False, 0), await ask(True, 0)
    if whole.said == stream.said:
        return
    if "length" in (whole.finish, stream.finish) and (whole.calls or stream.calls):
        raise ModelFault(CUT)  # a stream has begun a call before it knows that it will be cut
    for anew in (1, 2):
        if (await ask(False, anew)).said != whole.said:
            raise Skipped("the same question is answered differently each time, at temperature 0 and with a seed")
        if (await ask(True, anew)).said == whole.said:
            raise Skipped("the same question is answered differently now and then, at temperature 0 and with a seed")
    raise Wrong(f"whole it is {_short(whole)}, and streamed {_short(stream)}")


def _says_something(context: ProbeContext, answer: Answer) -> None:
    context.clean(answer)
    if not answer.text.strip() and not answer.thoughts:
        raise ModelFault("the model said nothing")


def _usage(context: ProbeContext, answer: Answer) -> None:
    usage, names = answer.usage, _COUNTS[context.dialect.name]
    if usage is None:
        raise Wrong("there is no usage")
    for name in names[1:] if context.dialect.name == "anthropic" else names:  # its streams say the rest at their beginning
        context.need(isinstance(usage.get(name), int) and usage[name] > 0, f"{name} is {usage.get(name)!r}")
    total = usage.get("total_tokens")
    if total is not None:
        context.need(total == sum(usage[name] for name in names), f"total_tokens is {total}, and the parts are {dict(usage)}")


def _short(answer: Answer) -> str:
    text, calls, finish = answer.said
    return f"{text[:80]!r} {calls} ({finish})"[:300]
