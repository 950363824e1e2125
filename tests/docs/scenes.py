"""What has to be there for the Python of a page to run: names it uses without saying so, and a server."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette

import callsmith
import callsmith.formats
from callsmith import models
from callsmith.bus.bus import CapabilityBus
from callsmith.capabilities.corpus import Corpora
from callsmith.core.ports import model_info
from callsmith.models import presets
from callsmith.server.app import create_app
from callsmith.server.parts.bus.part import BusPart
from tests.capabilities.chatting import scripted_model
from tests.docs.blocks import DOCS
from tests.serving import served_apart


@dataclass(frozen=True, slots=True)
class Scene:
    """Replies of the model that the page opens, and code that runs before the first block, or before blocks with certain words.

    At http://127.0.0.1:8000, where pages expect a server, there is one whose model gives the same replies.
    """

    prelude: str = ""
    before: Mapping[str, str] = field(default_factory=dict[str, str])
    replies: tuple[str, ...] = ("It will be sunny.",) * 8

    @contextmanager
    def playing(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
        """The names that the blocks of the page share."""
        for module in (callsmith, models):
            monkeypatch.setattr(module, "open_model", lambda *_, **__: scripted_model(*self.replies)[1], raising=False)
        # What a page registers is its own.
        monkeypatch.setattr(callsmith.formats, "_registered", {**callsmith.formats._registered})
        monkeypatch.setattr(presets, "_registered", [*presets._registered])
        monkeypatch.setattr(models, "describe_model", lambda *_, **__: model_info(scripted_model(*self.replies)[1]))
        with served_apart(an_app(*self.replies)) as url:
            names: dict[str, Any] = {"__name__": "__main__", "server": url}
            exec(self.prelude, names)
            yield names

    def code_for(self, text: str) -> str:
        """The code of a block, with what has to run before it."""
        return "\n".join([*(code for words, code in self.before.items() if words in text), text])


def an_app(*replies: str) -> Starlette:
    """A server as the pages have it: a model, and a corpus called village on its bus."""
    bus, corpora = CapabilityBus(), Corpora()
    corpora.index("village", DOCS)
    corpora.register(bus)
    return create_app({"qwen2.5-coder-1.5b": scripted_model(*replies)[1]}, parts=[BusPart(bus)])


_BUS = """
from callsmith import Call, tool
from callsmith.bus.descriptor import Descriptor

@tool
def read_meter(room: str) -> str:
    return "12 degrees"

async def search(call):
    return {"output": {"chunks": []}, "meta": {}}

async def show(frame):
    pass

async def ask_the_user(needed):
    raise AssertionError("nothing has side effects")

call = Call("search_corpus", {"corpus": "village", "query": "hall"}, "c1")
messages = [{"role": "user", "content": "hello"}]
"""
_MYTOOLS = """
import sys, types
sys.modules["mytools"] = types.SimpleNamespace(opening_hours=opening_hours)  # saved as a file, as the page says
"""
_MODEL_ON_THE_BUS = """
from callsmith.capabilities.llm import LlmService
from tests.capabilities.chatting import scripted_model
LlmService(bus, {"m": scripted_model("At nine.")[1]}).register()
bus.register(Descriptor("rag.query"), search)
"""

SCENES = {
    "docs/start.md": Scene(before={"from mytools import": _MYTOOLS}),
    "docs/constrained.md": Scene(replies=('{"city": "Paris", "celsius": 24}',)),
    "docs/bus.md": Scene(_BUS, {"ToolExecutor(": _MODEL_ON_THE_BUS}),
}
