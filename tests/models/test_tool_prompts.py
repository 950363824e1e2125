"""The tool prompts that come along and those of the user, and which of them a model is opened with."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import callsmith.formats
from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.ports import WeightsInfo
from callsmith.engines.port import EngineInfo
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.algebra import ARGS, NAME, Calls, Format
from callsmith.formats.prompt.template import CHATML
from callsmith.formats.toml.write import format_to_toml
from callsmith.models import opening
from callsmith.models.local import LocalModel
from callsmith.models.opening import Options, open_local, with_tool_prompt
from callsmith.models.plugins import load_formats
from callsmith.models.presets import presets, presets_in
from callsmith.models.tool_prompts import read_tool_prompt, tool_prompt_named, tool_prompts
from callsmith.models.traits import Traits
from callsmith.models.weights.catalogue import catalogue
from callsmith.models.weights.measured import Measured, store_measured

MINE = """\
tools = "json"
format = "fenced-array"
instructions = "{tools}"
opening = "```json\\n["
results = "{results}"
answer = "{results}"
threshold = 1.5
"""
INFO = EngineInfo("Tiny 1B", template=CHATML, weights=WeightsInfo(size=77))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The folder of the user's tool prompts, empty."""
    monkeypatch.setenv("CALLSMITH_CONFIG", str(tmp_path))
    (tmp_path / "tool_prompts").mkdir()
    tool_prompts.cache_clear()
    yield tmp_path / "tool_prompts"
    tool_prompts.cache_clear()
    load_formats.cache_clear()


def traits(spec: str = "some.gguf", **options: Any) -> Traits:
    return opening._parts(spec, Options(**options), INFO)[2]


# -- the files


def test_all_that_come_along_are_sound():
    assert {"template", "json-array", "python-calls"} <= set(tool_prompts())
    for name, prompt in tool_prompts().items():
        assert prompt.name == name and prompt.description
        if not prompt.is_template:
            calls = format_named(prompt.format).calls
            assert prompt.opening and prompt.system and prompt.words and prompt.next
            assert any(
                str(text).startswith(prompt.opening[:3]) for node in calls.open for text in (node, *getattr(node, "texts", ()))
            )
    assert tool_prompt_named("template").is_template


def test_the_names_in_catalogue_and_presets_exist():
    for entry in catalogue().values():
        assert not entry.tool_prompt or tool_prompt_named(entry.tool_prompt)
    for preset in presets():
        assert not preset.tool_prompt or tool_prompt_named(preset.tool_prompt)


def test_a_file_of_the_user_s_is_found_and_may_take_the_place_of_ours(folder: Path):
    (folder / "mine.toml").write_text(MINE)
    (folder / "json-array.toml").write_text(MINE.replace("1.5", "7.5"))
    (folder / "notes.txt").write_text("nothing")
    assert tool_prompt_named("mine").threshold == 1.5
    assert tool_prompt_named("json-array").threshold == 7.5
    assert "notes" not in tool_prompts() and "python-calls" in tool_prompts()


def test_a_tool_prompt_of_the_user_s_may_be_in_a_format_of_the_user_s(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(callsmith.formats, "_registered", {})
    own = Format("mine-own", (Calls("<mine ", NAME, ">", ARGS, "</mine>"),))
    (folder.parent / "formats").mkdir()
    (folder.parent / "formats" / "own.toml").write_text(format_to_toml(own))
    (folder / "mine.toml").write_text(MINE.replace("fenced-array", "mine-own"))
    load_formats.cache_clear()
    assert tool_prompt_named("mine").format == "mine-own"


def test_a_name_that_nobody_knows_is_told_with_those_that_are_known(folder: Path):
    (folder / "mine.toml").write_text(MINE)
    with pytest.raises(UnknownName, match="tool prompt 'zzz'") as caught:
        tool_prompt_named("zzz")
    assert caught.value.known == tuple(tool_prompts()) and "mine" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (MINE + "colour = 3\n", "colour"),
        (MINE.replace("fenced-array", "fenced-aray"), "fenced-aray"),
        (MINE.replace('"json"', '"yaml"'), "tools"),
        (MINE.replace("1.5", '"much"'), "threshold"),
        (MINE.replace('instructions = "{tools}"', 'instructions = "Call."'), "{tools}"),
        (MINE.replace('opening = "```json\\n["\n', ""), "opening"),
        (MINE + 'name = "other"\n', "name"),
        ("tools = [[", "nvalid"),
    ],
    ids=["key", "format", "listing", "threshold", "place", "field", "name", "toml"],
)
def test_a_file_that_is_wrong_is_named_with_what_is_wrong(folder: Path, text: str, complaint: str):
    path = folder / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        tool_prompts()
    assert str(path) in str(caught.value) and complaint in str(caught.value)
    with pytest.raises(UsageError, match="tool prompt 'mine'"):
        read_tool_prompt(text, "mine")


