"""What a request can ask of the server's own tools, in any dialect, and what it is told of them in chat completions.

    {"tool_mode": "mixed", "tool_events": true, "session_id": "s1", "server_tools": ["read_*"]}       in a request
    {"wait_for_approval": true}                            a stream is to stay open while a call waits for a person's word
    {"callsmith": {"event": "tool_started", "id": "c1", "name": "add", "arguments": {"a": 1}}}        in a chunk
    {"callsmith": {"approvals": [{"id": "confirm_…", "name": "pay", "arguments": {…}}]}}              where an answer ends

A whole answer has all of them in a list: `{"callsmith": {"events": [{"event": "tool_started", …}, …]}}`.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from callsmith.core.choice import policy_named
from callsmith.core.events import ConfirmationNeeded, Notice, Report, ToolFinished, ToolProgress, ToolStarted, Unenforced
from callsmith.core.values import ChoicePolicy, Json
from callsmith.wire.fields import Fields, without_none

ToolEvent: TypeAlias = ToolStarted | ToolProgress | ToolFinished | ConfirmationNeeded | Notice
TOOL_EVENTS = (ToolStarted, ToolProgress, ToolFinished, ConfirmationNeeded, Notice)  # for isinstance
# "standard": a request that brings tools runs them itself, the server's are then off. "mixed": both are offered.
ToolMode: TypeAlias = Literal["standard", "mixed"]


@dataclass(frozen=True, slots=True)
class RequestExtensions:
    """What a request asks for besides what its dialect has words for. `tools` are patterns: of the server's tools those that are
    wanted; None: all.
    """

    mode: ToolMode | None = None
    events: bool = False
    session: str = ""
    tools: tuple[str, ...] | None = None
    wait: bool = False


def read_extensions(body: Json) -> RequestExtensions:
    """The extras among the fields of a request."""
    fields = Fields.of(body, "")
    mode = fields.text("tool_mode")
    if mode is not None and mode != "standard" and mode != "mixed":
        raise fields.wrong("tool_mode", f"{mode!r} is neither standard nor mixed")
    tools = None if fields.get("server_tools") is None else fields.texts("server_tools")
    wait = fields.flag("wait_for_approval") or False
    return RequestExtensions(mode, fields.flag("tool_events") or False, fields.text("session_id") or "", tools, wait)


def read_policy(fields: Fields) -> ChoicePolicy | None:
    """What becomes of a `tool_choice` that is "auto", where a request says so in `tool_choice_policy`."""
    name = fields.text("tool_choice_policy")
    return None if name is None else policy_named(name, fields.at("tool_choice_policy"))


def write_extras(extras: RequestExtensions) -> dict[str, Json]:
    """The fields that `read_extras` reads back."""
    written: dict[str, Json] = {
        "tool_mode": extras.mode,
        "tool_events": extras.events or None,
        "session_id": extras.session or None,
        "server_tools": None if extras.tools is None else list(extras.tools),
        "wait_for_approval": extras.wait or None,
    }
    return without_none(written)


class Beside:
    """What is told beside an answer: calls that wait for a person's word always, the rest to whoever wants events."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._events: list[dict[str, Json]] = []
        self._approvals: list[dict[str, Json]] = []

    def add(self, event: ToolEvent) -> dict[str, Json] | None:
        """What is told of this event at once, if anything."""
        told = write_tool_event(event)
        if isinstance(event, ConfirmationNeeded):
            self._approvals.append({key: value for key, value in told.items() if key != "event"})
        if not self._wanted:
            return None
        self._events.append(told)
        return told

    def end(self, body: dict[str, Json], *, whole: bool) -> dict[str, Json]:
        """The last chunk or the whole answer, with what belongs there."""
        added: dict[str, Json] = {"approvals": self._approvals} if self._approvals else {}
        if whole and self._events:
            added["events"] = self._events
        return {**body, "callsmith": {**body.get("callsmith", {}), **added}} if added else body


def write_tool_event(event: ToolEvent) -> dict[str, Json]:
    """What a tool did, or waits for."""
    match event:
        case ToolStarted(call):
            return {"event": "tool_started", "id": call.id, "name": call.name, "arguments": dict(call.arguments)}
        case ToolProgress(id, text, current, total):
            return {"event": "tool_progress", "id": id, "text": text, "current": current, "total": total}
        case ToolFinished(result):
            code = {"code": result.code} if result.code else {}
            told = {"id": result.call_id, "name": result.name, "ok": result.ok, "content": result.text}
            return {"event": "tool_finished", **told, **code}
        case ConfirmationNeeded(id, call, reason, expires):
            asked = {"name": call.name, "arguments": dict(call.arguments), "call_id": call.id, "reason": reason}
            return {"event": "confirmation_needed", "id": id, **asked, "expires": expires}
        case Notice(text):
            return {"event": "notice", "text": text}
        case _:
            assert_never(event)


def write_report(report: Report) -> dict[str, Json]:
    """The field to add; none where there is nothing to tell."""
    if report == Report():
        return {}
    left = [{"tool": one.tool or None, "path": one.path, "keyword": one.keyword} for one in report.unenforced]
    return {"callsmith": {"unenforced": left, "retries": report.retries}}


def read_report(fields: Fields) -> Report | None:
    """The report among these fields, if there is one."""
    told = fields.object("callsmith")
    if told is None:
        return None
    left = (
        Unenforced(one.text("tool") or "", one.text("path") or "", one.text("keyword") or "")
        for one in told.objects("unenforced")
    )
    return Report(tuple(left), told.integer("retries") or 0)
