"""Law 4: the grammar accepts what is written, and whatever it lets through is read back as calls that validate."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from callsmith.core.errors import Unavailable, UnsupportedSchema, UsageError
from callsmith.core.events import CallReady, ModelEvent, Text, Thought, Unreadable
from callsmith.core.schema import validate
from callsmith.core.values import Call, Choice, Tool
from callsmith.engines.llama.compiler import Compiler
from callsmith.engines.llama.gguf import Vocabulary
from callsmith.engines.port import Piece
from callsmith.formats import format_named, formats
from callsmith.formats.algebra import Format
from callsmith.formats.inference.laws import merge_deltas
from callsmith.formats.prompt.prompt import fit_id
from callsmith.formats.reader.reader import Reader
from callsmith.formats.write import write
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.nodes import Grammar
from callsmith.models.weights.fetch import locate
from tests.effort import tries
from tests.formats.laws import calls_in, check_order, rounds
from tests.grammar.sampling import Sample, Sampler, compiler, letters, vocabulary
from tests.grammar.sampling import matcher as matcher_of
from tests.work import count_calls

pytestmark = pytest.mark.weights

EVERY = pytest.mark.parametrize("format", formats().values(), ids=lambda format: format.name)
REQUIRED = Choice("required")


def obj(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
STRINGS = {"type": "array", "items": STRING}
TREE = obj({"label": STRING, "kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "maxItems": 2}}, "label")
CHAIN = obj({"n": INTEGER, "next": {"anyOf": [{"$ref": "#/$defs/Chain"}, NULL]}}, "n")
TOOLS = [
    Tool("now"),
    Tool("get_weather", "", obj({"city": STRING, "days": INTEGER, "unit": {"enum": ["celsius", "kelvin"]}}, "city")),
    Tool(
        "nested",
        "",
        obj(
            {
                "who": obj({"name": STRING, "age": INTEGER, "tags": {**STRINGS, "minItems": 1, "maxItems": 3}}, "name", "tags"),
                "ok": {"type": "boolean"},
                "nothing": NULL,
            },
            "who",
        ),
    ),
    Tool(
        "mixed",
        "",
        obj(
            {
                "e": {"enum": ["a", 1, True, None, "b c", "5", 2.5]},
                "c": {"const": "fixed"},
                "v": {"anyOf": [INTEGER, {"type": "boolean"}]},
                "x": {"type": "number"},
            },
            "e",
            "c",
        ),
    ),
    Tool("refs", "", obj({"tree": {"$ref": "#/$defs/Tree"}}, "tree", **{"$defs": {"Tree": TREE}})),
    Tool("chain", "", obj({"first": {"$ref": "#/$defs/Chain"}}, "first", **{"$defs": {"Chain": CHAIN}})),
    Tool(
        "maybe",
        "",
        obj(
            {"s": {"anyOf": [STRING, NULL]}, "l": {"anyOf": [STRINGS, NULL]}, "o": {"anyOf": [obj({"zip": STRING}, "zip"), NULL]}}
        ),
    ),
    Tool("either", "", obj({"u": {"anyOf": [STRING, STRINGS]}, "k": {"type": ["string", "integer"]}}, "u")),
    Tool("unicode", "", obj({"größe": INTEGER, "名前": STRING, "é": NULL}, "größe")),
    Tool(
        "grid",
        "",
        obj({"rows": {"type": "array", "items": {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 2}}}, "rows"),
    ),
    Tool("parts", "", {"type": "object", "allOf": [obj({"a": STRING}, "a"), obj({"b": INTEGER}, "b")]}),
    Tool("undeclared", "", obj({"a": {"allOf": [{"enum": ["x", "y"]}]}}, "a", "b")),
]


def stuck(grammar: Grammar | None, text: str, dressed_for: str = "") -> str | None:
    """Where the grammar does not go along with a text any more; None: the text is a whole answer."""
    assert grammar is not None
    tokens, compiling = compiler(dressed_for)
    wanted = tokens.tokenize(text) if dressed_for else letters(tokens.base, text)
    matcher = matcher_of(compiling.begin(grammar))
    taken = matcher.validate_tokens(wanted)
    if taken == len(wanted) and matcher.consume_tokens(wanted) and matcher.is_accepting():
        return None
    return b"".join(tokens.says[token] for token in wanted[taken:]).decode("utf-8", "replace")[:80] or "(the end)"


def required(format: Format, tools: Sequence[Tool], **options: Any) -> Grammar:
    grammar = grammar_for(format, tools, REQUIRED, **options)
    assert grammar is not None
    return grammar


def call(format: Format, name: str, arguments: Any) -> Call:
    """A call with an id such as the format writes."""
    return Call(name, arguments, fit_id("call_1", format.ids))


def in_order(value: Any, schema: Any) -> Any:
    """The value with its keys in the schema's order, which is the one the grammar wants."""
    if not isinstance(value, dict):
        return value
    return {key: in_order(value[key], inner) for key, inner in schema["properties"].items() if key in value}


