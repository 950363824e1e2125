"""A call that must come is valid whatever the weights say: a small model behind chat templates and formats it was never taught.

One tool is offered and required. Whatever the model would rather write, exactly one call of that tool comes, as its schema says
(but for what the answer lists as not enforced), with no text beside it; and what is streamed adds up to it.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.events import CallArguments, CallReady, ModelEvent, Started, Stopped, Text, Thought, Unreadable
from callsmith.core.schema import validate
from callsmith.core.values import Choice, Message, Request, Sampling, Tool
from callsmith.formats import formats
from callsmith.models import open_model, opening
from callsmith.models.local import LocalModel
from callsmith.models.opening import Options
from tests.effort import tries
from tests.formats.templates import REAL, needs_corpus
from tests.small import small_file

pytestmark = [pytest.mark.slow, pytest.mark.weights]


def tool(name: str, description: str, **properties: Any) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return Tool(name, description, schema)


def text(longest: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": longest}


PARCEL = {
    "type": "object",
    "properties": {"size": {"enum": ["small", "large", 0, None]}, "fragile": {"type": "boolean"}, "label": text(12)},
    "required": ["size", "fragile"],
    "additionalProperties": False,
}
# Quotes, newlines, a tab, a backslash, and what XML minds.
LINES = r"^say\(\"[a-z]{1,6}\"\)\nif it <= '[A-Z]':\n\tpass  # \\[a-z]{0,3}\n$"
TOOLS = (
    tool("note", "Write something down.", text=text(40)),
    tool("send", "Send a parcel.", parcel=PARCEL),
    tool("now", "What time it is."),
    tool("python", "Run Python code.", code=text(60)),
    tool("script", "Run a script.", code={"type": "string", "pattern": LINES}),
)
QUESTION = (Message.system("You help."), Message.user("Please see to it."))


def temperatures() -> list[float]:
    """Without seeds: answers to the same prompt share what is computed of it."""
    return [0.0, *[1.5] * tries(1, 2)]


Opened = Callable[..., LocalModel]


@pytest.fixture
def opened(small: LocalModel, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Opens the small model with other options, as a user would, over the engine that is there already."""
    monkeypatch.setattr(opening, "_engine", lambda *_: small.engine)
    return lambda **options: open_model(str(small_file()), Options(**options))


async def ask(model: LocalModel, offered: Tool, temperature: float) -> list[ModelEvent]:
    sampling = Sampling(temperature=temperature, max_tokens=100)
    request = Request(QUESTION, (offered,), Choice("required"), parallel=False, thinking=False, sampling=sampling)
    return [event async for event in model.stream(request)]


def faults(events: Sequence[ModelEvent], offered: Tool) -> list[str]:
    """What is wrong with an answer that has to be one call of this tool."""
    if isinstance(events[-1], Stopped) and events[-1].reason == "length":
        return []  # cut off: reasoning has no grammar, nor has the length of text in tags
    ready = [event for event in events if isinstance(event, CallReady)]
    if len(ready) != 1 or ready[0].call.name != offered.name:
        return [f"not one call of {offered.name}: {events}"]
    call, last = ready[0].call, events[-1]
    is_listed = isinstance(last, Stopped) and any(item.tool == offered.name for item in last.report.unenforced)
    complaints = () if is_listed else validate(offered.parameters, call.arguments)  # text in tags has no grammar for its length
    problems = [f"against the schema: {complaint}" for complaint in complaints]
    problems += [f"repaired: {ready[0].repairs}"] if ready[0].repairs else []
    problems += [f"beside the call: {event}" for event in events if isinstance(event, Text | Unreadable)]
    problems += [] if isinstance(last, Stopped) and last.reason == "calls" else [f"ends with {last}"]
    streamed = "".join(event.text for event in events if isinstance(event, CallArguments))
    problems += [] if streamed == call.text and json.loads(streamed) == call.arguments else [f"streamed {streamed}, is {call}"]
    return problems


def is_cut_in_reasoning(events: Sequence[ModelEvent]) -> bool:
    return all(isinstance(event, Started | Thought) for event in events[:-1])


async def check(model: LocalModel) -> None:
    cases = [(offered, temperature) for offered in TOOLS for temperature in temperatures()]
    answers = [await ask(model, *case) for case in cases]  # one after the other: the second has the prompt of the first
    problems = [(offered.name, faults(events, offered)) for (offered, _), events in zip(cases, answers, strict=True)]
    wrong = [item for item in problems if item[-1]]
    called = sum(any(isinstance(event, CallReady) for event in events) for events in answers)
    assert called or all(map(is_cut_in_reasoning, answers))
    assert not wrong, f"{len(wrong)} of {len(cases)} with {model.format.name}: {wrong}"


@needs_corpus
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
async def test_the_required_call_comes_whatever_the_template(opened: Opened, path: Path) -> None:
    await check(opened(template=path))


@pytest.mark.parametrize("name", sorted(formats()))
async def test_the_required_call_comes_whatever_the_format(opened: Opened, name: str) -> None:
    await check(opened(format=name))
