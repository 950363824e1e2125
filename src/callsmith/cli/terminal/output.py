"""What commands print. Much of it was written by others: models, servers, files. A terminal shows it, and obeys none of it."""

import logging
from typing import TYPE_CHECKING, Any

import typer

from callsmith.core.types.escaped_text import in_json, one_line, show_hidden

if TYPE_CHECKING:
    from rich.text import Text

_LONGEST_CELL = 1000


def echo(line: object = "", *, err: bool = False, nl: bool = True, fg: str | None = None) -> None:
    """Print a line; in a colour, if there is one."""
    typer.secho(one_line(str(line)), err=err, nl=nl, fg=fg)


def echo_lines(text: str, *, err: bool = False, nl: bool = True, fg: str | None = None) -> None:
    """Print a text of several lines."""
    typer.secho(show_hidden(text), err=err, nl=nl, fg=fg)


def echo_json(value: Any) -> None:
    """Print a JSON document."""
    echo_lines(in_json(value, 2))


def print_table(heads: tuple[str, ...], lines: "list[tuple[str | Text, ...]]") -> None:
    """Print a table; where the terminal is too narrow for it, each row as a name and what belongs to it below."""
    from rich import box
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for head in heads:
        table.add_column(_cell(head))
    rows = [tuple(map(_cell, line)) for line in lines]
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    if console.measure(table, options=console.options.update(width=10_000)).maximum <= console.width:
        console.print(table)
        return
    for name, *cells in rows:
        console.print(name, soft_wrap=True)
        below = "; ".join(f"{head}: {cell}" for head, cell in zip(heads[1:], cells, strict=True) if str(cell))
        console.print(Padding(one_line(below), (0, 0, 0, 2)), markup=False)


def _cell(text: "str | Text") -> "Text":
    from rich.text import Text

    if isinstance(text, str):
        return Text(one_line(text, _LONGEST_CELL))
    cell = text.copy()
    cell.plain = one_line(text.plain, _LONGEST_CELL)
    return cell


class _TerminalFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return show_hidden(super().format(record)).replace("\n", "\n  ")


def guard_warnings() -> None:
    """Escape what is logged where nothing else was set up: Python prints warnings to standard error."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_TerminalFormatter())
