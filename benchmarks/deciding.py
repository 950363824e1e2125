"""What it costs to decide first whether to call: the time to the first visible token of an answer in words.

The same question beside the same tools, in the chat template's way and by the model's own tool prompt, by turns: at first, and
with what was said before in the KV cache. The new way reads its prompt, decides, and reads the shorter prompt for words: it may
come later than the old one by no more than that.
"""

import asyncio
import time
from statistics import median

from benchmarks.table import show
from callsmith import Message, Request, Sampling
from callsmith.core.events import Stopped, Text
from callsmith.core.values import Tool
from callsmith.models import Options
from callsmith.models.local import LocalModel
from callsmith.models.opening import open_local, with_tool_prompt

ROUNDS = 5
SHOP = {"type": "object", "properties": {"shop": {"type": "string"}}, "required": ["shop"]}
ORDER = {"type": "object", "properties": {"shop": {"type": "string"}, "what": {"type": "string"}}, "required": ["shop", "what"]}


def tools(round: int) -> tuple[Tool, ...]:
    """Tools that no prompt has had yet."""
    return (
        Tool(f"opening_hours_{round}", "When a shop in our village is open.", SHOP),
        Tool(f"order_{round}", "Order something at a shop.", ORDER),
    )


async def first_token(model: LocalModel, request: Request) -> tuple[float | None, int]:
    """Seconds to the first text (None: the answer has none), and the tokens that were read and not cached."""
    began, seconds, read = time.perf_counter(), None, 0
    async for event in model.stream(request):
        if isinstance(event, Text) and seconds is None:
            seconds = time.perf_counter() - began
        if isinstance(event, Stopped):
            read = event.usage.prompt - event.usage.cached
    return seconds, read


async def measure(name: str) -> None:
    model = open_local(name)
    ways = {"template": with_tool_prompt(model, name, Options(), "template"), model.traits.tool_prompt.name: model}
    rows: list[tuple[object, ...]] = []
    times: dict[tuple[str, str], list[tuple[float | None, int]]] = {}
    for number in range(ROUNDS):
        for way, way_model in ways.items():
            messages = [Message.user("Hello, how are you?")]
            for when in ("first turn", "second turn"):
                request = Request(tuple(messages), tools(number), sampling=Sampling(temperature=0.0, max_tokens=8))
                times.setdefault((when, way), []).append(await first_token(way_model, request))
                messages += [Message.assistant("I am fine, thank you."), Message.user("Why are leaves green?")]
    for (when, way), values in sorted(times.items()):
        words = [seconds for seconds, _ in values if seconds is not None]
        in_words = f"{len(words)} of {len(values)}"
        rows.append((f"{when}, {way}", median(words) if words else "-", in_words, median([read for _, read in values])))
    show(f"{name}: to the first visible token of an answer in words", ("", "s (median)", "in words", "tokens read"), rows)
    await model.close()


def main(model: str) -> None:
    asyncio.run(measure(model))
