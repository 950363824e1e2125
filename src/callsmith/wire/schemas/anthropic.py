"""Messages, as Anthropic has them."""

from callsmith.wire.anthropic.messages import HINTS, NEUTRAL
from callsmith.wire.schemas.notation import (
    Operation,
    Schema,
    Term,
    answer,
    any_object,
    any_of,
    array,
    constant,
    flag,
    hints,
    integer,
    mapping,
    nullable,
    refused,
    request,
    text,
    words,
)
from callsmith.wire.schemas.shared import AS_WRITTEN, EXTENSIONS, JSON_SCHEMA, MODEL, POLICY, STREAM, sampling

_TEXT = request({"type!": constant("text"), "text": text(), "cache_control": any_object("Nothing comes of it.")})
_FORMAT = request({"type!": constant("json_schema"), "schema!": JSON_SCHEMA, "as_written": AS_WRITTEN, "name": text()})
_ENABLED = request({"enabled": flag()})
_CONTENT = any_of(text(), array("ContentBlock"))
_STOP_REASON = words("end_turn", "max_tokens", "tool_use", "stop_sequence")
_YES_OR_NO = mapping(any_of(flag(), any_object()))
_REQUEST: dict[str, Term] = {
    "messages!": array(request({"role!": words("user", "assistant", "system"), "content": _CONTENT}), minItems=1),
    "model": MODEL,
    "max_tokens!": integer(minimum=1),
    "system": any_of(text(), array(_TEXT)),
    "tools": array("AnthropicTool"),
    "tool_choice": request(
        {"type": words("auto", "any", "none", "tool"), "name": text(), "specific": text(), "disable_parallel_tool_use": flag()}
    ),
    **POLICY,
    **{name: term for name, term in sampling("max_tokens", "stop_sequences").items() if name != "max_tokens"},
    "thinking": request(
        {
            "type!": words("enabled", "adaptive", "between_tools", "disabled"),
            "display": text("omitted: thoughts are not shown."),
            "budget_tokens": integer("Nothing comes of it."),
        }
    ),
    "output_config": request({"format": _FORMAT, "effort": text("Nothing comes of it.")}),
    "output_format": _FORMAT,
    "mcp_servers": array(
        request(
            {
                "type!": constant("url"),
                "name!": text("Of an MCP server that is configured here."),
                "url": text(),
                "authorization_token": {"enum": [], "description": "Refused: the operator sets it."},
                "tool_configuration": request({"enabled": flag(), "allowed_tools": any_of(text(), array(text()))}),
            }
        )
    ),
    "stream": STREAM,
    "thread": {"enum": [], "description": "Refused: send the whole history."},
    **EXTENSIONS,
    **refused(NEUTRAL),
    **hints(HINTS),
}
_COUNTED = {**{name: term for name, term in _REQUEST.items() if name != "max_tokens!"}, "max_tokens": integer(minimum=1)}
_USAGE: dict[str, Term] = {
    "input_tokens": integer("Without those from the cache."),
    "cache_creation_input_tokens": integer(),
    "cache_read_input_tokens": integer(),
    "output_tokens": integer(),
    "output_tokens_details": answer({"thinking_tokens": integer()}),
}
_USE: dict[str, Term] = {"id": text(), "name": text(), "input": any_object()}

