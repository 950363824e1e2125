"""Chat templates: the sandbox and its conventions, the adaptations, and every real template of the corpus."""

from pathlib import Path
from types import MappingProxyType

import pytest

from callsmith.core.errors import ModelError, UsageError
from callsmith.formats.prompt.adapt import ADAPTATIONS, TemplateInput, adapt
from callsmith.formats.prompt.template import CHATML, Template, fixed_date
from tests.formats.templates import CORPUS, REAL, needs_corpus, real

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object", "properties": {}}}}
TURNS = "{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}"


def call(id: str = "1", **arguments: object) -> dict[str, object]:
    return {"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}}


def test_json_is_written_without_escapes_and_survives_generators_and_undefined() -> None:
    source = (
        "{{ messages | map(attribute='content') | tojson }}{{ nothing | tojson }}{{ frozen | tojson(separators=(',', ':')) }}"
    )
    text = Template(source).render([{"role": "user", "content": "<é'&>"}], (), {"frozen": MappingProxyType({"a": [1]})})
    assert text == '["<é\'&>"]null{"a":[1]}'


def test_blocks_are_trimmed_loops_can_break_and_generation_is_its_body() -> None:
    words = "  {% generation %}\n{{ m.content }}{% endgeneration %}\n"
    source = "{% for m in messages %}\n" + words + "{% if loop.last %}\n{% break %}\n{% endif %}\n-{% endfor %}\nend"
    assert Template(source).render([USER, {"role": "assistant", "content": "Yes"}]) == "Hi-Yesend"


def test_the_clock_is_the_callers() -> None:
    source = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}no clock{% endif %}"
    assert Template(source, now=fixed_date).render([USER]) == "2025"
    assert Template(source).render([USER]) == "no clock"


def test_a_refusal_comes_out_in_the_templates_own_words() -> None:
    template = Template("{{ raise_exception('Only cats may speak') }}")
    with pytest.raises(UsageError, match="Only cats may speak"):
        template.render([USER])


@pytest.mark.parametrize(
    "source", ["{{ ''.__class__.__mro__ }}", "{{ nothing.at.all }}", "{{ 1 / 0 }}", "{{ messages.clear() }}"]
)
def test_a_template_that_breaks_or_breaks_out_is_the_operators_affair(source: str) -> None:
    with pytest.raises(ModelError, match="chat template fails"):
        Template(source).render([USER])


def test_a_template_that_does_not_parse_is_refused_at_once() -> None:
    with pytest.raises(ModelError, match="not valid"):
        Template("{% if %}")


def test_a_template_cannot_change_what_it_is_given() -> None:
    tools = [TOOL]
    template = Template("{{ messages.append(messages[0]) }}{% if tools %}{{ tools.pop().function.name }}{% endif %}")
    assert template.render([USER], tools) == "Nonelook"
    assert tools == [TOOL]


@pytest.mark.parametrize("as_list", [False, True])
def test_named_templates_are_chosen_by_whether_there_are_tools(as_list: bool) -> None:
    templates = {"default": "plain", "tool_use": "{{ tools[0].function.name }}"}
    template = Template([{"name": name, "template": text} for name, text in templates.items()] if as_list else templates)
    assert (template.render([USER]), template.render([USER], [TOOL])) == ("plain", "look")


def test_the_beginning_of_the_models_turn_is_told_apart() -> None:
    text, opened = Template(CHATML).render_prompt([USER])
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert opened == "<|im_start|>assistant\n"
    assert Template(TURNS).render_prompt([USER]) == ("[user|Hi]", "")


def test_where_two_renderings_part_inside_a_marker_the_whole_marker_begins_the_turn() -> None:
    source = "{{ messages[0].content }}{% if add_generation_prompt %}<|assistant|>{% else %}<|endoftext|>{% endif %}"
    assert Template(source).render_prompt([USER])[1] == "<|assistant|>"


ONE_CALL = "{% if m.tool_calls | length > 1 %}{{ raise_exception('single') }}{% endif %}"
QUIRKS = {
    "arguments as JSON text": "{{ m.tool_calls[0].function.name + m.tool_calls[0].function.arguments }}",
    "bare calls": "{{ m.tool_calls[0].name + (m.tool_calls[0].arguments | tojson) }}",
    "one call a message": ONE_CALL + "{{ m.tool_calls[0].function | tojson }}",
}


@pytest.mark.parametrize("name", QUIRKS)
def test_a_template_gets_calls_in_the_shape_it_wants(name: str) -> None:
    body = "{% for m in messages %}{% if m.tool_calls %}" + QUIRKS[name] + "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    template = Template(body)
    assert name in template.traits.adaptations
    calls = [call("1", x="é"), call("2", x="b")] if name == "one call a message" else [call("1", x="é")]
    results = [{"role": "tool", "tool_call_id": item["id"], "content": f"r{item['id']}"} for item in calls]
    text = template.render([USER, {"role": "assistant", "content": None, "tool_calls": calls}, *results])
    assert '{"x": "é"}' in text
    assert "r1" in text
    if len(calls) > 1:
        assert text.index("é") < text.index("r1") < text.index('"b"') < text.index("r2")


