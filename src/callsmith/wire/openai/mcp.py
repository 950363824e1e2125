"""MCP servers in `/v1/responses`: which of them a request wants, and the items for their calls and approvals.

    {"type": "mcp", "server_label": "files", "allowed_tools": ["read"], "require_approval": {"never": {"tool_names": ["read"]}}}

    {"type": "mcp_approval_request", "id": "confirm_1", "server_label": "files", "name": "read", "arguments": "{}"}
    {"type": "mcp_approval_response", "approval_request_id": "confirm_1", "approve": true}
    {"type": "mcp_call", "id": "mcp_1", "server_label": "files", "name": "read", "arguments": "{}", "output": "…",
     "error": null, "approval_request_id": "confirm_1", "status": "completed"}

At OpenAI every call needs approval unless `require_approval` says otherwise. Here a request without it leaves that to the
operator's policy, which it can tighten and never loosen: "never" adds nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from callsmith.core.approval import Approved, Decision, Denied, Policy, Rule, Verdict
from callsmith.core.values import Json, Result, Tool
from callsmith.wire.fields import Fields, without_none
from callsmith.wire.kinds.table import CALL_ITEMS
from callsmith.wire.tools import MCP, mcp_name

# Fields for a server that is reached from elsewhere. Those here have their secrets from the operator.
_ELSEWHERE = ("connector_id", "tunnel_id", "headers", "authorization")
_CALLS = frozenset({"function_call", *CALL_ITEMS})
_BY_MODEL = _CALLS | {"reasoning", "mcp_call", "mcp_approval_request"}  # by a model
_NOT_TEXT = (
    _CALLS
    | {f"{call}_output" for call in _CALLS}
    | {f"mcp_{kind}" for kind in ("approval_request", "approval_response", "call", "list_tools")}
)
WITHOUT_STATUS = frozenset({"mcp_approval_request", "mcp_approval_response", "mcp_list_tools"})
WAITING = "waiting: this call has not been run, for nobody has approved it yet"
_LOST = "interrupted: it is not known what came of this call"


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """Some tools of a server: by their names there, and by whether they only read. None: it does not matter."""

    names: tuple[str, ...] | None = None
    read_only: bool | None = None


@dataclass(frozen=True, slots=True)
class ApprovalFilters:
    """Which tools always need approval, and which never."""

    always: ToolFilter | None = None
    never: ToolFilter | None = None


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server a request wants to be used, by its label; `url` is where the request thinks it is."""

    label: str
    allowed: ToolFilter = ToolFilter()
    approval: Literal["always", "never"] | ApprovalFilters | None = None
    url: str = ""

    @property
    def policy(self) -> Policy | None:
        """What this adds to the operator's policy."""
        match self.approval:
            case None | "never":
                return None
            case "always":
                return Policy((), "ask", "ask")
            case ApprovalFilters(always, never):
                # Where only exceptions are named, the rest is asked about.
                rest: Verdict = "ask" if never and not always else "auto"
                return Policy((*_rules("ask", always), *_rules("auto", never)), rest, rest)


def _rules(then: Verdict, which: ToolFilter | None) -> list[Rule]:
    if which is None:
        return []
    acts = None if which.read_only is None else not which.read_only
    return [Rule(then, name, side_effects=acts, reason="the request wants to be asked") for name in which.names or ("*",)]


def read_server(entry: Fields) -> McpServer:
    """The server an entry of `tools` is about."""
    value = entry.get("allowed_tools")
    allowed = _read_filter(entry.object("allowed_tools")) if isinstance(value, Mapping) else None
    if allowed is None:
        allowed = ToolFilter(None if value is None else entry.texts("allowed_tools"))
    for key in _ELSEWHERE:
        if entry.get(key):
            raise entry.error(key, "is set by the operator: only MCP servers that are configured here are used, by their label")
    return McpServer(entry.required_text("server_label"), allowed, _read_approval(entry), entry.text("server_url") or "")


def _read_approval(entry: Fields) -> Literal["always", "never"] | ApprovalFilters | None:
    value = entry.get("require_approval")
    if value is None or value == "always" or value == "never":
        return value
    if not isinstance(value, Mapping):
        raise entry.error("require_approval", "expected always, never, or an object with these")
    fields = entry.required_object("require_approval")
    return ApprovalFilters(_read_filter(fields.object("always")), _read_filter(fields.object("never")))


def _read_filter(fields: Fields | None) -> ToolFilter | None:
    if fields is None:
        return None
    names = None if fields.get("tool_names") is None else fields.texts("tool_names")
    return ToolFilter(names, fields.flag("read_only"))


def write_server(server: McpServer) -> dict[str, Json]:
    """The entry that `read_server` reads back."""
    entry: dict[str, Json] = {"type": MCP, "server_label": server.label}
    if server.allowed != ToolFilter():
        entry["allowed_tools"] = _write_filter(server.allowed)
    if isinstance(server.approval, ApprovalFilters):
        filters = {"always": server.approval.always, "never": server.approval.never}
        entry["require_approval"] = {key: _write_filter(which) for key, which in filters.items() if which is not None}
    elif server.approval is not None:
        entry["require_approval"] = server.approval
    if server.url:
        entry["server_url"] = server.url
    return entry


