"""The values of the library, as frozen data: Tool, Call, Result, Message, Choice, Output, Sampling, Request, Usage."""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal, TypeAlias, get_origin

from callsmith.core.capability.binding import Binding
from callsmith.core.capability.origin import NOWHERE, Origin
from callsmith.core.errors import ModelError, UnknownName, UsageError
from callsmith.core.types.field_checks import check_argument, check_fields, examine_fields
from callsmith.core.types.json_types import Json, Schema
from callsmith.core.types.model_step import ModelStep
from callsmith.core.types.sampling import Sampling as Sampling
from callsmith.core.types.sampling import TokenBias as TokenBias
from callsmith.core.types.sampling import TokenLogprob as TokenLogprob
from callsmith.core.types.thinking import Effort as Effort
from callsmith.core.types.thinking import budget_of

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Mode: TypeAlias = Literal["auto", "none", "required"]
# What an "auto" choice is turned into: nothing else, a required call until there is a first result, or a required call always.
InReasoning: TypeAlias = Literal["recover", "ignore"]  # calls inside the reasoning, where there is none outside
Repair: TypeAlias = Literal["auto", "on", "off"]  # calls that a remote model writes as text are read
ChoicePolicy: TypeAlias = Literal["auto", "required_first_hop", "required_always"]

_write_json = json.JSONEncoder(ensure_ascii=False).encode  # as json.dumps does, which makes an encoder each time
TOOL_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,256}")


def _no_parameters() -> Schema:
    return {"type": "object", "properties": {}}


@check_fields
@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that can be called. A model sees the first five fields; the others say how to run it and are never sent.

    `source` is where it comes from, `original` its name there if it has another one here. One that is `deferred` is shown to the
    model only when a search has found it. `binding` is the capability of another program that runs it, if one does.
    `cache_seconds` is how long a result may be used again in the same conversation, where results are cached (`Cached`): 0 is
    never, None as the cache says. Only an idempotent tool without side effects can have it. A call of a `background` tool is
    answered with a job, whose result comes into the conversation when it is there. `kind` is what a request calls a tool that is
    no function ("custom", "bash_20250124", …): only `wire` knows kinds, to write calls in their shape.
    """

    name: str
    description: str = ""
    parameters: Schema = field(default_factory=_no_parameters)
    output: Schema | None = None
    strict: bool = False
    side_effects: bool = False
    idempotent: bool = False
    timeout: float | None = None
    source: str = ""
    original: str = ""
    deferred: bool = False
    binding: Binding | None = None
    cache_seconds: float | None = None
    background: bool = False
    kind: str = ""

    def __post_init__(self) -> None:
        if not TOOL_NAME.fullmatch(self.name):
            raise UsageError(f"tool name {self.name!r} must be 1 to 256 letters, digits, '_', '-', '.', ':' or '/'")
        if self.cache_seconds and (self.side_effects or not self.idempotent):
            raise UsageError(
                f"tool {self.name!r}: results can be cached only of a tool that is idempotent and has no side effects",
                field="cache_seconds",
            )

    @property
    def digest(self) -> str:
        """What tells this definition from any other: a hash of source, original name, description, schemas and hints.

        It is the same under whatever name the tool is shown.
        """
        hints = [self.side_effects, self.idempotent]
        definition = [self.source, self.original or self.name, self.description, self.parameters, self.output, hints]
        if self.binding is not None:
            definition.append(repr(self.binding))
        return sha256(json.dumps(definition, sort_keys=True, default=dict).encode()).hexdigest()[:32]

    @property
    def bound_capability(self) -> str | None:
        """The name of the capability that runs this tool, if one does."""
        return self.binding.capability if self.binding else None

    @property
    def bound_version(self) -> tuple[int, int] | None:
        """The version of that capability that is asked for."""
        return self.binding.version if self.binding else None

    @property
    def grant(self) -> str:
        """How a conversation remembers that this tool, under this name and with this definition, needs no further approval."""
        return f"{self.name}@{self.digest}"


@check_fields
@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `text` is the arguments as the JSON text that was read; `arguments` is the same, parsed."""

    name: str
    arguments: Mapping[str, Json] = field(default_factory=dict[str, Json])
    id: str = ""
    text: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.text:
            object.__setattr__(self, "text", _write_json(self.arguments))


