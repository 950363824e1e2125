"""Tools built by hand."""

from typing import Any

import pytest
from pydantic import BaseModel

from callsmith.core.errors import UsageError
from callsmith.core.ports import Context
from callsmith.core.values import Call, Tool
from callsmith.tools.define import array, boolean, define, enum, integer, number, object_, string
from callsmith.tools.functions import Function, Functions

from .contract import outcome


class Guests(BaseModel):
    adults: int
    children: int = 0


@pytest.mark.req("R2")
@pytest.mark.req("R209")
@pytest.mark.req("R3")
@pytest.mark.req("R4")
def test_a_tool_can_be_built_by_hand():
    definition = (
        define("weather")
        .description("The weather.")
        .parameter("city", string(minLength=1), "Where")
        .parameter("unit", enum(["celsius", "fahrenheit"]), required=False)
        .parameter("days", integer("How many"), required=False)
        .parameter("where", object_({"lat": number(), "lon": number()}), required=False)
        .parameter("tags", array(string()), required=False)
        .parameter("exact", boolean(), required=False)
        .parameter("guests", Guests, required=False)
        .option(side_effects=True)
        .build()
    )
    assert (definition.name, definition.description, definition.side_effects) == ("weather", "The weather.", True)
    assert definition.parameters["required"] == ["city"]
    assert definition.parameters["properties"] == {
        "city": {"type": "string", "minLength": 1, "description": "Where"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "description": "How many"},
        "where": {
            "type": "object",
            "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
            "required": ["lat", "lon"],
        },
        "tags": {"type": "array", "items": {"type": "string"}},
        "exact": {"type": "boolean"},
        "guests": {
            "type": "object",
            "properties": {"adults": {"type": "integer"}, "children": {"type": "integer", "default": 0}},
            "required": ["adults"],
        },
    }


@pytest.mark.req("R3")
def test_required_can_be_said_at_once_and_only_of_what_exists():
    definition = define("f").parameter("a").parameter("b").required(["b"])
    assert definition.build().parameters["required"] == ["b"]
    with pytest.raises(UsageError, match="'c'"):
        definition.required(["c"])
    with pytest.raises(UsageError, match="two parameters"):
        definition.parameter("a")


def test_types_that_refer_to_their_own_definitions_still_resolve_in_the_whole():
    class Tree(BaseModel):
        children: list["Tree"] = []

    definition = define("f").parameter("tree", Tree).build()
    assert "Tree" in definition.parameters["$defs"]


@pytest.mark.req("R150")
async def test_a_tool_defined_by_hand_can_be_run_by_a_function():
    def handler(**arguments: Any) -> Any:
        return arguments

    declared = define("echo").parameter("x", integer()).build()
    toolset = Functions(Function.of(handler, declared))
    assert list(await toolset.tools()) == [declared]
    _, result = await outcome(toolset.call(Call("echo", {"x": 1}, "c"), Context()))
    assert result.content == {"x": 1}


@pytest.mark.req("R19")
def test_a_tool_is_built_in_a_breath_with_the_names_of_types_and_everything_in_its_place():
    definition = (
        define("get_weather", "Get weather for a location")
        .param("location", "string", "City name", True)
        .param("unit", "string", "Temperature unit", False)
        .build()
    )
    assert definition == Tool(
        "get_weather",
        "Get weather for a location",
        {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "City name"},
                "unit": {"type": "string", "description": "Temperature unit"},
            },
            "required": ["location"],
        },
    )
    with pytest.raises(UsageError, match=r"type of JSON.*'strin'.*string"):
        define("get_weather").param("location", "strin")


def test_types_of_the_same_name_keep_their_own_definitions():
    def order() -> tuple[type, type]:
        class Item(BaseModel):
            name: str
            parts: list["Item"] = []

        class Order(BaseModel):
            item: Item

        return Item, Order

    def trip() -> type:
        class Item(BaseModel):
            weight: float

        class Trip(BaseModel):
            items: list[Item]

        return Trip

    _, first = order()
    built = define("both").parameter("a", first).parameter("b", trip()).parameter("c", first).build()
    definitions = built.parameters["$defs"]
    a, b, c = (built.parameters["properties"][name]["properties"] for name in "abc")
    assert a["item"] == c["item"] == {"$ref": "#/$defs/Item"} and b["items"]["items"] == {"$ref": "#/$defs/Item_of_b"}
    assert set(definitions["Item"]["properties"]) == {"name", "parts"} and set(definitions["Item_of_b"]["properties"]) == {
        "weight"
    }
    assert definitions["Item"]["properties"]["parts"]["items"] == {"$ref": "#/$defs/Item"}
