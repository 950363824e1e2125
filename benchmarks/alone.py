"""The engine with one stream beside llama.cpp's own server: the same file, library, threads, batch size, prompt and tokens.

Both are asked in this process, theirs by the handler behind its HTTP; and both over HTTP, each server in a process of its own.
Everything is greedy and without tools, on a prompt nobody has seen (cold) and again on the same one (the prefix is cached).
Who is asked first takes turns; a ratio is that of a round, so that what else the machine does falls on both. CPU seconds tell
what the clock does not on a busy machine.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.measure import compare
from callsmith.core.values import Sampling
from callsmith.engines.llama.engine import LlamaEngine
from callsmith.engines.llama.engine import open as open_engine
from callsmith.engines.llama.gguf import SLICE
from callsmith.engines.port import Finished
from callsmith.formats.prompt.prompt import Prompt
from callsmith.models.weights.fetch import fetch
from tests.serving import free_port

THREADS = int(os.environ.get("THREADS", "1"))  # more than one wait for each other, and on a busy machine long
CONTEXT, ROUNDS, TOKENS = 2048, 5, 32
PATIENCE = 60.0  # seconds until a server answers
PLACES = ("Rome", "Oslo", "Lima", "Cairo", "Tokyo", "Delhi", "Paris", "Quito", "Accra", "Hanoi")
TEXT = " ".join(
    f"On day {day} the travellers left {PLACES[day % 10]} at dawn and reached {PLACES[(day * 7 + 3) % 10]} in the evening."
    for day in range(1, 11)
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said, when its first and last words came, and the CPU seconds of the process that said it."""

    text: str
    first: float
    last: float
    computing: float

    @property
    def rate(self) -> float:
        """Tokens a second after the first one."""
        return (TOKENS - 1) / (self.last - self.first)


Stream: TypeAlias = Callable[[str], AsyncIterator[str]]
Spent: TypeAlias = Callable[[], float]
Side: TypeAlias = tuple[Stream, Spent]


async def answer(side: Side, prompt: str) -> Answer:
    stream, spent = side
    busy, began = spent(), time.perf_counter()
    texts, times = list[str](), list[float]()
    async for text in stream(prompt):
        texts.append(text)
        times.append(time.perf_counter() - began)
    return Answer("".join(texts), times[0], times[-1], spent() - busy)


# --- in this process --------------------------------------------------------------------------------------------------------


def our_engine(engine: LlamaEngine) -> Stream:
    async def stream(prompt: str) -> AsyncIterator[str]:
        async for piece in engine.generate(Prompt(prompt), Sampling(temperature=0.0, max_tokens=TOKENS)):
            if isinstance(piece, Finished):
                assert piece.usage.completion == TOKENS, "it ended early"
            elif piece.text:
                yield piece.text

    return stream


def their_handler(name: str) -> Stream:
    import xllamacpp

    server: Any = xllamacpp.Server(parameters(name))

    async def stream(prompt: str) -> AsyncIterator[str]:
        loop, chunks = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def receive(chunk: Any) -> bool:
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            return False  # what is true stops the answer

        done = loop.run_in_executor(None, server.handle_completions, asked(prompt), receive)
        while True:
            chunk = await chunks.get()
            if text := chunk["choices"][0]["text"]:
                yield text
            if chunk["choices"][0]["finish_reason"]:
                assert chunk["usage"]["completion_tokens"] == TOKENS, "it ended early"
                break
        await done

    return stream


def parameters(name: str) -> Any:
    import xllamacpp

    params: Any = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.kv_unified = str(fetch(name)), CONTEXT, 1, True
    params.n_batch = params.n_ubatch = SLICE
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    params.verbosity = -1
    return params


def asked(prompt: str) -> dict[str, Any]:
    return {"model": "m", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0.0, "stream": True}


# --- over HTTP --------------------------------------------------------------------------------------------------------------

_THEIRS = """
import sys, time, xllamacpp
from benchmarks.alone import parameters
given = parameters(sys.argv[1])
given.port = int(sys.argv[2])
server = xllamacpp.Server(given)
while True:
    time.sleep(60)
"""


def our_server(name: str, port: int) -> list[str]:
    arguments = (
        "--model",
        str(fetch(name)),
        "--port",
        port,
        "--threads",
        THREADS,
        "--context",
        CONTEXT,
        "--concurrency",
        1,
        "--name",
        "m",
    )
    return ["-m", "callsmith", "serve", *map(str, arguments)]


