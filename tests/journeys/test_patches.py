"""Patches by a small model, hot, under the grammar that an agent's editing tool brings: all of them are grammatical."""

import asyncio
import random

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("xllamacpp")
pytest.importorskip("lark")

from callsmith.core.events import CallReady, Stopped
from callsmith.core.ports import Model
from callsmith.core.values import Call, Choice, Message, Request, Result, Sampling
from callsmith.models.opening import open_model
from tests.grammar.languages.patches import PATCH, custom, fits

pytestmark = pytest.mark.weights

TOOL = custom("apply_patch", PATCH)
ASKED = [
    "Create {}.py that greets {}.",
    "Delete {}/{}.txt.",
    "Rename {}.md to {}.md and fix its title.",
    "In {}.c, replace {} by 0.",
    "Füge in {}.toml eine Zeile {} = 80 hinzu.",
]
SHOWN = [
    ("Create a.txt with the word one.", "*** Begin Patch\n*** Add File: a.txt\n+one\n*** End Patch"),
    ("Delete b/c.txt.", "*** Begin Patch\n*** Delete File: b/c.txt\n*** End Patch"),
    ("Make it two in a.txt.", "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch"),
]
MOST_TOKENS = 120  # of one answer: what is not closed by then counts for nothing
AT_A_TIME = 8


def conversation(question: str) -> tuple[Message, ...]:
    """The question behind a few that were answered: a model this small has to see where patches end."""
    messages: list[Message] = []
    for number, (asked, patch) in enumerate(SHOWN):
        call = Call("apply_patch", {"input": patch}, f"call_{number}")
        messages += [Message.user(asked), Message.assistant("", calls=(call,)), Message.tool(Result(call.id, call.name, "Done."))]
    return (*messages, Message.user(question))


async def write_patch(model: Model, seed: int) -> str | None:
    """The patch of one answer; None if it was not finished in time."""
    chance = random.Random(seed)
    question = chance.choice(ASKED).format(*("".join(chance.choices("aeioklmnrst", k=5)) for _ in range(2)))
    sampling = Sampling(temperature=chance.choice([1.0, 1.2, 1.5]), seed=seed, max_tokens=MOST_TOKENS)
    request = Request(conversation(question), tools=(TOOL,), choice=Choice("required"), sampling=sampling, parallel=False)
    patch, reason = None, ""
    async for event in model.stream(request):
        match event:
            case CallReady(call=call):
                patch = str(call.arguments["input"])
            case Stopped(reason=reason):
                pass
            case _:
                pass
    assert patch is not None or reason == "length"
    return patch


async def write_patches(count: int) -> list[str]:
    """So many finished patches."""
    model = open_model("smollm2-135m")
    patches: list[str] = []
    seed = 0
    try:
        while len(patches) < count:
            written = await asyncio.gather(*(write_patch(model, seed + number) for number in range(AT_A_TIME)))
            patches += [patch for patch in written if patch is not None]
            seed += AT_A_TIME
            assert seed < 20 * count + 100
    finally:
        await model.close()
    return patches[:count]


@pytest.mark.model
async def test_a_few_hot_patches_are_all_grammatical() -> None:
    patches = await write_patches(3)
    assert [patch for patch in patches if not fits(PATCH, patch)] == []


@pytest.mark.slow
async def test_a_thousand_hot_patches_are_all_grammatical() -> None:
    patches = await write_patches(1000)
    assert len(set(patches)) > 500
    assert [patch for patch in patches if not fits(PATCH, patch)] == []
