"""Making a prompt of a request with a chat template.

Messages and tools are written as chat templates expect them (`role`, `tool_calls`, `reasoning_content`, …). What a template
cannot show goes into the text of messages: tools as instructions in the system message, calls as the format writes them, results
as a message of the user.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from itertools import pairwise
from typing import Any

from callsmith.core.capability.origin import NOWHERE, Origin
from callsmith.core.errors import CallsmithError, ModelError, UsageError
from callsmith.core.types.thinking import nearest_effort
from callsmith.core.values import Call, Image, Message, Output, Request, Schema, Tool
from callsmith.formats.algebra import Format, Says, Thinks, nodes_of
from callsmith.formats.prompt.adapt import JsonObject, TemplateTraits
from callsmith.formats.prompt.escaping import Escaper, remove_breaks, split_at_breaks
from callsmith.formats.prompt.meter import TooManySteps
from callsmith.formats.prompt.splice import FindTurn, splice
from callsmith.formats.prompt.template import Template
from callsmith.formats.prompt.tool_prompt import TEMPLATE, ToolPrompt, with_calls_as_text
from callsmith.formats.write import literal_text, write

INSTRUCTIONS = """\
You can call tools. To call one, write it in this form and then stop:
{example}
Use only the tools and parameters listed here. {number} When you have the results, or need no tool, answer in plain text.

Tools:
{tools}"""
ONE_CALL = "Make one call at a time."
MANY_CALLS = "Several calls may stand one after another."
JSON_ONLY = "with {} only, without any other text."
RESULT = "<tool_response>\n{}\n</tool_response>"
SIMPLE_PATTERN = re.compile(r"(?P<characters>\[[^\]]+\])\{(?:\d+,)?(?P<count>\d+)\}")
PICTURE = "\ufdd4"  # stands for an image: a noncharacter, never in real text
_PICTURE = re.compile(r"\ufdd4|\\ufdd4")  # as it is, or as ASCII-only JSON writes it
NO_IMAGES = "this model reads text, and no images"
MAX_ID_ATTEMPTS = 100  # to find an id that no other call has


@dataclass(frozen=True, slots=True)
class Prompt:
    """The text an engine continues. `opened` is the end of `text` that begins the model's own turn (`<think>\\n`, `>>>`, …).

    `prefilled` is the beginning of the answer behind it that the request brings, split where special tokens are only text.
    `cuts` are positions in `text` that no token may span: there, text of a message only looks like a special token.
    `tokens` are the ids of the tokens of `text`, where they were given; they need not be those that the text would have.
    `images` are those of the messages, for each of which there is a `PICTURE` in `text`.
    `rendered` is what the template has made of the messages, `marked` that with turns spliced in, both with breaks instead of
    `cuts`.
    """

    text: str
    opened: str = ""
    cuts: tuple[int, ...] = ()
    origin: Origin = NOWHERE
    tokens: tuple[int, ...] | None = None
    prefilled: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()
    rendered: str = field(default="", compare=False, repr=False)
    marked: str = field(default="", compare=False, repr=False)

    @property
    def pieces(self) -> list[str]:
        """The text, split at the cuts: each piece has to be tokenized on its own."""
        return [self.text[start:end] for start, end in pairwise((0, *self.cuts, len(self.text)))]


def prompt_for(
    request: Request,
    tools: Sequence[Tool],
    template: Template,
    format: Format,
    escaper: Escaper | None = None,
    find_turn: FindTurn | None = None,
    tool_prompt: ToolPrompt = TEMPLATE,
    opening: str = "",
    no_images: str = NO_IMAGES,
) -> Prompt:
    """The prompt of a request. `tools` are those that may be called, which the request's choice may have limited.

    `escaper` escapes the tokenizer's special tokens in messages and tools, `find_turn` finds turns as the model wrote them.
    `tool_prompt` says how tools are put to the model; `opening` is a beginning of the answer that it is given. `no_images` is why
    the model reads no images; empty: it does.
    """
    request, images = _with_marked_images(request, no_images)
    escape = escaper or Escaper()
    tools = escape.escape_tools(tools)

    def render(messages: Sequence[Message]) -> tuple[str, str]:
        """What the template makes of the messages, and the end of it that begins the model's turn."""
        prompt_messages = tuple(escape.escape_message(message, format.thinks) for message in messages)
        by_template = tool_prompt.is_template or not (request.tools or any(message.calls for message in prompt_messages))
        if by_template:
            prompt_messages = _with_what_it_cannot_show(prompt_messages, request, tools, template.traits, format)
        else:  # all is words: tools, calls and results stand in the text of messages
            prompt_messages = _tool_prompt_messages(
                request, prompt_messages, tools, escape.escape_tools(request.tools), format, tool_prompt
            )
        if request.output and request.output.schema is not None:
            prompt_messages = with_output_instructions(prompt_messages, request.output.schema, among_calls=bool(tools))
        listed = [_template_tool(tool) for tool in tools] if by_template and template.traits.tools else []
        prepared = _template_messages(prompt_messages, format.ids if by_template else "")
        effort, thinking = _thinking_variables(request)
        if effort:
            try:
                return template.render_prompt(prepared, listed, {**thinking, **effort})
            except UsageError:  # it may know other efforts only; what else it refuses, it refuses without one too
                pass
        return template.render_prompt(prepared, listed, thinking)

    messages = request.messages[:-1] if request.prefilled else request.messages
    try:
        rendered, opened = render(messages)
    except CallsmithError as error:
        raise _naming_the_message(error, messages, render) from error
    closer = _close_thought(format, opened) if request.thinking_limit == 0 else ""
    marked = splice(rendered, messages, find_turn, lambda some: render(some)[0], format) if find_turn else rendered
    marked, opened = marked + closer, opened + closer
    beginning = escape.escape_message(request.messages[-1], format.thinks) if request.prefilled else None
    prefilled = _write_prefill(beginning, format, opened) if beginning else ""
    if not prefilled:
        marked, opened = marked + opening, opened + opening
    text, cuts = remove_breaks(marked + prefilled)
    answer = split_at_breaks(prefilled) if prefilled else ()
    if images and len(split_at_images(text)) != len(images) + 1:
        raise UsageError(f"messages: this model's chat template does not show each of the {len(images)} images", field="messages")
    return Prompt(text, opened, cuts, request.origin, prefilled=answer, images=images, rendered=rendered, marked=marked)


