"""Any model, any client, every tool call valid: the tool-calling layer for local and self-hosted language models.

    from callsmith import Conversation, Functions, open_model, tool

    @tool
    def add(a: int, b: int) -> int:
        \"\"\"Add two numbers.\"\"\"
        return a + b

    conversation = Conversation(open_model("qwen2.5-coder-1.5b"), Functions(add))
    print(conversation.send_sync("What is 19 + 23?").text)

Names are loaded when they are first used: `import callsmith` itself imports next to nothing. What is needed less often stands in
the modules: every event in `callsmith.core.events`, every error in `callsmith.core.errors`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callsmith.core.approval import Approved, Denied, Policy
    from callsmith.core.errors import CallsmithError, LimitReached, ModelError, UsageError
    from callsmith.core.events import (
        CallReady,
        ConfirmationNeeded,
        Stopped,
        Text,
        Thought,
        ToolFinished,
        ToolProgress,
        ToolStarted,
        TurnEnded,
    )
    from callsmith.core.ports import Context, Model, Toolset
    from callsmith.core.values import Call, Choice, Message, Output, Request, Result, Sampling, Tool
    from callsmith.formats import format_named
    from callsmith.formats.inference.find_calls import find_calls
    from callsmith.formats.reader.reader import Reader
    from callsmith.models.opening import open_model
    from callsmith.runtime.conversation.agent import Agent
    from callsmith.runtime.conversation.conversation import Conversation
    from callsmith.runtime.execute import Limits
    from callsmith.runtime.loop import run
    from callsmith.runtime.sync import run_sync
    from callsmith.tools.define import define
    from callsmith.tools.functions import Functions, tool
    from callsmith.tools.wrap import Confirmed

    __version__: str

__all__ = [
    "Agent",
    "Approved",
    "Call",
    "CallReady",
    "CallsmithError",
    "Choice",
    "ConfirmationNeeded",
    "Confirmed",
    "Context",
    "Conversation",
    "Denied",
    "Functions",
    "LimitReached",
    "Limits",
    "Message",
    "Model",
    "ModelError",
    "Output",
    "Policy",
    "Reader",
    "Request",
    "Result",
    "Sampling",
    "Stopped",
    "Text",
    "Thought",
    "Tool",
    "ToolFinished",
    "ToolProgress",
    "ToolStarted",
    "Toolset",
    "TurnEnded",
    "UsageError",
    "define",
    "find_calls",
    "format_named",
    "open_model",
    "run",
    "run_sync",
    "tool",
]

_HOMES = {
    "core.approval": ("Approved", "Denied", "Policy"),
    "core.errors": ("CallsmithError", "LimitReached", "ModelError", "UsageError"),
    "core.events": (
        "CallReady", "ConfirmationNeeded", "Stopped", "Text", "Thought", "ToolFinished", "ToolProgress", "ToolStarted",
        "TurnEnded",
    ),
    "core.ports": ("Context", "Model", "Toolset"),
    "core.values": ("Call", "Choice", "Message", "Output", "Request", "Result", "Sampling", "Tool"),
    "formats": ("format_named",),
    "formats.inference.find_calls": ("find_calls",),
    "formats.reader.reader": ("Reader",),
    "models.opening": ("open_model",),
    "runtime.conversation.agent": ("Agent",),
    "runtime.conversation.conversation": ("Conversation",),
    "runtime.sync": ("run_sync",),
    "runtime.execute": ("Limits",),
    "runtime.loop": ("run",),
    "tools.define": ("define",),
    "tools.functions": ("Functions", "tool"),
    "tools.wrap": ("Confirmed",),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """A public name, from the module it lives in."""
    if name == "__version__":
        from importlib.metadata import version

        return version("callsmith")
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"callsmith.{home}"), name)
            return value
    raise AttributeError(f"module 'callsmith' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
