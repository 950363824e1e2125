"""Hugging Face checkpoint folders in process, by PyTorch: `transformers:/models/Qwen2.5-1.5B-Instruct`.

Continuous batching, prefix reuse, grammars and sampling settings are those of every engine that decodes in this process
(`engines/decoding`). On a GPU the masks of the grammars are found while the model computes (`sampling`).
"""

import os
from dataclasses import replace
from pathlib import Path

from callsmith.core.errors import MissingExtra, Unavailable, UsageError

try:
    from callsmith.engines.decoding.batch import PREFILL_CHUNK, Batch
    from callsmith.engines.decoding.engine import BatchEngine
    from callsmith.engines.decoding.kv_cache import Cache
    from callsmith.engines.transformers.checkpoint import Checkpoint, best_device, load
    from callsmith.engines.transformers.context import TorchContext
    from callsmith.engines.transformers.libraries import torch
    from callsmith.engines.transformers.sampling import DeviceSampler
except ModuleNotFoundError as missing:
    if missing.name not in ("llguidance", "numpy"):
        raise
    raise MissingExtra("transformers", "running Hugging Face checkpoints in process") from missing

_LONGEST_CONTEXT = 8192  # tokens, where the user does not ask for more: memory grows with it
_GPU_CHUNK = 1024  # prompt tokens that a GPU prefills beside decoding
_MOST_MASK_THREADS = 16
_MOST_LEXERS = 256  # of a grammar: each takes 30 to 300 KB


def open(
    rest: str,
    *,
    context: int | None = None,
    threads: int | None = None,
    live: int = 8,
    queue: int = 64,
    device: str | None = None,
    dtype: str | None = None,
    fast_forward: bool = True,
) -> "TransformersEngine":
    """The engine for the checkpoint in that folder.

    `context` is how many tokens each prompt and its answer may have together, `live` how many requests are decoded at once (the
    memory for both is taken at the start), and `queue` how many more may wait for admission. `device` and `dtype` are PyTorch's:
    `cuda:1`, `bfloat16`.
    """
    if min(context or 1, threads or 1, live) < 1 or queue < 0:
        raise UsageError(f"context, threads and live must be at least 1, not {context}, {threads} and {live}; queue at least 0")
    device = _check_device(device or best_device())
    if dtype is not None and not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise UsageError(
            f"dtype: PyTorch has no type of numbers {dtype!r}: bfloat16, float16 or float32 is expected", field="dtype"
        )
    if threads:
        torch.set_num_threads(threads)
    checkpoint = load(Path(rest).expanduser(), device, dtype)
    length = min(context or _LONGEST_CONTEXT, checkpoint.info.context or _LONGEST_CONTEXT)
    try:
        memory = TorchContext(checkpoint.model, width=checkpoint.vocabulary.size, slots=live, length=length)
    except torch.OutOfMemoryError as error:
        hint = "try a smaller context or fewer live requests"
        raise Unavailable(f"no memory for {live} sequences of {length} tokens on {device}", hint=hint) from error
    return TransformersEngine(checkpoint, memory, queue=queue, fast_forward=fast_forward, threads=threads)


class TransformersEngine(BatchEngine):
    """A Hugging Face checkpoint, as an `Engine`."""

    delivers_late = True

    def __init__(
        self,
        checkpoint: Checkpoint,
        context: TorchContext,
        *,
        queue: int = 64,
        fast_forward: bool = True,
        threads: int | None = None,
    ) -> None:
        self._context = context
        # Most of the processors find masks: while they do, nothing else is to be done.
        finding = min(threads or max(1, (os.cpu_count() or 1) * 7 // 8), _MOST_MASK_THREADS)
        self.sampler = DeviceSampler(context, checkpoint.vocabulary, finding)
        batch = Batch(
            context,
            Cache(context, context.slots),
            context.slots,
            chunk=_GPU_CHUNK if context.is_gpu else PREFILL_CHUNK,
            sampler=self.sampler,
        )
        info = replace(checkpoint.info, context=context.length)
        lexers = min(context.slots, _MOST_LEXERS) if self.sampler.threads > 1 else 1
        super().__init__(checkpoint.vocabulary, batch, info, queue=queue, fast_forward=fast_forward, lexers=lexers)
        self.sampler.deliver = self.deliver

    def _free_model(self) -> None:
        self.sampler.close()
        self._context.close()


def _check_device(name: str) -> str:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"device: PyTorch knows no device {name!r}: cpu, cuda or cuda:1 is expected", field="device") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise Unavailable("PyTorch sees no CUDA GPU here", hint="install a PyTorch built for it, or use device cpu")
    return name
