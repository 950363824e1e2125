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
    took: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    read: dict[tuple[str, str], int] = {}
    for number in range(ROUNDS + 1):
        for way, ask in ways if number % 2 else reversed(ways):
            for kind, question in QUESTIONS.items():
                messages = (Message.system(f"Building {number}. {FACTS}"), Message.user(question))
                began = time.perf_counter()
                told = await ask(Request(messages, sampling=Sampling(temperature=0.0, max_tokens=1)))
                if number:  # the first round warms up
                    took[way, kind].append((time.perf_counter() - began) * 1000)
                read[way, kind] = told.read
                await ours.rest()
    await ours.model.close()
    rows = [(f"{way}, {kind}", read[way, kind], min(times)) for (way, kind), times in took.items()]
    show(f"{name}: to the first token", ("", "tokens read", "ms, best"), rows)
    for kind in QUESTIONS:
        compare(
            f"first token, {kind} prompt", "ms", took["callsmith", kind], "llama.cpp's server", took["llama.cpp's server", kind]
        )
    compare(
        "first token, shared prefix", "ms", took["callsmith", "shared"], "callsmith, fresh prompt", took["callsmith", "fresh"]
    )