@check_fields
@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call. `code` names the kind of failure: bad_request, not_found, timeout, internal_error, …"""

    call_id: str
    name: str
    content: Json
    ok: bool = True
    code: str = ""

    @property
    def text(self) -> str:
        """The content as the model reads it."""
        return value if isinstance(value := self.content, str) else str(value) if type(value) is int else _write_json(value)


@check_fields
@dataclass(frozen=True, slots=True)
class Image:
    """An image in a message: its address, or the image itself as a data: URL. `at` is its place in the content."""

    url: str
    at: int = 0
    detail: str = ""

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str = "image/png") -> "Image":
        return cls(f"data:{media_type};base64,{b64encode(data).decode()}")


@check_fields
@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. `calls` on the assistant's, `call_id` and `name` on a tool's, `images` on a user's."""

    role: Role
    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    name: str = ""
    images: tuple[Image, ...] = ()

    @property
    def size(self) -> int:
        """How many characters it has, with those of its calls' arguments."""
        return len(self.content) + len(self.reasoning) + sum([len(call.text) for call in self.calls])

    @property
    def parts(self) -> list[str | Image]:
        """Text and images in their order. A line break that separates two texts is left out where an image does."""
        parts: list[str | Image] = []
        start = 0
        for image in self.images:
            if image.at > start:
                parts.append(self.content[start : image.at])
            start = max(start, image.at)
            parts.append(image)
            if start and start == image.at and self.content.startswith("\n", start):
                start += 1
        return [*parts, self.content[start:]] if start < len(self.content) else parts

    @classmethod
    def system(cls, content: str) -> "Message":
        return cls("system", content)

    @classmethod
    def user(cls, content: str, *, images: Iterable[Image] = ()) -> "Message":
        return cls("user", content, images=tuple(images))

    @classmethod
    def assistant(cls, content: str = "", *, reasoning: str = "", calls: Iterable[Call] = ()) -> "Message":
        return cls("assistant", content, reasoning, tuple(calls))

    @classmethod
    def tool(cls, result: Result) -> "Message":
        if type(result) is not Result:
            check_argument("result", result, Result)
        return cls("tool", result.text, call_id=result.call_id, name=result.name)


@check_fields
@dataclass(frozen=True, slots=True)
class Choice:
    """Whether tools may or must be called, and which: `names` limits the choice to some of them (empty: all)."""

    mode: Mode = field(default="auto", metadata={"advice": "Choice.only('get_weather') requires the tool of that name"})
    names: tuple[str, ...] = ()

    @classmethod
    def only(cls, *names: str) -> "Choice":
        """Exactly this tool (or one of these) must be called."""
        return cls("required", names)

    def among(self, tools: Iterable[Tool]) -> tuple[Tool, ...]:
        """Those of the tools that may be called. A name that is not among them is an error."""
        offered = {tool.name: tool for tool in tools}
        for name in self.names:
            if name not in offered:
                raise UnknownName("tool", name, offered, field="tool_choice")
        if self.mode == "none":
            return ()
        if self.mode == "required" and not offered:
            raise UsageError("a tool call is required, but there are no tools", field="tool_choice")
        if self.names:
            return tuple(offered[name] for name in self.names)
        # The same object if nothing changes: caches that know it by identity find it again.
        return tools if isinstance(tools, tuple) and len(tools) == len(offered) else tuple(offered.values())


