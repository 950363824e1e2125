"""An engine that decodes in this process: requests, the thread of the model, and what is done for a request beside it.

The model runs in a thread of its own and decodes all requests in one batch (`batch`). Later prompts that begin alike reuse the KV
cache (`kv_cache`). Cancelling a request ends its work within a step, and at once if no other is live, even in a long prefill.

A seed gives the same answer only if no other request is live: what else is decoded in the same step changes the rounding.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from threading import Event, Lock

from callsmith.core.errors import PromptTooLong, QueueFull, UsageError
from callsmith.core.values import Sampling
from callsmith.engines.decoding.batch import Batch
from callsmith.engines.decoding.compiler import Compiler
from callsmith.engines.decoding.job import Delivery, GenerationJob, closed_error
from callsmith.engines.decoding.pictures import ShowImage, ShownImage
from callsmith.engines.decoding.sequence import check_bias
from callsmith.engines.decoding.trials import pool_with_stack
from callsmith.engines.decoding.vocabulary import Vocabulary
from callsmith.engines.port import EngineInfo, Finished, Piece, with_defaults
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay

_SHORT = 16_384  # characters: tokenizing them takes a few milliseconds
_COMPILING = 6  # threads that compile; some of them wait for worker processes


@dataclass(slots=True)
class Stats:
    """What the engine has done so far: calls of decode, and tokens."""

    decodes: int = 0
    prompt: int = 0
    cached: int = 0
    sampled: int = 0
    forced: int = 0


class BatchEngine(ABC):
    """An `Engine` whose requests share one batch, and its `Tokenizer`. `info` is what the weights say; what the vocabulary says
    is filled in.

    `delivers_late`: what a step has sampled is delivered once the next one is begun, by whoever begins it.
    """

    delivers_late = False

    def __init__(
        self,
        vocabulary: Vocabulary,
        batch: Batch,
        info: EngineInfo,
        *,
        queue: int,
        fast_forward: bool,
        lexers: int = 1,
        show_image: ShowImage | None = None,
    ) -> None:
        assert info.context
        self._vocabulary = vocabulary
        self._batch = batch
        self._size = info.context
        self._most = batch.most + queue
        self._show_image = show_image
        self._compiler = Compiler(vocabulary, lexers)
        self._thread = pool_with_stack(1, "callsmith-decode")
        self._compiling = pool_with_stack(_COMPILING, "callsmith-grammar")  # compiles grammars during prefill
        self._tokenizing = ThreadPoolExecutor(2, thread_name_prefix="callsmith-tokens")  # long texts
        self._lock = Lock()  # guards the four below
        self._freeing = Lock()  # one call of close at a time frees what there is
        self._open_jobs: set[GenerationJob] = set()  # requests that are not finished
        self._new_jobs: list[GenerationJob] = []
        self._working = False
        self._closed = False
        self._wake = Event()  # wakes the thread when it waits for grammars
        self._delivery = Delivery()
        self.fast_forward = fast_forward
        self.stats = Stats()
        self.info = replace(
            info,
            bos=vocabulary.text(vocabulary.bos),
            eos=vocabulary.text(vocabulary.eos),
            specials=vocabulary.specials,
            relays=True,
            logprobs=True,
            tokenizer=self,
            prefill=batch.prefill_progress,
            count_images=self._count_images if show_image else None,
        )

    @abstractmethod
    def _free_model(self) -> None:
        """Free the weights and the KV cache. Nothing is decoded any more."""

    @property
    def working(self) -> bool:
        """Whether the thread is running."""
        return self._working

    async def count(self, text: str) -> int:
        if len(text) <= _SHORT:
            return len(self.vocabulary.tokenize(text))
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._tokenizing, lambda: len(self.vocabulary.tokenize(text)))

    async def _count_images(self, prompt: Prompt) -> int:
        shown = await asyncio.get_running_loop().run_in_executor(self._tokenizing, self._show_images, prompt)
        return sum(len(image.tokens) for image in shown)

    def _show_images(self, prompt: Prompt, is_cancelled: Callable[[], bool] = lambda: False) -> list[ShownImage]:
        """What the images of a prompt become. Once they alone are too many for the context, no more are read."""
        shown: list[ShownImage] = []
        count = 0
        for image in prompt.images:
            if self._show_image is None:
                raise UsageError("this engine reads no images", field="messages")
            if is_cancelled():
                break
            shown.append(self._show_image(image, prompt.origin.cache_salt))
            if (count := count + len(shown[-1].tokens)) > self._size:
                raise PromptTooLong(count, self._size, is_least=True)
        return shown

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens, while the engine is open."""
        self._check_open()
        return self._vocabulary

    @property
    def bos(self) -> int | None:
        return self.vocabulary.bos if self.vocabulary.adds_bos else None

    def encode(self, text: str, *, specials: bool = True) -> list[int]:
        return self.vocabulary.tokenize(text, specials=specials)

    def decode(self, tokens: Sequence[int]) -> list[bytes]:
        return self.vocabulary.decode(tokens)

    async def generate(
        self, prompt: Prompt, sampling: Sampling, grammar: Grammar | Relay | None = None
    ) -> AsyncGenerator[Piece | Finished, None]:
        job = GenerationJob(
            prompt,
            with_defaults(sampling, self.info.sampling),
            grammar,
            self._vocabulary,
            self.fast_forward,
            self._delivery,
            asyncio.get_running_loop(),
        )
        try:
            self._check_open()
            if len(prompt.text) > _SHORT or prompt.images:  # neither the event loop nor other requests wait for it
                job.tokens = await job.loop.run_in_executor(self._tokenizing, self._tokenize, job)
            self._enter(job)
            while not isinstance(item := await job.outbox.get(), Finished):
                if isinstance(item, BaseException):
                    raise item
                yield item
            yield item
        finally:
            job.cancel()
            self._leave(job)
            self._wake.set()

    async def close(self) -> None:
        with self._lock:
            self._closed = True
        self._batch.stop[0] = self._batch.wanted[0] = b"1"
        for member in [*self._batch.live]:
            member.job.flag[0] = b"1"
        self._wake.set()
        await asyncio.to_thread(self._free)

    def _free(self) -> None:
        with self._freeing:
            self._thread.shutdown(wait=True)
            self._compiling.shutdown(wait=True, cancel_futures=True)
            self._tokenizing.shutdown(wait=True)  # who waits for it is to be told, and does not mean to be cancelled
            self._compiler.close()
            self._free_model()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the engine is closed")

    def _enter(self, job: GenerationJob) -> None:
        """Hand the request to the thread, which runs as long as there is something to decode."""
        with self._lock:
            if self._closed:  # while the prompt was tokenized
                raise closed_error()
            if len(self._open_jobs) >= self._most:
                raise QueueFull(self._most)
            self._open_jobs.add(job)
            self._new_jobs.append(job)
            if not self._working:
                self._working = True
                self._thread.submit(self._run_loop)
            self._batch.wanted[0] = b"1"
        self._wake.set()

    def _leave(self, job: GenerationJob) -> None:
        """The request is finished or cancelled: it no longer counts for the queue."""
        with self._lock:
            self._open_jobs.discard(job)

    def _tokenize(self, job: GenerationJob) -> list[int]:
        def is_cancelled() -> bool:
            return job.is_cancelled or self._closed

        shown = self._show_images(job.prompt, is_cancelled)
        job.pictures = [picture for image in shown for picture in image.pictures]
        return self._vocabulary.prompt(job.prompt, self._size, is_cancelled, [image.tokens for image in shown])

    # What follows runs in the engine's thread.

    def _run_loop(self) -> None:
        while self._accept_jobs():
            try:
                waiting = not self._batch.step()
            except Exception as error:  # a bug of ours: fail the requests rather than let them wait for ever
                self._batch.fail(error)
                continue
            if waiting or not self.delivers_late:
                self.deliver()
            if waiting and self._batch.size:
                self._wake.wait(1.0)
        self.deliver()

    def deliver(self) -> None:
        """Hand what was decoded to those who wait for it. Requests that have ended no longer count for the queue."""
        ended, self._delivery.ended = self._delivery.ended, []
        for job in ended:
            self._leave(job)
            if job.sequence is not None:
                self.stats.decodes = self._batch.steps
                self.stats.prompt += job.usage.prompt
                self.stats.cached += job.usage.cached
                self.stats.sampled += job.sequence.sampled
                self.stats.forced += job.sequence.forced
        self._delivery.deliver()

    def _accept_jobs(self) -> bool:
        """Move new requests into the batch; false when there is nothing left to decode."""
        self._wake.clear()
        with self._lock:
            arrived, self._new_jobs = self._new_jobs, []
            self._working = not self._closed and bool(arrived or self._batch.busy)
            self._batch.wanted[0] = b"0"
        if self._closed:
            self._batch.fail(closed_error())
            for job in arrived:
                job.end(closed_error())
            return False
        for job in arrived:
            try:
                self._prepare(job)
            except Exception as error:  # it fails this request; the thread goes on for the others
                job.end(error)
            else:
                self._batch.add(job)
        return self._working

    def _prepare(self, job: GenerationJob) -> None:
        """Tokenize the prompt, and start compiling the grammar, which goes on during prefill."""
        check_bias(job.sampling, self._vocabulary.size)
        tokens = job.tokens or self._tokenize(job)
        if self._closed:  # in the middle of it
            raise closed_error()
        if not job.exact:
            tokens = self._batch.cache.with_cached_tokens(tokens, self._vocabulary.mark_special, job.origin.cache_salt)
        job.tokens = tokens
        job.room = require_room(job.tokens, self._size)
        if job.grammar is None:
            return
        job.constraint = self._compiling.submit(self._compiler.start, job.grammar, job.cancellation)
        job.constraint.add_done_callback(lambda _: self._wake.set())
        if isinstance(job.grammar, Relay):
            # Every tool is compiled before the answer begins, so that a schema that cannot be is reported in time.
            unchecked = self._compiler.list_unchecked(job.grammar)
            check = partial(self._compiler.check, job.grammar, cancellation=job.cancellation)
            job.checks = [self._compiling.submit(check, name) for name in unchecked]


def require_room(tokens: list[int], context: int) -> int:
    """How many tokens an answer to this prompt may have in a context of this size."""
    if not tokens:
        raise UsageError("the prompt is empty", field="messages")
    room = context - len(tokens)
    if tokens[-1] < 0:
        raise UsageError("the prompt ends with an image: nothing says whose turn it is", field="messages")
    if room < 1:
        raise PromptTooLong(len(tokens), context)
    return room
