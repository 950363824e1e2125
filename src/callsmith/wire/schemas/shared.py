"""What the answers and requests of several dialects have in common: tools, outputs, reports, errors."""

from callsmith.wire.openai.output import StructuredOutputs
from callsmith.wire.tools import ToolFields

TITLE = "Shared"
REQUESTS = (ToolFields, StructuredOutputs)
TYPES = """
type Error = {  // An error in OpenAI's shape.
    error: {
        message: string  // What is wrong, and with which field.
        type: string, param: string | null, code: string | null
    }
    request_id?: string
}
type CustomFormat = partial {
    type: "text" | "grammar"
    syntax: "lark" | "regex"  // With grammar.
    definition: string  // The grammar.
    grammar: partial {syntax!: "lark" | "regex", definition!: string}  // In place of the two.
}
type _Custom = partial {name!: string, description: string, format: CustomFormat}
type ChatTool =
    | partial {type: "function", function!: Function}
    | FlatFunction
    | partial {type!: "custom", custom!: _Custom}
    | partial {type!: "custom", name!: string, description: string, format: CustomFormat}  // One whose calls are a text.
type _Mode = "auto" | "required" | "none" | "any"
type ToolChoice = _Mode | partial {
    type: "function" | "tool" | "custom" | "auto" | "none" | "required" | "any" | "allowed_tools" | "mcp"
        | "shell" | "local_shell" | "apply_patch" | "computer" | "computer_use_preview"
    function: {name: string}
    custom: {name: string}
    name: string
    specific: string  // The name of the tool, in another spelling.
    allowed_tools: AllowedTools, mode: _Mode, tools: object[]
    server_label: string  // Of an MCP server, with the type mcp.
}  // Which tools may or must be called.
type AllowedTools = partial {mode: _Mode, tools!: partial {
    type: string, function: {name: string}, custom: {name: string}, name: string, server_label: string
}[]}
type ResponseFormat = partial {
    type!: "text" | "json_object" | "json_schema"
    json_schema: partial {name: string, schema!: object | string, strict: boolean, as_written: boolean, description: string}
    schema: object | string  // With json_object.
    as_written: boolean  // Whether the schema is taken at its word.
}
type Usage = {
    prompt_tokens: integer, completion_tokens: integer, total_tokens: integer
    prompt_tokens_details: {cached_tokens: integer}  // Tokens that the KV cache had.
    completion_tokens_details: {reasoning_tokens: integer}
}
type _Logprob = {token: string, logprob: number, bytes: integer[]}
type TokenLogprob = {..._Logprob, top_logprobs: _Logprob[]}
type Call = {id: string, name: string, arguments: object}
type ToolEvent =
    | {event: "tool_started", id: string, name: string, arguments: object}
    | {event: "tool_progress", id: string, text: string, current: number | null, total: number | null}
    | {event: "tool_finished", id: string, name: string, ok: boolean, content: string, code?: string}
    | ConfirmationNeeded
    | {event: "notice", text: string}  // What one of the server's tools did.
type ConfirmationNeeded = {  // A call that waits for a person.
    event?: "confirmation_needed"
    id: string  // Of the approval.
    name: string, arguments: object, call_id: string, reason: string
    expires: number | null  // Unix time.
}
type Decision = {  // Whether tools were called, where that was decided before the answer was written.
    calls: boolean
    score: number  // Of a call, as log odds.
    threshold: number  // From here on tools are called.
}
type Report = {  // What was done for an answer.
    unenforced?: {tool: string | null, path: string, keyword: string}[]  // What no grammar could enforce: checked afterwards.
    retries?: integer  // How often the model was asked once more.
    taken_back?: string[]  // What guards took back before it was shown.
    notices?: string[], approvals?: ConfirmationNeeded[], events?: ToolEvent[]
    steps?: {  // With explain.
        prompt: string  // As the model was given it.
        text: string  // What it wrote.
        grammar: string  // What held it; empty: nothing did.
        repairs: string[], seconds: number, prompt_tokens: integer, tokens: integer, decision?: Decision
    }[]
    decision?: Decision
}
"""
