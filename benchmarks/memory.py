"""What things take in memory: a tool, the grammar of a set of tools, an answer that is being read, a sequence in the engine.

Many of each are made and kept, of tools that share nothing. `tracemalloc` sees what Python allocates; how much larger the process
has become also sees what native code does, in whole pages.
"""

import ctypes
import gc
import tracemalloc
from collections.abc import Callable
from itertools import count
from typing import Any

from benchmarks.grammar import resident, tool
from benchmarks.table import show
from callsmith.core.schema import validate
from callsmith.core.values import Choice, Sampling, Tool
from callsmith.engines.decoding.compiler import Compiler
from callsmith.engines.decoding.sequence import Sequence
from callsmith.engines.llama.gguf import LlamaContext, Weights
from callsmith.engines.llama.libllama import load
from callsmith.formats import format_named
from callsmith.formats.reader.reader import Reader
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay
from callsmith.grammar.targets.lark import to_lark
from callsmith.models.grammars import Grammars
from callsmith.models.weights.fetch import fetch

SET = 10  # tools of a set
GRAMMARS = 60  # that are kept
MID_ANSWER = 'Let me look that up.\n<tool_call>\n{"name": "get_weather_0", "arguments": {"city": "New York, the one in the ea'
_numbers = count()


def main(model: str) -> None:
    weights = Weights(load(), fetch(model), gpu_layers=0)
    compiler = Compiler(weights.vocabulary)
    compiler.compile('start: "a"')  # the tokenizer is made once for all grammars
    hermes, shared = format_named("hermes"), new_set()
    sets = iter([new_set() for _ in range(2 * (GRAMMARS + 3))])  # made before: they are not the grammar's

    def grammars(tools: tuple[Tool, ...]) -> tuple[Grammars, Grammar | Relay]:
        kept = Grammars(hermes, relays=True)
        compiled_grammar = kept.get(tools, Choice("required"), parallel=False)
        assert compiled_grammar is not None
        return kept, compiled_grammar

    def compiled() -> Any:
        kept, compiled_grammar = grammars(next(sets))
        return kept, compiler.begin(compiled_grammar)

    def compile_alone(grammar: str) -> Any:
        return compiler._compile(grammar)

    wholes = [Grammars(hermes).get(new_set(), Choice("required"), parallel=False) for _ in range(2 * (GRAMMARS + 3))]
    texts = iter([to_lark(whole, weights.vocabulary.specials) for whole in wholes if isinstance(whole, Grammar)])

    def reader(more: str = "") -> Reader:
        new_reader = Reader(hermes, shared)
        for piece in (*MID_ANSWER, *(more[at : at + 4] for at in range(0, len(more), 4))):
            new_reader.feed(piece)
        return new_reader

    _, grammar = grammars(shared)
    compiler.begin(grammar)
    prompt = list(range(1000, 2000))

    def sequence() -> Any:
        new_sequence = Sequence(
            weights.vocabulary, Sampling(seed=1), room=1000, prompt=prompt, constraint=compiler.begin(grammar)
        )
        new_sequence.begin()
        return new_sequence

    rows = [
        ("a tool, as a request brings it", *taken(new_tool, 2000)),
        ("its schema, compiled by the first call", *taken(lambda: checked(new_tool()), 500)),
        (f"the grammar of {SET} tools, compiled", *taken(compiled, GRAMMARS)),
        ("… by llguidance alone, in one grammar", *taken(lambda: compile_alone(next(texts)), GRAMMARS)),
        ("… by llguidance alone, a grammar of one word", *taken(lambda: compile_alone(f'start: "{next(_numbers)}"'), 300)),
        ("a reader in the middle of a call", *taken(reader, 1000)),
        ("a reader 10 KB into an argument", *taken(lambda: reader("word and " * 1112), 100)),
        ("a sequence under a grammar, without its KV cache", *taken(sequence, 200)),
    ]
    show(f"KB each, many kept; vocabulary of {weights.vocabulary.size:,}", ("", "Python", "process"), rows)
    show(f"the KV cache, {weights.info.name}", ("", "KB a token"), [("", kv_bytes(weights) / 1024)])
    weights.close()


def new_tool() -> Tool:
    return tool(next(_numbers))


def new_set() -> tuple[Tool, ...]:
    return tuple(new_tool() for _ in range(SET))


def checked(checked_tool: Tool) -> Tool:
    assert not validate(checked_tool.parameters, {"city": "Oslo"})
    return checked_tool


def taken(make: Callable[[], object], many: int) -> tuple[float, float]:
    """KB that one more takes: by Python's allocations, and by the size of the process."""
    grown = process_bytes(make, many) / 1024
    return python_bytes(make, many) / 1024, grown


def python_bytes(make: Callable[[], object], many: int) -> float:
    """What one more takes of what Python allocates."""
    kept = [make() for _ in range(3)]  # what is made once is made before
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept += [make() for _ in range(many)]
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / many
    finally:
        tracemalloc.stop()


def process_bytes(make: Callable[[], object], many: int) -> float:
    """What one more takes of the process."""
    kept = [make() for _ in range(3)]
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)  # what was free before would be used up first
    before = resident()
    kept += [make() for _ in range(many)]
    return (resident() - before) / many


def kv_bytes(weights: Weights) -> float:
    """What a token takes, from how much larger the process is with a larger cache."""
    sizes: list[tuple[int, int]] = []
    for size in (1024, 8192):
        before = resident()
        context = LlamaContext(weights, size=size, threads=1)
        sizes.append((resident() - before, context.size))
        context.close()
    (small, few), (large, many) = sizes
    return (large - small) / (many - few)
