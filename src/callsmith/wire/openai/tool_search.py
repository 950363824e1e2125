"""The search for tools in `/v1/responses`: the tool that a request declares, and the items of a search that ran here.

    {"tools": [{"type": "tool_search"}, {"type": "function", "name": "add", "defer_loading": true, "parameters": {…}}]}
    {"type": "tool_search_call", "id": "tsc_1", "call_id": null, "execution": "server", "arguments": {"query": "add numbers"}}
    {"type": "tool_search_output", "id": "tso_1", "call_id": null, "execution": "server", "tools": [{"type": "function", …}]}

A search that the client wants to run itself (`"execution": "client"`) is not offered to the model: then nothing is deferred.
"""

import json
from collections.abc import Collection, Iterable, Sequence

from callsmith.core.choice import FIND_TOOLS, found_text
from callsmith.core.values import Call, Json
from callsmith.wire.fields import Fields
from callsmith.wire.openai.items import flat_name

TOOL_SEARCH = "tool_search"
_CALL, _OUTPUT = "tool_search_call", "tool_search_output"


def is_server_search(tool: Json) -> bool:
    """Whether this is the declaration of a search that runs here."""
    return tool.get("type") == TOOL_SEARCH and tool.get("execution") in (None, "server")


def plain_searches(items: Sequence[Fields]) -> list[Fields]:
    """The items with a function's call and output in place of a search that ran here. Others' searches are left out."""
    plain: list[Fields] = []
    calls: list[Fields] = []
    for item in items:
        kind = item.text("type")
        if kind == _CALL:
            calls.append(item)
        elif kind != _OUTPUT:
            plain.append(item)
        elif calls and item.text("execution") == "server":
            call = calls.pop()
            id = call.text("call_id") or call.text("id") or f"search_{len(plain)}"
            found = [(name, "") for tool in item.objects("tools") for name in _names(tool)]
            asked = {"type": "function_call", "call_id": id, "name": FIND_TOOLS, "arguments": _arguments(call)}
            answer = {"type": "function_call_output", "call_id": id, "output": found_text(found) if found else "No tool fits."}
            plain += [Fields(asked, call.path), Fields(answer, item.path)]
    return plain


def _arguments(call: Fields) -> str:
    given = call.get("arguments")
    return given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)


def _names(tool: Fields) -> list[str]:
    """The names of a tool, or of those in a namespace, as the model knows them."""
    name = tool.text("name") or ""
    if tool.text("type") != "namespace":
        return [name] if name else []
    return [flat_name(name, inner.required_text("name")) for inner in tool.objects("tools")]


def write_search(call: Call) -> dict[str, Json]:
    """The item of a search that begins."""
    return {"type": _CALL, "call_id": None, "execution": "server", "arguments": dict(call.arguments), "status": "in_progress"}


def write_found(names: Collection[str], tools: Iterable[Json]) -> dict[str, Json]:
    """The item of what a search has found, with the definitions out of a request's `tools`."""
    found: list[Json] = []
    for tool in tools:
        if tool["type"] == "function" and tool["name"] in names:
            found.append(tool)
        elif tool["type"] == "namespace":
            inner = [one for one in tool["tools"] if flat_name(tool["name"], one.get("name", "")) in names]
            found += [{"description": "", **tool, "tools": inner}] if inner else []
    return {"type": _OUTPUT, "call_id": None, "execution": "server", "tools": found, "status": "completed"}
