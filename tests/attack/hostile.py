"""A hostile MCP server over stdio: it does what its first argument says."""

import json
import sys
from typing import Any

HOW = sys.argv[1]
OBJECT: Any = {"type": "object"}


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def tools(params: dict[str, Any]) -> dict[str, Any]:
    good: Any = {"name": "good", "inputSchema": OBJECT}
    if HOW == "many tools":
        return {"tools": [{"name": f"t{n}", "inputSchema": OBJECT} for n in range(20_000)]}
    if HOW == "many properties":
        properties = {f"p{n}": {} for n in range(50_000)}
        return {"tools": [{"name": "wide", "inputSchema": {**OBJECT, "properties": properties}}, good]}
    if HOW == "long description":
        return {"tools": [{**good, "name": "long", "description": "x" * 1_000_000}, good]}
    if HOW == "endless pages":
        page = int(params.get("cursor") or 0)
        return {"tools": [{**good, "name": f"t{page}"}], "nextCursor": str(page + 1)}
    if HOW == "empty pages":
        return {"tools": [], "nextCursor": str(int(params.get("cursor") or 0) + 1)}
    if HOW == "many values":
        return {"tools": [], "_meta": {"x": [{}] * 500_000}}
    return {"tools": [good]}


def run(params: dict[str, Any]) -> dict[str, Any]:
    if HOW == "long result":
        return {"content": [{"type": "text", "text": "x" * 60_000_000}]}
    if HOW == "many blocks":
        return {"content": [{"type": "text", "text": "x"}] * 20_000}
    if HOW == "malformed blocks":
        return {"content": [{}] * 90_000}
    if HOW == "progress":
        token = params["_meta"]["progressToken"]
        for step in range(3_000):
            say(method="notifications/progress", params={"progressToken": token, "progress": step, "message": "x" * 5_000})
    if HOW == "logs":
        for _ in range(3_000):
            say(method="notifications/message", params={"level": "info", "data": "x" * 100})
    if HOW == "stderr":
        sys.stderr.write("x" * 5_000_000 + "\n" + "y\n" * 1_500)
    if HOW == "other ids":
        for number in range(1_000, 3_000):
            say(id=number, result={"content": []})
    if HOW == "questions":
        form: Any = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        for number in range(50):
            say(id=f"q{number}", method="elicitation/create", params=form)
        answers = [json.loads(sys.stdin.readline()) for _ in range(42)]
        return {"content": [{"type": "text", "text": " ".join(answer["result"]["action"] for answer in answers)}]}
    if HOW == "half way":
        sys.stdout.write('{"jsonrpc": "2.0", "id": 3, "resu')
        sys.stdout.flush()
        sys.exit()
    if HOW == "endless line":
        while True:
            sys.stdout.write("x" * 1_000_000)
    if HOW == "not utf-8":
        sys.stdout.flush()
        sys.stdout.buffer.write(b"\xff\xfe{\n" * 100)
        sys.stdout.buffer.flush()
    return {"content": [{"type": "text", "text": "done"}]}


def result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            info = {"name": "hostile", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return tools(params)
        case _:
            return run(params)


for line in sys.stdin:
    request_body = json.loads(line)
    if "id" in request_body and request_body.get("method") in ("initialize", "tools/list", "tools/call"):
        say(id=request_body["id"], result=result(request_body["method"], request_body.get("params") or {}))
    elif "id" in request_body and "method" in request_body:
        say(id=request_body["id"], error={"code": -32601, "message": "no such method"})
