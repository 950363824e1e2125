"""What the guards of small models are worth: the journeys in the way of the chat template, with all guards, without each, and
with none; and with all tools behind a search, as the model is opened, with `search-first` and without, beside small talk.

It takes hours on a processor, and minutes on a GPU.
"""

import asyncio
from collections.abc import Sequence

from benchmarks.journeys import JOURNEYS, LONGEST, Journey, World, faults, travel
from benchmarks.table import show
from callsmith import Functions, Limits, Message, Request, Sampling
from callsmith.core.events import ToolStarted, TurnEnded
from callsmith.core.ports import Model
from callsmith.models import Options
from callsmith.models.local import LocalModel
from callsmith.models.opening import open_local, with_tool_prompt
from callsmith.runtime.discovery import ToolCosts, limit_shown_tools
from callsmith.runtime.guards.guards import default_guards, guard_model
from callsmith.runtime.loop import run

AT_ONCE = 8
BUDGET = 150  # tokens of tool definitions: about two tools of sixteen
SEARCH = "search-first"
TALK = (
    "Hello, how are you?",
    "Good morning!",
    "Thank you, that was all.",
    "You are great.",
    "Bye!",
    "I am tired today.",
    "Tell me a joke.",
    "What can you do?",
    "Who wrote Hamlet?",
    "Who painted the Mona Lisa?",
    "What is the capital of France?",
    "Why is the sky blue?",
    "How many legs does a spider have?",
    "What is photosynthesis?",
    "What does 'ubiquitous' mean?",
    "Is a tomato a fruit?",
    "How do I boil an egg?",
    "Explain what a prime number is.",
    "Write a haiku about rain.",
    "Give me three names for a cat.",
)


async def right_journeys(model: Model) -> tuple[int, int]:
    """How many journeys of one call are right, and how many of two or three."""
    waiting = asyncio.Semaphore(AT_ONCE)

    async def is_right(journey: Journey) -> bool:
        async with waiting:
            return not (await travel(model, journey)).faults

    right = await asyncio.gather(*map(is_right, JOURNEYS))
    steps = [journey.steps for journey, is_so in zip(JOURNEYS, right, strict=True) if is_so]
    return steps.count(1), len(steps) - steps.count(1)


async def searched(model: Model, question: str, guards: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """The answer to a question with all tools behind a search, the tools that were called, and what was done."""
    world, called, ended = World(), list[str](), TurnEnded((), "stop")
    tools = [getattr(world, name) for name in vars(World) if not name.startswith("_")]
    limited_model, toolset = await limit_shown_tools(model, Functions(*tools), ToolCosts(), BUDGET, guards=guards)
    request = Request((Message.user(question),), sampling=Sampling(max_tokens=LONGEST))
    async for event in run(limited_model, toolset, request, limits=Limits(iterations=8), guards=()):
        match event:
            case ToolStarted(call):
                called.append(call.name)
            case TurnEnded():
                ended = event
            case _:
                pass
    return ended.text.strip(), called, world.done


async def behind_a_search(model: Model, guards: Sequence[str]) -> tuple[int, int]:
    """How many journeys are right, and how much of the small talk is answered without a call."""
    waiting = asyncio.Semaphore(AT_ONCE)

    async def ask(question: str) -> tuple[str, list[str], list[str]]:
        async with waiting:
            return await searched(model, question, guards)

    outcomes = await asyncio.gather(*(ask(journey.question) for journey in JOURNEYS))
    right = sum(not list(faults(journey, answer, done)) for journey, (answer, _, done) in zip(JOURNEYS, outcomes, strict=True))
    return right, sum(not called for _, called, _ in await asyncio.gather(*map(ask, TALK)))


async def measure(name: str) -> None:
    model: LocalModel = open_local(name, Options(live=AT_ONCE))
    template = with_tool_prompt(model, name, Options(), "template")
    every = [guard for guard in default_guards() if guard != SEARCH]
    sets = {
        "none": [],
        "all": every,
        **{f"without {left_out}": [other for other in every if other != left_out] for left_out in every},
    }
    rows = [
        (title, *await right_journeys(guard_model(template, guards) if guards else template)) for title, guards in sets.items()
    ]
    show(f"{name}, in the way of its template: right journeys", ("guards", "one call", "two or three"), rows)
    outcomes = [(title, *await behind_a_search(model, guards)) for title, guards in ((SEARCH, [SEARCH]), ("none", []))]
    show(f"{name}, all tools behind a search", ("guards", f"right of {len(JOURNEYS)}", f"left alone of {len(TALK)}"), outcomes)
    await model.close()


def main(model: str) -> None:
    asyncio.run(measure(model))
