"""An MCP server in plain JSON-RPC over stdio that behaves as badly as it is told to. It starts in an instant.

    python plain.py '{"modern": false, "page": 2, "more": 300, "hang": "start"}'

It speaks the older protocol, or with "modern" the newer one. Every tool is a function below.
"""

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OPTIONS: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
MODERN = OPTIONS.get("modern", False)
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
NUMBER = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
PIXEL = "iVBORw0KGgo="

_writing = threading.Lock()
_numbers = itertools.count(1)
_answers: dict[int, "queue.Queue[dict[str, Any]]"] = {}
state = {"lists": 0, "broken": False, "hanging": False, "grown": 0}


class Failure(Exception):
    """An answer that is an error."""


class Needed(Exception):
    """Something has to be asked first, the newer way."""


def say(**message: Any) -> None:
    with _writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def notify(method: str, **params: Any) -> None:
    say(method=method, params=params)


def note(text: str) -> None:
    """Write it where the test can read it."""
    if "notes" in OPTIONS:
        with Path(OPTIONS["notes"]).open("a") as file:
            file.write(text + "\n")


def ask(method: str, params: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    """Ask the client something and wait for what it says."""
    if MODERN:
        responses = call.get("inputResponses")
        if responses is None:
            raise Needed({"resultType": "input_required", "inputRequests": {"q": {"method": method, "params": params}}})
        return responses["q"]
    number = next(_numbers)
    _answers[number] = queue.Queue()
    say(id=number, method=method, params=params)
    answer = _answers[number].get()
    if "error" in answer:
        raise Failure(answer["error"]["message"])
    return answer["result"]


def text(*words: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": word} for word in words], **more}


def echo(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    return text(str(arguments.get("text", "")))


_met: dict[int, threading.Barrier] = {}


def sleep(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    if together := arguments.get("together"):
        _met.setdefault(together, threading.Barrier(together)).wait()
    time.sleep(arguments["seconds"])
    return text(f"slept {arguments['seconds']}")


def hang(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    note(f"hanging {os.getpid()}")
    threading.Event().wait()
    return {}


def die(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    print("my last words", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def pid(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    return text(str(os.getpid()))


def spawn(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code if arguments.get("stubborn") else "import time; time.sleep(600)"]
    )
    return text(str(child.pid))


def progress(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    for step in range(1, 4):
        notify(
            "notifications/progress", progressToken=call["_meta"]["progressToken"], progress=step, total=3, message=f"step {step}"
        )
    return text("done")


def many_things(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    return {
        "content": [
            {"type": "text", "text": "look:"},
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            {"type": "audio", "data": PIXEL, "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"},
            {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "inside b"}},
            {"type": "resource", "resource": {"uri": "file:///c.bin", "mimeType": "application/zip", "blob": PIXEL}},
        ]
    }


def structured(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    return {"content": [], "structuredContent": {"result": 3}}


def wrong_structure(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    return {"content": [], "structuredContent": {"result": "three"}}


def nonsense(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    return {"content": "not a list"}


def fails(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    return text("no such file", isError=True)


def errs(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    raise Failure("something is wrong with the server")


def grow(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    state["grown"] += 1
    notify("notifications/tools/list_changed")
    return text("grown")


def flood(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    for _ in range(500):
        notify("notifications/tools/list_changed")
    return text("flooded")


def lists(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    return text(str(state["lists"]))


def break_list(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    state["broken"] = True
    notify("notifications/tools/list_changed")
    return text("broken")


def hang_list(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    state["hanging"] = True
    notify("notifications/tools/list_changed")
    return text("hanging")


def elicit(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    wanted = {"name": {"type": "string"}, "size": {"type": "integer", "default": 7}}
    params = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": wanted}}
    return text(json.dumps(ask("elicitation/create", params, call), sort_keys=True))


def sample(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "user", "content": {"type": "text", "text": "Say something."}}
    params = {"messages": [message], "maxTokens": 50, "systemPrompt": "Be brief."}
    return text(ask("sampling/createMessage", params, call)["content"]["text"])


def task_only(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    raise Failure("requires task augmentation")


FUNCTIONS: dict[str, Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]] = {
    item.__name__: item
    for item in (
        echo, sleep, hang, die, pid, spawn, progress, many_things, structured, wrong_structure, nonsense, fails, errs, grow,
        flood, lists, break_list, hang_list, elicit, sample, task_only,
    )
}  # fmt: skip


def described(name: str) -> dict[str, Any]:
    tool: dict[str, Any] = {
        "name": name,
        "description": f"It is {name}.",
        "inputSchema": TEXT if name == "echo" else {"type": "object"},
    }
    if name in ("structured", "wrong_structure"):
        tool["outputSchema"] = NUMBER
    if name == "malformed":
        tool["inputSchema"] = {"type": "text"}
    if name == "task_only":
        tool["execution"] = {"taskSupport": "required"}
    if name in ("echo", "sleep"):
        tool["annotations"] = {"readOnlyHint": True}
    return tool


def listed() -> list[str]:
    chosen = OPTIONS.get("tools", list(FUNCTIONS))
    return [*chosen, *(f"more_{n}" for n in range(OPTIONS.get("more", 0))), *(f"grown_{n}" for n in range(state["grown"]))]


def list_tools(params: dict[str, Any]) -> dict[str, Any]:
    if state["hanging"]:
        note("hanging")
        threading.Event().wait()
    if state["broken"]:
        raise Failure("I have lost my list")
    begin, page = int(params.get("cursor") or 0), OPTIONS.get("page", 1000)
    if begin == 0:
        state["lists"] += 1
    names = listed()
    after = {"nextCursor": str(begin + page)} if begin + page < len(names) else {}
    return {"tools": [described(name) for name in names[begin : begin + page]], **after}


def call_tool(params: dict[str, Any]) -> dict[str, Any]:
    name = params["name"]
    run = FUNCTIONS.get(name, echo)
    return run(params.get("arguments") or {}, params)


def answer(message: dict[str, Any]) -> None:
    method, params = message["method"], message.get("params") or {}
    able = {"tools": {"listChanged": not MODERN}}
    cached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if MODERN else {}
    try:
        match method:
            case "server/discover" if MODERN:
                result = {"supportedVersions": ["2026-07-28"], "capabilities": able, **cached}
            case "initialize" if not MODERN:
                result = {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": able,
                    "serverInfo": {"name": "plain", "version": "1"},
                }
                note("client " + json.dumps(params["capabilities"], sort_keys=True))
            case "tools/list":
                result = {**list_tools(params), **cached}
            case "tools/call":
                result = call_tool(params)
                if MODERN:
                    result = {"resultType": "complete", **result}
            case _:
                say(id=message["id"], error={"code": -32601, "message": f"no method {method}"})
                return
        say(id=message["id"], result=result)
    except Needed as needed:
        say(id=message["id"], result=needed.args[0])
    except Failure as failure:
        say(id=message["id"], error={"code": -32603, "message": str(failure)})


def main() -> None:
    note(f"started {os.getpid()}")
    if "stderr" in OPTIONS:
        print(OPTIONS["stderr"], file=sys.stderr, flush=True)
    if OPTIONS.get("chatter"):
        sys.stdout.buffer.write(b"Starting up!\n\xff\xfe\n{}\n")
        sys.stdout.flush()
    if OPTIONS.get("exit") is not None:
        os._exit(OPTIONS["exit"])
    if "fail_once" in OPTIONS and not Path(OPTIONS["fail_once"]).exists():
        Path(OPTIONS["fail_once"]).touch()
        os._exit(1)
    if OPTIONS.get("hang") == "start":
        time.sleep(600)
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "notifications/cancelled":
            note(f"cancelled {message['params']['requestId']}")
        elif "method" in message and "id" in message:
            threading.Thread(target=answer, args=(message,), daemon=True).start()
        elif "id" in message:
            _answers[message["id"]].put(message)
    note("left")


if __name__ == "__main__":
    main()
