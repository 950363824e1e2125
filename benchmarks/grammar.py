"""What a grammar costs: making it for many tools, and the masks while arguments are written."""

import time
from collections.abc import Callable
from statistics import median, quantiles
from typing import TypeVar

import numpy as np

from benchmarks.table import show
from callsmith.core.values import Call, Choice, Tool
from callsmith.engines.constraint import Compiler
from callsmith.engines.gguf import Weights
from callsmith.engines.libllama import load
from callsmith.formats import format_named
from callsmith.formats.write import write
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.lark import to_lark
from callsmith.grammar.nodes import Grammar
from callsmith.models.weights import fetch

T = TypeVar("T")
COUNTS = (1, 10, 100, 500)
FORMATS = ("hermes", "qwen3-coder", "pythonic")
CITY = 'New York (the one in the east, "Big Apple") and its five boroughs, from Brooklyn to the Bronx'


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


def main(model: str) -> None:
    weights = Weights(load(), fetch(model))
    for name in FORMATS:
        rows = [measured(weights, name, count) for count in COUNTS]
        heads = ("tools", "nodes", "lark", "compile cold", "warm", "copy µs", "mask p50 µs", "p99", "first")
        show(f"{name}, a required call, vocabulary of {weights.vocabulary.size:,}: ms, and µs where said", heads, rows)
        print(f"  {COUNTS[-1]} tools cost {sum(rows[-1][1:4]) / sum(rows[0][1:4]):.0f} times what one costs")
    weights.close()


def measured(weights: Weights, name: str, count: int) -> tuple[float, ...]:
    """A row of the table: the steps of making the grammar, and its masks."""
    format, tools = format_named(name), [tool(number) for number in range(count)]
    grammar, nodes = timed(lambda: grammar_for(format, tools, Choice("required"), parallel=False))
    assert grammar is not None
    lark, text = timed(lambda: to_lark(grammar, weights.vocabulary.specials))
    compiler = Compiler(weights.vocabulary)
    compiler.compile('start: "a"')  # the tokenizer is made once for all grammars
    _, cold = timed(lambda: compiler.compile(lark))
    warm = [timed(lambda: compiler.start(grammar))[1] for _ in range(5)]
    _, copying = timed(lambda: compiler.compile(lark).deep_copy())
    masks = mask_times(compiler, weights, grammar, format_text(name, tools[count // 2]))
    return (count, nodes, text, cold, median(warm), copying * 1000, median(masks), quantiles(masks, n=100)[98], masks[0])


def format_text(name: str, tool: Tool) -> str:
    arguments = {"city": CITY, "unit": "celsius", "places": [{"city": CITY, "zip": "10001"}, {"city": "Köln"}], "loud": True}
    return write(format_named(name), [Call(tool.name, arguments)])


def mask_times(compiler: Compiler, weights: Weights, grammar: Grammar, text: str) -> list[float]:
    """µs for the mask before each token of the text."""
    vocabulary, times = weights.vocabulary, list[float]()
    constraint = compiler.begin(grammar)
    logits = np.zeros(vocabulary.size, np.float32)
    for token in vocabulary.tokenize(text):
        logits[:] = 0
        times.append(timed(lambda: constraint.restrict(logits))[1] * 1000)
        assert logits[token] == 0, f"{vocabulary.text(token)!r} is not allowed"
        constraint.consume(token)
    return times


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What it gives, and the ms it took."""
    began = time.perf_counter()
    return work(), (time.perf_counter() - began) * 1000
