"""A Triton kernel that applies the masks of grammars to logits, for all rows at once."""
# pyright: basic, reportMissingImports=false, reportIndexIssue=false

from typing import Any, Final

import triton
import triton.language as tl

_BLOCK: Final = 4096


@triton.jit
def _mask(logits, bits, kinds, bonus, width, words, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    kind = tl.load(kinds + row)
    if kind >= 0:
        inside = at < width
        word = tl.load(bits + row * words + at // 32, mask=inside, other=0)
        allowed = ((word >> (at % 32)) & 1) != 0
        place = logits + row.to(tl.int64) * width + at
        if kind > 0:
            more = tl.load(bonus + (kind - 1) * width + at, mask=inside, other=0.0)
            value = tl.load(place, mask=inside, other=0.0) + more
            tl.store(place, tl.where(allowed, value, float("-inf")), mask=inside)
        else:
            tl.store(place, float("-inf"), mask=inside & (allowed == 0))


def apply_masks(logits: Any, bits: Any, kinds: Any, bonus: Any) -> None:
    """As `masks.apply_masks`, on a GPU. All tensors are contiguous."""
    rows, width = logits.shape
    _mask[(rows, triton.cdiv(width, _BLOCK))](logits, bits, kinds, bonus, width, bits.shape[1], BLOCK=_BLOCK)
