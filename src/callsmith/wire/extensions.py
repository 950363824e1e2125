"""Fields of our own that extend the dialects: options for the server's tools in requests, events and reports in answers.

    {"tool_mode": "mixed", "tool_events": true, "session_id": "s1", "server_tools": ["read_*"]}       in a request
    {"starter_tools": true}                                a clock and the like, where the server was given no tools
    {"wait_for_approval": true}                            a stream stays open while a call waits for approval
    {"explain": true}                                      the answer says what the model was given, and what it wrote
    {"call_bias": 2.0}                                     calls are likelier, by so much of log odds; below 0: rarer
    {"callsmith": {"event": "tool_started", "id": "c1", "name": "add", "arguments": {"a": 1}}}        in a chunk
    {"callsmith": {"approvals": [{"id": "confirm_…", "name": "pay", "arguments": {…}}]}}              where an answer ends
    {"callsmith": {"decision": {"calls": true, "score": 1.3, "threshold": -1.5}}}                     and there, too

A whole answer has all of them in a list: `{"callsmith": {"events": [{"event": "tool_started", …}, …]}}`. A stream of
`/v1/responses` has events of the type `callsmith.event` with that object, and how many seconds after its beginning it happened.
"""

from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias, assert_never, cast

from callsmith.core.approval import Policy
from callsmith.core.choice import MOST_CALL_BIAS, policy_named
from callsmith.core.events import ConfirmationNeeded, Notice, Report, ToolFinished, ToolProgress, ToolStarted, Unenforced
from callsmith.core.types.model_step import CallDecision, ModelStep
from callsmith.core.values import ChoicePolicy, Json, Tool
from callsmith.wire.declare import Field, RequestFields, flag, number, text, texts, words
from callsmith.wire.fields import Fields


@dataclass(frozen=True, slots=True)
class CallDraft:
    """A piece of a call of the server's own tools while the model writes it: the next piece of its arguments, as JSON text."""

    index: int  # among the calls that the model writes in one step
    name: str
    text: str = ""


ToolEvent: TypeAlias = ToolStarted | ToolProgress | ToolFinished | ConfirmationNeeded | Notice | CallDraft
TOOL_EVENTS = (ToolStarted, ToolProgress, ToolFinished, ConfirmationNeeded, Notice, CallDraft)  # for isinstance
# "standard": a request that brings tools runs them itself, the server's are then off. "mixed": both are offered.
ToolMode: TypeAlias = Literal["standard", "mixed"]


EVERYTHING = ("*",)  # patterns that leave nothing out
MCP = "mcp:"  # before the label of an MCP server, in the source of its tools
_MOST_SCORE = 1e6  # what is beyond is written as this: JSON has no infinity


@dataclass(frozen=True, slots=True)
class ToolSource:
    """Some of the server's tools by where they come from: the source, or an MCP server's label; of these, patterns of names.

    `policy` can only tighten the operator's. Its rules may name a tool as it is called at its source or as it is called here.
    """

    source: str
    tools: tuple[str, ...] = EVERYTHING
    policy: Policy | None = None
    read_only: bool = False  # none with side effects

    def covers(self, tool: Tool) -> bool:
        matches = any(is_named(tool, pattern) for pattern in self.tools)
        return tool.source in (self.source, MCP + self.source) and matches and not (self.read_only and tool.side_effects)


def is_named(tool: Tool, pattern: str) -> bool:
    """Whether a pattern means this tool, by its name here or at its source."""
    return fnmatchcase(tool.name, pattern) or (tool.original != "" and fnmatchcase(tool.original, pattern))


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """How a request uses the server's own tools.

    `allowed` are patterns of names: of the server's tools those that are offered (None: all). Where `sources` are given, only
    tools from there are. `shows_events` asks for events of what tools do; `shows_tool_items` says that the dialect has items for
    that anyway. With `wait_for_approval`, an answer stays open until a person has decided. `approvals` are the ids of stored
    approvals on open calls, `response_id` is that of the response being made, where the dialect stores such. `explains`: the
    report of the answer has its steps. `starter`: where the server was given no tools, its starter tools are offered.
    """

    mode: ToolMode | None = None
    allowed: tuple[str, ...] | None = None
    sources: tuple[ToolSource, ...] = ()
    shows_events: bool = False
    shows_tool_items: bool = False
    wait_for_approval: bool = False
    approvals: tuple[str, ...] = ()
    response_id: str = ""
    explains: bool = False
    starter: bool = False


DEFAULT_OPTIONS = ToolOptions()


class ExtensionFields(RequestFields):
    """Fields of our own, in every dialect whose requests may have the server's tools run."""

    tool_mode = words("standard", "mixed", about="With mixed, the server's tools are offered beside those of the request.")
    server_tools = texts("Patterns of names: the server's tools that are offered.")
    starter_tools = flag("Whether a clock, a calculator and a unit converter are offered, where the server was given no tools.")
    tool_events = flag("Whether the answer shows what the server's tools did.")
    wait_for_approval = flag("Whether a stream stays open while a call waits for a person.")
    explain = flag("Whether the answer says what the model was given and what it wrote, step by step.")
    session_id = text("The conversation: its cache is evicted last, and results of its jobs come into it.")


def read_extensions(body: Json) -> tuple[ToolOptions, str]:
    """Our own fields of a request: how it uses tools, and the id of the session it belongs to."""
    fields = ExtensionFields.of(body, "")
    options = ToolOptions(
        cast("ToolMode | None", fields.tool_mode),
        fields.server_tools,
        shows_events=fields.tool_events or False,
        wait_for_approval=fields.wait_for_approval or False,
        explains=fields.explain or False,
        starter=fields.starter_tools or False,
    )
    return options, fields.session_id or ""


