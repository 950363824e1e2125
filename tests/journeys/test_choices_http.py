"""What a client says about tools is done, every time: dozens of answers a choice, of a model far too small to do it by itself.

The real client, a real socket, a real model at temperature 1, eight answers at once, every other one streamed. Nothing is seeded:
whatever is drawn must hold.
"""

import asyncio
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import pytest
from openai import AsyncOpenAI

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.server.app import create_app
from tests.effort import tries
from tests.serving import served_apart
from tests.small import open_small

pytestmark = [pytest.mark.slow, pytest.mark.weights]

AT_ONCE = 8


def closed(required: str = "", **properties: Any) -> dict[str, Any]:
    """An object that has nothing but these."""
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}


def whole(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


def listed(items: Any, most: int, least: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


WORD = {"type": "string", "maxLength": 10}
PLACE = closed("city", city=WORD, floor={"anyOf": [whole(-2, 40), {"type": "null"}]})
SCHEMAS: dict[str, dict[str, Any]] = {
    "get_weather": closed("city unit", city=WORD, unit={"enum": ["celsius", "fahrenheit"]}),
    "set_timer": closed("minutes", minutes=whole(1, 120), label=WORD),
    "now": closed(),
    "book_seats": closed(
        "route seats", route=closed("origin target", origin=PLACE, target=WORD), seats=listed(whole(1, 99), 3, 1)
    ),
    "vote": closed(
        "choice weight", choice={"enum": ["yes", "no", 0, None]}, weight={"type": "number", "minimum": 0, "maximum": 1}
    ),
    "plan_day": closed(
        "steps",
        steps=listed(closed("at what", at={"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"}, what=WORD), 2, 1),
        strict={"type": "boolean"},
    ),
    "take_note": {"type": "object", "properties": {"text": {"type": "string"}, "day": {"type": "string", "format": "date"}}},
    "draw": closed(
        "shapes",
        shapes=listed({"anyOf": [closed("radius", radius=whole(1, 9)), closed("sides", sides=listed(whole(1, 9), 4, 3))]}, 2, 1),
    ),
}
WHAT = {
    "get_weather": "The weather in a city.",
    "set_timer": "Start a timer.",
    "now": "What time it is.",
    "book_seats": "Book seats on a train.",
    "vote": "Vote on a proposal.",
    "plan_day": "Put steps into the plan of a day.",
    "take_note": "Write something down.",
    "draw": "Draw circles and polygons.",
}
ASKED = (
    "How is the weather in Köln?",
    "Please take care of it.",
    "My name is Ada. Who are you?",
    "Book two seats from Bonn to Ulm.",
    'Say nothing but <tool_call>{"name": "now"}</tool_call>.',
    "Three minutes for the eggs!",
    "日本語で答えてください。",
)
SETS = (  # few, so that what prompts begin with is read once and remembered; the first tool of a set is the one that is named
    ("get_weather", "set_timer", "now"),
    ("book_seats",),
    ("vote", "draw"),
    ("plan_day", "now"),
    ("take_note", "get_weather"),
    ("now",),
)
CALLED: dict[str, list[dict[str, Any]]] = {
    "get_weather": [{"city": "Bonn", "unit": "celsius"}, {"city": "Ulm", "unit": "fahrenheit"}],
    "book_seats": [
        {"route": {"origin": {"city": "Bonn"}, "target": "Ulm"}, "seats": [4]},
        {"route": {"origin": {"city": "Ulm", "floor": 2}, "target": "Trier"}, "seats": [7, 9]},
    ],
    "vote": [{"choice": "yes", "weight": 1}, {"choice": "no", "weight": 0.5}],
    "plan_day": [{"steps": [{"at": "09:00", "what": "swim"}]}, {"steps": [{"at": "12:30", "what": "eat"}]}],
    "take_note": [{"text": "eggs"}, {"text": "milk", "day": "2026-05-01"}],
    "now": [{}, {}],
}
CHECKS = {name: jsonschema_rs.validator_for(schema) for name, schema in SCHEMAS.items()}


@dataclass(frozen=True)
class Case:
    """What is asked for, and what must come of it: why the answer ends, and the fewest and the most calls in it."""

    fields: Mapping[str, Any]
    ends: tuple[str, ...] = ("tool_calls",)
    fewest: int = 1
    most: int = 1
    strict: bool = False
    named: bool = False
    limit: int = 120
    answers: int = tries(24, 24, 100)
    called: bool = False  # whether the model has called before: then it may call again of its own accord


@dataclass(frozen=True)
class Answer:
    """What came, whether in one piece or in many."""

    ends: str
    said: str
    calls: tuple[tuple[str, str], ...]
    ids: tuple[str, ...]


CASES = {
    "required": Case({"tool_choice": "required"}),
    "required, several": Case({"tool_choice": "required", "parallel_tool_calls": True}, most=50, answers=tries(12, 12, 24)),
    "named": Case({}, named=True),
    "none": Case({"tool_choice": "none"}, ends=("stop", "length"), fewest=0, most=0, limit=16),
    "one at a time": Case({"tool_choice": "required", "parallel_tool_calls": False}),
    "strict, required": Case({"tool_choice": "required"}, strict=True),
    "strict, free": Case(
        {"parallel_tool_calls": True}, ends=("tool_calls", "stop", "length"), fewest=0, most=50, strict=True, called=True
    ),
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    model = open_small(context=8192, live=AT_ONCE)
    with served_apart(create_app({"m": model})) as address:
        yield address
    asyncio.run(model.close())


def body(case: Case, names: tuple[str, ...], question: str) -> dict[str, Any]:
    functions = [{"name": name, "description": WHAT[name], "parameters": SCHEMAS[name]} for name in names]
    if case.strict:
        functions = [{**function, "strict": True} for function in functions]
    fields: dict[str, Any] = {"tool_choice": {"type": "function", "function": {"name": names[0]}}} if case.named else {}
    return {
        "model": "m",
        "messages": [*(history(names[0]) if case.called else ()), {"role": "user", "content": question}],
        "tools": [{"type": "function", "function": function} for function in functions],
        "temperature": 1,
        "max_tokens": case.limit,
        **fields,
        **case.fields,
    }


def history(name: str) -> Iterator[dict[str, Any]]:
    """Turns in which the tool was called, and that was that."""
    for number, arguments in enumerate(CALLED[name]):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        yield {"role": "user", "content": ASKED[number]}
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": call["id"], "content": "done"}
        yield {"role": "assistant", "content": "It is done."}


async def answered(client: AsyncOpenAI, fields: dict[str, Any], *, streamed: bool) -> Answer:
    if streamed:
        return await put_together(await client.chat.completions.create(**fields, stream=True))
    choice = (await client.chat.completions.create(**fields)).choices[0]
    calls: Any = choice.message.tool_calls or ()
    return Answer(
        choice.finish_reason,
        choice.message.content or "",
        tuple((call.function.name, call.function.arguments) for call in calls),
        tuple(call.id for call in calls),
    )


async def put_together(chunks: Any) -> Answer:
    """The answer in a stream. The SDK's own helper gives up on answers that end by their length."""
    ends, text, names, ids, arguments = "", "", list[str](), list[str](), list[str]()
    async for chunk in chunks:
        for choice in chunk.choices:
            ends, text = choice.finish_reason or ends, text + (choice.delta.content or "")
            for call in choice.delta.tool_calls or ():
                if call.index == len(names):
                    names.append(call.function.name)
                    ids.append(call.id)
                    arguments.append("")
                arguments[call.index] += call.function.arguments or ""
    return Answer(ends, text, tuple(zip(names, arguments, strict=True)), tuple(ids))


def complaints(name: str, arguments: str) -> list[str]:
    """What is wrong with the arguments of this tool."""
    try:
        return [error.message for error in CHECKS[name].iter_errors(json.loads(arguments))]
    except json.JSONDecodeError as error:
        return [str(error)]


def wrongs(case: Case, names: tuple[str, ...], answer: Answer) -> Iterator[str]:
    """Everything about an answer that is not as it was asked for."""
    if answer.ends not in case.ends:
        yield f"ended by {answer.ends}"
    if not case.fewest <= len(answer.calls) <= case.most:
        yield f"{len(answer.calls)} calls"
    if case.fewest and answer.said.strip():
        yield "said something"
    if len({*answer.ids}) != len(answer.calls) or not all(answer.ids):
        yield "ids that are missing or the same"
    if bool(answer.calls) != (answer.ends == "tool_calls") and answer.ends != "length":
        yield "calls and the end disagree"
    cut = answer.calls[-1:] if answer.ends == "length" else ()  # where an answer may be cut off, so may its last call
    for name, arguments in answer.calls:
        if name not in (names[:1] if case.named else names):
            yield f"called {name}"
        elif (name, arguments) not in cut and (problems := complaints(name, arguments)):
            yield f"{name}: {problems}"


async def check(address: str, case: Case) -> list[Answer]:
    gate, answers = asyncio.Semaphore(AT_ONCE), list[Answer]()
    wrong: list[str] = []

    async def one(client: AsyncOpenAI, number: int) -> None:
        names, question = SETS[number // 2 % len(SETS)], random.choice(ASKED)
        async with gate:
            answer = await answered(client, body(case, names, question), streamed=number % 2 == 0)
        answers.append(answer)
        wrong.extend(f"{number}, {names}, {problem}: {answer}" for problem in wrongs(case, names, answer))

    async with AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=600) as client:
        await asyncio.gather(*(one(client, number) for number in range(case.answers)))
    assert not wrong, "\n".join(wrong)
    return answers


@pytest.mark.parametrize("name", CASES)
async def test_what_is_asked_about_tools_holds_in_every_answer(address: str, name: str) -> None:
    case = CASES[name]
    answers = await check(address, case)
    assert len(answers) == case.answers
    if case.fewest:  # … and they are not all the same
        assert len({answer.calls for answer in answers}) > case.answers // 4
    if case.called:  # … and what was left to the model was not simply left out
        assert sum(bool(answer.calls) for answer in answers) >= case.answers // 20
