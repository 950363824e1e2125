"""GGUF models in process, by llama.cpp: `llama:/models/qwen.gguf`.

The model runs in a thread of its own, one answer after another. What the last answer left in the model's memory is used again
where the next prompt begins alike. Giving up an answer ends its work at once, even in the middle of a long prompt.
"""

import asyncio
import ctypes as C
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from callsmith.core.errors import MissingExtra, Unavailable, UsageError
from callsmith.core.values import Sampling, Usage
from callsmith.engines import Finished, Piece
from callsmith.engines.libllama import cores, load
from callsmith.formats.prompt import Prompt
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay

try:
    from callsmith.engines.constraint import Compiler, Held, Watch
    from callsmith.engines.gguf import SLICE, Context, Slot, Weights, require_room
    from callsmith.engines.sequence import Sequence, settled
except ModuleNotFoundError as missing:
    if missing.name not in ("llguidance", "numpy"):
        raise
    raise MissingExtra("llama", "running GGUF files in process") from missing


def open(rest: str, *, context: int = 8192, threads: int | None = None, fast_forward: bool = True) -> "LlamaEngine":
    """The engine for the GGUF file at that path. `context` is how many tokens prompt and answer may have together."""
    if context < 1 or (threads is not None and threads < 1):
        raise UsageError(f"context and threads must be at least 1, not {context} and {threads}")
    weights = Weights(load(), Path(rest).expanduser())
    return LlamaEngine(weights, Context(weights, size=context, threads=threads or _threads()), fast_forward=fast_forward)


def _threads() -> int:
    # Larger machines count each core twice, and the second half of a core has nothing to add to arithmetic.
    return cores() if cores() <= 4 else cores() // 2


@dataclass(slots=True)
class Stats:
    """What the engine has done so far, in tokens, and in calls of decode."""

    decodes: int = 0
    prompt: int = 0
    cached: int = 0
    sampled: int = 0
    forced: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """An answer somebody waits for."""

    prompt: Prompt
    sampling: Sampling
    grammar: Grammar | Relay | None
    loop: asyncio.AbstractEventLoop
    outbox: asyncio.Queue[Piece | None] = field(default_factory=asyncio.Queue[Piece | None])
    flag: "C.Array[C.c_char]" = field(default_factory=lambda: C.create_string_buffer(b"0"))

    def give_up(self) -> None:
        self.flag[0] = b"1"

    @property
    def given_up(self) -> bool:
        return self.flag[0] == b"1"

    def post(self, pieces: list[Piece]) -> None:
        try:
            for piece in pieces:
                self.loop.call_soon_threadsafe(self.outbox.put_nowait, piece)
        except RuntimeError:  # the loop is closed: nobody waits any more
            self.give_up()


