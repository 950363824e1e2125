"""How much is to be thought, in the words of every dialect: read, written back, and refused where it is nonsense."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from callsmith.core.errors import UsageError
from callsmith.core.values import Message, Request, Sampling
from callsmith.wire.anthropic import messages
from callsmith.wire.ollama import requests as ollama
from callsmith.wire.openai import chat, responses
from callsmith.wire.upstream.dialects import dialect_named
from callsmith.wire.upstream.quirks import Quirks, fit_request

HI = [{"role": "user", "content": "hi"}]
READ: dict[str, Callable[[dict[str, Any]], Request]] = {
    "chat": lambda more: chat.read_request({"messages": HI, **more}).request,
    "responses": lambda more: responses.read_request({"input": "hi", **more}).request,
    "messages": lambda more: messages.read_request({"max_tokens": 50_000, "messages": HI, **more}).request,
    "ollama": lambda more: ollama.read_chat({"messages": HI, **more}).request,
}
NAMES = ("thinking_token_budget", "thinking_budget", "thinking_budget_tokens", "max_thinking_tokens")
EVERY = pytest.mark.parametrize("dialect", READ)


def asked(request: Request) -> tuple[bool | None, str | None, int | None]:
    return request.thinking, request.effort, request.thinking_budget


@EVERY
@pytest.mark.parametrize("name", NAMES)
def test_a_budget_has_several_names(dialect: str, name: str):
    assert asked(READ[dialect]({name: 300})) == (None, None, 300)
    assert asked(READ[dialect]({name: 0})) == (False, None, None)
    assert asked(READ[dialect]({name: -1})) == (None, None, None)
    assert asked(READ[dialect]({name: 300, "thinking_budget": 200})) == (None, None, 200)


@EVERY
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [-2, 10**30, "300", "", True, float("nan"), float("inf"), 1.5, [], {}])
def test_a_budget_that_is_no_number_of_tokens_is_refused(dialect: str, name: str, value: Any):
    with pytest.raises(UsageError) as caught:
        READ[dialect]({name: value})
    assert caught.value.field == name and name in str(caught.value)


@pytest.mark.parametrize(
    ("dialect", "body", "expected"),
    [
        ("chat", {"reasoning_effort": "minimal"}, (True, "minimal", None)),
        ("chat", {"reasoning_effort": "none"}, (False, None, None)),
        ("chat", {"chat_template_kwargs": {"enable_thinking": True, "thinking_budget": 9}}, (True, None, 9)),
        ("chat", {"chat_template_kwargs": {"reasoning_effort": "high"}}, (True, "high", None)),
        ("chat", {"chat_template_kwargs": {"enable_thinking": False}, "thinking_budget": 9}, (False, None, None)),
        ("chat", {"enable_thinking": False}, (False, None, None)),
        ("chat", {"thinking": {"type": "disabled"}}, (False, None, None)),
        ("chat", {"thinking": {"type": "enabled", "budget_tokens": 900}, "reasoning_effort": "high"}, (True, "high", 900)),
        ("chat", {"thinking": {"type": "auto"}}, (None, None, None)),
        ("chat", {"thinking": False}, (False, None, None)),
        ("chat", {"reasoning": {"effort": "none"}}, (False, None, None)),
        ("chat", {"reasoning": {"effort": "low", "max_tokens": 300}}, (True, "low", 300)),
        ("chat", {"reasoning": {"enabled": False}}, (False, None, None)),
        ("chat", {"reasoning": {}, "enable_thinking": None}, (None, None, None)),
        ("chat", {"chat_template_kwargs": {"enable_thinking": True}, "enable_thinking": False}, (True, None, None)),
        ("responses", {"reasoning": {"effort": "xhigh"}}, (True, "xhigh", None)),
        ("responses", {"reasoning": {"effort": "low"}, "thinking_budget": 9}, (True, "low", 9)),
        ("messages", {"thinking": {"type": "enabled", "budget_tokens": 2000}}, (True, None, 2000)),
        ("messages", {"thinking": {"type": "enabled", "budget_tokens": 0}}, (False, None, None)),
        ("messages", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, (True, "low", None)),
        ("messages", {"output_config": {"effort": "max"}}, (None, "max", None)),
        ("messages", {"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}}, (False, None, None)),
        ("ollama", {"think": "high"}, (True, "high", None)),
        ("ollama", {"think": True, "thinking_budget": 9}, (True, None, 9)),
        ("ollama", {"think": False}, (False, None, None)),
    ],
)
def test_an_effort_and_a_budget_are_read(dialect: str, body: dict[str, Any], expected: tuple[Any, ...]):
    assert asked(READ[dialect](body)) == expected


@pytest.mark.parametrize(
    ("dialect", "body", "field"),
    [
        ("chat", {"reasoning_effort": "lots"}, "reasoning_effort"),
        ("chat", {"reasoning_effort": 3}, "reasoning_effort"),
        ("chat", {"reasoning_effort": "x" * 10**6}, "reasoning_effort"),
        ("chat", {"chat_template_kwargs": {"thinking_budget": -5}}, "chat_template_kwargs.thinking_budget"),
        ("chat", {"chat_template_kwargs": {"reasoning_effort": True}}, "chat_template_kwargs.reasoning_effort"),
        ("chat", {"thinking": {"type": "lots"}}, "thinking.type"),
        ("chat", {"thinking": {}}, "thinking.type"),
        ("chat", {"reasoning": {"effort": "lots"}}, "reasoning.effort"),
        ("chat", {"reasoning": {"enabled": "yes"}}, "reasoning.enabled"),
        ("responses", {"reasoning": {"effort": "lots"}}, "reasoning.effort"),
        ("responses", {"reasoning": {"effort": 1}}, "reasoning.effort"),
        ("messages", {"thinking": {"type": "enabled", "budget_tokens": 50_000}}, "thinking.budget_tokens"),
        ("messages", {"thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking.budget_tokens"),
        ("messages", {"thinking": {"type": "enabled", "budget_tokens": "9"}}, "thinking.budget_tokens"),
        ("messages", {"thinking": {"type": "enabled", "budget_tokens": True}}, "thinking.budget_tokens"),
        ("messages", {"thinking": {"type": "enabled", "budget_tokens": 10**40}}, "thinking.budget_tokens"),
        ("messages", {"output_config": {"effort": "lots"}}, "output_config.effort"),
        ("ollama", {"think": "lots"}, "think"),
        ("ollama", {"think": 5}, "think"),
    ],
)
def test_nonsense_is_refused_by_name(dialect: str, body: dict[str, Any], field: str):
    with pytest.raises(UsageError) as caught:
        READ[dialect](body)
    assert caught.value.field == field
    assert len(str(caught.value)) < 400


ASK = Request((Message.user("hi"),), sampling=Sampling(max_tokens=9000))
WISHES = [
    replace(ASK, thinking=True, effort="low"),
    replace(ASK, thinking=True, thinking_budget=700),
    replace(ASK, thinking=True, effort="max", thinking_budget=700),
    replace(ASK, thinking_budget=700),
    replace(ASK, thinking=True),
    replace(ASK, thinking=False),
]


@pytest.mark.parametrize("request_", WISHES, ids=lambda request: str(asked(request)))
def test_what_is_written_is_read_back(request_: Request):
    for name, write, read in (
        ("chat", lambda: chat.write_request(chat.ChatRequest("m", request_)), chat.read_request),
        ("responses", lambda: responses.write_request(responses.ResponsesRequest("m", request_)), responses.read_request),
        ("messages", lambda: messages.write_request(messages.MessagesRequest("m", request_)), messages.read_request),
        ("ollama", lambda: ollama.write_chat(ollama.OllamaRequest("m", request_)), ollama.read_chat),
    ):
        assert asked(read(write()).request) == asked(request_), name


def sent(dialect: str, quirks: Quirks, **wishes: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    request, left_out = fit_request(replace(ASK, **wishes), quirks)
    body = dialect_named(dialect).write("m", request, {}, quirks)
    fields = ("reasoning_effort", "reasoning", "thinking", "think", "output_config", "chat_template_kwargs", *NAMES)
    return {name: body[name] for name in fields if name in body}, left_out


def test_other_servers_are_asked_in_their_own_words():
    none = Quirks(budget="")
    assert sent("chat", Quirks(), thinking_budget=700) == ({"thinking_token_budget": 700}, ())
    assert sent("chat", Quirks(budget="thinking_budget_tokens"), thinking_budget=7) == ({"thinking_budget_tokens": 7}, ())
    assert sent("chat", Quirks(switch="effort", budget=""), thinking=True, effort="low")[0] == {"reasoning_effort": "low"}
    assert sent("chat", Quirks(switch="effort", budget=""), thinking=True)[0] == {"reasoning_effort": "medium"}
    assert sent("chat", Quirks(switch="effort"), thinking=False)[0] == {"reasoning_effort": "none"}
    body, notices = sent("chat", Quirks(switch="effort", budget=""), thinking_budget=2000)
    assert body == {"reasoning_effort": "low"} and notices == ("thinking_budget: this API takes no tokens, but the effort low",)
    assert sent("chat", Quirks(switch="reasoning"), thinking_budget=700)[0] == {"reasoning": {"enabled": True, "max_tokens": 700}}
    assert sent("chat", Quirks(switch="reasoning"), effort="low")[0] == {"reasoning": {"enabled": True, "effort": "low"}}
    assert sent("chat", Quirks(switch="", efforts=(), budget=""), effort="low") == ({}, ("effort: this API does not take it",))
    assert sent("chat", Quirks(), thinking_budget=0)[0] == {"chat_template_kwargs": {"enable_thinking": False}}
    assert sent("ollama", Quirks(efforts=("low", "high"), budget=""), effort="minimal")[0] == {"think": "low"}
    assert sent("anthropic", none, thinking=True, thinking_budget=9000)[0] == {
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "medium"},
    }
    assert sent("anthropic", Quirks(), thinking=True, thinking_budget=9000)[0] == {"thinking": {"type": "adaptive"}}
    vendor = replace(none, history="signed")
    assert sent("responses", vendor, thinking=True)[0] == {"reasoning": {"effort": "medium", "summary": "auto"}}
    assert sent("responses", vendor, thinking=True, effort="high")[0] == {"reasoning": {"effort": "high", "summary": "auto"}}
