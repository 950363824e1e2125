"""What a grammar costs: making it for many tools, and finding the next token in arguments. Beside other engines."""

import gc
import gzip
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any, TypeVar

import numpy as np

from benchmarks.measure import compare
from benchmarks.rivals import Rival, rivals
from benchmarks.table import goal, show
from callsmith.core.errors import UsageError
from callsmith.core.values import Call, Choice, Message, Request, Sampling, Tool
from callsmith.engines.decoding.compiler import ActiveConstraint, Compiler
from callsmith.engines.decoding.matcher import Constraint
from callsmith.engines.decoding.sequence import DEFAULTS, Sampler
from callsmith.engines.llama.gguf import GgufVocabulary
from callsmith.engines.lru import LRU
from callsmith.engines.port import with_defaults
from callsmith.formats import format_named
from callsmith.formats.write import write
from callsmith.grammar.relay import Relay
from callsmith.models.grammars import Grammars
from callsmith.server.http.body_reader import BodyReader
from callsmith.server.settings import Requests
from callsmith.wire.openai.chat import ChatRequest, read_request, write_request
from tests.formats.reader.corpus import CORPUS
from tests.grammar.sampling import vocabulary

T = TypeVar("T")
COUNTS = (1, 10, 100, 500)
FORMATS = ("hermes", "qwen3-coder", "pythonic")
SETS = 7  # of each size; the median counts
CALLS = 10  # whose text is gone through
COPIES = 24  # of a set, for its memory
CITY = 'New York (the one in the east, "Big Apple") and its five boroughs, from Brooklyn to the Bronx'


def main(model: str) -> None:
    tokens = vocabulary(model)
    tools, calls, source = offered()
    print(f"\nvocabulary of {tokens.size:,}, {source}, one call required; medians of {SETS} sets")
    ours, colds = {name: Ours(tokens, name) for name in FORMATS}, dict[str, list[float]]()
    for name, ours_of_format in ours.items():
        rows = [ours_of_format.row(subset(tools, count)) for count in COUNTS]
        colds[name] = [row[1] for row in rows]
        heads = ("tools", "cold ms", "first choice ms", "warm µs", "sent again µs", "reading µs", "KB a set")
        show(f"{name}: cold and warm to a first mask; tools a client sent again, and reading those", heads, rows)
        text = ours_of_format.text_row(tools[:10], calls)
        show(f"{name}: {CALLS} calls, a mask at every token, and where nothing is forced; µs", TEXT_HEADS, [text])
        (_, ten, _, ten_warm, *_), _, (_, many, _, many_warm, *_) = rows[1:]
        for what, value, most in (
            ("ms cold, 10 tools,", ten, 5),
            ("ms cold, 500 tools,", many, 15),
            ("µs warm, 10 tools,", ten_warm, 50),
            ("µs warm, 500 tools,", many_warm, 50),
            ("µs a mask, p50,", text[1], 50),
            ("µs a mask, p99,", text[2], 1000),
        ):
            goal(what, value, most)
    beside(ours["hermes"], colds["hermes"], tools, calls)


TEXT_HEADS = ("tokens", "mask p50", "p99", "unforced p50", "p99", "ruling out p50", "choosing p50", "p99", "forced %")


