"""Response templates as formats, and formats as response templates."""

import json
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from functools import reduce
from random import Random
from typing import Any
from warnings import catch_warnings, simplefilter

import pytest

from callsmith.core.errors import UsageError
from callsmith.core.values import Tool
from callsmith.formats import format_named, formats
from callsmith.formats.algebra import JSON, PYTHON, RAW, Calls, Format
from callsmith.formats.huggingface.read import format_from_response_template, format_from_tokenizer_config
from callsmith.formats.huggingface.write import format_to_response_template
from callsmith.formats.inference.laws import check, read_in_chunks
from callsmith.formats.reader.parse import parse, read
from tests.effort import tries
from tests.formats.huggingface.answers import answers, parts_of
from tests.formats.reader.corpus import WILD, cases

ANCHOR = "<|im_start|>assistant\n"
NOT_EXPRESSIBLE = {"apertus", "fenced-python", "minimax-m3", "plain-call"}
EXPRESSIBLE = [format for format in formats().values() if format.name not in NOT_EXPRESSIBLE]
EACH = pytest.mark.parametrize("format", EXPRESSIBLE, ids=lambda format: format.name)
PARSED = {"name": "{name}", "arguments": "{content}"}
SAMPLES = {  # one of every shape, and what it reads
    "an object": (
        {"open": "<do>", "close": "</do>", "content": "json", "transform": {"type": "function", "function": "{content}"}},
        '<do>{"name": "dig", "arguments": {"n": 3}}</do>',
    ),
    "an object with other keys": (
        {
            "open": "<do>", "close_pattern": r"\s*</do>", "content": "json",
            "transform": {"function": {"name": "{content.tool}", "arguments": "{content.with}"}},
        },
        '<do>{"tool": "dig", "with": {"n": 3}}\n</do>',
    ),
    "an array": (
        {
            "open": "<all>", "close": "</all>", "content": "json", "transform_each": True,
            "transform": {"id": "{key}", "function": {"name": "{tool}", "arguments": "{with}"}},
        },
        '<all>[{"key": "k1", "tool": "dig", "with": {"n": 3}}]</all>',
    ),
    "a name before the arguments": (
        {"open_pattern": r"<do:(?P<name>\w+)>\s*", "close": "</do>", "content": "json", "transform": {"function": PARSED}},
        '<do:dig> {"n": 3}</do>',
    ),
    "an object out of patterns": (
        {
            "open_pattern": r'\{"tool":\s*"(?P<name>[^"]+)",\s*"with":\s*', "close_pattern": r"\}(?:<end>|$)",
            "content": "json", "transform": {"function": PARSED},
        },
        '{"tool": "dig", "with": {"n": 3}}<end>',
    ),
    "bare keys and other quotes": (
        {
            "open_pattern": r"<do>(?P<name>\w+)", "close": "</do>", "content": "json",
            "content_args": {"unquoted_keys": True, "string_delims": [["~", "~"]]}, "transform": {"function": PARSED},
        },
        "<do>dig{n:3}</do>",
    ),
    "elements": (
        {
            "open_pattern": r"<do (?P<name>[^>]+)>", "close_pattern": r"</do>\s*", "content": "xml-inline",
            "content_args": {"tag_pattern": r"<(?P<key>\w+)=(?P<value>.*?)/>"}, "transform": {"function": PARSED},
        },
        "<do dig><n=3/></do>",
    ),
}  # fmt: skip


def template(calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"start_anchor": ANCHOR, "fields": {"tool_calls": {"repeats": not calls.get("transform_each"), **calls}, **fields}}


@pytest.mark.parametrize("shape", SAMPLES)
def test_a_template_of_every_shape_is_read_as_a_format_that_keeps_the_laws(shape: str) -> None:
    calls, text = SAMPLES[shape]
    format = format_from_response_template(template(calls, content={"close": "<eot>"}))
    parsed = parse(format, f"Well.{text}<eot>", [Tool("dig", "", {"type": "object", "properties": {"n": {"type": "integer"}}})])
    assert [(call.name, dict(call.arguments)) for call in parsed.calls] == [("dig", {"n": 3})]
    assert parsed.content == "Well."
    assert not check(format, 12)


