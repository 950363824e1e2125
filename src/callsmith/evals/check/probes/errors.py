"""Mistakes of a client: refused with a status that says so, in JSON, and the server goes on."""

from callsmith.core.values import Json
from callsmith.evals.check.exchange import Exchange
from callsmith.evals.check.probe import Lab, Skipped, describe, probe
from callsmith.evals.check.probes.questions import GREETING


def _is_refused(lab: Lab, exchange: Exchange) -> None:
    lab.need(exchange.status != 200, "it is answered as if nothing were wrong")
    lab.need(400 <= exchange.status < 500, f"it is the client's mistake: {describe(exchange)}")
    lab.need(isinstance(exchange.json(), dict), f"the error is no JSON: {exchange.text[:100]!r}")


@probe("A body that is no JSON is refused")
async def no_json(lab: Lab) -> None:
    _is_refused(lab, await lab.send(b'{"model": '))


@probe("A request without messages is refused", "chat", "anthropic")
async def no_messages(lab: Lab) -> None:
    body = lab.body(GREETING)
    _is_refused(lab, await lab.send({key: value for key, value in body.items() if key != "messages"}))


@probe("A role that nobody has is refused", "chat", "anthropic")
async def unknown_role(lab: Lab) -> None:
    exchange = await lab.send(lab.body(GREETING, messages=[{"role": "nobody", "content": "hello"}]))
    if exchange.status == 200 and lab.dialect.name == "chat":
        raise Skipped("this server leaves it to the chat template which roles there are")
    _is_refused(lab, exchange)


@probe("A temperature that is no number is refused", "chat", "responses", "anthropic")
async def temperature(lab: Lab) -> None:
    _is_refused(lab, await lab.send(lab.body(GREETING, temperature="hot")))


@probe("Tools that are no array are refused", "chat", "responses", "anthropic")
async def tools(lab: Lab) -> None:
    _is_refused(lab, await lab.send(lab.body(GREETING, tools="get_weather")))


@probe("A schema that is none does not break the server", "chat")
async def schema(lab: Lab) -> None:
    function: dict[str, Json] = {"name": "broken", "parameters": {"type": "objekt", "properties": 7}}
    exchange = await lab.send(lab.body(GREETING, tools=[{"type": "function", "function": function}], tool_choice="required"))
    if exchange.status == 200:
        raise Skipped("this server takes it, and makes of it what it can")
    _is_refused(lab, exchange)


@probe("A tool choice that nobody knows is refused", "chat")
async def choice(lab: Lab) -> None:
    function: dict[str, Json] = {"name": "get_time", "parameters": {"type": "object", "properties": {}}}
    tools: Json = [{"type": "function", "function": function}]
    _is_refused(lab, await lab.send(lab.body(GREETING, tools=tools, tool_choice="perhaps")))


@probe("A mistake in a request for a stream is refused as well, and not in the stream", "chat", "responses", "anthropic")
async def in_stream(lab: Lab) -> None:
    _is_refused(lab, await lab.send(lab.body(GREETING, temperature="hot", stream=True)))


@probe("After all these mistakes the server still answers")
async def goes_on(lab: Lab) -> None:
    await lab.ask(GREETING, anew=99)
