"""In which format a model writes, where its tokenizer describes its answers by a response template."""

import json
import logging

from callsmith.core.values import Json
from callsmith.engines.completions.tokenizer import read_tokenizer_config
from callsmith.formats import format_named
from callsmith.formats.huggingface.write import format_to_response_template
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.opening import resolve_format
from tests.cli.test_formats import HERMES

DOTS: Json = format_to_response_template(format_named("dots"), "<|im_start|>assistant\n").template
OWN = HERMES.replace("<tool_call>", "<act>").replace("</tool_call>", "</act>")


def test_a_response_template_counts_where_the_chat_template_shows_no_calls() -> None:
    choice = resolve_format(None, Template(CHATML), None, DOTS)
    assert choice and choice.format.name == "response-template"
    assert choice.format.calls.open == ("<dots_function_call>",)


def test_a_known_format_that_the_chat_template_speaks_counts_more() -> None:
    choice = resolve_format(None, Template(HERMES), None, DOTS)
    assert choice and choice.format.name == "hermes"


def test_the_response_template_counts_more_where_a_known_format_leaves_markers_in_the_text() -> None:
    known = resolve_format(None, Template(OWN), None)
    assert known and known.format.name == "json"
    described = json.dumps(format_to_response_template(format_named("hermes"), "x").template).replace("tool_call>", "act>")
    choice = resolve_format(None, Template(OWN), None, json.loads(described))
    assert choice and choice.format.name == "response-template"


def test_a_response_template_that_no_format_can_express_is_said_and_not_used(caplog) -> None:
    with caplog.at_level(logging.WARNING):
        assert resolve_format(None, Template(CHATML), None, {"fields": {"content": {}}}) is None
    assert "no `tool_calls`" in caplog.text


def test_the_settings_of_a_tokenizer_carry_it() -> None:
    assert read_tokenizer_config({"chat_template": CHATML, "response_template": DOTS}).response_template == DOTS