def tokens_say(text: str) -> bool:
    """Whether the tokenizer can say this at all: SmolLM2's lacks the first byte of four unassigned planes of Unicode."""
    tokens, _ = compiler()
    return b"".join(tokens.says[token] for token in letters(tokens.base, text)) == text.encode()


# -- what is written is accepted


@EVERY
@settings(
    max_examples=tries(3, 8), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, phases=[Phase.generate]
)
@given(data=st.data())
def test_the_grammar_accepts_what_is_written(format: Format, data: st.DataObject) -> None:
    tools, drawn = data.draw(rounds(format))
    calls = [call(format, made.name, in_order(made.arguments, tool.parameters)) for made, tool in zip(drawn, tools, strict=True)]
    try:
        one, all_of_them = write(format, calls[:1]), write(format, calls)
    except UsageError:
        assume(False)
    assume("\x7f" not in all_of_them)  # llguidance wants DEL escaped in JSON strings; JSON does not
    assume(tokens_say(all_of_them))
    assert stuck(required(format, tools), one) is None
    assert stuck(required(format, tools), all_of_them) is None
    assert stuck(required(format, tools, parallel=False), one) is None
    assert stuck(grammar_for(format, tools, Choice.only(calls[0].name)), one) is None
    assert stuck(grammar_for(format, tools, Choice()), write(format, calls, text="Let me see.")) is None


@EVERY
def test_where_calling_is_optional_plain_text_is_enough(format: Format) -> None:
    assert stuck(grammar_for(format, TOOLS, Choice()), write(format, text="It is sunny, I think.")) is None


@EVERY
def test_every_kind_of_value_is_accepted_as_it_is_written(format: Format) -> None:
    tree = {"label": "a", "kids": [{"label": "b"}, {"label": "c", "kids": []}]}
    chain = {"n": 1, "next": {"n": 2, "next": None}}
    for name, arguments in [
        ("now", {}),
        ("mixed", {"e": None, "c": "fixed", "v": True, "x": 1e-07}),
        ("refs", {"tree": tree}),
        ("chain", {"first": chain}),
        ("maybe", {"s": None, "l": ["5", "null"], "o": {"zip": "01067"}}),
        ("maybe", {"s": 'it\'s "so"', "l": None, "o": None}),
        ("either", {"u": ["a", "b"], "k": "x"}),
        ("unicode", {"größe": 3, "名前": "太郎", "é": None}),
        ("grid", {"rows": [[1, 2], [3, 4]]}),
        ("parts", {"a": "x", "b": 2}),
    ]:
        text = write(format, [call(format, name, arguments)])
        assert stuck(required(format, TOOLS), text) is None, text
        assert calls_in(read(format, [text], TOOLS)) == [(name, arguments)]


# -- what is wrong is rejected

PLAIN = Tool("f", "", obj({"n": INTEGER, "s": STRING, "e": {"enum": ["x", "y"]}}, "n", "s"))


@pytest.mark.req("R29")
@pytest.mark.req("R79")
@pytest.mark.req("R63")
@EVERY
def test_a_wrong_call_is_rejected(format: Format) -> None:
    def written(name: str = "f", **arguments: Any) -> str:
        return write(format, [call(format, name, arguments)])

    grammar = required(format, [PLAIN, Tool("now")])
    assert stuck(grammar, written(n=1, s="a", e="x")) is None
    assert stuck(grammar, written("now")) is None
    for wrong in [
        written("g", n=1, s="a"),
        written("now", n=1),
        written(n=1),
        written(s="a"),
        written(n="one", s="a"),
        written(n=1.5, s="a"),
        written(n=True, s="a"),
        written(n=1, s="a", e="z"),
        written(n=1, s="a", more=1),
        written(n=1, s="a") + " and more",
        "I would rather not.",
    ]:
        assert stuck(grammar, wrong) is not None, wrong
    both = write(format, [call(format, "f", {"n": 1, "s": "a"}), call(format, "now", {})])
    assert (stuck(grammar, both) is None) == (format.calls.most != 1)
    assert stuck(required(format, [PLAIN, Tool("now")], parallel=False), both) is not None
    assert stuck(grammar_for(format, [PLAIN, Tool("now")], Choice.only("now")), written(n=1, s="a")) is not None


