"""`callsmith grammar`."""

import asyncio
import json
from pathlib import Path
from typing import Literal

import pytest

from callsmith import Choice, Functions, format_named
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.targets.gbnf import to_gbnf

TOOLS = [
    {
        "name": name,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    }
    for name in ("get_weather", "get_time")
]


@pytest.fixture
def tools(tmp_path: Path) -> str:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS), "utf-8")
    return str(path)


@pytest.mark.req("R21")
@pytest.mark.parametrize("choice", ["required", "auto", "set_light"])
def test_the_schemas_of_a_registry_of_functions_are_what_its_grammar_is_made_from(callsmith, tmp_path: Path, choice: str):
    def get_time() -> str:
        """Tell the time."""
        return "noon"

    def set_light(room: Literal["kitchen", "hall"], on: bool) -> str:
        """Switch a light."""
        return f"{room} {on}"

    registry = Functions(get_time, set_light)
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(registry.openai_schemas()), "utf-8")
    result = callsmith("grammar", "--tools", str(path), "--choice", choice, "--target", "gbnf")
    wanted = Choice.only(choice) if choice == "set_light" else Choice(choice)  # pyright: ignore[reportArgumentType]
    grammar = grammar_for(format_named("hermes"), asyncio.run(registry.tools()), wanted)
    assert grammar is not None
    assert result.out.strip() == to_gbnf(grammar).text.strip()
    assert "kitchen" in result.out


@pytest.mark.req("R77")
def test_the_grammar_is_one_that_llguidance_accepts(callsmith, tools: str):
    llguidance = pytest.importorskip("llguidance")
    for choice in ("required", "auto", "get_time"):
        result = callsmith("grammar", "--tools", tools, "--choice", choice)
        assert result.code == 0
        failed, messages = llguidance.LLMatcher.validate_grammar_with_warnings(llguidance.grammar_from("lark", result.out))
        assert not failed, messages


@pytest.mark.req("R26")
@pytest.mark.req("R32")
def test_a_name_leaves_only_that_tool(callsmith, tools: str):
    result = callsmith("grammar", "--tools", tools, "--choice", "get_time", "--target", "lark")
    assert "get_time" in result.out
    assert "get_weather" not in result.out


def test_without_parallel_calls_there_is_one(callsmith, tools: str):
    many, single = (callsmith("grammar", "--tools", tools, *more).out for more in ((), ("--no-parallel",)))
    assert many.count("<tool_call>") == 2
    assert single.count("<tool_call>") == 1


def test_the_format_decides_how_calls_are_written(callsmith, tools: str):
    assert "[TOOL_CALLS]" in callsmith("grammar", "--tools", tools, "--format", "mistral").out


def test_what_is_not_enforced_is_told(callsmith, tmp_path: Path):
    tags = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([{"name": "f", "parameters": {"type": "object", "properties": {"tags": tags}}}]), "utf-8")
    assert "--report" in callsmith("grammar", "--tools", str(path)).err
    assert "#/properties/tags  uniqueItems" in callsmith("grammar", "--tools", str(path), "--report").out


def test_a_grammar_that_enforces_everything_says_so(callsmith, tools: str):
    assert "every keyword" in callsmith("grammar", "--tools", tools, "--report").out


@pytest.mark.parametrize("content", ["[]", "{", '"x"', '[{"name": "f", "parameters": {"type": "strange"}}]'])
def test_tools_that_are_none_are_refused(callsmith, tmp_path: Path, content: str):
    path = tmp_path / "tools.json"
    path.write_text(content, "utf-8")
    result = callsmith("grammar", "--tools", str(path))
    assert result.code == 2
    assert result.err.startswith("error: ")


def test_an_unknown_tool_is_refused(callsmith, tools: str):
    assert callsmith("grammar", "--tools", tools, "--choice", "get_whether").code == 2


@pytest.mark.req("R66")
def test_gbnf_is_one_that_llama_cpp_accepts(callsmith, tools: str):
    from tests.grammar.targets.llama_grammar import LlamaGrammar, missing

    if why := missing():
        pytest.skip(why)
    result = callsmith("grammar", "--tools", tools, "--target", "gbnf")
    assert result.code == 0
    call = '<tool_call>\n{"name": "get_time", "arguments": {"city": "Paris"}}\n</tool_call>'
    assert LlamaGrammar(result.out).accepts(call)
    assert not LlamaGrammar(result.out).accepts(call.replace("Paris", "Paris\n"))


@pytest.mark.parametrize(
    ("target", "required", "auto"),
    [
        ("vllm", {"structured_outputs"}, {"structured_outputs"}),
        ("sglang", {"ebnf"}, {"structural_tag"}),
        ("llama-server", {"grammar", "preserved_tokens"}, {"grammar", "grammar_lazy", "grammar_triggers", "preserved_tokens"}),
    ],
)
def test_a_server_gets_the_fields_of_its_requests(callsmith, tools: str, target: str, required: set[str], auto: set[str]):
    assert json.loads(callsmith("grammar", "--tools", tools, "--target", target).out).keys() == required
    assert json.loads(callsmith("grammar", "--tools", tools, "--target", target, "--choice", "auto").out).keys() == auto


@pytest.mark.parametrize("target", ["lark", "gbnf", "vllm", "sglang", "llama-server"])
def test_the_report_is_that_of_the_target(callsmith, tools: str, tmp_path: Path, target: str):
    assert "every keyword" in callsmith("grammar", "--tools", tools, "--target", target, "--report").out
    path = tmp_path / "odd.json"
    odd = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?=x)"}}}
    path.write_text(json.dumps([{"name": "f", "parameters": odd}]), "utf-8")
    assert "#/properties/a  pattern" in callsmith("grammar", "--tools", str(path), "--target", target, "--report").out


def test_a_schema_that_nothing_satisfies_is_refused_by_its_place(callsmith, tmp_path: Path):
    path = tmp_path / "tools.json"
    odd = {"type": "object", "properties": {"a": {"type": "array", "enum": ["x"]}}, "required": ["a"]}
    path.write_text(json.dumps([{"name": "f", "parameters": odd}]), "utf-8")
    result = callsmith("grammar", "--tools", str(path), "--target", "gbnf")
    assert result.code == 2
    assert "#/properties/a" in result.err


def test_an_unknown_target_names_those_there_are(callsmith, tools: str):
    result = callsmith("grammar", "--tools", tools, "--target", "xml")
    assert result.code == 2
    assert "llama-server" in result.err


@pytest.mark.parametrize("arguments", [[], ["-"], ["FILE"]])
def test_schemas_are_tried_on_instances_line_by_line(callsmith, tmp_path: Path, arguments: list[str]):
    pytest.importorskip("llguidance")
    path = tmp_path / "lines.jsonl"
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    path.write_text(json.dumps({"schema": schema, "instances": [[1, 1], ["a"]]}) + "\n\nnonsense\n", "utf-8")
    result = callsmith(
        "grammar", "--jsonl", *(str(path) if item == "FILE" else item for item in arguments), stdin=path.read_bytes()
    )
    assert result.code == 0
    first, second = map(json.loads, result.out.splitlines())
    assert first == {"compiled": True, "unenforced": [["uniqueItems", "#"]], "accepts": [True, False]}
    assert second["compiled"] is False
    assert second["error"]


def test_without_tools_and_without_lines_there_is_nothing_to_do(callsmith):
    result = callsmith("grammar")
    assert result.code == 2
    assert "--jsonl" in result.err
