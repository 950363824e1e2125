"""Tool calls for one and for many at once, beside llama.cpp's own server in the same process, with the same file and threads.

Theirs gets our rendering of the request through its completion endpoint, and our grammar as GBNF, so that both read and write
the same. (As a chat, a template that knows no tools has it tell the model of none, and no call comes.)

A call is a success if it is of the tool that was asked for and its arguments fit the schema. Who is asked takes turns, so that
what else the machine does falls on all; the seconds of CPU tell what the clock does not on a busy machine.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any

from benchmarks.measure import compare as note
from benchmarks.table import show
from callsmith.core.events import CallReady, Stopped
from callsmith.core.schema import validate
from callsmith.core.values import Call, Choice, Message, Request, Result, Sampling, Tool
from callsmith.engines.llama.engine import LlamaEngine
from callsmith.formats.prompt.escaping import Escaper
from callsmith.formats.prompt.prompt import Prompt, prompt_for
from callsmith.formats.reader.parse import parse
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.targets.upstream import for_llama_server
from callsmith.models.local import LocalModel
from callsmith.models.opening import Options, open_local
from callsmith.models.weights.fetch import fetch

THREADS, CONTEXT, LIVE, MOST = 2, 8192, 16, 96
COUNTS = {1: "Please! ", 4: "Hello! ", LIVE: ""}  # how many at once, and how they begin, so that nobody has read them before
ROUNDS = 5
TURNS = 4  # second turns
PAUSE = 1.0  # seconds a tool takes
TEXT = {"type": "string", "maxLength": 40}
COUNT = {"type": "integer", "minimum": 1, "maximum": 1000}


def tool(name: str, about: str, **properties: Any) -> Tool:
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return Tool(name, about, schema)


# Tools, each with a question and what is put into it; four are offered at a time.
UNIT, SWITCH = {"enum": ["celsius", "fahrenheit"]}, {"type": "boolean"}
CITIES, PEOPLE = ("Paris", "Oslo", "Lima", "Cairo", "Kyoto"), ("Ada", "Ben", "Cleo", "Dan", "Eva")
ASKED = (
    (
        tool("get_weather", "The weather in a city.", city=TEXT, unit=UNIT),
        "Weather in {}?",
        CITIES,
    ),
    (tool("get_time", "The local time in a city.", city=TEXT), "What time is it in {} now?", CITIES),
    (tool("set_timer", "Start a timer.", minutes=COUNT), "Set a timer for {} minutes.", ("3", "5", "12", "45", "90")),
    (tool("send_message", "Send somebody a message.", to=TEXT, text=TEXT), "Send {} a message: I am late.", PEOPLE),
    (tool("play_song", "Play a song.", title=TEXT), "Play the song {}.", ("Yesterday", "Imagine", "Hello", "Thriller", "Africa")),
    (
        tool("set_volume", "Set the volume.", percent=COUNT),
        "Set the volume to {}.",
        ("10", "20", "35", "60", "80"),
    ),
    (tool("search_web", "Search the web.", query=TEXT), "Search the web for {}.", ("owls", "chess", "tea", "Mars", "jazz")),
    (tool("call_person", "Make a phone call.", person=TEXT), "Call {} on the phone.", PEOPLE),
    (tool("add", "Add two numbers.", a=COUNT, b=COUNT), "Add {} and 7.", ("3", "15", "28", "99", "120")),
    (
        tool("translate", "Translate a word.", word=TEXT, to=TEXT),
        "Translate {} to French.",
        ("dog", "sun", "tree", "fish", "egg"),
    ),
    (tool("book_table", "Book a table.", place=TEXT, people=COUNT), "Book a table at {} for 4 people.", CITIES),
    (
        tool("turn_light", "Switch a light.", room=TEXT, on=SWITCH),
        "Turn on the light in {}.",
        ("A1", "B2", "C3", "D4", "E5"),
    ),
)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, with which tools, and which of them it should be."""

    text: str
    tools: tuple[Tool, ...]
    right: Tool

    @property
    def request(self) -> Request:
        sampling = Sampling(temperature=0.0, max_tokens=MOST)
        return Request((Message.user(self.text),), self.tools, Choice("required"), parallel=False, sampling=sampling)