# -- whatever is sampled is read back


def read(format: Format, pieces: Iterable[str], tools: Iterable[Tool], opened: str = "") -> list[ModelEvent]:
    reader = Reader(format, tools, opened, is_constrained=True)
    return merge_deltas([event for piece in pieces for event in reader.feed(piece)] + reader.close())


def read_sample(
    format: Format, sample: Sample, tools: Iterable[Tool], specials: Iterable[str], opened: str = ""
) -> list[ModelEvent]:
    reader = Reader(format, tools, opened, specials=frozenset(specials), is_constrained=True)
    events = [event for piece in sample.pieces for event in reader.feed(piece.text, piece.special)]
    return merge_deltas(events + reader.close())


def without(schema: Any, keywords: set[str]) -> Any:
    """The schema without these keywords, wherever they stand."""
    if isinstance(schema, dict):
        return {key: without(value, keywords) for key, value in schema.items() if key not in keywords}
    return [without(one, keywords) for one in schema] if isinstance(schema, list) else schema


def numbers(value: Any) -> Iterator[float]:
    match value:
        case dict():
            for one in value.values():
                yield from numbers(one)
        case list():
            for one in value:
                yield from numbers(one)
        case float():
            yield value


def check_calls(events: Sequence[ModelEvent], tools: Sequence[Tool], grammar: Grammar, text: str) -> list[Call]:
    """Every call is readable without leniency, offered, and valid in all that the grammar enforces."""
    check_order(events)
    offered = {tool.name: tool for tool in tools}
    ready = [event for event in events if isinstance(event, CallReady)]
    assert not [event for event in events if isinstance(event, Unreadable)], text
    for event in ready:
        assert not event.repairs, text
        if any(math.isinf(number) for number in numbers(event.call.arguments)):
            continue  # 1e999 is a number of JSON, but no float
        schema = offered[event.call.name].parameters
        assert validate(without(schema, {keyword for _, keyword in grammar.unenforced}), event.call.arguments) == [], text
        if "allOf" not in schema:  # whose parts are left open
            assert event.call.arguments.keys() <= {*schema["properties"], *schema.get("required", ())}, text
    return [event.call for event in ready]


