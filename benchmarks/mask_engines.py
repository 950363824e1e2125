"""Engines that hold instances against schemas, each in a process of its own with a limit of time and memory for each schema."""

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Protocol

import llguidance
import numpy as np

from benchmarks.rivals import xgrammar
from callsmith.core.values import Output
from callsmith.engines.decoding.compiler import Compiler
from callsmith.engines.decoding.trials import pool_with_stack
from callsmith.engines.llama.gguf import GgufVocabulary
from callsmith.formats.algebra import Format
from callsmith.grammar.limits import refusing_depth
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.output import output_grammar
from callsmith.models.schema_judge import write_value
from tests.grammar.sampling import letters, vocabulary

SECONDS, MEMORY = 10, 4 << 30  # of the processor, and of address space, for one schema
_STARTING: Final = 300.0  # seconds until an engine is there
_TICKS: Final = 100  # a second, in /proc


@dataclass(slots=True)
class Held:
    """What came of a schema: why it does not compile, seconds of compiling, what is listed as not enforced, and which instances
    are accepted; µs for each mask."""

    why: str = ""
    compiling: float = 0.0
    unenforced: tuple[tuple[str, str], ...] = ()
    accepts: list[bool] = field(default_factory=list[bool])
    masks: list[float] = field(default_factory=list[float])


class Engine(Protocol):
    """`compile` raises where it does not take a schema. Of what it gives, `start` begins an answer."""

    def __init__(self, tokens: GgufVocabulary) -> None: ...
    def compile(self, schema: Any) -> Any: ...
    def start(self, compiled: Any) -> "Answer": ...


class Answer(Protocol):
    """`mask` finds what may come, `take` goes on by a token if that may come, `may_end` says whether it is whole."""

    def mask(self) -> object: ...
    def take(self, token: int) -> bool: ...
    def may_end(self) -> bool: ...


# --- llguidance, with our grammars and with its own ---------------------------------------------------------------------------