def _write_filter(which: ToolFilter) -> dict[str, Json]:
    fields: dict[str, Json] = {"tool_names": None if which.names is None else list(which.names), "read_only": which.read_only}
    return without_none(fields)


def write_listed(tool: Tool) -> dict[str, Json]:
    """A tool in the list of its server's."""
    return {
        "name": tool.original or tool.name,
        "description": tool.description or None,
        "input_schema": dict(tool.parameters),
        "annotations": {"read_only": not tool.side_effects},
    }


def write_mcp_call(result: Result) -> dict[str, Json]:
    """The result of a call, as fields of its item."""
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": result.text}]}
    outcome: dict[str, Json] = {"output": result.text, "error": None} if result.ok else {"output": None, "error": error}
    return {"type": "mcp_call", "status": "completed" if result.ok else "failed", **outcome}


# MCP items to items of functions

Decisions: TypeAlias = dict[str, Decision | None]  # on calls that have not run, by approval; None: not decided yet


def plain_items(items: Sequence[Fields]) -> tuple[list[Fields], Decisions]:
    """The items with functions' calls and outputs in place of MCP's, and the open approvals with what was decided.

    Calls that have not run stand at the end, named by their approvals. One that nobody has answered, although the
    conversation went on, gets an answer that says so.
    """
    history = _ApprovalHistory(items)
    plain, waiting, decisions = list[Fields](), list[Fields](), Decisions()
    for index, item in enumerate(items):
        match item.text("type"):
            case "mcp_call":
                output = item.text("output")
                result = error_text(item.get("error")) or _LOST if output is None else output
                plain += _answered_call(item, item.text("approval_request_id") or item.required_text("id"), result)
            case "mcp_approval_request":
                id = item.required_text("id")
                answer = history.result(id, index)
                if answer is None:
                    decisions[id] = history.decision(id)
                    waiting.append(_call(item, id))
                elif answer:
                    plain += _answered_call(item, id, answer)
            case "mcp_approval_response" | "mcp_list_tools":
                pass
            case _:
                plain.append(item)
    return [*plain, *waiting], decisions


class _ApprovalHistory:
    """What became of each approval, by the items of the conversation."""

    def __init__(self, items: Sequence[Fields]) -> None:
        numbered = [(index, item.text("type"), item) for index, item in enumerate(items)]
        self._called = {item.text("approval_request_id") for _, kind, item in numbered if kind == "mcp_call"}
        responses = ((index, item) for index, kind, item in numbered if kind == "mcp_approval_response")
        self._responses = {item.required_text("approval_request_id"): (index, item) for index, item in responses}
        self._requested = {item.text("id"): index for index, kind, item in numbered if kind == "mcp_approval_request"}
        outputs = (index for index, kind, item in numbered if kind in _BY_MODEL or item.get("role") == "assistant")
        self._last_output = max(outputs, default=-1)
        self._last_input = max((index for index, kind, _ in numbered if kind not in _NOT_TEXT), default=-1)

    def result(self, id: str, index: int) -> str | None:
        """The result of the call; empty where it stands in another item, None while it is open."""
        if id in self._called or self._requested[id] != index:
            return ""
        if id not in self._responses:
            return WAITING if self._last_input > index else None
        place, item = self._responses[id]
        denied = item.flag("approve") is False and place < self._last_output  # a model has gone on from there
        return f"denied: {item.text('reason') or 'a person said no'}" if denied else None

    def decision(self, id: str) -> Decision | None:
        if id not in self._responses:
            return None
        item = self._responses[id][1]
        approve = item.flag("approve")
        if approve is None:
            raise item.error("approve", "is required: true or false")
        return Approved() if approve else Denied(item.text("reason") or "")


def _call(item: Fields, id: str) -> Fields:
    name = mcp_name(item.required_text("server_label"), item.required_text("name"))
    call = {"type": "function_call", "call_id": id, "name": name, "arguments": item.text("arguments") or ""}
    return Fields(call, item.path)


def _answered_call(item: Fields, id: str, output: str) -> list[Fields]:
    return [_call(item, id), Fields({"type": "function_call_output", "call_id": id, "output": output}, item.path)]


def error_text(error: Json) -> str:
    """The message in the error of a call: a text, or an object in one of several shapes."""
    if isinstance(error, str):
        return error
    if not isinstance(error, Mapping):
        return ""
    known = cast("Mapping[str, Any]", error)
    content: Any = known.get("content") or known.get("message") or ""
    if isinstance(content, str):
        return content
    parts = cast("Iterable[Any]", content if isinstance(content, list) else [content])
    texts = (cast("Mapping[str, Any]", part).get("text") for part in parts if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def find_listed_servers(items: Iterable[Fields]) -> frozenset[str]:
    """The servers whose tools have been listed already."""
    return frozenset(item.text("server_label") or "" for item in items if item.text("type") == "mcp_list_tools")
