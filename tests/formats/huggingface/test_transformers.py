"""Response templates in the hands of transformers' own parser, and the templates that TRL ships in ours."""

import ast
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.errors import UsageError
from callsmith.core.values import Tool
from callsmith.formats import format_named
from callsmith.formats.algebra import Format
from callsmith.formats.huggingface.read import REASONING, format_from_response_template
from callsmith.formats.huggingface.write import format_to_response_template
from callsmith.formats.inference.laws import check, read_in_chunks
from callsmith.models.plugins import format_in
from tests.formats.huggingface.answers import Answer, answers, parts_of
from tests.formats.huggingface.test_response_template import ANCHOR, EACH

pytestmark = pytest.mark.templates
END = "<|im_end|>"


def parser(spec: dict[str, Any], tools: list[Tool]) -> Any:
    """transformers' parser of a template, behind the prompt."""
    chat_parsing = pytest.importorskip("transformers.utils.chat_parsing", reason="make test-response-templates brings it")
    functions = [{"type": "function", "function": {"name": tool.name, "parameters": dict(tool.parameters)}} for tool in tools]
    return chat_parsing.ResponseParser(spec, prefix=ANCHOR, tools=functions)


def theirs(spec: dict[str, Any], text: str, tools: list[Tool], size: int = 0) -> tuple[list[Any], str, str]:
    """What transformers reads in a text, whole or in chunks."""
    reading = parser(spec, tools)
    for at in range(0, len(text), size or len(text) or 1):
        reading.feed(text[at : at + (size or len(text))])
    message, _ = reading.finalize()
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", [])]
    reasoning = next((message[key] for key in REASONING if key in message), "")
    return calls, message.get("content", "").strip(), reasoning


@EACH
def test_transformers_reads_what_we_write_by_the_template_that_we_write(format: Format) -> None:
    spec = format_to_response_template(format, ANCHOR, END).template
    for number, answer in enumerate(answers(format)):
        text = answer.text + (END if number % 3 else "")
        for size in (0, 1, 7):
            assert theirs(spec, text, answer.tools, size) == answer.parts, (text, size)


def test_a_tokenizer_saves_and_uses_the_template_that_we_write_and_we_read_what_it_saves(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="make test-response-templates brings it")
    from tokenizers import Tokenizer, models

    format, spec = format_named("glm45"), format_to_response_template(format_named("glm45"), ANCHOR, END).template
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    tokenizer.response_template = spec
    tokenizer.save_pretrained(tmp_path)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    answer = next(answer for answer in answers(format) if answer.calls and answer.content)
    functions = [
        {"type": "function", "function": {"name": tool.name, "parameters": dict(tool.parameters)}} for tool in answer.tools
    ]
    message = loaded.parse_response(answer.text + END, prefix=ANCHOR, tools=functions)
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]] == answer.calls
    ours = format_in(tmp_path / "tokenizer_config.json")
    assert parts_of(read_in_chunks(ours, answer.text + END, 0, answer.tools)) == answer.parts


def shipped() -> dict[str, dict[str, Any]]:
    """The templates in TRL's source. It is not imported, for it needs PyTorch and more."""
    package = find_spec("trl")
    if package is None or not package.submodule_search_locations:
        return {}
    source = (Path(package.submodule_search_locations[0]) / "chat_template_utils.py").read_text("utf-8")
    known: dict[str, Any] = {"_SUPPORTS_PARSE_RESPONSE_TOOLS": True}
    for statement in ast.parse(source).body:
        names = [target.id for target in getattr(statement, "targets", []) if isinstance(target, ast.Name)]
        of_templates = any(name.startswith("_") or name.endswith("_template") for name in names)
        if (of_templates and "read_text" not in ast.unparse(statement)) or isinstance(statement, ast.For):
            try:
                exec(compile(ast.Module([statement], []), "trl", "exec"), known)
            except NameError:
                continue  # a value that needs an import
    return {name: value for name, value in known.items() if name.endswith("_template") and isinstance(value, dict)}


def test_every_template_that_trl_ships_is_read_alike() -> None:
    pytest.importorskip("transformers.utils.chat_parsing", reason="make test-response-templates brings it")
    if not (templates := shipped()):
        pytest.skip("make test-response-templates brings TRL")
    compared, refused = Counter[str](), list[str]()
    for name, spec in templates.items():
        try:
            format = format_from_response_template(spec, name.replace("_", "-"))
        except UsageError:
            refused.append(name)
            continue
        assert not check(format, 12), name
        for answer in answers(format):
            # The template for Python's notation ends a call at the first parenthesis, in whatever string it stands.
            if not (name.startswith("lfm2") and "ok)" in answer.text):
                _check_alike(format, spec, answer)
                compared[name] += 1
    assert refused == ["deepseek_r1_distill_template"]  # which has no calls
    assert len(compared) == 8 and compared.total() > 300


def _check_alike(format: Format, spec: dict[str, Any], answer: Answer) -> None:
    """Check that an answer is read the same by both. Where the prompt has opened the reasoning, the opener is left out."""
    is_opened = any(field.get("open_pattern", "").startswith("(?=") for field in spec["fields"].values())
    behind = {key: value for key, value in spec.items() if key != "start_anchor_pattern"} | {"start_anchor": ANCHOR}
    text = answer.text.removeprefix("<think>\n") if is_opened else answer.text
    assert parts_of(read_in_chunks(format, answer.text, 0, answer.tools)) == answer.parts
    assert theirs(behind, text, answer.tools) == answer.parts, (format.name, text)
