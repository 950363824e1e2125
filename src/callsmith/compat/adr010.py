"""The names of RuvLLM's ADR-010, "Function Calling / Tool Use".

    tools = [ToolDefinition.new("get_weather").parameter("location", JsonSchema.string()).required(["location"])]
    backend = LlmBackend(open_model("qwen2.5-coder-1.5b"))
    request = ToolCallRequest(messages=[ChatMessage.user("What's the weather in San Francisco?")], tools=tools)
    for call in backend.generate_with_tools(request).tool_calls or []:
        print(call.function.name, call.function.arguments)

Where Rust has `ToolChoice::None`, which Python cannot spell, it is `ToolChoice.None_`.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass

from callsmith.compat import FunctionCall, ToolCall, tool_calls
from callsmith.core.events import RunEvent, TurnEnded
from callsmith.core.ports import Model
from callsmith.core.values import Choice, Message, Request, Result, Sampling, Schema, Tool
from callsmith.formats import format_named
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.prompt import prompt_for
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.reader.parse import parse
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.targets.gbnf import to_gbnf
from callsmith.models.templates import template_named
from callsmith.runtime.conversation.conversation import Conversation
from callsmith.runtime.deferred import GivenTools
from callsmith.runtime.loop import AnswerBuilder
from callsmith.runtime.sync import collect
from callsmith.tools.define import Definition, array, boolean, define, enum, integer, number, object_, string

__all__ = [
    "ChatMessage",
    "ConstrainedToolGenerator",
    "ConversationTurn",
    "FunctionCall",
    "GenerateParams",
    "GenericXmlToolTemplate",
    "Grammar",
    "JsonSchema",
    "Llama31ToolTemplate",
    "LlmBackend",
    "MistralToolTemplate",
    "QwenToolTemplate",
    "ToolCall",
    "ToolCallRequest",
    "ToolCallingTemplate",
    "ToolChoice",
    "ToolConversation",
    "ToolDefinition",
    "ToolResult",
]  # fmt: skip

ChatMessage = Message
GenerateParams = Sampling
_JSON = format_named("json")


class JsonSchema:
    """Schemas: `JsonSchema.string()`, `JsonSchema.enum_values(["celsius", "fahrenheit"])`."""

    string, integer, number, boolean = (staticmethod(item) for item in (string, integer, number, boolean))
    array, object, enum_values = staticmethod(array), staticmethod(object_), staticmethod(enum)


class ToolChoice:
    """Whether tools may or must be called."""

    Auto, None_, Required = Choice("auto"), Choice("none"), Choice("required")
    Specific = staticmethod(Choice.only)


class ToolDefinition:
    """A tool: made at once, or built (`ToolDefinition.new(…)`)."""

    new = staticmethod(define)

    def __new__(cls, name: str, description: str, parameters: Schema, required: Sequence[str] = ()) -> Tool:
        return Tool(name, description, {**parameters, "required": list(required)} if required else parameters)


def ToolCallRequest(
    messages: Iterable[Message],
    tools: Iterable[Tool | Definition] = (),
    tool_choice: Choice = ToolChoice.Auto,
    parallel_tool_calls: bool = True,
    params: Sampling = GenerateParams(),
) -> Request:
    return Request(tuple(messages), _built(tools), tool_choice, parallel_tool_calls, params)


def _built(tools: Iterable[Tool | Definition]) -> tuple[Tool, ...]:
    return tuple(tool.build() if isinstance(tool, Definition) else tool for tool in tools)


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """What the model has said."""

    content: str | None = None
    tool_calls: list[ToolCall] | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the tool of a call gave: text, or JSON as text."""

    tool_call_id: str
    output: str


@dataclass(frozen=True, slots=True)
class LlmBackend:
    """A model, asked without an event loop."""

    model: Model

    def generate_with_tools(self, request: Request) -> ConversationTurn:
        answer = AnswerBuilder()
        for event in collect(self.model.stream(request)):
            answer.add(event)
        return ConversationTurn("".join(answer.text) or None, tool_calls(answer.calls) or None)


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar in GBNF."""

    rules: str


class ConstrainedToolGenerator:
    """Calls that cannot but be valid."""

    def generate_tool_calls(
        self, model: LlmBackend, prompt: str, tools: Iterable[Tool | Definition], params: Sampling = GenerateParams()
    ) -> list[ToolCall]:
        request = ToolCallRequest([Message.user(prompt)], tools, ToolChoice.Required, params=params)
        return model.generate_with_tools(request).tool_calls or []

    def compile_tool_grammar(self, tools: Iterable[Tool | Definition]) -> Grammar:
        grammar = grammar_for(_JSON, _built(tools), ToolChoice.Required, parallel=False)
        assert grammar is not None  # calls are required
        return Grammar(to_gbnf(grammar).text)


class ToolConversation:
    """A conversation without an event loop. Calls of definitions are the caller's; functions among the tools run here."""

    def __init__(self, backend: LlmBackend | Model, tools: GivenTools | None = None) -> None:
        self._conversation = Conversation(backend.model if isinstance(backend, LlmBackend) else backend, tools)

    @property
    def messages(self) -> tuple[Message, ...]:
        return self._conversation.messages

    def send_message(self, content: str) -> ConversationTurn:
        return self._turn(self._conversation.stream(content))

    def submit_tool_results(self, results: Iterable[ToolResult]) -> ConversationTurn:
        tool_results = [Result(result.tool_call_id, "", result.output) for result in results]
        return self._turn(self._conversation.stream_results(tool_results))

    def _turn(self, events: AsyncGenerator[RunEvent, None]) -> ConversationTurn:
        ended = collect(events)[-1]
        assert isinstance(ended, TurnEnded)  # a turn ends in nothing else
        return ConversationTurn(ended.text or None, tool_calls(self._conversation.calls) or None)


@dataclass(frozen=True)
class ToolCallingTemplate:
    """How a family of models is shown tools, and how it writes calls."""

    format: Format
    template: Template

    def format_with_tools(
        self, messages: Iterable[Message], tools: Iterable[Tool | Definition], tool_choice: Choice = ToolChoice.Auto
    ) -> str:
        request = ToolCallRequest(messages, tools, tool_choice)
        return prompt_for(request, tool_choice.among(request.tools), self.template, self.format).text

    def parse_tool_calls(self, output: str) -> list[ToolCall]:
        return tool_calls(parse(self.format, output).calls)

    def has_native_support(self) -> bool:
        return self.template.traits.tools


def _family(format: str, template: str) -> ToolCallingTemplate:
    return ToolCallingTemplate(format_named(format), Template(template))


Llama31ToolTemplate = _family("llama3-json", template_named("llama3.1"))
MistralToolTemplate = _family("mistral", template_named("mistral"))
QwenToolTemplate = _family("hermes", template_named("qwen2.5"))
GenericXmlToolTemplate = _family("generic-xml", CHATML)
