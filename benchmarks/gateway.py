"""Our server in front of another one, beside LiteLLM's proxy and two gateways in Rust, SMG and TensorZero, in one run.

The upstream is scripted and answers at once, so that what is measured is the gateway; it has a process of its own, as they have.
Each stream is read to its end and checked. Told are requests a second, what each gateway adds to an answer, and requests for each
second of CPU that its process has used, all threads of it: LiteLLM and we have one that works, those in Rust as many as cores.
Then repair mode: texts of real models behind a server that passes them on as they are, and how many of the calls in them arrive
(`CALLSMITH_CORPUS`). The rivals come with `make rivals`; LiteLLM may also be where `CALLSMITH_LITELLM` says.
"""

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.measure import ROUNDS, compare
from benchmarks.table import show

CHUNKS = 40  # of one answer
STREAMS = (1, 16, 128)
SECONDS = 2.0  # for each of them, in each round
GOAL = 5.0  # times LiteLLM's requests a second
RUST_GOAL = 1 / 3  # of SMG's requests for a second of CPU
ROOT = Path(__file__).parents[1]
RUST = Path(os.environ.get("CALLSMITH_RUST_GATEWAYS", ROOT / ".venv-rivals-gw"))  # a folder of packages
LITELLM = Path(os.environ.get("CALLSMITH_LITELLM", ROOT / ".venv-litellm" / "bin" / "litellm"))
KEY = f"sk-{secrets.token_hex(32)}"
ASKED = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Tell me the numbers."}]}

UPSTREAM = r"""
import asyncio, json, sys
head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
def chunk(delta, reason=None):
    return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}
said = [chunk({"content": f"{n:03d} "}) for n in range(CHUNKS)]
chunks = [chunk({"role": "assistant", "content": ""}), *said, chunk({}, "stop")]
chunks.append({**head, "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": CHUNKS, "total_tokens": CHUNKS + 5}})
frames = [f"data: {json.dumps(one)}\n\n".encode() for one in chunks] + [b"data: [DONE]\n\n"]
body = b"".join(b"%x\r\n%s\r\n" % (len(frame), frame) for frame in frames) + b"0\r\n\r\n"
answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + body
# What routers ask for before they trust a server: its health, its models, and what it says of itself.
known = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "vllm"}], "status": "ok", "model_path": "m"}
known = json.dumps({**known, "served_model_name": "m", "is_generation": True, "max_model_len": 4096}).encode()
known = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(known) + known

class Upstream(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.data = transport, b""
    def data_received(self, data):
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[:end].lower()
            at = head.find(b"content-length:")
            size = int(head[at + 15:].split(b"\r\n")[0]) if at >= 0 else 0
            if len(self.data) < end + 4 + size:
                return
            self.data = self.data[end + 4 + size:]
            self.transport.write(known if head.startswith(b"get") else answer)

async def main():
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", int(sys.argv[1]))
    async with server:
        await server.serve_forever()
asyncio.run(main())
""".replace("CHUNKS", str(CHUNKS))


def main(model: str) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(running([sys.executable, "-c", UPSTREAM, "PORT"]))
        gateways = {"directly": upstream, "callsmith": stack.enter_context(running(callsmith(upstream, folder)))}
        if LITELLM.exists():
            gateways["LiteLLM"] = stack.enter_context(_litellm(upstream, folder))
        else:
            print(f"\nLiteLLM: not installed ({LITELLM} is missing; make rivals fetches it)")
        for name, start in (("SMG", _smg), ("TensorZero", _tensorzero)):
            if (RUST / name.lower()).is_dir():
                gateways[name] = stack.enter_context(start(upstream, folder))
            else:
                print(f"\n{name}: not installed ({RUST / name.lower()} is missing; make rivals fetches it)")
        asyncio.run(_measure(gateways))
    _repair()


async def _measure(gateways: dict[str, int]) -> None:
    rows: list[Sequence[object]] = []
    for name, port in gateways.items():
        await _load(port, 1, 1.0, _REQUESTS.get(name, _REQUEST))  # warm
    for streams in STREAMS:
        rates: dict[str, list[float]] = {name: [] for name in gateways}
        took: dict[str, list[float]] = {name: [] for name in gateways}
        by_cpu: dict[str, list[float]] = {name: [] for name in gateways}
        for _ in range(ROUNDS):
            for name, port in gateways.items():
                before = cpu_seconds(port)
                times, seconds = await _load(port, streams, SECONDS, _REQUESTS.get(name, _REQUEST))
                by_cpu[name].append(len(times) / (cpu_seconds(port) - before))
                rates[name].append(len(times) / seconds)
                took[name] += times
        base = [0.0, 0.0]
        for name, times in took.items():
            middle, late = median(times) * 1000, (quantiles(times, n=100)[98] if len(times) > 100 else max(times)) * 1000
            base = [middle, late] if name == "directly" else base
            a_core = median(by_cpu[name])
            added = middle - base[0], late - base[1], 1000 / a_core, a_core
            rows.append((f"{name}, {streams} at once", median(rates[name]), middle, late, *added))
        if "LiteLLM" in gateways:
            what = f"answers through a gateway, {streams} at once"
            compare(what, "a second", rates["callsmith"], "LiteLLM", rates["LiteLLM"], more_is_better=True, goal=GOAL)
        for rival in ("SMG", "TensorZero"):
            if rival in gateways:
                what, goal = f"answers for a second of a core, {streams} at once", RUST_GOAL if rival == "SMG" else None
                compare(what, "answers", by_cpu["callsmith"], rival, by_cpu[rival], more_is_better=True, goal=goal)
    heads = ("", "requests/s", "ms p50", "ms p99", "added p50", "added p99", "ms of CPU", "requests/s a core")
    show(f"answers of {CHUNKS} chunks through a gateway, {ROUNDS} times {SECONDS:g} s each", heads, rows)


