"""vLLM's and SGLang's own readers of streamed calls, without their engines, where `make rivals` has put their modules.

They get what their interfaces want: SGLang's the next piece, vLLM's also the whole text and all token ids so far. Markers that
are special tokens of the models that write them come in one piece, with an id of their own.
"""

import contextlib
import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol
from unittest.mock import MagicMock

from callsmith.core.values import Tool
from callsmith.formats.algebra import Format, is_strong
from callsmith.formats.reader.markers import compile_markers

RIVALS = Path(__file__).parents[1] / ".venv-rivals"
Found = list[tuple[str, Any]]  # calls: their names and arguments


@dataclass(frozen=True, slots=True)
class OtherReader:
    """How somebody else reads answers in one format: in pieces as they come, and whole."""

    streamed: Callable[[Sequence[str]], Found]
    whole: Callable[[str], Found]


class OtherReaders(Protocol):
    """Somebody else's readers, by format."""

    name: str

    def reader_of(self, format: Format) -> OtherReader | None:
        """What reads answers in this format; None where there is nothing."""
        ...


def other_readers(tool: Tool) -> Iterator[OtherReaders]:
    """Those that can be imported; what is missing is said."""
    if str(RIVALS) not in sys.path:
        sys.path.append(str(RIVALS))
    for kind in (_VLLM, _SGLang):  # this order: torch, which vLLM imports, is misled by the triton that stands in for SGLang
        try:
            reader = _StandIns().around(partial(kind, tool))
        except Exception as missing:  # half of an installation fails in many ways
            print(f"\n{kind.name}: not installed ({missing}); make rivals fetches it")
        else:
            yield reader


