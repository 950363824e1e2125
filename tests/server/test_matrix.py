"""Who runs a call, and what whoever asked sees of it: the matrix of server/tools/planner.py, asked by the real OpenAI client."""

from collections.abc import Sequence
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from callsmith.core.events import Text, Thought
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result, Tool
from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.settings import Key, Llm, Settings
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed
from callsmith.wire.extensions import ToolOptions, read_extensions
from tests.fakes import FakeModel
from tests.server.asking import BONN, HI, KOELN, WEATHER, calls, client, http, says

MIXED = {"tool_mode": "mixed"}
EVENTS = {"tool_events": True}
TIME = Call("clock", {"zone": "CET"}, "t1")


async def weather(city: str) -> str:
    return f"sun in {city}"


async def clock(zone: str) -> str:
    return f"noon {zone}"


ran: list[int] = []


@tool(side_effects=True)
async def pay(euros: int) -> str:
    ran.append(euros)
    return "paid"


async def chunks_of(model: FakeModel, extra: dict[str, Any], **options: Any) -> list[ChatCompletionChunk]:
    body: Any = {"tools": options.pop("sent")} if "sent" in options else {}
    stream = await client(model, **options).chat.completions.create(model="m", messages=HI, stream=True, extra_body=extra, **body)
    return [chunk async for chunk in stream]


def tool_events(chunks: Sequence[ChatCompletionChunk]) -> list[Any]:
    return [chunk.callsmith for chunk in chunks if hasattr(chunk, "callsmith")]  # type: ignore[attr-defined]


