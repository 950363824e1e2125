"""Markdown that grows on a screen: whatever the pieces, the screen ends the same, and nothing is lost above it."""

import io

import pyte
import pytest
from rich.console import Console

from callsmith.cli.terminal.markdown import BlockWriter

TEXT = """# A title

Some **bold** words and `code`, in a paragraph that is wrapped by words, with <b>tags</b> and [a link](http://x.y/z).
A line of its own.

1. one
2. *two*

3. three

```python
def double(x):

    return x * 2
```
| name | n |
|---|---|
| a | 1 |
| longer | 22 |

- x
  - y
"""

SHOWN = """A title

Some bold words and code, in a
paragraph that is wrapped by words,
with <b>tags</b> and a link
(http://x.y/z).
A line of its own.

 1 one
 2 two

 3 three

```python
def double(x):

    return x * 2
```
 name    n
 ──────────
 a       1
 longer  22

 • x
    • y"""


class Screen(io.StringIO):
    """What a terminal shows of what is written to it."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self.shown = pyte.HistoryScreen(columns, rows, history=5000)
        self.shown.set_mode(pyte.modes.LNM)
        self._stream = pyte.Stream(self.shown)
        self.console = Console(file=self, width=columns, height=rows, force_terminal=True, color_system="standard", _environ={})

    def write(self, text: str) -> int:
        self._stream.feed(text)
        return len(text)

    @property
    def text(self) -> str:
        above = ["".join(row[column].data for column in range(self.shown.columns)) for row in self.shown.history.top]
        return "\n".join(line.rstrip() for line in (*above, *self.shown.display)).strip("\n")


def written(text: str, size: int, *, columns: int = 37, rows: int = 12, style: str = "") -> Screen:
    screen = Screen(columns, rows)
    writer = BlockWriter(screen.console, style)
    for start in range(0, len(text), size):
        writer.feed(text[start : start + size])
    writer.close()
    return screen


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_the_screen_is_the_same_whatever_the_pieces(size: int):
    assert written(TEXT, size).text == SHOWN


@pytest.mark.parametrize("size", [1, 5, 4000])
def test_a_text_that_is_longer_than_the_screen_is_whole_in_the_scrollback(size: int):
    words = [f"word{number}" for number in range(150)]
    assert written(" ".join(words), size).text.split() == words
    items = [f"- item {number}" for number in range(30)]
    assert written("\n".join(items), size).text.split("\n") == [f" • item {number}" for number in range(30)]


def test_only_the_rows_that_change_are_written_again():
    screen = Screen(40, 12)
    writer = BlockWriter(screen.console)
    writer.feed("first row of the paragraph, and then a second one ")
    output = list[str]()
    screen.write = output.append  # type: ignore[method-assign,assignment]
    writer.feed("grows")
    assert "".join(output) == "\rsecond one grows\x1b[J"


def test_a_code_block_that_is_not_closed_ends_with_the_text():
    assert written("```\nx = [1,\n", 3).text == "```\nx = [1,"


def test_thoughts_are_no_markdown():
    assert written("# so *be* it\n\n```\nx", 4, style="dim").text == "# so *be* it\n\n```\nx"


def test_the_same_writer_begins_anew_behind_its_end():
    screen = Screen(37, 12)
    writer = BlockWriter(screen.console)
    for text in ("one", "two"):
        writer.feed(text)
        writer.close()
    assert screen.text.split() == ["one", "two"]
