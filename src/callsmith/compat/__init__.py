"""Names that other projects have for what is here, so that code written for them runs with another import.

adr010 (RuvLLM's ADR-010), m21 (HearthNet's M21), vllm_rs (vLLM.rs), edgevox (EdgeVox). Each name is a thin face of what the rest
of the package does: nothing is done here a second time.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from callsmith.core.values import Call, Json


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """What is called. `arguments` are JSON, or the text of it, as the project has it whose names are used."""

    name: str
    arguments: Json


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call."""

    id: str
    function: FunctionCall
    type: str = "function"


def tool_calls(calls: Iterable[Call], *, as_text: bool = False) -> list[ToolCall]:
    """Calls of ours in that shape."""
    return [ToolCall(call.id, FunctionCall(call.name, call.text if as_text else dict(call.arguments))) for call in calls]