def _read_policy(fields: Fields, key: str) -> ChoicePolicy:
    return policy_named(fields.text(key) or "", fields.at(key))


class ChoiceFields(RequestFields):
    """How the model chooses between calls and words."""

    tool_choice_policy = Field(
        '"auto" | "required_first_hop" | "required_always"', _read_policy, "How a tool_choice of auto is treated."
    )
    call_bias = number(
        "How much likelier calls are where the model chooses, as log odds; below 0: rarer.",
        least=-MOST_CALL_BIAS,
        most=MOST_CALL_BIAS,
    )


class AnswerExtensions:
    """Collects the `callsmith` object of an answer: calls that wait for approval, and events if they are wanted."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._events: list[dict[str, Json]] = []
        self._approvals: list[dict[str, Json]] = []

    def add(self, event: ToolEvent) -> dict[str, Json] | None:
        """The object to send for this event at once, if any."""
        body = write_tool_event(event)
        if isinstance(event, ConfirmationNeeded):
            self._approvals.append({key: value for key, value in body.items() if key != "event"})
        if not self._wanted:
            return None
        self._events.append(body)
        return body

    def end(self, body: dict[str, Json], *, whole: bool) -> dict[str, Json]:
        """The body of the last chunk or of the whole answer, with this added."""
        added: dict[str, Json] = {"approvals": self._approvals} if self._approvals else {}
        if whole and self._events:
            added["events"] = self._events
        return {**body, "callsmith": {**body.get("callsmith", {}), **added}} if added else body


def write_tool_event(event: ToolEvent) -> dict[str, Json]:
    """The object for an event of a tool."""
    match event:
        case ToolStarted(call):
            return {"event": "tool_started", "id": call.id, "name": call.name, "arguments": dict(call.arguments)}
        case ToolProgress(id, text, current, total):
            return {"event": "tool_progress", "id": id, "text": text, "current": current, "total": total}
        case ToolFinished(result):
            code = {"code": result.code} if result.code else {}
            outcome = {"id": result.call_id, "name": result.name, "ok": result.ok, "content": result.text}
            return {"event": "tool_finished", **outcome, **code}
        case ConfirmationNeeded(id, call, reason, expires):
            question = {"name": call.name, "arguments": dict(call.arguments), "call_id": call.id, "reason": reason}
            return {"event": "confirmation_needed", "id": id, **question, "expires": expires}
        case Notice(text):
            return {"event": "notice", "text": text}
        case CallDraft(index, name, text):
            return {"event": "call_draft", "index": index, "name": name, "delta": text}
        case _:
            assert_never(event)


def write_report(report: Report) -> dict[str, Json]:
    """What was done for an answer, as a field to add; none where there is nothing to report."""
    if report == Report():
        return {}
    unenforced = [{"tool": item.tool or None, "path": item.path, "keyword": item.keyword} for item in report.unenforced]
    taken_back: dict[str, Json] = {"taken_back": [*report.taken_back]} if report.taken_back else {}
    notices: dict[str, Json] = {"notices": [*report.notices]} if report.notices else {}
    steps: dict[str, Json] = {"steps": [_write_step(step) for step in report.steps]} if report.steps else {}
    decided = write_decision(report.decision)
    return {"callsmith": {"unenforced": unenforced, "retries": report.retries, **taken_back, **notices, **steps, **decided}}


def _write_step(step: ModelStep) -> dict[str, Json]:
    fields = {**asdict(step), "repairs": [*step.repairs]}
    del fields["decision"]
    return fields | write_decision(step.decision)


def write_decision(decision: CallDecision | None) -> dict[str, Json]:
    """Whether tools were called and why, as a field to add; none where nothing was decided."""
    if decision is None:
        return {}
    score, threshold = _round_score(decision.score), _round_score(decision.threshold)
    return {"decision": {"calls": decision.calls, "score": score, "threshold": threshold}}


def _round_score(score: float) -> float:
    return round(max(-_MOST_SCORE, min(score, _MOST_SCORE)), 2) + 0.0  # without the sign of a zero


def read_report(fields: Fields) -> Report | None:
    """The report among these fields, if there is one."""
    extension = fields.object("callsmith")
    if extension is None:
        return None
    unenforced = (
        Unenforced(entry.text("tool") or "", entry.text("path") or "", entry.text("keyword") or "")
        for entry in extension.objects("unenforced")
    )
    return Report(
        tuple(unenforced),
        extension.integer("retries") or 0,
        tuple(extension.texts("taken_back")),
        tuple(extension.texts("notices")),
        tuple(map(_read_step, extension.objects("steps"))),
        read_decision(extension),
    )


def _read_step(fields: Fields) -> ModelStep:
    return ModelStep(
        fields.text("prompt") or "",
        fields.text("text") or "",
        fields.text("grammar") or "",
        fields.texts("repairs"),
        fields.number("seconds") or 0.0,
        fields.integer("prompt_tokens") or 0,
        fields.integer("tokens") or 0,
        read_decision(fields),
    )


def read_decision(fields: Fields) -> CallDecision | None:
    """The decision among these fields, if there is one."""
    decided = fields.object("decision")
    if decided is None:
        return None
    score, threshold = (decided.number(name, least=-_MOST_SCORE, most=_MOST_SCORE) or 0.0 for name in ("score", "threshold"))
    return CallDecision(decided.flag("calls") or False, score, threshold)
