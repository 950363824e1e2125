"""Prompt lookup on a GPU: calls that copy from the prompt and calls that do not, with guesses and without, in turn.

    python -m benchmarks lookup --model FOLDER

FOLDER is a Hugging Face checkpoint of an instructed model.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.measure import ROUNDS, compare
from benchmarks.table import show
from callsmith.core.events import CallReady, Text
from callsmith.core.values import Choice, Message, Request, Sampling, Tool
from callsmith.engines.transformers.context import TorchContext
from callsmith.engines.transformers.engine import TransformersEngine
from callsmith.models import Options, open_model

SAMPLING = Sampling(temperature=0.0, max_tokens=320, seed=1)
PATHS = [
    f"/srv/projects/atlas-{n}/services/billing/src/main/java/com/example/billing/{name}.java"
    for n, name in enumerate(("InvoiceController", "PaymentGatewayAdapter", "RefundPolicyEvaluator", "LedgerReconciliationJob"))
]
IDS = (
    "7f3c9a52-1b64-4e0d-9c8e-2a71d5b0f613",
    "c04e18d7-95ab-4f32-8d61-b3e7720a94c5",
    "e2915b6f-0d7c-48a3-a5f4-6c8d31b97e20",
    "3ad86f14-72e9-4c5b-b0a6-91f5c24d8e37",
)
CODE = '''def merge_intervals(intervals):
    """Merge overlapping intervals."""
    ordered = sorted(intervals, key=lambda interval: interval[0])
    merged = []
    for start, end in ordered:
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged
'''
MAIL = (
    "Dear Ms Hoffmann, thank you for your order of 14 oak shelves on 3 March. Two of them were damaged on the way to our "
    "warehouse in Bremen, so that we can send you twelve now and the other two by 28 March. If you would rather wait for all of "
    "them, please write to us until Friday. With kind regards, Jonas Petersen, Nordlicht Furniture"
)


def tool(name: str, description: str, **properties: Any) -> Tool:
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return Tool(name, description, schema)


TEXT, TEXTS, NUMBER = {"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "integer"}
READ = tool("read_files", "Read files.", paths=TEXTS)
CANCEL = tool("cancel_orders", "Cancel orders by their ids.", ids=TEXTS)
WRITE = tool("write_file", "Write a file.", path=TEXT, content=TEXT)
SEND = tool("send_email", "Send an e-mail.", to=TEXT, body=TEXT)
WEATHER = tool("get_weather", "The weather in a city.", city=TEXT, days=NUMBER)
ADD = tool("add", "Add two numbers.", first=NUMBER, second=NUMBER)
COPYING = {
    "paths": (READ, "Read all of these files:\n" + "\n".join(PATHS)),
    "ids": (CANCEL, "Cancel these orders, all of them:\n" + "\n".join(IDS)),
    "code": (WRITE, f"Write exactly this code to src/intervals.py:\n```python\n{CODE}```"),
    "e-mail": (SEND, f"Send exactly this text to hoffmann@example.com:\n{MAIL}"),
}
OTHERS = {
    "weather": (WEATHER, "What will the weather be in Paris over the next three days?"),
    "numbers": (ADD, "What is 48213 plus 90877?"),
    "story": (WRITE, "Write a short story about a lighthouse keeper and a storm to story.txt."),
    "talk": (None, "Tell me about the history of the sea trade in two paragraphs."),
}


async def ask(model: Any, asked: Request) -> str:
    said: list[str] = []
    async for event in model.stream(asked):
        if isinstance(event, Text):
            said.append(event.text)
        elif isinstance(event, CallReady):
            said.append(f"{event.call.name}({event.call.arguments})")
    return "".join(said)


def count_passes(context: TorchContext) -> Callable[[], int]:
    """How many forward passes there were since then."""
    passes = 0

    def counted(begin: Callable[..., None]) -> Callable[..., None]:
        def run(*given: Any) -> None:
            nonlocal passes
            passes += 1
            begin(*given)

        return run

    context._forward, context.go_on = counted(context._forward), counted(context.go_on)
    return lambda: passes


async def measure(folder: str) -> None:
    model = open_model(f"transformers:{folder}", Options(context=2048, live=1))
    engine = model.engine
    assert isinstance(engine, TransformersEngine)
    context = engine._context
    count = count_passes(context)
    rows: list[tuple[Any, ...]] = []
    for kind, tasks in (("copies", COPYING), ("does not", OTHERS)):
        for name, (offered, text) in tasks.items():
            tools = (offered,) if offered else ()
            choice = Choice("required") if offered else Choice("auto")
            asked = Request((Message.user(text),), tools, choice=choice, sampling=SAMPLING)
            spent: dict[bool, list[float]] = {False: [], True: []}
            passes: dict[bool, int] = {}
            said: dict[bool, str] = {}
            for number in range(1 + 2 * ROUNDS):
                for looks_up in (False, True) if number % 2 else (True, False):
                    context.looks_up = looks_up
                    before, began = count(), time.perf_counter()
                    said[looks_up] = await ask(model, asked)
                    seconds = time.perf_counter() - began
                    passes[looks_up] = count() - before
                    if number:
                        spent[looks_up].append(1000 * seconds)
                    while engine.working:
                        await asyncio.sleep(0.005)
            compare(f"{name} ({kind})", "ms", spent[True], "without guesses", spent[False])
            rows.append(
                (name, kind, median(spent[False]), median(spent[True]), passes[False], passes[True], said[True] == said[False])
            )
            print(name, passes, repr(said[True][:160]), flush=True)
    show("a call", ("", "", "ms without", "ms with", "passes without", "passes with", "same answer"), rows)
    await model.engine.close()


def main(folder: str) -> None:
    if not Path(folder).is_dir():
        raise SystemExit("--model must name the folder of a checkpoint")
    print(torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU", folder)
    asyncio.run(measure(folder))
