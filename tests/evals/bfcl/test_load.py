"""The benchmark's cases as ours, out of a folder like the one that is fetched."""

import json
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.errors import UnknownName
from callsmith.core.schema import validate
from callsmith.evals.bfcl.load import load_cases

FUNCTION = {
    "name": "shop.buy",
    "description": "Buy things.",
    "parameters": {
        "type": "dict",
        "required": ["things"],
        "optional": ["price"],
        "properties": {
            "things": {"type": "array", "items": {"type": "dict", "properties": {"name": {"type": "any"}}}},
            "price": {"type": "float", "description": "In euros.", "optional": True},
            "place": {"type": "tuple", "items": {"type": "float"}},
        },
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    def write(name: str, *rows: Any) -> None:
        path = tmp_path / "bfcl_eval" / "data" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    questions = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Buy a pen."}]]
    write("BFCL_v4_simple_python", {"id": "simple_python_0", "question": questions, "function": [FUNCTION]})
    write(
        "possible_answer/BFCL_v4_simple_python", {"id": "simple_python_0", "ground_truth": [{"shop.buy": {"price": [1.5, ""]}}]}
    )
    write("BFCL_v4_irrelevance", {"id": "irrelevance_0", "question": questions, "function": [FUNCTION]})
    write("BFCL_v4_live_relevance", {"id": "live_relevance_0", "question": questions, "function": [FUNCTION]})
    questions = [[{"role": "user", "content": "List it."}], [], [{"role": "user", "content": "Sort it."}]]
    row = {"id": "multi_turn_miss_func_0", "question": questions, "initial_config": {"GorillaFileSystem": {}}}
    write(
        "BFCL_v4_multi_turn_miss_func",
        {**row, "involved_classes": ["GorillaFileSystem"], "missed_function": {"1": ["sort"]}},
    )
    gold = [["ls()"], [], ["sort('a')"]]
    write("possible_answer/BFCL_v4_multi_turn_miss_func", {"id": "multi_turn_miss_func_0", "ground_truth": gold})
    documents = [{**FUNCTION, "name": name} for name in ("ls", "sort")]
    write("multi_turn_func_doc/gorilla_file_system", *documents)
    return tmp_path


def test_types_become_json_schema_and_names_what_apis_allow(folder: Path):
    (case,) = load_cases(folder, ["simple_python"])
    (tool,) = case.tools
    assert tool.name == "shop_buy"
    assert tool.description == "Buy things. Note that the provided function is in Python 3 syntax."
    assert tool.parameters == {
        "type": "object",
        "required": ["things"],
        "properties": {
            "things": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "price": {"type": "number", "format": "float", "description": "In euros. This is a float type value."},
            "place": {
                "type": "array",
                "items": {"type": "number", "format": "float", "description": " This is a float type value."},
            },
        },
    }
    assert not validate(tool.parameters, {"things": [{"name": "pen"}], "price": 1})
    assert [message.role for message in case.messages] == ["system", "user"]
    assert case.functions == [FUNCTION]


def test_what_is_expected_follows_from_the_category(folder: Path):
    cases = load_cases(folder, ["simple_python", "irrelevance", "live_relevance"])
    assert [case.expect for case in cases] == ["calls", "no_call", "any_call"]
    assert cases[0].answers


def test_a_tool_that_is_missing_becomes_known_in_the_turn_that_says_so(folder: Path):
    (case,) = load_cases(folder, ["multi_turn_miss_func"])
    assert [[tool.name for tool in turn.tools] for turn in case.turns] == [["ls"], ["sort"], []]
    assert "updated" in case.turns[1].messages[0].content
    assert case.world is not None
    assert case.world.gold == (("ls()",), (), ("sort('a')",))


def test_a_category_that_there_is_not_is_named(folder: Path):
    with pytest.raises(UnknownName):
        load_cases(folder, ["simple"])
