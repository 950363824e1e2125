"""Responses and conversations, as OpenAI has them."""

from callsmith.wire.openai.responses import CompactFields, ResponsesFields, ResponsesToolFields
from callsmith.wire.schemas import PAGE_PARAMETERS, Operation, Parameter

TITLE = "OpenAI Responses"
REQUESTS = (ResponsesFields, ResponsesToolFields)
TYPES = """
type _Filter = partial {tool_names: string | string[], read_only: boolean}
type ResponsesTool =
    | ResponsesFunction
    | partial {type!: "namespace", name!: string, description: string, tools: ResponsesTool[]}
    | partial {
        type!: "mcp"
        server_label!: string  // Of an MCP server that is configured here.
        server_url: string
        allowed_tools: string[] | _Filter
        require_approval: "always" | "never" | partial {always: _Filter, never: _Filter}
        connector_id: ""  // Refused: the operator sets it.
        tunnel_id: ""  // Refused: the operator sets it.
        headers: map<never>  // Refused: the operator sets it.
        authorization: ""  // Refused: the operator sets it.
    }
    | partial {type!: "tool_search", execution: "server" | "client"}
    | partial {type!: "custom", name: string, description: string, format: CustomFormat, custom: object}
    | {type: "local_shell" | "apply_patch" | "computer"}
    | partial {type!: "shell", environment: partial {type: "local", skills: object[]}}
    | partial {type!: "computer_use_preview", display_width: integer, display_height: integer, environment: string}
    | {  // Left out with a notice; other tools that only their vendor runs are refused.
        type: "web_search" | "web_search_2025_08_26", external_web_access: false
    }
type TextFormat = partial {
    type!: "text" | "json_object" | "json_schema"
    name: string, schema: object | string, strict: boolean, description: string
    as_written: boolean  // Whether the schema is taken at its word.
    json_schema: object  // As chat completions have it.
}
type _Parts = string | (string | object)[]
type InputItem = partial {  // An item of a conversation: what a response has as output is welcome as input.
    type: "message" | "reasoning" | "function_call" | "function_call_output" | "item_reference" | "compaction" | "mcp_call"
        | "mcp_list_tools" | "mcp_approval_request" | "mcp_approval_response" | "tool_search_call" | "tool_search_output"
        | "file_search_call" | "web_search_call" | "custom_tool_call" | "custom_tool_call_output" | "local_shell_call"
        | "local_shell_call_output" | "shell_call" | "shell_call_output" | "apply_patch_call" | "apply_patch_call_output"
        | "computer_call" | "computer_call_output"
    id: string, role: "system" | "developer" | "user" | "assistant", content: _Parts, summary: object[], status: string
    call_id: string, name: string, namespace: string, arguments: string | object, output: _Parts | object, error: any
    input: string, action: object, actions: object[], operation: object
    server_label: string, approval_request_id: string, approve: boolean, reason: string
    execution: string, tools: object[], encrypted_content: string
}
type _Part =
    | {type: "output_text", text: string, annotations: any[], logprobs: TokenLogprob[]}
    | {type: "reasoning_text" | "summary_text" | "input_text", text: string}
type _Status = "in_progress" | "completed" | "incomplete" | "failed"
type _McpCall = {id: string, server_label: string, name: string, arguments: string}
type _Listed = {name: string, description: string | null, input_schema: object, annotations: {read_only: boolean}}
type _Search = {id: string, call_id: string | null, execution: "server", status: _Status}
type OutputItem =
    | {type: "message", id: string, role: "assistant", content: _Part[], status: _Status}
    | {type: "reasoning", id: string, summary: _Part[], content?: _Part[], status?: _Status}
    | {type: "function_call", id: string, call_id: string, name: string, namespace?: string, arguments: string, status: _Status}
    | {type: "custom_tool_call", id: string, call_id: string, name: string, namespace?: string, input: string, status: _Status}
    | {type: "local_shell_call" | "shell_call", id: string, call_id: string, action: object, status: _Status}
    | {type: "apply_patch_call", id: string, call_id: string, operation: object, status: _Status}
    | {
        type: "computer_call", id: string, call_id: string, action?: object, actions?: object[]
        pending_safety_checks: object[], status: _Status
    }
    | {
        type: "mcp_call", ..._McpCall, approval_request_id: string | null
        output: string | null, error: object | null, status: _Status
    }
    | {type: "mcp_approval_request", ..._McpCall}
    | {type: "mcp_list_tools", id: string, server_label: string, tools: _Listed[], error: string | null}
    | {type: "tool_search_call", ..._Search, arguments: object}
    | {type: "tool_search_output", ..._Search, tools: object[]}  // An item of an answer.
type ResponsesUsage = {
    input_tokens: integer, input_tokens_details: {cached_tokens: integer, cache_write_tokens: integer}
    output_tokens: integer, output_tokens_details: {reasoning_tokens: integer}, total_tokens: integer
}
type Response = {
    id: string, object: "response"
    created_at: integer  // Unix time.
    completed_at: integer | null, status: "queued" | "cancelled" | _Status, error: {code: string, message: string} | null
    incomplete_details: {reason: string} | null, model: string, output: OutputItem[], usage: ResponsesUsage | null
    instructions: string | null, max_output_tokens: integer | null, max_tool_calls: integer | null, metadata: object
    parallel_tool_calls: boolean, previous_response_id: string | null, prompt_cache_key: string | null
    safety_identifier: string | null, store: boolean, text: object, tool_choice: any, user: string | null
    background: boolean, conversation: {id: string} | null, reasoning: {effort: string | null, summary: string | null}
    service_tier: string, tools: object[], top_logprobs: integer, truncation: string
    temperature: number, top_p: number, frequency_penalty: number, presence_penalty: number, callsmith?: Report
}
type ResponseEvent = {
    type: string  // response.created, response.output_text.delta, … response.completed
    sequence_number: integer, response?: Response, item?: OutputItem, part?: _Part, item_id?: string, output_index?: integer
    content_index?: integer, summary_index?: integer, delta?: string, text?: string, name?: string, arguments?: string
    input?: string  // Of a custom tool's call.
    logprobs?: TokenLogprob[]
} | Error  // An event of a stream; the last one has the whole response.
type _Page = {object: "list", first_id: string | null, last_id: string | null, has_more: boolean}
type Items = {..._Page, data: object[]}
type Deleted = {id: string, object: string, deleted: true}
type Conversation = {
    id: string, object: "conversation"
    created_at: integer  // Unix time.
    metadata: map<string>  // Of the caller's own.
    match?: {item: string, before: string, text: string, after: string}  // Where a search found it in a message.
}
type Conversations = {..._Page, data: Conversation[]}
type Compaction = {id: string, object: "response.compaction", created_at: integer, output: object[], usage: ResponsesUsage}
"""

