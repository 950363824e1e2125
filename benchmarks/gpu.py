"""Tokens a second on the GPU and on the processor, free and under a grammar, for 1, 8 and 32 requests at once.

Both are the same build of llama.cpp: for the processor no layer is put on the GPU. Only decoding is compared: every prompt is
asked once before it is measured.
"""

import asyncio
import time
from dataclasses import dataclass, replace

from benchmarks.constrained import TOOL, WEATHER
from benchmarks.table import show
from callsmith.core.events import CallReady
from callsmith.core.schema import validate
from callsmith.core.values import Choice, Message, Request, Sampling
from callsmith.engines.llama.engine import LlamaEngine
from callsmith.engines.llama.libllama import load
from callsmith.engines.llama.placement import gpus
from callsmith.engines.llama_builds.locate import locate
from callsmith.models import Options, open_model
from callsmith.models.local import LocalModel
from callsmith.models.weights.fetch import fetch

AT_ONCE = (1, 8, 32)
RUNS = 3
CITIES = ("Paris", "Rome", "Oslo", "Lima", "Cairo", "Quito", "Kyoto", "Delhi")
FREE = Sampling(temperature=0.0, max_tokens=64)


@dataclass(frozen=True, slots=True)
class Speed:
    """What some requests at once came to: tokens a second, forced ones among them, and the share of valid calls."""

    tokens: float
    valid: float


def questions(count: int) -> list[Request]:
    texts = [f"What is the weather in {CITIES[number % 8]} over {number + 2} days, in celsius?" for number in range(count)]
    return [Request((Message.user(text),), (TOOL,), parallel=False, sampling=FREE) for text in texts]


async def ask(model: LocalModel, request: Request) -> bool:
    calls = [event.call async for event in model.stream(request) if isinstance(event, CallReady)]
    return bool(calls) and validate(WEATHER, calls[0].arguments) == []


async def measure(model: LocalModel, engine: LlamaEngine, requests: list[Request]) -> Speed:
    """The median of some runs."""
    speeds: list[Speed] = []
    for run in range(RUNS + 1):
        tokens, began = engine.stats.sampled + engine.stats.forced, time.perf_counter()
        valid = await asyncio.gather(*(ask(model, request) for request in requests))
        seconds = time.perf_counter() - began
        await asyncio.sleep(0.2)  # an answer that was ended early is only then accounted for
        if run:  # the first one reads the prompts
            generated = engine.stats.sampled + engine.stats.forced - tokens
            speeds.append(Speed(generated / seconds, sum(valid) / len(valid)))
    return sorted(speeds, key=lambda speed: speed.tokens)[RUNS // 2]


async def measure_all(name: str, gpu_layers: int | None) -> tuple[str, dict[tuple[int, str], Speed]]:
    """Where the model is, and how fast in every way."""
    model = open_model(name, Options(context=8192, live=max(AT_ONCE), gpu_layers=gpu_layers))
    engine = model.engine
    assert isinstance(engine, LlamaEngine)
    speeds: dict[tuple[int, str], Speed] = {}
    for count in AT_ONCE:
        for choice in ("auto", "required"):
            requests = [replace(request, choice=Choice(choice)) for request in questions(count)]
            speeds[count, choice] = await measure(model, engine, requests)
    placement = engine.info.placement
    await model.close()
    return placement, speeds


def main(name: str) -> None:
    located = locate()
    print(f"\nllama.cpp: {located.path}, {located.why}")
    if not gpus(load()):
        print("no GPU is seen: there is nothing to compare")
        return
    fetch(name)
    ways: dict[str, dict[tuple[int, str], Speed]] = {}
    for way, layers in (("GPU", None), ("processor", 0)):
        placement, ways[way] = asyncio.run(measure_all(name, layers))
        print(f"{way}: {placement}")
    for way, speeds in ways.items():
        rows = [
            (count, free.tokens, held.tokens, free.tokens / held.tokens, f"{free.valid:.0%}", f"{held.valid:.0%}")
            for count in AT_ONCE
            for free, held in ((speeds[count, "auto"], speeds[count, "required"]),)
        ]
        heads = (
            "at once",
            "free, tokens/s",
            "constrained, tokens/s",
            "time a token, constrained / free",
            "valid calls free",
            "constrained",
        )
        show(f"{name} on the {way}: tokens a second, median of {RUNS}", heads, rows)
    gpu, processor = ways.values()
    rows = [
        (count, *(gpu[count, choice].tokens / processor[count, choice].tokens for choice in ("auto", "required")))
        for count in AT_ONCE
    ]
    show(f"{name}: the GPU is so many times as fast as the processor", ("at once", "free", "constrained"), rows)
