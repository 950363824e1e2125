"""examples/adapters: each runs, where its framework is installed, on a model that writes what it is told."""

import asyncio
import inspect
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.scripted import calling, open_scripted, scripted_model

FOLDER = Path(__file__).parents[2] / "examples" / "adapters"
WEATHER = calling("get_weather", city="Bonn")
# The example, the mark and the package it needs, what the model writes, and what is then printed.
EXAMPLES = [
    pytest.param(
        "langchain_agent",
        "langchain",
        (
            calling("find_address", person="Ada"),
            calling("send_mail", address="ada@example.org", text="the forge is hot"),
            "It is sent.",
        ),
        "It is sent.",
        marks=pytest.mark.clients,
    ),
    pytest.param("llamaindex_agent", "llama_index.core", (WEATHER, "Snow."), '→ {"city": "Bonn"', marks=pytest.mark.clients),
    pytest.param("crewai_crew", "crewai", (WEATHER, "Snow."), "Snow.", marks=pytest.mark.crewai),
]


@pytest.mark.parametrize(("name", "package", "replies", "printed"), EXAMPLES)
def test_an_example_runs(
    name: str,
    package: str,
    replies: tuple[str, ...],
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip(package, reason="it is installed by make test-clients, or make test-crewai")
    questions: list[str] = []
    open_scripted(monkeypatch, *replies)
    monkeypatch.setattr("builtins.input", lambda question: questions.append(question) or "y")
    _run(runpy.run_path(str(FOLDER / f"{name}.py"))["main"])
    assert printed in capsys.readouterr().out
    assert [question for question in questions if "send_mail" in question] == questions


@pytest.mark.clients
@pytest.mark.parametrize("framework", ["openai_agents", "pydantic_ai", "smolagents", "langchain"])
def test_a_framework_needs_the_address_of_a_server_alone(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langchain_openai", reason="make test-clients installs it")
    # Its connections are for all its clients, and may be of an event loop that another test has closed.
    monkeypatch.setattr("agents.models.openai_provider._http_client", None)
    from callsmith.server.app import create_app
    from tests.serving import served_apart

    last = calling("final_answer", answer="Snow.") if framework == "smolagents" else "Snow."
    model, engine = scripted_model(WEATHER, last)
    with served_apart(create_app({"m": model})) as url:
        ask = runpy.run_path(str(FOLDER / "by_base_url.py"))[framework]
        assert _run(ask, f"{url}/v1") == "Snow."
    assert "snow in Bonn" in engine.asked[1].prompt.text


def _run(main: Any, *arguments: str) -> Any:
    result = main(*arguments)
    return asyncio.run(result) if inspect.iscoroutine(result) else result
