"""Kinds of tools that are no functions: custom tools, and those that vendors define (a shell, an editor, a search).

One whose calls the client runs becomes a `Tool` like any other, with the arguments that are known for its kind; `Tool.kind` says
how its calls are written. One that only its vendor can run is refused by name, like a kind that nobody here knows.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from callsmith.core.schema import check_schema
from callsmith.core.values import Tool
from callsmith.wire.fields import Fields
from callsmith.wire.kinds.custom import CUSTOM, read_parameters
from callsmith.wire.kinds.table import KINDS, SEARCH_ITEM, Api, ToolKind

NO_KINDS: Mapping[str, str] = MappingProxyType({})
_VENDORS: dict[Api, str] = {"chat": "OpenAI", "responses": "OpenAI", "messages": "Anthropic", "ollama": "Ollama"}
_NAMES: dict[Api, str] = {
    "chat": "Chat Completions",
    "responses": "Responses",
    "messages": "Messages",
    "ollama": "Ollama's chat",
}
_FUNCTIONS: dict[Api, str] = {"messages": CUSTOM}  # what functions are called, where they are called anything else


def type_of(entry: Fields, api: Api) -> str:
    """What an entry of `tools` says that it is; a function, if it says nothing."""
    return entry.text("type") or _FUNCTIONS.get(api, "function")


def find_kind(entry: Fields, api: Api) -> ToolKind | None:
    """The kind of an entry of `tools`; None for a function. What is not known, or runs nowhere but at its vendor, is an error."""
    type = type_of(entry, api)
    if type == _FUNCTIONS.get(api, "function"):
        return None
    known = [kind for kind in KINDS if kind.fits(entry, type)]
    here = next((kind for kind in known if api in kind.apis), None)
    if here is None:
        raise entry.error("type", _unknown(type, api, known))
    if here.runner == "vendor":
        raise entry.error("type", f"{type!r} runs at {_VENDORS[api]} only: {here.why}")
    return here


def is_left_out(entry: Fields, api: Api) -> bool:
    """Whether clients send such an entry without being asked to, and its vendor alone could run it: then it is left out."""
    kind = find_kind(entry, api)
    return kind is not None and kind.runner == "nobody"


def note_left_out(entries: Iterable[Fields], api: Api) -> tuple[str, ...]:
    """What a person should know of tools that are left out."""
    types = (type_of(entry, api) for entry in entries if is_left_out(entry, api))
    return tuple(f"the tool {type} was left out: it runs at {_VENDORS[api]} only" for type in types)


def _unknown(type: str, api: Api, known: list[ToolKind]) -> str:
    if known:
        return f"{type!r} is a kind of tool of {_NAMES[known[0].apis[0]]}, and not of {_NAMES[api]}"
    types = (type for kind in KINDS if api in kind.apis and kind.runner != "vendor" for type in kind.types)
    names = sorted({type.rstrip("_") for type in types} | {_FUNCTIONS.get(api, "function")})
    return f"{type!r} is not known here: a tool of {_NAMES[api]} is one of {', '.join(names)}"


def make_tool(kind: ToolKind, entry: Fields, name: str, *, deferred: bool) -> Tool:
    """The tool that the model is offered for an entry of this kind."""
    type, about = entry.text("type") or CUSTOM, kind.about
    if kind.parameters is None:
        fields = entry.object(CUSTOM) or entry
        parameters, about = read_parameters(fields), fields.text("description") or ""
    elif kind.item == SEARCH_ITEM:
        own = entry.object("parameters")
        parameters, about = kind.parameters if own is None else own.data, entry.text("description") or about
        check_schema(parameters, entry.at("parameters"))
    else:
        parameters = kind.parameters
        for note in _notes(entry):
            about = f"{about} {note}"
    # The model knows the shape from us: it is held to it, as if the request had asked for that.
    return Tool(name, about, parameters, strict=True, deferred=deferred, kind=type)


def _notes(entry: Fields) -> Iterable[str]:
    """What an entry says of the tool that the model should know."""
    width, height = (entry.integer(f"display_{side}_px") or entry.integer(f"display_{side}") for side in ("width", "height"))
    if width and height:
        yield f"The screen has {width} x {height} pixels."
    if system := entry.text("environment") if isinstance(entry.get("environment"), str) else None:
        yield f"It is of the kind {system}."
    if most := entry.integer("max_characters"):
        yield f"Of a file, {most} characters are shown at most."
    environment = entry.object("environment") if isinstance(entry.get("environment"), dict) else None
    if environment is None:
        return
    if (where := environment.text("type") or "local") != "local":
        raise environment.error("type", f"{where!r}: containers run at OpenAI only; commands run with the client, type 'local'")
    for skill in environment.objects("skills"):
        yield f"Skill {skill.text('name')}: {skill.text('description')} (in {skill.text('path')})."


def kinds_of(tools: Iterable[Tool]) -> dict[str, str]:
    """The kinds of those tools that are no functions, by their names."""
    return {tool.name: tool.kind for tool in tools if tool.kind}


def find_named(type: str) -> ToolKind | None:
    """The kind of this type, if there is one; of several, the one that is offered."""
    return next((kind for kind in KINDS if kind.has(type)), None)
