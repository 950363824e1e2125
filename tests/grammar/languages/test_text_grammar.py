"""Texts held by a grammar of the user: what is read, which texts fit, and that every format writes only those."""

import json
import random
import re
import time
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")
pytest.importorskip("lark")

from callsmith.core.errors import UnsupportedSchema, UsageError
from callsmith.core.events import Text, Thought
from callsmith.core.schema import check_schema, validate
from callsmith.core.values import Choice
from callsmith.formats import format_named, formats
from callsmith.formats.algebra import Format
from callsmith.formats.write import write
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.languages.text_grammar import read_text_grammar
from callsmith.grammar.targets.gbnf import to_gbnf
from tests.effort import tries
from tests.grammar.checking import call, check_calls, read_sample, required, stuck
from tests.grammar.languages.patches import PATCH, SUM, TAGS, custom, fits
from tests.grammar.sampling import Sampler, compiler
from tests.grammar.targets.llama_grammar import LlamaGrammar, missing

EVERY = pytest.mark.parametrize("format", formats().values(), ids=lambda format: format.name)
TOOLS = {"patch": PATCH, "sum": SUM, "tags": TAGS}
CODE = r"^[A-Z]{2,3}-\d{4}( \"?[^\s<>]+\"?)?$"
PATCHES = [
    "*** Begin Patch\n*** Delete File: a/b c.txt\n*** End Patch",
    "*** Begin Patch\n*** Add File: é.py\n+print(\"a\\n\")\n+\n+\t'x'\n*** End Patch\n",
    "*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@\n-x\n+y < z\n@@ def f():\n a\n*** End of File\n*** End Patch\n",
    "*** Begin Patch\n*** Update File: a\n*** End Patch",
]
NO_PATCHES = [
    "",
    "*** Begin Patch\n*** End Patch",
    "*** Begin Patch\n*** Add File: a\n*** End Patch",
    "*** Begin Patch\n*** Add File: \n+a\n*** End Patch",
    "*** Begin Patch\n*** Update File: a\nx\n*** End Patch",
    PATCHES[0] + "\n\n",
    " " + PATCHES[0],
]
SUMS, NO_SUMS = ["1", "( 1+ a)*2 - 3.5e2", '"a < b"+("é")'], ["", "1+", "(1", "1 2", "A"]
PAGES, NO_PAGES = ["<a></a>", "<ab>c <d>\n</d></x>"], ["<a>", "<a></A>", "a", "<a>&</a>"]
EXAMPLES = [(PATCH, PATCHES, NO_PATCHES), (SUM, SUMS, NO_SUMS), (TAGS, PAGES, NO_PAGES)]


def lark_grammar(definition: str, syntax: str = "lark") -> Any:
    return read_text_grammar({"syntax": syntax, "definition": definition})


# -- which texts fit


@pytest.mark.parametrize(("definition", "good", "bad"), EXAMPLES)
def test_a_text_fits_where_larks_own_parser_reads_it(definition: str, good: list[str], bad: list[str]) -> None:
    grammar = lark_grammar(definition)
    assert [text for text in good if grammar.misfit(text)] == []
    assert [text for text in bad if not grammar.misfit(text)] == []
    assert [text for text in good if not fits(definition, text)] == []
    assert [text for text in bad if fits(definition, text)] == []


@pytest.mark.parametrize(("definition", "good", "bad"), EXAMPLES)
def test_a_text_with_a_letter_changed_is_judged_as_larks_own_parser_does(
    definition: str, good: list[str], bad: list[str]
) -> None:
    grammar, chance = lark_grammar(definition), random.Random(definition)
    for _ in range(tries(40, 300)):
        text = chance.choice([*good, *bad])
        at = chance.randint(0, len(text))
        text = text[:at] + chance.choice("ax<>\n*+ ()/é1") * chance.randint(0, 2) + text[at + chance.randint(0, 2) :]
        assert (grammar.misfit(text) is None) == fits(definition, text), text


