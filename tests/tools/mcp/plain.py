"""An MCP server in plain JSON-RPC over stdio that behaves as badly as it is told to. It starts in an instant.

    python plain.py '{"modern": false, "page": 2, "more": 300, "hang": "start"}'

It speaks the older protocol, or with "modern" the newer one. Every tool is a function below. With "tasks" some of them are tasks,
which behave as it says: {"ends": "completed", "after": 3, "poll": 100}; with "material" there are resources and prompts.
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

    def __init__(self, text: str, code: int = -32603) -> None:
        super().__init__(text)
        self.code = code


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


def sample_on(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    """Has the model write, and never has enough."""
    while True:
        sample(arguments, {} if MODERN else call)


def sample_with_tools(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    params = {"messages": [{"role": "user", "content": {"type": "text", "text": "How warm is it?"}}], "maxTokens": 50}
    params |= {"tools": [{"name": "weather", "inputSchema": TEXT}], "toolChoice": {"mode": "required"}, **arguments}
    return text(json.dumps(ask("sampling/createMessage", params, call), sort_keys=True))


def task_only(arguments: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    raise Failure("requires task augmentation")


FUNCTIONS: dict[str, Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]] = {
    item.__name__: item
    for item in (
        echo, sleep, hang, die, pid, spawn, progress, many_things, structured, wrong_structure, nonsense, fails, errs, grow,
        flood, lists, break_list, hang_list, elicit, sample, sample_on, sample_with_tools, task_only,
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
    if name == "sleep" and TASKS is not None:
        tool["execution"] = {"taskSupport": "optional"}
    if name in ("echo", "sleep"):
        tool["annotations"] = {"readOnlyHint": True}
    return tool


def listed() -> list[str]:
    chosen = OPTIONS.get("tools", [name for name in FUNCTIONS if name not in ("sample_on", "sample_with_tools")])
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


TASKS: dict[str, Any] | None = OPTIONS.get("tasks")
_looks: dict[str, int] = {}
_replies: dict[str, Any] = {}


def begin_task(params: dict[str, Any]) -> dict[str, Any]:
    assert TASKS is not None
    id = TASKS.get("id") or f"task-{next(_numbers)}"
    _looks[id] = 0
    note(f"began {id} {params['name']} {json.dumps(params.get('task'))}")
    view = {**view_task(id), "taskId": id}
    return {"resultType": "task", **view} if MODERN else {"task": view}


def view_task(id: str) -> dict[str, Any]:
    """A task: at work for so many looks, and then as it was told to end."""
    assert TASKS is not None
    _looks[id] += 1
    over = _looks[id] > TASKS.get("after", 2)
    status = TASKS.get("ends", "completed") if over else "working"
    if status == "input_required" and _replies:
        status = "completed"
    view: dict[str, Any] = {"taskId": TASKS.get("lies") or id, "status": status, "statusMessage": f"look {_looks[id]}"}
    view |= {"createdAt": "2026-11-18T00:00:00Z", "lastUpdatedAt": "2026-11-18T00:00:00Z"}
    view["ttlMs" if MODERN else "ttl"] = TASKS.get("ttl")
    view["pollIntervalMs" if MODERN else "pollInterval"] = TASKS.get("poll", 10)
    if MODERN and status == "completed":
        view["result"] = TASKS.get("result") or text("the end", *map(json.dumps, _replies.values()))
    if MODERN and status == "failed":
        view["error"] = {"code": -32603, "message": "the task broke"}
    if MODERN and status == "input_required":
        asked = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
        many = range(TASKS.get("questions", 1))
        view["inputRequests"] = {f"q{number}": {"method": "elicitation/create", "params": asked} for number in many}
    return view


def answer_task(method: str, params: dict[str, Any]) -> dict[str, Any]:
    id = params["taskId"]
    note(f"{method} {id}")
    if TASKS is None or id not in _looks or (TASKS.get("forgets") and _looks[id] > TASKS["forgets"]):
        raise Failure("no such task", -32602)
    match method:
        case "tasks/get":
            return view_task(id)
        case "tasks/cancel":
            return {} if MODERN else {**view_task(id), "status": "cancelled"}
        case "tasks/update":
            _replies.update(params["inputResponses"])
            return {}
        case _:
            if TASKS.get("ends") == "failed":
                raise Failure("the task broke")
            return TASKS.get("result") or text("the end")


MATERIAL: dict[str, Any] | None = OPTIONS.get("material")


def list_material(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Lists as long, in as many pages and as malformed as they are told to be."""
    assert MATERIAL is not None
    if MATERIAL.get("hang"):
        threading.Event().wait()
    key = {"resources/list": "resources", "resources/templates/list": "resourceTemplates", "prompts/list": "prompts"}[method]
    uri = {"resources": "uri", "resourceTemplates": "uriTemplate"}.get(key)
    page = int(params.get("cursor") or 0)
    entries: list[Any] = [{"name": f"{key}{page}-{number}"} for number in range(MATERIAL.get("each", 1))]
    for entry in entries:
        entry |= {uri: f"x:{entry['name']}"} if uri else {}
    entries += MATERIAL.get("also", [])
    after = {"nextCursor": str(page + 1)} if page + 1 < MATERIAL.get("pages", 1) else {}
    return {key: entries, **after}


def read_material(method: str, params: dict[str, Any]) -> dict[str, Any]:
    assert MATERIAL is not None
    many = range(MATERIAL.get("each", 1))
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": f"part {number}"} for number in many]}
    said = json.dumps(params.get("arguments") or {}, sort_keys=True)
    return {"messages": [{"role": "user", "content": {"type": "text", "text": said}} for _ in many]}


def call_tool(params: dict[str, Any]) -> dict[str, Any]:
    asked = params.get("_meta", {}).get("io.modelcontextprotocol/clientCapabilities", {}).get("extensions", {})
    wants_task = "io.modelcontextprotocol/tasks" in asked if MODERN else "task" in params
    if TASKS is not None and wants_task and params["name"] in ("task_only", "sleep"):
        return begin_task(params)
    name = params["name"]
    run = FUNCTIONS.get(name, echo)
    return run(params.get("arguments") or {}, params)


def answer(message: dict[str, Any]) -> None:
    method, params = message["method"], message.get("params") or {}
    able: dict[str, Any] = {"tools": {"listChanged": not MODERN}}
    if MATERIAL is not None:
        able |= {"resources": {}, "prompts": {}}
    if TASKS is not None:
        own = {"tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
        able |= {"extensions": {"io.modelcontextprotocol/tasks": {}}} if MODERN else own
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
            case "tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/update":
                result = answer_task(method, params)
            case "resources/list" | "resources/templates/list" | "prompts/list" if MATERIAL is not None:
                result = {**list_material(method, params), **cached}
            case "resources/read" | "prompts/get" if MATERIAL is not None:
                result = {**read_material(method, params), **cached}
            case _:
                say(id=message["id"], error={"code": -32601, "message": f"no method {method}"})
                return
        say(id=message["id"], result=result)
    except Needed as needed:
        say(id=message["id"], result=needed.args[0])
    except Failure as failure:
        say(id=message["id"], error={"code": failure.code, "message": str(failure)})


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
