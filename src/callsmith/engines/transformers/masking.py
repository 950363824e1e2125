"""Masks on the device: what the grammars do not allow becomes impossible, for all rows in one pass."""

from importlib.util import find_spec

from callsmith.engines.transformers.libraries import Tensor, torch

UNMASKED, MASKED, FIRST_QUOTE = -1, 0, 1  # what is done to a row; from FIRST_QUOTE on, tokens that close get a bonus besides

_has_kernel = torch.cuda.is_available() and find_spec("triton") is not None


def apply_masks(logits: Tensor, bits: Tensor, kinds: Tensor, bonus: Tensor) -> None:
    """Change the logits in place: a row for each answer, with a bit for each token in `bits` and what is done in `kinds`.

    `bonus` has a row for each kind of quotes.
    """
    if _has_kernel and logits.is_cuda:
        from callsmith.engines.transformers import kernel

        kernel.apply_masks(logits, bits, kinds, bonus)
        return
    places = torch.arange(32, dtype=torch.int32, device=logits.device)
    allowed = ((bits[:, :, None] >> places) & 1).bool().reshape(len(bits), -1)[:, : logits.shape[1]] | (kinds < MASKED)[:, None]
    added = torch.where((kinds >= FIRST_QUOTE)[:, None], bonus[(kinds - FIRST_QUOTE).clamp(min=0)], 0.0)
    logits.copy_(torch.where(allowed, logits + added, float("-inf")))
