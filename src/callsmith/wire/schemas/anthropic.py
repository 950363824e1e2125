"""Messages, as Anthropic has them."""

from callsmith.wire.anthropic.messages import CountTokensFields, CustomToolFields, MessagesFields
from callsmith.wire.schemas import Operation

TITLE = "Anthropic Messages"
REQUESTS = (MessagesFields, CountTokensFields, CustomToolFields)
TYPES = """
type _Content = string | ContentBlock[]
type _Found = partial {
    type: string, tool_references: partial {type: string, tool_name!: string}[], error_code: string, error_message: string
}
type ContentBlock =
    | partial {type!: "text", text: string, cache_control: object}
    | {type: "image", source: partial {type!: "base64" | "url", media_type: string, data: string, url: string}}
    | partial {type!: "thinking", thinking: string, signature: string}
    | {type: "redacted_thinking" | "mcp_tool_listing"}
    | partial {type!: "tool_use", id: string, name!: string, toolset_name: string, input: object}
    | partial {type!: "browser_state", tabs: object[], state_changes: object[]}
    | partial {type!: "tool_result", tool_use_id!: string, content: _Content, is_error: boolean}
    | {type: "tool_reference", tool_name: string}
    | partial {type!: "mcp_tool_use", id: string, server_name!: string, name!: string, input: object}
    | partial {type!: "mcp_tool_result", tool_use_id!: string, content: _Content, is_error: boolean}
    | partial {type!: "server_tool_use", id: string, name!: string, input: object}
    | partial {type!: "tool_search_tool_result", tool_use_id!: string, is_error: boolean, content!: _Found}
    // A part of a message.
type _Enabled = partial {enabled: boolean}
type AnthropicTool =
    | CustomTool
    | partial {
        type!: "mcp_toolset", mcp_server_name!: string, default_config: _Enabled, configs: map<_Enabled | null>
        tools: partial {name!: string, input_schema: object}[]
    }
    | partial {
        type!: "tool_search_tool_bm25" | "tool_search_tool_regex" | "tool_search_tool_bm25_20251119"
            | "tool_search_tool_regex_20251119"
        name: string
    }
    | partial {
        type!: "computer_toolset_20260801" | "browser_toolset_20260801"
        configs: map<partial {enabled: boolean, defer_loading: boolean} | null>
    }
    | partial {  // A tool that the client runs; those that only their vendor runs are refused.
        type!: "bash_20241022" | "bash_20250124" | "text_editor_20241022" | "text_editor_20250124" | "text_editor_20250429"
            | "text_editor_20250728" | "memory_20250818" | "computer_20241022" | "computer_20250124" | "computer_20251124"
        name: string, display_width_px: integer, display_height_px: integer, max_characters: integer, defer_loading: boolean
    }
type AnthropicThinking = partial {  // Whether the model is to reason.
    type!: "enabled" | "adaptive" | "between_tools" | "disabled"
    display: string  // omitted: thoughts are not shown.
    budget_tokens: integer  // The most tokens of reasoning, fewer than max_tokens.
}
type OutputFormat = partial {
    type!: "json_schema", schema!: object, name: string
    as_written: boolean  // Whether the schema is taken at its word.
}
type McpServer = partial {
    type!: "url"
    name!: string  // Of an MCP server that is configured here.
    url: string, tool_configuration: partial {enabled: boolean, allowed_tools: string | string[]}
    authorization_token: never  // Refused: the operator sets it.
}
type _Use = {id: string, name: string, input: object}
type AnsweredBlock =
    | {type: "text", text: string}
    | {type: "thinking", thinking: string, signature: string}
    | {type: "tool_use", ..._Use, toolset_name?: string}
    | {type: "mcp_tool_use", ..._Use, server_name: string}
    | {type: "mcp_tool_result", tool_use_id: string, is_error: boolean, content: {type: "text", text: string}[]}
    | {type: "server_tool_use", ..._Use}
    | {
        type: "tool_search_tool_result", tool_use_id: string
        content: {type: string, tool_references: {type: "tool_reference", tool_name: string}[]}
    }
type _Usage = {
    input_tokens: integer  // Without those from the cache.
    cache_creation_input_tokens: integer, cache_read_input_tokens: integer
    output_tokens: integer, output_tokens_details: {thinking_tokens: integer}
}
type _StopReason = "end_turn" | "max_tokens" | "refusal" | "tool_use" | "stop_sequence"
type Message = {
    id: string, type: "message", role: "assistant", model: string, content: AnsweredBlock[]
    stop_reason: _StopReason | null, stop_sequence: string | null, usage: _Usage, callsmith?: Report
}
type _Delta = {
    type: "text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta"
    text?: string, thinking?: string, signature?: string, partial_json?: string
}
type MessageEvent =
    | {type: "message_start", message: Message}
    | {type: "content_block_start", index: integer, content_block: AnsweredBlock}
    | {type: "content_block_delta", index: integer, delta: _Delta}
    | {type: "content_block_stop", index: integer}
    | {
        type: "message_delta", delta: {stop_reason: _StopReason, stop_sequence: string | null}, usage: _Usage
        callsmith?: Report
    }
    | {type: "message_stop"}
    | AnthropicError  // An event of a stream.
type AnthropicError = {type: "error", error: {type: string, message: string, details?: object}, request_id?: string}
type AnthropicModel = {
    type: "model", id: string, display_name: string, created_at: datetime, lifecycle: string
    max_input_tokens: integer | null, max_tokens: integer | null, capabilities: map<map<boolean | object>>
}
type AnthropicModels = {data: AnthropicModel[], has_more: boolean, first_id: string | null, last_id: string | null}
"""

_HI = {"messages": [{"role": "user", "content": "Say hello."}]}

OPERATIONS = {
    "POST /v1/messages": Operation(
        "Answer messages", "MessagesRequest", "Message", "MessageEvent", example={"max_tokens": 64, **_HI}, error="AnthropicError"
    ),
    "POST /v1/messages/count_tokens": Operation(
        "Count the tokens of messages", "CountTokensRequest", "{input_tokens: integer}", example=_HI, error="AnthropicError"
    ),
}
