"""Any model, any client, every tool call valid: the tool-calling layer for local and self-hosted language models.

    from callsmith import Functions, Message, Request, open_model, run_sync, tool

    @tool
    def add(a: int, b: int) -> int:
        \"\"\"Add two numbers.\"\"\"
        return a + b

    ended = run_sync(open_model("qwen2.5-coder-1.5b"), Functions(add), Request((Message.user("What is 19 + 23?"),)))
    print(ended.messages[-1].content)

Names are loaded when they are first used: `import callsmith` itself imports next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callsmith.core.errors import CallsmithError, LimitReached, ModelError, UnknownName, UnsupportedSchema, UsageError
    from callsmith.core.events import (
        CallArguments,
        CallReady,
        CallStarted,
        Notice,
        Stopped,
        Text,
        Thought,
        ToolFinished,
        ToolProgress,
        ToolStarted,
        TurnEnded,
        Unreadable,
    )
    from callsmith.core.ports import Context, Model, Toolset
    from callsmith.core.values import Call, Choice, Message, Request, Result, Sampling, Tool, Usage
    from callsmith.formats import format_named
    from callsmith.formats.layout import Format
    from callsmith.formats.read import Reader
    from callsmith.models.opening import open_model
    from callsmith.runtime.door import run_sync
    from callsmith.runtime.execute import Limits
    from callsmith.runtime.loop import run
    from callsmith.tools.define import define
    from callsmith.tools.functions import Functions, tool

    __version__: str

__all__ = [
    "Call",
    "CallArguments",
    "CallReady",
    "CallStarted",
    "CallsmithError",
    "Choice",
    "Context",
    "Format",
    "Functions",
    "LimitReached",
    "Limits",
    "Message",
    "Model",
    "ModelError",
    "Notice",
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
    "UnknownName",
    "Unreadable",
    "UnsupportedSchema",
    "Usage",
    "UsageError",
    "define",
    "format_named",
    "open_model",
    "run",
    "run_sync",
    "tool",
]

_HOMES = {
    "core.errors": ("CallsmithError", "LimitReached", "ModelError", "UnknownName", "UnsupportedSchema", "UsageError"),
    "core.events": (
        "CallArguments", "CallReady", "CallStarted", "Notice", "Stopped", "Text", "Thought", "ToolFinished", "ToolProgress",
        "ToolStarted", "TurnEnded", "Unreadable",
    ),
    "core.ports": ("Context", "Model", "Toolset"),
    "core.values": ("Call", "Choice", "Message", "Request", "Result", "Sampling", "Tool", "Usage"),
    "formats": ("format_named",),
    "formats.layout": ("Format",),
    "formats.read": ("Reader",),
    "models.opening": ("open_model",),
    "runtime.door": ("run_sync",),
    "runtime.execute": ("Limits",),
    "runtime.loop": ("run",),
    "tools.define": ("define",),
    "tools.functions": ("Functions", "tool"),
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
