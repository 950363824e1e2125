"""Reading answers inside vLLM: our parser beside vLLM's own, the same texts, whole and in deltas of 1, 3, 7 and all tokens.

    .venv-vllm/bin/python -m benchmarks plugins

The texts are the outputs in `tests/formats/wild`, and, if there is a corpus, those of vLLM's and SGLang's own tests in it. Each
is read by the tool parser that vLLM has for its family, behind its reasoning parser where the text has reasoning in it. Only
calls are compared: their names and arguments.
"""

import contextlib
import io
import json
import logging
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.table import show
from callsmith.adapters.hosted import HostedModel
from callsmith.engines.lru import IdentityLRU
from callsmith.formats import formats
from callsmith.formats.algebra import Format, is_strong, nodes_of
from callsmith.formats.reader.markers import compile_markers
from callsmith.formats.write import literal_text
from callsmith.models.weights.fetch import fetch
from tests.adapters.samples import declared, in_deltas
from tests.adapters.tiny_model import write_tokenizer
from tests.formats.reader.corpus import CORPUS, WILD, Case, cases

SIZES = (1, 3, 7, 0)
MOST = 400  # texts of one source, spread evenly over its formats
Calls = list[tuple[str, Any]]


def main(model: str) -> None:
    """Print the table."""
    try:
        import vllm  # noqa: F401 # pyright: ignore
    except ImportError:
        print("vLLM is not installed here: make test-vllm installs it, and .venv-vllm/bin/python -m benchmarks plugins measures.")
        return
    logging.disable(logging.CRITICAL)
    from callsmith.adapters.vllm import plugin

    plugin.register()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = _tokenizer(fetch(model), Path(folder))
        rows = [row for label, texts in _sources() if texts for row in _rows(label, tokenizer, texts[:: len(texts) // MOST + 1])]
    heads = ("texts", "read by", "right, whole", "right, streamed at every size", "streamed as whole", "raised")
    show("Calls read inside vLLM", heads, rows)


def _sources() -> Iterator[tuple[str, list[Case]]]:
    yield "ours", [case for case in cases(WILD) if not case.opened]
    outputs = CORPUS / "model_outputs"
    all_cases = list(cases(outputs)) if outputs.is_dir() else []
    known = {name for format in formats().values() for name in (format.name, *format.aliases)}
    usable = [case for case in all_cases if case.row["format"] in known and case.counts and not case.row.get("is_partial")]
    for source in ("vllm", "sglang"):
        yield f"tests of {source}", [case for case in usable if case.row["source"] == source and not case.opened]


def _rows(label: str, tokenizer: Any, texts: list[Case]) -> list[tuple[str, ...]]:
    scores = {"vLLM": Counter[str](), "callsmith": Counter[str]()}
    for case in texts:
        names = _parsers_of(case.format)
        if names is None or not _works(tokenizer, *names):
            continue
        tools, reasoning = names
        _judge(scores["vLLM"], tokenizer, case, tools, reasoning if _has_reasoning(case) else None)
        _judge(scores["callsmith"], tokenizer, case, "callsmith", "callsmith")
    return [_figures(label if who == "vLLM" else "", who, score) for who, score in scores.items()]


def _figures(label: str, who: str, score: Counter[str]) -> tuple[str, ...]:
    shares = [f"{score[key] / max(score['texts'], 1):.1%}" for key in ("whole", "streamed", "same")]
    return (f"{label} ({score['texts']})" if label else "", who, *shares, str(score["raised"]))


def _judge(score: Counter[str], tokenizer: Any, case: Case, tools: str, reasoning: str | None) -> None:
    score["texts"] += 1
    expected = [(call["name"], call.get("arguments")) for call in case.row.get("expected_calls") or []]
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            whole, streamed = _read(tokenizer, case, tools, reasoning)
    except Exception:  # what vLLM would answer with an error
        score["raised"] += 1
        return
    score["whole"] += whole == expected
    score["streamed"] += all(calls == expected for calls in streamed)
    score["same"] += all(calls == whole for calls in streamed)


def _read(tokenizer: Any, case: Case, tools: str, reasoning: str | None) -> tuple[Calls, list[Calls]]:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest  # pyright: ignore

    if os.environ.get("CALLSMITH_FORMAT") != case.format.name:
        os.environ["CALLSMITH_FORMAT"] = case.format.name
        HostedModel._known = IdentityLRU(8)  # pyright: ignore[reportPrivateUsage]
    kind = _composed(tools, reasoning, case.format.name)
    message = [{"role": "user", "content": "Hi"}]
    request = ChatCompletionRequest(model="m", messages=message, tools=declared(case) or None, include_reasoning=True)
    text = case.row["output"]
    _, _, calls = kind(tokenizer, request.tools).parse(text, request, enable_auto_tools=True)
    whole = [(call.name, _value(call.arguments)) for call in calls or []]
    return whole, [_streamed(kind, tokenizer, request, text, size) for size in SIZES]


def _streamed(kind: Any, tokenizer: Any, request: Any, text: str, size: int) -> Calls:
    parser, calls = kind(tokenizer, request.tools), dict[int, list[str]]()
    pieces = in_deltas(tokenizer, text, size)
    for at, (piece, ids) in enumerate(pieces):
        delta = parser.parse_delta(piece, ids, request, prompt_token_ids=[] if at == 0 else None, finished=at == len(pieces) - 1)
        for call in (delta and delta.tool_calls) or []:
            known = calls.setdefault(call.index, ["", ""])
            known[0] += call.function.name or ""
            known[1] += call.function.arguments or ""
    return [(name, _value(arguments)) for name, arguments in calls.values()]


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _has_reasoning(case: Case) -> bool:
    thinks = case.format.thinks
    return thinks is not None and literal_text(nodes_of(thinks.open)).strip() in case.row["output"]


@cache
def _composed(tools: str, reasoning: str | None, _: str) -> Any:
    from vllm.parser import ParserManager  # pyright: ignore

    return ParserManager.get_parser(
        tool_parser_name=tools, reasoning_parser_name=reasoning, enable_auto_tools=True, model_name="m"
    )


@cache
def _works(tokenizer: Any, tools: str, reasoning: str | None) -> bool:
    """Whether vLLM's parser takes this tokenizer at all."""
    try:
        _composed(tools, reasoning, "")(tokenizer)
    except Exception:
        return False
    return True


@cache
def _parsers_of(format: Format) -> tuple[str, str | None] | None:
    """The names of vLLM's tool parser and reasoning parser for a format, which are names of the format too."""
    from vllm.reasoning import ReasoningParserManager  # pyright: ignore
    from vllm.tool_parsers import ToolParserManager  # pyright: ignore

    names = [spelled for name in (format.name, *format.aliases) for spelled in (name, name.replace("-", "_"))]
    tools = next((name for name in names if name in ToolParserManager.list_registered()), None)
    reasoning = next((name for name in names if name in ReasoningParserManager.list_registered()), None)
    return None if tools in (None, "callsmith") else (tools, reasoning)


def _tokenizer(gguf: Path, folder: Path) -> Any:
    """A tokenizer in which the markers of all formats are special tokens, as they are for the models that write them."""
    from transformers import AutoTokenizer  # pyright: ignore

    write_tokenizer(gguf, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    markers = {text for format in formats().values() for text in compile_markers(format).text_stops.texts if is_strong(text)}
    whole = sorted(text for text in markers if text[0] in "<[" and text[-1] in ">]" and " " not in text and "=" not in text)
    tokenizer.add_special_tokens({"additional_special_tokens": whole})
    vocabulary = tokenizer.get_vocab()
    tokenizer.get_vocab = lambda: vocabulary  # as vLLM caches it
    return tokenizer