@dataclass(frozen=True, slots=True, init=False)
class Output:
    """What the text of an answer must be: JSON that fits a schema or a Python type, one of several texts, a match of a regular
    expression, or text that a grammar accepts, which is written in Lark or in GBNF. Exactly one of them.

    A type (a pydantic model, a dataclass, `list[int]`, …) becomes a schema, and the answer is parsed into it: `value_type`.
    `strict`: where part of a schema can only be checked afterwards, an answer that fails twice is an error and not an answer.
    `as_written`: the schema is taken at its word: objects have other properties too unless it closes them, in any order.
    """

    schema: Schema | None = field(default=None, metadata={"advice": "a JSON Schema, or a type: a pydantic model, a dataclass"})
    choices: tuple[str, ...] = ()
    pattern: str = ""
    grammar: str = ""
    strict: bool = False
    value_type: Any = None
    as_written: bool = False

    def __init__(
        self,
        schema: Schema | type[Any] | None = None,
        choices: tuple[str, ...] = (),
        pattern: str = "",
        grammar: str = "",
        strict: bool = False,
        value_type: Any = None,
        as_written: bool = False,
    ) -> None:
        if isinstance(schema, type) or get_origin(schema) is not None:
            from callsmith.core.schema import schema_of

            schema, value_type = schema_of(schema), schema
        values = (schema, choices, pattern, grammar, strict, value_type, as_written)
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)
        examine_fields(self)
        if sum((self.schema is not None, bool(self.choices), bool(self.pattern), bool(self.grammar))) != 1:
            raise UsageError("an output is given by exactly one of: a schema, choices, a pattern, a grammar", field="output")
        if "" in self.choices:
            raise UsageError("an empty text is no choice", field="output")

    @classmethod
    def json_object(cls) -> "Output":
        """Any JSON object."""
        return cls({"type": "object"})

    def parse(self, text: str) -> Any:
        """The value of an answer: of the type asked for, else parsed JSON, else the text. A ModelError if it does not fit."""
        if self.schema is None:
            return text
        try:
            if self.value_type is None:
                return json.loads(text)
            from callsmith.core.schema import parse_as

            return parse_as(self.value_type, text)
        except (ValueError, RecursionError) as error:
            wanted = getattr(self.value_type, "__name__", "JSON")
            raise ModelError(f"the answer is not a valid {wanted}: {error}", retryable=True) from error


@check_fields
@dataclass(frozen=True, slots=True)
class Request:
    """What a model is asked. `parallel`, `thinking` and `policy`: None means as the model's own settings say.

    `output` constrains the text, not the calls: where tools are offered, the answer is calls or the output. `prefill`: a last
    message of the assistant's is the beginning of the answer, which the model continues. `explain` is called with each step of
    the model when that has ended, also with one that is taken back. `call_bias`, in log odds, makes calls likelier (or, below 0,
    rarer) where it is decided whether to call; None: as the model's own settings say. `thinking_budget` is the most tokens of
    reasoning, `effort` how much of it is wanted.
    """

    messages: tuple[Message, ...] = field(metadata={"advice": "Message.user('…') makes one of a text"})
    tools: tuple[Tool, ...] = ()
    choice: Choice = Choice()
    parallel: bool | None = None
    sampling: Sampling = Sampling()
    thinking: bool | None = None
    output: Output | None = None
    policy: ChoicePolicy | None = None
    origin: Origin = NOWHERE
    prefill: bool = False
    explain: Callable[[ModelStep], None] | None = field(default=None, compare=False, repr=False)
    call_bias: float | None = None
    effort: Effort | None = None
    thinking_budget: int | None = None

    def __post_init__(self) -> None:
        if self.thinking_budget is not None and self.thinking_budget < 0:
            raise UsageError(f"thinking_budget: expected 0 or more tokens, got {self.thinking_budget}", field="thinking_budget")

    def in_session(self, session: str) -> "Request":
        """The same request, as a part of that conversation."""
        return replace(self, origin=replace(self.origin, session=session))

    @property
    def thinking_limit(self) -> int | None:
        """The most tokens of reasoning: 0 is none at all, None as many as the model likes."""
        if self.thinking is False:
            return 0
        return budget_of(self.effort, self.sampling.max_tokens) if self.thinking_budget is None else self.thinking_budget

    @property
    def prefilled(self) -> Message | None:
        """The message that the answer goes on from, if there is one."""
        last = self.messages[-1] if self.prefill and self.messages else None
        return last if last and last.role == "assistant" and not last.calls else None


@dataclass(frozen=True, slots=True)
class Completion:
    """A text that a model is asked to continue as it is: there is no template, and no tools. `prompt` is the text, or the ids
    of its tokens."""

    prompt: str | tuple[int, ...]
    sampling: Sampling = Sampling()
    output: Output | None = None
    origin: Origin = NOWHERE


@check_fields
@dataclass(frozen=True, slots=True)
class Usage:
    """Counts of tokens. `cached` is a part of `prompt`, `reasoning` of `completion`."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
        )
