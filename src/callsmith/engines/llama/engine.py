"""GGUF models in process, by llama.cpp: `llama:/models/qwen.gguf`."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from callsmith.core.errors import MissingExtra, Unavailable, UsageError
from callsmith.engines.port import EngineInfo

try:
    from callsmith.engines.decoding.batch import Batch
    from callsmith.engines.decoding.engine import BatchEngine
    from callsmith.engines.decoding.kv_cache import Cache, SavedSequences
    from callsmith.engines.llama.gguf import MOST_SEQUENCES, LlamaContext, Weights, describe_file
    from callsmith.engines.llama.libllama import load
    from callsmith.engines.llama.placement import memory_of, read_header
    from callsmith.engines.llama.projector import Projector, find_projector, open_projector
except ModuleNotFoundError as missing:
    if missing.name not in ("llguidance", "numpy"):
        raise
    raise MissingExtra("llama", "running GGUF files in process") from missing


def open(
    rest: str,
    *,
    context: int = 8192,
    threads: int | None = None,
    live: int = 8,
    queue: int = 64,
    fast_forward: bool = True,
    gpu_layers: int | None = None,
    projector: str | None = None,
    known_projector: Path | None = None,
) -> "LlamaEngine":
    """The engine for the GGUF file at that path.

    `context` is how many tokens prompts and answers may have together, `live` how many requests are decoded at once, and `queue`
    how many more may wait for admission. `gpu_layers` are on GPUs: None is as many as fit, 0 none. `projector` is the file that
    reads images for the model; without it, `known_projector` or the one beside the model's file is tried, if there is one.
    """
    if min(context, threads or 1, live) < 1 or min(queue, gpu_layers or 0) < 0:
        numbers = f"{context}, {threads} and {live}"
        raise UsageError(f"context, threads and live must be at least 1, not {numbers}; queue and gpu_layers at least 0")
    path = Path(rest).expanduser()
    with ExitStack() as opened:  # is closed again where the rest cannot be opened: weights may take all the memory there is
        weights = Weights(load(), path, gpu_layers=gpu_layers, context=context)
        opened.callback(weights.close)
        reader, no_images = open_projector(weights, projector, known_projector or find_projector(path), threads=threads)
        if reader:
            opened.callback(reader.close)
        weights.info = replace(weights.info, no_images=no_images)
        sequences = min(live if weights.recurrent else 3 * live, MOST_SEQUENCES)
        memory = LlamaContext(weights, size=context, threads=threads, sequences=sequences, pictures=reader and reader.rows)
        opened.pop_all()
    return LlamaEngine(weights, memory, live=min(live, sequences), queue=queue, fast_forward=fast_forward, projector=reader)


class LlamaEngine(BatchEngine):
    """A GGUF model, as an `Engine`."""

    def __init__(
        self,
        weights: Weights,
        context: LlamaContext,
        *,
        live: int = 1,
        queue: int = 64,
        fast_forward: bool = True,
        projector: Projector | None = None,
    ) -> None:
        self._weights = weights
        self._context = context
        self._projector = projector
        # On a GPU idle cells cost little, and copying them more. A recurrent model drops no part of a sequence: what it saves
        # could not be cut to what a prompt shares with it, and an aborted decode would lose all of it. What is saved has no gaps
        # in its positions.
        has_gaps = projector is not None and projector.shares_positions
        saved = None if weights.recurrent or weights.placement.layers or has_gaps else SavedSequences(context)
        cache = Cache(context, context.sequences, saved)
        batch = Batch(context, cache, live, settles=not weights.recurrent)
        info = replace(weights.info, context=context.size)
        show_image = projector.show if projector else None
        super().__init__(weights.vocabulary, batch, info, queue=queue, fast_forward=fast_forward, show_image=show_image)

    def _free_model(self) -> None:
        if self._projector:
            self._projector.close()
        self._context.close()
        self._weights.close()


def describe(rest: str, *, context: int = 8192) -> EngineInfo:
    """What the engine for the GGUF file at that path would say of itself, as far as the file tells."""
    path = Path(rest).expanduser()
    try:
        header = read_header(path)
    except ValueError as error:
        hint = "It is a broken download, or a file of another kind."
        raise Unavailable(f"{path} cannot be read: {error}", hint=hint) from error
    size = min(context, header.number("context_length") or context)
    info = describe_file(header.text, path, header.parameters, header.text("tokenizer.chat_template"))
    return replace(info, context=size, memory=memory_of(header, context=size, outputs=MOST_SEQUENCES))
