"""Markdown, shown while it is written: the block that grows is painted over row by row, finished blocks stay as they are."""

import re
from typing import TYPE_CHECKING, ClassVar

from markdown_it import MarkdownIt
from rich.markdown import Heading, Markdown
from rich.syntax import Syntax
from rich.text import Text

from callsmith.cli.terminal.screen import LiveRows, rows_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

_FENCE = re.compile(r"\s*(?P<marks>`{3,}|~{3,})\s*(?P<language>[\w+#.-]*)[^`]*")
_CODE_THEME = "ansi_dark"  # the terminal's own colours


class LeftHeading(Heading):
    """A heading at the left edge, without a box."""

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        self.text.justify = "left"
        self.text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield self.text


class ModelMarkdown(Markdown):
    """Markdown as models write it: tags are text, lines end where the model ended them, and links show where they lead."""

    elements: ClassVar = {**Markdown.elements, "heading_open": LeftHeading}

    def __init__(self, markup: str) -> None:
        super().__init__("", code_theme=_CODE_THEME, hyperlinks=False)
        self.markup = markup
        self.parsed = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).parse(markup)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"


class BlockWriter:
    """Writes text that comes in pieces, block by block. Blocks end at empty lines; the lines of code blocks are shown one by one.

    With a `style` the text is no Markdown: it is shown as it is, in that style, wrapped by words.
    """

    def __init__(self, console: "Console", style: str = "") -> None:
        self._console = console
        self._style = style
        self._live = LiveRows(console)
        self._lines: list[str] = []  # of the block that is not finished
        self._partial = ""  # the line that is not
        self._fence = ""  # of the code block this is in
        self._language = ""
        self._is_spaced = False  # an empty line stands before the next block

    def feed(self, text: str) -> None:
        """Take the next piece."""
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._add(line)
        self._draw()

    def close(self) -> None:
        """Finish the last block."""
        if self._partial:
            self._add(self._partial)
        self._partial = ""
        self._finish()

    def _add(self, line: str) -> None:
        fence = None if self._style else _FENCE.fullmatch(line)
        if self._fence:
            closes = fence is not None and fence["marks"].startswith(self._fence) and not fence["language"]
            self._commit(Text(line, "dim") if closes else self._code(line))
            self._fence = "" if closes else self._fence
        elif fence:
            self._finish()
            self._fence, self._language = fence["marks"], fence["language"]
            self._commit(Text(line, "dim"))
        elif not line.strip():
            self._finish()
            self._is_spaced = True
        else:
            self._lines.append(line)
            if len(self._lines) >= self._console.height and not line.lstrip().startswith("|"):
                self._finish()  # no one sees its beginning any more; a table is kept together

    def _draw(self) -> None:
        if self._fence and self._partial:
            self._show(Text(self._partial))
        elif not self._fence and (self._lines or self._partial.strip()):
            self._show(self._render([*self._lines, self._partial]))

    def _finish(self) -> None:
        if self._lines:
            self._commit(self._render(self._lines))
        self._lines = []

    def _commit(self, content: "RenderableType") -> None:
        self._show(content)
        self._live.commit()
        self._is_spaced = False

    def _show(self, content: "RenderableType") -> None:
        rows = rows_of(self._console, content)
        self._live.show(["", *rows] if self._is_spaced else rows)

    def _render(self, lines: list[str]) -> "RenderableType":
        text = "\n".join(lines).rstrip("\n")
        return Text(text, self._style) if self._style else ModelMarkdown(text)

    def _code(self, line: str) -> Text:
        highlighted = Syntax("", self._language or "text", theme=_CODE_THEME, background_color="default").highlight(line)
        highlighted.rstrip()
        return highlighted
