"""Tool calls for one and for many at once, beside llama.cpp's own server in the same process, with the same file and threads.

Ours and theirs are asked in turn, so that what else the machine does falls on both. A call is a success if it names the tool and
its arguments are valid.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from benchmarks.constrained import TOOL, WEATHER
from benchmarks.table import show
from callsmith.core.events import CallReady, Stopped
from callsmith.core.schema import validate
from callsmith.core.values import Call, Choice, Message, Request, Result, Sampling
from callsmith.models import Options, open_model
from callsmith.models.local import LocalModel
from callsmith.models.weights import fetch
from callsmith.wire.openai_chat import ChatRequest, write_request

THREADS, CONTEXT, LIVE, MOST = 2, 8192, 8, 96
CITIES = ("Paris", "Miami", "Oslo", "Lima", "Cairo", "Quito", "Kyoto", "Boston", "Rome", "Delhi")
QUESTIONS = [
    f"What will the weather be like in {city} over the next {days} days, in {unit}?"
    for city, days, unit in product(CITIES, (2, 3, 5), ("celsius", "fahrenheit"))
]


@dataclass(frozen=True, slots=True)
class Told:
    """One answer: its tokens, and the call in it if it is valid."""

    tokens: int
    call: Call | None


Ask = Callable[[Request], Awaitable[Told]]


def asked(question: str) -> Request:
    sampling = Sampling(temperature=0.0, max_tokens=MOST)
    return Request((Message.user(question),), (TOOL,), Choice("required"), parallel=False, sampling=sampling)


def ours(model: LocalModel) -> Ask:
    async def ask(request: Request) -> Told:
        call, tokens = None, 0
        async for event in model.stream(request):
            match event:
                case CallReady():
                    call = event.call
                case Stopped():
                    tokens = event.usage.completion
                case _:
                    pass
        return Told(tokens, call if call and valid(call.name, call.arguments) else None)

    return ask


def theirs(path: str) -> Ask:
    import xllamacpp

    params: Any = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.kv_unified = path, CONTEXT, LIVE, True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    params.verbosity, params.use_jinja = 0, True
    server: Any = xllamacpp.Server(params)
    threads = ThreadPoolExecutor(LIVE)

    async def ask(request: Request) -> Told:
        body = write_request(ChatRequest("m", request))
        reply = await asyncio.get_running_loop().run_in_executor(threads, server.handle_chat_completions, body)
        if "choices" not in reply:
            return Told(0, None)
        made = [one["function"] for one in reply["choices"][0]["message"].get("tool_calls") or ()]
        good = [Call(one["name"], json.loads(one["arguments"]), "c1") for one in made if readable(one)]
        return Told(reply["usage"]["completion_tokens"], good[0] if good else None)

    return ask


def readable(made: dict[str, str]) -> bool:
    try:
        return valid(made["name"], json.loads(made["arguments"]))
    except ValueError:
        return False


def valid(name: str, arguments: Any) -> bool:
    return name == TOOL.name and not validate(WEATHER, arguments)


async def at_once(ask: Ask, questions: list[str]) -> tuple[float, list[Told]]:
    """Ask all of them; how long it took, and the answers."""
    began = time.perf_counter()
    answers = await asyncio.gather(*(ask(asked(question)) for question in questions))
    return time.perf_counter() - began, answers


async def second_turn(ask: Ask, city: str) -> float:
    """How long it takes to the first token once the tool has answered. The call is a given one, the same for both.

    Nothing is required here: a token that a grammar forces would take no time at all.
    """
    question = f"In {city}, how is the weather for 4 days, in celsius? " + "Please be precise about each of the days. " * 20
    first = replace(asked(question), choice=Choice(), sampling=Sampling(temperature=0.0, max_tokens=8))
    await ask(first)
    call = Call(TOOL.name, {"city": city, "unit": "celsius", "days": 4}, "call00001")
    done = (*first.messages, Message.assistant(calls=[call]), Message.tool(Result(call.id, call.name, "sunny, 21 degrees")))
    began = time.perf_counter()
    await ask(replace(first, messages=done, sampling=Sampling(temperature=0.0, max_tokens=1)))
    return time.perf_counter() - began


async def compare(sides: dict[str, Ask], questions: list[str]) -> None:
    spent = {(side, count): [0.0, 0.0] for side in sides for count in (1, LIVE)}
    good = dict.fromkeys(sides, 0)
    for ask in sides.values():  # what is done once is done before
        await ask(asked("How is the weather in Vienna?"))
    for start in range(0, len(questions), LIVE):
        part = questions[start : start + LIVE]
        for side, ask in sides.items():
            for count in (1, LIVE):
                seconds, answers = await at_once(ask, part if count == LIVE else [part[0] + " Thanks."])
                spent[side, count][0] += seconds
                spent[side, count][1] += sum(answer.tokens for answer in answers)
                good[side] += sum(answer.call is not None for answer in answers) if count == LIVE else 0
    turns = {side: min([await second_turn(ask, city) for city in CITIES[:3]]) for side, ask in sides.items()}
    speed = {key: tokens / seconds for key, (seconds, tokens) in spent.items()}
    rows = [(f"tokens/s, {count} at once", *(speed[side, count] for side in sides)) for count in (1, LIVE)]
    asks = -(-len(questions) // LIVE)
    rows += [(f"seconds to answer {count}", *(spent[side, count][0] / asks for side in sides)) for count in (1, LIVE)]
    rows.append((f"valid calls of {len(questions)}", *(float(good[side]) for side in sides)))
    rows.append(("second turn: seconds to the first token", *turns.values()))
    show(
        "Tool calls, ours and llama.cpp's server",
        ("", *sides, "ratio"),
        [(*row, row[1] / row[2] if row[2] else "-") for row in rows],
    )


def main(name: str, questions: list[str] = QUESTIONS) -> None:
    model = open_model(name, Options(context=CONTEXT, threads=THREADS, live=LIVE))
    sides = {"callsmith": ours(model), "llama.cpp": theirs(str(fetch(name)))}
    asyncio.run(compare(sides, questions))
    model.engine.close()
