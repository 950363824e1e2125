"""Tool search: where the definitions of all tools would take too much of the context, the model searches for the ones it needs.

    model, toolset = await limit_shown_tools(model, toolset, ToolCosts())

Where all definitions fit the budget, or nearly so, no tool is hidden. Otherwise the model is shown `find_tools` and the tools it
has found or called, as the messages show; there is no other state. The toolset has all its tools: a call of a hidden one runs.
The search is BM25 over the words of names, descriptions and parameters.

>>> [tool.name for tool in search("mail somebody", [Tool("send_email", "Sends mails."), Tool("add", "Adds numbers.")])]
['send_email']
"""

import asyncio
import json
import re
import sys
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from difflib import get_close_matches
from functools import lru_cache, partial
from hashlib import sha256
from itertools import islice
from math import log
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

from callsmith.core.choice import FIND_TOOLS, apply_policy, found_names, found_text
from callsmith.core.closing import closing
from callsmith.core.errors import UsageError
from callsmith.core.events import CallEvent, ModelEvent
from callsmith.core.ports import Context, Model, ModelInfo, Toolset, model_info
from callsmith.core.values import Call, Choice, Message, Request, Result, Tool
from callsmith.runtime.guards.guards import guard_model, guard_names
from callsmith.runtime.telemetry.trace import estimate_tokens

MOST = 5  # tools that one search returns
_LONGEST = 600  # characters of a name or a description that count: clients bring tools, too, and of any size
_MOST_PARAMETERS = 64  # of a tool that count
_MOST_TERMS = 16  # of a query
_MOST_COMPARED = 5000  # words among which similar ones are looked for, which takes long
_MIN_SHARE = 0.3  # of the best score, which a tool must reach to be listed
_SATURATION, _LENGTH = 1.2, 0.5  # BM25's k1 and b; descriptions are short, so length counts for little
_NAME, _DESCRIPTION, _PARAMETER, _DETAIL = 3.0, 1.0, 1.0, 0.5  # what a word weighs, by where it occurs

# Acronyms, words of camelCase and snake_case, numbers; signs of scripts that have no spaces, one by one.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z\u3040-\u30ff\u3400-\u9fff]+|\d+")
_STOP_WORDS = """a about an and any are as at be by can do does for from has have how i if in into is it its me my need of on
or please that the their them then there this to tool tools use using want what when where which with you your"""
_COMMON = frozenset(_STOP_WORDS.split())

# Tools → the cost of each in tokens, by its name.
CostFunction: TypeAlias = Callable[[Sequence[Tool]], Awaitable[Mapping[str, int]]]

STANDARD_BUDGET = 4_000  # tokens, where nothing is known of the model's context
_SHARE = 4  # of its context a quarter
_SLACK = 1.25  # a set that is this much too large is still shown: searching has a price of its own
_LONGEST_LINE = 160  # characters of a description
_MOST_SOURCES = 12  # that are listed by name
_MOST_KNOWN = 64  # sets of tools whose costs are cached
_QUERY = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "In a few words, what has to be done."}},
    "required": ["query"],
}


def search(query: str, tools: Sequence[Tool], most: int = MOST) -> list[Tool]:
    """The tools that match the query best, the best first; only tools that have a word of it."""
    if not tools:
        return []
    documents = [_weights(tool) for tool in tools]
    spread = Counter(word for document in documents for word in document)
    mean = sum(sum(document.values()) for document in documents) / len(documents) or 1.0
    terms = islice(dict.fromkeys(words(query[:_LONGEST])), _MOST_TERMS)
    wanted = {word: share for term in terms for word, share in _known(term, spread).items()}
    scored: list[tuple[float, int]] = []
    for place, document in enumerate(documents):
        damp = _SATURATION * (1 - _LENGTH + _LENGTH * sum(document.values()) / mean)
        score = sum(
            share * log(1 + (len(tools) - spread[word] + 0.5) / (spread[word] + 0.5)) * (1 + _SATURATION) * times / (times + damp)
            for word, share in wanted.items()
            if (times := document[word])
        )
        if score > 0:
            scored.append((-score, place))
    scored.sort()
    return [tools[place] for score, place in scored[:most] if score <= scored[0][0] * _MIN_SHARE]