@pytest.mark.parametrize(
    ("definition", "good", "bad"),
    [
        ('start: "a".."c"+ "x"i~2..3 ["y"]', ["abxXy", "cxx"], ["ax", "dxx", "axxxx"]),
        ('start: ("a" | "b" -> second) {2,3}\n', ["ab", "bbb"], ["a", "aaaa"]),
        ('start: A _B?\nA.2: /a/i\n_B: A "!" | /b+/', ["a", "AA!", "abb"], ["b"]),
        ('!start: x\n    | "z" // or this\n?x: "y"  # a comment\n', ["y", "z"], ["x"]),
        ("start: WS_INLINE N\n%import common (WS_INLINE, INT)\n%import common.INT -> N\n", [" 12"], ["12", " x"]),
        (r'start: "\"\\\n\x41\u00e9\U0001F600/" /\/[\/\]]\x{41}\u0042/', ['"\\\nAé😀//]AB', '"\\\nAé😀///AB'], ["x"]),
        ("start: /a.b/s /c.d/", ["a\nbc\rd"], ["a\nbc\nd"]),
        (r"start: /\w\d\s/ /[^\w]/ /\S\D/", ["a1 !xé", "_9\t ab"], ["é1 !xx", "a1 éxx", "a1 !x5", "a1 !x٣"]),
        ("start: /[]a-]+/ /[^]b]/", ["]-ac", "ax"], ["b", "a]", "ab"]),
        ("start: /(?i:ab)(?P<x>c)(?:d|e)?/ /(?is)x./", ["ABcdX\n", "abcxq"], ["abC", "abcdx"]),
        ('start: a\na: b "1" | "x"\nb: a "2" | c\nc: a? "3" | "y"', ["x21", "y1", "x2131", "31"], ["1", "x1", "y2"]),
        ('start: "a" start "b" | ""', ["", "aabb"], ["aab", "ba"]),
        ('start: ("a" "b"?)~3 | word*\nword: /[a-z]/ word | "."', ["aab.", "xyz.", "", "abaa"], ["xy", "aabbbb"]),
    ],
)
def test_what_lark_has_is_read(definition: str, good: list[str], bad: list[str]) -> None:
    grammar = lark_grammar(definition)
    assert [text for text in good if grammar.misfit(text)] == []
    assert [text for text in bad if not grammar.misfit(text)] == []


@pytest.mark.parametrize(
    ("definition", "good", "bad"),
    [
        (CODE, ["AB-1234", 'ABC-0000 "x"'], ["AB-12345", "ab-1234", "xAB-1234", "AB-1234\n"]),
        (r"(?i)yes|no", ["Yes", "NO"], ["yesno", "maybe"]),
        (r"\Aa+?b\z|^c$", ["aab", "c"], ["b", "cc"]),
        (".*", ["", "abc"], ["a\nb"]),
    ],
)
def test_a_regular_expression_matches_the_whole_text(definition: str, good: list[str], bad: list[str]) -> None:
    grammar = lark_grammar(definition, "regex")
    assert [text for text in good if grammar.misfit(text)] == []
    assert [text for text in bad if not grammar.misfit(text)] == []


# -- what is wrong


