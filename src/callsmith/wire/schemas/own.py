"""What only this server has: its tools, approvals, jobs, the audit log, upstreams, and what watchers ask for."""

from callsmith.wire import declare
from callsmith.wire.fields import Fields
from callsmith.wire.schemas import PAGE_PARAMETERS, Operation, Parameter


class DecisionFields(declare.RequestFields, component="Decide"):
    """A person's decision on a call."""

    approve = declare.required_flag()
    arguments = declare.Field("object", Fields.object, "In place of the model's.")
    remember = declare.flag("Whether the same call of this definition is approved from now on.")
    reason = declare.text("Of a denial, for the model.")


class CallToolFields(declare.RequestFields, component="CallTool"):
    """A call of a tool by hand."""

    arguments = declare.Field("object", Fields.object)
    approve = declare.flag("Needed where the call needs an approval (else 409).")
    starter_tools = declare.flag("Whether it may be a starter tool, where the server was given no tools.")


class PromptFields(declare.RequestFields, component="GetPrompt"):
    """What a prompt of an MCP server is to be made with."""

    arguments = declare.Field("object", Fields.object, "Texts by their names.")


class DrainFields(declare.RequestFields):
    """Whether a server behind a model gets requests."""

    url = declare.required_text()
    draining = declare.required_flag(why="true, or false to send it requests again")


TITLE = "This server"
REQUESTS = (DecisionFields, CallToolFields, PromptFields)
TYPES = """
type _Page = {object: "list", first_id: string | null, last_id: string | null, has_more: boolean}
type _Result = {ok: boolean, content: string, code: string | null}
type Approval = {  // A call that waits, or waited, for a person's decision.
    id: string, object: "approval", status: string, tool: string, source: string | null, description: string | null
    arguments: object, reason: string, created_at: integer, expires_at: integer, response_id: string | null
    asks: any  // Of a question that an MCP server asks: the schema of the answer.
    decision: object | null, result: _Result | null, caller?: string, answer?: ResumedAnswer | Error | null
}
type Approvals = {..._Page, data: Approval[]}
type ResumedAnswer = {  // What the model said once it was decided.
    text: string, reasoning: string | null, approvals: ConfirmationNeeded[], calls: Call[], stop_reason: string
    usage: Usage | null
}
type Progress = {text: string, current: number | null, total: number | null, id?: string}
type Job = {  // A call of a tool that goes on in the background.
    id: string, object: "job", status: string, tool: string, arguments: object, session_id: string | null
    created_at: integer, seconds: number, progress: Progress | null, result: _Result | null, caller?: string
}
type Jobs = {..._Page, data: Job[]}
type Audit = {
    object: "list"
    data: object[]  // Entries: number, at, event, subject, name, …
    last: integer  // The number to go on after.
    has_more: boolean
}
type Readiness = {ready: boolean, why?: string}
type Health = {
    status: "ok" | "starting" | "degraded", models?: map<string>, tools?: object, store?: string
    store_is_lasting?: boolean  // Whether what is stored outlives the server.
    answering?: integer, upstreams?: object, model_errors?: map<string>, mcp?: map<object>
}
type Turn = {  // What became of a turn; nothing that was said.
    when: number  // Unix time.
    model: string
    offered: string[]  // Names of tools.
    offer: string  // A hash of the tools' definitions.
    choice: string
    external: boolean  // Whether its calls went back to the client.
    calls: object[], usage: map<integer>
    first: number | null  // Seconds to the first event.
    seconds: number, answers: integer, retries: integer, unreadable: integer, notices: integer, noticed: string[]
    reason: string, error: string, decision: Decision | null, request_id: string, caller?: string
}
type ServerTool = {
    name: string, description: string
    parameters: object  // A JSON Schema.
    source: string
    original: string  // Its name at its source.
    side_effects: boolean, needs_approval: boolean
    tokens: integer | null  // What its definition costs.
}
type ServerTools = {
    object: "list", data: ServerTool[], servers: {label: string, state: string, error: string | null, tools: integer}[]
}
type Prompts = {  // What MCP servers have written, and those that could not be asked.
    object: "list"
    data: {
        server: string, name: string, description: string
        arguments: {name: string, description: string, required: boolean}[]
    }[]
    errors: {server: string, message: string}[]
}
type Upstreams = {upstreams: map<object[]>}  // By model: servers and their states.
"""

