"""The samples of ADR-010, in Python: the same names in the same order."""

import asyncio

import pytest

from callsmith.compat.adr010 import (
    ChatMessage,
    ConstrainedToolGenerator,
    FunctionCall,
    GenerateParams,
    GenericXmlToolTemplate,
    JsonSchema,
    Llama31ToolTemplate,
    LlmBackend,
    MistralToolTemplate,
    QwenToolTemplate,
    ToolCall,
    ToolCallingTemplate,
    ToolCallRequest,
    ToolChoice,
    ToolConversation,
    ToolDefinition,
    ToolResult,
)
from callsmith.core.values import Call, Choice, Tool
from callsmith.formats.write import write
from tests.capabilities.chatting import called, scripted_model
from tests.grammar.targets.llama_grammar import LlamaGrammar, missing
from tests.small import open_shallow

WEATHER = Tool(
    "get_weather",
    "Get current weather for a location",
    {
        "type": "object",
        "properties": {"location": {"type": "string"}, "units": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        "required": ["location"],
    },
)
FLIGHTS = '{"flights": [{"price": 250, "time": "10am"}]}'


@pytest.mark.req("R1", "R3", "R4", "R6", "R7", "R8", "R10")
def test_the_user_facing_api_of_phase_1(capsys: pytest.CaptureFixture[str]) -> None:
    _, model = scripted_model(called(("get_weather", {"location": "San Francisco"})))
    backend = LlmBackend(model)

    tools = [
        ToolDefinition.new("get_weather")
        .description("Get current weather for a location")
        .parameter("location", JsonSchema.string())
        .parameter("units", JsonSchema.enum_values(["celsius", "fahrenheit"]))
        .required(["location"])
    ]

    request = ToolCallRequest(
        messages=[ChatMessage.user("What's the weather in San Francisco?")],
        tools=tools,
        tool_choice=ToolChoice.Auto,
        parallel_tool_calls=True,
        params=GenerateParams(),
    )

    response = backend.generate_with_tools(request)
    for call in response.tool_calls or []:
        print(f"Tool: {call.function.name}, Args: {call.function.arguments}")

    assert capsys.readouterr().out == "Tool: get_weather, Args: {'location': 'San Francisco'}\n"
    assert request.tools == (WEATHER,)
    assert response.content is None
    assert ToolDefinition(WEATHER.name, WEATHER.description, {"type": "object"}, ["location"]).parameters == {
        "type": "object",
        "required": ["location"],
    }


@pytest.mark.req("R5")
def test_the_choices() -> None:
    choices = [ToolChoice.Auto, ToolChoice.None_, ToolChoice.Required, ToolChoice.Specific("get_weather")]
    assert choices == [Choice("auto"), Choice("none"), Choice("required"), Choice("required", ("get_weather",))]


@pytest.mark.weights
@pytest.mark.req("R64")
def test_constrained_generation_ensures_valid_json_as_phase_2_has_it() -> None:
    model = open_shallow()
    backend, prompt, tools = LlmBackend(model), "Book two seats to Oslo, and tell me the weather there.", [WEATHER, Tool("book")]
    params = GenerateParams(max_tokens=96, seed=1)

    generator = ConstrainedToolGenerator()
    calls = generator.generate_tool_calls(backend, prompt, tools, params)

    assert all(any(t.name == c.function.name for t in tools) for c in calls)
    assert calls
    asyncio.run(model.close())


@pytest.mark.req("R65", "R66")
@pytest.mark.skipif(missing() != "", reason=missing())
def test_the_grammar_of_tools_is_rules_in_gbnf() -> None:
    grammar = ConstrainedToolGenerator().compile_tool_grammar([WEATHER, Tool("get_time")])
    judge = LlamaGrammar(grammar.rules)
    assert judge.accepts('{"name": "get_weather", "arguments": {"location": "Oslo"}}')
    assert judge.accepts('{"name": "get_time", "arguments": {}}')
    assert not judge.accepts('{"name": "get_thyme", "arguments": {}}')
    assert not judge.accepts('{"name": "get_weather", "arguments": {"units": "kelvin"}}')


@pytest.mark.req("R11", "R12", "R83")
def test_the_conversation_of_phase_3() -> None:
    engine, backend = scripted_model(called(("search_flights", {"destination": "NYC"})), "There is one at 10am for 250.")
    tools = [ToolDefinition.new("search_flights").parameter("destination", JsonSchema.string())]

    conv = ToolConversation(backend, tools)

    turn1 = conv.send_message("Book a flight to NYC")
    # Model calls search_flights(destination="NYC")
    assert turn1.tool_calls
    assert turn1.tool_calls[0].function == FunctionCall("search_flights", {"destination": "NYC"})

    results = [ToolResult(tool_call_id=turn1.tool_calls[0].id, output=FLIGHTS)]

    turn2 = conv.submit_tool_results(results)
    # Model responds with flight options
    assert (turn2.content, turn2.tool_calls) == ("There is one at 10am for 250.", None)
    assert [message.role for message in conv.messages] == ["user", "assistant", "tool", "assistant"]
    assert FLIGHTS in engine.asked[-1].prompt.text


def test_functions_among_the_tools_of_a_conversation_run_by_themselves() -> None:
    def search_flights(destination: str) -> str:
        return FLIGHTS

    _, backend = scripted_model(called(("search_flights", {"destination": "NYC"})), "One at 10am.")
    assert ToolConversation(LlmBackend(backend), [search_flights]).send_message("A flight to NYC").content == "One at 10am."


MESSAGES = [ChatMessage.system("Be brief."), ChatMessage.user("Weather in Oslo?")]


@pytest.mark.req("R36", "R37", "R39", "R41")
@pytest.mark.parametrize(
    ("template", "is_native", "markers"),
    [
        (Llama31ToolTemplate, True, [f"<|start_header_id|>{text}<|end_header_id|>" for text in ("system", "user", "assistant")]),
        (MistralToolTemplate, True, ["[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[INST]", "[/INST]"]),
        (QwenToolTemplate, True, ["<tools>", "<|im_start|>assistant"]),
        (GenericXmlToolTemplate, False, ["<tool_call>\n<name>", "<arguments>"]),
    ],
)  # fmt: skip
def test_a_template_of_each_family_shows_tools_and_reads_calls(
    template: ToolCallingTemplate, is_native: bool, markers: list[str]
) -> None:
    prompt = template.format_with_tools(MESSAGES, [WEATHER], ToolChoice.Auto)
    assert all(marker in prompt for marker in (*markers, "get_weather", "Weather in Oslo?"))
    output = write(template.format, [Call("get_weather", {"location": "Oslo"}, "abcdefghi")])
    assert [call.function for call in template.parse_tool_calls(output)] == [FunctionCall("get_weather", {"location": "Oslo"})]
    assert template.has_native_support() is is_native


@pytest.mark.req("R42")
def test_calls_in_generic_xml_are_read_as_its_pattern_has_them() -> None:
    output = '<tool_call>\n<name>get_weather</name>\n<arguments>{"location": "Oslo"}</arguments>\n</tool_call>'
    (call,) = GenericXmlToolTemplate.parse_tool_calls(output)
    assert (call.type, call.function) == ("function", FunctionCall("get_weather", {"location": "Oslo"}))
    assert call == ToolCall(call.id, call.function)