LONG = "".join(f'a{at}: "x" a{at + 1} | "y"\n' for at in range(1100))


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ("start: foo", "line 1: there is no rule 'foo'"),
        ('start: "a"\n\nx: FOO', "line 3: there is no terminal 'FOO'"),
        ('x: "a"', "no rule 'start'"),
        ('start: "a" start', "line 1: the rule 'start' has no end"),
        ('start: "a" x\nx: y\ny: x', "has no end"),
        ('start: x\nx: y? x "a" | "b"\ny: "c"', "'x' begins with itself behind something that may be empty"),
        ('start: ("a"*)* start? "b"', "a repetition is of something that may be empty"),
        ('start: A\nA: "x" A', "line 2: the terminal 'A' refers to itself"),
        ("start: A\nA: start", "the terminal 'A' refers to a rule, 'start'"),
        ("start: /(?=a)b/", "line 1: the expression has what is not supported: look-around"),
        (r"start: /(a)\1/", "a back reference"),
        (r"start: /a\b/", "a word boundary"),
        (r"start: /\p{L}/", "Unicode properties"),
        ("start: /a/x", "the flag 'x'"),
        ("start: /a^b/", "an anchor in the middle"),
        (r"start: /\q/", r"the escape \q"),
        (r"start: /[\ud800]/", "a character that there is none of"),
        ("start: /[a&&b]/", "'&&' in a class"),
        ("start: /a", "line 1: expected a regular expression in / on one line"),
        ('start: "a', 'expected a text in "'),
        (r'start: "\q"', "unknown escape"),
        (r'start: "\ud800"', "no character d800"),
        ('start: "b".."a"', "lower to the higher character"),
        ('start: "a" ~ 3..2', "lower to the higher number"),
        ('start: "a" ~ 99999', "at most 2000"),
        ('start: ("a"', "expected )"),
        ('start: "a")', "expected the end of the line"),
        ('start: "a"\nstart: "b"', "line 2: 'start' is defined twice"),
        ('Start: "a"', "in lower case (a rule) or in upper case (a terminal)"),
        ('start: sep{"a"}', "templates are not supported"),
        ('sep{x}: x\nstart: "a"', "templates and options of rules are not supported"),
        ("start: X\n%declare X", "of what begins with % there are"),
        ("start: X\n%import python.X", "only terminals of `common`"),
        ("start: X\n%import common.X", "`common` has no 'X'"),
        ("start: <|im_end|>", "tokens and grammars in a grammar"),
        ("start: %json {}", "tokens and grammars in a grammar"),
        ('start[lazy]: "a"', "templates and options"),
        ("start: " + "(" * 60 + '"a"' + ")" * 60, "nested more than 50"),
        ("start: /" + "(" * 60 + "a" + ")" * 60 + "/", "nested more than 50"),
        ("start: a0\n" + LONG + 'a1100: "z"', "more than 1000 rules"),
        ('start: "' + "a" * 1_000_000 + '"', "bytes, more than 65536"),
        ("start: /[" + "".join(f"\\x{{{code:x}}}" for code in range(0x400, 0xC00, 2)) + "]/", "a class of more than 256 ranges"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(definition: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        lark_grammar(definition)
    assert why in str(refused.value)
    with pytest.raises(UnsupportedSchema) as unsupported:
        check_schema(custom("f", definition).parameters)
    assert (unsupported.value.path, unsupported.value.keyword) == ("/properties/input", "x-grammar")


@pytest.mark.parametrize("value", ["start: x", {}, {"syntax": "gbnf", "definition": "x"}, {"syntax": "lark"}, None])
def test_what_is_no_grammar_is_refused(value: Any) -> None:
    with pytest.raises(UnsupportedSchema, match="lark or regex"):
        check_schema({"properties": {"input": {"type": "string", "x-grammar": value}}})


DOUBLING = "start: a0 start?\n" + "".join(f"a{at}: a{at + 1} a{at + 1}\n" for at in range(40)) + 'a40: "x"'
MUTUAL = "start: r0\n" + "".join(
    f"r{at}: " + " | ".join(f'r{other} "{at}"' for other in range(30)) + f' | "{at}"\n' for at in range(30)
)


@pytest.mark.attack
@pytest.mark.parametrize(
    "definition",
    [
        DOUBLING,
        MUTUAL,
        'start: ("a"?)~2000 start | ""',
        "start: /((((a{1,999}){1,999}){1,999}){1,999}){1,999}/",
        "start: /(a|b)*a(a|b){900}/",
        "start: x\n" + 'x: "a" | ' + " | ".join(["x x x"] * 2000),
        "start: " + "(" * 49 + '"a"' + ")?" * 49 + " start?",
        "start: " + " | ".join(f'"{number}" start' for number in range(3000)) + ' | "x"',
        "start: /" + "a{2}" + "{2}" * 5000 + "/",
        "start: /" + "[^\\d\\s]" * 2000 + "/",
        "start: " + "A " * 20_000 + "\nA: /[a-z]{1,2000}/",
    ],
)
def test_a_costly_grammar_is_read_or_refused_in_no_time(definition: str) -> None:
    started = time.process_time()
    try:
        lark_grammar(definition).misfit("a" * 300)
    except UsageError as error:
        assert str(error)
    assert time.process_time() - started < 10


def test_one_that_is_too_large_for_gbnf_is_refused_in_no_time() -> None:
    tool = custom("deep", 'start: "(" start ")" | ' + " | ".join(rf"/[<\/a-z]{{1,{most}}}/" for most in range(100, 200)))
    grammar, started = required(format_named("qwen3-coder"), [tool]), time.process_time()
    with pytest.raises(UsageError, match="becomes too large where its text ends at a marker"):
        to_gbnf(grammar)
    assert time.process_time() - started < 10


# -- how it is validated


def test_what_does_not_fit_is_told_to_the_model() -> None:
    schema = custom("patch", PATCH).parameters
    assert validate(schema, {"input": PATCHES[0]}) == []
    (complaint,) = validate(schema, {"input": "*** Begin Patch\nno"})
    assert str(complaint) == "at /input: the text does not fit its grammar: at character 16, 'no'"
    (complaint,) = validate(schema, {"input": "*** Begin Patch\n"})
    assert "it ends too early" in str(complaint)
    assert "is not of type" in str(validate(schema, {"input": 5})[0])


def test_a_long_text_that_can_be_read_in_many_ways_is_held_against_a_grammar_that_refers_to_itself() -> None:
    text = "<a>" * 12 + "many words, in how many parts? " * 400 + "</b>" * 12
    assert fits(TAGS, text[:40] + "</b>" * 12)
    assert validate(custom("tags", TAGS).parameters, {"input": text}) == []
    (complaint,) = validate(custom("tags", TAGS).parameters, {"input": text[:-1]})
    assert "it ends too early" in str(complaint)


# -- in every format


def arguments_of(tools: dict[str, str]) -> list[Any]:
    return [custom(name, definition) for name, definition in tools.items()]


@EVERY
@pytest.mark.sampled
def test_every_format_writes_what_fits_and_nothing_else(format: Format) -> None:
    tools = [*arguments_of(TOOLS), custom("code", CODE, "regex")]
    grammar = required(format, tools)
    assert grammar.unenforced == ()
    for name, good, bad in [
        ("patch", PATCHES, NO_PATCHES), ("sum", SUMS, NO_SUMS), ("tags", PAGES, NO_PAGES),
        ("code", ["AB-1234", 'AB-1234 "\\é"'], ["AB-123", "AB-1234 ", "AB-12345"]),
    ]:  # fmt: skip
        for text, is_good in [*((text, True) for text in good), *((text, False) for text in bad)]:
            try:
                written = write(format, [call(format, name, {"input": text})])
            except UsageError:
                continue
            for dressed in ("", format.name):
                assert (stuck(grammar, written, dressed) is None) == is_good, (dressed, written)


@EVERY
@pytest.mark.sampled
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_every_format_does_in_gbnf_too(format: Format) -> None:
    tools = [*arguments_of(TOOLS), custom("code", CODE, "regex")]
    for tool, good, bad in zip(tools, (PATCHES, SUMS, PAGES), (NO_PATCHES, NO_SUMS, NO_PAGES), strict=False):
        grammar = to_gbnf(required(format, [tool]))
        assert grammar.unenforced == ()
        judge = LlamaGrammar(grammar.text)
        for text, is_good in [*((text, True) for text in good), *((text, False) for text in bad)]:
            try:
                written = write(format, [call(format, tool.name, {"input": text})])
            except UsageError:
                continue
            assert judge.accepts(written) == is_good, written


def samples(format: Format, count: int) -> None:
    finished = 0
    for dressed in (False, True):
        tokens, compiling = compiler(format.name if dressed else "")
        sampler = Sampler(tokens, compiling, format, format.name)
        for number in range(count // 2):
            name = [*TOOLS][number % len(TOOLS)]
            tools = [custom(name, TOOLS[name]), custom("code", CODE, "regex")]
            grammar = grammar_for(format, tools, Choice("required"), parallel=number % 3 == 0)
            assert grammar is not None
            sample = sampler.draw(grammar)
            if not sample.whole:
                continue
            finished += 1
            events = read_sample(format, sample, tools, tokens.specials)
            calls = check_calls(events, tools, grammar, sample.text)
            assert calls, sample.text
            assert not [event for event in events if isinstance(event, Text | Thought)], sample.text
            for made in calls:
                text = str(made.arguments["input"])
                if made.name == "code":
                    assert re.fullmatch(CODE, text, re.ASCII), text
                else:
                    assert fits(TOOLS[made.name], text), json.dumps(text)
    assert finished > count * 0.4


@EVERY
@pytest.mark.sampled
def test_whatever_the_grammar_lets_through_is_a_text_that_fits(format: Format) -> None:
    samples(format, tries(6, 60))
