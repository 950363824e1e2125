"""Servers for frameworks: one over a model that is told what to write, and two over real ones."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from callsmith.core.values import Call
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.write import write
from callsmith.models.local import LocalModel
from callsmith.models.opening import Options, open_local
from callsmith.models.weights.fetch import fetch
from callsmith.server.app import create_app
from tests.serving import served_apart
from tests.small import THREADS


@dataclass(frozen=True)
class Told:
    """A server whose model writes what it is told, and what that model was asked."""

    url: str
    engine: Scripted

    @property
    def prompts(self) -> list[str]:
        return [request.prompt.text for request in self.engine.asked]


Tell = Callable[..., Told]


def calling(*calls: tuple[str, dict[str, Any]], text: str = "") -> str:
    """What the told model writes to make these calls."""
    return write(format_named("hermes"), [Call(name, arguments, "") for name, arguments in calls], text=text)


@pytest.fixture
def tell() -> Iterator[Tell]:
    """A server that gives these replies, one a request."""
    with ExitStack() as stack:

        def start(*replies: str) -> Told:
            engine = Scripted(replies, chunk=3)
            model = LocalModel(engine, format_named("hermes"), Template(CHATML))
            return Told(stack.enter_context(served_apart(create_app({"m": model}))) + "/v1", engine)

        yield start


def _real(name: str, context: int) -> Iterator[str]:
    pytest.importorskip("llguidance")
    pytest.importorskip("xllamacpp")
    fetch(name)
    model = open_local(name, Options(context=context, threads=THREADS))
    with served_apart(create_app({"m": model, "other": model})) as address:
        yield address + "/v1"
    asyncio.run(model.close())


@pytest.fixture(scope="module")
def small() -> Iterator[str]:
    """A model too small to call anything it need not."""
    yield from _real("smollm2-135m", 8192)


@pytest.fixture(scope="module")
def able() -> Iterator[str]:
    """A model that calls tools of its own accord."""
    yield from _real("qwen2.5-coder-1.5b", 4096)
