"""What is known of models by their names, and when it counts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.events import CallReady, Text
from callsmith.core.values import Message, Request, Tool
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML
from callsmith.models import opening
from callsmith.models.local import LocalModel
from callsmith.models.opening import Options, open_model
from callsmith.models.presets import preset_for, presets, presets_in
from callsmith.models.weights.catalogue import catalogue


@pytest.mark.req("R33")
def test_only_models_that_were_measured_are_held_where_the_choice_is_theirs():
    known = [*presets(), *catalogue().values()]
    held = {item.name for item in known if item.auto_guarded or item.policy not in (None, "auto") or item.tool_prompt}
    rows = [line for line in Path("docs/small-models.md").read_text("utf-8").splitlines() if line.startswith("| `qwen")]
    assert held == {line.split("`")[1] for line in rows} == {"qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"}


@pytest.mark.req("R33")
async def test_a_model_that_nobody_measured_is_left_free():
    model = open_model("scripted:Hi.")
    assert isinstance(model, LocalModel) and isinstance(model.engine, Scripted)
    assert (model.info.policy, model.info.tool_prompt) == ("auto", "template")
    async for _ in model.stream(Request((Message.user("Hi"),), (Tool("now"),))):
        pass
    assert [request.grammar for request in model.engine.asked] == [None]


@pytest.mark.parametrize(
    ("name", "formats"),
    [
        ("LFM2-8B-A1B", ["lfm2", "json"]),
        ("LFM2.5-1.2B-Instruct-Q4_K_M", ["lfm2", "json"]),
        ("SmolLM3 3B", ["hermes", "pythonic", "json"]),
        ("Granite 3.3 2b Instruct", ["granite", "json"]),
        ("granite_3.3_8b", ["granite", "json"]),
        ("Hermes-3-Llama-3.1-8B", ["hermes"]),
        ("Meta-Llama-3.1-8B-Instruct", ["llama3-json", "pythonic"]),
        ("Llama-4-Scout", ["llama4-pythonic", "llama3-json"]),
        ("Devstral-Small-2507", ["mistral-args", "mistral"]),
        ("granite-4.0-h-tiny-Q4_K_M", ["granite4", "json"]),
        ("MiniCPM-V-4_5", ["hermes", "minicpm5", "json"]),
        ("MiniCPM5-1B-Q8_0", ["minicpm5", "hermes", "json"]),
        ("llama3.2-3b-instruct", ["llama3-json", "pythonic"]),
    ],
)
@pytest.mark.req("R51")
def test_a_name_leads_to_formats_in_order(name: str, formats: list[str]):
    preset = preset_for("", name)
    assert preset is not None
    assert [format.name for format in preset.formats] == formats


def test_a_name_that_says_nothing_leads_nowhere():
    assert preset_for("my-own-model", "") is None


def test_the_presets_that_come_along_are_sound():
    assert all(preset.knows(pattern.strip("*")) for preset in presets() for pattern in preset.models)


@pytest.mark.req("R52")
def test_a_format_that_does_not_exist_fails_when_presets_are_loaded_and_names_the_preset():
    with pytest.raises(UnknownName, match=r"unknown format \(in the preset 'mine'\) 'hermse'; did you mean 'hermes'\?"):
        presets_in('[mine]\nmodels = ["*"]\nformats = ["json", "hermse"]')


def test_a_template_that_does_not_exist_fails_when_presets_are_loaded(tmp_path: Path):
    row = '[mine]\nmodels = ["*"]\nformats = ["json"]\ntemplate = '
    with pytest.raises(UnknownName, match=r"unknown chat template \(in the preset 'mine'\) 'lama2'; did you mean 'llama2'\?"):
        presets_in(row + '"lama2"')
    with pytest.raises(UsageError, match=r"preset 'mine': cannot read the chat template mine\.jinja"):
        presets_in(row + '"mine.jinja"', tmp_path)


@pytest.mark.parametrize("text", ["mine = 1", "[mine", 'models = ["*"]'])
def test_what_is_no_table_of_presets_is_an_error(text: str):
    with pytest.raises(UsageError, match=r"not TOML|preset (mine|models): expected an object"):
        presets_in(text)


@pytest.mark.parametrize("row", ['models = ["*"]', 'formats = ["json"]', 'models = ["*"]\nformats = ["json"]\nparalel = true'])
def test_a_preset_that_is_not_whole_is_an_error(row: str):
    with pytest.raises(UsageError, match="preset mine"):
        presets_in(f"[mine]\n{row}")


class Weights(Scripted):
    """An engine that carries a name and a template, as weights do."""

    def __init__(self, name: str, template: str, *replies: str) -> None:
        super().__init__(replies, template=template)
        self.info = replace(self.info, name=name)


CALLING = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}CALLS{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
KNOWN = '<tool_call>\n{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
ODD = "<|run {{ call.function.name }}|>{{ call.function.arguments | tojson }}<|ran|>"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch):
    """A model opened on weights of this name with this template."""

    def open(name: str, template: str, **options: Any):
        monkeypatch.setattr(opening, "_engine", lambda *_: Weights(name, template))
        return open_model("some.gguf", Options(**options))

    return open


def test_what_the_template_shows_wins_over_the_name(opened):
    model = opened("LFM2-8B", CALLING.replace("CALLS", KNOWN))
    assert "<tool_call>" in str(model.format.calls)


def test_a_format_is_worked_out_where_none_is_known(opened):
    model = opened("LFM2-8B", CALLING.replace("CALLS", ODD))
    assert model.format.name == "inferred"
    assert "<|run " in str(model.format.calls)


def test_the_name_counts_where_the_template_shows_no_calls(opened):
    assert opened("LFM2-8B", CHATML).format == format_named("lfm2")


@pytest.mark.req("R44")
@pytest.mark.req("R210")
@pytest.mark.parametrize(
    "name", ["my-own-model", "CodeLlama-7B-Instruct", "Meta-Llama-3-8B-Instruct", "llama_3_70b", "llama3-8b", "Llama 3.0 8B"]
)
def test_what_was_never_taught_a_format_speaks_the_generic_one(opened, name: str):
    assert opened(name, CHATML).format == format_named("generic-xml")


@pytest.mark.parametrize("name", ["my-own-model", "CodeLlama-7B-Instruct", "Meta-Llama-3-8B-Instruct"])
async def test_what_was_never_taught_a_format_is_read_where_it_writes_json_between_the_same_markers(
    monkeypatch: pytest.MonkeyPatch, name: str
):
    wrote = '<tool_call>\n{"name": "look", "arguments": {"at": "Bonn"}}\n</tool_call>'
    monkeypatch.setattr(opening, "_engine", lambda *_: Weights(name, CHATML, wrote))
    model = open_model("some.gguf", Options())
    events = [event async for event in model.stream(Request((Message.user("go"),), tools=(Tool("look"),)))]
    assert [event.call.arguments for event in events if isinstance(event, CallReady)] == [{"at": "Bonn"}]
    assert not [event for event in events if isinstance(event, Text)]


@pytest.mark.req("R37")
@pytest.mark.req("R39")
@pytest.mark.parametrize(
    ("name", "format", "marker"),
    [
        ("Meta-Llama-3.1-8B-Instruct", "llama3-json", "<|eom_id|>"),
        ("Mistral-7B-Instruct-v0.3", "mistral", "[AVAILABLE_TOOLS]"),
        ("Qwen2.5-7B-Instruct", "hermes", "<tools>"),
        ("Meta-Llama-3-8B-Instruct", "generic-xml", "<|start_header_id|>"),
        ("codellama-7b-instruct", "generic-xml", "<<SYS>>"),
        ("my-own-model", "generic-xml", "<|im_start|>"),
    ],
)
def test_weights_without_a_template_get_ours_and_the_formats_of_the_preset(opened, name: str, format: str, marker: str):
    model = opened(name, "")
    assert model.format == format_named(format)
    assert marker in model.template.source


def test_a_template_in_the_weights_wins_over_ours(opened):
    assert "<|run " in opened("Meta-Llama-3.1-8B-Instruct", CALLING.replace("CALLS", ODD)).template.source


@pytest.mark.req("R51")
async def test_what_the_further_formats_of_a_preset_write_is_read_too(monkeypatch: pytest.MonkeyPatch):
    bare = '{"name": "look", "arguments": {"at": "Bonn"}}'
    lfm2 = '<|tool_call_start|>[look(at="Bonn")]<|tool_call_end|>'
    for spoken_format in (lfm2, bare):  # its own format, and the second the preset names
        engine = Weights("LFM2-8B", CHATML, spoken_format)
        monkeypatch.setattr(opening, "_engine", lambda *_, engine=engine: engine)
        model = open_model("some.gguf", Options())
        request = Request((Message.user("go"),), tools=(Tool("look"),))
        (call,) = [event.call async for event in model.stream(request) if isinstance(event, CallReady)]
        assert (call.name, call.arguments) == ("look", {"at": "Bonn"})


def test_what_the_user_says_wins(opened):
    assert opened("LFM2-8B", CHATML, format="hermes").format == format_named("hermes")


@pytest.mark.req("R222")
@pytest.mark.req("R223")
def test_a_preset_may_constrain_calls_under_auto_and_the_user_decides(opened, monkeypatch: pytest.MonkeyPatch):
    mine = presets_in('[mine]\nmodels = ["tiny*"]\nformats = ["hermes"]\nauto_guarded = true')
    monkeypatch.setattr(opening, "preset_for", lambda *names: mine[0] if any(map(mine[0].knows, names)) else None)
    assert opened("Tiny 1B", CHATML).traits.auto_guarded
    assert not opened("Tiny 1B", CHATML, auto_guarded=False).traits.auto_guarded
    assert not opened("LFM2-8B", CHATML).traits.auto_guarded
    assert opened("LFM2-8B", CHATML, auto_guarded=True).traits.auto_guarded


def test_a_preset_may_ignore_calls_inside_reasoning_and_the_user_decides(opened, monkeypatch: pytest.MonkeyPatch):
    mine = presets_in('[mine]\nmodels = ["tiny*"]\nformats = ["hermes"]\nin_reasoning = "ignore"')
    monkeypatch.setattr(opening, "preset_for", lambda *names: mine[0] if any(map(mine[0].knows, names)) else None)
    assert opened("Tiny 1B", CHATML).traits.in_reasoning == "ignore"
    assert opened("Tiny 1B", CHATML, in_reasoning="recover").traits.in_reasoning == "recover"
    assert opened("LFM2-8B", CHATML).traits.in_reasoning == "recover"
    with pytest.raises(UsageError, match=r"preset mine\.in_reasoning: expected one of recover, ignore, got 'never'"):
        presets_in('[mine]\nmodels = ["*"]\nformats = ["hermes"]\nin_reasoning = "never"')


@pytest.mark.req("R34")
def test_a_presets_policy_counts_whatever_the_template_shows_and_the_users_wins(opened, monkeypatch: pytest.MonkeyPatch):
    mine = presets_in('[mine]\nmodels = ["tiny*"]\nformats = ["hermes"]\npolicy = "required_first_hop"')
    monkeypatch.setattr(opening, "preset_for", lambda *names: mine[0] if any(map(mine[0].knows, names)) else None)
    source = CALLING.replace("CALLS", KNOWN)
    assert opened("Tiny 1B", source).traits.policy == "required_first_hop"
    assert opened("Tiny 1B", source, policy="auto").traits.policy == "auto"
    assert opened("LFM2-8B", source).traits.policy == "auto"


def test_a_policy_nobody_knows_is_an_error_when_presets_are_loaded():
    with pytest.raises(UsageError, match=r"preset mine\.policy: expected one of auto, required_first_hop"):
        presets_in('[mine]\nmodels = ["*"]\nformats = ["json"]\npolicy = "always"')
