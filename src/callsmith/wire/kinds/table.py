"""The kinds of tools that requests may have besides functions: what a model is shown of them, and who runs them.

The types of arguments are written as in `declare/notation.py`; what stands behind them is what the model reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from callsmith.core.values import Json, Schema
from callsmith.wire.declare.notation import parse_types
from callsmith.wire.fields import Fields
from callsmith.wire.kinds.custom import CUSTOM
from callsmith.wire.kinds.toolsets import TOOLSETS

SEARCH_ITEM: Final = "tool_search_call"

Api: TypeAlias = Literal["chat", "responses", "messages", "ollama"]
Runner: TypeAlias = Literal["client", "server", "vendor", "nobody"]

_ARGUMENTS: Final = parse_types("""
type LocalShell = {
    command: string[1..256]  // The program and its arguments.
    env?: map<string>  // Environment variables.
    timeout_ms?: integer, user?: string, working_directory?: string
}
type Shell = {
    commands: string[1..64]  // Shell commands, which run at the same time.
    timeout_ms?: integer
    max_output_length?: integer  // How many characters of each command's output are wanted.
}
type _Diff = {path: string, diff: string}
type ApplyPatch = {
    operation:
        | {type: "create_file", path: string, diff: string}
        | {type: "update_file", path: string, diff: string}
        | {type: "delete_file", path: string}
}
type ToolSearch = {query: string}
type _Place = {x: integer, y: integer}
type _Keys = {keys?: string[]}
type _Action =
    | {type: "click", button: "left" | "right" | "wheel" | "back" | "forward", ..._Place, ..._Keys}
    | {type: "double_click", ..._Place, ..._Keys}
    | {type: "drag", path: _Place[], ..._Keys}
    | {type: "keypress", keys: string[]}
    | {type: "move", ..._Place, ..._Keys}
    | {type: "screenshot"}
    | {type: "scroll", ..._Place, scroll_x: integer, scroll_y: integer, ..._Keys}
    | {type: "type", text: string}
    | {type: "wait"}
