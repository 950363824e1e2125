"""Calls of the capability bus."""

from callsmith.wire.capability.requests import PATH, SUBPROTOCOL
from callsmith.wire.schemas import Operation, Parameter

TITLE = "Capability bus"
TYPES = """
type CallRequest =
    | partial {
        envelope!: partial {
            capability!: string, version!: string, body: object, request_id: string, session_id: string
            seconds: number  // How long the caller waits.
            stream: boolean, token: string, from: string, to: string, community: string, timestamp: number
            subject: string, via: string[]
        }
        signature: string
    }
    | partial {  // With the capability in the headers X-HearthNet-Capability and X-HearthNet-Capability-Version.
        params: object, input: any, stream: boolean
    }
type CallAnswer = {output: any, meta: object}
type CallFrame = object  // The data of an event: token, tool_call, … and at last done or error.
type BusError = {
    error: string  // A code.
    message: string, retry_after_ms?: number, request_id?: string
}
type Capabilities = {
    node: string
    capabilities: object[]  // Descriptors, with their schemas.
}
type Trace = {
    calls: {
        at: number, request_id: string, trace_id: string, capability: string, version: string, subject: string, via: string[]
        trust: string, depth: integer, node: string, is_local: boolean, result: string, seconds: number | null
    }[]
}
"""

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
    "GET /bus/v1/capabilities": Operation("List what can be called", answer="Capabilities", error="BusError"),
    "GET /bus/v1/trace": Operation(
        "List the latest calls (admins)",
        answer="Trace",
        parameters=(Parameter("limit", "How many, 1 to 1000.", "integer", 1, 1000),),
        error="BusError",
    ),
}
