"""Formats as TOML: what is written reads back the same, and an error says where it stands."""

import pytest

from callsmith.core.errors import UsageError
from callsmith.formats import formats
from callsmith.formats.algebra import ARGS, KEY, NAME, RAW, VALUE, Calls, Format, Notation, Raw, Thinks, each, obj, opt
from callsmith.formats.toml.read import format_from_toml
from callsmith.formats.toml.write import format_to_toml

CODER = """
name = "coder"

[[parts]]
kind = "thinks"
open = "<think>\\n"
close = "</think>"
ended_by_calls = true

[[parts]]
kind = "calls"
item = [
    {opt = "<tool_call>\\n"},
    "<function={name}>\\n",
    {each = "<parameter={key}>\\n{value}\\n</parameter>\\n", between = "\\n"},
    "</function>",
]
between = "\\n"
values = "raw"
most = 3
"""
ENVELOPE = """
name = "x"
[[parts]]
kind = "calls"
item = [{object = {name = "{name}", arguments = "{args}"}}]
"""


@pytest.mark.parametrize("format", formats().values(), ids=lambda format: format.name)
def test_every_format_reads_back_the_same(format: Format) -> None:
    assert format_from_toml(format_to_toml(format)) == format


def test_holes_stand_in_the_strings() -> None:
    argument = each("<parameter=", KEY, ">\n", VALUE, "\n</parameter>\n", between="\n")
    calls = Calls(opt("<tool_call>\n"), "<function=", NAME, ">\n", argument, "</function>", between="\n", values=RAW, most=3)
    assert format_from_toml(CODER) == Format("coder", (Thinks("<think>\n", "</think>", True), calls))


@pytest.mark.parametrize(
    "literal", ["{name}", "{{key}}", "{", "}", "{other}", '{"name": "', "'\"\\", "\x00\u2028\t é天", "{{name}"]
)
def test_any_literal_survives_beside_a_hole(literal: str) -> None:
    calls = Calls(literal, NAME, literal, literal, ARGS, literal, open=(literal,), close=(literal,), between=literal)
    format = Format("x", (Thinks(literal, (literal, literal)), calls), drop=(literal,))
    assert format_from_toml(format_to_toml(format)) == format


def test_spellings_are_written_by_their_differences() -> None:
    values = Raw(flags=(("true", "string"), ("false", "json")), cdata=True)
    toml = format_to_toml(Format("x", (Calls("<", NAME, each("<", KEY, ">", VALUE, "<"), values=values),)))
    assert 'values = {kind = "raw", flags = {true = "string", false = "json"}, cdata = true}' in toml


def test_a_table_of_values_sets_what_it_names() -> None:
    source = ENVELOPE + 'values = {kind = "notation", quotes = ["<|>"], bare_keys = true}\n'
    expected = Notation(quotes=("<|>",), bare_keys=True)
    assert format_from_toml(source).calls == Calls(obj(("name", NAME), ("arguments", ARGS)), values=expected)


@pytest.mark.parametrize(
    ("source", "where", "what"),
    [
        ("name =", "", "not TOML"),
        ("", "the format", "name: is required"),
        ('name = "x"', "the format", "no part has kind"),
        ('name = "x"\nkind = 1', "the format", "unknown key 'kind'; known: aliases"),
        ('name = "x"\nids = "("\nparts = [{kind = "calls", item = "{name}{args}"}]', "the format", "not a pattern"),
        ('name = "x"\n[[parts]]\nkind = "call"', "part 1", '"calls", "thinks", "says" or "quotes"'),
        (ENVELOPE + "between = 3", "part 1, between", "expected a string, got an integer"),
        (ENVELOPE + 'closes = "x"', "part 1", "unknown key 'closes'; did you mean 'close'?"),
        (ENVELOPE + 'values = "yaml"', "part 1, values", '"json", "python", "raw"'),
        (ENVELOPE + 'values = {kind = "raw", flags = {s = "str"}}', "part 1, values", "flag `s` must mean one of"),
        (ENVELOPE + 'close = "</{name}>"', "part 1, close", "{name} is outside the calls"),
        (ENVELOPE.replace("{args}", "{arg}"), "part 1, item, node 1, object", "`arguments` must hold"),
        (ENVELOPE.replace("{object = ", "{objekt = "), "part 1, item, node 1", "any, opt, each, object, ident"),
        ('name = "x"\n[[parts]]\nkind = "calls"\nitem = "<{args}>"', "part 1", "no {name}"),
        ('name = "x"\n[[parts]]\nkind = "calls"\nitem = "<{name}>"', "part 1", "neither {args} nor `each`"),
        ('name = "x"\n[[parts]]\nkind = "calls"\nitem = "<{name}>{args}{key}"', "part 1", "only inside `each`"),
        (
            'name = "x"\n[[parts]]\nkind = "calls"\nitem = ["<{name}>", {each = "{key}"}]',
            "part 1, item, node 2, each",
            "{key} and {value}",
        ),
        ('name = "x"\n[[parts]]\nkind = "thinks"\nopen = "<t>"', "part 1, close", "nodes are missing"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(source: str, where: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        format_from_toml(source)
    assert where in str(caught.value)
    assert what in str(caught.value)
