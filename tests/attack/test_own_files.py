"""Files that a user was given by others: presets, formats and cases that are nested without end, of wrong types, or too large.

Each is an error that names the file's place, never a traceback.
"""

import json
import re
from pathlib import Path

import pytest

from callsmith.core.errors import UsageError
from callsmith.evals.cases.case import read_cases
from callsmith.formats.prompt.prompt import fit_id
from callsmith.formats.toml.read import format_from_toml
from callsmith.models.plugins import format_in, register_presets_file

DEEP = 20_000
PRESET = '[mine]\nmodels = ["*"]\nformats = ["json"]\n'
PRESETS = {
    "deep arrays": f"a = {'[' * DEEP}{']' * DEEP}",
    "deep tables": f"a = {'{a = ' * DEEP}1{'}' * DEEP}",
    "long dotted keys": f"{'a.' * DEEP}b = 1",
    "models that are a number": '[mine]\nmodels = 5\nformats = ["json"]',
    "models that are one text": '[mine]\nmodels = "qwen"\nformats = ["json"]',
    "models of numbers": '[mine]\nmodels = [5]\nformats = ["json"]',
    "formats that are a table": '[mine]\nmodels = ["*"]\nformats = {a = 1}',
    "formats of lists": '[mine]\nmodels = ["*"]\nformats = [["json"]]',
    "a template that is a number": f"{PRESET}template = 5",
    "a template that is a list": f"{PRESET}template = ['a.jinja']",
    "a template with a zero": f'{PRESET}template = "a\\u0000.jinja"',
    "parallel as a text": f'{PRESET}parallel = "no"',
    "a policy that is a list": f"{PRESET}policy = [1]",
    "guards that are one text": f'{PRESET}guards = "small"',
    "guards of numbers": f"{PRESET}guards = [1]",
    "auto_guarded as a number": f"{PRESET}auto_guarded = 1",
    "in_reasoning as a list": f"{PRESET}in_reasoning = []",
    "a tool prompt that is a number": f"{PRESET}tool_prompt = 1",
    "a threshold that is a text": f'{PRESET}threshold = "1"',
    "a threshold that is no number": f"{PRESET}threshold = nan",
}
CALLS = '[[parts]]\nkind = "calls"\nitem = "<c>{name}{args}</c>"\n'
FORMATS = {
    "deep arrays": f"a = {'[' * DEEP}{']' * DEEP}",
    "deep nodes": f'name = "x"\n[[parts]]\nkind = "calls"\nitem = {"[{opt = " * 200}["{{name}}"]{"}]" * 200}',
    "a name that is a number": f"name = 5\n{CALLS}",
    "parts that are texts": 'name = "x"\nparts = ["a"]',
    "a kind that is a list": 'name = "x"\n[[parts]]\nkind = []',
    "values of an odd kind": f'name = "x"\n{CALLS}values = {{kind = []}}',
    "flags that are lists": f'name = "x"\n{CALLS}values = {{kind = "nested", flags = {{a = []}}}}',
    "an object of lists": 'name = "x"\n[[parts]]\nkind = "calls"\nitem = [{object = {a = []}}]',
    "a pattern that is broken": f'name = "x"\nids = "["\n{CALLS}',
    "a pattern that repeats too often": f'name = "x"\nids = "a{{99999999999999999999}}"\n{CALLS}',
    "a pattern that is nested": f'name = "x"\nids = "{"(" * DEEP}{")" * DEEP}"\n{CALLS}',
    "ids without end": f'name = "x"\nids = "[a-z]{{999999999}}"\n{CALLS}',
}
ASKED = {"id": "1", "messages": [{"role": "user", "content": "hi"}]}
CASES = {
    "deep JSON": "[" * 200_000,
    "deep arguments": '{"id": "1", "calls": [{"name": "a", "arguments": ' + '{"a": ' * 100_000 + "1" + "}" * 100_000 + "}]}",
    "calls that are a number": json.dumps({**ASKED, "calls": 5}),
    "calls that are true": json.dumps({**ASKED, "calls": True}),
    "answers that are a number": json.dumps({**ASKED, "answers": 5}),
    "an expectation that is a list": json.dumps({**ASKED, "expect": [1]}),
    "an expectation that is a mapping": json.dumps({**ASKED, "expect": {"a": 1}}),
    "a category that is a list": json.dumps({**ASKED, "expect": "no_call", "category": [1]}),
    "messages that are a number": json.dumps({**ASKED, "expect": "no_call", "messages": 5}),
    "tools that are a text": json.dumps({**ASKED, "expect": "no_call", "tools": "all"}),
    "arguments that are no numbers": json.dumps({**ASKED, "calls": [{"name": "a", "arguments": {"a": float("nan")}}]}),
    "answers without end": json.dumps({**ASKED, "answers": [{"a": {"b": [float("inf")]}}]}),
    "a number of many digits": '{"id": ' + "9" * 100_000 + "}",
    "half a character": json.dumps({**ASKED, "id": "\ud800", "expect": "no_call"}),
    "a zero byte": "\0" * 1000,
}


@pytest.mark.parametrize("text", PRESETS.values(), ids=PRESETS)
def test_presets_of_others_are_refused_by_an_error_that_names_the_file(text: str, tmp_path: Path):
    file = tmp_path / "presets.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=re.escape(str(file))):
        register_presets_file(file)


@pytest.mark.parametrize("text", FORMATS.values(), ids=FORMATS)
def test_formats_of_others_are_refused_by_an_error_that_names_the_file(text: str, tmp_path: Path):
    file = tmp_path / "format.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=re.escape(str(file))):
        format_in(file)


def test_a_tokenizer_of_others_that_is_nested_without_end_is_refused_by_an_error(tmp_path: Path):
    file = tmp_path / "tokenizer_config.json"
    file.write_text('{"response_template": ' + "[" * 200_000)
    with pytest.raises(UsageError, match=re.escape(str(file))):
        format_in(file)


def test_ids_of_the_length_that_a_format_asks_for_are_made():
    ids = format_from_toml(f'name = "x"\nids = "[a-z]{{64}}"\n{CALLS}').ids
    assert re.fullmatch("[a-z]{64}", fit_id("call_1", ids))


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_cases_of_others_are_refused_by_an_error_that_names_the_line(text: str, tmp_path: Path):
    file = tmp_path / "cases.jsonl"
    file.write_text(f"\n{text}\n")
    with pytest.raises(UsageError, match=re.escape(f"{file}, line 2:")):
        read_cases(file)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero")
def test_a_file_of_cases_that_never_ends_is_refused():
    with pytest.raises(UsageError, match="more than"):
        read_cases(Path("/dev/zero"))