@lru_cache(4096)  # a search reads the same texts as the one before
def words(text: str) -> tuple[str, ...]:
    """The words of a text, stemmed and without stop words.

    >>> words("createdIssues in_my HTTPServer")
    ('creat', 'issu', 'http', 'serv')
    """
    return tuple(_stem(word) for match in _WORD.findall(text) if (word := match.lower()) not in _COMMON)


def _stem(word: str) -> str:
    """A rough stem of an English word: the same for its forms, and not necessarily a word itself."""
    word = re.sub(r"(?<=..)(ies|ications?)$", "y", word)
    for ending in ("ions", "ion", "ings", "ing", "ers", "er", "ors", "or", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word.removesuffix(ending)
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


def _known(term: str, spread: Mapping[str, int]) -> dict[str, float]:
    """The words of the tools that match a term: the term itself, else longer and similar ones, which count half."""
    if term in spread:
        return {term: 1.0}
    longer = [word for word in spread if (term in word if len(term) > 3 else len(term) > 2 and word.startswith(term))]
    return dict.fromkeys(longer or get_close_matches(term, islice(spread, _MOST_COMPARED), 2, 0.8), 0.5)


def _weights(tool: Tool) -> Counter[str]:
    weights: Counter[str] = Counter()
    for weight, text in ((_NAME, tool.name), (_DESCRIPTION, tool.description), *_parameters(tool.parameters)):
        for word in words(text[:_LONGEST]):
            weights[word] += weight  # pyright: ignore[reportArgumentType]  (a Counter counts in any numbers)
    return weights


def _parameters(schema: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    properties: Any = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    for name, value in islice(cast("Mapping[str, Any]", properties).items(), _MOST_PARAMETERS):
        yield _PARAMETER, str(name)
        detail: Any = cast("Mapping[str, Any]", value).get("description") if isinstance(value, Mapping) else None
        if isinstance(detail, str):
            yield _DETAIL, detail


def standard_budget(model: Model) -> int:
    """How many tokens the definitions of tools may take by default."""
    context = model_info(model).context
    return context // _SHARE if context else STANDARD_BUDGET


class ToolCosts:
    """The tokens that the definitions of tools take: counted where the model can count, else estimated from characters.

    A set is counted as a whole, once for each model; its tools share the count by their lengths.
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Model, OrderedDict[str, int]] = WeakKeyDictionary()

    async def of(self, model: Model, tools: Sequence[Tool]) -> Mapping[str, int]:
        """The cost of each of these tools, by its name."""
        texts = {tool.name: definition_text(tool) for tool in tools}
        if model_info(model).count is None or not tools:
            return {name: estimate_tokens(len(text)) for name, text in texts.items()}
        known, key = self._known.setdefault(model, OrderedDict()), sha256("\n".join(texts.values()).encode("utf-8", "replace"))
        whole = known.get(key.hexdigest())
        if whole is None:
            whole = known[key.hexdigest()] = await count_tokens(model, tools)
            if len(known) > _MOST_KNOWN:
                known.popitem(last=False)
        length = sum(map(len, texts.values()))
        return {name: -(-whole * len(text) // length) for name, text in texts.items()}


def definition_text(tool: Tool) -> str:
    """A tool's definition as text, about as a model is shown it: templates differ."""
    definition = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return json.dumps(definition, ensure_ascii=False, default=dict)


async def count_tokens(model: Model, tools: Sequence[Tool]) -> int:
    """How many tokens longer a prompt is with these tools, for a model that can count."""
    count = model_info(model).count
    if count is None:
        raise UsageError("the model cannot count tokens")
    bare = Request((Message.user("Hello"),), policy="auto")
    return max(0, await count(replace(bare, tools=tuple(tools))) - await count(bare))


async def limit_shown_tools(
    model: Model,
    toolset: Toolset,
    costs: ToolCosts,
    budget: int | None = None,
    *,
    pinned: Collection[str] = (),
    hidden: Sequence[Tool] = (),
    guards: Iterable[str] | None = None,
) -> tuple[Model, Toolset]:
    """The model with its guards and the toolset, wrapped so that no more definitions are shown than fit the budget.

    A budget of 0 shows all, None is the standard one. Of the caller's own tools, which are not in the toolset, `pinned` are the
    names of those that are always shown, and `hidden` those that have to be found. Nothing is wrapped where a tool is named
    `find_tools` already.
    """
    safe, budget = guard_model(model, guards), standard_budget(model) if budget is None else budget
    tools = await toolset.tools() if budget else ()
    fits = not hidden and _fits((await costs.of(model, tools)).values(), budget)
    if fits or FIND_TOOLS in {*pinned, *(tool.name for tool in (*tools, *hidden))}:
        return safe, toolset
    names, search_first = frozenset(tool.name for tool in hidden), "search-first" in guard_names(model, guards)
    budgeted = BudgetedModel(
        safe, partial(costs.of, model), budget or sys.maxsize, pinned=frozenset(pinned), hidden=names, search_first=search_first
    )
    return budgeted, SearchableToolset(toolset, hidden)


class SearchableToolset:
    """A toolset with `find_tools` beside its tools. `others` are tools that it finds, too, and does not run."""

    def __init__(self, toolset: Toolset, others: Sequence[Tool] = ()) -> None:
        self._toolset = toolset
        self._others = tuple(others)

    async def tools(self) -> Sequence[Tool]:
        tools = await self._toolset.tools()
        searchable = (*self._others, *tools)
        description = (
            f"Finds tools for a task. There are {len(searchable)} tools that are not shown ({_sources(searchable)}): "
            "say what has to be done, and those that are found can be called."
        )
        return [Tool(FIND_TOOLS, description, _QUERY, idempotent=True, source="callsmith"), *tools]

    def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        return self._search(call, context) if call.name == FIND_TOOLS else self._toolset.call(call, context)

    async def _search(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        await context.starting()
        searchable = (*self._others, *await self._toolset.tools())
        yield Result(call.id, call.name, await asyncio.to_thread(search_answer, call.arguments.get("query", ""), searchable))


@dataclass(frozen=True, eq=False)
class BudgetedModel:
    """A model that is shown `find_tools`, the pinned tools and, within the budget, the tools found or called last.

    The last one found or called is shown even where it does not fit. While a call is required, a search that has found something
    is not repeated: one of the tools it found has to be called. After a search in vain it may always answer. The `hidden` tools
    have to be found whatever they cost, unless the choice names them; all others are shown if they fit the budget.

    With `search_first` the tools are shown that the question itself finds: a small model that is shown a search answers without
    one, or searches without end. Where nothing is found it is shown none, unless it has to call something.
    """

    model: Model
    price: CostFunction
    budget: int
    _: KW_ONLY
    pinned: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    search_first: bool = False

    @property
    def info(self) -> ModelInfo:
        """What is known of the model; tokens are counted with the tools that it is shown."""
        info = model_info(self.model)
        if (count := info.count) is None:
            return info

        async def count_narrowed(request: Request) -> int:
            return await count(await self.shown_request(request))

        return replace(info, count=count_narrowed)

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        async with closing(self.model.stream(await self.shown_request(request))) as events:
            async for event in events:
                yield event

    async def shown_request(self, request: Request) -> Request:
        """The request with only the tools that are shown to the model."""
        finder = next((tool for tool in request.tools if tool.name == FIND_TOOLS), None)
        if finder is None or FIND_TOOLS in request.choice.names:
            return request
        offered = [tool for tool in request.choice.among(request.tools) if tool.name != FIND_TOOLS]
        costs = await self.price(offered)
        hidden = self.hidden - {*request.choice.names}
        open_costs = {name: cost for name, cost in costs.items() if name not in hidden}
        fits = _fits(open_costs.values(), self.budget)
        if fits and len(open_costs) == len(costs):
            return replace(request, tools=tuple(tool for tool in request.tools if tool is not finder and tool.name not in hidden))
        always = frozenset(open_costs) if fits else self.pinned
        searched = await asyncio.to_thread(search, _question(request), offered) if self.search_first else []
        mentioned = [name for name in _list_mentioned(request.messages) if name in costs]
        mentioned += [tool.name for tool in reversed(searched)]
        fitting = self._fitting(dict.fromkeys(reversed(mentioned)), costs, always)
        # In the order of their first mention: the next one then leaves the beginning of the prompt, and its KV cache, as it was.
        by_name = {tool.name: tool for tool in offered}
        names = dict.fromkeys([tool.name for tool in offered if tool.name in always] + mentioned)
        tools = [by_name[name] for name in names if name in fitting or name in always]
        last = request.messages[-1] if request.messages else Message.user("")
        has_found = any(name in costs for name in _found_in(last))
        if _is_search_result(last) and not has_found and request.choice.mode == "auto":
            return replace(request, tools=(finder, *tools), choice=Choice("auto"), policy="auto")
        mode = apply_policy(request, model_info(self.model).policy).mode
        is_finder_shown = (mode == "required" and not tools) if self.search_first else not (has_found and mode == "required")
        shown_tools = [finder, *tools] if is_finder_shown else tools
        return replace(request, tools=tuple(shown_tools), choice=Choice(mode))

    def _fitting(self, recent: Iterable[str], costs: Mapping[str, int], always: frozenset[str]) -> set[str]:
        budget = self.budget - sum(cost for name, cost in costs.items() if name in always)
        fitting: set[str] = set()
        for name in recent:
            if not fitting or costs[name] <= budget:
                fitting.add(name)
                budget -= costs[name]
        return fitting


def search_answer(query: str, tools: Sequence[Tool]) -> str:
    """The result of `find_tools`. `BudgetedModel` reads the names from it."""
    fitting = search(query, tools)
    if not fitting:
        return f"No tool fits {query!r}. There are {len(tools)} tools ({_sources(tools)}). Try other words."
    return found_text((tool.name, _line(tool)) for tool in fitting)


def _line(tool: Tool) -> str:
    line = " ".join(tool.description.split("\n\n")[0].split())
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


def _sources(tools: Iterable[Tool]) -> str:
    counts = Counter(tool.source or "others" for tool in tools).most_common()
    rest = sum(count for _, count in counts[_MOST_SOURCES:])
    parts = [f"{source}: {count}" for source, count in counts[:_MOST_SOURCES]]
    return ", ".join([*parts, *([f"{rest} of {len(counts) - _MOST_SOURCES} more sources"] if rest else [])])


def _list_mentioned(messages: Iterable[Message]) -> list[str]:
    """The tools that were found or called, in this order; of those found together the best comes last."""
    names: list[str] = []
    for message in messages:
        names += [call.name for call in message.calls]
        names += reversed(_found_in(message))
    return names


def _found_in(message: Message) -> list[str]:
    """The tools a message names, if it is the result of a search."""
    return found_names(message.content) if _is_search_result(message) else []


def _question(request: Request) -> str:
    """What the user said last."""
    return next((message.content for message in reversed(request.messages) if message.role == "user"), "")


def _is_search_result(message: Message) -> bool:
    return message.role == "tool" and message.name == FIND_TOOLS


def _fits(costs: Iterable[int], budget: int) -> bool:
    """Whether tools of these costs may all be shown. Where searching begins, a set must be clearly too large."""
    return sum(costs) <= budget * _SLACK
