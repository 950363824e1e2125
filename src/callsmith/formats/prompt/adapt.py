"""Adapting a conversation to the input a chat template expects.

Templates agree on the outline (a list of `{"role", "content"}`), not on the rest: arguments as an object or as JSON text, tools
wrapped or bare, one call a message or many, a system role or none. Each difference is one named `Adaptation`. `probe_template`
finds those a template needs by rendering a few made-up conversations and searching the text for their words; that is done once
a template, and rendering afterwards only applies what was found.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TemplateInput:
    """The input of a template: messages and tools as templates spell them, and further variables."""

    messages: list[JsonObject]
    tools: list[JsonObject] = field(default_factory=list[JsonObject])
    variables: JsonObject = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Adaptation:
    """One way to reshape a conversation, with a name that says what it does."""

    name: str
    apply: Callable[[TemplateInput], TemplateInput]


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """What probing found about a template: the adaptations it needs, and whether it shows tools, calls and results at all."""

    adaptations: tuple[str, ...]
    tools: bool
    calls: bool
    results: bool


def _rewrite_calls(conversation: TemplateInput, rewrite: Callable[[JsonObject], JsonObject]) -> TemplateInput:
    def inside(message: JsonObject) -> JsonObject:
        calls: list[JsonObject] = message.get("tool_calls") or []
        return {**message, "tool_calls": [rewrite(call) for call in calls]} if calls else message

    return replace(conversation, messages=[inside(message) for message in conversation.messages])


def _arguments_as_text(conversation: TemplateInput) -> TemplateInput:
    def rewrite(call: JsonObject) -> JsonObject:
        text = json.dumps(call["function"]["arguments"], ensure_ascii=False)
        return {**call, "function": {**call["function"], "arguments": text}}

    return _rewrite_calls(conversation, rewrite)


def _bare_calls(conversation: TemplateInput) -> TemplateInput:
    return _rewrite_calls(conversation, lambda call: {"id": call.get("id", ""), **call["function"]})


def _bare_tools(conversation: TemplateInput) -> TemplateInput:
    return replace(conversation, tools=[tool["function"] for tool in conversation.tools])


def _spell_out_schemas(conversation: TemplateInput) -> TemplateInput:
    """Add the keywords that templates read without checking for them to every schema, with values that change nothing."""

    def inside(tool: JsonObject) -> JsonObject:
        return {**tool, "function": {**tool["function"], "parameters": _spell_out(tool["function"]["parameters"])}}

    return replace(conversation, tools=[inside(tool) for tool in conversation.tools])


def _spell_out(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    full: JsonObject = {"description": "", **cast("Mapping[str, Any]", schema)}
    kinds = full.get("type")
    if isinstance(kinds, list):  # a nullable string is shown as a string
        full["type"] = next((kind for kind in cast("list[str]", kinds) if kind != "null"), "null")
    if full.get("type") == "object":
        full = {"properties": {}, "additionalProperties": {}, **full}
    if isinstance(properties := full.get("properties"), Mapping):
        full["properties"] = {name: _spell_out(inner) for name, inner in cast("Mapping[str, Any]", properties).items()}
    return {**full, "items": _spell_out(full["items"])} if "items" in full else full


def _tools_as_functions_text(conversation: TemplateInput) -> TemplateInput:
    functions = json.dumps(conversation.tools, ensure_ascii=False, indent=4) if conversation.tools else "[]"
    return replace(conversation, variables={**conversation.variables, "functions": functions})


def _one_call_a_message(conversation: TemplateInput) -> TemplateInput:
    """Split parallel calls: each in a message of its own, followed by its result."""
    messages: list[JsonObject] = []
    rest = list(conversation.messages)
    while rest:
        message = rest.pop(0)
        calls: list[JsonObject] = message.get("tool_calls") or []
        if len(calls) < 2:
            messages.append(message)
            continue
        results: list[JsonObject] = []
        while rest and rest[0]["role"] == "tool":
            results.append(rest.pop(0))
        for index, call in enumerate(calls):
            first = message if index == 0 else {"role": "assistant", "content": None}
            answers = [result for result in results if result.get("tool_call_id") == call.get("id")]
            messages += [{**first, "tool_calls": [call]}, *answers]
    return replace(conversation, messages=messages)


def _system_in_first_user_message(conversation: TemplateInput) -> TemplateInput:
    system = "\n\n".join(message["content"] for message in conversation.messages if message["role"] == "system")
    messages = [message for message in conversation.messages if message["role"] != "system"]
    if not system:
        return conversation
    if messages and messages[0]["role"] == "user":
        return replace(
            conversation, messages=[{**messages[0], "content": f"{system}\n\n{messages[0]['content']}"}, *messages[1:]]
        )
    return replace(conversation, messages=[{"role": "user", "content": system}, *messages])


def _system_first(conversation: TemplateInput) -> TemplateInput:
    system = [message for message in conversation.messages if message["role"] == "system"]
    others = [message for message in conversation.messages if message["role"] != "system"]
    if len(system) > 1:
        system = [{**system[0], "content": "\n\n".join(message["content"] for message in system)}]
    return replace(conversation, messages=system + others)


def _merge_neighbours(conversation: TemplateInput) -> TemplateInput:
    """Merge neighbouring messages of one role, for templates that demand alternating roles."""
    messages: list[JsonObject] = []
    for message in conversation.messages:
        last = messages[-1] if messages else None
        plain = message["role"] in ("user", "assistant") and not message.get("tool_calls")
        if last and plain and last["role"] == message["role"] and not last.get("tool_calls"):
            messages[-1] = {**last, "content": f"{last['content']}\n\n{message['content']}"}
        else:
            messages.append(message)
    return replace(conversation, messages=messages)


def _empty_answers_left_out(conversation: TemplateInput) -> TemplateInput:
    def says_nothing(message: JsonObject) -> bool:
        return message["role"] == "assistant" and not any(
            message.get(key) for key in ("content", "tool_calls", "reasoning_content")
        )

    return replace(conversation, messages=[message for message in conversation.messages if not says_nothing(message)])


def _user_first(conversation: TemplateInput) -> TemplateInput:
    """Have the user speak before the first answer."""
    messages = conversation.messages
    first = next((at for at, message in enumerate(messages) if message["role"] != "system"), len(messages))
    if first == len(messages) or messages[first]["role"] != "assistant":
        return conversation
    return replace(conversation, messages=[*messages[:first], {"role": "user", "content": "Hello."}, *messages[first:]])


def _answer_before_user(conversation: TemplateInput) -> TemplateInput:
    """Put an answer between calls or their results and what the user says next."""
    messages: list[JsonObject] = []
    for message in conversation.messages:
        last = messages[-1] if messages else None
        if last and message["role"] == "user" and (last["role"] == "tool" or last.get("tool_calls")):
            messages.append({"role": "assistant", "content": "OK."})
        messages.append(message)
    return replace(conversation, messages=messages)


def _empty_list_of_tools(conversation: TemplateInput) -> TemplateInput:
    return conversation if conversation.tools else replace(conversation, variables={**conversation.variables, "tools": []})


def _empty_text_beside_calls(conversation: TemplateInput) -> TemplateInput:
    messages = [{**message, "content": ""} if message.get("content") is None else message for message in conversation.messages]
    return replace(conversation, messages=messages)


def _text_before_calls(conversation: TemplateInput) -> TemplateInput:
    """Move text beside calls into a message of its own before them."""
    messages: list[JsonObject] = []
    for message in conversation.messages:
        if message.get("tool_calls") and message.get("content"):
            messages += [{"role": "assistant", "content": message["content"]}, {**message, "content": None}]
        else:
            messages.append(message)
    return replace(conversation, messages=messages)


def _content_in_parts(conversation: TemplateInput) -> TemplateInput:
    def parts(message: JsonObject) -> JsonObject:
        text = message.get("content")
        return {**message, "content": [{"type": "text", "text": text}]} if text else message

    return replace(conversation, messages=[parts(message) for message in conversation.messages])


def _thinking_key(conversation: TemplateInput) -> TemplateInput:
    """Move reasoning to the key `thinking`. Beside calls, text is appended to it: such templates have one place for both."""

    def move(message: JsonObject) -> JsonObject:
        thought = message.get("reasoning_content")
        if not thought:
            return message
        others = {key: value for key, value in message.items() if key != "reasoning_content"}
        if message.get("tool_calls") and message.get("content"):
            return {**others, "thinking": f"{thought}\n\n{message['content']}", "content": None}
        return {**others, "thinking": thought}

    return replace(conversation, messages=[move(message) for message in conversation.messages])


# In the order they are tried and applied.
ADAPTATIONS = (
    Adaptation("schemas spelt out", _spell_out_schemas),
    Adaptation("tools also as JSON text in `functions`", _tools_as_functions_text),
    Adaptation("bare tools", _bare_tools),
    Adaptation("an empty list for no tools", _empty_list_of_tools),
    Adaptation("system messages joined, first", _system_first),
    Adaptation("system text in the first user message", _system_in_first_user_message),
    Adaptation("empty answers left out", _empty_answers_left_out),
    Adaptation("the user first", _user_first),
    Adaptation("an answer before the user goes on", _answer_before_user),
    Adaptation("neighbours of one role merged", _merge_neighbours),
    Adaptation("one call a message", _one_call_a_message),
    Adaptation("arguments as JSON text", _arguments_as_text),
    Adaptation("bare calls", _bare_calls),
    Adaptation("reasoning under `thinking`", _thinking_key),
    Adaptation("text in a message before the calls", _text_before_calls),
    Adaptation("empty text beside calls", _empty_text_beside_calls),
    Adaptation("content in parts", _content_in_parts),
)


def adapt(conversation: TemplateInput, names: Iterable[str]) -> TemplateInput:
    """Apply the named adaptations to a conversation."""
    wanted = set(names)
    for adaptation in ADAPTATIONS:
        if adaptation.name in wanted:
            conversation = adaptation.apply(conversation)
    return conversation


# The probes: conversations made of words that no template contains.


def _tool(name: str, parameters: JsonObject) -> JsonObject:
    return {"type": "function", "function": {"name": name, "description": "About it.", "parameters": parameters}}


KEYS = {key: {"type": "string", "description": "quartz"} for key in ("zebra_key", "yak_key")}
TOOLS = [_tool(name, {"type": "object", "properties": KEYS, "required": ["zebra_key"]}) for name in ("zebra_tool", "yak_tool")]
SPARSE = [
    _tool("gecko_tool", {"type": "object", "properties": {"one": {"type": ["string", "null"]}, "two": {"type": "object"}}}),
    _tool("otter_tool", {"type": "object"}),
]
SYSTEM: JsonObject = {"role": "system", "content": "Ostrich rules."}
USER: JsonObject = {"role": "user", "content": "Pelican asks."}
AGAIN: JsonObject = {"role": "user", "content": "Walrus asks."}
ANSWER: JsonObject = {"role": "assistant", "content": "Heron answers."}


def _call(name: str, id: str, **arguments: str) -> JsonObject:
    return {"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}


def _result(name: str, id: str, content: str) -> JsonObject:
    return {"role": "tool", "tool_call_id": id, "name": name, "content": content}


ZEBRA = _call("zebra_tool", "zebracall", zebra_key="badger")
YAK = _call("yak_tool", "yakcall01", yak_key="lemur")
ZEBRA_RESULT = _result("zebra_tool", "zebracall", "Marmot result.")
YAK_RESULT = _result("yak_tool", "yakcall01", "Jackal result.")
CALLING: JsonObject = {"role": "assistant", "content": None, "tool_calls": [ZEBRA]}
CALLING_BOTH: JsonObject = {**CALLING, "tool_calls": [ZEBRA, YAK]}
MISSPELLED = ("None", "{'zebra_key'", '\\"zebra_key', "{'type'", "{'name'", "{'function'")


@dataclass(frozen=True, slots=True)
class TemplateProbe:
    """A made-up conversation, and the words its rendered text must contain."""

    messages: Sequence[JsonObject]
    expected: tuple[str, ...]
    tools: Sequence[JsonObject] = ()

    def score(self, text: str | None) -> int:
        """0 if it does not render; more for each expected word in the text, less for each misspelled one."""
        if text is None:
            return 0
        return 1 + sum(word in text for word in self.expected) - sum(word in text for word in MISSPELLED)


ASKED = TemplateProbe([USER], ("Pelican", "zebra_tool", "yak_tool", "zebra_key", "quartz"), TOOLS)
CALLED = TemplateProbe([USER, CALLING, ZEBRA_RESULT], ("badger", "Marmot"), TOOLS)
PROBES = (
    ASKED,
    CALLED,
    TemplateProbe([USER], ("Pelican",)),
    TemplateProbe([USER], ("gecko_tool", "otter_tool"), SPARSE),
    TemplateProbe([USER, CALLING, ZEBRA_RESULT], ("zebra_tool", "zebra_key", "badger", "Marmot")),
    TemplateProbe([SYSTEM, USER], ("Ostrich", "Pelican")),
    TemplateProbe([SYSTEM, USER, ANSWER, SYSTEM, AGAIN], ("Ostrich", "Pelican", "Heron", "Walrus")),
    TemplateProbe([USER, AGAIN, ANSWER, ANSWER, USER], ("Pelican", "Walrus", "Heron")),
    TemplateProbe([ANSWER, USER], ("Heron", "Pelican")),
    TemplateProbe([USER, {"role": "assistant", "content": ""}, AGAIN], ("Pelican", "Walrus")),
    TemplateProbe([USER, CALLING, ZEBRA_RESULT, AGAIN], ("badger", "Marmot", "Walrus"), TOOLS),
    TemplateProbe([SYSTEM, USER, CALLING, ZEBRA_RESULT], ("Ostrich", "badger", "Marmot"), TOOLS),
    TemplateProbe([USER, CALLING, ZEBRA_RESULT, ANSWER, AGAIN], ("badger", "Marmot", "Heron", "Walrus"), TOOLS),
    TemplateProbe([USER, {**CALLING, "content": "Heron answers."}, ZEBRA_RESULT], ("badger", "Marmot"), TOOLS),
    TemplateProbe([USER, CALLING_BOTH, ZEBRA_RESULT, YAK_RESULT], ("badger", "lemur", "Marmot", "Jackal"), TOOLS),
    TemplateProbe(
        [USER, {**CALLING, "reasoning_content": "Toucan thinks."}, ZEBRA_RESULT], ("Toucan", "badger", "Marmot"), TOOLS
    ),
)


def probe_template(try_render: Callable[[TemplateInput], str | None]) -> TemplateTraits:
    """Find the adaptations a template needs. `try_render` renders a conversation, or returns None if the template fails."""

    def text(probe: TemplateProbe, names: Iterable[str]) -> str | None:
        return try_render(adapt(TemplateInput(list(probe.messages), list(probe.tools)), names))

    def score(names: Iterable[str]) -> int:
        return sum(probe.score(text(probe, names)) for probe in PROBES)

    chosen: tuple[str, ...] = ()
    best, most = score(chosen), sum(1 + len(probe.expected) for probe in PROBES)
    before = -1
    while before < best:  # again after every gain: some adaptations help only together with another
        before = best
        for name in (adaptation.name for adaptation in ADAPTATIONS if adaptation.name not in chosen):
            if best < most and (reached := score((*chosen, name))) > best:
                chosen, best = (*chosen, name), reached
    question_text, called = text(ASKED, chosen) or "", text(CALLED, chosen) or ""
    return TemplateTraits(chosen, tools="zebra_tool" in question_text, calls="badger" in called, results="Marmot" in called)
