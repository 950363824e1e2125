"""What an API takes of its dialect, and a request made to fit it: its fields, the names of its tools, the ids of its calls.

Nothing is left out silently: `fit_request` says what it had to leave out, and what cannot be left out is an error.

>>> names = ToolNames(["files.read", "files_read"], Quirks(name_characters="A-Za-z0-9_-", longest_name=64))
>>> names.outward("files.read"), names.inward("files_read_601e4eb6")
('files_read_601e4eb6', 'files.read')

A name that fits is sent as it is, any other one with `_` in place of what is not allowed; where that is the name of another tool,
or too long, a hash of the name tells them apart. It depends on the other tools only where two would be called the same.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from typing import Final, Literal, TypeAlias, get_args

from callsmith.core.errors import UsageError
from callsmith.core.types.thinking import EFFORTS, Effort, effort_within, nearest_effort
from callsmith.core.values import Choice, Image, Json, Message, Output, Request, Sampling
from callsmith.wire.kinds.custom import as_function, grammar_of

Switch: TypeAlias = Literal["", "template", "effort", "reasoning", "thinking"]
History: TypeAlias = Literal["", "reasoning_content", "reasoning", "signed"]
Kind: TypeAlias = Literal["json_object", "schema", "structured"]
GrammarFields: TypeAlias = Literal["", "vllm", "sglang", "llama-server"]
SAMPLING: Final = tuple(field.name for field in fields(Sampling))
_SEE_BELOW: Final = "(an image, which follows)"  # a result that is nothing but images
_ABOVE: Final = "The images of the results above:"
ChoiceKind: TypeAlias = Literal["auto", "none", "required", "named", "allowed"]


@dataclass(frozen=True, slots=True)
class Quirks:
    """What an API takes. The defaults are those of a server that takes everything its dialect has here.

    `tools`: whether it has tools at all. `choices` are the choices of tools that it has. `sampling` are the fields of
    `Sampling` it takes, `most_stops` how many stop strings (0: any number), `blank_stops` says whether one may be white space
    alone: at those that it is not sent, the text is cut here. `limit` and `repetition` are what it calls the most tokens and the
    repetition penalty in chat completions. `outputs` are the kinds of structured output it enforces. `switch` is how reasoning is
    turned on and off in chat completions, `history` where the reasoning of earlier answers goes ("signed": nowhere, unless it is
    signed).
    `tool_images`: whether results of tools may have images; else a user's message has them. `efforts` are those that it
    takes, `budget` is what it calls the most tokens of reasoning in chat completions, "" if it takes none: the nearest effort
    is asked for then. `thinks_when_forced`: whether it reasons where a call is required.
    `checks`: whether calls are validated here before they are passed on; else their arguments stream. `repairs`: whether calls
    that it writes as text are read. `streams`: whether it can be asked for streams. `grammar` names the server whose fields
    for grammars it takes. `session`: whether it takes the id of the conversation, as `session_id`. Names of tools are made of
    `name_characters`, as in a character class; `ids` is the pattern of ids of calls, of which a new one has `id_length` letters
    and digits. `kinds` are those of tools that it takes as such; tools of other kinds are sent as functions.
    """

    tools: bool = True
    choices: tuple[ChoiceKind, ...] = get_args(ChoiceKind)
    parallel: bool = True
    strict: bool = True
    kinds: tuple[str, ...] = ()
    sampling: tuple[str, ...] = SAMPLING
    most_stops: int = 0
    blank_stops: bool = True
    limit: str = "max_tokens"
    repetition: str = "repetition_penalty"
    tool_images: bool = True
    outputs: tuple[Kind, ...] = get_args(Kind)
    prefill: bool = True
    switch: Switch = "template"
    history: History = "reasoning_content"
    efforts: tuple[Effort, ...] = EFFORTS
    budget: str = "thinking_token_budget"
    thinks_when_forced: bool = True
    checks: bool = True
    repairs: bool = True
    streams: bool = True
    grammar: GrammarFields = ""
    session: bool = False
    name_characters: str = "A-Za-z0-9_.:/-"
    longest_name: int = 256
    ids: str = ".+"
    id_length: int = 24

    def allows_name(self, name: str) -> bool:
        return len(name) <= self.longest_name and re.fullmatch(f"[{self.name_characters}]+", name) is not None

    def fit_id(self, id: str) -> str:
        """The id of a call, or one that is taken: always the same for the same id."""
        if re.fullmatch(self.ids, id):
            return id
        return sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[: self.id_length]


class ToolNames:
    """The names of the tools of one request, in both directions."""

    def __init__(self, names: Iterable[str], quirks: Quirks) -> None:
        wanted = tuple(dict.fromkeys(name for name in names if name))
        self._outward = {name: name for name in wanted if quirks.allows_name(name)}
        used = set(self._outward)
        for name in wanted:
            if name not in self._outward:
                self._outward[name] = _fit_name(name, quirks, used)
                used.add(self._outward[name])
        self._inward = {sent: name for name, sent in self._outward.items()}
        self.change_any = any(name != sent for name, sent in self._outward.items())

    def outward(self, name: str) -> str:
        """The name that is sent."""
        return self._outward.get(name, name)

    def inward(self, name: str) -> str:
        """The tool's own name; a name that was not sent stays as it is."""
        return self._inward.get(name, name)


