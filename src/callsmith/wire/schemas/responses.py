"""Responses and conversations, as OpenAI has them."""

from callsmith.wire.openai.responses import HINTS, NEUTRAL
from callsmith.wire.schemas.notation import (
    PAGE_PARAMETERS,
    Operation,
    Parameter,
    Schema,
    Term,
    answer,
    any_object,
    any_of,
    anything,
    array,
    constant,
    flag,
    hints,
    integer,
    mapping,
    nullable,
    number,
    refused,
    request,
    text,
    words,
)
from callsmith.wire.schemas.shared import AS_WRITTEN, EXTENSIONS, JSON_SCHEMA, MODEL, POLICY, STREAM, sampling

_FILTER = request({"tool_names": any_of(text(), array(text())), "read_only": flag()})
_STATUS = words("queued", "in_progress", "completed", "incomplete", "failed", "cancelled")
_ITEM_STATUS = words("in_progress", "completed", "incomplete", "failed")
_METADATA = mapping(text(), "Of the caller's own.")
_PART = any_of(
    answer(
        {"type": constant("output_text"), "text": text(), "annotations": array(anything()), "logprobs": array("TokenLogprob")}
    ),
    answer({"type": words("reasoning_text", "summary_text", "input_text"), "text": text()}),
)
_MCP_CALL: dict[str, Term] = {"id": text(), "server_label": text(), "name": text(), "arguments": text()}
_INPUT = any_of(text(), array("InputItem"), about="A text, or items.")
_REQUEST: dict[str, Term] = {
    "input": _INPUT,
    "instructions": text("The system's message."),
    "model": MODEL,
    "previous_response_id": text("The response that this one goes on from."),
    "conversation": any_of(text(), request({"id!": text()}), about="The conversation that the response is added to."),
    "tools": array("ResponsesTool"),
    "tool_choice": "ToolChoice",
    **POLICY,
    "parallel_tool_calls": flag(),
    "max_tool_calls": integer("How many of the server's tools may be called.", minimum=0),
    **sampling("max_output_tokens"),
    "top_logprobs": integer(minimum=0, maximum=20),
    "include": any_of(text(), array(text()), about="message.output_text.logprobs; others are passed over."),
    "text": request({"format": "TextFormat", "verbosity": anything("Nothing comes of it.")}),
    "structured_outputs": "StructuredOutputs",
    "reasoning": request(
        {"effort": text("none switches thinking off, anything else on."), "summary": text("Thoughts come as a summary.")}
    ),
    "reasoning_effort": text("As reasoning.effort."),
    "chat_template_kwargs": request({"enable_thinking": flag(), "thinking": flag()}),
    "store": flag("Whether the response is stored; it is, unless false."),
    "background": flag("Whether the answer goes on when the client is gone."),
    "stream": STREAM,
    "prompt_cache_key": text("Requests with the same one go to the same of several servers."),
    "cache_salt": text("What is cached of the prompt is reused only with the same one."),
    **EXTENSIONS,
    **refused(NEUTRAL),
    **hints(HINTS),
}
_PAGE: dict[str, Term] = {
    "object": constant("list"),
    "first_id": nullable(text()),
    "last_id": nullable(text()),
    "has_more": flag(),
}

