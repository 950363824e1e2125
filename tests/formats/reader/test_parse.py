"""Parsing text of an unknown format, and the repairs of the reader, each reported by name."""

import json
import re

import pytest

from callsmith.core.events import CallArguments, CallReady, CallStarted, Text, Thought, Unreadable
from callsmith.core.values import Call, Tool
from callsmith.formats import format_named
from callsmith.formats.algebra import ARGS, NAME, Calls, Format
from callsmith.formats.inference.find_calls import find_calls
from callsmith.formats.inference.laws import CHUNKS, merge_deltas
from callsmith.formats.reader.parse import parse, read
from callsmith.formats.reader.reader import Reader
from callsmith.formats.write import write

WEATHER = Tool("get_weather", "", {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}})
TIME = Tool("get_time")
PARIS = [("get_weather", {"city": "Paris"})]


def calls(parsed) -> list[tuple[str, dict]]:
    return [(call.name, dict(call.arguments)) for call in parsed.calls]


def test_a_call_inside_a_thought_is_left_alone_where_one_stands_outside():
    call = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
    events = read(format_named("hermes"), f"<think>Maybe {call}?</think>{call}", [TIME])
    assert [event.index for event in events if isinstance(event, CallReady)] == [0]
    assert "".join(event.text for event in events if isinstance(event, Thought)) == f"Maybe {call}?"


def test_of_the_calls_inside_a_thought_only_those_of_tools_are_made():
    other = '<tool_call>{"name": "erase_disk", "arguments": {}}</tool_call>'
    thought = f'<think>Not {other} but <tool_call>{{"name": "get_time", "arguments": {{}}}}</tool_call>.</think>'
    events = read(format_named("hermes"), thought, [TIME])
    assert [(event.call.name, event.repairs) for event in events if isinstance(event, CallReady)] == [
        ("get_time", ("in-reasoning",))
    ]
    assert parse(format_named("hermes"), f"<think>{other}</think>", [TIME]).calls == ()


def test_recovery_can_be_turned_off():
    reader = Reader(format_named("hermes"), [TIME], recover=False)
    events = reader.feed('<think><tool_call>{"name": "get_time", "arguments": {}}</tool_call></think>') + reader.close()
    assert not [event for event in events if isinstance(event, CallReady)]


def chunked(format: str, text: str, size: int) -> list[list]:
    """The events of each piece of a text, and those of its end."""
    reader = Reader(format_named(format), [WEATHER, TIME])
    return [*(reader.feed(text[at : at + size]) for at in range(0, len(text), size)), reader.close()]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_call_whose_id_comes_behind_its_arguments_starts_with_that_id(size: int):
    text = 'Hm. [TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "aB3dE6gH9"}, {"name": "get_time", '
    text += '"arguments": {}}] Done.'
    events = [event for piece in chunked("mistral", text, size) for event in piece]
    assert [event.id for event in events if isinstance(event, CallStarted)] == ["aB3dE6gH9", ""]
    assert [event.call.id for event in events if isinstance(event, CallReady)] == ["aB3dE6gH9", ""]
    streamed = "".join(event.text for event in events if isinstance(event, CallArguments) and event.index == 0)
    assert streamed == '{"city": "Paris"}'
    assert "".join(event.text for event in events if isinstance(event, Text)) == "Hm.  Done."


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("mistral", '[TOOL_CALLS] [{"id": "aB3dE6gH9", "name": "get_weather", "arguments": {"city": "Paris'),
        ("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris'),
        ("hermes", '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris'),
    ],
)
def test_a_call_is_withheld_only_for_an_id_that_is_still_to_come(format: str, text: str):
    *pieces, _ = chunked(format, text, 1)
    assert "Paris" in "".join(event.text for events in pieces for event in events if isinstance(event, CallArguments))


def test_a_withheld_call_that_is_cut_off_is_started_and_unreadable():
    events = read(format_named("mistral"), '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Pa', [WEATHER])
    assert [type(event) for event in events] == [CallStarted, CallArguments, Unreadable]


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


