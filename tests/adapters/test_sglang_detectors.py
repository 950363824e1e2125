"""The plug-in in SGLang's own modules, without a server: its plug-in loader, parsers, protocol, and xgrammar."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from callsmith.formats import formats
from callsmith.formats.algebra import Format
from tests.adapters.samples import CALL, TIME, WEATHER, accepts, declared, in_deltas, is_json, written
from tests.formats.reader.corpus import WILD, Case, cases

pytest.importorskip("sglang", reason="SGLang is not installed here: make test-sglang")

pytestmark = pytest.mark.sglang

STRICT = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
Answer = tuple[str, str, list[tuple[str, str]]]


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """SGLang loads its plug-ins itself: ours is found by its entry point."""
    from sglang.srt.plugins import load_plugins

    load_plugins()


def asking(tools: list[Any], choice: Any = "auto", **more: Any) -> Any:
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest

    fields = {"tools": tools, "tool_choice": choice} if tools else {}
    return ChatCompletionRequest(model="tiny", messages=[{"role": "user", "content": "Hi"}], **fields, **more)


class Chat:
    """Reads answers as SGLang's chat endpoint does: reasoning first, calls in what is left over."""

    def __init__(self, tokenizer: Any, request: Any, *, reasoning: bool = True) -> None:
        from sglang.srt.function_call.function_call_parser import FunctionCallParser
        from sglang.srt.parser.reasoning_parser import ReasoningParser

        self._has_tools = bool(request.tools) and request.tool_choice != "none"
        active = {"tool_call_parser_active": self._has_tools}
        self._reasoning = ReasoningParser("callsmith", True, False, request, tokenizer=tokenizer, **active) if reasoning else None
        self._calls = FunctionCallParser(request.tools or [], "callsmith", tokenizer=tokenizer)

    def whole(self, text: str) -> Answer:
        thought = ""
        if self._reasoning:
            thought, text = self._reasoning.parse_non_stream(text)
        calls: Sequence[Any] = ()
        if self._has_tools and self._calls.has_tool_call(text):
            text, calls = self._calls.parse_non_stream(text)
        return thought or "", text or "", [(call.name, call.parameters) for call in calls]

    def streamed(self, pieces: list[str]) -> Answer:
        thoughts, texts, calls = "", "", {}
        for at, piece in enumerate(pieces):
            is_last = at == len(pieces) - 1
            if self._reasoning:
                thought, piece = self._reasoning.parse_stream_chunk(piece)
                if is_last:
                    more, rest = self._reasoning.parse_stream_end()
                    thought, piece = thought + more, piece + rest
                thoughts += thought
            items: list[Any] = []
            if self._has_tools:
                piece, items = self._calls.parse_stream_chunk(piece)
                if is_last:
                    rest, more_calls = self._calls.parse_stream_end()
                    piece, items = piece + rest, [*items, *more_calls]
            texts += piece
            for call in items:
                known = calls.setdefault(call.tool_index, ["", ""])
                known[0] += call.name or ""
                known[1] += call.parameters
        return thoughts, texts, [tuple(call) for call in calls.values()]


@pytest.mark.parametrize("case", list(cases(WILD)), ids=lambda case: case.name[:60])
def test_every_format_is_read_in_deltas_of_any_size_as_it_is_whole(speaking, case: Case):
    if case.opened:
        pytest.skip("the prompt has begun this answer, and here it is that of another template")
    tokenizer, request = speaking(case.format.name), asking(declared(case))
    expected = Chat(tokenizer, request).whole(case.row["output"])
    calls = [(call["name"], call["arguments"]) for call in case.row["expected_calls"] or []]
    assert [(name, json.loads(text)) for name, text in expected[2] if is_json(text)] == calls  # others were cut off
    for size in (1, 3, 7, 0):
        pieces = [text for text, _ in in_deltas(tokenizer, case.row["output"], size)]
        assert Chat(tokenizer, request).streamed(pieces) == expected


def tag(tokenizer: Any, tools: list[Any], choice: Any, **more: Any) -> str | None:
    """The structural tag that SGLang puts into the sampling parameters."""
    from sglang.srt.function_call.function_call_parser import FunctionCallParser

    request = asking(tools, choice)
    constraint = FunctionCallParser(request.tools, "callsmith", tokenizer=tokenizer).get_structure_constraint(
        request.tool_choice, **more
    )
    if constraint is None:
        return None
    kind, value = constraint
    assert kind == "structural_tag"
    sent = request.to_sampling_params(stop=[], model_generation_config={}, tool_call_constraint=constraint)
    return sent["structural_tag"] if isinstance(sent["structural_tag"], str) else value.model_dump_json()


@pytest.mark.parametrize("format", list(formats().values()), ids=lambda format: format.name)
def test_required_calls_of_every_format_are_enforced_by_xgrammar(speaking, format: Format):
    tokenizer = speaking(format.name)
    required = tag(tokenizer, [WEATHER, TIME], "required")
    assert accepts(written(format, "get_weather", {"city": "Oslo", "days": 2}), tag=required)
    assert accepts(written(format, "get_time", {"zone": "CET"}), tag=required)
    for name, arguments in (("get_weather", {"city": "Paris"}), ("get_weather", {}), ("get_wind", {"city": "Oslo"})):
        assert not accepts(written(format, name, arguments), tag=required)
    assert not accepts("Hello there.", tag=required)
    only = tag(tokenizer, [WEATHER, TIME], {"type": "function", "function": {"name": "get_time"}})
    assert accepts(written(format, "get_time", {"zone": "CET"}), tag=only)
    assert not accepts(written(format, "get_weather", {"city": "Oslo"}), tag=only)