class Ours:
    """Grammars of a format, for a vocabulary."""

    def __init__(self, vocabulary: GgufVocabulary, name: str) -> None:
        self.vocabulary, self.format = vocabulary, format_named(name)
        self.known = Grammars(self.format, relays=True)
        self.compiler = Compiler(vocabulary)
        self.compiler.compile('start: "a"')  # the tokenizer is made once for all grammars
        self._noise, self._sampler = np.random.default_rng(1), Sampler(with_defaults(Sampling(seed=1), DEFAULTS))

    def start(self, tools: Sequence[Tool], grammars: Grammars | None = None) -> ActiveConstraint:
        """From the tools to where a mask can be asked for."""
        grammar = (grammars or Grammars(self.format, relays=True)).get(tools, Choice("required"), parallel=False)
        assert grammar is not None
        return self.compiler.begin(grammar)

    def prepare(self, tools: Sequence[Tool]) -> None:
        """Compile ahead what an engine does while it reads the prompt."""
        grammar = self.known.get(tools, Choice("required"), parallel=False)
        for name in self.compiler.list_unchecked(grammar) if isinstance(grammar, Relay) else ():
            self.compiler.check(grammar, name)

    def row(self, sets: list[list[Tool]]) -> tuple[float, ...]:
        costs = zip(*(self._set(tools) for tools in sets), strict=True)
        return (len(sets[0]), *map(median, costs), self._memory(sets[0]))

    def _set(self, tools: list[Tool]) -> tuple[float, ...]:
        """ms until a mask can be asked for, and from there through the name; µs for the same again, also as a client sends them,
        and for reading those."""
        gc.collect()
        grammars = Grammars(self.format, relays=True)
        constraint, cold = timed(lambda: self.start(tools, grammars))
        _, chosen = timed(lambda: self._through_name(constraint, tools[len(tools) // 2]))
        offered_tools = tuple(tools)  # as a request has them
        self.start(offered_tools, grammars)
        warm = median([timed(lambda: self.start(offered_tools, grammars))[1] for _ in range(5)])
        return cold, chosen, warm * 1000, *self._sent(tools, grammars)

    def _sent(self, tools: list[Tool], grammars: Grammars) -> tuple[float, float]:
        bodies = BodyReader(Requests(tools=10**6, schema_values=10**8))
        request = ChatRequest("m", Request((Message.user("hi"),), tuple(tools), Choice("required")))
        body, again, reading = json.dumps(write_request(request)).encode(), list[float](), list[float]()
        for _ in range(6):
            read, spent = timed(lambda: read_request(bodies.decode(body)).request.tools)
            reading.append(spent * 1000)
            again.append(timed(lambda tools=read: self.start(tools, grammars))[1] * 1000)
        return median(again[1:]), median(reading[1:])

    def _through_name(self, constraint: ActiveConstraint, tool: Tool) -> None:
        """Write the call up to its arguments: what a relay has to make for it is made there."""
        text = write(self.format, [Call(tool.name, {"a": 1}, "aaaaaaaaa")])
        for token in self.vocabulary.tokenize(text[: text.rindex(tool.name) + len(tool.name) + 1]):
            if not constraint.admits(token):
                return

    def _memory(self, tools: list[Tool]) -> float:
        """KB that one more set takes: the same tools under other names, so that nothing is shared."""
        before, kept = resident(), list[object]()
        for copy in range(COPIES):
            renamed = [Tool(f"{copied.name}_{copy}", "", copied.parameters) for copied in tools]
            grammars = Grammars(self.format, relays=True)
            kept += [grammars, self.start(renamed, grammars)]
        return (resident() - before) / COPIES / 1024

    def text_row(self, tools: list[Tool], calls: list[Call]) -> tuple[float, ...]:
        places = [place for call in some_calls(tools, calls) for place in self._places(tools, call)]
        everywhere = [place[0] for place in places]
        masks, ruled, chosen = zip(*(place for place in places if len(place) == 3), strict=True)
        first = (len(places), median(everywhere), p99(everywhere), median(masks), p99(masks))
        return (*first, median(ruled), median(chosen), p99(chosen), 100 * (1 - len(masks) / len(places)))

    def steps(self, tools: list[Tool], call: Call, find: "Find") -> tuple[list[float], list[float]]:
        """µs for finding what may come, at every token of the call, and for taking it."""
        constraint, finding, taking = self.start(tools, self.known), list[float](), list[float]()
        for token in self.vocabulary.tokenize(write(self.format, [call])):
            finding.append(timed(partial(find, constraint, token))[1] * 1000)
            admitted, spent = timed(partial(constraint.admits, token))
            taking.append(spent * 1000)
            if not admitted:
                break
        return finding, taking

    def _places(self, tools: list[Tool], call: Call) -> Iterator[tuple[float, ...]]:
        """For every token µs for finding what may come; and where nothing is forced, for ruling out the rest and for choosing
        a token without either."""
        constraint = self.start(tools)
        for token in self.vocabulary.tokenize(write(self.format, [call])):
            forced, finding = timed(constraint.find_forced)
            if forced:
                yield (finding * 1000 + self._mask(constraint),)
            else:
                logits = self._noise.standard_normal(self.vocabulary.size, np.float32)
                logits[token] = 12
                _, chosen = timed(lambda logits=logits: self._sampler.choose(logits, constraint))
                mask = finding * 1000 + self._mask(constraint)
                _, ruled = timed(lambda logits=logits: constraint.restrict(logits))
                yield mask, ruled * 1000, chosen * 1000
            if not constraint.admits(token):
                break

    def _mask(self, constraint: ActiveConstraint) -> float:
        """µs for the whole mask."""
        stage = constraint if isinstance(constraint, Constraint) else constraint._stage
        stage._masked = False
        return timed(stage._fill)[1] * 1000


Find = Callable[[ActiveConstraint, int], object]


def find_all(constraint: ActiveConstraint, token: int) -> None:
    """Find what must come, and the whole mask."""
    constraint.find_forced()
    (constraint if isinstance(constraint, Constraint) else constraint._stage)._fill()


def compute_mask(constraint: ActiveConstraint, token: int) -> None:
    """Compute the mask, as if nothing were known of what must come."""
    stage = constraint if isinstance(constraint, Constraint) else constraint._stage
    stage.matcher.unsafe_compute_mask_ptr(*stage._place)


def ask(constraint: ActiveConstraint, token: int) -> bool:
    """Find what must come, else whether the likeliest token may, as an answer does."""
    return bool(constraint.find_forced()) or constraint.allows(token)


def masks_beside(ours: Ours, rival: Rival, tools: list[Tool], calls: list[Call]) -> None:
    """What may come at every token of the same calls, by turns. The second time the grammar was used before. What is made ready
    while a grammar is compiled is spared later, so that both together are told too: for the first call, nothing made ahead."""
    rows: list[tuple[object, ...]] = []
    fresh, alone, asked = (Ours(ours.vocabulary, ours.format.name) for _ in range(3))
    for count in (1, 10, 100):
        some, offered_calls = tools[:count], some_calls(tools[:count], calls)
        compiled, compiling = timed(lambda some=some: rival.compile(some))
        first, again, only, theirs = list[float](), list[float](), list[float](), list[float]()
        answers, their_answers = list[float](), list[float]()
        middles: list[tuple[float, float]] = []
        _, starting = timed(lambda some=some: fresh.start(some, fresh.known))
        for compiler in (ours, alone, asked):
            compiler.prepare(some)
        for call in offered_calls:
            forget_texts(ours.vocabulary)
            mine, tokens = ours.steps(some, call, find_all)[0], ours.vocabulary.tokenize(write(format_named("json"), [call]))
            other, _, accepting = map(list[float], zip(*rival.costs(compiled, tokens), strict=True))
            middles.append((median(mine), median(other)))
            if not first:
                forget_texts(ours.vocabulary)
                whole = starting + sum(map(sum, fresh.steps(some, call, find_all))) / 1000
                their_whole = compiling + (sum(other) + sum(accepting)) / 1000
                compare(f"a grammar and the first call, {count} tools", "CPU ms", [whole], rival.name, [their_whole], goal=1.0)
            first, again, theirs = first + mine, again + ours.steps(some, call, find_all)[0], theirs + other
            only += alone.steps(some, call, compute_mask)[0]
            forget_texts(ours.vocabulary)
            answers += map(sum, zip(*asked.steps(some, call, ask), strict=True))
            their_answers += map(sum, zip(other, accepting, strict=True))
        noted = list(zip(*middles, strict=True))
        compare(f"a mask, {count} tools", "CPU µs, p50 of a call", noted[0], rival.name, noted[1], goal=1.0)
        for what, spent in (("with forced tokens", first), ("alone", only)):
            compare(f"a mask {what}, first use, {count} tools", "CPU µs, p99", [p99(spent)], rival.name, [p99(theirs)], goal=1.0)
        for part, unit in ((mean, "mean"), (p99, "p99")):
            what = f"a token asked for and taken, first use, {unit}, {count} tools"
            compare(what, "CPU µs", [part(answers)], rival.name, [part(their_answers)])
        ratios = median(first) / median(theirs), median(again) / median(theirs)
        rows.append((count, *map(of_three, (first, again, only, answers, theirs)), *ratios))
    ways = ("callsmith, first use", "again", "masks alone, first use", "asked for and taken, first use", rival.name)
    heads = ("tools", *ways, "p50 ratio, first use", "again")
    show(f"finding what may come at every token, beside {rival.name}: µs, p50 / p99 / mean", heads, rows)


def forget_texts(vocabulary: GgufVocabulary) -> None:
    """What must come is tokenized anew, as if no answer had said it before."""
    vocabulary.cached_tokenize._cache = LRU(1 << 20)


def of_three(spent: list[float]) -> str:
    return f"{median(spent):.1f} / {p99(spent):.0f} / {mean(spent):.1f}"


def p99(spent: Sequence[float]) -> float:
    return quantiles(spent, n=100)[98]


def some_calls(tools: list[Tool], calls: list[Call]) -> list[Call]:
    """Calls of tools from all over the list."""
    names = {tool.name for tool in tools}
    among = [call for call in calls if call.name in names]
    return among[:: max(1, len(among) // CALLS)][:CALLS]


def beside(ours: Ours, mine: list[float], tools: list[Tool], calls: list[Call]) -> None:
    """The same, next to other engines. `mine` is what a cold compile costs here."""
    _, p50, longest, _, _, _, choosing, *_ = ours.text_row(tools[:10], calls)
    rows: list[tuple[object, ...]] = [("callsmith", *mine, p50, longest, choosing)]
    for rival in rivals(ours.vocabulary):
        if rival.name == "xgrammar":
            masks_beside(ours, rival, tools, calls)
            both = [(cold(ours.start, some), cold(rival.compile, some)) for some in subset(tools, 10)]
            compare("a grammar of 10 tools", "CPU ms", [ratio for ratio, _ in both], rival.name, [ratio for _, ratio in both])
        theirs = [rival_compile(rival, tools, count) for count in COUNTS]
        masks, ruled, _ = zip(*rival_costs(rival, ours.vocabulary, tools[:10], calls), strict=True)
        rows.append((rival.name, *theirs, median(masks), p99(masks), median(masks) + median(ruled)))
        ratios = ", ".join(f"{a / b:.1f}" for a, b in zip(theirs, mine, strict=True) if isinstance(a, float))
        print(f"  {rival.name} / callsmith: cold {ratios}; a mask {median(masks) / p50:.1f}")
    heads = ("", *(f"cold {count}" for count in COUNTS), "mask p50 µs", "p99", "token µs")
    show("beside other engines: cold compile in ms by number of tools; a mask at every token; finding a token by it", heads, rows)


def cold(make: Callable[[list[Tool]], object], tools: list[Tool]) -> float:
    return timed(lambda: make(tools))[1]


def rival_compile(rival: Rival, tools: list[Tool], count: int) -> float | str:
    if count > rival.most:
        return "not tried"
    sets = subset(tools, count)[: 1 if count > 10 else SETS]
    return median([cold(rival.compile, some) for some in sets])


def rival_costs(rival: Rival, vocabulary: GgufVocabulary, tools: list[Tool], calls: list[Call]) -> Iterator[tuple[float, ...]]:
    for call in some_calls(tools, calls)[: CALLS if rival.name == "xgrammar" else 1]:
        compiled, text = rival.compile(tools), write(format_named("json"), [call])
        yield from rival.costs(compiled, vocabulary.tokenize(text))


# --- what is offered --------------------------------------------------------------------------------------------------------


def offered() -> tuple[list[Tool], list[Call], str]:
    """Tools, calls of them, and where they are from: BFCL where it is at hand."""
    file = Path(CORPUS) / "bfcl_gold.jsonl.gz"
    if not file.is_file():
        generated = [tool(number) for number in range(max(COUNTS) * 2)]
        return (
            generated,
            [Call(offered_tool.name, {"city": CITY, "unit": "celsius", "loud": True}) for offered_tool in generated],
            "generated tools",
        )
    tools, calls = dict[str, Tool](), list[Call]()
    with gzip.open(file, "rt") as lines:
        for case in map(json.loads, lines):
            new = {
                listed["function"]["name"]: listed["function"]
                for listed in case["tools"]
                if listed["function"]["name"] not in tools
            }
            tools |= {name: Tool(name, "", listed["parameters"]) for name, listed in new.items() if compiles(listed)}
            for call in case["gold"] or ():
                if call["name"] in new and call["name"] in tools:
                    calls.append(Call(call["name"], in_order(call["arguments"], new[call["name"]]["parameters"])))
    return list(tools.values()), calls, f"{len(tools):,} BFCL tools"


def compiles(function: dict[str, Any]) -> bool:
    """Whether the tool can be held to its schema at all, in every format here."""
    try:
        for name in FORMATS:
            Grammars(format_named(name)).get([Tool(function["name"], "", function["parameters"])], Choice("required"))
    except UsageError:
        return False
    return True


def in_order(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    return {key: arguments[key] for key in schema["properties"] if key in arguments}


def subset(tools: list[Tool], count: int) -> list[list[Tool]]:
    """Sets of so many tools, with as few in common as there are."""
    step = max(1, min(count, (len(tools) - count) // SETS))
    return [tools[at * step : at * step + count] for at in range(SETS)]


def tool(number: int) -> Tool:
    place = {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}, "required": ["city"]}
    properties = {
        "city": {"type": "string", "description": f"Which city, number {number}"},
        f"days_{number}": {"type": "integer"},
        "unit": {"enum": ["celsius", "fahrenheit", f"unit {number}"]},
        "places": {"type": "array", "items": place},
        "loud": {"type": "boolean"},
    }
    return Tool(f"get_weather_{number}", "The weather.", {"type": "object", "properties": properties, "required": ["city"]})


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What it gives, and the ms of computing it took, whatever else the machine was busy with."""
    began = time.process_time_ns()
    return work(), (time.process_time_ns() - began) / 1e6
