"""An engine is one file in the folder of engines: `open_model` finds it, its options reach it, and the server serves it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import callsmith.engines
from callsmith.core.errors import UnknownName
from callsmith.engines import accepted_options, engine_schemes, open_engine
from callsmith.engines.port import Engine
from callsmith.formats.prompt.prompt import Prompt
from callsmith.models import Options, open_model
from callsmith.server.app import create_app
from tests.server.asking import http

from .contract import EngineContract, say

TOY = '''
"""Says its own spec, word by word: a toy."""

import asyncio

from callsmith.core.errors import UsageError
from callsmith.core.values import Usage
from callsmith.engines.port import EngineInfo, Finished, Piece
from callsmith.engines.text import StopScanner


def open(rest, *, context=99):
    return Toy(rest, context)


class Toy:
    def __init__(self, text, context):
        self.info = EngineInfo("toy", context=context)
        self._words, self._closed = text.split(), False

    async def generate(self, prompt, sampling, grammar=None):
        if self._closed:
            raise UsageError("the engine is closed")
        scanner, most = StopScanner(sampling.stop), sampling.max_tokens or len(self._words)
        words = self._words[:most]
        for number, word in enumerate(words):
            await asyncio.sleep(0)
            for piece in scanner.feed(Piece(" " * (number > 0) + word)):
                yield piece
        for piece in scanner.close():
            yield piece
        usage = Usage(await self.count(prompt.text), len(words))
        yield Finished("length" if most < len(self._words) else "stop", usage, scanner.matched)

    async def count(self, text):
        return len(text.split())

    async def close(self):
        self._closed = True
'''


@pytest.fixture(autouse=True)
def toy_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The one file, in a folder that belongs to the package of engines."""
    (tmp_path / "toy.py").write_text(TOY, "utf-8")
    monkeypatch.setattr(callsmith.engines, "__path__", [*callsmith.engines.__path__, str(tmp_path)])
    yield
    sys.modules.pop("callsmith.engines.toy", None)
    vars(callsmith.engines).pop("toy", None)


class TestContract(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return open_engine("toy:The sea is wide and deep.")


async def test_a_model_is_opened_by_the_name_of_the_file() -> None:
    model = open_model("toy:It works, too.")
    assert (await say(model.engine, Prompt("Hello")))[0] == "It works, too."
    assert (model.info.name, model.info.context) == ("toy", 99)


def test_an_engine_gets_the_options_it_names_and_no_others() -> None:
    options = Options(context=7, threads=2, live=3, queue=4)
    assert open_model("toy:Hello", options).info.context == 7
    assert open_model("scripted:Hello", options).info.context is None
    wanted = {"context": 7, "live": None, "colour": "red"}
    assert accepted_options(lambda rest, **more: open_engine("toy:x"), wanted) == {"context": 7, "colour": "red"}


def test_its_scheme_is_known_and_an_unknown_one_is_told_all_there_are() -> None:
    assert {"llama", "scripted", "toy"} <= {*engine_schemes()}
    assert not {"port", "lru", "text"} & {*engine_schemes()}
    with pytest.raises(UnknownName, match=r"unknown engine 'nonesuch'; known: .*llama, .*scripted, .*toy"):
        open_model("nonesuch:/models/x")


async def test_it_is_served() -> None:
    async with http(create_app({"toy": open_model("toy:It works, too.")})) as client:
        body = {"model": "toy", "messages": [{"role": "user", "content": "Hello"}]}
        answer = (await client.post("/v1/chat/completions", json=body)).json()
        description = (await client.post("/api/show", json={"model": "toy"})).json()
    assert answer["choices"][0]["message"]["content"] == "It works, too."
    assert answer["usage"]["completion_tokens"] == 3
    assert 99 in description["model_info"].values()
