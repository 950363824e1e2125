"""A bus with a scripted model behind llm.chat, for tests of what is built on it."""

from typing import Any

from callsmith.bus.bus import CapabilityBus
from callsmith.capabilities.llm import LlmService
from callsmith.core.values import Call
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.write import write
from callsmith.models.local import LocalModel

HERMES = format_named("hermes")


def called(*calls: tuple[str, dict[str, Any]]) -> str:
    """What a model writes to make these calls."""
    return write(HERMES, [Call(name, arguments) for name, arguments in calls])


def scripted_model(*replies: str) -> tuple[Scripted, LocalModel]:
    engine = Scripted(replies, specials={"<|im_start|>": 1, "<|im_end|>": 2})
    return engine, LocalModel(engine, HERMES, Template(CHATML))


def chat_bus(*replies: str, **options: Any) -> tuple[CapabilityBus, Scripted]:
    """A bus whose model writes these replies one after the other, and the engine, which has what it was asked."""
    engine, model = scripted_model(*replies)
    bus = CapabilityBus()
    LlmService(bus, {"m": model}, **options).register()
    return bus, engine


def chat(text: str = "go", **fields: Any) -> dict[str, Any]:
    """The body of a call of llm.chat."""
    return {"params": {}, "input": {"messages": [{"role": "user", "content": text}], **fields}}
