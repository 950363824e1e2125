"""An MCP server over stdio whose tools are those of a file: whoever writes the file swaps them. Calls are written to another."""

import json
import sys
from pathlib import Path
from typing import Any

LISTED, CALLED, SAYS_SO = Path(sys.argv[1]), Path(sys.argv[2]), "--announce" in sys.argv


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        able = {"tools": {"listChanged": SAYS_SO}}
        info = {"name": sys.argv[3] if sys.argv[3:] and not SAYS_SO else "swapping", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": able, "serverInfo": info}
    if method == "tools/list":
        return {"tools": json.loads(LISTED.read_text())}
    with CALLED.open("a") as file:
        file.write(params["name"] + "\n")
    return {"content": [{"type": "text", "text": f"{LISTED.stem} did it"}]}


for line in sys.stdin:
    request_body = json.loads(line)
    if "id" in request_body and request_body.get("method") in ("initialize", "tools/list", "tools/call"):
        say(id=request_body["id"], result=result(request_body["method"], request_body.get("params") or {}))
    elif "id" in request_body:
        say(id=request_body["id"], error={"code": -32601, "message": "no such method"})
