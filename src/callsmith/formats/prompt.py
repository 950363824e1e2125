"""Request + chat template → Prompt."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the engine continues. `opened` is the tail of `text` that begins the model's own turn (`<think>\\n`, `>>>`, …)."""

    text: str
    opened: str = ""
