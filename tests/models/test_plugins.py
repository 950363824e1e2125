"""Formats and presets from elsewhere: of packages, of the user's folder, and how they are refused."""

import json
import re
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import callsmith.formats
from callsmith.core.errors import UsageError
from callsmith.core.events import CallReady, Text
from callsmith.core.values import Call, Message, Request, Tool
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named, formats, register, register_detector
from callsmith.formats.algebra import ARGS, NAME, Calls, Format
from callsmith.formats.detector import BaseFormatDetector
from callsmith.formats.inference.find_calls import find_calls
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.reader.parse import collect, parse
from callsmith.formats.reader.reader import Reader
from callsmith.formats.toml.write import format_to_toml
from callsmith.formats.write import write
from callsmith.models import plugins, presets
from callsmith.models.local import LocalModel
from callsmith.models.plugins import load_formats, load_presets, register_file, register_presets_file
from callsmith.models.presets import Preset, preset_for, presets_in
from callsmith.models.traits import Traits

MINE = Format("mine-own", (Calls("<mine ", NAME, ">", ARGS, "</mine>"),), aliases=("my-model",))
OTHER = Format("another-one", MINE.parts)


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Nothing registered, nothing plugged in, an empty folder of the user's."""
    monkeypatch.setattr(callsmith.formats, "_registered", {})
    monkeypatch.setattr(plugins, "entry_points", lambda **_: [])
    monkeypatch.setenv("CALLSMITH_CONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(presets, "_registered", [])
    load_formats.cache_clear()
    load_presets.cache_clear()
    yield
    load_formats.cache_clear()
    load_presets.cache_clear()


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch):
    def plug(offered: object, in_group: str = plugins.GROUP) -> None:
        class Entry(EntryPoint):
            def load(self) -> object:
                return offered

        entry = Entry("theirs", "their.package:thing", in_group)
        monkeypatch.setattr(plugins, "entry_points", lambda group: [entry] if group == in_group else [])

    return plug


@pytest.mark.req("R50")
def test_a_format_that_is_registered_is_known_by_its_names():
    register(MINE)
    assert format_named("mine_own") == format_named("my-model") == MINE
    assert formats()["mine-own"] == MINE


class Shouting(BaseFormatDetector):
    """`CALL get_time WITH {"zone": "UTC"}`: no format has calls that end with their line."""

    def detect(self, text: str, tools: Sequence[Tool]) -> tuple[Sequence[Call], str]:
        match = re.search(r"CALL (\w+) WITH (.*)", text)
        return ([Call(match[1], json.loads(match[2]))], text[: match.start()].strip()) if match else ([], text)


SHOUTED = 'Let me see. CALL get_time WITH {"zone": "UTC"}'
TIME = Tool("get_time")


@pytest.mark.req("R50")
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_code_that_finds_calls_is_registered_beside_the_declarative_formats(size: int):
    detector = register_detector("shouting", Shouting)
    assert register_detector("shouting", Shouting) == detector == format_named("shouting")
    reader, pieces = Reader(detector, [TIME]), [SHOUTED[at : at + size] for at in range(0, len(SHOUTED), size)]
    parsed = collect([event for piece in pieces for event in reader.feed(piece)] + reader.close())
    assert (parsed.content, parsed.calls) == ("Let me see.", (Call("get_time", {"zone": "UTC"}),))
    assert find_calls(SHOUTED, [TIME], ["mistral", "shouting"]).calls[0].arguments == {"zone": "UTC"}
    assert parse(detector, "Nothing to call.", [TIME]).content == "Nothing to call."
    assert parse(detector, write(detector, [Call("get_time", {"zone": "CET"})]), [TIME]).calls[0].arguments == {"zone": "CET"}


@pytest.mark.req("R50")
@pytest.mark.req("R51")
async def test_a_preset_names_code_among_its_formats_and_the_model_is_read_by_it():
    register_detector("shouting", Shouting)
    (preset,) = presets_in('[mine]\nmodels = ["mine-*"]\nformats = ["hermes", "shouting"]')
    first, *others = preset.formats
    engine = Scripted([SHOUTED], specials={"<|im_start|>": 1, "<|im_end|>": 2})
    model = LocalModel(engine, first, Template(CHATML), Traits(also=tuple(others)))
    events = [event async for event in model.stream(Request((Message.user("When?"),), (TIME,)))]
    assert [event.call.name for event in events if isinstance(event, CallReady)] == ["get_time"]
    assert "".join(event.text for event in events if isinstance(event, Text)) == "Let me see."


@pytest.mark.req("R50")
def test_calls_inside_the_reasoning_are_found_by_code_only_where_they_may_be():
    detector = register_detector("shouting", Shouting)
    thought = f"<think>{SHOUTED}</think>Well."
    assert (parse(detector, thought, [TIME]).calls[0].name, parse(detector, thought, [TIME]).content) == ("get_time", "Well.")
    assert parse(detector, thought, [TIME], recover=False).calls == ()


@pytest.mark.req("R50")
@pytest.mark.parametrize("thing", ["hermes", None, Format, Shouting(), MINE])
def test_only_a_subclass_of_the_base_can_be_a_detector(thing):
    with pytest.raises(UsageError, match="must be a subclass of `BaseFormatDetector`"):
        register_detector("shouting", thing)


def test_code_that_fails_leaves_the_text_and_says_so():
    parsed = parse(register_detector("shouting", Shouting), "CALL get_time WITH {", [TIME])
    assert (parsed.content, parsed.calls) == ("CALL get_time WITH {", ())
    assert "Shouting failed" in parsed.unreadable[0].reason