def split_at_images(text: str, most: int = 0) -> list[str]:
    """The parts of a prompt's text between the images; at most so many images are looked for, if not 0."""
    return _PICTURE.split(text, most)


def _with_marked_images(request: Request, no_images: str) -> tuple[Request, tuple[Image, ...]]:
    """The request with a mark in the text for each of its images, and those. Nobody else may write the mark."""
    images = tuple(image for message in request.messages for image in message.images)
    if not images:
        return request, ()
    for index, message in enumerate(request.messages):
        if message.images and no_images:
            raise UsageError(f"messages.{index}: {no_images}", field=f"messages.{index}")
        if _PICTURE.search(message.content + message.reasoning):
            raise UsageError(f"messages.{index}: beside images, texts may not have U+FDD4", field=f"messages.{index}")
    marked = tuple(
        replace(message, content="".join(part if isinstance(part, str) else PICTURE for part in message.parts), images=())
        if message.images
        else message
        for message in request.messages
    )
    return replace(request, messages=marked), images


def _thinking_variables(request: Request) -> tuple[dict[str, str], dict[str, bool | int]]:
    """What templates call the effort (they know three), and what else they ask about reasoning."""
    may_think, wanted = request.thinking_limit != 0, request.effort
    thinks = request.thinking if may_think else False
    effort = {"reasoning_effort": nearest_effort(wanted, ("low", "medium", "high"))} if wanted and may_think else {}
    variables: dict[str, bool | int] = {} if thinks is None else {"enable_thinking": thinks, "thinking": thinks}
    return effort, variables if request.thinking_budget is None else {**variables, "thinking_budget": request.thinking_budget}