def test_reasoning_and_framed_text_are_read() -> None:
    reasoning = {"open": "<hm>", "close_pattern": r"</hm>\s*"}
    framing = {"open": ["<say>", "<say loud>"], "close": ["</say>", "<eot>"]}
    format = format_from_response_template(template(SAMPLES["an object"][0], thinking=reasoning, content=framing))
    parsed = parse(format, "<hm>\nlook\n</hm>\n\n<say loud>Hello</say>" + SAMPLES["an object"][1], [Tool("dig")])
    assert (parsed.reasoning, parsed.content, len(parsed.calls)) == ("look", "Hello", 1)


def test_reasoning_that_the_prompt_opens_is_found_by_its_closer() -> None:
    spec = template(SAMPLES["an object"][0], reasoning_content={"open_pattern": r"(?=[\s\S]*?</hm>)", "close": "</hm>"})
    format = format_from_response_template(spec | {"start_anchor": "<assistant><hm>"})
    assert parse(format, "look</hm>Hello", opened="<hm>").reasoning == "look"
    with pytest.raises(UsageError, match="what opens the reasoning"):
        format_from_response_template(spec)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"fields": {"content": {}}}, "no `tool_calls`"),
        ({"version": 2, "fields": {}}, "version 2"),
        ({"fields": {"tool_calls": {"open": ""}}}, "tool_calls.open: expected a string"),
        ({"fields": {"tool_calls": {"opens": "<a>"}}}, "unknown key 'opens'; did you mean 'open'"),
        ({"fields": {"tool_calls": {"content": "json"}}}, "calls need `open`"),
        (template({"open_pattern": "(?P<name>["}), "no regular expression"),
        (template({"open_pattern": "(?P<zone>a)"}), "the group zone"),
        (template({"open_pattern": "(?:ab)+"}), r"\(\?:ab\)\+"),
        (template({"open": "<a>", "close": "</a>", "content": "int"}), "a name must be captured"),
        (
            template({"open_pattern": "(?P<name>a)", "content": "kv-lines", "transform": {"function": PARSED}}),
            "'kv-lines' cannot",
        ),
        (
            template(
                {
                    "open_pattern": "(?P<name>a)",
                    "content": "json",
                    "content_args": {"string_delims": [["«", "»"]]},
                    "transform": {"function": PARSED},
                }
            ),
            "string_delims: strings that open and close differently",
        ),
        (template(SAMPLES["an object"][0], mood={"open": "<m>"}), "fields.mood: the field is not known"),
        ([], "expected an object, got an array"),
    ],
)
def test_what_is_wrong_or_cannot_be_expressed_is_named(spec: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        format_from_response_template(spec)


def test_the_template_in_a_tokenizers_settings_is_found() -> None:
    spec = template(SAMPLES["elements"][0])
    assert format_from_tokenizer_config(json.dumps({"eos_token": "<eot>", "response_template": spec})).calls.values == RAW
    assert format_from_tokenizer_config(json.dumps(spec)).calls.values == RAW
    for text, complaint in (("{}", "no response_template"), ("{", "not JSON"), ("[]", "an object")):
        with pytest.raises(UsageError, match=complaint):
            format_from_tokenizer_config(text)


@EACH
@pytest.mark.sampled
def test_a_format_written_as_a_template_and_read_again_reads_what_the_format_writes(format: Format) -> None:
    again = format_from_response_template(format_to_response_template(format, ANCHOR, "<eot>").template, format.name)
    for number, answer in enumerate(answers(format, 24)):
        text = answer.text + ("<eot>" if number % 3 else "")
        assert parts_of(read_in_chunks(again, text, 5 * (number % 2), answer.tools)) == answer.parts, text
    assert not check(again, 6)


def test_the_round_trip_reads_the_outputs_of_models_that_write_as_the_format_does() -> None:
    """Outputs in other spellings than the first, which a template does not say, are left out.

    What differs is what the families named here read besides: words without markers, entities and CDATA, several calls behind
    one marker, a message to the assistant itself.
    """
    besides = {"gemma4": 4, "harmony": 2, "kimi-k3": 3, "minicpm5": 3, "muse-glimmer": 1, "step3": 1}
    differing, tried = Counter[str](), 0
    for case in cases(WILD):
        if case.format.name in NOT_EXPRESSIBLE or case.row.get("is_partial"):
            continue
        again = format_from_response_template(format_to_response_template(case.format, ANCHOR).template, case.format.name)
        others = {part for part in case.format.parts if isinstance(part, Calls)} - {case.format.calls}
        alone = replace(case.format, parts=tuple(part for part in case.format.parts if part not in others))
        by_itself, expected, actual = (
            parts_of(read(item, case.row["output"], case.tools, case.opened)) for item in (alone, case.format, again)
        )
        if by_itself == expected:
            tried += 1
            differing[case.format.name] += actual != expected
    assert tried > 300 and +differing == besides


@pytest.mark.parametrize("name", sorted(NOT_EXPRESSIBLE))
def test_what_no_template_can_say_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be expressed in a response template"):
        format_to_response_template(format_named(name), ANCHOR)


def test_what_is_lost_is_listed() -> None:
    lost = format_to_response_template(format_named("qwen3-coder"), ANCHOR).lost
    assert any("types of arguments" in item for item in lost) and any("1 more spelling" in item for item in lost)
    assert not format_to_response_template(format_named("hermes"), ANCHOR).lost


def test_the_spelling_of_values_comes_back() -> None:
    spellings = {"hermes": JSON, "glm45": RAW, "lfm2": PYTHON, "gemma4": format_named("gemma4").calls.values}
    for name, values in spellings.items():
        spec = format_to_response_template(format_named(name), ANCHOR).template
        assert format_from_response_template(spec).calls.values == values


JUNK: tuple[Any, ...] = (
    None, True, -1, "", "x", "(", "[", "\\", "(?P<name>a)|(?P<name>b)", "{content}", "{content.a.b}", [], {}, [1], [["a", 1]],
    {"a": 1}, "a{2,3}", "(?P<key>a)(?P<value>b)", "(?:" * 300 + ")" * 300, "()", "(?:|)?", "||", "\\s*", "$", "(?=x)",
    "(?P<id>(?P<name>a)x)", "json", "xml-inline", {"name": "json"}, {"name": 5}, {"name": "json", "args": []},
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all that stands in a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


@pytest.mark.generated
def test_whatever_stands_in_a_template_it_is_read_or_refused_with_a_sentence() -> None:
    random = Random("templates")
    known = [template(calls, thinking={"open": "<t>", "close_pattern": r"</t>\s*"}) for calls, _ in SAMPLES.values()]
    known += [format_to_response_template(format, ANCHOR, "<eot>").template for format in EXPRESSIBLE]
    for _ in range(tries(600, 6000)):
        spec = deepcopy(random.choice(known))
        *path, last = random.choice(places(spec)[1:])
        reduce(lambda inner, key: inner[key], path, spec)[last] = deepcopy(random.choice(JUNK))
        try:
            format = format_from_response_template(spec)
        except UsageError as error:
            assert str(error)
        else:
            read(format, "<do>{}</do> so <tool_call>", [Tool("dig")])


@pytest.mark.parametrize("pattern", ["[[a]", "[^[]", "[]&&b]", "[a||b~~c]", "[+--]", "[a--]", r"\[[[a]", r"[\]--a]"])
def test_whoever_reads_a_template_gets_no_warnings_about_it(pattern: str) -> None:
    with catch_warnings():
        simplefilter("error")
        with pytest.raises(UsageError, match=r"tool_calls\.open_pattern"):
            format_from_response_template(template({"open_pattern": f"{pattern}(?P<name>b)"}))
