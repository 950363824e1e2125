"""Law 5 for argument values: what a chat template renders for a call is read back exactly, white space at the edges included.

The law holds the reader against templates, not against our own writer. Where a template renders two different values alike, no
reader can tell them apart: such values are found by comparing renderings, and must be the listed ones.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.errors import CallsmithError
from callsmith.core.values import Call, Message, Request, Result, Tool
from callsmith.formats import format_named, formats
from callsmith.formats.algebra import Format
from callsmith.formats.inference.detect import detect
from callsmith.formats.inference.laws import CHUNKS, calls_in, read_in_chunks
from callsmith.formats.prompt.prompt import fit_id, prompt_for
from callsmith.formats.prompt.template import Template
from tests.formats.templates import REAL, ROOT, detected, needs_corpus, real

MOST = 24  # arguments of one call
SHIPPED = sorted((ROOT / "src" / "callsmith" / "models").rglob("*.jinja"))
SHOW_NO_CALLS = ("llama2", "llama3.0")  # their models were never taught any
EDGES = ("", "\n", "\n\n", " ", "\t", "\r\n", " \n", "\n ", "\n\t", "\n \n")
CORES = ("", "x", "if a:\n    b()")
TEXTS = sorted({before + core + after for core in CORES for before in EDGES for after in EDGES})
WORDS = ("None", "null", "True", "false", "007", "-1", "1.50", "{}", "[1, 2]", '"quoted"')  # texts that look like other values
STRING = {"type": "string"}
KINDS = ("integer", "number", "boolean", "array", "object")
VALUES: list[tuple[Any, dict[str, Any]]] = [
    *((None, {"type": [kind, "null"]}) for kind in KINDS),
    *((None, {"anyOf": [{"type": kind}, {"type": "null"}]}) for kind in KINDS),
    (None, {"type": ["string", "null"]}),
    (None, {"type": "null"}),
    (None, {}),
    *((value, {"type": kind}) for value in (True, False) for kind in ("boolean", ["boolean", "null"])),
    (7, {"type": "integer"}),
    (-12345678901234567890, {"type": "integer"}),
    (2.5, {"type": "number"}),
    ([], {"type": "array"}),
    ([1, "a b", 2.5], {"type": "array"}),
    ([None, True], {"type": "array"}),
    ({}, {"type": "object"}),
    ({"a": "it's", "b": [False]}, {"type": "object"}),
    ({"a": None, "b": 1}, {"type": "object"}),
]
# Templates that render different values alike, with the values that are lost.
ALIKE: dict[str, list[Any]] = {
    "MiniMax-M3": [None, [None, True], {"a": None, "b": 1}],  # leaves a null out, its element too, or writes an empty one
}
# Templates of our own for a checkout without the corpus: by format, what stands before, in and after each argument of a call.
SMALL = {
    "dots": (
        '<dots_function_call><invoke name="NAME">', '<parameter name="KEY">', "</parameter>", "</invoke></dots_function_call>",
    ),
    "glm45": ("<tool_call>NAME\n", "<arg_key>KEY</arg_key>\n<arg_value>", "</arg_value>\n", "</tool_call>"),
    "glm47": ("<tool_call>NAME", "<arg_key>KEY</arg_key><arg_value>", "</arg_value>", "</tool_call>"),
    "hy-v3": (
        "<tool_calls>\n<tool_call>NAME<tool_sep>\n", "<arg_key>KEY</arg_key>\n<arg_value>", "</arg_value>\n",
        "</tool_call>\n</tool_calls>",
    ),
    "minimax-m2": (
        '<minimax:tool_call>\n<invoke name="NAME">\n', '<parameter name="KEY">', "</parameter>\n",
        "</invoke>\n</minimax:tool_call>",
    ),
    "poolside-v1": ("<tool_call>NAME\n", "<arg_key>KEY</arg_key>\n<arg_value>", "</arg_value>\n", "</tool_call>"),
    "qwen3-coder": (
        "<tool_call>\n<function=NAME>\n", "<parameter=KEY>\n", "\n</parameter>\n", "</function>\n</tool_call>",
    ),
    "seed-oss": (
        "<seed:tool_call>\n<function=NAME>\n", "<parameter=KEY>", "</parameter>\n", "</function>\n</seed:tool_call>",
    ),
    "step3": (
        '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="NAME">',
        '<steptml:parameter name="KEY">', "</steptml:parameter>", "</steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
    ),
}  # fmt: skip


def small_template(open: str, before: str, after: str, close: str) -> Template:
    """A chat template that writes a call's arguments one by one, as plain text."""

    def shown(text: str) -> str:
        return "{{ " + repr(text.replace("NAME", "%(name)s").replace("KEY", "%(key)s")) + " | replace('%(name)s', one.name) "

    argument = (
        shown(before) + "| replace('%(key)s', key) }}{{ value if value is string else value | string }}" + shown(after) + "}}"
    )
    call = shown(open) + "}}{% for key, value in one.arguments.items() %}" + argument + "{% endfor %}" + shown(close) + "}}"
    calls = "{% for call in m.tool_calls or [] %}{% set one = call.function %}" + call + "{% endfor %}"
    turns = "{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}" + calls + "<|im_end|>{% endfor %}"
    return Template("{{ tools | tojson }}" + turns + "{% if add_generation_prompt %}<|assistant|>{% endif %}")