@pytest.mark.req("R48")
@pytest.mark.req("R49")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'),
        ("qwen25", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'),
        pytest.param(
            "llama32",
            '<|python_tag|>{"name": "get_weather", "arguments": {"city": "Paris"}}<|eom_id|>',
            marks=pytest.mark.req("R38"),
        ),
        ("llama32", '{"name": "get_weather", "parameters": {"city": "Paris"}}'),
        pytest.param(
            "mistral",
            '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]',
            marks=pytest.mark.req("R40"),
        ),
        ("pythonic", '[get_weather(city="Paris")]'),
        ("xlam", '[{"name": "get_weather", "arguments": {"city": "Paris"}}]'),
        ("xlam", '```json\n[{"name": "get_weather", "arguments": {"city": "Paris"}}]\n```'),
        ("granite", "<tool_call>{name: get_weather, arguments: {city: Paris}}</tool_call>"),
        ("gemma", '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>'),
    ],
)
def test_families_are_read_under_the_names_their_detectors_have_elsewhere(name: str, text: str):
    parsed = parse(format_named(name), text, [WEATHER])
    assert (calls(parsed), parsed.content) == (PARIS, "")


@pytest.mark.req("R48")
@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>',
        '<tool_call> {"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>',
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}} </tool_call>',
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}',
    ],
)
def test_the_strict_format_of_qwen_wants_its_newlines(text: str):
    assert calls(parse(format_named("hermes"), text, [WEATHER])) == PARIS
    assert calls(parse(format_named("qwen25"), text, [WEATHER])) == []
    assert find_calls(text, [WEATHER], ["qwen25", "hermes"]).calls[0].name == "get_weather"


@pytest.mark.req("R224")
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
        ("control-token", "hermes", '<tool_call><eos>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'),
        ("control-token", "glm45", "<tool_call><bos>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>"),
        ("other-name", "kimi-k2", '<|tool_call_begin|>0<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|>'),
    ],
)
def test_a_repair_is_reported_by_name_and_strict_allows_none(repair: str, format: str, text: str):
    parsed = parse(format_named(format), text, [WEATHER])
    assert calls(parsed) == PARIS
    assert repair in parsed.repairs
    strict = Reader(format_named(format), [WEATHER], strict=True)
    events = strict.feed(text) + strict.close()
    assert not [event for event in events if isinstance(event, CallReady)]
    emitted = "".join(event.text for event in events if isinstance(event, Unreadable | Text))
    assert "Paris" in emitted


@pytest.mark.parametrize("size", [1, 3, 250, 10_000])
@pytest.mark.parametrize("format", ["hermes", "pythonic", "json"])
def test_escapes_are_read_the_same_many_at_once_or_one_by_one(format: str, size: int):
    odd = [r"\n\"\\\t\/\b", r"\u00e9\ud83d\ude00 \u0041", "\u200b\n", r"\q\u00z9", r"a < b \'quoted\' </tool \\"]
    city = ("x" * 90).join(odd * 8)
    call = f'{{"name": "get_weather", "arguments": {{"city": "{city}"}}}}'
    text = {"hermes": f"<tool_call>{call}</tool_call>", "json": call, "pythonic": f'[get_weather(city="{city}")]'}[format]
    meant = '\n"\\\t/\b', "\u00e9\U0001f600 A", "\u200b\n", "\\q\\u00z9", "a < b 'quoted' </tool \\"
    events = [event for piece in chunked(format, text, size) for event in piece]
    streamed = "".join(event.text for event in events if isinstance(event, CallArguments))
    (ready,) = (event for event in events if isinstance(event, CallReady))
    assert ready.call.arguments == json.loads(streamed) == {"city": ("x" * 90).join([*meant] * 8)}


def test_quotes_nobody_escaped_stay_in_the_string():
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "the "big" apple", "days": 1}}</tool_call>'
    parsed = parse(format_named("hermes"), text, [WEATHER])
    assert calls(parsed) == [("get_weather", {"city": 'the "big" apple', "days": 1})]
    assert parsed.repairs == ("unescaped-quotes",)