def _fit_name(name: str, quirks: Quirks, used: set[str]) -> str:
    plain = re.sub(f"[^{quirks.name_characters}]", "_", name)
    if len(plain) <= quirks.longest_name and plain not in used:
        return plain
    suffix = f"_{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    return plain[: quirks.longest_name - len(suffix)] + suffix


def names_of(request: Request, quirks: Quirks) -> ToolNames:
    """The names of all tools in a request: those that are offered, and those that were called before."""
    called = (call.name for message in request.messages for call in message.calls)
    return ToolNames((*(tool.name for tool in request.tools), *called), quirks)


def fit_names(request: Request, names: ToolNames, quirks: Quirks) -> Request:
    """The request with the names of tools and the ids of calls that are sent."""

    def fit(message: Message) -> Message:
        calls = tuple(replace(call, name=names.outward(call.name), id=quirks.fit_id(call.id)) for call in message.calls)
        if message.role != "tool":
            return replace(message, calls=calls) if calls != message.calls else message
        call_id = quirks.fit_id(message.call_id) if message.call_id else ""
        return replace(message, name=names.outward(message.name), call_id=call_id)

    messages = tuple(map(fit, request.messages))
    if not names.change_any:
        return request if messages == request.messages else replace(request, messages=messages)
    tools = tuple(replace(tool, name=names.outward(tool.name)) for tool in request.tools)
    choice = replace(request.choice, names=tuple(map(names.outward, request.choice.names)))
    return replace(request, tools=tools, choice=choice, messages=messages)


def fit_request(request: Request, quirks: Quirks) -> tuple[Request, tuple[str, ...]]:
    """The request as the API takes it, and what was left out of it, in words."""
    request, left_out = _fit_sampling(request, quirks)
    if request.prefill and request.prefilled and not quirks.prefill:
        raise UsageError("this model's API cannot go on from the beginning of an answer", field="messages")
    if not request.tools:
        request = replace(request, choice=Choice(), parallel=None)
    if request.call_bias is not None:
        if request.call_bias and request.tools and request.choice.mode == "auto":
            left_out = (*left_out, "call_bias: this API does not take it")
        request = replace(request, call_bias=None)
    if request.parallel is not None and not quirks.parallel:
        request = replace(request, parallel=None)
    request, dropped = _fit_kinds(request, quirks)
    left_out = (*left_out, *dropped)
    if not quirks.strict and any(tool.strict for tool in request.tools):
        request = replace(request, tools=tuple(replace(tool, strict=False) for tool in request.tools))
    if request.thinking and request.choice.mode == "required" and not quirks.thinks_when_forced:
        request = replace(request, thinking=False)
        left_out = (*left_out, "reasoning: this API does not reason where a call is required")
    request, unsupported = _fit_thinking(request, quirks)
    left_out = (*left_out, *unsupported)
    if quirks.history in ("", "signed") and any(message.reasoning for message in request.messages):
        request = replace(request, messages=tuple(replace(message, reasoning="") for message in request.messages))
    if not quirks.tool_images and any(message.role == "tool" and message.images for message in request.messages):
        request = replace(request, messages=tuple(_without_tool_images(request.messages)))
    return _fit_output(_fit_choice(request, quirks), quirks), left_out


def _without_tool_images(messages: Iterable[Message]) -> Iterator[Message]:
    """The messages with the images of each round of results in a message of the user's behind them."""
    images: list[Image] = []
    for message in messages:
        if images and message.role != "tool":
            yield _show_images(images)
            images = []
        if message.role == "tool" and message.images:
            images += message.images
            message = replace(message, content=message.content or _SEE_BELOW, images=())
        yield message
    if images:
        yield _show_images(images)


def _show_images(images: Iterable[Image]) -> Message:
    return Message("user", _ABOVE, images=tuple(replace(image, at=len(_ABOVE)) for image in images))


def _fit_sampling(request: Request, quirks: Quirks) -> tuple[Request, tuple[str, ...]]:
    stops = [stop for stop in request.sampling.stop if quirks.blank_stops or stop.strip()] if "stop" in quirks.sampling else []
    requested, free = replace(request.sampling, stop=tuple(stops[: quirks.most_stops or None])), Sampling()
    unsupported = [name for name in SAMPLING if name not in quirks.sampling and getattr(requested, name) != getattr(free, name)]
    if not unsupported:
        return replace(request, sampling=requested), ()
    if "logprobs" in unsupported:
        raise UsageError("logprobs: this model's API does not give log probabilities", field="logprobs")
    sampling = replace(requested, **{name: getattr(free, name) for name in unsupported})
    return replace(request, sampling=sampling), tuple(f"{name}: this API does not take it" for name in unsupported)


