"""A static KV cache with a row of cells for each sequence, and the attention over it.

transformers calls both: the cache where a layer has new keys and values, the attention function under its name. Which rows and
cells a forward pass is about is in its `Window`, for the sequences of a batch are all of different lengths. A query sees the keys
before it, in a layer with a sliding window only the last ones.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import local
from typing import Any, Final

from callsmith.core.errors import ModelError
from callsmith.engines.transformers.libraries import Tensor, torch, transformers

NAME: Final = "callsmith"  # of the attention function, to transformers


@dataclass(slots=True)
class Window:
    """The part of the cache that one forward pass works on: `length` cells of some rows.

    `positions` and `cells` have a row for each sequence and a column for each token: its position in the text, and the cell that
    its keys and values go to. `slots` are the rows; where they stand side by side, `span` is that part of the cache, which then
    need not be copied together.
    """

    positions: Tensor
    cells: Tensor
    slots: Tensor
    span: slice | None
    length: int
    attended: int = 0  # how many layers have used it
    _masks: dict[int | None, Tensor] = field(default_factory=dict[int | None, Tensor])

    def mask(self, sliding: int | None, like: Tensor, groups: int) -> Tensor:
        """What is added to the score of each query and key: nothing, or minus infinity. Layers that are alike share it."""
        mask = self._masks.get(sliding)
        if mask is None:
            places = torch.arange(self.length, device=like.device)
            seen = places <= self.positions[:, :, None]
            if sliding:
                seen &= places > self.positions[:, :, None] - sliding
            added = torch.zeros(seen.shape, dtype=like.dtype, device=like.device).masked_fill_(~seen, float("-inf"))
            mask = self._masks[sliding] = added[:, None]
        tokens = self.positions.shape[1]
        return mask if tokens == 1 else mask.expand(-1, groups, -1, -1).reshape(mask.shape[0], 1, groups * tokens, -1)


_current = local()


@contextmanager
def using(window: Window) -> Generator[None]:
    """Forward passes of this thread work on this window."""
    _current.window = window
    try:
        yield
    finally:
        _current.window = None


class SlotLayer(transformers.cache_utils.CacheLayerMixin):  # pyright: ignore[reportUntypedBaseClass]
    """The keys and values of one layer: a row for each slot. The last cells of a row take what is only padding."""

    is_compileable = True
    is_sliding = False

    def __init__(self, slots: int, cells: int) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._slots, self._cells = slots, cells

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        # Zeros: a cell that is masked counts as nothing only if it is a number.
        self.keys, self.values = (
            torch.zeros(self._slots, item.shape[1], self._cells, item.shape[3], dtype=item.dtype, device=item.device)
            for item in (key_states, value_states)
        )
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Store the keys and values of the tokens, and give those of all cells in the window."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        return self._put(self.keys, key_states), self._put(self.values, value_states)

    def _put(self, store: Tensor, states: Tensor) -> Tensor:
        window: Window = _current.window
        store.transpose(1, 2).index_put_((window.slots[:, None], window.cells), states.transpose(1, 2))
        seen = store[:, :, : window.length]
        return seen.index_select(0, window.slots) if window.span is None else seen[window.span]

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first cells of one row into another."""
        for store in (self.keys, self.values) if self.is_initialized else ():
            store[target, :, :length] = store[source, :, :length]

    def get_mask_sizes(self, query_length: int, *_: Any) -> tuple[int, int]:
        return self._cells, 0

    def get_seq_length(self, *_: Any) -> int:
        return 0

    def get_max_length(self) -> int:
        return self._cells

    def get_max_cache_shape(self) -> int:
        return self._cells


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The attention of one layer over the window.

    Queries that share a head of keys stand side by side, as if they were several tokens: no key is copied for them.
    """
    window: Window = _current.window
    window.attended += 1
    if position_bias is not None:
        raise ModelError("this kind of attention (with a position bias) is not supported")
    batch, heads, tokens, size = query.shape
    groups = heads // key.shape[1]
    mask = window.mask(sliding_window, query, groups)
    query = query.reshape(batch, key.shape[1], groups * tokens, size)
    if softcap is None and s_aux is None:
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    else:
        sinks = None if s_aux is None else s_aux.view(1, key.shape[1], groups, 1).expand(batch, -1, -1, tokens)
        out = _attend_plainly(query, key, value, mask, scaling or size**-0.5, softcap, sinks)
    return out.reshape(batch, heads, tokens, -1).transpose(1, 2).contiguous(), None


def _attend_plainly(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float, softcap: float | None, sinks: Tensor | None
) -> Tensor:
    """With what the fused kernels do not know: scores that are capped, and sinks, which take a share of the attention."""
    scores = (query @ key.transpose(2, 3)).float() * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores + mask
    if sinks is not None:
        scores = torch.cat([scores, sinks.reshape(*scores.shape[:3], 1).float()], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : key.shape[2]]
    return weights.to(value.dtype) @ value


transformers.AttentionInterface.register(NAME, attend)
