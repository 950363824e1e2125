"""The chain over several formats, and the leniencies of the reader, each told by name."""

import pytest

from callsmith.core.events import CallReady, Text, Thought, Unreadable
from callsmith.core.values import Call, Tool
from callsmith.formats import format_named
from callsmith.formats.parse import parse, parse_content
from callsmith.formats.read import Reader, read

WEATHER = Tool("get_weather", "", {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}})
TIME = Tool("get_time")
PARIS = [("get_weather", {"city": "Paris"})]


def calls(parsed) -> list[tuple[str, dict]]:
    return [(call.name, dict(call.arguments)) for call in parsed.calls]


@pytest.mark.req("R59")
@pytest.mark.req("R53")
@pytest.mark.req("R54")
def test_a_call_inside_a_thought_is_found_and_the_thought_is_not_said():
    raw = '<think>Let me check.\n<tool_call>{"name":"get_time","arguments":{}}</tool_call>\n</think>One moment.'
    found, cleaned, fallback = parse_content(raw)
    assert [(call.name, call.text) for call in found] == [("get_time", "{}")]
    assert cleaned == "One moment."
    assert fallback


def test_a_call_inside_a_thought_is_left_alone_where_one_stands_outside():
    call = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
    events = read(format_named("hermes"), f"<think>Maybe {call}?</think>{call}", [TIME])
    assert [event.index for event in events if isinstance(event, CallReady)] == [0]
    assert "".join(event.text for event in events if isinstance(event, Thought)) == f"Maybe {call}?"


def test_recovery_can_be_turned_off():
    reader = Reader(format_named("hermes"), [TIME], recover=False)
    events = reader.feed('<think><tool_call>{"name": "get_time", "arguments": {}}</tool_call></think>') + reader.close()
    assert not [event for event in events if isinstance(event, CallReady)]


@pytest.mark.req("R58")
def test_the_chain_tells_calls_text_and_whether_it_found_any():
    assert parse_content("Hello.") == ((), "Hello.", False)
    found, cleaned, fallback = parse_content('Sure.\n{"name": "get_weather", "arguments": {"city": "Paris"}}', [WEATHER])
    assert found == (Call("get_weather", {"city": "Paris"}, "get_weather_0"),)
    assert (cleaned, fallback) == ("Sure.", True)


@pytest.mark.req("R60")
@pytest.mark.req("R197")
def test_the_nine_letters_of_a_mistral_id_come_through():
    found, _, _ = parse_content('[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "aB3dE6gH9"}]')
    assert found[0].id == "aB3dE6gH9"


@pytest.mark.req("R20")
def test_a_call_without_an_id_is_called_by_name_and_number():
    text = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
    assert [call.id for call in parse_content(text + "\n" + text)[0]] == ["get_time_0", "get_time_1"]


@pytest.mark.req("R56")
def test_a_plain_call_counts_only_with_the_name_of_a_tool():
    text = "Let me see: get_weather(city='Paris', days=2). Not forget_weather(city='x') or print(a=1)."
    parsed = parse(format_named("plain-call"), text, [WEATHER])
    assert calls(parsed) == [("get_weather", {"city": "Paris", "days": 2})]
    assert parsed.content == "Let me see: . Not forget_weather(city='x') or print(a=1)."


@pytest.mark.req("R57")
def test_quoted_code_is_never_dispatched():
    text = "Do it so:\n```python\nget_weather(city='Paris')\n```\nand not otherwise."
    parsed = parse(format_named("plain-call"), text, [WEATHER])
    assert (calls(parsed), parsed.content) == ([], text)


@pytest.mark.req("R46")
@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        '{"name": "get_weather", "arguments": {"city": "Paris"}}',
        '```json\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n```',
    ],
)
def test_tags_bare_objects_and_fences_are_all_read(text: str):
    assert [(call.name, dict(call.arguments)) for call in parse_content(text, [WEATHER])[0]] == PARIS


@pytest.mark.parametrize(
    ("repair", "format", "text"),
    [
        ("missing-close", "hermes", '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}'),
        (
            "string-arguments",
            "hermes",
            '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>',
        ),
        ("other-key", "hermes", '<tool_call>{"name": "get_weather", "parameters": {"city": "Paris"}}</tool_call>'),
        ("doubled-braces", "hermes", '<tool_call>{{"name": "get_weather", "arguments": {"city": "Paris"}}}</tool_call>'),
        ("other-quotes", "hermes", "<tool_call>{'name': 'get_weather', 'arguments': {'city': 'Paris'}}</tool_call>"),
        (
            "wrapped",
            "hermes",
            '<tool_call>{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}</tool_call>',
        ),
        ("other-name", "hermes", '<tool_call>{"name": "functions.get_weather", "arguments": {"city": "Paris"}}</tool_call>'),
        (
            "unwrapped",
            "qwen3-coder",
            '<tool_call><function=get_weather><parameter=arguments>{"city": "Paris"}</parameter></function></tool_call>',
        ),
        (
            "stray-text",
            "qwen3-coder",
            "<tool_call><function=get_weather> hm <parameter=city>Paris</parameter></function></tool_call>",
        ),
        ("missing-close", "qwen3-coder", "<tool_call><function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"),
    ],
)
def test_a_leniency_is_told_by_name_and_strict_allows_none(repair: str, format: str, text: str):
    parsed = parse(format_named(format), text, [WEATHER])
    assert calls(parsed) == PARIS
    assert repair in parsed.repairs
    strict = Reader(format_named(format), [WEATHER], strict=True)
    events = strict.feed(text) + strict.close()
    assert not [event for event in events if isinstance(event, CallReady)]
    kept = "".join(event.text for event in events if isinstance(event, Unreadable | Text))
    assert "Paris" in kept


def test_quotes_nobody_escaped_stay_in_the_string():
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "the "big" apple", "days": 1}}</tool_call>'
    parsed = parse(format_named("hermes"), text, [WEATHER])
    assert calls(parsed) == [("get_weather", {"city": 'the "big" apple', "days": 1})]
    assert parsed.repairs == ("unescaped-quotes",)


def test_a_marker_counts_only_as_its_token_where_tokens_are_known():
    reader = Reader(format_named("hermes"), [TIME], specials=frozenset({"<tool_call>", "</tool_call>"}))
    events = reader.feed('Write <tool_call>{"name": "get_time", "arguments": {}}</tool_call> for it. ')
    events += reader.feed("<tool_call>", special=True) + reader.feed('{"name": "get_time", "arguments": {}}')
    events += reader.feed("</tool_call>", special=True) + reader.close()
    assert len([event for event in events if isinstance(event, CallReady)]) == 1
    said = "".join(event.text for event in events if isinstance(event, Text))
    assert said == 'Write <tool_call>{"name": "get_time", "arguments": {}}</tool_call> for it. '


def test_an_answer_the_prompt_has_begun_is_read_with_its_beginning():
    parsed = parse(format_named("hermes"), "world!", opened="<|im_start|>assistant\n<think>\nHm.\n</think>\n\nHello, ")
    assert (parsed.reasoning, parsed.content) == ("Hm.", "Hello, world!")


def test_the_header_of_the_turn_is_no_part_of_the_answer():
    for header in ("<|im_start|>assistant\n", "<｜Assistant｜>", "]~b]ai\n", "assistant: ", "<|turn>model\n"):
        assert parse(format_named("hermes"), "Yes.", opened=header).content == "Yes."
