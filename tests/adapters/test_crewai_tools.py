"""Tools of CrewAI, by its decorator, in our runs, and ours as its own; where it is not installed, with a stand-in of its shape.

`make test-crewai` has the same with CrewAI itself.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, create_model

from callsmith import Functions, run_sync
from tests.adapters.scripted import add, calling_all, scripted_model


class BaseTool(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    name: str
    description: str
    args_schema: Any = None
    cache_function: Any = None

    def run(self, **arguments: Any) -> Any:
        return self._run(**arguments)

    def _run(self, **arguments: Any) -> Any:
        raise NotImplementedError

    async def _arun(self, **arguments: Any) -> Any:
        raise NotImplementedError

    def format_output_for_agent(self, output: Any) -> str:
        return str(output)


class DecoratedTool(BaseTool):
    func: Any = None

    def _run(self, **arguments: Any) -> Any:
        return self.func(**arguments)


class ToolFailure(BaseModel):
    message: str


def crewai_tool(name: str) -> Callable[[Callable[..., Any]], DecoratedTool]:
    def made(function: Callable[..., Any]) -> DecoratedTool:
        hints = {key: (kind, ...) for key, kind in function.__annotations__.items() if key != "return"}
        schema = create_model("Arguments", **hints)  # type: ignore[call-overload]
        return DecoratedTool(name=name, description=function.__doc__ or "", args_schema=schema, func=function)

    return made


MODULES: dict[str, dict[str, Any]] = {
    "crewai": {},
    "crewai.tools": {"tool": crewai_tool},
    "crewai.tools.base_tool": {"BaseTool": BaseTool, "Tool": DecoratedTool},
    "crewai.tools.tool_failure": {"ToolFailure": ToolFailure},
    "crewai.utilities": {},
    "crewai.utilities.string_utils": {"sanitize_tool_name": lambda name: name.lower().replace(" ", "_")},
    "crewai.events": {},
    "crewai.events.types": {},
    "crewai.events.types.llm_events": {"LLMCallType": object},
    "crewai.llms": {},
    "crewai.llms.base_llm": {"BaseLLM": BaseModel, "llm_call_context": nullcontext},
}


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    try:
        import crewai  # noqa: F401
    except ModuleNotFoundError:
        for name, values in MODULES.items():
            module = ModuleType(name)
            vars(module).update(values)
            monkeypatch.setitem(sys.modules, name, module)
    ours = "callsmith.adapters.crewai"
    for name in [module for module in sys.modules if module.startswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    yield importlib.import_module(ours)
    for name in [module for module in sys.modules if module.startswith(ours)]:
        del sys.modules[name]


@pytest.mark.req("R147")
def test_a_tool_by_crewais_decorator_runs_in_a_run_of_ours(adapter: Any):
    @sys.modules["crewai.tools"].tool("Look up")
    def look_up(word: str) -> str:
        """Look a word up."""
        return f"{word}: a word"

    model, engine = scripted_model(calling_all(("look_up", {"word": "forge"})), "Done.")
    ended = run_sync(model, adapter.from_crewai(look_up), "?")
    assert [message.content for message in ended.messages if message.role == "tool"] == ["forge: a word"]
    assert "Look a word up." in engine.asked[0].prompt.text


@pytest.mark.req("R147")
def test_a_tool_of_ours_runs_as_one_of_crewais(adapter: Any):
    (adding,) = adapter.to_crewai(Functions(add))
    assert isinstance(adding, sys.modules["crewai.tools.base_tool"].BaseTool)
    assert (adding.name, adding.run(a=17, b=25)) == ("add", "42")
    assert "invalid_arguments" in adding.run(c=1).message