def samples(format: Format, count: int) -> None:
    finished = 0
    for dressed in (False, True):
        tokens, compiling = compiler(format.name if dressed else "")
        sampler = Sampler(tokens, compiling, format, format.name)
        for number in range(count // 2):
            tools = [TOOLS[number % len(TOOLS)], TOOLS[(number + 5) % len(TOOLS)]]
            free, parallel = number % 8 == 7, number % 3 == 0
            grammar = grammar_for(format, tools, Choice() if free else REQUIRED, parallel=parallel)
            assert grammar is not None
            sample = sampler.draw(grammar)
            if not sample.whole:
                continue
            finished += 1
            events = read_sample(format, sample, tools, tokens.specials)
            calls = check_calls(events, tools, grammar, sample.text)
            assert len(calls) < 2 or parallel, sample.text
            if not free:
                assert calls, sample.text
                assert not [event for event in events if isinstance(event, Text | Thought)], sample.text
    assert finished > count * 0.7


@pytest.mark.req("R79")
@pytest.mark.req("R72")
@pytest.mark.req("R44")
@pytest.mark.generated
@EVERY
def test_whatever_the_grammar_lets_through_is_read_back_as_valid_calls(format: Format) -> None:
    samples(format, tries(16, 64))


@pytest.mark.slow
@EVERY
def test_hundreds_of_answers_out_of_the_grammar_are_read_back_as_valid_calls(format: Format) -> None:
    samples(format, tries(300, 600, 1000))


# -- special tokens


QWEN = "qwen2.5-coder-1.5b"


@cache
def qwen() -> Vocabulary:
    try:
        locate(QWEN)
    except Unavailable as missing:
        pytest.skip(f"the vocabulary in which <tool_call> is one token: {missing}")
    return vocabulary(QWEN)


def test_a_special_token_is_not_its_letters_to_the_grammar_nor_to_the_reader() -> None:
    hermes, tokens = format_named("hermes"), qwen()
    tools = [Tool("f", "", obj({"s": STRING}))]
    grammar = required(hermes, tools)
    open_token, close_token = tokens.specials["<tool_call>"], tokens.specials["</tool_call>"]
    body = letters(tokens, '\n{"name": "f", "arguments": {"s": "</tool_call>"}}\n')  # in a string the letters are just letters
    compiling = Compiler(tokens)

    def goes_through(*wanted: int) -> bool:
        matcher = matcher_of(compiling.begin(grammar))
        return matcher.validate_tokens(list(wanted)) == len(wanted)

    assert goes_through(open_token, *body, close_token)
    assert not goes_through(*letters(tokens, "<tool_call>"), *body, close_token)
    assert not goes_through(open_token, *body, *letters(tokens, "</tool_call>"))
    assert not goes_through(open_token, *body[:-2], close_token)  # nor may the token stand in a string

    def read_tokens(wanted: Sequence[int]) -> list[ModelEvent]:
        reader = Reader(hermes, tools, specials=frozenset(tokens.specials))
        events = [
            event for token in wanted for event in reader.feed(tokens.says[token].decode(), special=token in tokens.special)
        ]
        return merge_deltas(events + reader.close())

    assert calls_in(read_tokens([open_token, *body, close_token])) == [("f", {"s": "</tool_call>"})]
    quoted = [*letters(tokens, "<tool_call>"), *body, *letters(tokens, "</tool_call>")]
    assert read_tokens(quoted) == [Text("".join(tokens.says[token].decode() for token in quoted))]


def test_answers_under_a_tokenizer_with_tool_tokens_are_read_back() -> None:
    hermes, tokens = format_named("hermes"), qwen()
    sampler = Sampler(tokens, Compiler(tokens), hermes, "qwen")
    for number in range(24):
        tools = [TOOLS[number % len(TOOLS)]]
        grammar = required(hermes, tools, parallel=False)
        sample = sampler.draw(grammar)
        if sample.whole:
            assert sample.pieces[0] == Piece("<tool_call>", special=True)
            assert check_calls(read_sample(hermes, sample, tools, tokens.specials), tools, grammar, sample.text)


# -- what the prompt has begun


@pytest.mark.parametrize(
    ("name", "opened", "rest"),
    [
        ("hermes", "<|im_start|>assistant\n<think>\n", "Paris it is.\n</think>\n\n"),
        ("deepseek-v32", "<think>", "hm</think>\n\n"),
        ("functionary-v32", "<|start_header_id|>assistant<|end_header_id|>\n\n>>>", ""),
        ("harmony", "<|start|>assistant", ""),
        ("muse-glimmer", "<|start|>assistant", ""),
        ("mistral", "[/INST]", ""),
    ],
)
@pytest.mark.parametrize("dressed", [False, True])
def test_what_the_prompt_has_begun_is_gone_on_with(name: str, opened: str, rest: str, dressed: bool) -> None:
    format, tools = format_named(name), [PLAIN]
    grammar = required(format, tools, opened=opened)
    assert opened.rstrip().endswith(grammar.prefix.rstrip())
    assert bool(grammar.prefix) == (name != "mistral")
    whole = write(format, [call(format, "f", {"n": 1, "s": "a"})])
    text = rest + (whole if rest else whole.removeprefix(grammar.prefix))
    assert stuck(grammar, text, name if dressed else "") is None
    assert calls_in(read(format, [text], tools, opened)) == [("f", {"n": 1, "s": "a"})]
    tokens, compiling = compiler(name if dressed else "")
    sampler = Sampler(tokens, compiling, format, name)
    for _ in range(8):
        sample = sampler.draw(grammar)
        if sample.whole:
            assert check_calls(read_sample(format, sample, tools, tokens.specials, opened), tools, grammar, sample.text)


def test_a_model_may_think_before_it_calls() -> None:
    hermes = format_named("hermes")
    grammar = required(hermes, [PLAIN], thinking=True)
    made = [call(hermes, "f", {"n": 1, "s": "a"})]
    assert stuck(grammar, write(hermes, made, thought="Let me think.")) is None
    assert stuck(grammar, write(hermes, made)) is None
    assert stuck(required(hermes, [PLAIN]), write(hermes, made, thought="Let me think.")) is not None


# -- nothing is loosened silently

BOUNDED = obj(
    {
        "list": {"type": "array", "items": INTEGER, "uniqueItems": True},
        "text": {"type": "string", "pattern": "^[a-c]+$", "maxLength": 5},
        "number": {"type": "integer", "minimum": 3, "maximum": 7},
        "both": {"oneOf": [STRING, {"type": "integer"}]},  # which exclude each other, so that either will do
        "several": {"oneOf": [{"type": "array", "items": STRING}, {"type": "array", "items": STRING, "maxItems": 3}]},
        "other": {"type": "string", "not": {"const": "x"}, "description": "said only", "default": "y"},
    },
    "list",
    "text",
    "number",
)
JSON_LEAVES = {("#/properties/list", "uniqueItems"), ("#/properties/several", "oneOf"), ("#/properties/other", "not")}
TEXT_LEAVES = JSON_LEAVES | {("#/properties/text", "pattern"), ("#/properties/text", "maxLength")}


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("hermes", JSON_LEAVES),
        ("qwen3-coder", TEXT_LEAVES),
        ("kimi-k3", TEXT_LEAVES),
        ("minimax-m3", TEXT_LEAVES),
        ("pythonic", TEXT_LEAVES),
        ("gemma4", TEXT_LEAVES),
    ],
)
def test_what_is_not_enforced_is_listed_and_nothing_else_is_loosened(name: str, left: set[tuple[str, str]]) -> None:
    format, tool = format_named(name), Tool("f", "", BOUNDED)
    grammar = required(format, [tool])
    assert set(grammar.unenforced) == left

    def refused(**arguments: Any) -> bool:
        given = {"list": [1], "text": "abc", "number": 5} | arguments
        return stuck(grammar, write(format, [call(format, "f", given)])) is not None

    assert not refused()
    for path, keyword, broken in [
        ("list", "uniqueItems", [1, 1]),
        ("text", "pattern", "xyz"),
        ("text", "maxLength", "abcabc"),
        ("number", "minimum", 1),
        ("number", "maximum", 8),
        ("other", "not", "x"),
    ]:
        assert refused(**{path: broken}) == ((f"#/properties/{path}", keyword) not in left)
    assert refused(list=["a"])
    assert refused(number="five")
    assert refused(more=1)


