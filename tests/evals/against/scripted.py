"""A server whose answers are scripted, and that may change each of them before it is sent: whole or as a stream."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from callsmith.evals.against.questions import own_questions
from tests.evals.check.ideal import instance

Reply = dict[str, Any]  # content, reasoning_content, tool_calls and finish_reason
Change = Callable[[Reply, dict[str, Any]], Reply | int | None]  # another reply, or a status; None: as it is, changed in place

_CATEGORIES = {item.request.messages[-1].content: item.category for item in own_questions()}


def script(body: dict[str, Any]) -> Reply:
    """What a good model answers: calls with words beside them, two where two are asked for, words alone where nothing is."""
    last = body["messages"][-1]
    category = _CATEGORIES.get(last.get("content") or "", "simple")
    if category == "none" or last["role"] == "tool" or not body.get("tools"):
        return {"content": "Zürich is nice, 東京 too.", "finish_reason": "stop"}
    functions = [tool["function"] for tool in body["tools"]]
    chosen = [functions[0], functions[-1]] if category == "parallel" else functions[:1]
    words = "Zürich" if category == "unicode" else "Paris"
    calls: list[Any] = []
    for place, function in enumerate(chosen):
        required = function["parameters"].get("required", [])
        values = {key: value for key, value in instance(function["parameters"]).items() if key in required}
        text = json.dumps(values, ensure_ascii=False).replace("Paris", f"{words} {place}")
        calls.append({"id": f"call_{place}", "type": "function", "function": {"name": function["name"], "arguments": text}})
    return {"content": "Let me look.", "tool_calls": calls, "finish_reason": "tool_calls"}


def scripted(change: Change | None = None) -> Starlette:
    """The server."""

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    async def chat(request: Request) -> Response:
        body = await request.json()
        reply = script(body)
        changed = change(reply, body) if change else None
        if isinstance(changed, int):
            return JSONResponse({"error": {"message": "no"}}, changed)
        reply = changed or reply
        if body.get("stream"):
            return StreamingResponse(_stream(reply), media_type="text/event-stream")
        finish = reply.pop("finish_reason")
        message = {"role": "assistant", **reply}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return JSONResponse({"id": "chat_1", "object": "chat.completion", "model": "scripted", "choices": [choice]})

    return Starlette(routes=[Route("/v1/models", models), Route("/v1/chat/completions", chat, methods=["POST"])])


async def _stream(reply: Reply) -> AsyncIterator[str]:
    deltas: list[Any] = [{"role": "assistant"}]
    deltas += [{key: reply[key]} for key in ("reasoning_content", "content") if reply.get(key)]
    for place, call in enumerate(reply.get("tool_calls") or ()):
        text = call["function"]["arguments"]
        deltas.append({"tool_calls": [{**call, "index": place, "function": {**call["function"], "arguments": text[:3]}}]})
        deltas.append({"tool_calls": [{"index": place, "function": {"arguments": text[3:]}}]})
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    for choice in (*choices, {"index": 0, "delta": {}, "finish_reason": reply["finish_reason"]}):
        yield f"data: {json.dumps({'id': 'chat_1', 'choices': [choice]})}\n\n"
    yield "data: [DONE]\n\n"