TITLE = "Anthropic Messages"
SCHEMAS: dict[str, Schema] = {
    "ContentBlock": any_of(
        _TEXT,
        request(
            {
                "type!": constant("image"),
                "source!": request({"type!": words("base64", "url"), "media_type": text(), "data": text(), "url": text()}),
            }
        ),
        request({"type!": constant("thinking"), "thinking": text(), "signature": text()}),
        request({"type!": words("redacted_thinking", "mcp_tool_listing")}),
        request({"type!": constant("tool_use"), "id": text(), "name!": text(), "input": any_object()}),
        request({"type!": constant("tool_result"), "tool_use_id!": text(), "content": _CONTENT, "is_error": flag()}),
        request({"type!": constant("tool_reference"), "tool_name!": text()}),
        request(
            {"type!": constant("mcp_tool_use"), "id": text(), "server_name!": text(), "name!": text(), "input": any_object()}
        ),
        request({"type!": constant("mcp_tool_result"), "tool_use_id!": text(), "content": _CONTENT, "is_error": flag()}),
        request({"type!": constant("server_tool_use"), "id": text(), "name!": text(), "input": any_object()}),
        request(
            {
                "type!": constant("tool_search_tool_result"),
                "tool_use_id!": text(),
                "is_error": flag(),
                "content!": request(
                    {
                        "type": text(),
                        "tool_references": array(request({"type": text(), "tool_name!": text()})),
                        "error_code": text(),
                        "error_message": text(),
                    }
                ),
            }
        ),
        about="A part of a message.",
    ),
    "AnthropicTool": any_of(
        request(
            {
                "type": constant("custom"),
                "name!": text(minLength=1, maxLength=256),
                "description": text(),
                "input_schema": JSON_SCHEMA,
                "strict": flag(),
                "defer_loading": flag("Found by the search tool, if there is one."),
                "required": array(text()),
                "cache_control": any_object("Nothing comes of it."),
                **dict.fromkeys(("parameters", "inputSchema", "parameters_schema"), any_object("As input_schema.")),
            }
        ),
        request(
            {
                "type!": constant("mcp_toolset"),
                "mcp_server_name!": text(),
                "default_config": _ENABLED,
                "configs": mapping(nullable(_ENABLED)),
                "tools": array(request({"name!": text(), "input_schema": any_object()})),
            }
        ),
        request(
            {"type!": text("tool_search_tool_bm25_…, tool_search_tool_regex_…; other kinds are passed over"), "name": text()}
        ),
    ),
    "MessagesRequest": request(_REQUEST, "Messages to be answered. Fields that are not listed are passed over."),
    "CountTokensRequest": request(_COUNTED, "Messages whose tokens are to be counted."),
    "AnsweredBlock": any_of(
        answer({"type": constant("text"), "text": text()}),
        answer({"type": constant("thinking"), "thinking": text(), "signature": text()}),
        answer({"type": constant("tool_use"), **_USE}),
        answer({"type": constant("mcp_tool_use"), **_USE, "server_name": text()}),
        answer(
            {
                "type": constant("mcp_tool_result"),
                "tool_use_id": text(),
                "is_error": flag(),
                "content": array(answer({"type": constant("text"), "text": text()})),
            }
        ),
        answer({"type": constant("server_tool_use"), **_USE}),
        answer(
            {
                "type": constant("tool_search_tool_result"),
                "tool_use_id": text(),
                "content": answer(
                    {
                        "type": text(),
                        "tool_references": array(answer({"type": constant("tool_reference"), "tool_name": text()})),
                    }
                ),
            }
        ),
    ),
    "Message": answer(
        {
            "id": text(),
            "type": constant("message"),
            "role": constant("assistant"),
            "model": text(),
            "content": array("AnsweredBlock"),
            "stop_reason": nullable(_STOP_REASON),
            "stop_sequence": nullable(text()),
            "usage": answer(_USAGE),
            "callsmith?": "Report",
        }
    ),
    "MessageEvent": any_of(
        answer({"type": constant("message_start"), "message": "Message"}),
        answer({"type": constant("content_block_start"), "index": integer(), "content_block": "AnsweredBlock"}),
        answer(
            {
                "type": constant("content_block_delta"),
                "index": integer(),
                "delta": answer(
                    {
                        "type": words("text_delta", "thinking_delta", "signature_delta", "input_json_delta"),
                        "text?": text(),
                        "thinking?": text(),
                        "signature?": text(),
                        "partial_json?": text(),
                    }
                ),
            }
        ),
        answer({"type": constant("content_block_stop"), "index": integer()}),
        answer(
            {
                "type": constant("message_delta"),
                "delta": answer({"stop_reason": _STOP_REASON, "stop_sequence": nullable(text())}),
                "usage": answer(_USAGE),
                "callsmith?": "Report",
            }
        ),
        answer({"type": constant("message_stop")}),
        "AnthropicError",
        about="An event of a stream.",
    ),
    "AnthropicError": answer(
        {
            "type": constant("error"),
            "error": answer({"type": text(), "message": text(), "details?": any_object()}),
            "request_id?": text(),
        }
    ),
    "AnthropicModel": answer(
        {
            "type": constant("model"),
            "id": text(),
            "display_name": text(),
            "created_at": text(format="date-time"),
            "lifecycle": text(),
            "max_input_tokens": nullable(integer()),
            "max_tokens": nullable(integer()),
            "capabilities": mapping(_YES_OR_NO),
        }
    ),
    "AnthropicModels": answer(
        {"data": array("AnthropicModel"), "has_more": flag(), "first_id": nullable(text()), "last_id": nullable(text())}
    ),
}

_HI = {"messages": [{"role": "user", "content": "Say hello."}]}

OPERATIONS = {
    "POST /v1/messages": Operation(
        "Answer messages", "MessagesRequest", "Message", "MessageEvent", example={"max_tokens": 64, **_HI}, error="AnthropicError"
    ),
    "POST /v1/messages/count_tokens": Operation(
        "Count the tokens of messages",
        "CountTokensRequest",
        answer({"input_tokens": integer()}),
        example=_HI,
        error="AnthropicError",
    ),
}