class _Matched:
    def __init__(self, matcher: llguidance.LLMatcher, size: int) -> None:
        self.matcher, self.bits = matcher, np.zeros(-(-size // 32), np.uint32)
        self.place = self.bits.ctypes.data, self.bits.nbytes

    def mask(self) -> object:
        return self.matcher.unsafe_compute_mask_ptr(*self.place)

    def take(self, token: int) -> bool:
        return self.matcher.try_consume_tokens([token]) == 1

    def may_end(self) -> bool:
        if self.matcher.is_error():
            raise ValueError(self.matcher.get_error())
        return self.matcher.is_accepting()


class Callsmith:
    """Schemas as written."""

    def __init__(self, tokens: GgufVocabulary) -> None:
        self.size, self.compiler, self.plain = tokens.size, Compiler(tokens), Format(name="plain", parts=())
        self.compiler.compile('start: "a"')  # the tokenizer is made once for all grammars

    def compile(self, schema: Any) -> Any:
        rules = refusing_depth(output_grammar)(self.plain, Output(schema, as_written=True))
        # In this process: a server lets another try it first where it is not simple.
        return self.compiler._at(Grammar(rules.node)).matcher, tuple(rules.unenforced)

    def start(self, compiled: Any) -> Answer:
        return _Matched(compiled[0].deep_copy(), self.size)


class LLGuidance:
    """Its own compiler of JSON Schema."""

    def __init__(self, tokens: GgufVocabulary) -> None:
        kind: Any = llguidance.LLTokenizer
        self.size = tokens.size
        self.tokenizer = kind.from_llamacpp(
            tokens=[tokens.mark_special(token) for token in range(tokens.size)],
            vocab_ptr=tokens.pointer,
            tokenize_fptr=tokens.cached_tokenize.address,
            eos_token=[tokens.eos],
        )

    def compile(self, schema: Any) -> Any:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        matcher = llguidance.LLMatcher(self.tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher, ()

    def start(self, compiled: Any) -> Answer:
        return _Matched(compiled[0].deep_copy(), self.size)


# --- others -------------------------------------------------------------------------------------------------------------------


class XGrammar:
    """In its default configuration, one thread and no cache."""

    def __init__(self, tokens: GgufVocabulary) -> None:
        self.module, self.size, self.eos = xgrammar(), tokens.size, tokens.eos
        info = self.module.TokenizerInfo(tokens.says, self.module.VocabType.RAW, stop_token_ids=[tokens.eos])
        self.compiler = self.module.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile(self, schema: Any) -> Any:
        return self.compiler.compile_json_schema(json.dumps(schema)), ()

    def start(self, compiled: Any) -> Answer:
        return _XGrammarAnswer(self, self.module.GrammarMatcher(compiled[0]))


class _XGrammarAnswer:
    def __init__(self, engine: XGrammar, matcher: Any) -> None:
        self.matcher, self.eos = matcher, engine.eos
        self.bits = engine.module.allocate_token_bitmask(1, engine.size)

    def mask(self) -> object:
        return self.matcher.fill_next_token_bitmask(self.bits)

    def take(self, token: int) -> bool:
        return self.matcher.accept_token(token)

    def may_end(self) -> bool:
        return self.matcher.accept_token(self.eos)


class Outlines:
    """outlines-core: a schema as a regular expression, and that as an index of the vocabulary."""

    def __init__(self, tokens: GgufVocabulary) -> None:
        sys.path.append(str(Path(__file__).parents[1] / ".venv-rivals"))
        self.module: Any = import_module("outlines_core")
        self.schemas: Any = import_module("outlines_core.json_schema")
        self.size = tokens.size
        texts: dict[bytes, list[int]] = {}
        for token, text in enumerate(tokens.says):
            if text and token not in tokens.special and token != tokens.eos:
                texts.setdefault(text, []).append(token)
        self.vocabulary = self.module.Vocabulary(tokens.eos, texts)

    def compile(self, schema: Any) -> Any:
        return self.module.Index(self.schemas.build_regex_from_schema(json.dumps(schema)), self.vocabulary), ()

    def start(self, compiled: Any) -> Answer:
        return _OutlinesAnswer(self.module.Guide(compiled[0]), self.size)


class _OutlinesAnswer:
    def __init__(self, guide: Any, size: int) -> None:
        self.guide, self.bits = guide, np.zeros(-(-size // 32), np.uint32)
        self.place = self.bits.ctypes.data, len(self.bits), 4

    def mask(self) -> object:
        return self.guide.write_mask_into(*self.place)

    def take(self, token: int) -> bool:
        allowed = self.guide.accepts_tokens([token])
        if allowed:
            self.guide.advance(token, return_tokens=False)
        return allowed

    def may_end(self) -> bool:
        return self.guide.is_finished()


ENGINES: Final[dict[str, type[Engine]]] = {
    "callsmith": Callsmith,
    "llguidance": LLGuidance,
    "xgrammar": XGrammar,
    "outlines-core": Outlines,
}


# --- processes ----------------------------------------------------------------------------------------------------------------


class Worker(AbstractContextManager["Worker"]):
    """A process in which one engine holds instances; a new one where a schema has taken too much. Close it, or use a `with`."""

    def __init__(self, name: str, model: str) -> None:
        self.name, self.model = name, model
        self._start()

    def __exit__(self, *_: object) -> None:
        self._end()

    def hold(self, schema: Any, instances: Sequence[Any]) -> Held:
        """Compile the schema, and go through the instances token by token."""
        began = self._spent()
        try:
            self._pipe.send((schema, instances))
            while not self._pipe.poll(0.02):
                if self._spent() - began > SECONDS:
                    return self._give_up(f"more than {SECONDS} s")
            return self._pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return self._give_up("it crashed, or wanted more memory")

    def _give_up(self, why: str) -> Held:
        self._end()
        self._start()
        return Held(why)

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self.name, self.model), daemon=True)
        self._process.start()
        theirs.close()
        if not self._pipe.poll(_STARTING):
            raise TimeoutError(f"{self.name} does not start")
        if error := self._pipe.recv():
            raise ImportError(error)

    def _end(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _spent(self) -> float:
        """Seconds of the processor that the process has had."""
        try:
            behind = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(") ")[2].split()
        except OSError:
            return 0.0
        return (int(behind[11]) + int(behind[12])) / _TICKS


def _serve(pipe: Connection, name: str, model: str) -> None:
    try:
        tokens = vocabulary(model)
        engine = ENGINES[name](tokens)
    except ImportError as missing:
        pipe.send(str(missing))
        return
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    pipe.send("")
    thread = pool_with_stack(1, "schemas")  # deep grammars need more than the main thread has
    while True:
        schema, instances = pipe.recv()
        texts = [letters(tokens, write_value(instance)) for instance in instances]
        pipe.send(thread.submit(_hold, engine, schema, texts).result())


def _hold(engine: Engine, schema: Any, instances: list[list[int]]) -> Held:
    held = Held()
    try:
        compiled, held.compiling = _timed(lambda: engine.compile(schema), time.process_time)
    except BaseException as error:  # an engine in Rust panics with one that is no Exception
        return Held(str(error) or type(error).__name__)
    held.unenforced = compiled[1]
    for tokens in instances:
        answer = engine.start(compiled)
        try:
            held.accepts.append(all(_steps(answer, tokens, held.masks)) and answer.may_end())
        except BaseException as error:
            return Held(f"given up in an instance: {error}")
    return held


def _steps(answer: Answer, tokens: list[int], masks: list[float]) -> Iterator[bool]:
    for token in tokens:
        masks.append(_timed(answer.mask, time.thread_time)[1] * 1e6)
        yield answer.take(token)


def _timed(work: Callable[[], Any], clock: Callable[[], float]) -> tuple[Any, float]:
    began = clock()
    result = work()
    return result, clock() - began
