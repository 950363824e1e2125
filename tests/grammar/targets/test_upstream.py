"""The request fields of other servers: the grammar inside them is one that their engines read."""

import json
import random
import re
from typing import Any

import pytest

from callsmith.core.errors import UsageError
from callsmith.core.values import Call, Choice, Tool
from callsmith.formats import format_named, formats
from callsmith.formats.write import write
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.nodes import FreeText, Grammar
from callsmith.grammar.targets.upstream import drop_prefix, for_llama_server, for_sglang, for_vllm, structural_tag
from tests.grammar.targets.llama_grammar import LlamaGrammar, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

TOOL = Tool("f", "", {"type": "object", "properties": {"s": {"type": "string"}}, "required": ["s"]})
CALL = Call("f", {"s": "a"})


def grammar(mode: str, name: str = "hermes", opened: str = "", tool: Tool = TOOL) -> Grammar:
    compiled = grammar_for(format_named(name), [tool], Choice("required" if mode == "required" else "auto"), opened=opened)
    assert compiled is not None
    return compiled


def written(name: str = "hermes") -> str:
    return write(format_named(name), [CALL])


def test_a_call_that_must_come_is_a_grammar_to_every_server() -> None:
    required = grammar("required")
    texts = [
        for_vllm(required).body["structured_outputs"]["grammar"],
        for_sglang(required).body["ebnf"],
        for_llama_server(required).body["grammar"],
    ]
    for text in texts:
        assert LlamaGrammar(text).accepts(written())
        assert not LlamaGrammar(text).accepts("No.")


def test_vllms_guidance_gets_lark() -> None:
    llguidance = pytest.importorskip("llguidance")
    lark = for_vllm(grammar("auto"), "guidance").body["structured_outputs"]["grammar"]
    failed, messages = llguidance.LLMatcher.validate_grammar_with_warnings(llguidance.grammar_from("lark", lark))
    assert not failed, messages


@pytest.mark.parametrize("fields", [for_vllm, for_sglang])
def test_where_calling_is_optional_the_grammar_begins_behind_the_trigger(fields: Any) -> None:
    body = fields(grammar("auto")).body
    tag = json.loads(body.get("structured_outputs", body)["structural_tag"])
    (only,) = tag["format"]["tags"]
    assert tag["format"]["triggers"] == [only["begin"]] == ["<tool_call>"]
    inside = LlamaGrammar(only["content"]["grammar"])
    assert inside.accepts(written().removeprefix("<tool_call>"))
    assert not inside.accepts(written())


def test_every_format_has_fields_for_optional_calls() -> None:
    tagged = 0
    for name in formats():
        auto = grammar("auto", name)
        tag = structural_tag(auto)
        tagged += tag is not None
        if tag is None:
            assert LlamaGrammar(for_sglang(auto).body["ebnf"]).accepts(write(format_named(name), text="Fine."))
    assert tagged > 30


def test_llama_server_is_told_what_to_wait_for_and_replays_the_text_from_its_beginning() -> None:
    body = for_llama_server(grammar("auto")).body
    assert body["grammar_lazy"] is True
    (trigger,) = body["grammar_triggers"]
    match = re.search(trigger["value"], "Let me\nsee.<tool_call>\n{")
    assert trigger["type"] == 2
    assert match is not None
    assert match.start(1) == 0
    assert body["preserved_tokens"] == ["</tool_call>", "<tool_call>"]
    assert LlamaGrammar(body["grammar"]).accepts(f"Let me\nsee.{written()}")


def test_a_trigger_is_no_expression_of_its_own() -> None:
    (trigger,) = for_llama_server(grammar("auto", "mistral")).body["grammar_triggers"]
    assert re.search(trigger["value"], "[TOOL_CALLS]")
    assert not re.search(trigger["value"], "T")


def test_a_server_without_special_tokens_keeps_only_those_of_the_tokenizer() -> None:
    body = for_llama_server(grammar("required"), {"<tool_call>": 7, "<other>": 8}).body
    assert body["preserved_tokens"] == ["<tool_call>"]
    assert "<[7]>" in body["grammar"]
    assert "grammar_lazy" not in body


@pytest.mark.parametrize(
    ("name", "opened"), [("functionary-v32", ">>>"), ("hermes", "<think>\n"), ("harmony", "<|start|>assistant")]
)
def test_what_the_prompt_has_written_is_no_part_of_the_grammar(name: str, opened: str) -> None:
    required = grammar("required", name, opened)
    assert required.prefix
    rest = written(name)
    rest = f"hm</think>\n\n{rest}" if "think" in opened else rest.removeprefix(required.prefix)
    assert LlamaGrammar(for_sglang(required).body["ebnf"]).accepts(rest)


def test_a_grammar_that_cannot_continue_after_the_prompt_is_an_error() -> None:
    with pytest.raises(UsageError, match="cannot continue from there"):
        drop_prefix(Grammar(FreeText(("a",)), prefix="b"))


def test_what_is_not_enforced_goes_with_the_fields() -> None:
    tags = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    tool = Tool("f", "", {"type": "object", "properties": {"tags": tags}})
    for mode in ("required", "auto"):
        for fields in (for_vllm, for_sglang, for_llama_server):
            assert ("#/properties/tags", "uniqueItems") in fields(grammar(mode, tool=tool)).unenforced


# -- special tokens, by llama.cpp's sampler and a real vocabulary


@pytest.mark.weights
def test_llama_cpps_sampler_takes_special_tokens_by_id_and_waits_for_triggers() -> None:
    pytest.importorskip("numpy")
    from tests.grammar.sampling import letters, vocabulary
    from tests.grammar.targets.llama_sampler import LlamaSampler

    tokens = vocabulary()
    special = next(text for text in sorted(tokens.specials) if text.startswith("<") and tokens.specials[text] not in tokens.ends)
    format = format_named("hermes")
    body = for_llama_server(grammar("required")).body
    by_letters = LlamaSampler(tokens, body["grammar"])
    assert by_letters.goes_through(letters(tokens, written()))
    assert not by_letters.goes_through(letters(tokens, written().replace('"f"', '"g"')))

    swapped = Grammar(**{**_fields(grammar("required")), "start": _swapped(grammar("required").start, special)})
    sampler_by_id = LlamaSampler(tokens, for_llama_server(swapped, tokens.specials).body["grammar"])
    rest = letters(tokens, written().removeprefix("<tool_call>"))
    assert sampler_by_id.goes_through([tokens.specials[special], *rest])
    assert not sampler_by_id.goes_through([*letters(tokens, special), *rest])

    lazy = for_llama_server(grammar("auto")).body
    waiting = LlamaSampler(tokens, lazy["grammar"], [trigger["value"] for trigger in lazy["grammar_triggers"]])
    chance = random.Random(0)
    prose = [chance.randrange(1000, 20000) for _ in range(5)]
    assert waiting.goes_through(prose)
    assert waiting.goes_through(letters(tokens, f"Let me see.{write(format, [CALL])}"))
    assert not waiting.goes_through(letters(tokens, 'Let me see.<tool_call>\n{"name": "g"'))


def _fields(compiled: Grammar) -> dict[str, Any]:
    return {name: getattr(compiled, name) for name in ("start", "rules", "prefix", "triggers", "unenforced")}


def _swapped(node: Any, special: str) -> Any:
    """The node with another opening marker."""
    head, *rest = node.items
    return type(node)((type(head)(head.text.replace("<tool_call>", special)), *rest))
