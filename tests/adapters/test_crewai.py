"""The CrewAI adapter in process: tools both ways, and CallsmithLLM over a model that writes what it is told."""

from typing import Any

import pytest

pytest.importorskip("crewai", reason="crewai is not installed: make test-crewai installs it")

from crewai import Agent, Crew, Task
from crewai.events.event_bus import crewai_event_bus
from crewai.events.types.llm_events import LLMStreamChunkEvent
from crewai.tools import BaseTool
from crewai.tools import tool as crewai_tool
from crewai.tools.tool_failure import ToolFailure
from pydantic import BaseModel

from callsmith import Approved, Confirmed, Denied, Functions, run_sync
from callsmith.adapters.crewai import CallsmithLLM, from_crewai, to_crewai
from callsmith.core.errors import UsageError
from callsmith.engines.scripted import Scripted
from tests.adapters.scripted import add, get_weather, pay, scripted_model
from tests.adapters.scripted import calling_all as calling

pytestmark = pytest.mark.crewai

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "The sum.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


def llm(*replies: str, **more: Any) -> tuple[CallsmithLLM, Scripted]:
    model, engine = scripted_model(*replies)
    return CallsmithLLM(model, **more), engine


# --- tools ----------------------------------------------------------------------------------------------------------------------


def test_a_toolset_becomes_tools() -> None:
    weather, adding = to_crewai(Functions(get_weather, add))
    assert (weather.name, weather.description) == ("get_weather", "The weather in a city.")
    assert weather.args_schema.model_json_schema()["properties"]["city"]["description"] == "Which city."
    assert weather.run(city="Bonn") == '{"city": "Bonn", "sky": "snow"}'
    assert adding.run(a=17) == "18"
    wrong = weather.run(town="Bonn")
    assert isinstance(wrong, ToolFailure)
    assert "invalid_arguments" in wrong.message
    assert [item.cache_function({}, "") for item in (weather, adding)] == [True, False]


async def test_the_same_works_in_async_code() -> None:
    toolset = Functions(add)
    (adding,) = to_crewai(toolset, await toolset.tools())
    assert await adding.arun(a=17, b=25) == "42"


@pytest.mark.parametrize(
    ("decide", "text"),
    [
        (None, "denied: pay has side effects"),
        (lambda needed: Approved({**needed.call.arguments, "amount": 4}), "paid 4 to Ada"),
        (lambda needed: Denied("too much"), "denied: too much"),
    ],
)
def test_calls_that_need_approval_are_decided_on_or_not_run(decide: Any, text: str) -> None:
    (paying,) = to_crewai(Confirmed(Functions(pay)), decide=decide)
    output = paying.run(to="Ada", amount=5)
    assert (output.message if isinstance(output, ToolFailure) else output).startswith(text)


@crewai_tool("Look Up")
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: a word"


@crewai_tool
async def shout(word: str) -> str:
    """Shout a word."""
    return word.upper()


class Divide(BaseTool):
    name: str = "divide"
    description: str = "Divide two numbers."

    def _run(self, a: int, b: int = 2) -> Any:
        return ToolFailure(message="not by zero") if b == 0 else a / b


@pytest.mark.req("R147")
def test_tools_of_crewai_become_a_toolset() -> None:
    calls = calling(("look_up", {"word": "forge"}), ("shout", {"word": "a"}), ("divide", {"a": 1}), ("divide", {"a": 1, "b": 0}))
    model, _ = scripted_model(calls, "Done.")
    ended = run_sync(model, from_crewai(look_up, shout, Divide()), "?")
    assert [message.content for message in ended.messages if message.role == "tool"] == [
        "forge: a word",
        "A",
        "0.5",
        "tool_error: not by zero",
    ]
    with pytest.raises(UsageError, match="expected a CrewAI tool"):
        from_crewai(get_weather)  # pyright: ignore


# --- the model ------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("R147")
def test_a_crew_finishes_its_task() -> None:
    model, engine = llm(calling(("get_weather", {"city": "Köln"})), calling(("add", {"a": 17, "b": 25})), "Snow, and 42.")
    agent = Agent(role="helper", goal="help", backstory="x", llm=model, tools=to_crewai(Functions(get_weather, add)))
    task = Task(description="How is the weather in Köln, and what is 17 + 25?", expected_output="Both.", agent=agent)
    crew = Crew(agents=[agent], tasks=[task], verbose=False)
    assert crew.kickoff().raw == "Snow, and 42."
    assert '"sky": "snow"' in engine.asked[-1].prompt.text
    assert "42" in engine.asked[-1].prompt.text
    assert crew.usage_metrics
    assert crew.usage_metrics.completion_tokens > 0


class City(BaseModel):
    name: str
    people: int


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_answers_are_texts_values_calls_or_results(asynchronous: bool) -> None:
    model, engine = llm(
        "Hello.", '{"name": "Bonn", "people": 1}', calling(("add", {"a": 1, "b": 2})), calling(("add", {"a": 1, "b": 2}))
    )

    async def ask(**more: Any) -> Any:
        return await model.acall("?", **more) if asynchronous else model.call("?", **more)

    assert await ask() == "Hello."
    assert await ask(response_model=City) == City(name="Bonn", people=1)
    assert engine.asked[1].grammar
    (call,) = await ask(tools=[ADD])
    assert (call["function"]["name"], call["function"]["arguments"]) == ("add", '{"a": 1, "b": 2}')
    assert await ask(tools=[ADD], available_functions={"add": lambda a, b: a + b}) in (3, "3")
    assert model.get_token_usage_summary().successful_requests == 4


def test_settings_are_passed_on_and_pieces_reported() -> None:
    model, engine = llm("One two. Stop here.", temperature=0.5, max_tokens=20, stop=["Stop"], top_k=7, stream=True)
    pieces: list[str] = []
    with crewai_event_bus.scoped_handlers():

        @crewai_event_bus.on(LLMStreamChunkEvent)
        def note(source: Any, event: LLMStreamChunkEvent) -> None:
            pieces.append(event.chunk)

        assert model.call([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}]) == "One two. "
        crewai_event_bus.flush()
    request = engine.asked[0]
    assert (request.sampling.temperature, request.sampling.max_tokens, request.sampling.top_k) == (0.5, 20, 7)
    assert "Be brief." in request.prompt.text
    assert "".join(pieces) == "One two. "


def test_what_is_wrong_is_an_error_that_names_it() -> None:
    with pytest.raises(UsageError, match="temperature"):
        llm("x", additional_params={"temperature": "hot"})[0].call("?")
    assert CallsmithLLM("scripted:Hi.").call("?") == "Hi."
