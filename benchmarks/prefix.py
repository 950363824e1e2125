"""The first token of a prompt that begins as an earlier one did, beside one that does not, and beside llama.cpp's own server.

Both have the same file, threads and texts, and take turns. Each round has a long text of its own: its first question is asked
of a prompt that nobody has read yet, the second of one whose beginning is in the KV cache.
"""

import asyncio
import os
import time
from collections import defaultdict

from benchmarks.batching import Ours, Theirs
from benchmarks.measure import ROUNDS, compare
from benchmarks.table import show
from callsmith.core.values import Message, Request, Sampling

FACTS = " ".join(f"Rule {n}: whoever has key {n * 7} opens door {n * 3} before {n % 12 + 1}." for n in range(40))
QUESTIONS = {"fresh": "Who opens door 9?", "shared": "What is behind the last door?"}


def main(model: str) -> None:
    os.environ["CALLSMITH_LIBLLAMA"] = "pinned"  # theirs is the pinned library, so ours is too
    asyncio.run(_compare(model))


async def _compare(name: str) -> None:
    ours = Ours(name)
    ways = [("callsmith", ours.chat), ("llama.cpp's server", Theirs(name, ours.model).complete)]
    took: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    read: dict[tuple[str, str], int] = {}
    for number in range(ROUNDS + 1):
        for way, ask in ways if number % 2 else reversed(ways):
            for kind, question in QUESTIONS.items():
                messages = (Message.system(f"Building {number}. {FACTS}"), Message.user(question))
                began, busy = time.perf_counter(), time.process_time()
                answer = await ask(Request(messages, sampling=Sampling(temperature=0.0, max_tokens=1)))
                seconds = time.perf_counter() - began
                await ours.rest()  # what we compute once the answer is there costs no time, but it costs
                if number:  # the first round warms up
                    took[way, kind, "ms"].append(seconds * 1000)
                    took[way, kind, "CPU ms"].append((time.process_time() - busy) * 1000)
                read[way, kind] = answer.read
    await ours.model.close()
    show(f"{name}: of prompts, read anew", ("", "tokens"), [(f"{way}, {kind}", count) for (way, kind), count in read.items()])
    (mine, _), (rival, _) = ways
    for unit in ("ms", "CPU ms"):
        for kind in QUESTIONS:
            compare(f"first token, {kind} prompt", unit, took[mine, kind, unit], rival, took[rival, kind, unit])
    compare("first token, shared prefix", "ms", took[mine, "shared", "ms"], "callsmith, fresh prompt", took[mine, "fresh", "ms"])
