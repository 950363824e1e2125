"""The blocks of code in the README and in docs/, and the commands in those that show a terminal."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))

_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```[ ]*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code: the page and line it stands at, and its language."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """The blocks of all pages, or those of some languages."""
    return [block for page in PAGES for block in _blocks_of(page) if not languages or block.language in languages]


def _blocks_of(page: Path) -> Iterator[Block]:
    text, name = page.read_text("utf-8"), page.relative_to(ROOT).as_posix()
    for match in _FENCE.finditer(text):
        indent, language, body = match.groups()
        yield Block(name, text.count("\n", 0, match.start()) + 1, language, re.sub(f"^{indent}", "", body, flags=re.MULTILINE))


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a block: its words, without variables before it and whatever follows in a pipe."""

    block: Block
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.block}-{' '.join(self.words[:3])}"


def commands() -> list[Command]:
    """Every command in a block that shows a terminal."""
    return [command for block in blocks("console") for command in _commands_of(block)]


def mentioned_commands() -> list[Command]:
    """Commands of callsmith in the middle of a sentence, where not all of their arguments need be there."""
    listed: list[Command] = []
    for page in PAGES:
        text = _FENCE.sub(lambda block: "\n" * block[0].count("\n"), page.read_text("utf-8"))
        for match in re.finditer(r"`(callsmith [^`]+)`", text):
            line = text.count("\n", 0, match.start()) + 1
            listed += _commands_of(Block(page.relative_to(ROOT).as_posix(), line, "console", match[1].replace("\n", " ")))
    return listed


def _commands_of(block: Block) -> Iterator[Command]:
    prompts = block.text.startswith("$ ")
    for line in re.sub(r"\\\n", " ", _joined(block.text)).splitlines():
        if prompts and not line.startswith("$ "):
            continue  # what the command prints
        for part in _parts(line.removeprefix("$ ")):
            words = [word for word in part if word != "&"]
            while words and re.match(r"[A-Z_]+=", words[0]):
                del words[0]
            if words:
                words[0] = words[0].removeprefix(".venv/bin/")
                yield Command(block, tuple(words))


def _joined(text: str) -> str:
    """The text with quoted strings that go over several lines on one."""
    return re.sub(r"'[^'\n]*(?:\n[^']*)'", lambda match: match[0].replace("\n", " ") if "{" in match[0] else match[0], text)


def _parts(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>&;")
    lexer.whitespace_split = True
    part: list[str] = []
    redirected = False
    for word in lexer:
        if set(word) <= set("|&;"):
            yield part
            part, redirected = [], False
        elif set(word) <= set("<>"):
            redirected = True
        elif redirected:
            redirected = False
        else:
            part.append(word)
    yield part


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What a curl command sends."""

    method: str
    path: str
    headers: dict[str, str]
    body: str | None


def curl_request(command: Command) -> HttpRequest:
    """The request of a curl command; an option that is not known here is an error."""
    headers, body, address, method = dict[str, str](), None, "", ""
    words = iter(command.words[1:])
    for word in words:
        if word == "-H":
            name, _, value = next(words).partition(":")
            headers[name] = value.strip().replace("…", "x")
        elif word == "-d":
            body = next(words)
        elif word == "-X":
            method = next(words)
        else:
            assert not address and (not word.startswith("-") or word in ("-N", "-s")), f"{command}: what is {word}?"
            address = address if word in ("-N", "-s") else word
    path = "/" + address.removeprefix("http://").partition("/")[2]
    return HttpRequest(method or ("POST" if body else "GET"), path, headers, body)
