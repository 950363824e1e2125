"""The grammar that goes with a request to another server: only where a call is required, and the server can be told."""

from collections.abc import Mapping
from typing import Any

import pytest

from callsmith.core.errors import UsageError
from callsmith.core.values import Choice, Message, Request, Tool
from callsmith.formats import format_named
from callsmith.models import grammars
from callsmith.models.grammars import grammar_fields

HERMES = format_named("hermes")
TOOL = Tool("look", "", {"type": "object", "properties": {"at": {"type": "string"}}})


def fields(mode: Any = "required", server: Any = "vllm", tools: tuple[Tool, ...] = (TOOL,)) -> Mapping[str, Any]:
    request = Request((Message.user("Look."),), tools, Choice(mode))
    return grammar_fields(HERMES, tools, request, server)


@pytest.mark.parametrize("server", ["vllm", "sglang", "llama-server"])
def test_a_required_call_is_held_by_the_servers_own_field(server: str) -> None:
    assert "look" in str(fields(server=server))


@pytest.mark.parametrize("server", ["vllm", "sglang", "llama-server"])
def test_the_text_of_a_custom_tool_is_held_by_its_own_grammar(server: str) -> None:
    grammar = {"syntax": "lark", "definition": 'start: "<<" start ">>" | "word"'}
    text = {"type": "string", "x-grammar": grammar}
    assert "word" in str(fields(server=server, tools=(Tool("f", "", {"type": "object", "properties": {"input": text}}),)))


@pytest.mark.parametrize(("mode", "server"), [("auto", "vllm"), ("none", "vllm"), ("required", "")])
def test_where_nothing_is_required_or_no_grammar_is_taken_there_are_no_fields(mode: str, server: str) -> None:
    assert fields(mode, server) == {}


def test_what_a_server_cannot_be_told_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(grammar: object) -> None:
        raise UsageError("this target cannot say that")

    monkeypatch.setitem(grammars._UPSTREAM_TARGETS, "vllm", refuse)
    assert fields() == {}
