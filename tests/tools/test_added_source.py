"""A source of tools is one module with a `Toolset`: a toy one is added from a folder of its own, and nothing else is edited."""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from callsmith.cli.inputs.toolsets import load_toolset
from callsmith.core.ports import Toolset
from callsmith.core.values import Call
from tests.fakes import FakeModel
from tests.server.asking import HI, calls, client, says

from .contract import ToolsetContract

TOY = '''
    """A toolset that is no function of Python's: a table of texts, each looked up by its key."""

    from collections.abc import AsyncIterator, Sequence

    from callsmith.core.ports import Context
    from callsmith.core.events import ToolProgress
    from callsmith.core.values import Call, Result, Tool

    LOOKUP = Tool(
        "lookup",
        "Look a word up.",
        {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
        source="table",
        side_effects=False,
    )


    class Table:
        def __init__(self, **texts: str) -> None:
            self.texts = texts

        async def tools(self) -> Sequence[Tool]:
            return [LOOKUP]

        async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
            if call.name != LOOKUP.name:
                yield Result(call.id, call.name, f"there is no tool {call.name!r}", ok=False, code="bad_request")
                return
            await context.starting()
            yield ToolProgress(call.id, "turning pages")
            yield Result(call.id, call.name, self.texts.get(call.arguments["word"], "nothing"))


    toolset = Table(smith="one who forges")
'''
SMITH = Call("lookup", {"word": "smith"}, "c1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "toy_table.py").write_text(dedent(TOY), "utf-8")
    return tmp_path


@pytest.fixture
def toolset(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toolset]:
    """The toolset as `callsmith serve --tools toy_table:toolset` finds it, in the folder where the command is run."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield load_toolset("toy_table:toolset")
    sys.modules.pop("toy_table", None)


class TestTable(ToolsetContract):
    working = SMITH

    @pytest.fixture
    def toolset(self, toolset: Toolset) -> Toolset:
        return toolset


async def test_the_server_runs_its_tools(toolset: Toolset):
    model = FakeModel(calls(SMITH), says("A smith forges."))
    answer = await client(model, tools=toolset).chat.completions.create(model="m", messages=HI)
    assert answer.choices[0].message.content == "A smith forges."
    assert [tool.name for tool in model.asked[0].tools] == ["lookup"]
    assert [message.content for message in model.asked[1].messages if message.role == "tool"] == ["one who forges"]
