"""Whether what a grammar lets through is valid: schemas at random, answers drawn at random, and a validator that judges them.

The same is asked of xgrammar where `make rivals` has put it.
"""

import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema_rs
import numpy as np

from benchmarks.rivals import xgrammar
from benchmarks.table import goal, show
from callsmith.core.errors import UnsupportedSchema
from callsmith.core.schema import to_standard
from callsmith.engines.decoding.compiler import Compiler, Constraint
from callsmith.engines.llama.gguf import GgufVocabulary, Weights
from callsmith.engines.llama.libllama import load
from callsmith.grammar.nodes import Grammar, JsonValue
from callsmith.grammar.schema.normalize import normalize_standalone
from callsmith.models.weights.fetch import fetch
from tests.grammar import schemas
from tests.grammar.judging import enforced

SCHEMAS, ANSWERS, LONG, LONGEST = 1000, 4, 40, 400
Walk = Callable[[random.Random], bytes | None]  # one answer; None: it grew too long


def main(model: str) -> None:
    weights = Weights(load(), fetch(model))
    rows = [measured("callsmith", ours(weights.vocabulary))]
    try:
        rows.append(measured("xgrammar", theirs(weights.vocabulary, xgrammar())))
    except ImportError as error:
        print(f"xgrammar: {error}")
    heads = ("", "schemas", "compiled", "answers", "not JSON", "violate", "beyond what is listed", "seconds")
    show(
        f"{SCHEMAS} schemas, {ANSWERS} answers each, drawn at random through a vocabulary of {weights.vocabulary.size:,}",
        heads,
        rows,
    )
    goal("callsmith: answers that fail what is enforced", sum(map(int, rows[0][4:7:2])), 0)
    weights.close()


def measured(name: str, compiled: Callable[[Any], tuple[Walk, tuple[tuple[str, str], ...]] | None]) -> tuple[object, ...]:
    """A row: how much compiles, and how many answers are not valid, by the whole schema and by what is said to be enforced."""
    began, counts = time.perf_counter(), dict.fromkeys(("compiled", "answers", "broken", "violate", "beyond"), 0)
    for seed in range(SCHEMAS):
        schema = schemas.schema(seed)
        compiled_schema = compiled(schema)
        if compiled_schema is None:
            continue
        walk, unenforced = compiled_schema
        counts["compiled"] += 1
        whole, promised = judge(to_standard(schema)), judge(enforced(schema, unenforced))
        for answer in answers(walk, seed):
            counts["answers"] += 1
            try:
                value = json.loads(answer.decode())
            except ValueError:
                counts["broken"] += 1
                continue
            if "Infinity" not in json.dumps(value):  # 1e999 is a number of JSON, but no float
                counts["violate"] += not whole.is_valid(value)
                counts["beyond"] += not promised.is_valid(value)
    return (name, SCHEMAS, *counts.values(), time.perf_counter() - began)


def judge(schema: Any) -> Any:
    return jsonschema_rs.Draft202012Validator({**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"})


def answers(walk: Walk, seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    for _ in range(ANSWERS):
        answer = walk(chance)
        if answer is not None:
            yield answer


def ours(vocabulary: GgufVocabulary) -> Callable[[Any], tuple[Walk, tuple[tuple[str, str], ...]] | None]:
    compiler = Compiler(vocabulary)

    def compiled(schema: Any) -> tuple[Walk, tuple[tuple[str, str], ...]] | None:
        unenforced: list[tuple[str, str]] = []
        try:
            grammar = Grammar(JsonValue(normalize_standalone(schema, unenforced)))
            compiler.begin(grammar)
        except UnsupportedSchema:
            return None
        return lambda chance: drawn(vocabulary, _Ours(compiler.begin(grammar)), chance), tuple(unenforced)

    return compiled


def theirs(vocabulary: GgufVocabulary, module: Any) -> Callable[[Any], tuple[Walk, tuple[tuple[str, str], ...]] | None]:
    token_bytes = [vocabulary.says[token] for token in range(vocabulary.size)]
    info = module.TokenizerInfo(token_bytes, stop_token_ids=[vocabulary.eos])
    compiler = module.GrammarCompiler(info, max_threads=1)

    def compiled(schema: Any) -> tuple[Walk, tuple[tuple[str, str], ...]] | None:
        try:
            grammar = compiler.compile_json_schema(json.dumps(schema), any_whitespace=False)
        except Exception:  # whatever it raises, it does not compile
            return None
        return lambda chance: drawn(vocabulary, _Theirs(module, grammar, vocabulary.size), chance), ()

    return compiled


class _Ours:
    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint

    def allowed(self, logits: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        self.constraint.restrict(logits)

    def take(self, token: int) -> None:
        self.constraint.consume(token)


class _Theirs:
    def __init__(self, xgrammar: Any, grammar: Any, size: int) -> None:
        self.matcher, self.size = xgrammar.GrammarMatcher(grammar), size
        self.mask = xgrammar.allocate_token_bitmask(1, size)

    def allowed(self, logits: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        self.matcher.fill_next_token_bitmask(self.mask)
        bits = np.unpackbits(self.mask.numpy().view(np.uint8), count=self.size, bitorder="little")
        logits[bits == 0] = -np.inf

    def take(self, token: int) -> None:
        self.matcher.accept_token(token)


def drawn(vocabulary: GgufVocabulary, held: _Ours | _Theirs, chance: random.Random) -> bytes | None:
    """One answer, token by token; a long one hurries to its end."""
    noise = np.random.default_rng(chance.getrandbits(32))
    closing = [vocabulary.tokenize(text)[-1] for text in ('"', "}", "]", '"}', "]}", "}}")]
    answer = b""
    for length in range(LONGEST):
        logits = noise.random(vocabulary.size, np.float32)
        if length > LONG:
            logits[closing] += 2
        if length > 1:
            logits[vocabulary.eos] += 3
        held.allowed(logits)
        token = int(logits.argmax())
        if token in vocabulary.ends:
            return answer
        held.take(token)
        answer += vocabulary.says[token]
    return None
