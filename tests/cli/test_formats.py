"""`callsmith formats`: the list, and detection."""

import json
from pathlib import Path

import pytest

from callsmith.core.events import CallReady
from callsmith.core.values import Tool
from callsmith.formats import format_named, formats
from callsmith.formats.reader.parse import read
from tests.folders_of_others import write_cached, write_ollama
from tests.hub_fixtures import home
from tests.small import shallow_file

__all__ = ["home"]

HERMES = """\
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def test_the_table_names_every_format(callsmith):
    result = callsmith("formats")
    assert result.code == 0
    assert all(name in result.out for name in formats())


def test_the_list_shows_a_call_that_its_format_reads_back(callsmith):
    rows = json.loads(callsmith("formats", "--json").out)
    assert {row["name"] for row in rows} == set(formats())
    for row in rows:
        format = format_named(row["name"])
        events = read(format, row["sample"], [Tool("get_weather")])
        calls = [(event.call.name, event.call.arguments) for event in events if isinstance(event, CallReady)]
        assert calls == [("get_weather", {"city": "Paris"})], row["name"]
        assert (row["aliases"], row["reasoning"]) == (list(format.aliases), format.thinks is not None)
        assert row["ids"] == (format.ids or None)


def test_the_format_of_a_template_is_found_with_evidence(callsmith, tmp_path: Path):
    path = tmp_path / "template.jinja"
    path.write_text(HERMES, "utf-8")
    result = callsmith("formats", "detect", str(path))
    assert result.code == 0
    assert "It reads back 2 of 2 calls" in result.out
    assert '{"name": "probe_alpha", "arguments": {"first_key": "value one"}}' in result.out


def test_a_template_is_also_found_in_a_tokenizer_config(callsmith, tmp_path: Path):
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({"chat_template": HERMES}), "utf-8")
    evidence = json.loads(callsmith("formats", "detect", str(path), "--json").out)
    assert evidence["calls"] == 2
    assert evidence["format"] in formats()


def test_a_template_that_shows_no_calls_has_no_format(callsmith, tmp_path: Path):
    path = tmp_path / "template.jinja"
    path.write_text("{% for message in messages %}{{ message.content }}{% endfor %}", "utf-8")
    result = callsmith("formats", "detect", str(path))
    assert (result.code, result.out) == (1, "")
    assert "no known format" in result.err


@pytest.mark.parametrize(("name", "content"), [("a.json", "{}"), ("a.json", "["), ("a.jinja", "{% if %}")])
def test_a_file_that_holds_no_template_is_told(callsmith, tmp_path: Path, name: str, content: str):
    (tmp_path / name).write_text(content, "utf-8")
    result = callsmith("formats", "detect", str(tmp_path / name))
    assert result.code in (1, 2)
    assert result.err.startswith("error: ")


def test_a_name_that_is_neither_file_nor_model_is_told(callsmith):
    assert callsmith("formats", "detect", "no-such-model").code == 2


def test_a_template_that_is_not_there_is_told_as_a_file(callsmith):
    result = callsmith("formats", "detect", "nope.jinja")
    assert (result.code, result.err.partition(",")[0]) == (2, "error: there is no file nope.jinja")


def test_a_format_is_shown_as_toml_and_as_a_response_template_that_can_be_used(callsmith, tmp_path):
    assert 'name = "hermes"' in callsmith("formats", "show", "hermes").out
    template = tmp_path / "chat_template.jinja"
    template.write_text(HERMES.replace("<|im_start|>assistant", "<|im_start|>assistant\n<think>"), encoding="utf-8")
    result = callsmith("formats", "show", "qwen3-coder", "--as", "response-template", "--template", str(template))
    response_template = json.loads(result.out)["response_template"]
    assert response_template["start_anchor"] == "<|im_start|>assistant\n"
    assert r"<\|im_end\|>" in response_template["fields"]["content"]["close_pattern"]
    assert "not said: types of arguments" in result.err
    config = tmp_path / "tokenizer_config.json"
    config.write_text(result.out, encoding="utf-8")
    assert "keeps the laws" in callsmith("formats", "check", str(config)).out
    text = tmp_path / "answer.txt"
    text.write_text(
        "<tool_call>\n<function=dig>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call><|im_end|>", encoding="utf-8"
    )
    read = json.loads(callsmith("parse", str(text), "--format-file", str(config)).out)
    assert [call["name"] for call in read["calls"]] == ["dig"] and read["content"] is None


def test_what_cannot_be_shown_as_a_response_template_is_an_error(callsmith):
    result = callsmith("formats", "show", "minimax-m3", "--as", "response-template")
    assert result.code == 2 and "nested elements" in result.err


@pytest.mark.weights
def test_the_template_of_a_gguf_file_is_taken_from_it(callsmith):
    pytest.importorskip("xllamacpp")
    result = callsmith("formats", "detect", str(shallow_file()))
    assert result.code == 1 and "shows no calls" in result.err  # it was read


@pytest.mark.weights
def test_the_template_of_a_model_that_another_program_has_is_found_by_its_name(callsmith, home: Path):
    write_ollama(home / ".ollama" / "models", "registry.ollama.ai/library/smollm2/135m", shallow_file())
    config = b'{"architectures": ["Qwen2ForCausalLM"]}'
    files = {"config.json": config, "model.safetensors": b"x", "chat_template.jinja": HERMES.encode()}
    write_cached(home / ".cache" / "huggingface" / "hub", "org/chat", files)
    assert callsmith("formats", "detect", "org/chat").out.startswith("hermes")
    by_name, by_path = callsmith("formats", "detect", "smollm2:135m"), callsmith("formats", "detect", str(shallow_file()))
    assert (by_name.code, by_name.out) == (by_path.code, by_path.out)
    assert "smollm2:135m" in callsmith("formats", "detect", "nobody").err
