"""Right answers to cases of the benchmark, as models of each format write them, through the chain of parsers."""

import json
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.values import Call, Tool
from callsmith.evals.cases.equality import ast_eq, ast_eq_any
from callsmith.formats import format_named
from callsmith.formats.inference.find_calls import find_calls
from callsmith.formats.write import write

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "fixtures.json").read_text("utf-8"))["cases"]
DETECTORS = ("hermes", "qwen25", "llama32", "mistral", "pythonic", "xlam", "granite")


@pytest.mark.req("R198")
@pytest.mark.parametrize("detector", DETECTORS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_what_is_written_in_any_format_is_found_by_the_chain(case: dict[str, Any], detector: str):
    tools = [Tool(tool["name"], tool["description"], tool["parameters"]) for tool in case["tools"]]
    right = [Call(item["name"], item["arguments"]) for item in case["gold"]]
    format = format_named(detector)
    if format.calls.most is not None:
        right = right[: format.calls.most]
    text = write(format, right) if right else "There is no function for that."
    for chain in (None, DETECTORS, (detector,)):
        parsed = find_calls(text, tools, chain)
        assert ast_eq(parsed.calls, right), (chain, parsed)
        assert (parsed.fallback, parsed.content) == ((True, "") if right else (False, text))
    assert len(right) < len(case["gold"]) or ast_eq_any(right, case["possible"])


@pytest.mark.req("R198")
def test_the_cases_are_of_every_kind():
    kinds = {case["id"].rpartition("_")[0] for case in CASES}
    assert kinds == {"simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance"}
