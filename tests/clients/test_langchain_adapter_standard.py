"""LangChain's own suites, of chat models and of tools, on ChatCallsmith and on a tool of ours, in this process.

What is skipped: images, audio, documents and citations, which the default model does not read or write; initialization from
environment variables, as there is no key; serialization, as a model may be one that is open; recorded HTTP, as there is none.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("langchain_tests", reason="langchain-tests is not installed: make test-clients installs it")

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import ChatModelIntegrationTests, ToolsIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests, ToolsUnitTests

from callsmith import Functions, tool
from callsmith.adapters.langchain import ChatCallsmith, to_langchain
from callsmith.core.ports import OpenedModel
from callsmith.models.opening import Options, open_local
from callsmith.models.weights.fetch import fetch
from tests.small import THREADS

pytestmark = pytest.mark.clients

DEFAULT = "qwen2.5-coder-1.5b"


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


class _OurTool:
    """What both suites are told of the tool."""

    @property
    def tool_constructor(self) -> BaseTool:
        return to_langchain(Functions(multiply))[0]

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"a": 2, "b": 3}


class TestTheToolUncalled(_OurTool, ToolsUnitTests):
    pass


class TestTheTool(_OurTool, ToolsIntegrationTests):
    pass


class TestTheModelUnopened(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatCallsmith

    @property
    def standard_chat_model_params(self) -> dict[str, Any]:
        return {"temperature": 0, "max_tokens": 100, "timeout": 60, "stop": []}  # no key, and nothing that is sent again

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": DEFAULT}


@pytest.fixture(scope="module")
def opened() -> Iterator[OpenedModel]:
    pytest.importorskip("llguidance")
    pytest.importorskip("xllamacpp")
    fetch(DEFAULT)
    model = open_local(DEFAULT, Options(context=4096, threads=THREADS))
    yield model
    asyncio.run(model.close())


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.asyncio(loop_scope="module")
class TestTheModel(ChatModelIntegrationTests):
    _opened: Any = None

    @pytest.fixture(autouse=True)
    def _model(self, opened: OpenedModel) -> None:
        self._opened = opened

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatCallsmith

    @property
    def standard_chat_model_params(self) -> dict[str, Any]:
        return {"temperature": 0, "max_tokens": 100, "timeout": 600}

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": self._opened}

    @property
    def model_override_value(self) -> str:
        return "scripted:Hello from another model."

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supports_anthropic_inputs(self) -> bool:
        return True

    @property
    def supported_usage_metadata_details(self) -> Any:
        return {"invoke": [], "stream": []}
