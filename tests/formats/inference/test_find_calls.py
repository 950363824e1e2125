"""Finding calls in text of an unknown format: where they count, where they do not, and what is left for the user."""

import pytest

from callsmith import find_calls
from callsmith.core.values import Call, Tool
from callsmith.formats import format_named
from callsmith.formats.write import write

WEATHER = Tool("get_weather", "", {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}})
TIME = Tool("get_time")
PARIS = [("get_weather", {"city": "Paris"})]
CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'


def found(text: str, *args, **kwargs) -> tuple[list[tuple[str, dict]], str]:
    calls, content, fallback = find_calls(text, [WEATHER, TIME], *args, **kwargs)
    assert fallback == bool(calls)
    return [(call.name, dict(call.arguments)) for call in calls], content


@pytest.mark.req("R196")
@pytest.mark.req("R213")
@pytest.mark.req("R59")
@pytest.mark.req("R53")
@pytest.mark.req("R54")
def test_a_call_inside_a_thought_is_found_and_the_thought_is_not_said():
    raw = '<think>Let me check.\n<tool_call>{"name":"get_time","arguments":{}}</tool_call>\n</think>One moment.'
    calls, cleaned, fallback = find_calls(raw)
    assert [(call.name, call.text) for call in calls] == [("get_time", "{}")]
    assert cleaned == "One moment."
    assert fallback


@pytest.mark.req("R58")
def test_the_chain_tells_calls_text_and_whether_it_found_any():
    assert find_calls("Hello.") == ((), "Hello.", False)
    calls, cleaned, fallback = find_calls('Sure.\n{"name": "get_weather", "arguments": {"city": "Paris"}}', [WEATHER])
    assert calls == (Call("get_weather", {"city": "Paris"}, "get_weather_0"),)
    assert (cleaned, fallback) == ("Sure.", True)


@pytest.mark.req("R60")
@pytest.mark.req("R197")
def test_the_nine_letters_of_a_mistral_id_come_through():
    calls, _, _ = find_calls('[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "aB3dE6gH9"}]')
    assert calls[0].id == "aB3dE6gH9"


@pytest.mark.req("R20")
def test_a_call_without_an_id_is_called_by_name_and_number():
    text = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
    assert [call.id for call in find_calls(text + "\n" + text)[0]] == ["get_time_0", "get_time_1"]


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
    assert [(call.name, dict(call.arguments)) for call in find_calls(text, [WEATHER])[0]] == PARIS


@pytest.mark.req("R55")
@pytest.mark.req("R54")
@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ('<think>Hm.</think>So: <tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>', "So:"),
        ('<think>Hm.</think>{"name": "get_weather", "arguments": {"city": "Paris"}}', ""),
        ('<think>Hm.</think><|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>', ""),
        ("<think>Hm.</think>So: get_weather(city='Paris')", "So:"),
    ],
    ids=["marked", "bare", "gemma", "plain"],
)
def test_the_chain_ends_in_plain_calls_and_never_says_a_thought(text: str, cleaned: str):
    calls, content, _ = find_calls(text, [WEATHER])
    assert [(call.name, dict(call.arguments)) for call in calls] == PARIS
    assert content == cleaned
    assert find_calls("<think>Hm.</think>Just words (of course).", [WEATHER]) == ((), "Just words (of course).", False)


@pytest.mark.req("R55")
@pytest.mark.parametrize(
    ("text", "content"),
    [
        (f"<tool_call><think>Hm.</think>{CALL}</tool_call> Done.", "Done."),
        (f"[THINK]Hm.[/THINK]Here: [TOOL_CALLS] [{CALL}]", "Here:"),
        ('<think>Hm.</think>[get_weather(city="Paris")]', ""),
    ],
    ids=["inside-the-call", "another-family", "bare"],
)
def test_what_the_raw_text_hides_is_found_without_the_reasoning(text: str, content: str):
    assert found(text) == (PARIS, content)


def test_reasoning_in_an_argument_stays_there():
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "<think>a</think>```b```"}}</tool_call>'
    assert found(text) == ([("get_weather", {"city": "<think>a</think>```b```"})], "")


@pytest.mark.req("R42")
@pytest.mark.req("R55")
def test_the_generic_format_is_in_the_chain():
    text = 'Sure. <tool_call><name>get_weather</name><arguments>{"city": "Paris"}</arguments></tool_call>'
    assert found(text) == (PARIS, "Sure.")


