"""Formats worked out from chat templates that no known format fits: of our own making, and the real ones."""

import json

import pytest

from callsmith.core.values import Call, Choice
from callsmith.formats.algebra import ARGS, ID, KEY, NAME, PYTHON, RAW, VALUE, Calls, Format, Nested, Raw, Thinks, each, obj
from callsmith.formats.inference.detect import detect
from callsmith.formats.inference.infer import Inferred, Unclear, infer
from callsmith.formats.inference.laws import calls_in, check
from callsmith.formats.inference.probes import TOOLS
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.reader.parse import read
from callsmith.formats.write import write
from callsmith.grammar.calls import grammar_for
from tests.formats.inference.test_detect import SHOW_NO_CALLS, SPOKEN
from tests.formats.templates import needs_corpus, template

TURN = """\
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for message in messages %}{{ '<role>' + message.role + '</role>\\n' }}
{%- if message.reasoning_content %}{{ '<hm>' + message.reasoning_content + '</hm>' }}{% endif %}
{{- message.content or '' }}
{%- if message.tool_calls %}{{ OPEN }}
{%- for one in message.tool_calls %}{% set call = one.function %}{% set args = call.arguments %}
{{- ITEM }}{{ BETWEEN if not loop.last else '' }}
{%- endfor %}{{ CLOSE }}{% endif %}{{ '<over>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<role>assistant</role>\\n' }}{% endif %}"""


def made_of(item: str, *, open: str = "", between: str = "", close: str = "") -> Template:
    """A template that writes its calls like this; `item` is Jinja, with `call` and `args` to use."""
    source = TURN.replace("{{- ITEM }}", item)
    for name, text in (("OPEN", open), ("BETWEEN", between), ("CLOSE", close)):
        source = source.replace(name, json.dumps(text))
    return Template(source)


def worked_out(template: Template) -> Format:
    inferred = infer(template)
    assert isinstance(inferred, Inferred), inferred
    assert check(inferred.format) == []
    return inferred.format


def test_an_envelope_with_keys_of_its_own() -> None:
    item = "{{- '{\"args\": ' + args | tojson + ', \"tool\": \"' + call.name + '\"}' }}"
    format = worked_out(made_of(item, open="<do>[", between=", ", close="]</do>"))
    assert format.calls == Calls(obj(("args", ARGS), ("tool", NAME)), open=("<do>", "["), between=", ", close=("]", "</do>"))


def test_an_envelope_whose_key_is_the_name() -> None:
    format = worked_out(made_of("{{- '<|c|>' + {call.name: args} | tojson + '<|/c|>' }}", between="\n"))
    assert format.calls == Calls("<|c|>", obj((NAME, ARGS)), "<|/c|>", between="\n")


def test_a_name_in_a_tag_with_an_id_and_an_object_behind_it() -> None:
    format = worked_out(made_of("{{- '<run ' + call.name + ' id=' + one.id + '>' + args | tojson + '</run>' }}"))
    assert format.calls == Calls("<run ", NAME, " id=", ID, ">", ARGS, "</run>")


def test_arguments_one_by_one_as_plain_text() -> None:
    loop = (
        "{% for key, value in args.items() %}{{ '<p ' + key + '>\\n' + (value if value is string else value | tojson) "
        "+ '\\n</p>\\n' }}{% endfor %}"
    )
    format = worked_out(made_of("{{- '<f ' + call.name + '>\\n' }}" + loop + "{{- '</f>' }}", between="\n"))
    argument = each("<p ", KEY, ">\n", VALUE, "\n</p>\n")
    assert format.calls == Calls("<f ", NAME, ">\n", argument, "</f>", between="\n", values=RAW)


def test_arguments_with_the_flag_of_their_type() -> None:
    loop = (
        "{% for key, value in args.items() %}{{ '<p ' + key + ' text=' + ('yes' if value is string else 'no') + '>' "
        "+ (value if value is string else value | tojson) + '</p>' }}{% endfor %}"
    )
    values = worked_out(made_of("{{- '<f ' + call.name + '>' }}" + loop + "{{- '</f>' }}")).calls.values
    assert values == Raw(flags=(("yes", "string"), ("no", "json")))