@pytest.mark.parametrize(
    ("format", "text", "city"),
    [
        ("hermes", '<tool_call>{"name": "get_weather", "arguments": {"city": "a "b", c", "days": 1}}</tool_call>', 'a "b", c'),
        ("hermes", '<tool_call>{"name": "get_weather", "arguments": {"city": "f("b"): c", "days": 1}}</tool_call>', 'f("b"): c'),
        ("lfm2", "<|tool_call_start|>[get_weather(city='print('b')', days=1)]<|tool_call_end|>", "print('b')"),
        ("lfm2", "<|tool_call_start|>[get_weather(city='f(g('b'))', days=1)]<|tool_call_end|>", "f(g('b'))"),
        ("lfm2", "<|tool_call_start|>[get_weather(city='f('a', 'b')', days=1)]<|tool_call_end|>", "f('a', 'b')"),
    ],
)
def test_a_quote_ends_a_string_only_where_the_call_goes_on_behind_it(format: str, text: str, city: str):
    assert calls(parse(format_named(format), text, [WEATHER])) == [("get_weather", {"city": city, "days": 1})]


def test_a_number_for_a_name_stays_one_where_the_arguments_fit_several_tools():
    text = "<|tool_call_begin|>0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    assert calls(parse(format_named("kimi-k2"), text, [TIME, Tool("get_date")])) == [("0", {})]
    assert calls(parse(format_named("kimi-k2"), text, [TIME])) == [("get_time", {})]


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("hermes", "<tool_call>not JSON</tool_call> at all"),
        ("hermes", "Write <tool_call> before a call and </tool_call> behind it."),
        ("lfm2", "<|tool_call_start|>what now<|tool_call_end|>"),
        ("minimax-m2", "<minimax:tool_call>what now</minimax:tool_call>"),
    ],
)
def test_markers_around_what_is_no_call_are_text_both_of_them(format: str, text: str):
    parsed = parse(format_named(format), text, [WEATHER])
    assert (parsed.calls, parsed.content) == ((), text)


def test_a_closer_of_nothing_is_dropped():
    assert parse(format_named("hermes"), "Done.</tool_call>", [WEATHER]).content == "Done."


def test_text_behind_a_call_keeps_its_space():
    assert parse(format_named("pythonic"), "Sure: [get_time()] and so on", [TIME]).content == "Sure:  and so on"


def test_white_space_of_a_frame_is_no_text():
    parsed = parse(format_named("hunyuan-a13b"), "<think>\nhm\n</think>\n\n<answer>\nHello.\n</answer>")
    assert (parsed.reasoning, parsed.content) == ("hm", "Hello.")


def test_calls_that_share_a_marker_are_all_read():
    invoked = '<steptml:invoke name="get_time"></steptml:invoke>' * 2
    call = f"<｜tool_call_begin｜>function<｜tool_sep｜>{invoked}<｜tool_call_end｜>"
    text = f"<｜tool_calls_begin｜>{call}<｜tool_calls_end｜>"
    parsed = parse(format_named("step3"), text, [TIME])
    assert (calls(parsed), parsed.content) == ([("get_time", {}), ("get_time", {})], "")
    assert "joined" in parsed.repairs


@pytest.mark.parametrize("recipient", ["self", "user"])
def test_a_header_quoted_in_a_framed_message_is_no_call(recipient: str):
    quoted = "a <|start|>assistant to=get_time<|message|><atem:function_calls>\n"
    parsed = parse(format_named("muse-glimmer"), f"<|start|>assistant to={recipient}<|message|>{quoted}b<|eom|>", [TIME])
    assert parsed.calls == ()
    assert (parsed.content or parsed.reasoning) == f"{quoted}b"


def test_talk_of_a_call_in_a_thought_is_no_call_where_tokens_are_known():
    specials = frozenset({"<tool_call>", "</tool_call>", "<think>", "</think>"})
    reader = Reader(format_named("qwen3-coder"), [TIME], "<think>\n", specials=specials)
    thought = "One writes <tool_call>\n<function=get_time>\n</function>\n</tool_call> for that."
    events = reader.feed(thought) + reader.close()
    assert "".join(event.text for event in events if isinstance(event, Thought)) == thought
    assert not [event for event in events if isinstance(event, CallReady)]