OPERATIONS = {
    "GET /v1/tools": Operation(
        "List the server's tools",
        answer="ServerTools",
        parameters=(Parameter("starter_tools", "Where it was given none: its starter tools.", '"true" | "false"'),),
    ),
    "POST /v1/tools/{name}": Operation(
        "Call a tool by hand",
        "CallTool",
        "{result: {ok: boolean, content: string, code?: string, seconds: number}}",
        example={"arguments": {}},
    ),
    "GET /v1/prompts": Operation("List the prompts of MCP servers", answer="Prompts"),
    "POST /v1/prompts/{server}/{name}": Operation(
        "Have an MCP server write a prompt",
        "GetPrompt",
        "{messages: {role: string, content: string}[]}",
        example={"arguments": {}},
    ),
    "GET /v1/approvals": Operation(
        "List calls that wait for a decision",
        answer="Approvals",
        parameters=(Parameter("status", "pending (the default), another, or all."), *PAGE_PARAMETERS),
    ),
    "GET /v1/approvals/{id}": Operation("Fetch an approval", answer="Approval"),
    "POST /v1/approvals/{id}": Operation("Decide on a call", "Decide", "Approval", example={"approve": True}),
    "GET /v1/jobs": Operation(
        "List jobs",
        answer="Jobs",
        parameters=(Parameter("status", "running, …, or all (the default)."), *PAGE_PARAMETERS),
    ),
    "GET /v1/jobs/{id}": Operation("Fetch a job", answer="Job"),
    "DELETE /v1/jobs/{id}": Operation("Stop a job", answer="Job"),
    "GET /v1/jobs/{id}/events": Operation("Follow a job", frame="Job | Progress | Error"),
    "GET /v1/audit": Operation(
        "Read the audit log (admins)",
        answer="Audit",
        parameters=(
            Parameter("after", "The number of an entry.", "integer", 0),
            Parameter("limit", "How many, 1 to 1000.", "integer", 1, 1000),
            *(Parameter(name, "Only entries with this.") for name in ("subject", "tool", "event")),
        ),
    ),
    "GET /v1/upstreams": Operation("The servers behind each model (admins)", answer="Upstreams"),
    "POST /v1/upstreams": Operation("Drain a server, or use it again (admins)", DrainFields, "Upstreams"),
    "GET /v1/turns": Operation(
        "List the caller's latest turns (admins: of all)",
        answer='{object: "list", data: Turn[]}',
        parameters=(Parameter("limit", "How many, 1 to 1000.", "integer", 1, 1000),),
    ),
    "GET /v1/telemetry": Operation(
        "What the latest turns come to, by tool and minute",
        answer="{tools: object[], minutes: object[]}",
        parameters=(Parameter("minutes", "How far back, 1 to 1440.", "integer", 1, 1440),),
    ),
    "GET /health": Operation("How the server is", answer="Health"),
    "GET /ready": Operation(
        "Whether requests can be answered (503: not)",
        answer="Readiness",
        error="Readiness",
        parameters=(Parameter("without", "store, upstreams: what is left out."),),
    ),
    "GET /metrics": Operation("Metrics for Prometheus", answer="string", answer_media="text/plain"),
    "GET /": Operation("Whether the server runs; in a browser, the page", answer="string", answer_media="text/plain"),
    "GET /docs": Operation("This document as a page", answer="string", answer_media="text/html"),
    "GET /page/{name}": Operation("A file of the page", answer="string", answer_media="text/html"),
    "GET /openapi.json": Operation("This document: OpenAPI 3.1", answer="object"),
}