def their_server(name: str, port: int) -> list[str]:
    return ["-c", _THEIRS, name, str(port)]


async def serving(command: list[str], port: int, stack: ExitStack) -> Side:
    """A server in a process of its own, until the stack is left."""
    process = stack.enter_context(
        subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    )
    stack.callback(process.kill)
    stream, until = over_http(port), time.monotonic() + PATIENCE
    while True:
        try:
            [_ async for _ in stream("Hello")]
        except (OSError, AssertionError):
            if process.poll() is not None or time.monotonic() > until:
                raise
            await asyncio.sleep(0.5)
        else:
            return stream, lambda: computing_of(process.pid)


def over_http(port: int) -> Stream:
    async def stream(prompt: str) -> AsyncIterator[str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        content = json.dumps(asked(prompt)).encode()
        heads = (
            "POST /v1/completions HTTP/1.1",
            "host: localhost",
            "content-type: application/json",
            f"content-length: {len(content)}",
        )
        writer.write("\r\n".join((*heads, "", "")).encode() + content)
        status = await reader.readline()
        assert b" 200 " in status, await reader.read(2000)
        while (line := await reader.readline()).strip() != b"data: [DONE]":
            assert line, "the stream broke off"
            if line.startswith(b"data: ") and (choices := json.loads(line[6:]).get("choices")) and choices[0]["text"]:
                yield choices[0]["text"]
        writer.close()

    return stream


def computing_of(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- side by side -----------------------------------------------------------------------------------------------------------


async def beside(where: str, ours: Side, theirs: Side, rest: Callable[[], Awaitable[None]]) -> None:
    pairs: dict[str, list[tuple[Answer, Answer]]] = {"cold": [], "cached": []}
    same = 0  # the rest differ from a word on that was nearly as likely as another: what is in the cache is rounded otherwise
    for number in range(ROUNDS + 1):
        prompt = f"Diary {number * 7919 % 1000}, which nobody has read. {TEXT}"
        for kind in pairs:
            both: dict[bool, Answer] = {}
            for mine in (True, False) if number % 2 else (False, True):
                both[mine] = await answer(ours if mine else theirs, prompt)
                await rest()
            same += both[True].text == both[False].text
            if number:  # what is done once is done in the round before the first
                pairs[kind].append((both[True], both[False]))
    print(f"\n{where}: {same} of {2 * (ROUNDS + 1)} answers are the same as llama.cpp's")
    for kind, answers in pairs.items():
        for what, unit, is_rate, figure in FIGURES:
            mine, others = ([figure(pair[at]) for pair in answers] for at in (0, 1))
            goal = 1.0 if unit != "CPU ms" else None
            compare(f"{where}, {kind}: {what}", unit, mine, "llama.cpp's server", others, more_is_better=is_rate, goal=goal)


FIGURES: tuple[tuple[str, str, bool, Callable[[Answer], float]], ...] = (
    ("first token", "ms", False, lambda measured: measured.first * 1000),
    ("after it", "tokens/s", True, lambda measured: measured.rate),
    ("an answer", "CPU ms", False, lambda measured: measured.computing * 1000),
)


async def measure(name: str) -> None:
    async with AsyncExitStack() as closing:
        engine = open_engine(str(fetch(name)), context=CONTEXT, threads=THREADS, live=1)
        closing.push_async_callback(engine.close)

        async def rest() -> None:
            while engine.working:
                await asyncio.sleep(0.005)

        read = await engine.count(TEXT) + 10
        print(f"\n{name}, {THREADS} threads, the pinned library: prompts of about {read} tokens, answers of {TOKENS}")
        sides = [(stream, time.process_time) for stream in (our_engine(engine), their_handler(name))]
        await beside("in one process", *sides, rest)
    with ExitStack() as stack:
        ports = free_port(), free_port()
        ours = await serving(our_server(name, ports[0]), ports[0], stack)
        theirs = await serving(their_server(name, ports[1]), ports[1], stack)
        await beside("over HTTP", ours, theirs, lambda: asyncio.sleep(0.1))


def main(name: str) -> None:
    os.environ["CALLSMITH_LIBLLAMA"] = "pinned"  # theirs is the pinned library, so ours is too
    asyncio.run(measure(name))