def turns(template: Template, format: Format, arguments: dict[str, Any]) -> Iterator[str]:
    """A call with these arguments as the template renders it: alone, then followed by its result."""
    tool = Tool("edit", "", {"type": "object", "properties": dict.fromkeys(arguments, STRING)})
    call = Call("edit", arguments, fit_id("0", format.ids))
    question = Message.user("What now?")
    first_prompt = prompt_for(Request((question,)), [tool], template, format)
    for more in ((), (Message.tool(Result(call.id, call.name, "done")),)):
        try:
            answered = prompt_for(Request((question, Message.assistant(calls=(call,)), *more)), [tool], template, format)
        except CallsmithError:
            continue  # some want the result with the call
        yield answered.text.removeprefix(first_prompt.text.removesuffix(first_prompt.opened)).removesuffix(answered.opened)


def read_back(template: Template, format: Format, arguments: dict[str, Any], schemas: dict[str, Any], size: int = 0) -> Any:
    """The arguments that are read in what the template renders for these."""
    tools = [Tool("edit", "", {"type": "object", "properties": schemas})]
    read = (calls_in(read_in_chunks(format, text, size, tools)) for text in turns(template, format, arguments))
    return next((calls[0][1] for calls in read if calls), None)


def lost(template: Template, format: Format, values: list[tuple[Any, dict[str, Any]]]) -> list[Any]:
    """The values that are not read back, some of them in each call."""
    if len(values) > MOST:
        return lost(template, format, values[:MOST]) + lost(template, format, values[MOST:])
    arguments = {f"a{at}": value for at, (value, _) in enumerate(values)}
    schemas = {f"a{at}": schema for at, (_, schema) in enumerate(values)}
    size = CHUNKS[len(template.source) % len(CHUNKS)]
    read = read_back(template, format, arguments, schemas, size)
    assert read is not None
    return [value for key, value in arguments.items() if key not in read or (read[key], type(read[key])) != (value, type(value))]


def without_nulls(value: Any) -> list[Any]:
    """Values that a template may render like this one: its nulls empty, or left out."""
    match value:
        case list():
            return [["" if item is None else item for item in value]]
        case dict():
            return [{key: item for key, item in value.items() if item is not None}]
        case _:
            return [""]


def renders_alike(template: Template, format: Format, value: Any) -> bool:
    """Whether the template renders another value, or none at all, as it renders this one."""
    rendered = list(turns(template, format, {"a": value}))
    others = [{}, *({"a": other} for other in without_nulls(value))]
    return any(list(turns(template, format, other)) == rendered for other in others)


def check(template: Template, format: Format, alike: list[Any]) -> None:
    assert not lost(template, format, [(text, STRING) for text in (*TEXTS, *WORDS)])
    lost_values = lost(template, format, VALUES)
    unlisted = [value for value in lost_values if not renders_alike(template, format, value)]
    assert not unlisted
    assert {repr(value) for value in lost_values} == {repr(value) for value in alike}


@needs_corpus
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
@pytest.mark.sampled
def test_values_in_a_real_templates_calls_are_read_back_exactly(path: Path) -> None:
    template, evidence = real(path), detected(path)
    if evidence is None:
        pytest.skip("this template renders no calls")
    check(template, evidence.format, ALIKE.get(path.stem, []))


@pytest.mark.parametrize("name", SMALL)
def test_values_in_plain_text_are_read_back_exactly(name: str) -> None:
    check(small_template(*SMALL[name]), format_named(name), [])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_values_in_the_calls_of_a_template_of_ours_are_read_back_exactly(path: Path) -> None:
    template = Template(path.read_text("utf-8"))
    evidence = detect(template, formats().values())
    assert (evidence is None) == (path.stem in SHOW_NO_CALLS)
    if evidence is not None:
        check(template, evidence.format, [])