# -- which one a model is opened with


@pytest.fixture
def preset(monkeypatch: pytest.MonkeyPatch):
    [mine] = presets_in('[mine]\nmodels = ["tiny*"]\nformats = ["hermes"]\ntool_prompt = "json-array"\nthreshold = 4.5')
    monkeypatch.setattr(opening, "preset_for", lambda *names: mine if any(map(mine.knows, names)) else None)


def chosen(opened_traits: Traits) -> tuple[str, float | None]:
    return opened_traits.tool_prompt.name, opened_traits.tool_prompt.threshold


def test_where_nothing_is_known_the_template_has_its_own_way():
    assert chosen(traits()) == ("template", None)
    assert traits().call_bias == 0.0


@pytest.mark.usefixtures("preset")
def test_the_user_counts_before_what_was_measured_and_that_before_the_preset():
    assert chosen(traits()) == ("json-array", 4.5)
    store_measured("Tiny 1B", 77, Measured("tiny", tool_prompt="python-calls", threshold=2.5))
    assert chosen(traits()) == ("python-calls", 2.5)
    assert chosen(traits(tool_prompt="template")) == ("template", None)
    store_measured("Tiny 1B", 77, Measured("tiny", tool_prompt="template"))
    assert chosen(traits()) == ("template", None)


@pytest.mark.usefixtures("preset")
def test_what_was_measured_without_a_tool_prompt_leaves_it_to_the_preset():
    store_measured("Tiny 1B", 77, Measured("tiny", threshold=2.5))
    assert chosen(traits()) == ("json-array", 4.5)


@pytest.mark.usefixtures("preset")
def test_a_threshold_counts_only_for_the_tool_prompt_that_it_was_measured_with(folder: Path):
    (folder / "mine.toml").write_text(MINE)
    store_measured("Tiny 1B", 77, Measured("tiny", tool_prompt="python-calls", threshold=2.5))
    assert chosen(traits(tool_prompt="python-calls")) == ("python-calls", 2.5)
    assert chosen(traits(tool_prompt="json-array")) == ("json-array", 4.5)
    assert chosen(traits(tool_prompt="mine")) == ("mine", 1.5)
    assert replace(INFO, weights=WeightsInfo(size=78)) != INFO
    other = opening._parts("some.gguf", Options(), replace(INFO, weights=WeightsInfo(size=78)))[2]
    assert chosen(other) == ("json-array", 4.5)


def test_an_entry_of_the_catalogue_has_its_own():
    name, entry = next((name, entry) for name, entry in catalogue().items() if entry.tool_prompt)
    assert chosen(traits(name)) == (entry.tool_prompt, entry.threshold or tool_prompt_named(entry.tool_prompt).threshold)
    assert chosen(traits(name, tool_prompt="template")) == ("template", None)


@pytest.mark.usefixtures("preset")
def test_who_chooses_a_format_gets_the_template_s_own_way_unless_a_tool_prompt_is_named_too():
    store_measured("Tiny 1B", 77, Measured("tiny", tool_prompt="json-array", threshold=2.5))
    assert chosen(traits(format="hermes")) == ("template", None)
    assert chosen(traits(format="hermes", tool_prompt="json-array")) == ("json-array", 2.5)


def test_a_tool_prompt_brings_its_format_and_reasoning_stays_what_it_was():
    opened_format = opening._parts("some.gguf", Options(tool_prompt="json-array"), INFO)[0]
    assert opened_format.calls == format_named("fenced-array").calls and opened_format.thinks is None
    qwen = replace(INFO, template="{{ messages[0].content }}{% if add_generation_prompt %}<think>\n{% endif %}")
    thinks = opening._parts("some.gguf", Options(format="qwen3"), qwen)[0].thinks
    both, _, known = opening._parts("some.gguf", Options(format="qwen3", tool_prompt="python-calls"), qwen)
    assert thinks is not None and both.thinks == thinks and both.calls == format_named("fenced-python").calls
    assert not known.also


def test_a_tool_prompt_that_nobody_has_is_refused_when_the_model_is_opened():
    with pytest.raises(UnknownName, match="tool prompt 'jsonarray'; did you mean 'json-array'"):
        traits(tool_prompt="jsonarray")


def test_the_call_bias_of_the_options_is_the_model_s(folder: Path):
    assert traits(call_bias=-2.0).call_bias == -2.0


async def test_one_engine_can_be_asked_in_several_ways():
    first = open_local("scripted:Hi", Options(tool_prompt="json-array"))
    second = with_tool_prompt(first, "scripted:Hi", Options(), "python-calls")
    assert isinstance(second, LocalModel) and isinstance(second.engine, Scripted) and second.engine is first.engine
    assert (first.info.tool_prompt, second.info.tool_prompt) == ("json-array", "python-calls")
    assert second.format.calls == format_named("fenced-python").calls