def test_a_template_without_a_system_role_gets_the_system_text_with_the_first_question() -> None:
    strict = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}"
    assert Template(strict).render([{"role": "system", "content": "Be brief."}, USER]) == "Be brief.\n\nHi"


def test_a_template_in_which_the_roles_take_turns_gets_neighbours_as_one() -> None:
    strict = (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}{% endif %}"
        "[{{ m.content }}]{% endfor %}"
    )
    assert Template(strict).render([USER, USER]) == "[Hi\n\nHi]"


def test_a_template_that_wants_bare_tools_gets_them() -> None:
    template = Template("{{ messages[0].content }}{% for t in tools or [] %}{{ t.name + (t.parameters | tojson) }}{% endfor %}")
    assert "bare tools" in template.traits.adaptations
    assert template.render([USER], [TOOL]).startswith("Hilook{")


def test_a_template_that_wants_content_in_parts_gets_them() -> None:
    template = Template("{% for m in messages %}{% for part in m.content %}{{ part['text'] }}{% endfor %}{% endfor %}")
    assert template.render([USER]) == "Hi"


def test_no_adaptation_changes_a_plain_conversation_that_needs_none() -> None:
    conversation = TemplateInput([USER, {"role": "assistant", "content": "Hello"}, USER], [TOOL])
    changing = {"content in parts", "bare tools", "schemas spelt out", "tools also as JSON text in `functions`"}
    names = [item.name for item in ADAPTATIONS if item.name not in changing]
    assert adapt(conversation, names) == conversation


@needs_corpus
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_every_real_template_shows_a_conversation(path: Path) -> None:
    template = real(path)
    text, _ = template.render_prompt(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"}], [TOOL]
    )
    assert "Be brief." in text
    assert "Weather?" in text
    assert ("look" in text) == template.traits.tools


@needs_corpus
@pytest.mark.parametrize(
    ("name", "markers"),
    [
        pytest.param(
            "meta-llama-Llama-3.1-8B-Instruct",
            ["<|start_header_id|>system<|end_header_id|>", "<|start_header_id|>user<|end_header_id|>", "<|eot_id|>"],
            marks=pytest.mark.req("R37"),
        ),
        pytest.param(
            "mistralai-Mistral-Nemo-Instruct-2407",
            ["[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[INST]", "[/INST]"],
            marks=pytest.mark.req("R39"),
        ),
        pytest.param("Qwen-Qwen2.5-7B-Instruct", ["<tools>", "</tools>", "<|im_start|>user"], marks=pytest.mark.req("R41")),
    ],
)
@pytest.mark.req("R36")
@pytest.mark.req("R44")
def test_families_that_know_tools_are_shown_them_by_their_own_template(name: str, markers: list[str]) -> None:
    template = real(CORPUS / f"{name}.jinja")
    assert template.traits.tools and template.traits.calls and template.traits.results
    text = template.render([USER], [TOOL])
    assert '"look"' in text
    assert [marker for marker in markers if marker not in text] == []


@needs_corpus
def test_most_real_templates_show_tools_calls_and_results_themselves() -> None:
    traits = [real(path).traits for path in REAL]
    assert sum(trait.tools for trait in traits) >= 61
    assert sum(trait.calls for trait in traits) >= 61
    assert sum(trait.results for trait in traits) >= 65


def test_a_loop_tells_what_has_changed():
    template = Template("{% for m in messages %}{{ m.role if loop.changed(m.role) }}{{ loop.cycle('-', '+') }}{% endfor %}")
    roles = ("user", "user", "assistant")
    assert template.render([{"role": role, "content": "hi"} for role in roles]) == "user-+assistant-"


def test_namespaces_stand_in_namespaces():
    template = Template("{% set a = namespace(b=namespace(c='x')) %}{{ a.b.c }}")
    assert template.render([{"role": "user", "content": "hi"}]) == "x"


def test_a_long_conversation_is_rendered():
    text = "<think>" + 'Words, "quoted".\n' * 250_000 + "</think>"
    source = (
        "{% for m in messages %}{{ m.content|tojson }}{{ m.content|trim|replace('\n', ' ') }}"
        "{{ m.content.split('</think>')[0].strip() ~ (m.content + '.') }}{{ '</think>' in m.content }}"
        "{{ m.content|upper }}{% endfor %}"
    )
    assert len(Template(source).render([{"role": "tool", "content": text}])) > 5 * len(text)
