"""A model that another server runs: its format, where its turn begins, its grammars and its answers."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from callsmith.adapters.answer import HostedAnswer, read_whole
from callsmith.adapters.hosted import HostedModel, ToolRequest, find, read_tool_fields
from callsmith.core.errors import Unavailable, UnknownName, UsageError
from callsmith.formats import format_named
from callsmith.formats.huggingface.write import format_to_response_template
from callsmith.formats.prompt.template import CHATML
from tests.adapters.samples import CALL, TIME, WEATHER
from tests.adapters.tiny_model import MARKERS, TEMPLATE

HEADER = "<|im_start|>assistant\n"


def tokenizer(template: str | None = TEMPLATE, name: str = "tiny") -> Any:
    specials = ("<|im_start|>", "<|im_end|>", "<|reserved_7|>", *MARKERS)
    added = {at: SimpleNamespace(content=text, special=True) for at, text in enumerate(specials)}
    return SimpleNamespace(
        chat_template=template, name_or_path=name, bos_token=None, eos_token="<|im_end|>", added_tokens_decoder=added
    )


def declared(*tools: dict[str, Any]) -> list[Any]:
    """Tools in classes such as servers have."""
    return [SimpleNamespace(type="function", function=SimpleNamespace(**tool["function"])) for tool in tools]


ASKED = read_tool_fields(declared(WEATHER, TIME), "auto", None)


def test_the_plug_ins_need_nothing_but_the_core_dependencies():
    program = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"llguidance", "numpy", "xllamacpp", "starlette", "msgspec", "mcp", "aiohttp", "torch"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
import callsmith.adapters.answer, callsmith.adapters.vllm.plugin, callsmith.adapters.sglang.plugin
print("imported")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "imported\n", ran.stderr


def test_a_model_is_looked_at_once():
    first_tokenizer = tokenizer()
    assert HostedModel.of(first_tokenizer) is HostedModel.of(first_tokenizer)
    assert HostedModel.of(first_tokenizer).format.name == "hermes"


def test_a_response_template_says_how_a_model_writes_whose_template_shows_no_calls():
    first_tokenizer = tokenizer(CHATML)
    first_tokenizer.response_template = format_to_response_template(format_named("dots"), HEADER).template
    assert HostedModel.of(first_tokenizer).format.calls.open == ("<dots_function_call>",)


def test_the_environment_names_a_format_or_a_template(monkeypatch, tmp_path):
    monkeypatch.setenv("CALLSMITH_FORMAT", "qwen3-coder")
    assert HostedModel.of(tokenizer(None)).format.name == "qwen3-coder"
    monkeypatch.delenv("CALLSMITH_FORMAT")
    (tmp_path / "chat.jinja").write_text(TEMPLATE, "utf-8")
    monkeypatch.setenv("CALLSMITH_CHAT_TEMPLATE", str(tmp_path / "chat.jinja"))
    assert HostedModel.of(tokenizer(None)).format.name == "hermes"
    monkeypatch.setenv("CALLSMITH_CHAT_TEMPLATE", str(tmp_path / "none.jinja"))
    with pytest.raises(Unavailable, match="CALLSMITH_CHAT_TEMPLATE"):
        HostedModel.of(tokenizer(None))


def test_a_model_of_no_known_format_is_refused_with_what_to_do():
    with pytest.raises(Unavailable, match="in which format") as raised:
        HostedModel.of(tokenizer("{{ messages[0].content }}", "nobody"))
    assert "CALLSMITH_FORMAT" in raised.value.hint


def test_tokens_that_frame_messages_are_no_text():
    model = HostedModel.of(tokenizer())
    assert model.needs_specials  # servers must not leave out the markers of calls
    read = read_whole(HostedAnswer(model, ASKED), f"Well.<|im_start|>{CALL}<|im_end|>")
    assert read.content == "Well." and len(read.calls) == 1


def test_where_the_turn_begins_is_found_in_the_template_and_in_prompts():
    model = HostedModel.of(tokenizer())
    assert model.opened_by() == HEADER
    assert model.opened_by({"enable_thinking": True}) == f"{HEADER}<think>\n"
    user = "<|im_start|>user\nIs <think> a tag?<|im_end|>\n"
    for opened, thinks in ((HEADER, False), (f"{HEADER}<think>\n", True), (f"{HEADER}<think>\nHm.\n</think>\n\nWell,", False)):
        assert model.opened_in(user + opened) == opened
        assert model.is_thinking(opened) is thinks
    assert model.opened_in("Once upon a time") == ""


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_an_answer_in_pieces_is_the_whole_one(size: int):
    model = HostedModel.of(tokenizer())
    text = f"<think>\nOslo.\n</think>\n\nLet me look.\n{CALL}\n{CALL.replace('Oslo', 'Rome')}"
    whole = read_whole(HostedAnswer(model, ASKED), text)
    answer = HostedAnswer(model, ASKED)
    pieces = [answer.feed(text[at : at + size]) for at in range(0, len(text), size)] + [answer.close()]
    assert "".join(piece.content for piece in pieces) == whole.content == "Let me look.\n"
    assert "".join(piece.reasoning for piece in pieces) == whole.reasoning == answer.reasoning == "Oslo."
    calls = [call for piece in pieces for call in piece.calls]
    for call in whole.calls:
        assert [item.name for item in calls if item.index == call.index and item.name] == ["get_weather"]
        assert "".join(item.arguments for item in calls if item.index == call.index) == call.arguments
    assert len({call.id for call in whole.calls}) == 2


def test_only_calls_that_must_be_valid_have_a_grammar():
    model = HostedModel.of(tokenizer())
    assert model.grammar(ASKED, HEADER, thinking=True) is None
    assert model.grammar(ToolRequest(), HEADER, thinking=True) is None
    required = read_tool_fields(declared(WEATHER), "required", None)
    grammar = model.grammar(required, HEADER, thinking=True)
    assert grammar is not None and grammar is model.grammar(
        read_tool_fields(declared(WEATHER), "required", None), HEADER, thinking=True
    )
    strict = read_tool_fields(declared({"function": {**WEATHER["function"], "strict": True}}), "auto", None)
    waiting = model.grammar(strict, f"{HEADER}<think>\n", thinking=True)
    assert waiting is not None and waiting.triggers == ("<tool_call>",)


def test_a_choice_is_understood_or_refused():
    tools = declared(WEATHER, TIME)
    choice = SimpleNamespace(type="function", function=SimpleNamespace(name="get_time"))
    assert [tool.name for tool in read_tool_fields(tools, choice, None).offered] == ["get_time"]
    assert [tool.name for tool in read_tool_fields(tools, SimpleNamespace(name="get_time"), None).offered] == ["get_time"]
    assert read_tool_fields(tools, "none", None).offered == ()
    with pytest.raises(UnknownName, match="get_wind"):
        read_tool_fields(tools, SimpleNamespace(name="get_wind"), None)
    with pytest.raises(UsageError, match="tool_choice"):
        read_tool_fields(tools, "sometimes", None)


def test_a_name_that_has_moved_away_is_named_with_where_it_was_expected():
    assert find("json", "loads", "no_such_module", "json") is __import__("json").loads
    with pytest.raises(Unavailable, match=r"callsmith cannot be used inside nothing .*no_such_module") as raised:
        find("nothing", "Parser", "no_such_module", "json")
    assert "update callsmith" in raised.value.hint