TITLE = "OpenAI Responses"
SCHEMAS: dict[str, Schema] = {
    "ResponsesTool": any_of(
        request(
            {
                "type": constant("function"),
                "name": text(),
                "description": text(),
                "parameters": JSON_SCHEMA,
                "strict": flag(),
                "defer_loading": flag(),
                "function": "Function",
                "required": array(text()),
                **dict.fromkeys(("input_schema", "inputSchema", "parameters_schema"), any_object("As parameters.")),
            }
        ),
        request({"type!": constant("namespace"), "name!": text(), "description": text(), "tools": array("ResponsesTool")}),
        request(
            {
                "type!": constant("mcp"),
                "server_label!": text("Of an MCP server that is configured here."),
                "server_url": text(),
                "allowed_tools": any_of(array(text()), _FILTER),
                "require_approval": any_of(words("always", "never"), request({"always": _FILTER, "never": _FILTER})),
                **{
                    name: {"enum": ["", {}, []], "description": "Refused: the operator sets it."}
                    for name in ("connector_id", "tunnel_id", "headers", "authorization")
                },
            }
        ),
        request({"type!": constant("tool_search"), "execution": words("server", "client")}),
        request({"type!": text()}, "A tool that only its own vendor runs: it is passed over."),
    ),
    "TextFormat": request(
        {
            "type!": words("text", "json_object", "json_schema"),
            "name": text(),
            "schema": any_of(JSON_SCHEMA, text()),
            "strict": flag(),
            "as_written": AS_WRITTEN,
            "description": text(),
            "json_schema": any_object("As chat completions have it."),
        }
    ),
    "InputItem": request(
        {
            "type": words(
                "message",
                "reasoning",
                "function_call",
                "function_call_output",
                "item_reference",
                "compaction",
                "mcp_call",
                "mcp_list_tools",
                "mcp_approval_request",
                "mcp_approval_response",
                "tool_search_call",
                "tool_search_output",
                "file_search_call",
                "web_search_call",
            ),
            "id": text(),
            "role": words("system", "developer", "user", "assistant"),
            "content": any_of(text(), array(any_of(text(), any_object()))),
            "summary": array(any_object()),
            "call_id": text(),
            "name": text(),
            "namespace": text(),
            "arguments": any_of(text(), any_object()),
            "output": any_of(text(), array(any_of(text(), any_object()))),
            "encrypted_content": text(),
            "server_label": text(),
            "error": anything(),
            "approval_request_id": text(),
            "approve": flag(),
            "reason": text(),
            "execution": text(),
            "tools": array(any_object()),
            "status": text(),
        },
        "An item of a conversation: what a response has as output is welcome as input.",
    ),
    "ResponsesRequest": request(_REQUEST, "What the model is to answer. Fields that are not listed are passed over."),
    "OutputItem": any_of(
        answer(
            {
                "type": constant("message"),
                "id": text(),
                "role": constant("assistant"),
                "content": array(_PART),
                "status": _ITEM_STATUS,
            }
        ),
        answer(
            {
                "type": constant("reasoning"),
                "id": text(),
                "summary": array(_PART),
                "content?": array(_PART),
                "status?": _ITEM_STATUS,
            }
        ),
        answer(
            {
                "type": constant("function_call"),
                "id": text(),
                "call_id": text(),
                "name": text(),
                "namespace?": text(),
                "arguments": text(),
                "status": _ITEM_STATUS,
            }
        ),
        answer(
            {
                "type": constant("mcp_call"),
                **_MCP_CALL,
                "approval_request_id": nullable(text()),
                "output": nullable(text()),
                "error": nullable(any_object()),
                "status": _ITEM_STATUS,
            }
        ),
        answer({"type": constant("mcp_approval_request"), **_MCP_CALL}),
        answer(
            {
                "type": constant("mcp_list_tools"),
                "id": text(),
                "server_label": text(),
                "tools": array(
                    answer(
                        {
                            "name": text(),
                            "description": nullable(text()),
                            "input_schema": JSON_SCHEMA,
                            "annotations": answer({"read_only": flag()}),
                        }
                    )
                ),
                "error": nullable(text()),
            }
        ),
        answer(
            {
                "type": constant("tool_search_call"),
                "id": text(),
                "call_id": nullable(text()),
                "execution": constant("server"),
                "arguments": any_object(),
                "status": _ITEM_STATUS,
            }
        ),
        answer(
            {
                "type": constant("tool_search_output"),
                "id": text(),
                "call_id": nullable(text()),
                "execution": constant("server"),
                "tools": array(any_object()),
                "status": _ITEM_STATUS,
            }
        ),
        about="An item of an answer.",
    ),
    "ResponsesUsage": answer(
        {
            "input_tokens": integer(),
            "input_tokens_details": answer({"cached_tokens": integer(), "cache_write_tokens": integer()}),
            "output_tokens": integer(),
            "output_tokens_details": answer({"reasoning_tokens": integer()}),
            "total_tokens": integer(),
        }
    ),
    "Response": answer(
        {
            "id": text(),
            "object": constant("response"),
            "created_at": integer("Unix time."),
            "completed_at": nullable(integer()),
            "status": _STATUS,
            "error": nullable(answer({"code": text(), "message": text()})),
            "incomplete_details": nullable(answer({"reason": text()})),
            "model": text(),
            "output": array("OutputItem"),
            "usage": nullable("ResponsesUsage"),
            "instructions": nullable(text()),
            "max_output_tokens": nullable(integer()),
            "max_tool_calls": nullable(integer()),
            "metadata": any_object(),
            "parallel_tool_calls": flag(),
            "previous_response_id": nullable(text()),
            "prompt_cache_key": nullable(text()),
            "safety_identifier": nullable(text()),
            "store": flag(),
            "text": any_object(),
            "tool_choice": anything(),
            "user": nullable(text()),
            "background": flag(),
            "conversation": nullable(answer({"id": text()})),
            "reasoning": answer({"effort": nullable(text()), "summary": nullable(text())}),
            "service_tier": text(),
            "tools": array(any_object()),
            "top_logprobs": integer(),
            "truncation": text(),
            "temperature": number(),
            "top_p": number(),
            "frequency_penalty": number(),
            "presence_penalty": number(),
            "callsmith?": "Report",
        }
    ),
    "ResponseEvent": any_of(
        answer(
            {
                "type": text("response.created, response.output_text.delta, … response.completed"),
                "sequence_number": integer(),
                "response?": "Response",
                "item?": "OutputItem",
                "part?": _PART,
                "item_id?": text(),
                "output_index?": integer(),
                "content_index?": integer(),
                "summary_index?": integer(),
                "delta?": text(),
                "text?": text(),
                "name?": text(),
                "arguments?": text(),
                "logprobs?": array("TokenLogprob"),
            }
        ),
        "Error",
        about="An event of a stream; the last one has the whole response.",
    ),
    "Items": answer({**_PAGE, "data": array(any_object("An item."))}),
    "Deleted": answer({"id": text(), "object": text(), "deleted": constant(True)}),
    "Conversation": answer(
        {"id": text(), "object": constant("conversation"), "created_at": integer("Unix time."), "metadata": _METADATA}
    ),
    "Conversations": answer({**_PAGE, "data": array("Conversation")}),
    "Compaction": answer(
        {
            "id": text(),
            "object": constant("response.compaction"),
            "created_at": integer(),
            "output": array(any_object("An item.")),
            "usage": "ResponsesUsage",
        }
    ),
}