def _fit_kinds(request: Request, quirks: Quirks) -> tuple[Request, tuple[str, ...]]:
    """The request with functions in place of tools of kinds that the API does not take. A grammar is told in words then."""
    foreign = [tool for tool in request.tools if tool.kind and tool.kind not in quirks.kinds]
    if not foreign:
        return request, ()
    functions = {tool.name: as_function(tool) for tool in foreign}
    tools = tuple(functions.get(tool.name, tool) for tool in request.tools)
    grammars = (f"the grammar of {tool.name}: this API does not take it" for tool in foreign if grammar_of(tool))
    return replace(request, tools=tools), tuple(grammars)


def _fit_thinking(request: Request, quirks: Quirks) -> tuple[Request, tuple[str, ...]]:
    """The request with an effort that the API takes, which also stands for a budget where it takes none of those."""
    effort, budget = request.effort, request.thinking_budget
    if budget == 0:
        return replace(request, thinking=False, effort=None, thinking_budget=None), ()
    left_out: list[str] = []
    if budget is not None and not quirks.budget:
        effort, budget = effort_within(budget), None
        left_out.append(f"thinking_budget: this API takes no tokens{f', but the effort {effort}' if quirks.efforts else ''}")
    if effort is not None:
        effort = nearest_effort(effort, quirks.efforts) if quirks.efforts else None
        if effort is None and not left_out:
            left_out.append("effort: this API does not take it")
    return replace(request, effort=effort, thinking_budget=budget), tuple(left_out)


def _fit_choice(request: Request, quirks: Quirks) -> Request:
    """The choice, with fewer tools where the API has no field for which of them may be called."""
    choice, kinds = request.choice, quirks.choices
    if choice.mode == "none":
        return request if "none" in kinds else replace(request, tools=(), choice=Choice())
    is_named = choice.mode == "required" and len(choice.names) == 1
    if choice.names and ("named" if is_named else "allowed") not in kinds:
        request = replace(request, tools=choice.among(request.tools), choice=Choice(choice.mode))
    if choice.mode == "required" and "required" not in kinds and not (is_named and "named" in kinds):
        request = replace(request, choice=Choice())
    return request


def _fit_output(request: Request, quirks: Quirks) -> Request:
    output = request.output
    if output is None:
        return request
    if output.schema is None:
        if "structured" in quirks.outputs:
            return request
        raise UsageError("this model's API holds answers to JSON schemas only", field="output")
    if "schema" in quirks.outputs:  # where the sessions are ours, so is the flag: others take schemas as they do
        return request if quirks.session else replace(request, output=replace(output, as_written=False))
    return replace(request, output=Output.json_object() if "json_object" in quirks.outputs else None)


def spell_chat(body: dict[str, Json], request: Request, quirks: Quirks) -> dict[str, Json]:
    """The body of a chat completion in the words of the API."""
    most, kwargs = body.pop("max_completion_tokens", None), body.pop("chat_template_kwargs", None)
    if most is not None:
        body[quirks.limit] = most
    if (penalty := body.pop("repetition_penalty", None)) is not None:
        body[quirks.repetition] = penalty
    effort, budget = body.pop("reasoning_effort", None), body.pop("thinking_token_budget", None)
    if budget is not None and quirks.budget and quirks.switch != "reasoning":
        body[quirks.budget] = budget
    if request.thinking is not None or effort or budget:
        body |= _switch_thinking(request, kwargs, quirks.switch)
    body["messages"] = [_spell_message(message, quirks.history) for message in body["messages"]]
    return body


def _switch_thinking(request: Request, kwargs: Json, switch: Switch) -> dict[str, Json]:
    thinks, effort, budget = request.thinking is not False, request.effort, request.thinking_budget
    match switch:
        case "template":
            return {**({"chat_template_kwargs": kwargs} if kwargs else {}), **({"reasoning_effort": effort} if effort else {})}
        case "effort":
            return {"reasoning_effort": (effort or "medium") if thinks else "none"}
        case "reasoning":
            limit = {"max_tokens": budget} if budget is not None else {"effort": effort} if effort else {}
            return {"reasoning": {"enabled": thinks, **limit}}
        case "thinking":
            return {"thinking": {"type": "enabled" if thinks else "disabled"}}
        case "":
            return {}


def _spell_message(message: Mapping[str, Json], history: History) -> dict[str, Json]:
    spelled = {key: value for key, value in message.items() if key != "reasoning_content"}
    if message["role"] == "tool":
        spelled.pop("name", None)  # the id of the call says it
    if history and history != "signed" and message.get("reasoning_content"):
        spelled[history] = message["reasoning_content"]
    return spelled