def test_a_format_that_is_read_by_code_is_no_toml():
    with pytest.raises(UsageError, match="read by code, Shouting"):
        format_to_toml(register_detector("shouting", Shouting))


def test_the_same_format_twice_does_no_harm():
    assert register(register(MINE)) == MINE


@pytest.mark.req("R50")
@pytest.mark.parametrize("thing", ["hermes", None, Format, {"name": "x"}])
def test_only_a_format_can_be_registered(thing):
    with pytest.raises(UsageError, match="must be a `Format`"):
        register(thing)


@pytest.mark.parametrize(
    ("format", "what"),
    [
        (Format("hermes", MINE.parts), "the format name 'hermes' is taken"),
        (Format("fresh", MINE.parts, aliases=("qwen3",)), "the format name 'qwen3' is taken"),
        (Format("My_Own", MINE.parts), "'my-own'"),
    ],
)
def test_a_name_that_is_taken_or_could_never_be_found_is_refused(format: Format, what: str):
    with pytest.raises(UsageError, match=what):
        register(format)
    assert "fresh" not in formats()


def test_formats_are_read_from_the_users_folder(tmp_path: Path):
    folder = tmp_path / "config" / "formats"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(format_to_toml(MINE), "utf-8")
    assert load_formats() == (MINE,)
    assert format_named("mine-own") == MINE


def test_the_folder_follows_the_xdg_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CALLSMITH_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert plugins.config_folder() == tmp_path / "callsmith"


def test_a_file_that_is_wrong_is_named(tmp_path: Path):
    path = tmp_path / "broken.toml"
    path.write_text('name = "x"\n[[parts]]\nkind = "calls"\nitem = "{name}"', "utf-8")
    with pytest.raises(UsageError, match=r"broken\.toml: part 1, item: "):
        register_file(path)
    path.write_text(format_to_toml(Format("hermes", MINE.parts)), "utf-8")
    with pytest.raises(UsageError, match=r"broken\.toml: the format name 'hermes' is taken"):
        register_file(path)


@pytest.mark.parametrize("offered", [MINE, [MINE], lambda: MINE, lambda: (MINE, OTHER)])
def test_packages_offer_formats_or_what_makes_them(plugged, offered: object):
    plugged(offered)
    assert MINE in load_formats()
    assert format_named("mine-own") == MINE


def test_a_plug_in_that_offers_something_else_is_named(plugged):
    plugged("hermes")
    with pytest.raises(UsageError, match=r"the plug-in 'theirs' \(their.package:thing\): a format must be a `Format`"):
        load_formats()


OWN = '[{name}]\nmodels = ["*llama-3*"]\nformats = ["{format}"]\n'


def preset(name: str, format: str = "hermes") -> Preset:
    (own_preset,) = presets_in(OWN.format(name=name, format=format))
    return own_preset


@pytest.mark.req("R45")
@pytest.mark.parametrize("offered", [lambda: preset("theirs"), lambda: [preset("theirs"), preset("more")]])
def test_packages_offer_presets_that_are_tried_before_ours(plugged, offered: Callable[[], object]):
    plugged(offered, plugins.PRESETS_GROUP)
    assert preset_for("Llama-3.1-8B") != preset("theirs")
    load_presets()
    assert preset_for("Llama-3.1-8B") == preset("theirs")


def test_a_plug_in_that_offers_something_else_than_presets_is_named(plugged):
    plugged("hermes", plugins.PRESETS_GROUP)
    with pytest.raises(UsageError, match=r"the plug-in 'theirs' \(their.package:thing\): a preset must be a `Preset`"):
        load_presets()


def test_presets_of_the_users_folder_win_over_packages_and_a_named_file_over_both(plugged, tmp_path: Path):
    plugged(preset("theirs"), plugins.PRESETS_GROUP)
    folder = tmp_path / "config" / "presets"
    folder.mkdir(parents=True)
    (folder / "a.toml").write_text(OWN.format(name="a", format="json"), "utf-8")
    (folder / "b.toml").write_text(OWN.format(name="b", format="hermes"), "utf-8")
    load_presets()
    assert preset_for("Llama-3.1-8B") == preset("a", "json")
    (tmp_path / "mine.toml").write_text(OWN.format(name="mine", format="json") + 'template = "mine.jinja"\n', "utf-8")
    (tmp_path / "mine.jinja").write_text("{{ messages }}", "utf-8")
    register_presets_file(tmp_path / "mine.toml")
    best = preset_for("Llama-3.1-8B")
    assert best is not None
    assert (best.name, best.template) == ("mine", "{{ messages }}")


def test_a_preset_may_name_a_format_of_the_users_and_a_file_that_is_wrong_is_named(tmp_path: Path):
    (tmp_path / "config" / "formats").mkdir(parents=True)
    (tmp_path / "config" / "formats" / "mine.toml").write_text(format_to_toml(MINE), "utf-8")
    path = tmp_path / "presets.toml"
    path.write_text(OWN.format(name="x", format="mine-own"), "utf-8")
    register_presets_file(path)
    assert preset_for("Llama-3.1-8B") == preset("x", "mine-own")
    path.write_text(OWN.format(name="x", format="hermse"), "utf-8")
    with pytest.raises(UsageError, match=r"presets\.toml: unknown format \(in the preset 'x'\) 'hermse'"):
        register_presets_file(path)
