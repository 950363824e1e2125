"""From a question over tools to the answer, on the default model: grounded answers, a chain, and a post that is asked about.

Plain functions stand for the capabilities. What the model must do first is required of it, and it has the guards it is known to
need, so that the tests are about the loop and not about how clever a small model is.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.approval import Approved
from callsmith.core.events import ConfirmationNeeded, RunEvent, ToolFinished, TurnEnded
from callsmith.core.ports import Context
from callsmith.core.values import Choice, Message, Request, Sampling
from callsmith.models import Options, open_model
from callsmith.models.local import LocalModel
from callsmith.models.weights.fetch import fetch
from callsmith.runtime.execute import Limits
from callsmith.runtime.guards.guards import guard_model
from callsmith.runtime.loop import list_unanswered, run
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed

pytestmark = [pytest.mark.slow, pytest.mark.weights]

# Room enough: a call that comes near the limit is steered to its end, and its arguments are cut short.
GREEDY = Sampling(temperature=0.0, max_tokens=200)


@pytest.fixture(scope="module")
def model() -> Iterator[LocalModel]:
    fetch("qwen2.5-coder-1.5b")
    model = open_model("qwen2.5-coder-1.5b", Options(context=1024))
    yield model
    asyncio.run(model.close())


def asked(text: str, first: str, *before: Message) -> Request:
    return Request((*before, Message.user(text)), choice=Choice.only(first), parallel=False, sampling=GREEDY)


async def everything(model: LocalModel, toolset: Any, request: Request, **options: Any) -> list[RunEvent]:
    return [event async for event in run(guard_model(model), toolset, request, limits=Limits(iterations=3), **options)]


def turn(events: list[RunEvent]) -> TurnEnded:
    last = events[-1]
    assert isinstance(last, TurnEnded)
    return last


@pytest.mark.req("R190")
@pytest.mark.req("R216")
async def test_search_corpus_tool_used_for_grounded_answer(model: LocalModel) -> None:
    searched: list[str] = []

    async def search_corpus(query: str) -> list[dict[str, str]]:
        """Search the community's documents."""
        searched.append(query)
        return [{"source": "hall.md", "text": "The village hall opens at 17:42 on Tuesdays."}]

    events = await everything(model, Functions(search_corpus), asked("When does the village hall open?", "search_corpus"))
    assert searched and "hall" in searched[0].lower()
    assert turn(events).reason == "stop"
    assert "17:42" in turn(events).messages[-1].content or "5:42" in turn(events).messages[-1].content


@pytest.mark.req("R191")
@pytest.mark.req("R212")
async def test_translate_chain(model: LocalModel) -> None:
    calls: list[tuple[str, str]] = []

    async def translate(text: str, target: str) -> str:
        """Übersetzt einen Text in die Sprache `target` (en, de)."""
        calls.append((text, target))
        return "The bridge is closed on Friday."

    question = 'Was heißt "Die Brücke ist am Freitag gesperrt." auf Englisch?'
    instructed = Message.system("Answer with what the tool says.")
    events = await everything(model, Functions(translate), asked(question, "translate", instructed))
    assert calls and "Brücke" in calls[0][0] and calls[0][1].lower().startswith("en")
    assert turn(events).reason == "stop"
    assert "bridge" in turn(events).messages[-1].content.lower()


@pytest.mark.req("R192")
@pytest.mark.req("R93")
async def test_market_post_requires_confirmation(model: LocalModel) -> None:
    posted: list[tuple[str, int]] = []

    @tool(side_effects=True)
    async def market_post(title: str, price: int) -> str:
        """Post an offer on the marketplace."""
        posted.append((title, price))
        return "posted as offer 7"

    toolset = Confirmed(Functions(market_post))
    request = asked("Offer my bicycle for 50 euros.", "market_post")
    paused = await everything(model, toolset, request)
    (needed,) = [event for event in paused if isinstance(event, ConfirmationNeeded)]
    assert (turn(paused).reason, posted) == ("confirmation", [])
    assert needed.call.arguments["price"] == 50
    history = (*request.messages, *turn(paused).messages)
    assert list_unanswered(history) == (needed.call,)

    resumed = Request(history, choice=Choice("none"), sampling=GREEDY)
    events = await everything(model, toolset, resumed, context=Context(decisions={needed.call.id: Approved()}))
    assert [event.result.content for event in events if isinstance(event, ToolFinished)] == ["posted as offer 7"]
    assert posted == [(needed.call.arguments["title"], 50)]
    assert turn(events).reason in ("stop", "length")
    assert turn(events).messages[-1].content
