"""Calls in `/v1/responses` of tools that are no functions, and what came of them, as items.

    {"type": "custom_tool_call", "call_id": "call_1", "name": "apply_patch", "input": "*** Begin Patch\\n…"}
    {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Done."}
    {"type": "shell_call", "call_id": "call_2", "action": {"commands": ["ls"]}, "status": "completed"}
    {"type": "shell_call_output", "call_id": "call_2", "output": [{"stdout": "a.txt", "stderr": "", "outcome": {…}}]}

A model reads and writes them as calls of a tool with the arguments of its kind (`wire/kinds`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from callsmith.core.values import Call, Json, Message
from callsmith.wire.calls import read_arguments
from callsmith.wire.fields import Fields
from callsmith.wire.images import ContentBuilder, read_image_part
from callsmith.wire.kinds.custom import CUSTOM, INPUT, custom_call, read_input
from callsmith.wire.kinds.table import CALL_ITEMS, ToolKind
from callsmith.wire.openai.chat import read_message

CUSTOM_ITEM = "custom_tool_call"
OUTPUT_ITEMS = frozenset(f"{item}_output" for item in CALL_ITEMS)


def read_kind_call(item: Fields, id: str) -> Call:
    """The call in an item of one of these kinds."""
    kinds = CALL_ITEMS[item.required_text("type")]
    if kinds[0].item == CUSTOM_ITEM:
        return custom_call(item.required_text("name"), item.text(INPUT) or "", id)
    names = [name for kind in kinds for name in (kind.parameters or {})["properties"]]
    fields = item.required_object(kinds[0].under) if kinds[0].under else item
    return Call(kinds[0].name, {name: fields.get(name) for name in names if fields.get(name) is not None}, id)


@dataclass(slots=True)
class WaitingCall:
    """A call that becomes an item when all of its arguments are there."""

    kind: ToolKind
    id: str
    pieces: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def write_item(self) -> dict[str, Json] | None:
        """The item, or None if the arguments are not complete."""
        kind, arguments = self.kind, read_arguments(self.text)
        if arguments is None:
            return None
        fields = {**kind.constants, **arguments}
        return {"type": kind.item, "call_id": self.id, **({kind.under: fields} if kind.under else fields), **kind.beside}


def write_custom_call(name: str, id: str, text: str) -> dict[str, Json]:
    return {"type": CUSTOM_ITEM, "call_id": id, "name": name, INPUT: text}


def write_call(call: Call, kind: str) -> dict[str, Json]:
    """The item of a call in a history: of a custom tool, or of a function."""
    if kind == CUSTOM:
        return write_custom_call(call.name, call.id, read_input(call.text))
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.text}


def read_kind_output(item: Fields) -> Message:
    """The result of a call, as a tool's message."""
    match item.text("type"):
        case "shell_call_output":
            return Message("tool", "\n".join(_read_command(command) for command in item.objects("output")))
        case "computer_call_output":
            built = ContentBuilder()
            built.add_image(*read_image_part(item.required_object("output")))
            return built.message("tool")
        case "apply_patch_call_output":
            failed = item.text("status") == "failed"
            text = item.text("output") or ("it failed" if failed else "Done.")
            return Message("tool", f"Error: {text}" if failed else text)
        case _:
            return read_message(item, "tool", "output")


def _read_command(command: Fields) -> str:
    """What a command has written, and how it ended, unless all went well."""
    outcome = command.object("outcome") or Fields({})
    code = outcome.integer("exit_code")
    end = "timed out" if outcome.text("type") == "timeout" else f"exit code: {code}" if code else ""
    said = [command.text("stdout") or "", command.text("stderr") or "", end]
    return "\n".join(text.rstrip("\n") for text in said if text) or "exit code: 0"


def output_call_id(item: Mapping[str, Json]) -> str:
    """The call that an output is about: some have it as their own id."""
    return item.get("call_id") or item.get("id") or ""