def text_of(chunks: Sequence[ChatCompletionChunk]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def reason_of(chunks: Sequence[ChatCompletionChunk]) -> list[str]:
    return [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]


# The four rows


@pytest.mark.req("R112")
@pytest.mark.req("R113")
@pytest.mark.req("R114")
@pytest.mark.req("R118")
@pytest.mark.parametrize(
    ("sent", "own", "reason", "offered"),
    [
        (False, False, "stop", []),
        (True, False, "tool_calls", ["weather"]),
        (True, True, "tool_calls", ["weather"]),
        (False, True, "stop", ["clock"]),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_who_runs_a_call(sent: bool, own: bool, reason: str, offered: list[str], stream: bool):
    first = calls(BONN) if sent else calls(TIME) if own else says("a </tool_call> b")
    model = FakeModel(first, says("It is noon."))
    completions = client(model, tools=Functions(clock) if own else None).chat.completions
    arguments: Any = {"model": "m", "messages": HI, **({"tools": [WEATHER]} if sent else {})}
    if stream:
        chunks = [chunk async for chunk in await completions.create(stream=True, **arguments)]
        reasons, text = reason_of(chunks), text_of(chunks)
    else:
        answer = await completions.create(**arguments)
        reasons, text = [answer.choices[0].finish_reason], answer.choices[0].message.content or ""
    assert reasons == [reason]
    assert text == ("" if sent else "It is noon." if own else "a </tool_call> b")
    assert [listed_tool.name for listed_tool in model.asked[0].tools] == offered


@pytest.mark.req("R115")
@pytest.mark.req("R117")
async def test_a_run_inside_goes_on_from_the_same_conversation_until_the_answer():
    model = FakeModel(calls(TIME), calls(Call("clock", {"zone": "UTC"}, "t2")), says("Done."))
    await client(model, tools=Functions(clock)).chat.completions.create(model="m", messages=HI)
    prompts = [request.messages for request in model.asked]
    assert prompts[1][: len(prompts[0])] == prompts[0]  # each prompt begins with the one before: an engine need not read it again
    assert prompts[2][: len(prompts[1])] == prompts[1]
    assert [message.content for message in prompts[2] if message.role == "tool"] == ["noon CET", "noon UTC"]


@pytest.mark.req("R213")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_thought_stays_one_where_the_server_runs_the_calls(stream: bool):
    model = FakeModel([Thought("Let me "), *calls(TIME)], [Thought("see."), *says("Noon.")])
    completions = client(model, tools=Functions(clock)).chat.completions
    if stream:
        deltas = [chunk.choices[0].delta async for chunk in await completions.create(model="m", messages=HI, stream=True)]
        text = "".join(delta.content or "" for delta in deltas)
        thought = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    else:
        message: Any = (await completions.create(model="m", messages=HI)).choices[0].message
        text, thought = message.content, message.reasoning_content
    assert (text, thought) == ("Noon.", "Let me see.")


# Events


@pytest.mark.req("R116")
async def test_what_the_tools_did_is_told_only_to_whoever_asks():
    quiet = await chunks_of(FakeModel(calls(TIME), says("Noon.")), {}, tools=Functions(clock))
    assert tool_events(quiet) == []
    loud = await chunks_of(FakeModel(calls(TIME), says("Noon.")), EVENTS, tools=Functions(clock))
    assert text_of(quiet) == text_of(loud) == "Noon."
    assert [chunk.choices[0].delta.role for chunk in loud] == ["assistant"] + [None] * (len(loud) - 1)
    assert tool_events(loud) == [
        {"event": "tool_started", "id": "t1", "name": "clock", "arguments": {"zone": "CET"}},
        {"event": "tool_finished", "id": "t1", "name": "clock", "ok": True, "content": "noon CET"},
    ]


async def test_events_are_in_a_whole_answer_too():
    completions = client(FakeModel(calls(Call("clock", {}, "t1")), says("Hm.")), tools=Functions(clock)).chat.completions
    answer: Any = await completions.create(model="m", messages=HI, extra_body=EVENTS)
    (event,) = answer.callsmith["events"]
    assert (event["event"], event["ok"], event["code"]) == ("tool_finished", False, "bad_request")


async def test_the_streaming_helper_of_the_client_takes_events():
    completions = client(FakeModel(calls(TIME), says("No", "on.")), tools=Functions(clock)).chat.completions
    async with completions.stream(model="m", messages=HI, extra_body=EVENTS) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == "Noon."


# Calls that have to be confirmed


@pytest.mark.req("R163")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_with_side_effects_waits_and_its_approval_has_an_id(stream: bool):
    ran.clear()
    model = FakeModel([Text("I will pay."), *calls(Call("pay", {"euros": 5}, "p1"))], says("never"))
    if stream:
        chunks = await chunks_of(model, {}, tools=Functions(pay))
        text, (beside,), reasons = text_of(chunks), tool_events(chunks), reason_of(chunks)
    else:
        answer: Any = await client(model, tools=Functions(pay)).chat.completions.create(model="m", messages=HI)
        text, beside, reasons = answer.choices[0].message.content, answer.callsmith, [answer.choices[0].finish_reason]
    (approval,) = beside["approvals"]
    assert (approval["name"], approval["arguments"], approval["call_id"]) == ("pay", {"euros": 5}, "p1")
    assert approval["id"].startswith("confirm_")
    assert approval["id"] in text
    assert text.startswith("I will pay.\n\n(pay has not been run")
    assert reasons == ["stop"]
    assert ran == []


async def test_the_same_call_in_two_requests_has_two_approvals():
    ids: list[str] = []
    model = FakeModel(calls(Call("pay", {"euros": 5}, "p1")))
    asking = client(model, tools=Functions(pay)).chat.completions
    for extra in ({}, {}, {"session_id": "s"}, {"session_id": "s"}):
        answer: Any = await asking.create(model="m", messages=HI, extra_body=extra)
        ids.append(answer.callsmith["approvals"][0]["id"])
    assert len(set(ids)) == 4


async def test_the_operator_may_let_side_effects_happen():
    ran.clear()
    settings = Settings(llm=Llm(tools_require_confirmation_for_side_effects=False))
    model = FakeModel(calls(Call("pay", {"euros": 5}, "p1")), says("Paid."))
    answer = await client(model, tools=Functions(pay), settings=settings).chat.completions.create(model="m", messages=HI)
    assert (answer.choices[0].message.content, ran) == ("Paid.", [5])


# Mixed


@pytest.mark.parametrize("by", ["request", "setting"])
async def test_mixed_offers_both_and_runs_only_the_servers(by: str):
    model = FakeModel([Text("Let me see."), *calls(TIME, BONN)], says("never"))
    settings = Settings(llm=Llm(tool_mode="mixed")) if by == "setting" else Settings()
    extra = {**EVENTS, **(MIXED if by == "request" else {})}
    chunks = await chunks_of(model, extra, sent=[WEATHER], tools=Functions(clock), settings=settings)
    assert [listed_tool.name for listed_tool in model.asked[0].tools] == ["weather", "clock"]
    assert model.asked[0].tools[0].parameters == WEATHER["function"]["parameters"]
    sent = [call for chunk in chunks for call in (chunk.choices[0].delta.tool_calls or ())]
    assert "".join(call.function.arguments or "" for call in sent if call.function) == '{"city": "Bonn"}'
    assert [call.id for call in sent if call.id] == ["c1"]
    assert reason_of(chunks) == ["tool_calls"]
    assert text_of(chunks) == "Let me see."
    assert [tool_event["event"] for tool_event in tool_events(chunks)] == ["tool_started", "tool_finished"]
    position = next(place for place, chunk in enumerate(chunks) if chunk.choices[0].delta.tool_calls)
    assert all(not hasattr(chunk, "callsmith") for chunk in chunks[position:])  # the server's call had run before


async def test_mixed_goes_on_after_calls_of_the_servers_alone():
    model = FakeModel(calls(TIME), calls(BONN))
    answer = await client(model, tools=Functions(clock)).chat.completions.create(
        model="m", messages=HI, tools=[WEATHER], extra_body=MIXED
    )
    assert answer.choices[0].finish_reason == "tool_calls"
    assert len(model.asked) == 2


async def test_in_mixed_mode_the_clients_tool_wins_a_name():
    model = FakeModel(calls(BONN))
    answer = await client(model, tools=Functions(weather, clock)).chat.completions.create(
        model="m", messages=HI, tools=[WEATHER], extra_body=MIXED
    )
    assert [listed_tool.name for listed_tool in model.asked[0].tools] == ["weather", "clock"]
    assert answer.choices[0].finish_reason == "tool_calls"


async def test_without_tools_of_its_own_mixed_makes_no_difference():
    answer = await client(FakeModel(calls(TIME), says("Noon.")), tools=Functions(clock)).chat.completions.create(
        model="m", messages=HI, extra_body=MIXED
    )
    assert answer.choices[0].message.content == "Noon."
    bare = FakeModel(calls(BONN))
    answer = await client(bare).chat.completions.create(model="m", messages=HI, tools=[WEATHER], extra_body=MIXED)
    assert answer.choices[0].finish_reason == "tool_calls"


async def test_what_ran_on_the_server_is_still_known_when_the_client_comes_back():
    model = FakeModel([Text("So."), *calls(TIME, BONN)], says("Sunny noon."), says("other"))
    asking = client(model, tools=Functions(clock)).chat.completions
    arguments: Any = {"model": "m", "tools": [WEATHER], "extra_body": MIXED}
    first = (await asking.create(messages=HI, **arguments)).choices[0].message
    back: Any = [*HI, first.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": "c1", "content": "sun"}]
    answer = await asking.create(messages=back, **arguments)
    assert answer.choices[0].message.content == "Sunny noon."
    _, turn, *results = model.asked[1].messages
    assert [call.name for call in turn.calls] == ["clock", "weather"]
    assert [(message.call_id, message.content) for message in results] == [("t1", "noon CET"), ("c1", "sun")]
    elsewhere: Any = [{"role": "user", "content": "other"}, *back[1:]]  # the same ids in another conversation
    await asking.create(messages=elsewhere, **arguments)
    assert [call.name for call in model.asked[2].messages[1].calls] == ["weather"]


async def test_a_call_that_a_request_requires_is_required_also_where_its_history_has_results():
    model = FakeModel(calls(KOELN))
    asking = client(model, tools=Functions(clock)).chat.completions
    called: Any = {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
    }
    history: Any = [*HI, called, {"role": "tool", "tool_call_id": "c1", "content": "sun"}]
    await asking.create(model="m", messages=history, tools=[WEATHER], tool_choice="required", extra_body=MIXED)
    assert model.asked[0].choice.mode == "required"


async def test_what_ran_for_one_caller_is_not_shown_to_another_who_sends_the_same_history():
    settings = Settings(keys={name: Key(hash_key(f"sk-{name}")) for name in ("alice", "bob")})
    model = FakeModel(calls(TIME, BONN), says("a"), says("b"))
    app = create_app({"m": model}, tools=Functions(clock), settings=settings)
    result = {"role": "tool", "tool_call_id": "c1", "content": "sun"}

    async def ask(name: str, *more: Any) -> Any:
        headers = {"authorization": f"Bearer sk-{name}"}
        body = {"model": "m", "messages": [*HI, *more], "tools": [WEATHER], **MIXED}
        async with http(app) as asking:
            return (await asking.post("/v1/chat/completions", json=body, headers=headers)).json()["choices"][0]["message"]

    message = await ask("alice")
    await ask("bob", message, result)
    await ask("alice", message, result)
    assert [[call.name for call in request.messages[1].calls] for request in model.asked[1:]] == [
        ["weather"],
        ["clock", "weather"],
    ]
    assert "noon" not in str(model.asked[1])


async def test_in_mixed_mode_a_confirmation_and_a_clients_call_may_stand_in_one_answer():
    ran.clear()
    model = FakeModel(calls(Call("pay", {"euros": 5}, "p1"), KOELN))
    answer: Any = await client(model, tools=Confirmed(Functions(pay))).chat.completions.create(
        model="m", messages=HI, tools=[WEATHER], extra_body=MIXED
    )
    assert answer.choices[0].finish_reason == "tool_calls"
    assert [call.id for call in answer.choices[0].message.tool_calls] == ["c2"]
    assert answer.callsmith["approvals"][0]["name"] == "pay"
    assert ran == []


async def test_a_mode_nobody_knows_is_refused():
    with pytest.raises(openai.BadRequestError, match="none of standard, mixed"):
        await client(FakeModel(says("a"))).chat.completions.create(model="m", messages=HI, extra_body={"tool_mode": "both"})


@pytest.mark.parametrize(
    ("body", "options", "session"),
    [
        ({}, ToolOptions(), ""),
        (
            {"tool_mode": "mixed", "tool_events": True, "wait_for_approval": True, "session_id": "s1"},
            ToolOptions("mixed", shows_events=True, wait_for_approval=True),
            "s1",
        ),
        ({"tool_mode": "standard", "server_tools": []}, ToolOptions("standard", ()), ""),
        ({"server_tools": "a*", "explain": True, "session_id": "s2"}, ToolOptions(allowed=("a*",), explains=True), "s2"),
        ({"starter_tools": True, "explain": None}, ToolOptions(starter=True), ""),
    ],
)
def test_extensions_are_read(body: dict[str, Any], options: ToolOptions, session: str):
    assert read_extensions(body) == (options, session)


async def test_tools_that_are_switched_off_are_not_offered():
    model = FakeModel(says("Hm."))
    off = Settings(llm=Llm(tools_enabled=False))
    await client(model, tools=Functions(clock), settings=off).chat.completions.create(model="m", messages=HI)
    assert model.asked[0].tools == ()


async def test_the_tool_is_told_for_whom_it_runs():
    seen: list[Context] = []

    class Curious:
        async def tools(self) -> list[Tool]:
            return [Tool("clock")]

        async def call(self, call: Call, context: Context):
            seen.append(context)
            yield Result(call.id, call.name, "noon")

    model = FakeModel(calls(Call("clock", {}, "t1")), says("Noon."))
    await client(model, tools=Curious()).chat.completions.create(model="m", messages=HI, extra_body={"session_id": "s1"})
    assert (seen[0].conversation, seen[0].subject) == ("s1", "")