def questions() -> Iterator[Question]:
    for kinds in (ASKED[start : start + 4] for start in range(0, len(ASKED), 4)):
        tools = tuple(kind[0] for kind in kinds)
        for number in range(5):
            yield from (Question(text.format(values[number]), tools, right) for right, text, values in kinds)


@dataclass(frozen=True, slots=True)
class Told:
    """One answer: its tokens, its call, and the tokens of the prompt that were read for it."""

    tokens: int
    call: Call | None
    read: int


Ask = Callable[[Request], Awaitable[Told]]


class Ours:
    """callsmith."""

    def __init__(self, name: str) -> None:
        self.model: LocalModel = open_local(name, Options(context=CONTEXT, threads=THREADS, live=LIVE))

    async def chat(self, request: Request) -> Told:
        call, usage = None, None
        async for event in self.model.stream(request):
            if isinstance(event, CallReady):
                call = event.call
            elif isinstance(event, Stopped):
                usage = event.usage
        assert usage is not None
        return Told(usage.completion, call, usage.prompt - usage.cached)

    async def rest(self) -> None:
        """Until nothing is computed any more: it would be counted as the other's."""
        engine = self.model.engine
        assert isinstance(engine, LlamaEngine)
        while engine.working:
            await asyncio.sleep(0.005)


class Theirs:
    """llama.cpp's server. `model` is ours, for the text of a prompt."""

    def __init__(self, name: str, model: LocalModel) -> None:
        import xllamacpp

        params: Any = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.n_parallel, params.kv_unified = str(fetch(name)), CONTEXT, LIVE, True
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
        params.verbosity = -1
        self._server: Any = xllamacpp.Server(params)
        self._threads = ThreadPoolExecutor(LIVE)
        self._model = model

    async def complete(self, request: Request) -> Told:
        """Our text of the same request, and our grammar where a call must come."""
        model = self._model
        prompt = prompt_for(request, request.tools, model.template, model.format, Escaper(frozenset(model.engine.info.specials)))
        body = {"prompt": prompt.text, "n_predict": request.sampling.max_tokens, "temperature": 0.0, "cache_prompt": True}
        reply = await self._asked(self._server.handle_completions, body | self._grammar(request, prompt))
        text = reply["content"] if "content" in reply else reply["choices"][0]["text"]
        calls = parse(model.format, text, request.tools, prompt.opened).calls
        timings = reply["timings"]
        return Told(timings["predicted_n"], replace(calls[0], id="call00001") if calls else None, timings["prompt_n"])

    def _grammar(self, request: Request, prompt: Prompt) -> dict[str, Any]:
        if request.choice.mode != "required":
            return {}
        grammar = grammar_for(self._model.format, request.tools, request.choice, parallel=False, opened=prompt.opened)
        assert grammar is not None
        return dict(for_llama_server(grammar, self._model.engine.info.specials).body)

    async def _asked(self, handle: Callable[[Any], Any], body: Any) -> Any:
        reply = await asyncio.get_running_loop().run_in_executor(self._threads, handle, body)
        if "timings" not in reply:
            raise AssertionError(f"llama.cpp's server refuses: {reply}")
        return reply


@dataclass(slots=True)
class Spent:
    """What was done, and what it took."""

    seconds: list[float] = field(default_factory=list[float])
    computing: list[float] = field(default_factory=list[float])
    told: list[Told] = field(default_factory=list[Told])
    good: int = 0

    async def on(self, ask: Ask, requests: list[Request]) -> list[Told]:
        """Ask all of them at once."""
        began, busy = time.perf_counter(), time.process_time()
        answers = await asyncio.gather(*map(ask, requests))
        self.seconds.append(time.perf_counter() - began)
        self.computing.append(time.process_time() - busy)
        self.told += answers
        return answers

    @property
    def speed(self) -> float:
        return sum(answer.tokens for answer in self.told) / sum(self.seconds)

    @property
    def cost(self) -> float:
        """Seconds of CPU an answer."""
        return sum(self.computing) / len(self.told)


def good(question: Question, answer: Told) -> bool:
    call = answer.call
    return call is not None and call.name == question.right.name and not validate(question.right.parameters, call.arguments)


