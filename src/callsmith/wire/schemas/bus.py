"""Calls of the capability bus."""

from callsmith.wire.capability.requests import PATH, SUBPROTOCOL
from callsmith.wire.schemas.notation import (
    Operation,
    Parameter,
    Schema,
    answer,
    any_object,
    any_of,
    anything,
    array,
    flag,
    integer,
    nullable,
    number,
    request,
    text,
)

TITLE = "Capability bus"
SCHEMAS: dict[str, Schema] = {
    "CallRequest": any_of(
        request(
            {
                "envelope!": request(
                    {
                        "capability!": text(),
                        "version!": text(),
                        "body": any_object(),
                        "request_id": text(),
                        "session_id": text(),
                        "seconds": number("How long the caller waits."),
                        "stream": flag(),
                        "token": text(),
                        "from": text(),
                        "to": text(),
                        "community": text(),
                        "timestamp": number(),
                        "subject": text(),
                        "via": array(text()),
                    }
                ),
                "signature": text(),
            }
        ),
        request(
            {"params": any_object(), "input": anything(), "stream": flag()},
            "With the capability in the headers X-HearthNet-Capability and X-HearthNet-Capability-Version.",
        ),
    ),
    "CallAnswer": answer({"output": anything(), "meta": any_object()}),
    "CallFrame": any_object("The data of an event: token, tool_call, … and at last done or error."),
    "BusError": answer({"error": text("A code."), "message": text(), "retry_after_ms?": number(), "request_id?": text()}),
}

OPERATIONS = {
    f"POST {PATH}": Operation(
        "Call a capability",
        "CallRequest",
        "CallAnswer",
        "CallFrame",
        example={
            "envelope": {
                "capability": "llm.chat",
                "version": "2.0",
                "body": {"params": {}, "input": {"messages": [{"role": "user", "content": "Say hello."}]}},
            }
        },
        error="BusError",
    ),
    f"GET {PATH}": Operation(
        "Call a capability over WebSocket",
        answer="CallFrame",
        about=f"A WebSocket with the subprotocol {SUBPROTOCOL}.",
        error="BusError",
    ),
    "GET /bus/v1/capabilities": Operation(
        "List what can be called",
        answer=answer({"node": text(), "capabilities": array(any_object("A descriptor, with its schemas."))}),
        error="BusError",
    ),
    "GET /bus/v1/trace": Operation(
        "List the latest calls (admins)",
        answer=answer(
            {
                "calls": array(
                    answer(
                        {
                            "at": number(),
                            "request_id": text(),
                            "trace_id": text(),
                            "capability": text(),
                            "version": text(),
                            "subject": text(),
                            "via": array(text()),
                            "trust": text(),
                            "depth": integer(),
                            "node": text(),
                            "is_local": flag(),
                            "result": text(),
                            "seconds": nullable(number()),
                        }
                    )
                )
            }
        ),
        parameters=(Parameter("limit", "How many, 1 to 1000.", integer(minimum=1, maximum=1000)),),
        error="BusError",
    ),
}
