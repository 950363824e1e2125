"""LangChain's own suite for chat models, through the four of its clients that can be pointed at the server.

Most of it asks whether requests and answers have the right shape, and any model will do for that. Where a test wants the model
to have understood something, an able one answers.
"""

from typing import Any

import pytest

pytest.importorskip("langchain_tests", reason="langchain-tests is not installed: make test-clients installs it")

from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

# Its clients keep one connection an address for all their life, and that belongs to one loop.
pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.weights, pytest.mark.asyncio(loop_scope="module")]

# These look at what the model has made of the question.
WANTS_AN_ABLE_MODEL = {
    "test_tool_calling",
    "test_tool_calling_async",
    "test_agent_loop",
    "test_json_mode",
    "test_unicode_tool_call_integration",
}


class Standard(ChatModelIntegrationTests):
    """What the suite is told of the server, whichever way it is asked. Images, audio and documents it does not read."""

    address = ""
    for_an_able_model = WANTS_AN_ABLE_MODEL

    @pytest.fixture(autouse=True)
    def _reached(self, request: pytest.FixtureRequest) -> None:
        served: str = request.getfixturevalue("able" if request.node.originalname in self.for_an_able_model else "small")
        self.address = served.removesuffix("/v1")

    @property
    def standard_chat_model_params(self) -> dict[str, Any]:
        return {"temperature": 0, "timeout": 600, "max_retries": 0}

    @property
    def model_override_value(self) -> str:
        return "other"

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supports_anthropic_inputs(self) -> bool:
        return True


class TestChatCompletions(Standard):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "m", "base_url": f"{self.address}/v1", "api_key": "none", "max_tokens": 100, "stream_usage": True}


class TestResponses(TestChatCompletions):
    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {**super().chat_model_params, "use_responses_api": True}


class TestMessages(Standard):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatAnthropic

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "m", "base_url": self.address, "api_key": "none", "max_tokens": 100}


class TestOllama(Standard):
    """This client sends no tool choice, so that a call is the model's own idea."""

    for_an_able_model = WANTS_AN_ABLE_MODEL | {"test_bind_runnables_as_tools", "test_tool_calling_with_no_arguments"}

    @property
    def supports_anthropic_inputs(self) -> bool:
        return False  # the client itself takes no such messages

    @property
    def has_tool_choice(self) -> bool:
        return False

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOllama

    @property
    def standard_chat_model_params(self) -> dict[str, Any]:
        return {"temperature": 0, "client_kwargs": {"timeout": 600}}

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "m", "base_url": self.address, "num_predict": 100}
