"""The cases of the benchmark as ours: its types as JSON Schema, its names as APIs allow them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from callsmith.core.errors import UnknownName
from callsmith.core.values import Json, Message, Tool
from callsmith.evals.cases.case import Case, Expect, Turn, World

NON_LIVE: Final = ("simple_python", "multiple", "parallel", "parallel_multiple")
LIVE: Final = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple")
NO_CALL: Final = ("irrelevance", "live_irrelevance")
ANY_CALL: Final = ("live_relevance",)
MULTI_TURN: Final = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
SINGLE_TURN: Final = (*NON_LIVE, *LIVE, *NO_CALL, *ANY_CALL)
# What categories are reported together; the benchmark's own sums weigh some of them twice.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "non-live AST": NON_LIVE,
    "live AST": LIVE,
    "irrelevance": NO_CALL,
    "relevance": ANY_CALL,
    "multi-turn": MULTI_TURN,
}
_TYPES: Final = {
    **dict.fromkeys(("integer", "byte", "short", "long", "Bigint"), "integer"),
    **dict.fromkeys(("number", "float", "double"), "number"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("array", "list", "tuple", "ArrayList", "Array", "Queue", "Stack"), "array"),
    **dict.fromkeys(("dict", "object", "HashMap", "Hashtable"), "object"),
}
_LANGUAGE: Final = " Note that the provided function is in Python 3 syntax."  # the benchmark's own words, and so are these
_FLOAT: Final = " This is a float type value."
_MORE_TOOLS: Final = "I have updated some more functions you can choose from. What about now?"
_DOCUMENTS: Final = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}


def load_cases(folder: Path, categories: Iterable[str] = SINGLE_TURN) -> list[Case]:
    """The cases of these categories, out of the folder that was fetched."""
    data, cases = folder / "bfcl_eval" / "data", list[Case]()
    for category in categories:
        if category not in SINGLE_TURN and category not in MULTI_TURN:
            raise UnknownName("category", category, (*SINGLE_TURN, *MULTI_TURN), field="categories")
        answers = data / "possible_answer" / f"BFCL_v4_{category}.json"
        gold = {row["id"]: row["ground_truth"] for row in _rows(answers)} if answers.is_file() else {}
        for row in _rows(data / f"BFCL_v4_{category}.json"):
            right = gold.get(row["id"], [])
            cases.append(
                _conversation(row, category, right, data) if category in MULTI_TURN else read_question(row, category, right)
            )
    return cases


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line.strip()]


def read_question(row: Mapping[str, Any], category: str, answers: Any = ()) -> Case:
    """A question of one turn, as a line of the benchmark's files has it."""
    expect: Expect = "no_call" if category in NO_CALL else "any_call" if category in ANY_CALL else "calls"
    functions = cast("list[dict[str, Json]]", row["function"])
    turn = Turn(_messages(row["question"][0]), tuple(map(to_tool, functions)))
    return Case(row["id"], category, (turn,), expect, answers=answers, functions=functions)


def _conversation(row: Mapping[str, Any], category: str, gold: Any, data: Path) -> Case:
    """A conversation. Tools that are missing at first become known in the turn in which the user says so."""
    documents = [document for name in row["involved_classes"] for document in _documents(data, name)]
    missing: dict[str, Any] = row.get("missed_function") or {}
    held_back = {name for names in missing.values() for name in names}
    turns: list[Turn] = []
    for number, question in enumerate(row["question"]):
        new = missing.get(str(number), ())
        offered = [
            document for document in documents if (document["name"] in new if number else document["name"] not in held_back)
        ]
        messages = _messages(question) or (Message.user(_MORE_TOOLS),)
        turns.append(Turn(messages, tuple(map(to_tool, offered)) if number == 0 or new else ()))
    world = World(row["id"], tuple(row["involved_classes"]), row["initial_config"], tuple(map(tuple, gold)))
    return Case(row["id"], category, tuple(turns), world=world)


def _documents(data: Path, name: str) -> list[dict[str, Any]]:
    return _rows(data / "multi_turn_func_doc" / f"{_DOCUMENTS[name]}.json")


def _messages(rows: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    return tuple(Message(row["role"], row["content"]) for row in rows)


def to_tool(function: Mapping[str, Any]) -> Tool:
    """A function of the benchmark as a tool, as the benchmark itself shows it to models behind an API."""
    parameters = function["parameters"]
    properties = {name: _schema(declared) for name, declared in parameters["properties"].items()}
    kept = {key: value for key, value in parameters.items() if key != "optional"}
    schema = {**kept, "type": "object", "properties": properties}
    return Tool(function["name"].replace(".", "_"), function["description"] + _LANGUAGE, schema)


def _schema(value: Mapping[str, Any]) -> dict[str, Any]:
    """A schema in JSON Schema's types. What it has no word for is a string."""
    schema = {key: item for key, item in value.items() if key != "optional"}
    kind = value.get("type")
    schema["type"] = _TYPES.get(kind or "", "string")
    if kind == "float":
        schema["format"] = "float"
        schema["description"] = value.get("description", "") + _FLOAT
    if isinstance(value.get("properties"), dict):
        schema["properties"] = {name: _schema(inner) for name, inner in value["properties"].items()}
    if isinstance(value.get("items"), dict):
        schema["items"] = _schema(value["items"])
    return schema
