"""The search for tools in Messages: the tool that a request declares, and the blocks for a search that ran here.

    {"tools": [{"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
               {"name": "add", "defer_loading": true, "input_schema": {…}}]}
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_bm25", "input": {"query": "add numbers"}}
    {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": {"type": "tool_search_tool_search_result",
     "tool_references": [{"type": "tool_reference", "tool_name": "add"}]}}

Without that tool nothing is deferred, for nothing would be found. Both variants search alike, by words: of a pattern the words in
it count, for a pattern that a model writes is never run.
"""

from callsmith.core.choice import found_names, found_text
from callsmith.core.values import Json, Result
from callsmith.wire.fields import Fields

SERVER_TOOL_USE = "server_tool_use"
SEARCH_RESULT = "tool_search_tool_result"
_VARIANTS = ("tool_search_tool_bm25", "tool_search_tool_regex")


def read_search_tool(fields: Fields) -> str:
    """The name of the search tool that a request declares; "" if there is none."""
    types = (entry.text("type") or "" for entry in fields.objects("tools"))
    return next((name for one in types for name in _VARIANTS if one == name or one.startswith(f"{name}_2")), "")


def is_search(name: str) -> bool:
    """Whether this is a name of the search tool."""
    return name in _VARIANTS


def read_search_result(block: Fields) -> str:
    """The result of a search as the model reads it."""
    content = block.required_object("content")
    names = [(one.required_text("tool_name"), "") for one in content.objects("tool_references")]
    if content.text("type") == "tool_search_tool_result_error":
        return f"Error: {content.text('error_message') or content.text('error_code') or 'the search has failed'}"
    return found_text(names) if names else "No tool fits."


def write_search(id: str, name: str) -> dict[str, Json]:
    """The block of a search as it begins: its input comes in pieces."""
    return {"type": SERVER_TOOL_USE, "id": id, "name": name, "input": {}}


def write_search_result(id: str, result: Result) -> dict[str, Json]:
    """The block of what a search has found."""
    references = [{"type": "tool_reference", "tool_name": name} for name in found_names(result.text)]
    content = {"type": "tool_search_tool_search_result", "tool_references": references}
    return {"type": SEARCH_RESULT, "tool_use_id": id, "content": content}