class _StandIns(MetaPathFinder, Loader):
    """Empty modules in place of those that are not installed: engines need them, and readers of text do not."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def around(self, work: Callable[[], OtherReaders]) -> OtherReaders:
        """Do this, and again with a stand-in for each module that turns out to be missing."""
        sys.meta_path.append(self)
        while True:
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    return work()
            except ModuleNotFoundError as missing:
                name = (missing.name or "").split(".")[0]
                if not name or name in self._names or name in ("vllm", "sglang", "torch", "transformers"):
                    raise
                self._names.add(name)
                for loaded in [module for module in sys.modules if module.split(".")[0] == "sglang"]:
                    del sys.modules[loaded]  # what was half imported is begun anew

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.split(".")[0] in self._names else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module: Any = ModuleType(spec.name)
        module.__getattr__ = lambda name: MagicMock() if not name.startswith("__") else _no(name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


def _no(name: str) -> Any:
    raise AttributeError(name)


def specials_of(format: Format) -> list[str]:
    """The markers of a format that are special tokens of models, the longest first."""
    markers = {text for text in compile_markers(format).text_stops.texts if is_strong(text)}
    whole = {text for text in markers if text[0] in "<[" and text[-1] in ">]" and " " not in text and "=" not in text}
    return sorted(whole, key=len, reverse=True)


def in_tokens(format: Format, text: str, chunk: int) -> list[str]:
    """The text in pieces: special tokens whole, the rest so many characters at a time."""
    specials = specials_of(format)
    parts = re.split(f"({'|'.join(map(re.escape, specials))})", text) if specials else [text]
    return [
        piece
        for part in parts
        for piece in ([part] if part in specials else [part[at : at + chunk] for at in range(0, len(part), chunk)])
    ]


class _SGLang:
    name = "SGLang"

    def __init__(self, tool: Tool) -> None:
        from sglang.srt.entrypoints.openai.protocol import Tool as Declared  # pyright: ignore
        from sglang.srt.function_call.function_call_parser import FunctionCallParser  # pyright: ignore

        logging.getLogger("sglang").setLevel(logging.CRITICAL)
        self._parser: Any = FunctionCallParser
        self._tools = [Declared(**_declared(tool))]

    def reader_of(self, format: Format) -> OtherReader | None:
        name = _known(format, self._parser.ToolCallParserEnum)
        return OtherReader(partial(self._streamed, name), partial(self._whole, name)) if name else None

    def _streamed(self, name: str, pieces: Sequence[str]) -> Found:
        parser, calls = self._parser(self._tools, name), _Calls()
        for piece in pieces:
            self._add(calls, parser.parse_stream_chunk(piece)[1])
        self._add(calls, parser.parse_stream_end()[1])
        return calls.found()

    def _whole(self, name: str, text: str) -> Found:
        _, results = self._parser(self._tools, name).parse_non_stream(text)
        return [(call.name, _value(call.parameters)) for call in results]

    def _add(self, calls: "_Calls", results: Any) -> None:
        for call in results:
            calls.add(call.tool_index, call.name, call.parameters)


class _VLLM:
    name = "vLLM"

    def __init__(self, tool: Tool) -> None:
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest  # pyright: ignore
        from vllm.tool_parsers import ToolParserManager  # pyright: ignore

        logging.disable(logging.CRITICAL)
        message = [{"role": "user", "content": "Hi"}]
        self._request: Any = ChatCompletionRequest(model="m", messages=message, tools=[_declared(tool)])
        self._manager: Any = ToolParserManager

    def reader_of(self, format: Format) -> OtherReader | None:
        name = _known(format, self._manager.list_registered())
        if name is None:
            return None
        kind, tokenizer = self._manager.get_tool_parser(name), _Tokenizer(specials_of(format))
        return OtherReader(partial(self._streamed, kind, tokenizer), partial(self._whole, kind, tokenizer))

    def _streamed(self, kind: Any, tokenizer: "_Tokenizer", pieces: Sequence[str]) -> Found:
        parser, calls = kind(tokenizer, self._request.tools), _Calls()
        text, ids = "", list[int]()
        for piece in pieces:
            new = [tokenizer.id_of(piece)]
            now, all_ids = text + piece, ids + new
            delta = parser.extract_tool_calls_streaming(text, now, piece, ids, all_ids, new, self._request)
            text, ids = now, all_ids
            for call in (delta and delta.tool_calls) or ():
                calls.add(call.index, call.function.name, call.function.arguments)
        if calls and parser.prev_tool_call_arr:  # what its server adds when the stream ends
            calls.add(max(calls), None, parser.get_remaining_unstreamed_args())
        return calls.found()

    def _whole(self, kind: Any, tokenizer: "_Tokenizer", text: str) -> Found:
        extracted = kind(tokenizer, self._request.tools).extract_tool_calls(text, self._request)
        return [(call.function.name, _value(call.function.arguments)) for call in extracted.tool_calls]


class _Tokenizer:
    """As much of a tokenizer as a reader of calls asks for: each piece is a token, and special tokens are known beforehand."""

    def __init__(self, specials: Sequence[str]) -> None:
        self._specials = {text: number for number, text in enumerate(specials, 1)}
        self._texts = ["", *specials]
        self._ids = dict(self._specials)
        self.all_special_tokens, self.all_special_ids = list(specials), list(self._specials.values())

    def id_of(self, piece: str) -> int:
        if piece not in self._ids:
            self._ids[piece] = len(self._texts)
            self._texts.append(piece)
        return self._ids[piece]

    def get_vocab(self) -> dict[str, int]:
        return self._specials

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(self._texts[number] for number in ids)


class _Calls(dict[int, list[str]]):
    """Calls that come in pieces."""

    def add(self, index: int, name: str | None, arguments: str | None) -> None:
        known = self.setdefault(index, ["", ""])
        known[0] += name or ""
        known[1] += arguments or ""

    def found(self) -> Found:
        return [(name, _value(arguments)) for name, arguments in self.values()]


def _declared(tool: Tool) -> dict[str, Any]:
    return {"type": "function", "function": {"name": tool.name, "description": "", "parameters": dict(tool.parameters)}}


def _known(format: Format, names: Any) -> str | None:
    """The name that others have for a format, which is one of its names here too."""
    mine = [spelled for name in (format.name, *format.aliases) for spelled in (name, name.replace("-", "_"))]
    return next((name for name in mine if name in names), None)


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