@pytest.mark.req("R56")
def test_gemmas_inline_calls_count_only_with_the_name_of_a_tool():
    text = "<|tool_call>call:erase_disk{all:true}<tool_call|>"
    assert found(text) == ([], text)
    assert find_calls(text) == ((), text, False)
    assert found('<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>') == (PARIS, "")


@pytest.mark.req("R57")
@pytest.mark.parametrize(
    "text",
    [
        f"Write it so:\n```json\n{CALL}\n```\nand not otherwise.",
        f"Write it so:\n```\n<tool_call>{CALL}</tool_call>\n```",
        f"Write it so:\n~~~\n[TOOL_CALLS] [{CALL}]\n~~~\nand run it.",
        f"Write `{CALL}` or ``<tool_call>{CALL}</tool_call>`` for it.",
        "Write `get_weather(city='Paris')` for it.",
        "One calls it with\n```python\nget_weather(city='Paris')\n```",
        f"An open fence:\n```json\n{CALL}",
    ],
)
def test_what_stands_in_code_is_no_call_and_stays_in_the_text(text: str):
    assert found(text) == ([], text)
    assert found(f"<think>{text}</think>Hello.") == ([], "Hello.")


def test_a_backtick_that_is_not_closed_on_its_line_quotes_nothing():
    assert found(f"It is 5` tall.\n<tool_call>{CALL}</tool_call>") == (PARIS, "It is 5` tall.")


@pytest.mark.req("R46")
def test_a_fence_counts_where_it_is_all_there_is_and_its_tool_exists():
    assert found(f"```json\n{CALL}\n```") == (PARIS, "")
    assert found(f"<think>Hm.</think>\n```\n<tool_call>{CALL}</tool_call>\n```\n") == (PARIS, "")
    other = CALL.replace("get_weather", "erase_disk")
    assert found(f"```json\n{other}\n```") == ([], f"```json\n{other}\n```")


@pytest.mark.req("R51")
def test_the_formats_that_are_named_are_tried_in_order_and_their_fences_count():
    text = f"So:\n```json\n{CALL}\n```"
    assert found(text) == ([], text)
    assert found(text, ["hermes", "fenced-json"]) == (PARIS, "So:")
    assert found('[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', ["mistral-args"]) == (PARIS, "")


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (f"[TOOL_CALLS] [{CALL}] [/TOOL_CALLS]", PARIS),
        (f"```json\n[{CALL}]\n```", PARIS),
        (f"{CALL}\n[]", PARIS),
        ("[]", []),
        ("[TOOL_CALLS] []", []),
        ("<|tool_call|>[]", []),
        ("```json\n```", []),
    ],
)
def test_nothing_is_left_of_the_marks_around_calls(text: str, calls: list):
    assert found(text) == (calls, "")


def test_an_empty_list_in_prose_is_prose():
    assert found("In Python it is [] or list().") == ([], "In Python it is [] or list().")


@pytest.mark.req("R53")
def test_reasoning_counts_only_where_no_call_stands_outside_and_not_at_all_without_recovery():
    thought = '<think>Perhaps <tool_call>{"name": "get_time", "arguments": {}}</tool_call>?</think>'
    assert found(f"{thought}No.") == ([("get_time", {})], "No.")
    assert found(f'{thought}[get_weather(city="Paris")]') == (PARIS, "")
    assert found(f"{thought}No.", recover=False) == ([], "No.")


@pytest.mark.parametrize(
    ("format", "opened", "closed"),
    [
        ("nemotron-v2", "<TOOLCALL>", "</TOOLCALL>"),
        ("jamba", "<tool_calls>", "</tool_calls>"),
        ("gemma4", "<|tool_call>", "<tool_call|>"),
        ("seed-oss", "<seed:tool_call>", "</seed:tool_call>"),
        ("internlm", "<|action_start|>", "<|action_end|>"),
    ],
)
def test_markers_of_a_format_with_nothing_between_them_are_left_out(format: str, opened: str, closed: str):
    text = write(format_named(format), [Call("get_weather", {"city": "Paris"}, "call_1")])
    assert found(f"{opened}\n{closed}\n{text}\n{opened}{closed}", [format]) == (PARIS, "")
    assert found(f"{opened}\n{closed}", [format]) == ([], "")