async def rounds(ours: Ours, ways: dict[str, Ask], items: list[Question]) -> dict[tuple[str, int], Spent]:
    """So many questions at once, round after round."""
    spent = {(way, count): Spent() for way in ways for count in COUNTS}
    order = list(ways)
    for ask in ways.values():  # what is done once is done before
        await ask(Question("Weather in Rome?", ASKED[0][0:1], ASKED[0][0]).request)
    for start in range(0, len(items), len(items) // ROUNDS):
        part = (items + items)[start : start + LIVE]
        for way in order:
            for count, opening in COUNTS.items():
                asking = [replace(question, text=f"{opening}{question.text}") for question in part[:count]]
                answers = await spent[way, count].on(ways[way], [question.request for question in asking])
                spent[way, count].good += sum(map(good, asking, answers))
                await ours.rest()
        order.reverse()
    return spent


async def second_turns(ours: Ours, ways: dict[str, Ask], turns: int) -> dict[str, Spent]:
    """From when the tool has answered to the first token of what the model says to it."""
    spent = {way: Spent() for way in ways}
    for number in range(turns):
        kind, text, values = ASKED[number % 4]
        question = Question(f"Hello! {text.format(values[0])}", tuple(row[0] for row in ASKED[:4]), kind)
        for way, ask in ways.items():
            first = question.request
            answer = await ask(first)
            if answer.call is None:
                continue
            call = replace(answer.call, id="call00001")
            done = (*first.messages, Message.assistant(calls=[call]), Message.tool(Result(call.id, call.name, "done, all well")))
            await asyncio.sleep(PAUSE)
            await ours.rest()
            # Nothing is required here: a token that a grammar forces would take no time at all.
            second = replace(first, messages=done, choice=Choice(), sampling=Sampling(temperature=0.0, max_tokens=1))
            await spent[way].on(ask, [second])
            await ours.rest()
    return spent


async def compare(name: str, items: list[Question], turns: int = TURNS) -> None:
    ours = Ours(name)
    theirs = Theirs(name, ours.model)
    ways: dict[str, Ask] = {"callsmith": ours.chat, "llama.cpp's server": theirs.complete}
    spent = await rounds(ours, ways, items)
    for count in COUNTS:
        mine, others = (spent[way, count].seconds for way in ways)
        note(f"{count} calls at once" if count > 1 else "one call", "seconds", mine, "llama.cpp's server", others, goal=1.0)
    by_count = {count: [spent[way, count] for way in ways] for count in COUNTS}
    many = by_count[LIVE]
    _show(
        f"{name}: tool calls, ours and llama.cpp's server, {THREADS} threads",
        [*ways],
        [
            (f"right and valid calls, of {len(many[0].told)}", [float(way.good) for way in many]),
            *((f"tokens a second, {count} at once", [way.speed for way in timings]) for count, timings in by_count.items()),
            *((f"seconds to answer {count}", [mean(way.seconds) for way in timings]) for count, timings in by_count.items()),
            *((f"CPU seconds an answer, {count} at once", [way.cost for way in timings]) for count, timings in by_count.items()),
            ("tokens of an answer", [mean(answer.tokens for answer in way.told) for way in many]),
            ("tokens read for it", [mean(answer.read for answer in way.told) for way in many]),
        ],
    )
    after = {way: way_spent for way, way_spent in (await second_turns(ours, ways, turns)).items() if way_spent.told}
    await ours.model.close()
    _show(
        f"{name}: the second turn, {PAUSE:g} s after the call; only of those who made one",
        [*after],
        [
            ("seconds to the first token", [mean(way.seconds) for way in after.values()]),
            ("CPU seconds to the first token", [mean(way.computing) for way in after.values()]),
            ("tokens of the prompt read", [mean(answer.read for answer in way.told) for way in after.values()]),
        ],
    )


def _show(title: str, ways: list[str], rows: list[tuple[str, list[float]]]) -> None:
    heads = ("", ways[0], *(head for way in ways[1:] for head in (way, "ratio")))
    lines: list[tuple[object, ...]] = []
    for what, (first, *others) in rows:
        ratios = ((other, first / other if other else "-") for other in others)
        lines.append((what, first, *(cell for pair in ratios for cell in pair)))
    show(title, heads, lines)


def main(name: str) -> None:
    os.environ["CALLSMITH_LIBLLAMA"] = "pinned"  # theirs is the pinned library, so ours is too
    asyncio.run(compare(name, list(questions())))
