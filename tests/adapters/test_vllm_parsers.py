"""The plug-in in vLLM's own modules, without a server: registries, composed parsers, requests, and xgrammar."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from callsmith.formats import formats
from callsmith.formats.algebra import Format
from tests.adapters.samples import CALL, TIME, WEATHER, accepts, declared, in_deltas, is_json, written
from tests.formats.reader.corpus import WILD, Case, cases

vllm = pytest.importorskip("vllm", reason="vLLM is not installed here: make test-vllm")

from callsmith.adapters.vllm import parsers, plugin  # noqa: E402

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    plugin.register()
    plugin.register()  # vLLM calls it in every process, and a process may do so twice


def composed(tokenizer: Any, reasoning: str | None = "callsmith", tools: str | None = "callsmith", **more: Any) -> Any:
    from vllm.parser import ParserManager

    return ParserManager.get_parser(
        tool_parser_name=tools,
        reasoning_parser_name=reasoning,
        enable_auto_tools=True,
        model_name="tiny",
        tokenizer=tokenizer,
        **more,
    )


def asking(tools: list[Any], choice: Any = "auto", **more: Any) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    fields = {"tools": tools, "tool_choice": choice} if tools else {}
    return ChatCompletionRequest(model="tiny", messages=[{"role": "user", "content": "Hi"}], **fields, **more)


Answer = tuple[str, str, list[tuple[str, str]]]


def whole(kind: Any, tokenizer: Any, request: Any, text: str, prompt: str = "") -> Answer:
    parser = kind(tokenizer, request.tools)
    parser.set_prompt_token_ids(tokenizer.encode(prompt))
    reasoning, content, calls = parser.parse(text, request, enable_auto_tools=True)
    return reasoning or "", content or "", [(call.name, call.arguments) for call in calls or []]


def streamed(kind: Any, tokenizer: Any, request: Any, pieces: list[tuple[str, list[int]]], prompt: str = "") -> Answer:
    parser = kind(tokenizer, request.tools)
    reasoning, content, calls = "", "", {}
    for at, (text, ids) in enumerate(pieces):
        first = tokenizer.encode(prompt) if at == 0 else None
        delta = parser.parse_delta(text, ids, request, prompt_token_ids=first, finished=at == len(pieces) - 1)
        if delta is None:
            continue
        reasoning += delta.reasoning or ""
        content += delta.content or ""
        for call in delta.tool_calls or []:
            known = calls.setdefault(call.index, ["", ""])
            known[0] += call.function.name or ""
            known[1] += call.function.arguments or ""
    return reasoning, content, [tuple(call) for call in calls.values()]


@pytest.mark.parametrize("case", list(cases(WILD)), ids=lambda case: case.name[:60])
def test_every_format_is_read_in_deltas_of_any_size_as_it_is_whole(speaking, case: Case):
    tokenizer = speaking(case.format.name)
    kind, request = composed(tokenizer), asking(declared(case))
    prompt = "<|im_start|>assistant\n" + case.opened
    expected = whole(kind, tokenizer, request, case.row["output"], prompt)
    calls = [(call["name"], call["arguments"]) for call in case.row["expected_calls"] or []]
    assert [(name, json.loads(text)) for name, text in expected[2] if is_json(text)] == calls  # others were cut off
    for size in (1, 3, 7, 0):
        assert streamed(kind, tokenizer, request, in_deltas(tokenizer, case.row["output"], size), prompt) == expected


def matches(request: Any, text: str) -> bool:
    """Whether xgrammar, with the grammar in this request, takes this text to its end."""
    constraint = request.structured_outputs
    return accepts(text, grammar=constraint.grammar, tag=constraint.structural_tag)


@pytest.mark.parametrize("format", list(formats().values()), ids=lambda format: format.name)
def test_required_calls_of_every_format_are_enforced_by_xgrammar(speaking, format: Format):
    tokenizer = speaking(format.name)
    kind = composed(tokenizer)

    required = kind(tokenizer, None).adjust_request(asking([WEATHER, TIME], "required"))
    assert matches(required, written(format, "get_weather", {"city": "Oslo", "days": 2}))
    assert matches(required, written(format, "get_time", {"zone": "CET"}))
    for name, arguments in (("get_weather", {"city": "Paris"}), ("get_weather", {}), ("get_wind", {"city": "Oslo"})):
        assert not matches(required, written(format, name, arguments))
    assert not matches(required, "Hello there.")
    choice = {"type": "function", "function": {"name": "get_time"}}
    only = kind(tokenizer, None).adjust_request(asking([WEATHER, TIME], choice))
    assert matches(only, written(format, "get_time", {"zone": "CET"}))
    assert not matches(only, written(format, "get_weather", {"city": "Oslo"}))


def test_the_format_is_found_in_the_chat_template(tokenizer):
    parser = composed(tokenizer)(tokenizer)
    assert parser.model.format.name == "hermes"
    assert parser.model.thinks


def test_one_reader_reads_reasoning_text_and_calls(tokenizer):
    text = f"<think>\nOslo it is.\n</think>\n\nLet me look.\n{CALL}"
    expected = ("Oslo it is.", "Let me look.\n", [("get_weather", '{"city": "Oslo"}')])
    kind, request = composed(tokenizer), asking([WEATHER])
    prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert whole(kind, tokenizer, request, text, prompt) == expected
    for size in (1, 3, 7, 0):
        assert streamed(kind, tokenizer, request, in_deltas(tokenizer, text, size), prompt) == expected


def test_reasoning_that_the_prompt_has_begun_is_reasoning(tokenizer):
    kind, request = composed(tokenizer), asking([WEATHER])
    prompt = "<|im_start|>user\nIs <think> a tag?<|im_end|>\n<|im_start|>assistant\n<think>\n"
    text = f"Oslo it is.\n</think>\n\n{CALL}"
    expected = ("Oslo it is.", "", [("get_weather", '{"city": "Oslo"}')])
    assert whole(kind, tokenizer, request, text, prompt) == expected
    assert streamed(kind, tokenizer, request, in_deltas(tokenizer, text, 3), prompt) == expected
    parser = kind(tokenizer)
    assert not parser.is_reasoning_end(tokenizer.encode(prompt))
    assert parser.is_reasoning_end(tokenizer.encode(prompt + "\n</think>\n\n"))


def test_without_a_reasoning_parser_reasoning_stays_in_the_text(tokenizer):
    kind, request = composed(tokenizer, reasoning=None), asking([WEATHER])
    text = f"<think>\nOslo it is.\n</think>\n\nLet me look.\n{CALL}"
    expected = ("", "<think>\nOslo it is.\n</think>\n\nLet me look.\n", [("get_weather", '{"city": "Oslo"}')])
    assert whole(kind, tokenizer, request, text) == expected
    assert streamed(kind, tokenizer, request, in_deltas(tokenizer, text, 1)) == expected


def test_where_no_tool_may_be_called_no_call_comes(tokenizer):
    kind = composed(tokenizer)
    assert whole(kind, tokenizer, asking([WEATHER], "none"), f"Well.\n{CALL}") == ("", "Well.\n", [])
    assert whole(kind, tokenizer, asking([]), "Write <tool_call> first.") == ("", "Write <tool_call> first.", [])


def test_an_answer_that_is_cut_off_gives_what_was_written_of_the_call(tokenizer):
    kind, request = composed(tokenizer), asking([WEATHER])
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Os'
    expected = whole(kind, tokenizer, request, text)
    assert expected[2] == [("get_weather", '{"city": "Os')]
    assert streamed(kind, tokenizer, request, in_deltas(tokenizer, text, 1)) == expected


def test_a_choice_that_is_free_is_not_constrained(tokenizer):
    parser = composed(tokenizer)(tokenizer)
    assert parser.adjust_request(asking([WEATHER])).structured_outputs is None
    assert parser.adjust_request(asking([])).structured_outputs is None


def test_special_tokens_that_mark_calls_are_kept(tokenizer):
    request = composed(tokenizer)(tokenizer).adjust_request(asking([WEATHER]))
    assert not request.skip_special_tokens


def test_a_strict_tool_is_constrained_from_the_marker_on(tokenizer):
    strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    request = composed(tokenizer)(tokenizer).adjust_request(asking([strict, TIME]))
    assert request.structured_outputs.structural_tag
    assert matches(request, "No tool is needed.")
    assert matches(request, f"Let me look.\n{CALL}")
    assert not matches(request, CALL.replace("Oslo", "Paris"))


def test_the_operator_may_want_every_tool_strict(tokenizer):
    request = composed(tokenizer, tool_strict_level="parameter")(tokenizer).adjust_request(asking([WEATHER]))
    assert not matches(request, CALL.replace("Oslo", "Paris"))


def test_a_required_call_may_come_after_reasoning(tokenizer):
    kind = composed(tokenizer)
    for variables in ({}, {"enable_thinking": True}):
        request = kind(tokenizer, chat_template_kwargs=variables).adjust_request(asking([WEATHER], "required"))
        assert request._grammar_from_parser  # vLLM applies it from the first token on
        opener = "" if variables else "<think>\n"
        assert matches(request, f"{opener}Oslo it is.\n</think>\n\n{CALL}")
        assert not matches(request, f"{opener}Oslo it is.\n</think>\n\nHello")
    request = kind(tokenizer, chat_template_kwargs={"enable_thinking": False}).adjust_request(asking([WEATHER], "required"))
    assert matches(request, CALL)


def test_one_call_at_a_time_is_enforced(tokenizer):
    request = asking([WEATHER], "required", parallel_tool_calls=False)
    request = composed(tokenizer)(tokenizer).adjust_request(request)
    assert matches(request, CALL)
    assert not matches(request, f"{CALL}\n{CALL}")


def test_a_tool_that_is_named_is_called_once(tokenizer):
    several = f"{CALL}\n{CALL}"
    named = {"type": "function", "function": {"name": "get_weather"}}
    once, as_often_as_it_likes = (
        composed(tokenizer)(tokenizer).adjust_request(asking([WEATHER], choice)) for choice in (named, "required")
    )
    assert matches(once, CALL) and not matches(once, several)
    assert matches(as_often_as_it_likes, several)


def test_required_calls_replace_an_output_format_and_free_ones_leave_it(tokenizer):
    kind = composed(tokenizer)
    wanted = {"response_format": {"type": "json_object"}}
    assert kind(tokenizer).adjust_request(asking([WEATHER], "required", **wanted)).response_format is None
    strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    free = kind(tokenizer).adjust_request(asking([strict], **wanted))
    assert free.structured_outputs is None and free.response_format is not None


def test_a_responses_request_is_constrained_alike(tokenizer):
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    tool = {"type": "function", **WEATHER["function"], "strict": False}
    for choice in ("required", {"type": "function", "name": "get_weather"}):
        request = ResponsesRequest(model="tiny", input="Hi", tools=[tool], tool_choice=choice)
        request = composed(tokenizer)(tokenizer).adjust_request(request)
        assert matches(request, CALL)
        assert not matches(request, CALL.replace("Oslo", "Paris"))


def test_a_schema_that_cannot_be_enforced_is_an_error_of_the_request(tokenizer):
    parameters = {"type": "object", "properties": {"at": {"type": "place"}}}
    broken = {"type": "function", "function": {"name": "go", "parameters": parameters}}
    with pytest.raises(ValueError, match="place"):
        composed(tokenizer)(tokenizer).adjust_request(asking([broken], "required"))


def test_a_tool_that_cannot_be_named_is_an_error_of_the_request(tokenizer):
    odd = {"type": "function", "function": {"name": "oil & wax", "parameters": {"type": "object"}}}
    with pytest.raises(ValueError, match="oil & wax"):
        composed(tokenizer)(tokenizer).adjust_request(asking([odd]))


def test_the_engine_is_told_where_reasoning_ends(tokenizer):
    from vllm.reasoning import ReasoningParserManager

    parser = ReasoningParserManager.get_reasoning_parser("callsmith")(tokenizer)
    prompt = tokenizer.encode("<|im_start|>assistant\n")
    begun = tokenizer.encode("<|im_start|>assistant\n<think>\nOslo")
    ended = begun + tokenizer.encode("\n</think>\n\n")
    assert (parser.reasoning_start_str, parser.reasoning_end_str) == ("<think>", "</think>")
    assert parser.is_reasoning_end(prompt) and not parser.is_reasoning_end(begun) and parser.is_reasoning_end(ended)
    assert not parser.is_reasoning_end_streaming(begun, begun[-1:])
    assert parser.is_reasoning_end_streaming(ended, ended[-2:])
    assert tokenizer.decode(parser.extract_content_ids([*ended, *tokenizer.encode("Hello")])).strip() == "Hello"


def test_a_model_of_an_unknown_format_is_refused_at_start_up(folder: Path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    with pytest.raises(TypeError, match=r"CALLSMITH_FORMAT|in which format"):
        composed(tokenizer)


def test_our_reasoning_parser_is_not_combined_with_another_tool_parser(tokenizer):
    with pytest.raises(TypeError, match="--tool-call-parser callsmith"):
        composed(tokenizer, tools="hermes")


def test_parsers_of_others_and_harmony_models_are_left_alone(tokenizer, caplog):
    assert not issubclass(composed(tokenizer, reasoning=None, tools="hermes"), parsers.HostParser)
    from vllm.parser.harmony import HarmonyParser

    with caplog.at_level(logging.WARNING):
        assert composed(tokenizer=None, is_harmony=True) is HarmonyParser
    assert "callsmith" in caplog.text


def test_a_release_that_does_not_fit_is_named_at_start_up(monkeypatch, caplog):
    monkeypatch.delattr("vllm.parser.ParserManager")
    monkeypatch.delattr("vllm.parser.parser_manager.ParserManager")
    for module in ("parsers", "host"):
        monkeypatch.delitem(sys.modules, f"callsmith.adapters.vllm.{module}")
    from callsmith.adapters import vllm as package

    for module in ("parsers", "host"):
        monkeypatch.delattr(package, module, raising=False)
    plugin.register()  # a server that does not ask for callsmith starts
    assert "ParserManager" in caplog.text and "update callsmith" in caplog.text
    monkeypatch.setattr(sys, "argv", ["vllm", "serve", "m", "--tool-call-parser", "callsmith"])
    with pytest.raises(RuntimeError, match=r"ParserManager[\s\S]*update callsmith"):
        plugin.register()


def test_an_unknown_choice_is_an_error(tokenizer):
    request = asking([WEATHER], "required")
    request.tool_choice = object()
    with pytest.raises(ValueError, match="tool_choice"):
        composed(tokenizer)(tokenizer).adjust_request(request)
