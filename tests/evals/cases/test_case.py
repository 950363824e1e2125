"""Files of cases: what they say, and what is wrong with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.errors import UsageError
from callsmith.evals.cases.case import read_case, read_cases

ADD = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}
CASE: dict[str, Any] = {
    "id": "one",
    "category": "sums",
    "messages": [{"role": "user", "content": "What is 1 and 2?"}],
    "tools": [ADD],
    "calls": [{"name": "add", "arguments": {"a": 1}}],
}


def test_a_case_is_read():
    case = read_case(CASE)
    assert (case.id, case.category, case.expect) == ("one", "sums", "calls")
    assert case.messages[0].content == "What is 1 and 2?"
    assert case.tools[0].name == "add"
    assert case.calls[0].arguments == {"a": 1}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"id": ""}, "case.id: is required"),
        ({"expect": "some"}, "case.expect: expected one of calls, no_call"),
        ({"expect": "no_call"}, "belong to a case that expects calls"),
        ({"calls": []}, "belong to a case that expects calls"),
        ({"calls": [{"arguments": {}}]}, "name"),
        ({"answers": [{"add": {"a": 1}}]}, "acceptable values"),
        # what could never be right is a slip
        ({"calls": [{"name": "add", "argument": {"a": 1}}]}, "argument"),
        ({"calls": [{"name": "ad", "arguments": {"a": 1}}]}, "no tool 'ad'"),
        ({"calls": None, "answers": [{"ad": {"a": [1]}}]}, "no tool 'ad'"),
        ({"calls": None, "answers": [{}]}, "acceptable values"),
        ({"calls": None, "answers": [{"add": {"a": []}}]}, "acceptable values"),
        ({"messages": []}, "messages"),
        ({"question": "?"}, "question"),
    ],
)
def test_what_is_wrong_with_a_case_is_said(change: dict[str, Any], complaint: str):
    with pytest.raises(UsageError, match=complaint):
        read_case({**CASE, **change})


def test_a_file_names_the_line_that_is_wrong(tmp_path: Path):
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(CASE) + "\n\n{not json\n")
    with pytest.raises(UsageError, match="line 3"):
        read_cases(path)


def test_a_file_that_another_system_has_written_is_read(tmp_path: Path):
    path = tmp_path / "cases.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(CASE).encode() + b"\r\n\r\n" + json.dumps({**CASE, "id": "two"}).encode())
    assert [case.id for case in read_cases(path)] == ["one", "two"]


def test_two_cases_of_one_id_are_refused(tmp_path: Path):
    path = tmp_path / "cases.jsonl"
    path.write_text(2 * (json.dumps(CASE) + "\n"))
    with pytest.raises(UsageError, match="another case 'one'"):
        read_cases(path)
