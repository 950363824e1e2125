"""What only this server has: its tools, approvals, jobs, the audit log, upstreams, and what watchers ask for."""

from callsmith.wire.schemas.notation import (
    PAGE_PARAMETERS,
    Operation,
    Parameter,
    Schema,
    answer,
    any_object,
    any_of,
    anything,
    array,
    constant,
    flag,
    integer,
    mapping,
    nullable,
    number,
    request,
    text,
    words,
)

_PAGE = {"object": constant("list"), "first_id": nullable(text()), "last_id": nullable(text()), "has_more": flag()}
_RESULT = answer({"ok": flag(), "content": text(), "code": nullable(text())})
_PROGRESS = answer({"text": text(), "current": nullable(number()), "total": nullable(number()), "id?": text()})
_UPSTREAMS = mapping(array(any_object("A server and its state.")))

TITLE = "This server"
SCHEMAS: dict[str, Schema] = {
    "Approval": answer(
        {
            "id": text(),
            "object": constant("approval"),
            "status": text(),
            "tool": text(),
            "source": nullable(text()),
            "description": nullable(text()),
            "arguments": any_object(),
            "reason": text(),
            "created_at": integer(),
            "expires_at": integer(),
            "response_id": nullable(text()),
            "asks": anything("Of a question that an MCP server asks: the schema of the answer."),
            "decision": nullable(any_object()),
            "result": nullable(_RESULT),
            "caller?": text(),
            "answer?": nullable(any_of("ResumedAnswer", "Error")),
        },
        "A call that waits, or waited, for a person's decision.",
    ),
    "ResumedAnswer": answer(
        {
            "text": text(),
            "reasoning": nullable(text()),
            "approvals": array("ConfirmationNeeded"),
            "calls": array("Call"),
            "stop_reason": text(),
            "usage": nullable("Usage"),
        },
        "What the model said once it was decided.",
    ),
    "Job": answer(
        {
            "id": text(),
            "object": constant("job"),
            "status": text(),
            "tool": text(),
            "arguments": any_object(),
            "session_id": nullable(text()),
            "created_at": integer(),
            "seconds": number(),
            "progress": nullable(_PROGRESS),
            "result": nullable(_RESULT),
            "caller?": text(),
        },
        "A call of a tool that goes on in the background.",
    ),
    "Readiness": answer({"ready": flag(), "why?": text()}),
    "Turn": answer(
        {
            "when": number("Unix time."),
            "model": text(),
            "offered": array(text(), "Names of tools."),
            "offer": text("A hash of the tools' definitions."),
            "choice": text(),
            "external": flag("Whether its calls went back to the client."),
            "calls": array(any_object()),
            "usage": mapping(integer()),
            "first": nullable(number("Seconds to the first event.")),
            "seconds": number(),
            "answers": integer(),
            "retries": integer(),
            "unreadable": integer(),
            "notices": integer(),
            "noticed": array(text()),
            "reason": text(),
            "error": text(),
            "decision": nullable("Decision"),
            "request_id": text(),
            "caller?": text(),
        },
        "What became of a turn; nothing that was said.",
    ),
    "ServerTool": answer(
        {
            "name": text(),
            "description": text(),
            "parameters": any_object("A JSON Schema."),
            "source": text(),
            "original": text("Its name at its source."),
            "side_effects": flag(),
            "needs_approval": flag(),
            "tokens": nullable(integer("What its definition costs.")),
        }
    ),
}