type ComputerPreview = {action: _Action}
type Computer = {actions: _Action[1..64]}
type Bash = {
    command: string  // What the shell runs.
    restart?: boolean  // true: the shell is started anew, and the command is not run.
}
type _Edit = {
    path: string  // Of a file or a folder.
    view_range?: integer[2..2]  // For view: the first and the last line, from 1; -1 is the last one of the file.
    file_text?: string  // For create: the content.
    old_str?: string  // For str_replace: the text that is replaced, which must be there exactly once.
}
type OlderEditor = {
    command: "view" | "create" | "str_replace" | "insert" | "undo_edit", ..._Edit
    new_str?: string  // For str_replace: the text in its place. For insert: the text.
    insert_line?: integer  // For insert: the line behind which the text goes, 0: the beginning.
}
type Editor = {
    command: "view" | "create" | "str_replace" | "insert", ..._Edit
    new_str?: string  // For str_replace: the text in its place.
    insert_line?: integer  // For insert: the line behind which the text goes, 0: the beginning.
    insert_text?: string  // For insert: the text.
}
type Memory = {
    command: "view" | "create" | "str_replace" | "insert" | "delete" | "rename"
    path?: string  // Below /memories; for rename: old_path and new_path.
    view_range?: integer[2..2], file_text?: string, old_str?: string, new_str?: string
    insert_line?: integer, insert_text?: string, old_path?: string, new_path?: string
}
type _Screen = {
    coordinate?: integer[2..2]  // x and y, in pixels from the upper left corner.
    text?: string  // For type: the text. For key and hold_key: the keys, like ctrl+s.
}
type OldestScreen = {
    action: "key" | "type" | "mouse_move" | "left_click" | "left_click_drag" | "right_click" | "middle_click" | "double_click"
        | "screenshot" | "cursor_position"
    ..._Screen
}
type _Newer = {
    ..._Screen
    start_coordinate?: integer[2..2]  // For left_click_drag: where it begins.
    duration?: number  // For hold_key and wait: seconds.
    scroll_direction?: "up" | "down" | "left" | "right", scroll_amount?: integer
}
type OlderScreen = {
    action: "key" | "type" | "mouse_move" | "left_click" | "left_click_drag" | "right_click" | "middle_click" | "double_click"
        | "triple_click" | "left_mouse_down" | "left_mouse_up" | "scroll" | "hold_key" | "wait" | "screenshot" | "cursor_position"
    ..._Newer
}
type Screen = {
    action: "key" | "type" | "mouse_move" | "left_click" | "left_click_drag" | "right_click" | "middle_click" | "double_click"
        | "triple_click" | "left_mouse_down" | "left_mouse_up" | "scroll" | "hold_key" | "wait" | "screenshot" | "cursor_position"
        | "zoom"
    ..._Newer
    region?: integer[4..4]  // For zoom: the x and y of two corners.
}
""")

# What numbers of these names may be: a small model would write any.
_LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "timeout_ms": (1, 3_600_000),
    "max_output_length": (1, 1_000_000),
    "x": (0, 100_000),
    "y": (0, 100_000),
    "insert_line": (0, 10_000_000),
}


def _add_limits(schema: Json) -> None:
    for name, part in schema.get("properties", {}).items():
        if name in _LIMITS:
            part["minimum"], part["maximum"] = _LIMITS[name]
        for inner in (part, part.get("items", {}), *part.get("anyOf", ()), *part.get("items", {}).get("anyOf", ())):
            _add_limits(inner)


for _schema in _ARGUMENTS.values():
    _add_limits(_schema)


@dataclass(frozen=True, slots=True)
class ToolKind:
    """A kind of tool.

    `types` are what requests call it; one that ends with "_" stands for all that begin with it. `name` is what the tool is
    called, where a request does not say, and `about` what it does, for the model. `runner` is who runs it: what a `vendor` runs
    is refused, and `why` is what to do instead; what `nobody` runs would be the vendor's, but clients send it whether it is
    wanted or not, and so it is left out. `when`: only an entry that has this field with this value is of the kind. Calls of it
    are items of the type `item` in Responses; `under` is the field that has the arguments there, empty if they are fields of the
    item themselves; `constants` are what arguments have besides, and `beside` what the item has.
    """

    types: tuple[str, ...]
    apis: tuple[Api, ...]
    runner: Runner
    name: str = ""
    about: str = ""
    parameters: Schema | None = None
    why: str = ""
    when: tuple[str, Json] | None = None
    item: str = ""
    under: str = ""
    constants: Mapping[str, Json] = field(default_factory=dict[str, Json])
    beside: Mapping[str, Json] = field(default_factory=dict[str, Json])

    def fits(self, entry: Fields, type: str) -> bool:
        """Whether an entry of this type is of this kind."""
        return self.has(type) and (self.when is None or entry.get(self.when[0]) == self.when[1])

    def has(self, type: str) -> bool:
        return any(type.startswith(known) if known.endswith("_") else type == known for known in self.types)


_SEARCH = "give the server a tool that searches, for instance of an MCP server, or leave it out"
_CODE = "offer a tool of your own that runs code, or leave it out"
_FILES = "give the server a tool that reads your files, for instance of an MCP server, or leave it out"
_DIFF = "Change a file, create one or delete one. In a diff, '@@' begins a section, and its lines begin with ' ', '+' or '-'."
_EDIT = "View, create and edit files."
_SCREEN = "Use a computer: look at its screen, move and click the mouse, and type."

KINDS: Final = (
    ToolKind((CUSTOM,), ("chat", "responses"), "client", item="custom_tool_call"),
    ToolKind(
        ("local_shell",),
        ("responses",),
        "client",
        "local_shell",
        "Run a program on the user's computer.",
        _ARGUMENTS["LocalShell"],
        item="local_shell_call",
        under="action",
        constants={"type": "exec", "env": {}},
    ),
    ToolKind(
        ("shell",),
        ("responses",),
        "client",
        "shell",
        "Run shell commands on the user's computer.",
        _ARGUMENTS["Shell"],
        item="shell_call",
        under="action",
    ),
    ToolKind(("apply_patch",), ("responses",), "client", "apply_patch", _DIFF, _ARGUMENTS["ApplyPatch"], item="apply_patch_call"),
    *(
        ToolKind(
            (type,),
            ("responses",),
            "client",
            "computer",
            _SCREEN,
            _ARGUMENTS[arguments],
            item="computer_call",
            beside={"pending_safety_checks": []},
        )
        for type, arguments in (("computer", "Computer"), ("computer_use_preview", "ComputerPreview"))
    ),
    ToolKind(("bash_20241022", "bash_20250124"), ("messages",), "client", "bash", "Run commands in a shell.", _ARGUMENTS["Bash"]),
    ToolKind(
        ("text_editor_20241022", "text_editor_20250124"),
        ("messages",),
        "client",
        "str_replace_editor",
        _EDIT,
        _ARGUMENTS["OlderEditor"],
    ),
    ToolKind(
        ("text_editor_20250429", "text_editor_20250728"),
        ("messages",),
        "client",
        "str_replace_based_edit_tool",
        _EDIT,
        _ARGUMENTS["Editor"],
    ),
    ToolKind(
        ("memory_20250818",),
        ("messages",),
        "client",
        "memory",
        "Keep notes in files below /memories, which last longer than this conversation: view them before you begin.",
        _ARGUMENTS["Memory"],
    ),
    ToolKind(("computer_20241022",), ("messages",), "client", "computer", _SCREEN, _ARGUMENTS["OldestScreen"]),
    ToolKind(("computer_20250124",), ("messages",), "client", "computer", _SCREEN, _ARGUMENTS["OlderScreen"]),
    ToolKind(("computer_20251124",), ("messages",), "client", "computer", _SCREEN, _ARGUMENTS["Screen"]),
    ToolKind(tuple(TOOLSETS), ("messages",), "client"),
    ToolKind(("namespace",), ("responses",), "client"),
    ToolKind(("mcp",), ("responses",), "server"),
    ToolKind(("mcp_toolset",), ("messages",), "server"),
    ToolKind(
        ("tool_search",),
        ("responses",),
        "client",
        "tool_search",
        "Find tools by what they do: those that are found can be called afterwards.",
        _ARGUMENTS["ToolSearch"],
        when=("execution", "client"),
        item=SEARCH_ITEM,
        under="arguments",
        beside={"execution": "client"},
    ),
    ToolKind(("tool_search",), ("responses",), "server"),
    ToolKind(
        ("tool_search_tool_bm25", "tool_search_tool_regex", "tool_search_tool_bm25_", "tool_search_tool_regex_"),
        ("messages",),
        "server",
    ),
    ToolKind(("web_search", "web_search_2025_08_26"), ("responses",), "nobody", when=("external_web_access", False)),
    ToolKind(
        ("web_search", "web_search_2025_08_26"),
        ("responses",),
        "vendor",
        why=f'{_SEARCH} (in Codex: web_search = "disabled")',
    ),
    ToolKind(("web_search_preview", "web_search_preview_"), ("responses",), "vendor", why=_SEARCH),
    ToolKind(("web_search", "web_search_"), ("chat",), "vendor", why=_SEARCH),
    ToolKind(("file_search",), ("chat", "responses"), "vendor", why=_FILES),
    ToolKind(("code_interpreter",), ("chat", "responses"), "vendor", why=_CODE),
    ToolKind(("programmatic_tool_calling",), ("chat", "responses"), "vendor", why="leave it out: tools are called one by one"),
    ToolKind(("image_generation",), ("chat", "responses"), "vendor", why="leave it out: models here write text"),
    ToolKind(("web_search_",), ("messages",), "vendor", why=_SEARCH),
    ToolKind(("web_fetch_",), ("messages",), "vendor", why="offer a tool of your own that fetches pages, or leave it out"),
    ToolKind(("code_execution_",), ("messages",), "vendor", why=_CODE),
    ToolKind(("advisor_",), ("messages",), "vendor", why="leave it out: it asks another of its vendor's models"),
)
# The kinds whose calls are items of a type of their own, by that type; searches for tools are read elsewhere.
CALL_ITEMS: Final[Mapping[str, list[ToolKind]]] = {
    item: [kind for kind in KINDS if kind.item == item]
    for item in dict.fromkeys(kind.item for kind in KINDS)
    if item and item != SEARCH_ITEM
}