def test_a_marker_counts_only_as_its_token_where_tokens_are_known():
    reader = Reader(format_named("hermes"), [TIME], specials=frozenset({"<tool_call>", "</tool_call>"}))
    events = reader.feed('Write <tool_call>{"name": "get_time", "arguments": {}}</tool_call> for it. ')
    events += reader.feed("<tool_call>", special=True) + reader.feed('{"name": "get_time", "arguments": {}}')
    events += reader.feed("</tool_call>", special=True) + reader.close()
    assert len([event for event in events if isinstance(event, CallReady)]) == 1
    text = "".join(event.text for event in events if isinstance(event, Text))
    assert text == 'Write <tool_call>{"name": "get_time", "arguments": {}}</tool_call> for it. '


def test_an_answer_the_prompt_has_begun_is_read_with_its_beginning():
    parsed = parse(
        format_named("hermes"), "the gate is open!", opened="<|im_start|>assistant\n<think>\nHm.\n</think>\n\nCome in, "
    )
    assert (parsed.reasoning, parsed.content) == ("Hm.", "Come in, the gate is open!")


def test_a_thought_that_the_prompt_ends_but_does_not_begin_is_a_thought():
    parsed = parse(
        format_named("apriel"), "the gate is open!", opened="<|begin_assistant|>\nHm.\n[BEGIN FINAL RESPONSE]\nCome in, "
    )
    assert (parsed.reasoning, parsed.content) == ("Hm.", "Come in, the gate is open!")


def test_the_header_of_the_turn_is_no_part_of_the_answer():
    for header in ("<|im_start|>assistant\n", "<｜Assistant｜>", "]~b]ai\n", "assistant: ", "<|turn>model\n"):
        assert parse(format_named("hermes"), "Yes.", opened=header).content == "Yes."


MANY_DIGITS = "9" * 5000  # more than Python makes a number of
ODD = Tool("odd", "", {"type": "object", "properties": {"n": {"type": "integer"}, "o": {"type": "object"}}})


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("hermes", f'<tool_call>{{"name": {MANY_DIGITS}, "arguments": {{}}}}</tool_call>'),
        ("qwen3-coder", f"<function=odd>\n<parameter=n>\n+{MANY_DIGITS}\n</parameter>\n</function>"),
        ("qwen3-coder", f"<function=odd>\n<parameter=arguments>\n{MANY_DIGITS}\n</parameter>\n</function>"),
        ("qwen3-coder", "<function=odd>\n<parameter=o>\n{[1]: 2}\n</parameter>\n</function>"),
    ],
    ids=["name", "argument", "wrapper", "unhashable-key"],
)
def test_values_that_python_cannot_make_do_not_break_the_reader(format: str, text: str):
    parse(format_named(format), text, [ODD])


def test_digits_of_other_scripts_are_no_json_number():
    raw = "<function=odd>\n<parameter=n>\n1\u0663\n</parameter>\n</function>"
    assert calls(parse(format_named("qwen3-coder"), raw, [ODD])) == [("odd", {"n": "1\u0663"})]


@pytest.mark.parametrize(("text", "number"), [("+5", 5), ("007", 7), ("-007", -7), ("000", 0)])
def test_integers_as_programming_languages_write_them_are_read(text: str, number: int):
    raw = f"<function=odd>\n<parameter=n>\n{text}\n</parameter>\n</function>"
    assert calls(parse(format_named("qwen3-coder"), raw, [ODD])) == [("odd", {"n": number})]


def test_an_id_of_null_is_no_id():
    raw = '<tool_call>{"name": "get_time", "arguments": {}, "id": null}</tool_call>'
    (call,) = parse(format_named("hermes"), raw, [TIME]).calls
    assert call.id == ""


