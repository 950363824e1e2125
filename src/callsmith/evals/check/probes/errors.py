"""Mistakes of a client: refused with a status that says so, in JSON, and the server goes on."""

from callsmith.core.values import Json
from callsmith.evals.check.exchange import Exchange
from callsmith.evals.check.probe import ProbeContext, Skipped, probe
from callsmith.evals.check.probes.questions import GREETING


def _is_refused(context: ProbeContext, exchange: Exchange) -> None:
    context.need(exchange.status != 200, "it is answered as if nothing were wrong")
    context.need_refusal(exchange)
    context.need(isinstance(exchange.json(), dict), f"the error is no JSON: {exchange.text[:100]!r}")


@probe("A body that is no JSON is refused")
async def no_json(context: ProbeContext) -> None:
    _is_refused(context, await context.send(b'{"model": '))


@probe("A request without messages is refused", "chat", "anthropic")
async def no_messages(context: ProbeContext) -> None:
    body = context.body(GREETING)
    _is_refused(context, await context.send({key: value for key, value in body.items() if key != "messages"}))


@probe("A role that nobody has is refused", "chat", "anthropic")
async def unknown_role(context: ProbeContext) -> None:
    exchange = await context.send(context.body(GREETING, messages=[{"role": "nobody", "content": "hello"}]))
    if exchange.status == 200 and context.dialect.name == "chat":
        raise Skipped("this server leaves it to the chat template which roles there are")
    _is_refused(context, exchange)


@probe("A temperature that is no number is refused", "chat", "responses", "anthropic")
async def temperature(context: ProbeContext) -> None:
    _is_refused(context, await context.send(context.body(GREETING, temperature="hot")))


@probe("Tools that are no array are refused", "chat", "responses", "anthropic")
async def tools(context: ProbeContext) -> None:
    _is_refused(context, await context.send(context.body(GREETING, tools="get_weather")))


@probe("A schema that is none does not break the server", "chat")
async def schema(context: ProbeContext) -> None:
    function: dict[str, Json] = {"name": "broken", "parameters": {"type": "objekt", "properties": 7}}
    exchange = await context.send(
        context.body(GREETING, tools=[{"type": "function", "function": function}], tool_choice="required")
    )
    if exchange.status == 200:
        raise Skipped("this server takes it, and makes of it what it can")
    _is_refused(context, exchange)


@probe("A tool choice that nobody knows is refused", "chat")
async def choice(context: ProbeContext) -> None:
    function: dict[str, Json] = {"name": "get_time", "parameters": {"type": "object", "properties": {}}}
    tools: Json = [{"type": "function", "function": function}]
    _is_refused(context, await context.send(context.body(GREETING, tools=tools, tool_choice="perhaps")))


@probe("A mistake in a request for a stream is refused as well, and not in the stream", "chat", "responses", "anthropic")
async def in_stream(context: ProbeContext) -> None:
    _is_refused(context, await context.send(context.body(GREETING, temperature="hot", stream=True)))


@probe("After all these mistakes the server still answers")
async def goes_on(context: ProbeContext) -> None:
    await context.ask(GREETING, anew=99)
