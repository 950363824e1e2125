"""Toolsets of Messages: one entry of `tools` that stands for many tools, all of which the client runs.

    {"type": "computer_toolset_20260801", "configs": {"zoom": {"enabled": false}}}
    {"type": "tool_use", "id": "t1", "name": "left_click", "toolset_name": "computer", "input": {"coordinate": [3, 4]}}

Two toolsets have tools of the same names, so a model knows them by names with the toolset before them: `computer__left_click`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from callsmith.core.values import Tool
from callsmith.wire.declare.notation import Schema, parse_types
from callsmith.wire.fields import Fields

_COMPUTER: Final = """
type _Point = {coordinate: integer[2..2]}
type _Maybe = {coordinate?: integer[2..2], text?: string}
type key = {text: string, repeat?: integer}  // Press a key, or several at once: ctrl+s.
type hold_key = {text: string, duration: integer}  // Hold a key down for some seconds.
type type = {text: string}  // Type a text.
type cursor_position = {}  // Where the mouse is: x and y.
type mouse_move = {..._Point}  // Move the mouse without a click.
type left_mouse_down = {}  // Press the left mouse button.
type left_mouse_up = {}  // Release the left mouse button.
type left_click = {..._Maybe}  // Click, at a point or where the mouse is; text: keys that are held meanwhile.
type left_click_drag = {start_coordinate: integer[2..2], ..._Point, text?: string}  // Drag from one point to another.
type right_click = {..._Maybe}  // Click with the right mouse button.
type middle_click = {..._Maybe}  // Click with the middle mouse button.
type double_click = {..._Maybe}  // Click twice.
type triple_click = {..._Maybe}  // Click three times.
type scroll = {scroll_direction: "up" | "down" | "left" | "right", scroll_amount: integer, ..._Maybe}  // Scroll.
type wait = {duration: integer}  // Wait for some seconds.
type screenshot = {}  // Look at the screen.
type zoom = {region: integer[4..4]}  // Look at a part of the screen: the x and y of two corners.
"""
_BROWSER: Final = """
type _Tab = {tab_id?: string}
type _Point = {type: "coordinate", x: integer, y: integer}
type _Element = {type: "ref", ref: string}
type _Click = {target: _Point | _Element, modifiers?: string, ..._Tab}
type navigate = {url: string, ..._Tab}  // Open an address, or go back, forward or reload.
type list_tabs = {}  // List the open tabs.
type new_tab = {}  // Open an empty tab.
type switch_tab = {tab_id: string}  // Go to a tab.
type close_tab = {tab_id: string}  // Close a tab.
type read_page = {filter?: "all" | "interactive", depth?: integer, ref?: string, ..._Tab}  // The page's elements.
type get_page_text = {..._Tab}  // The text of the page.
type read_console = {..._Tab}  // What the page has logged.
type read_network = {..._Tab}  // The requests that the page has made.
type find = {query: string, ..._Tab}  // Find elements by a description, with references.
type form_input = {target: _Element, value: string | number | boolean, ..._Tab}  // Fill in a field of a form.
type file_upload = {target: _Element, paths?: string[], document_ids?: string[], ..._Tab}  // Choose files for a field.
type scroll_to = {target: _Element, ..._Tab}  // Scroll an element into view.
type screenshot = {..._Tab}  // Look at the page.
type zoom = {region: integer[4..4], ..._Tab}  // Look at a part of the page: the x and y of two corners.
type left_click = {..._Click}  // Click.
type right_click = {..._Click}  // Click with the right mouse button.
type middle_click = {..._Click}  // Click with the middle mouse button.
type double_click = {..._Click}  // Click twice.
type triple_click = {..._Click}  // Click three times.
type hover = {target: _Point | _Element, ..._Tab}  // Move the mouse over something.
type left_click_drag = {from: _Point, target: _Point, ..._Tab}  // Drag from one point to another.
type left_mouse_down = {target: _Point, ..._Tab}  // Press the left mouse button.
type left_mouse_up = {target: _Point, ..._Tab}  // Release the left mouse button.
type mouse_move = {target: _Point, ..._Tab}  // Move the mouse.
type scroll = {target: _Point, scroll_direction: "up" | "down" | "left" | "right", scroll_amount?: integer, ..._Tab}  // Scroll.
type type = {text: string, ..._Tab}  // Type a text.
type key = {text: string, repeat?: integer, ..._Tab}  // Press a key, or several at once: ctrl+a.
type hold_key = {text: string, duration: number, ..._Tab}  // Hold a key down for some seconds.
type wait = {duration: number, ..._Tab}  // Wait for some seconds.
type javascript_exec = {text: string, ..._Tab}  // Run JavaScript in the page.
"""
# The tools of each toolset, and the schemas of their arguments.
TOOLSETS: Final[Mapping[str, tuple[str, Mapping[str, Schema]]]] = {
    "computer_toolset_20260801": ("computer", parse_types(_COMPUTER)),
    "browser_toolset_20260801": ("browser", parse_types(_BROWSER)),
}


def member_name(toolset: str, name: str) -> str:
    """The name by which the model knows a tool of a toolset."""
    return f"{toolset}__{name}"


def read_toolset(entry: Fields, type: str, *, searches: bool) -> list[Tool]:
    """The tools of a toolset, but those that its `configs` switch off."""
    toolset, members = TOOLSETS[type]
    configs = (entry.object("configs") or Fields({}, entry.at("configs"))).check_keys(members)
    tools: list[Tool] = []
    for name, schema in members.items():
        config = configs.object(name) or Fields({})
        if config.flag("enabled") is not False:
            about, parameters = schema["description"], {key: value for key, value in schema.items() if key != "description"}
            deferred = searches and bool(config.flag("defer_loading"))
            tools.append(Tool(member_name(toolset, name), about, parameters, strict=True, deferred=deferred, kind=type))
    return tools


def members_of(tools: Iterable[Tool]) -> dict[str, tuple[str, str]]:
    """Those of the tools that are of a toolset, by their names: the toolset, and the name there."""
    names = ((tool.name, TOOLSETS[tool.kind][0]) for tool in tools if tool.kind in TOOLSETS)
    return {name: (toolset, name.removeprefix(member_name(toolset, ""))) for name, toolset in names}


def read_browser_state(block: Fields) -> str:
    """What a browser's state says, for the model."""
    tabs = [
        f"- {tab.text('tab_id')}: {tab.text('title')} ({tab.text('url')}){', active' if tab.flag('active') else ''}"
        for tab in block.objects("tabs")
    ]
    changes = [" ".join(str(value) for value in change.data.values()) for change in block.objects("state_changes")]
    return "\n".join(["Open tabs:", *tabs, *(f"Changed: {change}" for change in changes)])
