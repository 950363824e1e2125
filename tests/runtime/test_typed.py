"""Answers as values of Python types."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from callsmith.core.approval import ConfirmationRequired
from callsmith.core.errors import ModelError, UsageError
from callsmith.core.types.partial import parse_partial
from callsmith.core.values import Call, Message, Output, Request
from callsmith.runtime.typed import run_typed, run_typed_sync, stream_typed
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed
from tests.fakes import FakeModel, calls, says


class Place(BaseModel):
    city: str
    visits: int = Field(ge=0, alias="times")


class Person(BaseModel):
    name: str
    places: list[Place] = []
    home: Place | None = None


@dataclass(frozen=True)
class Point:
    x: int
    y: int
    tags: list[str] = field(default_factory=list)


class Row(TypedDict):
    title: str
    n: int


ADA = {
    "name": "Ada",
    "places": [{"city": "London", "times": 3}, {"city": "Turin", "times": 1}],
    "home": {"city": "Ockham", "times": 9},
}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Person, json.dumps(ADA), Person.model_validate(ADA)),
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (Row, '{"title": "a", "n": 1}', {"title": "a", "n": 1}),
        (list[Point], '[{"x": 1, "y": 2}]', [Point(1, 2)]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (int, "7", 7),
    ],
)
async def test_the_answer_is_a_value_of_the_type(kind: Any, text: str, value: Any):
    model = FakeModel(says(text))
    assert await run_typed(model, kind, "Go on.") == value
    assert model.asked[0].output == Output(kind)
    assert [event async for event in stream_typed(FakeModel(says(*text)), kind, "Go on.")][-1] == value


def test_it_works_without_an_event_loop():
    assert run_typed_sync(FakeModel(says('{"x": 1, "y": 2}')), Point, Request((Message.user("Where?"),))) == Point(1, 2)


async def test_the_value_fills_in_while_the_answer_comes():
    pieces = [
        '{"name": "A',
        'da", "pla',
        'ces": [{"city": "Lon',
        'don", "times": 3',
        '}, {"ci',
        'ty": "Turin", "times": 1}], ',
        '"home": null}',
    ]
    seen = [event async for event in stream_typed(FakeModel(says(*pieces)), Person, "Who?")]
    assert all(isinstance(item, Person) for item in seen)
    assert [item.name for item in seen[:2]] == ["A", "Ada"]
    assert (seen[0].places, seen[0].home) == (None, None)
    assert isinstance(seen[2].places[0], Place)
    assert [place.city for place in seen[2].places] == ["Lon"]
    assert seen[-1] == Person(name="Ada", places=[Place(city="London", times=3), Place(city="Turin", times=1)])


async def test_a_frozen_dataclass_and_a_list_fill_in_too():
    points = [
        event async for event in stream_typed(FakeModel(says('{"x": 1', "0, ", '"y": 2, "tags": ["a', 'b"]}')), Point, "Where?")
    ]
    assert [(point.x, point.y, point.tags) for point in points] == [
        (None, None, None),
        (10, None, None),
        (10, 2, ["a"]),
        (10, 2, ["ab"]),
        (10, 2, ["ab"]),
    ]
    rows = [event async for event in stream_typed(FakeModel(says('[{"title": "a', '", "n": 1}', "]")), list[Row], "What?")]
    assert rows == [[{"title": "a"}], [{"title": "a", "n": 1}], [{"title": "a", "n": 1}]]


class Cat(BaseModel):
    kind: Literal["cat"]
    name: str
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    inside: T


CAT, DOG = '{"kind": "cat", "name": "Tom"}', '{"kind": "dog", "name": "Rex"}'


@pytest.mark.parametrize(
    ("kind", "text", "find"),
    [
        (Cat | Dog, DOG, lambda seen: seen),
        (Cat | None, CAT, lambda seen: seen),
        (list[Annotated[Cat, "a cat"]], f"[{CAT}]", lambda seen: seen[0]),
        (list[Annotated[Cat | Dog, Field(discriminator="kind")]], f"[{CAT}, {DOG}]", lambda seen: seen[-1]),
        (list[Cat] | None, f"[{CAT}]", lambda seen: seen[0]),
        (Mapping[str, Cat], f'{{"Tom": {CAT}}}', lambda seen: seen["Tom"]),
        (tuple[Cat, Dog], f"[{CAT}, {DOG}]", lambda seen: seen[-1]),
        (tuple[Dog, ...], f"[{DOG}, {DOG}]", lambda seen: seen[-1]),
        (Box[Cat], f'{{"inside": {CAT}}}', lambda seen: seen.inside),
    ],
    ids=[
        "either",
        "optional",
        "list of annotated",
        "list of either",
        "optional list",
        "mapping",
        "tuple",
        "long tuple",
        "generic",
    ],
)
async def test_what_is_inside_is_a_value_of_its_type_from_the_first(kind: Any, text: str, find: Any):
    texts = [text[:size] for size in range(len(text) + 1)]
    filled = [find(seen) for part in texts if (seen := parse_partial(kind, part))]
    named = [value for value in filled if value is not None and getattr(value, "name", None)]
    assert {type(value) for value in named} <= {Cat, Dog} and len(named) >= 4
    assert type(named[-1]) is (Cat if '"cat"' in text and '"dog"' not in text else Dog)
    assert find([seen async for seen in stream_typed(FakeModel(says(text)), kind, "Who?")][-1]).name in ("Tom", "Rex")


@tool
def look(city: str) -> int:
    """How often somebody was there."""
    return len(city)


@tool(side_effects=True)
def travel(city: str) -> str:
    """Go there."""
    return "there"


async def test_tools_are_called_before_the_answer_and_their_rounds_are_no_part_of_it():
    model = FakeModel(calls(Call("look", {"city": "Bonn"}, "c1"), text='{"x": 5}'), says('{"x": 4, ', '"y": 0}'))
    seen = [event async for event in stream_typed(model, Point, "How often?", tools=Functions(look))]
    assert model.asked[1].messages[-1].content == "4"
    assert seen[-1] == Point(4, 0)


async def test_what_does_not_fit_is_told():
    with pytest.raises(ModelError, match=r"not a valid Person.*/places/0/times.*greater than or equal to 0"):
        await run_typed(FakeModel(says('{"name": "A", "places": [{"city": "B", "times": -1}]}')), Person, "Who?")
    with pytest.raises(ModelError, match="not a valid Point"):
        await run_typed(FakeModel(says("I do not know.")), Point, "Where?")


async def test_a_call_that_needs_approval_ends_it():
    model = FakeModel(calls(Call("travel", {"city": "Bonn"}, "c1")))
    with pytest.raises(ConfirmationRequired, match="travel has side effects"):
        await run_typed(model, Point, "Go.", tools=Confirmed(Functions(travel)))


async def test_a_request_with_an_output_of_its_own_is_refused():
    with pytest.raises(UsageError, match="the type is the output here"):
        await run_typed(FakeModel(), Point, Request((Message.user("Go."),), output=Output(choices=("a",))))


def test_a_tuple_of_nothing_takes_what_comes():
    assert parse_partial(tuple[()], "[1]") == (1,)