def _request(path: str = "/v1/chat/completions", model: str = "m") -> bytes:
    content = json.dumps({**ASKED, "model": model}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}authorization: Bearer {KEY}\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content


_REQUEST = _request()
_REQUESTS = {"TensorZero": _request("/openai/v1/chat/completions", "tensorzero::model_name::m")}


async def _load(port: int, streams: int, seconds: float, request: bytes = _REQUEST) -> tuple[list[float], float]:
    """How long each answer took, of so many clients that ask again and again, and how long all that took."""
    times: list[float] = []
    began = time.perf_counter()
    until = began + seconds

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < until:
            sent_at = time.perf_counter()
            writer.write(request)
            answer = await reader.readuntil(b"\r\n0\r\n\r\n")
            times.append(time.perf_counter() - sent_at)
            if b" 200 " not in answer[:20] or f"{CHUNKS - 1:03d} ".encode() not in answer or b"[DONE]" not in answer:
                raise AssertionError(answer[:2000].decode())
        writer.close()

    await asyncio.gather(*(client() for _ in range(streams)))
    return times, time.perf_counter() - began


_processes: dict[int, int] = {}  # by their ports


def cpu_seconds(port: int) -> float:
    """The CPU time that the process of a server has used so far; 0 where that cannot be found out."""
    return sum(cpu_times(port))