def test_python_calls() -> None:
    loop = (
        "{% for key, value in args.items() %}{{ key + '=' + (\"'\" + value + \"'\" if value is string else value | string) }}"
        "{{- ', ' if not loop.last else '' }}{% endfor %}"
    )
    format = worked_out(made_of("{{- call.name + '(' }}" + loop + "{{- ')' }}", open="<py>[", between=", ", close="]</py>"))
    call = (NAME, "(", each(KEY, "=", VALUE, between=", "), ")")
    assert format.calls == Calls(*call, open=("<py>", "["), between=", ", close=("]", "</py>"), values=PYTHON)


def test_reasoning_is_found_where_it_is_shown() -> None:
    format = worked_out(made_of("{{- '<c>' + {'n': call.name, 'a': args} | tojson + '</c>' }}"))
    assert format.thinks == Thinks("<hm>", "</hm>")


def test_a_template_that_shows_one_call_a_message_holds_the_model_to_one() -> None:
    one_only = made_of("{{- '<c>' + {'n': call.name, 'a': args} | tojson + '</c>' }}").source
    refusing = one_only.replace(
        "{%- for message in messages %}",
        "{%- for message in messages %}{% if (message.tool_calls or []) | length > 1 %}{{ raise_exception('one') }}{% endif %}",
    )
    inferred = infer(Template(refusing))
    assert isinstance(inferred, Inferred)
    assert inferred.format.calls.most == 1
    assert any("one call a message" in note for note in inferred.notes)


def test_a_template_without_calls_is_unclear() -> None:
    assert infer(Template(CHATML)) == Unclear(("the template shows no calls",))


def test_calls_that_nothing_tells_from_text_are_unclear() -> None:
    assert isinstance(infer(made_of("{{- call.name + ' ' + args | tojson }}")), Unclear)


# --- the real templates, as if their formats were not known -------------------------------------------------------------------

# One of each shape; the others take longer and say less.
TELLING = {
    "Apertus-8B-Instruct", "ByteDance-Seed-OSS", "Cohere2MoE", "GLM-4.6", "Kimi-K2-Instruct", "LFM2.5-8B-A1B", "MiniMax-M3",
    "NVIDIA-Nemotron-Nano-v2", "Qwen3-Coder", "deepseek-ai-DeepSeek-V3.2", "google-gemma-4-31B-it", "muse-glimmer",
    "meetkai-functionary-medium-v3.2", "meta-llama-Llama-3.1-8B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407",
    "openai-gpt-oss-120b", "upstage-Solar-Open-100B",
}  # fmt: skip
# Kimi K3 writes an empty answer before every call; the other closes its section only where there are two calls.
BEYOND = {"Kimi-K3", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B"}
REAL = [
    pytest.param(name, marks=() if name in TELLING else pytest.mark.slow)
    for spoken in SPOKEN.values()
    for name in spoken
    if name not in BEYOND
]


@pytest.mark.req("R210")
@pytest.mark.req("R230")
@needs_corpus
@pytest.mark.parametrize("name", REAL)
@pytest.mark.sampled
def test_a_format_is_worked_out_that_reads_the_template_back(name: str) -> None:
    real = template(name)
    format = worked_out(real)
    evidence = detect(real, [format])
    assert evidence is not None
    assert (evidence.found, evidence.repairs) == (2, 0)
    assert evidence.similarity, "it would write the calls in other words"
    for choice in (Choice("required"), Choice("auto")):
        assert grammar_for(format, TOOLS, choice) is not None


@needs_corpus
@pytest.mark.parametrize("name", sorted(BEYOND))
def test_what_is_beyond_it_is_said_with_reasons(name: str) -> None:
    inferred = infer(template(name))
    assert isinstance(inferred, Unclear)
    assert inferred.reasons


@needs_corpus
@pytest.mark.parametrize("name", SHOW_NO_CALLS)
def test_nothing_is_worked_out_from_nothing(name: str) -> None:
    assert infer(template(name)) == Unclear(("the template shows no calls",))


@needs_corpus
def test_nested_elements_are_told_from_plain_text() -> None:
    format = worked_out(template("MiniMax-M3"))
    assert isinstance(format.calls.values, Nested)
    text = write(format, [Call("tourmaline_fn", {"agate_key": ["a", "b"]})])
    tools = [tool for tool in TOOLS if tool.name == "tourmaline_fn"]
    assert calls_in(read(format, text, tools)) == [("tourmaline_fn", {"agate_key": ["a", "b"]})]