_HI = {"input": "Say hello."}
_ITEMS = request({"items!": array("InputItem", minItems=1, maxItems=20)})
_NEW = request({"items": array("InputItem", maxItems=20), "metadata": _METADATA})
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
        request(
            {
                "model!": text(),
                "input": _INPUT,
                "previous_response_id": text(),
                "instructions": text(),
                "prompt_cache_key": text(),
            }
        ),
        "Compaction",
    ),
    "POST /v1/responses/input_tokens": Operation(
        "Count the tokens of a request",
        "ResponsesRequest",
        answer({"object": constant("response.input_tokens"), "input_tokens": integer()}),
        example=_HI,
    ),
    "GET /v1/responses/{id}": Operation(
        "Fetch a response",
        answer="Response",
        frame="ResponseEvent",
        parameters=(
            Parameter("stream", "Of one in the background: its events.", words("true", "false")),
            Parameter("starting_after", "The sequence number behind which the stream begins.", integer()),
        ),
    ),
    "DELETE /v1/responses/{id}": Operation("Delete a response", answer="Deleted"),
    "POST /v1/responses/{id}/cancel": Operation("Stop a response in the background", answer="Response"),
    "GET /v1/responses/{id}/input_items": Operation("List what a response was asked", answer="Items", parameters=PAGE_PARAMETERS),
    "GET /v1/conversations": Operation("List the caller's conversations", answer="Conversations", parameters=PAGE_PARAMETERS),
    "POST /v1/conversations": Operation(
        "Begin a conversation", _NEW, "Conversation", example={"metadata": {"about": "the garden"}}
    ),
    f"GET {_CONVERSATION}": Operation("Fetch a conversation", answer="Conversation"),
    f"POST {_CONVERSATION}": Operation(
        "Change what is noted of a conversation", request({"metadata": _METADATA}), "Conversation"
    ),
    f"DELETE {_CONVERSATION}": Operation("Delete a conversation", answer="Deleted"),
    f"GET {_CONVERSATION}/items": Operation("List the items of a conversation", answer="Items", parameters=PAGE_PARAMETERS),
    f"POST {_CONVERSATION}/items": Operation("Add items to a conversation", _ITEMS, "Items"),
    f"GET {_CONVERSATION}/items/{{item}}": Operation("Fetch an item", answer=any_object("An item.")),
    f"DELETE {_CONVERSATION}/items/{{item}}": Operation("Delete an item", answer="Conversation"),
}