def test_a_bracket_too_many_is_skipped_only_before_what_closes() -> None:
    lfm2 = format_named("lfm2")
    assert parse(lfm2, "<|tool_call_start|>[]}<b>").content == "}<b>"
    assert parse(lfm2, "<|tool_call_start|>[]}<|tool_call_end|>b").content == "b"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_string_that_is_not_closed_ends_with_the_special_token_that_ends_its_call(size):
    specials = frozenset({"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|call|>"})
    message = '<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "%s<|call|>'
    reader = Reader(format_named("harmony"), [WEATHER], specials=specials)
    events = []
    for piece in re.split(f"({'|'.join(map(re.escape, specials))})", message % "Par" + message % 'Paris"}'):
        whole = piece in specials
        for at in range(0, len(piece), len(piece) if whole else size):
            events += reader.feed(piece if whole else piece[at : at + size], whole)
    events += reader.close()
    assert [event.reason for event in events if isinstance(event, Unreadable)] == ["a string is not closed"]
    assert [event.call.arguments for event in events if isinstance(event, CallReady)] == [{"city": "Paris"}]


def test_a_special_token_in_the_letters_of_a_string_is_part_of_it():
    reader = Reader(format_named("harmony"), [WEATHER], specials=frozenset({"<|message|>", "<|call|>"}))
    events = reader.feed("<|channel|>commentary to=functions.get_weather")
    events += reader.feed("<|message|>", True) + reader.feed('{"city": "a <|call|> b"}') + reader.feed("<|call|>", True)
    assert [event.call.arguments for event in events + reader.close() if isinstance(event, CallReady)] == [
        {"city": "a <|call|> b"}
    ]


@pytest.mark.parametrize("size", CHUNKS)
@pytest.mark.parametrize(
    ("name", "opened", "text", "expected"),
    [
        ("gemma4", "", "\nthought\nAll is well.", [Text("All is well.")]),
        ("gemma4", "<|turn>model\n", "thought\nAll is well.", [Text("All is well.")]),
        ("gemma4", "<|turn>model\n", "thoughts\ncome first", [Text("thoughts\ncome first")]),
        ("gemma4", "<|turn>model\n<|channel>thought\n<channel|>", "thought\nis free", [Text("thought\nis free")]),
        ("apriel", "\n<|begin_assistant|>\n", "Here are my reasoning steps:\nHm", [Thought("Hm")]),
        ("apriel", "\n<|begin_assistant|>\nHere are my reasoning steps:\n", "Here are two", [Thought("Here are two")]),
    ],
)
def test_a_marker_of_plain_words_counts_only_where_the_turn_begins(name, opened, text, expected, size):
    reader = Reader(format_named(name), (), opened)
    events = [event for at in range(0, len(text), size) for event in reader.feed(text[at : at + size])]
    assert merge_deltas(events + reader.close()) == expected


def test_a_dropped_marker_that_the_prompt_has_begun_takes_no_text_with_it():
    format = Format("x", (Calls("<do>", NAME, "\n", ARGS),), drop=("<over>",))
    for opened in ("<", "<ov", "<over"):
        for size in (0, *CHUNKS):
            reader = Reader(format, opened=opened)
            rest = "<over>Well then."[len(opened) :]
            pieces = [rest[at : at + size] for at in range(0, len(rest), size)] if size else [rest]
            events = [event for piece in pieces for event in reader.feed(piece)] + reader.close()
            assert merge_deltas(events) == [Text("Well then.")]


def test_text_that_only_begins_like_an_object_is_text() -> None:
    text = "<tool_call>keep\n<arg_key>a</arg_key>\n<arg_value>{name}, hello</arg_value>\n</tool_call>"
    tool = Tool("keep", "", {"type": "object", "properties": {"a": {}}})
    assert parse(format_named("glm45"), text, (tool,)).calls[0].arguments == {"a": "{name}, hello"}


@pytest.mark.parametrize("key", ["x y", "size (cm)", "max-results", "a.b", "$ref"])
@pytest.mark.parametrize("format", ["fenced-python", "pythonic"])
def test_arguments_whose_names_are_no_names_of_a_program_are_read_back(format: str, key: str):
    tool = Tool("odd", "", {"type": "object", "properties": {key: {"type": "string"}, "n": {"type": "integer"}}})
    text = write(format_named(format), [Call("odd", {key: "z", "n": 5})])
    assert calls(parse(format_named(format), text, [tool])) == [("odd", {key: "z", "n": 5})]