def test_the_command_line_takes_our_name():
    from sglang.srt.server_args import _reasoning_parser_choices, _tool_call_parser_choices

    assert "callsmith" in _tool_call_parser_choices()
    assert "callsmith" in _reasoning_parser_choices()


@pytest.mark.parametrize("size", [1, 3, 7, 0])
def test_one_reader_reads_reasoning_text_and_calls(tokenizer, size: int):
    text = f"<think>\nOslo it is.\n</think>\n\nLet me look.\n{CALL}\n{CALL}"
    expected = ("Oslo it is.", "Let me look.\n", [("get_weather", '{"city": "Oslo"}')] * 2)
    request = asking([WEATHER])
    assert Chat(tokenizer, request).whole(text) == expected
    assert Chat(tokenizer, request).streamed([piece for piece, _ in in_deltas(tokenizer, text, size)]) == expected


def test_reasoning_that_the_prompt_has_begun_is_reasoning(tokenizer):
    request = asking([WEATHER], chat_template_kwargs={"enable_thinking": True})
    text = f"Oslo it is.\n</think>\n\n{CALL}"
    expected = ("Oslo it is.", "", [("get_weather", '{"city": "Oslo"}')])
    assert Chat(tokenizer, request).whole(text) == expected
    assert Chat(tokenizer, request).streamed(list(text)) == expected


def test_text_that_only_looks_like_a_call_stays_text_on_both_ways(tokenizer):
    request = asking([WEATHER])
    for text in (
        "Write <tool_call> and then the name.",
        "Plain words.",
        "<think>\nHm.\n</think>\n\nIt is <think> that opens it.",
    ):
        assert Chat(tokenizer, request).whole(text) == Chat(tokenizer, request).streamed(list(text))
        assert "\ufdd3" not in Chat(tokenizer, request).whole(text)[1]


def test_without_a_reasoning_parser_calls_are_read_all_the_same(tokenizer):
    request = asking([WEATHER])
    text = f"<think>\nOslo it is.\n</think>\n\nLet me look.\n{CALL}"
    expected = ("", "<think>\nOslo it is.\n</think>\n\nLet me look.\n", [("get_weather", '{"city": "Oslo"}')])
    assert Chat(tokenizer, request, reasoning=False).whole(text) == expected
    assert Chat(tokenizer, request, reasoning=False).streamed(list(text)) == expected


def test_where_no_tool_may_be_called_no_call_comes(tokenizer):
    for request in (asking([WEATHER], "none"), asking([])):
        answer = Chat(tokenizer, request).whole(f"Well.\n{CALL}")
        assert answer == Chat(tokenizer, request).streamed(list(f"Well.\n{CALL}"))
        assert answer[2] == [] and answer[1].startswith("Well.")


def test_a_strict_tool_is_constrained_from_the_marker_on(tokenizer):
    constraint = tag(tokenizer, [STRICT, TIME], "auto")
    assert accepts("No tool is needed.", tag=constraint)
    assert accepts(f"Let me look.\n{CALL}", tag=constraint)
    assert not accepts(CALL.replace("Oslo", "Paris"), tag=constraint)
    assert tag(tokenizer, [WEATHER, TIME], "auto") is None


def test_one_call_at_a_time_is_enforced(tokenizer):
    constraint = tag(tokenizer, [WEATHER], "required", parallel_tool_calls=False)
    assert accepts(CALL, tag=constraint)
    assert not accepts(f"{CALL}\n{CALL}", tag=constraint)


def test_reasoning_is_in_the_grammar_where_no_reasoning_parser_waits_for_its_end(tokenizer):
    thinking = f"<think>\nOslo.\n</think>\n\n{CALL}"
    assert accepts(thinking, tag=tag(tokenizer, [WEATHER], "required", thinking_mode=True))
    assert not accepts(thinking, tag=tag(tokenizer, [WEATHER], "required"))


def test_grammars_of_others_begin_behind_the_end_of_reasoning(tokenizer):
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    detector = ReasoningParser("callsmith").detector  # as the scheduler makes it, which knows no request
    assert tokenizer.decode(detector.get_think_end_token_ids(tokenizer)) == "</think>"


def test_a_release_that_does_not_fit_is_named_in_the_log(monkeypatch, caplog):
    from callsmith.adapters import sglang as package
    from callsmith.adapters.sglang import plugin

    monkeypatch.delattr("sglang.srt.plugins.hook_registry.HookRegistry")
    for module in ("detectors", "host"):
        monkeypatch.delitem(sys.modules, f"callsmith.adapters.sglang.{module}")
        monkeypatch.delattr(package, module, raising=False)
    plugin.register()
    assert "HookRegistry" in caplog.text and "update callsmith" in caplog.text