def test_what_stands_beside_alternatives_counts_for_each_of_them() -> None:
    either = obj({"a": INTEGER, "b": INTEGER})
    del either["required"]
    either["anyOf"] = [{"required": ["a"]}, {"required": ["b"]}]
    tool = Tool("f", "", obj({"o": either}, "o"))
    for name in ("hermes", "qwen3-coder", "minimax-m3", "pythonic", "gemma4"):
        format = format_named(name)
        grammar = required(format, [tool])
        for inner, fits in [({"a": 1}, True), ({"b": 2}, True), ({"a": 1, "b": 2}, True), ({}, False)]:
            text = write(format, [call(format, "f", {"o": inner})])
            assert (stuck(grammar, text) is None) == fits, text


def test_an_enum_whose_values_plain_text_cannot_tell_apart_keeps_those_it_can() -> None:
    format = format_named("qwen3-coder")
    tool = Tool("f", "", obj({"e": {"enum": ["5", 6, "x"]}}, "e"))
    grammar = required(format, [tool])
    for value, fits in [("5", False), (6, True), ("x", True)]:
        assert (stuck(grammar, write(format, [call(format, "f", {"e": value})])) is None) == fits


def test_a_key_the_format_cannot_write_is_refused() -> None:
    with pytest.raises(UnsupportedSchema, match="cannot write the key"):
        required(format_named("gemma4"), [Tool("f", "", obj({"a:b": STRING}))])


def test_the_cost_of_a_grammar_grows_with_the_tools_and_not_faster() -> None:
    def cost(count: int) -> int:
        names = [f"{count}_{number}" for number in range(count)]  # which nothing has been remembered of
        tools = [Tool(f"f{name}", "", obj({f"a{name}": STRING, f"b{name}": INTEGER})) for name in names]
        return count_calls(lambda: required(format_named("pythonic"), tools))

    cost(1)
    assert cost(400) < cost(50) * 8 * 1.5