def _close_thought(format: Format, opened: str) -> str:
    """What closes the reasoning that a template has begun, if it has: it knows no way to go without."""
    thinks = next((part for part in format.parts if isinstance(part, Thinks) and _is_opened(part, opened)), None)
    return literal_text(nodes_of(thinks.close)) if thinks else ""


def _naming_the_message(
    error: CallsmithError, messages: Sequence[Message], render: Callable[[Sequence[Message]], object]
) -> CallsmithError:
    """The error of a template that does not take these messages, with the one that is too much; as it is if no others do."""

    def is_taken(some: Sequence[Message]) -> bool:
        try:
            render(some)
        except CallsmithError:
            return False
        return True

    if isinstance(error.__cause__, TooManySteps) or not is_taken([Message.user("Hello.")]):
        return error
    least, most = 0, len(messages)  # so many are taken, and so many are not
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if is_taken(messages[:middle]) else (least, middle)
    why = error.message if isinstance(error, ModelError) else str(error)
    return UsageError(f"{why} (message {least}, of the role {messages[least].role})", field=f"messages.{least}")


def _with_what_it_cannot_show(
    messages: tuple[Message, ...], request: Request, tools: Sequence[Tool], traits: TemplateTraits, format: Format
) -> tuple[Message, ...]:
    """The messages, with what the template shows nothing of in their text: tools, calls, results."""
    if tools and not traits.tools:
        messages = _with_instructions(messages, _tool_instructions(request, tools, format))
    if not traits.calls:
        messages = tuple(_calls_as_text(message, format) for message in messages)
    return messages if traits.results and (traits.tools or traits.calls) else _results_as_text(messages)


def _tool_prompt_messages(
    request: Request,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    offered: Sequence[Tool],
    format: Format,
    tool_prompt: ToolPrompt,
) -> tuple[Message, ...]:
    """The messages as a tool prompt has them: with the tools that may be called, or without any trace of calls."""
    if not tools:
        return tuple(tool_prompt.ask_for_words(messages, offered))
    mode, names = request.choice.mode, request.choice.names
    if mode == "required" and len(names) == 1 and messages[-1].role == "tool":
        # All tools stay where they were: what was read of the prompt is not read again.
        return tuple(tool_prompt.ask_for_calls(messages, offered, format, names[0]))
    return tuple(tool_prompt.ask_for_calls(messages, tools, format, is_open=mode == "auto"))


def messages_as_text(
    request: Request, tools: Sequence[Tool], format: Format, tool_prompt: ToolPrompt = TEMPLATE
) -> tuple[Message, ...]:
    """The messages of a request for a model that takes nothing but text: tools, calls and results are written out."""
    if not tool_prompt.is_template and (request.tools or any(message.calls for message in request.messages)):
        return _tool_prompt_messages(request, request.messages, tools, request.tools, format, tool_prompt)
    messages = tuple(_calls_as_text(message, format) for message in request.messages)
    if tools:
        messages = _with_instructions(messages, _tool_instructions(request, tools, format))
    return _results_as_text(messages)


def with_output_instructions(messages: Sequence[Message], schema: Schema, *, among_calls: bool) -> tuple[Message, ...]:
    """The messages, with a word in the system message on the JSON that is wanted: no chat template has a place for it."""
    plain = schema == Output.json_object().schema
    lead = "Unless you call a tool, answer" if among_calls else "Answer"
    text = f"{lead} {JSON_ONLY.format('a JSON object' if plain else 'JSON that fits the schema below')}"
    return _with_instructions(messages, text if plain else f"{text}\n{_json(schema)}")


def _write_prefill(message: Message, format: Format, opened: str) -> str:
    """The beginning of an answer as the model would have written it, behind what the template has opened."""
    says = next((part for part in format.parts if isinstance(part, Says)), None)
    content = message.content
    if says and content and not _is_opened(says, opened):
        content = literal_text(nodes_of(says.open)) + content
    thinks = format.thinks
    if thinks is None or not (message.reasoning or _is_opened(thinks, opened)):
        return content
    head = "" if _is_opened(thinks, opened) else literal_text(nodes_of(thinks.open))
    return head + message.reasoning + (literal_text(nodes_of(thinks.close)) + content if content else "")


