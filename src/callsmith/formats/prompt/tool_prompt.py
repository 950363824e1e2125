"""`ToolPrompt`: how tools are put to a model, as data.

A chat template has its own way of showing tools; for many small models another one is better. A tool prompt says how tools are
shown, in which format calls are written, what is said about when to call, how an answer with calls begins, and what is said where
nothing is to be called. Templates then see nothing but words: tools, calls and results stand in the text of messages.

The texts have places to fill: `{tools}` in `instructions` and `words`, `{earlier}` in `instructions` for what the user said
before without a call (where there is no such place, all is shown as it was: a model that has answered in words goes on in words),
`{results}` in `results` and `answer`, `{name}` in `next`.

What a model has read once need not be read again: after results the prompt of the next call goes on from the one before.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from callsmith.core.errors import UsageError
from callsmith.core.types.field_checks import check_fields
from callsmith.core.types.tables import as_object
from callsmith.core.values import Call, Message, Tool
from callsmith.formats.algebra import Format
from callsmith.formats.write import write

Listing: TypeAlias = Literal["template", "json", "python"]
LISTINGS: tuple[Listing, ...] = get_args(Listing)
_FEW_WORDS: Final = 4


@check_fields
@dataclass(frozen=True, slots=True)
class ToolPrompt:
    """How tools are put to a model. One whose `tools` are "template" leaves all of it to the chat template.

    `tools`: how they are listed: one JSON object a line, or as Python functions without a body. `format` names the format of the
    calls. `system` is the system message where a request brings none. `instructions` follow it where tools may be called, `words`
    where none may be, or none is to be. `opening` is how an answer with calls begins. `results` is the message with the results
    of calls, `next` what is added to it where one tool is asked for by its name. `answer` is added to the question, with the
    results, where it is to be answered in words. From `threshold` on, in log odds, an answer that may have calls has some: it
    depends on the model, and None leaves it to the model what it writes. `more` is the same, for another call after those made.
    """

    name: str
    description: str = ""
    tools: Listing = "template"
    format: str = ""
    system: str = ""
    instructions: str = ""
    words: str = ""
    opening: str = ""
    results: str = ""
    next: str = ""
    answer: str = ""
    threshold: float | None = None
    more: float = 0.0

    def __post_init__(self) -> None:
        if self.is_template:
            return
        for field, place in (("instructions", "{tools}"), ("results", "{results}"), ("answer", "{results}")):
            if place not in getattr(self, field):
                raise UsageError(f"tool prompt {self.name!r}: `{field}` must have the place {place}", field=field)
        for field in ("format", "opening"):
            if not getattr(self, field):
                raise UsageError(f"tool prompt {self.name!r} needs `{field}`", field=field)

    @property
    def is_template(self) -> bool:
        """Whether the chat template shows tools, calls and results in its own way."""
        return self.tools == "template"

    def ask_for_calls(
        self, messages: Sequence[Message], tools: Sequence[Tool], format: Format, only: str = "", *, is_open: bool = False
    ) -> list[Message]:
        """The messages as words, with the tools that may be called; calls are written as the model is to write them.

        `only` is the one tool that is to be called, where results are there already. `is_open`: it is still to be decided whether
        anything is called.
        """
        listed = list_as_python(tools) if self.tools == "python" else list_as_json(tools)
        rest, earlier = _without_system(messages), ""
        if "{earlier}" in self.instructions:
            rest, earlier = _split_earlier(rest, is_open=is_open)
        prompt_messages = [self._system(messages, _fill(self.instructions, tools=listed, earlier=earlier))]
        calls = _calls_by_id(messages)
        groups = [(is_result, list(group)) for is_result, group in groupby(rest, lambda message: message.role == "tool")]
        for (is_result, group), (_, following) in zip(groups, [*groups[1:], (False, [])], strict=True):
            if not is_result:
                prompt_messages += [with_calls_as_text(message, format) for message in group]
                continue
            results = self.results.replace("{results}", _result_lines(group, calls, arguments="where needed"))
            called = following[0].calls[0].name if following and len(following[0].calls) == 1 else "" if following else only
            asks = self.next.replace("{name}", called) if called else ""
            prompt_messages.append(Message.user("\n\n".join(filter(None, (results, asks)))))
        return prompt_messages

    def ask_for_words(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
        """The messages without any trace of a call: what tools have returned comes after the question it was asked for.

        A model that answers from results does not need the tools, and sees from the question what they were called with.
        """
        has_results = messages[-1].role == "tool"
        listed = "\n".join(f"- {tool.name.replace('_', ' ')}: {_first_line(tool)}".rstrip(": ") for tool in tools)
        prompt_messages = [self._system(messages, self.words.replace("{tools}", listed) if tools and not has_results else "")]
        calls = _calls_by_id(messages)
        for is_result, group in groupby(_spoken(messages), lambda message: message.role == "tool"):
            if not is_result:
                prompt_messages += group
                continue
            results = list(group)
            is_latest = results[-1] is messages[-1]
            lines = _result_lines(results, calls, arguments="where needed" if is_latest else "always")
            answer = self.answer.replace("{results}", lines)
            if prompt_messages[-1].role == "user":
                prompt_messages[-1] = replace(prompt_messages[-1], content=f"{prompt_messages[-1].content}\n\n{answer}")
            else:
                prompt_messages.append(Message.user(answer))
        return prompt_messages

    def _system(self, messages: Sequence[Message], added: str) -> Message:
        texts = [message.content for message in messages if message.role == "system"]
        return Message.system("\n\n".join(filter(None, (*(texts or [self.system]), added))))


TEMPLATE = ToolPrompt("template")


def list_as_json(tools: Sequence[Tool]) -> str:
    """Tools as JSON, one a line."""
    rows = ({"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools)
    return "\n".join(json.dumps(row, ensure_ascii=False, default=dict) for row in rows)


def list_as_python(tools: Sequence[Tool]) -> str:
    """Tools as Python functions that have a docstring and no body."""
    return "\n\n".join(map(_stub, tools))


def parameter_names(tool: Tool) -> list[str]:
    """The parameters of a tool as a function: those that are required first."""
    properties: Mapping[str, Any] = tool.parameters.get("properties") or {}
    required = [name for name in tool.parameters.get("required") or () if name in properties]
    return [*required, *(name for name in properties if name not in required)]


def describe_value(schema: Any) -> str:
    """What values of a schema are in Python: the type, and what is said of it."""
    return ": ".join(filter(None, (_python_type(schema), _about(schema))))


def _stub(tool: Tool) -> str:
    properties: Mapping[str, Any] = tool.parameters.get("properties") or {}
    required, names = tool.parameters.get("required") or (), parameter_names(tool)
    defaults = {name: f" = {as_object(properties[name]).get('default')!r}" for name in names if name not in required}
    parameters = [f"{name}: {_python_type(properties[name])}{defaults.get(name, '')}" for name in names]
    described = [f"        {name}: {about}" for name in names if (about := _about(properties[name]))]
    about = _unquote(tool.description.strip())
    lines = [f'    """{about}', "", "    Args:", *described, '    """'] if described else [f'    """{about}"""']
    return "\n".join([f"def {tool.name}({', '.join(parameters)}):", *lines])


_PYTHON_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"} | {
    "null": "None",
    "array": "list",
    "object": "dict",
}


def _python_type(schema: Any) -> str:
    row = as_object(schema)
    if isinstance(values := row.get("enum"), list):
        return f"Literal[{', '.join(map(repr, cast('list[Any]', values)))}]"
    kinds: Any = row.get("type")
    if isinstance(kinds, list):
        return " | ".join(_PYTHON_TYPES.get(str(item), "Any") for item in cast("list[Any]", kinds))
    if kinds == "array" and (item := as_object(row.get("items"))):
        return f"list[{_python_type(item)}]"
    if isinstance(several := row.get("anyOf"), list):
        return " | ".join(dict.fromkeys(_python_type(item) for item in cast("list[Any]", several)))
    return _PYTHON_TYPES.get(str(kinds), "Any")


def _about(schema: Any) -> str:
    """What is said of a parameter: its description, and the properties of an object."""
    row = as_object(schema)
    inner = row if row.get("properties") else as_object(row.get("items"))
    fields = as_object(inner.get("properties"))
    shape = f"keys: {', '.join(f'{key} ({_python_type(value)})' for key, value in fields.items())}" if fields else ""
    return _unquote(" ".join(filter(None, (" ".join(str(row.get("description") or "").split()), shape))))


def _unquote(text: str) -> str:
    """A text without what would end the docstring or the fence around it."""
    return text.replace('"""', "'''").replace("```", "'''")


def _fill(text: str, **places: str) -> str:
    """The text with its places filled; what is put there may look like a place itself."""
    return re.sub(rf"\{{({'|'.join(places)})\}}", lambda place: places[place[1]], text)


def _first_line(tool: Tool) -> str:
    return tool.description.strip().split("\n")[0]


def _without_system(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.role != "system"]


def _split_earlier(messages: Sequence[Message], *, is_open: bool) -> tuple[list[Message], str]:
    """The latest question and all before it that led to calls; and what the user said else, as a text.

    Of the answers in words only the last is shown: a small model that sees more of them writes calls for what was answered long
    ago. While it `is_open` whether anything is called none is, for who sees one gives another; only who answers a question in a
    few words means it.
    """
    exchanges: list[list[Message]] = []
    for message in messages:
        if message.role == "user" or not exchanges:
            exchanges.append([])
        exchanges[-1].append(message)
    rest, words = list[Message](), list[Message]()
    for exchange in exchanges:
        is_kept = exchange is exchanges[-1] or any(message.calls for message in exchange)
        (rest if is_kept else words).extend(exchange)
    if not words:
        return rest, ""
    questions = [f"- {message.content}" for message in words if message.role == "user"]
    answer = words[-1].content if words[-1].role == "assistant" else ""
    if is_open:
        is_asked = answer.rstrip().endswith("?") and len(exchanges[-1][0].content.split()) <= _FEW_WORDS
        lines = [
            "Earlier in this conversation the user said:",
            *questions,
            *([f"and was asked: {answer}"] if is_asked else []),
            "",
        ]
    else:
        last_answer = [f"The last answer was: {answer}"] if answer else []
        head = "Earlier in this conversation the user said this, and was answered:"
        lines = [head, *questions, *last_answer, "", "Answer only what the user says now."]
    return rest, "\n".join(("", *lines))


def _spoken(messages: Sequence[Message]) -> Iterator[Message]:
    """The messages without calls; what was said beside a call stays."""
    for message in _without_system(messages):
        if not message.calls:
            yield message
        elif message.content:
            yield replace(message, calls=())


def with_calls_as_text(message: Message, format: Format) -> Message:
    """The message, with its calls in its text."""
    if not message.calls:
        return message
    calls = write(format, message.calls)
    return replace(message, content=f"{message.content}\n{calls}" if message.content else calls, calls=())


def _calls_by_id(messages: Sequence[Message]) -> dict[str, Call]:
    return {call.id: call for message in messages for call in message.calls}


def _result_lines(results: Sequence[Message], calls: Mapping[str, Call], *, arguments: Literal["always", "where needed"]) -> str:
    """Results, one a line; with the arguments of the calls, or only where one tool was called several times."""
    names = [message.name or (calls[message.call_id].name if message.call_id in calls else "result") for message in results]
    lines: list[str] = []
    for name, message in zip(names, results, strict=True):
        call = calls.get(message.call_id)
        with_arguments = call is not None and bool(call.arguments) and (arguments == "always" or names.count(name) > 1)
        lines.append(f"- {name}{f' {call.text}' if call is not None and with_arguments else ''}: {message.content}")
    return "\n".join(lines)
