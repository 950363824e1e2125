"""docs/cookbook.md: its Python runs, where the frameworks are installed, against a server whose model writes what it is told."""

import pytest

pytest.importorskip("langchain_openai", reason="langchain-openai is not installed: make test-clients installs it")
pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim is not installed: make test-clients installs it")

from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from tests.clients.conftest import calling
from tests.docs.blocks import blocks
from tests.serving import served_apart

pytestmark = pytest.mark.clients


def test_the_python_of_the_page_calls_its_tool_and_prints_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    page = [block for block in blocks("python") if block.page == "docs/cookbook.md"]
    replies = [calling(("get_weather", {"city": "Bonn"})), "It snows in Bonn."]
    engine = Scripted(replies * len(page), chunk=3)
    model = LocalModel(engine, format_named("hermes"), Template(CHATML))
    names: dict[str, object] = {"__name__": "__main__"}
    with served_apart(create_app({"qwen2.5-coder-1.5b": model})) as url:
        for block in page:
            exec(compile(block.text.replace("http://127.0.0.1:8000", url), str(block), "exec"), names)
    assert capsys.readouterr().out == "It snows in Bonn.\n" * len(page)
    assert ["snow in Bonn" in request.prompt.text for request in engine.asked] == [False, True] * len(page)