def _is_opened(part: Says | Thinks, opened: str) -> bool:
    head = literal_text(nodes_of(part.open)).rstrip()
    return bool(head) and opened.rstrip().endswith(head)


def fit_id(id: str, pattern: str) -> str:
    """The id itself if it matches the pattern, else one that does: always the same for the same id.

    The pattern is of the form `[charset]{n}` or `[charset]{m,n}`; for any other, or none, the id is unchanged.
    """
    shape = SIMPLE_PATTERN.fullmatch(pattern)
    if shape is None or re.fullmatch(pattern, id):
        return id
    characters = _matching_characters(shape["characters"])
    number = int.from_bytes(sha256(id.encode("utf-8", "surrogatepass")).digest())
    fitted = ""
    for _ in range(int(shape["count"])):
        number, position = divmod(number, len(characters))
        fitted += characters[position]
    return fitted


@cache
def _matching_characters(charset: str) -> str:
    return "".join(character for character in map(chr, range(33, 127)) if re.fullmatch(charset, character))


def _tool_instructions(request: Request, tools: Sequence[Tool], format: Format) -> str:
    example = write(format, [Call("tool_name", {"parameter": "value"}, id=fit_id("call_1", format.ids))])
    number = ONE_CALL if request.parallel is False else MANY_CALLS
    listed = [f"- {tool.name}: {tool.description}".rstrip(": ") + f"\n  parameters: {_json(tool.parameters)}" for tool in tools]
    return INSTRUCTIONS.format(example=example, number=number, tools="\n".join(listed))


def _with_instructions(messages: Sequence[Message], text: str) -> tuple[Message, ...]:
    if messages and messages[0].role == "system":
        return (replace(messages[0], content=f"{messages[0].content}\n\n{text}".strip()), *messages[1:])
    return (Message.system(text), *messages)


def _calls_as_text(message: Message, format: Format) -> Message:
    fitted = tuple(replace(call, id=fit_id(call.id, format.ids)) for call in message.calls)
    return with_calls_as_text(replace(message, calls=fitted), format) if fitted else message


def _results_as_text(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Turn results into messages of the user, one for each round, for templates that demand alternating roles."""
    rewritten: list[Message] = []
    for index, message in enumerate(messages):
        if message.role != "tool":
            rewritten.append(message)
            continue
        content, images = RESULT.format(message.content), message.images
        if index and messages[index - 1].role == "tool":
            content, images = f"{rewritten[-1].content}\n{content}", (*rewritten.pop().images, *images)
        rewritten.append(Message.user(content, images=(replace(image, at=len(content)) for image in images)))
    return tuple(rewritten)


def _template_messages(messages: Sequence[Message], pattern: str) -> list[JsonObject]:
    ids = _fit_ids(messages, pattern)
    names = {call.id: call.name for message in messages for call in message.calls}
    return [_template_message(message, ids, names) for message in messages]


def _fit_ids(messages: Sequence[Message], pattern: str) -> dict[str, str]:
    """The fitted id for every id of the conversation; two ids become the same only if the pattern allows too few."""
    fitted: dict[str, str] = {}
    used: set[str] = set()
    for id in dict.fromkeys(id for message in messages for id in (*(call.id for call in message.calls), message.call_id)):
        candidates = (fit_id(id + "'" * salt, pattern) for salt in range(MAX_ID_ATTEMPTS))
        fitted[id] = next(
            (candidate for candidate in candidates if candidate == id or candidate not in used), fit_id(id, pattern)
        )
        used.add(fitted[id])
    return fitted


def _template_message(message: Message, ids: Mapping[str, str], names: Mapping[str, str]) -> JsonObject:
    fields: JsonObject = {"role": message.role, "content": message.content}
    if message.role == "tool":
        fields |= {"tool_call_id": ids[message.call_id], "name": message.name or names.get(message.call_id, "")}
    if message.reasoning:
        fields["reasoning_content"] = message.reasoning
    if message.calls:
        fields["content"] = message.content or None
        fields["tool_calls"] = [
            {"id": ids[call.id], "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
            for call in message.calls
        ]
    return fields


def _template_tool(tool: Tool) -> JsonObject:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict)