class LlamaEngine:
    """A GGUF model, as an `Engine`. It takes relays too."""

    relays = True

    def __init__(self, weights: Weights, context: Context, *, fast_forward: bool = True) -> None:
        self._weights = weights
        self._vocabulary = weights.vocabulary
        self._context = context
        self._slot = Slot(context)
        self._compiler = Compiler(weights.vocabulary)
        self._defaults = _own_settings(weights)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="callsmith-llama")
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="callsmith-grammar")  # compiles while a prompt is decoded
        self._running: _Job | None = None
        self._closed = False
        self.fast_forward = fast_forward
        self.stats = Stats()

    @property
    def name(self) -> str:
        """What the file calls the model."""
        return self._weights.name

    @property
    def description(self) -> str:
        """Architecture, size and quantisation."""
        return self._weights.description

    @property
    def template(self) -> str | None:
        """The chat template in the file."""
        return self._weights.template

    @property
    def specials(self) -> Mapping[str, int]:
        """Special tokens: text to id."""
        return self._vocabulary.specials

    @property
    def bos(self) -> str:
        """The text of the token that begins a document; empty if there is none."""
        return self._vocabulary.text(self._vocabulary.bos)

    @property
    def eos(self) -> str:
        """The text of the token that ends an answer; empty if there is none."""
        return self._vocabulary.text(self._vocabulary.eos)

    @property
    def context(self) -> int:
        """How many tokens prompt and answer may have together."""
        return self._context.size

    def count(self, text: str) -> int:
        """How many tokens the text has."""
        self._check_open()
        return len(self._vocabulary.tokenize(text))

    async def generate(
        self, prompt: Prompt, sampling: Sampling, grammar: Grammar | Relay | None = None
    ) -> AsyncGenerator[Piece | Finished, None]:
        """Continue the prompt: pieces of text, then one Finished."""
        self._check_open()
        job = _Job(prompt, settled(sampling, self._defaults), grammar, asyncio.get_running_loop())
        done = job.loop.run_in_executor(self._thread, self._answer, job)
        done.add_done_callback(lambda _: job.outbox.put_nowait(None))
        try:
            while (piece := await job.outbox.get()) is not None:
                yield piece
            yield await done
        finally:
            job.give_up()

    def close(self) -> None:
        """Give up what is running and free the model."""
        self._closed = True
        if running := self._running:
            running.give_up()
        self._thread.shutdown(wait=True)
        self._beside.shutdown(wait=True)
        self._context.close()
        self._weights.close()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the engine is closed")

    # What follows runs in the engine's thread.

    def _answer(self, job: _Job) -> Finished:
        self._running = job
        if self._closed:
            raise Unavailable("the engine was closed", retryable=True)
        if job.given_up:
            return Finished("stop")
        prompt = self._vocabulary.prompt(job.prompt)
        room = require_room(prompt, self._context)
        constraint = self._beside.submit(self._compiler.start, job.grammar) if job.grammar else None
        checks = self._checks(job.grammar)
        try:
            self._context.interrupt_by(job.flag)
            cached = self._slot.reuse(prompt, exact=job.sampling.seed is not None)
            rest = self._ahead(job, prompt[cached:], constraint)
            held = constraint.result() if constraint else None
            sequence = Sequence(self._vocabulary, job.sampling, room=room, constraint=held, fast_forward=self.fast_forward)
            job.post(sequence.begin(rest))
            self._decode(job, sequence, checks)
        finally:
            for check in checks:
                check.cancel()
        if self._closed and not sequence.finished:
            raise Unavailable("the engine was closed", retryable=True)
        self._note(len(prompt), cached, sequence)
        return Finished(sequence.finished or "stop", Usage(len(prompt), sequence.size, cached), sequence.matched)

    def _ahead(self, job: _Job, prompt: list[int], constraint: "Future[Held | Watch] | None") -> list[int]:
        """Decode slices of the prompt while its grammar is compiled; what is left of it."""
        while constraint and not constraint.done() and len(prompt) > SLICE and not job.given_up:
            self._slot.decode(prompt[:SLICE], wanted=False)
            self.stats.decodes += 1
            prompt = prompt[SLICE:]
        return prompt

    def _checks(self, grammar: Grammar | Relay | None) -> "list[Future[None]]":
        """Each tool of a relay is tried while the prompt is decoded, so that what is wrong with it is told before the answer."""
        if not isinstance(grammar, Relay):
            return []
        return [self._beside.submit(self._compiler.check, grammar, name) for name in self._compiler.unchecked(grammar)]

    def _decode(self, job: _Job, sequence: Sequence, checks: "list[Future[None]]") -> None:
        """Decode and choose in turn, until the answer is finished or nobody wants it any more."""
        while not sequence.finished and not job.given_up:
            part = sequence.pending[:SLICE]
            del sequence.pending[:SLICE]
            logits = self._slot.decode(part, wanted=not sequence.pending)
            self.stats.decodes += 1
            if logits is not None:
                while checks:  # the first choice: what was not tried by now is tried when it is chosen
                    if not (check := checks.pop()).cancel():
                        check.result()
                job.post(sequence.advance(logits))

    def _note(self, prompt: int, cached: int, sequence: Sequence) -> None:
        self.stats.prompt += prompt
        self.stats.cached += cached
        self.stats.sampled += sequence.sampled
        self.stats.forced += sequence.forced


def _own_settings(weights: Weights) -> Sampling:
    """How the model's makers want it sampled, where the file says so."""

    def number(key: str) -> float | None:
        said = weights.metadata(f"general.sampling.{key}")
        return float(said) if said else None

    top_k = number("top_k")
    return settled(
        Sampling(
            temperature=number("temp"),
            top_p=number("top_p"),
            top_k=None if top_k is None else int(top_k),
            min_p=number("min_p"),
        )
    )
