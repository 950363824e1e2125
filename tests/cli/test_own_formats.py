"""Formats of the user's own on the command line: worked out, checked, used."""

import json
from pathlib import Path

import pytest

from callsmith.models import presets

TEMPLATE = """\
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for message in messages %}<role {{ message.role }}>{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<|run {{ call.function.name }}|>{{ call.function.arguments | tojson }}<|ran|>
{%- endfor %}<over>
{% endfor %}
{%- if add_generation_prompt %}<role assistant>{% endif %}"""
CALL = '<|run get_weather|>{"city": "Paris"}<|ran|>'
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture(scope="module")
def saved(callsmith, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A format worked out from a template beside it, and kept."""
    folder = tmp_path_factory.mktemp("formats")
    (folder / "template.jinja").write_text(TEMPLATE, "utf-8")
    path = folder / "my-runner.toml"
    result = callsmith("formats", "detect", str(folder / "template.jinja"), "--save", str(path))
    assert result.code == 0
    assert "No known format reads it" in result.out
    return path


@pytest.mark.req("R45")
def test_a_format_that_is_worked_out_can_be_kept_checked_and_used(callsmith, saved: Path):
    checked = callsmith("formats", "check", str(saved))
    assert checked.code == 0
    assert CALL in checked.out
    read = callsmith("parse", "--format-file", str(saved), stdin=CALL)
    assert json.loads(read.out)["calls"] == [{"name": "get_weather", "arguments": {"city": "Paris"}}]


def test_a_grammar_is_made_of_it(callsmith, saved: Path, tmp_path: Path):
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS), "utf-8")
    result = callsmith("grammar", "--tools", str(tmp_path / "tools.json"), "--format-file", str(saved))
    assert result.code == 0
    assert "<|run get_weather|>" in result.out


def test_it_is_a_model_s_format_too(callsmith, saved: Path):
    result = callsmith("chat", "--model", f"scripted:{CALL}", "--tools", "demo", "--format-file", str(saved), "Weather?")
    assert "get_weather" in result.out
    assert "<|run" not in result.out


def test_json_holds_the_format_and_what_the_template_wrote(callsmith, saved: Path):
    body = json.loads(callsmith("formats", "detect", str(saved.parent / "template.jinja"), "--json").out)
    assert body["format"] is None
    assert 'kind = "calls"' in body["inferred"]
    assert "<|run tourmaline_fn|>" in body["rendered"]


def test_an_unsound_format_is_told_with_the_law_and_the_text(callsmith, tmp_path: Path):
    path = tmp_path / "unsound.toml"
    path.write_text('name = "x"\n[[parts]]\nkind = "calls"\nitem = "<call {name}_{args}>"', "utf-8")
    result = callsmith("formats", "check", str(path))
    assert result.code == 1
    assert "broken: what is written is read back" in result.out
    assert "<call get_weather_{" in result.out


def test_a_file_that_is_no_format_is_a_usage_error(callsmith, tmp_path: Path):
    path = tmp_path / "empty.toml"
    path.write_text("", "utf-8")
    result = callsmith("formats", "check", str(path))
    assert result.code == 2
    assert "empty.toml: the format, name: is required" in result.err


def test_calls_inside_reasoning_can_be_ignored(callsmith):
    script = 'scripted:<think><tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call></think>Done.'
    ask = ("chat", "--model", script, "--format", "hermes", "--tools", "demo", "Weather?")
    assert "get_weather" in callsmith(*ask).out
    result = callsmith(*ask, "--in-reasoning", "ignore")
    assert (result.code, "→ get_weather" in result.out) == (0, False)
    assert callsmith(*ask, "--in-reasoning", "never").code == 2


def test_presets_of_ones_own_say_what_a_model_is(callsmith, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(presets, "_registered", [])
    (tmp_path / "presets.toml").write_text('[mine]\nmodels = ["script*"]\nformats = ["json"]\n', "utf-8")
    call = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
    ask = ("chat", "--model", f"scripted:{call}", "--tools", "demo", "Weather?")
    assert call in callsmith(*ask).out  # in no format that is known of it
    result = callsmith(*ask, "--presets", str(tmp_path / "presets.toml"))
    assert "get_weather" in result.out
    assert call not in result.out