OPERATIONS = {
    "GET /v1/tools": Operation(
        "List the server's tools",
        answer=answer(
            {
                "object": constant("list"),
                "data": array("ServerTool"),
                "servers": array(answer({"label": text(), "state": text(), "error": nullable(text()), "tools": integer()})),
            }
        ),
        parameters=(Parameter("starter_tools", "Where it was given none: its starter tools.", words("true", "false")),),
    ),
    "POST /v1/tools/{name}": Operation(
        "Call a tool by hand",
        request(
            {
                "arguments": any_object(),
                "approve": flag("Needed where the call needs an approval (else 409)."),
                "starter_tools": flag("Whether it may be a starter tool, where the server was given no tools."),
            }
        ),
        answer({"result": answer({"ok": flag(), "content": text(), "code?": text(), "seconds": number()})}),
        example={"arguments": {}},
    ),
    "GET /v1/approvals": Operation(
        "List calls that wait for a decision",
        answer=answer({**_PAGE, "data": array("Approval")}),
        parameters=(Parameter("status", "pending (the default), another, or all."), *PAGE_PARAMETERS),
    ),
    "GET /v1/approvals/{id}": Operation("Fetch an approval", answer="Approval"),
    "POST /v1/approvals/{id}": Operation(
        "Decide on a call",
        request(
            {
                "approve!": flag(),
                "arguments": any_object("In place of the model's."),
                "remember": flag("Whether the same call of this definition is approved from now on."),
                "reason": text("Of a denial, for the model."),
            }
        ),
        "Approval",
        example={"approve": True},
    ),
    "GET /v1/jobs": Operation(
        "List jobs",
        answer=answer({**_PAGE, "data": array("Job")}),
        parameters=(Parameter("status", "running, …, or all (the default)."), *PAGE_PARAMETERS),
    ),
    "GET /v1/jobs/{id}": Operation("Fetch a job", answer="Job"),
    "DELETE /v1/jobs/{id}": Operation("Stop a job", answer="Job"),
    "GET /v1/jobs/{id}/events": Operation("Follow a job", frame=any_of("Job", _PROGRESS, "Error")),
    "GET /v1/audit": Operation(
        "Read the audit log (admins)",
        answer=answer(
            {
                "object": constant("list"),
                "data": array(any_object("An entry: number, at, event, subject, name, …")),
                "last": integer("The number to go on after."),
                "has_more": flag(),
            }
        ),
        parameters=(
            Parameter("after", "The number of an entry.", integer(minimum=0)),
            Parameter("limit", "How many, 1 to 1000.", integer(minimum=1, maximum=1000)),
            *(Parameter(name, "Only entries with this.") for name in ("subject", "tool", "event")),
        ),
    ),
    "GET /v1/upstreams": Operation("The servers behind each model (admins)", answer=answer({"upstreams": _UPSTREAMS})),
    "POST /v1/upstreams": Operation(
        "Drain a server, or use it again (admins)",
        request({"url!": text(), "draining!": flag()}),
        answer({"upstreams": _UPSTREAMS}),
    ),
    "GET /v1/turns": Operation(
        "List the caller's latest turns (admins: of all)",
        answer=answer({"object": constant("list"), "data": array("Turn")}),
        parameters=(Parameter("limit", "How many, 1 to 1000.", integer(minimum=1, maximum=1000)),),
    ),
    "GET /v1/telemetry": Operation(
        "What the latest turns come to, by tool and minute",
        answer=answer(
            {"tools": array(any_object("Calls of a tool.")), "minutes": array(any_object("What happened in a minute."))}
        ),
        parameters=(Parameter("minutes", "How far back, 1 to 1440.", integer(minimum=1, maximum=1440)),),
    ),
    "GET /health": Operation(
        "How the server is",
        answer=answer(
            {
                "status": words("ok", "starting", "degraded"),
                "models?": mapping(text()),
                "tools?": any_object(),
                "store?": text(),
                "store_is_lasting?": flag("Whether what is stored outlives the server."),
                "answering?": integer(),
                "upstreams?": any_object(),
                "model_errors?": mapping(text()),
                "mcp?": mapping(any_object()),
            }
        ),
    ),
    "GET /ready": Operation(
        "Whether requests can be answered (503: not)",
        answer="Readiness",
        error="Readiness",
        parameters=(Parameter("without", "store, upstreams: what is left out."),),
    ),
    "GET /metrics": Operation("Metrics for Prometheus", answer=text(), answer_media="text/plain"),
    "GET /": Operation("Whether the server runs; in a browser, the page", answer=text(), answer_media="text/plain"),
    "GET /docs": Operation("This document as a page", answer=text(), answer_media="text/html"),
    "GET /page/{name}": Operation("A file of the page", answer=text(), answer_media="text/html"),
    "GET /openapi.json": Operation("This document", answer=any_object("OpenAPI 3.1.")),
}