_HI = {"input": "Say hello."}
_CONVERSATION = "/v1/conversations/{id}"

OPERATIONS = {
    "POST /v1/responses": Operation(
        "Answer, and store the response", "ResponsesRequest", "Response", "ResponseEvent", example=_HI
    ),
    "GET /v1/responses": Operation(
        "Answer over WebSocket",
        answer="ResponseEvent",
        about="A WebSocket: each message is a request with the type response.create, answered by the events of a stream.",
    ),
    "POST /v1/responses/compact": Operation(
        "Summarise a conversation",
        CompactFields,
        "Compaction",
    ),
    "POST /v1/responses/input_tokens": Operation(
        "Count the tokens of a request",
        "ResponsesRequest",
        '{object: "response.input_tokens", input_tokens: integer}',
        example=_HI,
    ),
    "GET /v1/responses/{id}": Operation(
        "Fetch a response",
        answer="Response",
        frame="ResponseEvent",
        parameters=(
            Parameter("stream", "Of one in the background: its events.", '"true" | "false"'),
            Parameter("starting_after", "The sequence number behind which the stream begins.", "integer"),
        ),
    ),
    "DELETE /v1/responses/{id}": Operation("Delete a response", answer="Deleted"),
    "POST /v1/responses/{id}/cancel": Operation("Stop a response in the background", answer="Response"),
    "GET /v1/responses/{id}/input_items": Operation("List what a response was asked", answer="Items", parameters=PAGE_PARAMETERS),
    "GET /v1/conversations": Operation(
        "List the caller's conversations, or search them",
        answer="Conversations",
        parameters=(Parameter("query", "Only those with this text in their title or a message."), *PAGE_PARAMETERS),
    ),
    "POST /v1/conversations": Operation(
        "Begin a conversation",
        "partial {items: InputItem[0..20], metadata: map<string>, from: {conversation: string, before?: string}}",
        "Conversation",
        example={"metadata": {"about": "the garden"}},
    ),
    f"GET {_CONVERSATION}": Operation("Fetch a conversation", answer="Conversation"),
    f"POST {_CONVERSATION}": Operation(
        "Change what is noted of a conversation", "partial {metadata: map<string>}", "Conversation"
    ),
    f"DELETE {_CONVERSATION}": Operation("Delete a conversation", answer="Deleted"),
    f"GET {_CONVERSATION}/items": Operation("List the items of a conversation", answer="Items", parameters=PAGE_PARAMETERS),
    f"POST {_CONVERSATION}/items": Operation("Add items to a conversation", "{items: InputItem[1..20]}", "Items"),
    f"GET {_CONVERSATION}/items/{{item}}": Operation("Fetch an item", answer="object"),
    f"DELETE {_CONVERSATION}/items/{{item}}": Operation("Delete an item", answer="Conversation"),
}