def cpu_times(port: int) -> tuple[float, float]:
    """The same, of the process itself and of the kernel for it."""
    try:
        fields = Path(f"/proc/{_processes[port]}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0, 0.0
    return int(fields[11]) / os.sysconf("SC_CLK_TCK"), int(fields[12]) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(command: list[str], patience: float = 120.0, **options: Any) -> Iterator[int]:
    """A server in a process of its own, and the port it listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([part.replace("PORT", str(port)) for part in command], stdout=output, stderr=output, **options)
        try:
            until = time.monotonic() + patience
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if process.poll() is not None or time.monotonic() > until:
                        output.seek(0)
                        raise AssertionError(f"{command[0]} did not come up: {output.read()[-2000:].decode()}") from None
                    time.sleep(0.1)
            _processes[port] = process.pid
            yield port
        finally:
            process.terminate()
            process.wait(20)


def callsmith(upstream: int, folder: Path) -> list[str]:
    """The command of our server; it asks for a key, as LiteLLM's proxy does."""
    config = folder / "callsmith.toml"
    config.write_text(f'[keys.benchmark]\nsha256 = "{sha256(KEY.encode()).hexdigest()}"\n')
    ours = [sys.executable, "-m", "callsmith", "serve", "--port", "PORT", "--config", str(config), "--name", "m"]
    return [*ours, "--set", "server.queue=1000", "--model", f"http://127.0.0.1:{upstream}/v1#m"]


@contextmanager
def _litellm(upstream: int, folder: Path) -> Iterator[int]:
    params = {"model": "openai/m", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"}
    config = folder / "litellm.yaml"
    config.write_text(json.dumps({"model_list": [{"model_name": "m", "litellm_params": params}]}))  # JSON is YAML
    command = [str(LITELLM), "--config", str(config), "--port", "PORT", "--host", "127.0.0.1", "--num_workers", "1"]
    settings = {"LITELLM_MASTER_KEY": KEY, "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with running(command, 300.0, env={**os.environ, **settings}, cwd=folder) as port:
        yield port


@contextmanager
def _smg(upstream: int, folder: Path) -> Iterator[int]:
    """SGLang's model gateway. Streams go through it as they come; it asks for a key too."""
    command = [sys.executable, "-m", "smg.launch_router", "--host", "127.0.0.1", "--port", "PORT", "--api-key", KEY]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        metrics = free.getsockname()[1]
    command += ["--prometheus-port", str(metrics), "--worker-urls", f"http://127.0.0.1:{upstream}", "--log-level", "error"]
    with running(command, env={**os.environ, "PYTHONPATH": str(RUST)}, cwd=folder) as port:
        until = time.monotonic() + 60
        while True:  # it listens before it knows its workers
            try:
                asyncio.run(_load(port, 1, 0.0))
                break
            except AssertionError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)
        yield port


# The package has the client and, for programs that have no server of it, the gateway itself: it listens where it likes.
_TENSORZERO = """
import sys, time, tensorzero
gateway = tensorzero._start_http_gateway(
    config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False
)
print(gateway.base_url, flush=True)
time.sleep(1e9)
"""


@contextmanager
def _tensorzero(upstream: int, folder: Path) -> Iterator[int]:
    """TensorZero's gateway, which reads chunks and writes its own, without its database and without keys."""
    config = folder / "tensorzero.toml"
    provider = f'type = "openai"\nmodel_name = "m"\napi_base = "http://127.0.0.1:{upstream}/v1"\napi_key_location = "none"\n'
    model = f'[models.m]\nrouting = ["upstream"]\n[models.m.providers.upstream]\n{provider}'
    config.write_text(f"[gateway]\nobservability.enabled = false\n{model}")
    command, settings = [sys.executable, "-c", _TENSORZERO, str(config)], {"PYTHONPATH": str(RUST), "RUST_LOG": "error"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **settings}, cwd=folder)
    try:
        assert process.stdout
        port = next(int(line.split(":")[2].split("/")[0]) for line in process.stdout if line.startswith("http://"))
        _processes[port] = process.pid
        yield port
    finally:
        process.terminate()
        process.wait(20)


# --- repair mode ---------------------------------------------------------------------------------------------------------------


def _repair() -> None:
    corpus = Path(os.environ.get("CALLSMITH_CORPUS", ROOT.parent / "shared" / "data")) / "model_outputs"
    if not corpus.is_dir():
        print(f"\nrepair mode: there is no corpus at {corpus}; set CALLSMITH_CORPUS")
        return
    asyncio.run(_repair_shares(corpus))


async def _repair_shares(corpus: Path) -> None:
    from callsmith.engines.upstream import Upstream
    from callsmith.models.remote.model import RemoteModel, RemoteTraits
    from callsmith.wire.upstream.dialects import dialect_named
    from callsmith.wire.upstream.quirks import Quirks

    samples = list(_samples(corpus))
    passing = _PassesOn()
    server = await asyncio.start_server(passing.answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    ways = {"the bare upstream": (False, False), "repair mode": (True, False), "repair mode, format named": (True, True)}
    rows: list[Sequence[object]] = []
    for way, (repairs, is_named) in ways.items():
        upstream = Upstream(url)
        models: dict[str, RemoteModel] = {}
        right, invented, called = 0, 0, sum(bool(sample.calls) for sample in samples)
        for sample in samples:
            format_name = sample.format if is_named else ""
            if format_name not in models:
                traits = RemoteTraits(format=_format(format_name) if format_name else None)
                models[format_name] = RemoteModel(
                    upstream, dialect_named("chat"), "m", Quirks(repairs=repairs, checks=False), traits
                )
            passing.text = sample.text
            calls = await sample.ask(models[format_name])
            right += bool(sample.calls) and calls == sample.calls
            invented += not sample.calls and bool(calls)
        await upstream.close()
        silent = len(samples) - called
        rows.append((way, f"{right} of {called}", f"{100 * right / called:.1f} %", f"{invented} of {silent}"))
    server.close()
    show("calls that arrive, of a server that passes on what its model writes", ("", "right", "share", "invented"), rows)


class _Sample:
    """A text of a real model, the tools that it was shown, and the calls that are in it."""

    def __init__(self, case: Any) -> None:
        from callsmith.core.values import TOOL_NAME, Tool

        self.text, self.format = case.row["output"], case.row["format"]
        self.calls = [(call["name"], call["arguments"]) for call in case.row.get("expected_calls") or []]
        tools = {tool.name: tool for tool in case.tools}
        for name, _ in self.calls:
            if TOOL_NAME.fullmatch(name):
                tools.setdefault(name, Tool(name, "", {"type": "object"}))
        self.tools = tuple(tools.values()) or (Tool("some_tool"),)

    async def ask(self, model: Any) -> list[tuple[str, Any]]:
        from callsmith.core.events import CallReady
        from callsmith.core.values import Message, Request

        events = [event async for event in model.stream(Request((Message.user("hi"),), self.tools))]
        return [(event.call.name, dict(event.call.arguments)) for event in events if isinstance(event, CallReady)]


def _samples(corpus: Path) -> Iterator[_Sample]:
    from callsmith.formats import formats
    from tests.formats.reader.corpus import cases

    known = {name for format in formats().values() for name in (format.name, *format.aliases)} | {"none"}
    for case in cases(corpus):
        if case.row["format"].replace("_", "-") in known and case.counts and not case.row.get("is_partial"):
            yield _Sample(case)


def _format(name: str) -> Any:
    from callsmith.formats import format_named

    return format_named(name)


class _PassesOn:
    """A server that gives a text as the content of its answers, and knows nothing of calls."""

    text = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
                choice = {"index": 0, "delta": {"content": self.text}, "finish_reason": "stop"}
                body = f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n".encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body) + body
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
