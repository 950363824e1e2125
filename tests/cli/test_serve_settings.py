"""The settings of `callsmith serve`: from its options, a file and the environment."""

import asyncio
import re
import tomllib
from typing import get_args

import pytest

from callsmith.cli.inputs.served_models import model_options
from callsmith.core.errors import QueueFull
from callsmith.core.values import Message, Request, Tool
from callsmith.engines.scripted import Scripted
from callsmith.models import open_model
from callsmith.models.local import LocalModel
from callsmith.server.settings import Llm, Settings
from callsmith.server.settings_sources import setting_options
from tests.small import small_file

pytestmark = pytest.mark.processes


def test_the_users_own_file_is_read_without_being_named(callsmith, tmp_path, monkeypatch):
    monkeypatch.setenv("CALLSMITH_CONFIG", str(tmp_path))
    (tmp_path / "callsmith.toml").write_text("[server]\nport = 4711\n", "utf-8")
    result = callsmith("serve", "--print-config", "--set", "limits.tokens=9")
    assert f"port = 4711  # {tmp_path / 'callsmith.toml'}" in result.out
    assert "tokens = 9  # --set" in result.out
    assert 'host = "127.0.0.1"\n' in result.out


def test_how_many_answers_are_made_at_once_and_how_many_wait_can_be_said(callsmith):
    result = callsmith("serve", "--print-config", "--concurrency", "2", "--queue", "3")
    assert "concurrency = 2  # --concurrency" in result.out
    assert "queue = 3  # --queue" in result.out
    assert "--concurrency" in callsmith("serve", "--help").out


async def test_calls_under_auto_are_constrained_where_the_settings_say_so():
    for llm in (Llm(), Llm(auto_guarded=True)):
        model = open_model("scripted:Hello.", model_options(llm, Settings()))
        assert isinstance(model, LocalModel) and isinstance(model.engine, Scripted)
        async for _ in model.stream(Request((Message.user("Hi"),), (Tool("look"),))):
            pass
        assert (model.engine.asked[0].grammar is not None) == bool(llm.auto_guarded)


def test_a_bias_towards_calls_and_how_tools_are_put_can_be_said(callsmith, monkeypatch):
    output = callsmith("serve", "--print-config", "--call-bias", "-1.5", "--tool-prompt", "json-array").out
    assert "call_bias = -1.5  # --call-bias" in output and 'tool_prompt = "json-array"  # --tool-prompt' in output
    assert callsmith("serve", "--print-config", "--call-bias", "21").code == 2
    options = model_options(Llm(call_bias=-1.5, tool_prompt="json-array"), Settings())
    assert (options.call_bias, options.tool_prompt) == (-1.5, "json-array")
    assert "--call-bias" in callsmith("chat", "--help").out and "--tool-prompt" in callsmith("chat", "--help").out


@pytest.mark.parametrize(("option", "expected"), [("--auto-guarded", "true"), ("--no-auto-guarded", "false")])
def test_it_can_be_said_either_way_whether_calls_are_constrained(callsmith, monkeypatch, option: str, expected: str):
    assert "# auto_guarded is not set" in callsmith("serve", "--print-config").out
    assert f"auto_guarded = {expected}  # --auto-guarded" in callsmith("serve", "--print-config", option).out
    monkeypatch.setenv("CALLSMITH_LLM__AUTO_GUARDED", expected.title())
    assert f"auto_guarded = {expected}  # " in callsmith("serve", "--print-config").out


@pytest.mark.weights
async def test_the_engine_makes_and_lets_wait_as_many_answers_as_the_settings_say():
    pytest.importorskip("xllamacpp")
    small_file()
    model = open_model("smollm2-135m", model_options(Llm(context=256, concurrency=2), Settings(queue=3)))

    async def first() -> object:
        return await anext(model.stream(Request((Message.user("Hi"),))))

    tasks = [asyncio.create_task(first()) for _ in range(6)]
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    await model.close()
    assert [isinstance(outcome, QueueFull) for outcome in outcomes] == [False] * 5 + [True]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "server.prot=1"), "did you mean 'server.port'"),
        (("--set", "server.port"), "expected NAME=VALUE"),
        (("--log-format", "xml"), "expected one of text, json"),
        (("--set", "llm.chat_template=/nowhere.jinja", "--model", "scripted:Hi", "--port", "0"), "no chat template"),
    ],
)
def test_settings_that_make_no_sense_are_told(callsmith, arguments, words):
    result = callsmith("serve", *arguments)
    assert result.code == 2
    assert words in result.err


def test_every_setting_that_has_an_option_takes_its_value_from_it(callsmith, tmp_path):
    """Whatever the settings declare is in the help, can be given, and is then in effect with the option as its source."""
    (tmp_path / "there").touch()
    output = callsmith("serve", "--help").out
    for setting in setting_options():
        option, number = setting.flag.names[0], str(int(setting.flag.minimum or 0) + 7)
        literals = [word for kind in (setting.type, *get_args(setting.type)) for word in get_args(kind) if isinstance(word, str)]
        value = literals[-1] if literals else str(tmp_path / "there") if setting.flag.is_file else number
        is_switch = bool in (setting.type, *get_args(setting.type))
        result = callsmith("serve", "--print-config", option.partition("/")[0], *([] if is_switch else [value]))
        parsed = tomllib.loads(result.out)
        section, _, name = setting.name.partition(".")
        kind = next((item for item in (int, float) if item is setting.type or item in get_args(setting.type)), str)
        expected = not setting.default if is_switch else [value] if isinstance(setting.default, tuple) else kind(value)
        assert parsed[section][name] == expected
        assert result.out.count(f"# {option}\n") == 1
        for spelling in (word for names in setting.flag.names for word in names.split("/")):
            assert re.search(rf"\s{spelling}[,\s]", output)


def test_options_whose_value_is_nothing_count_as_given(callsmith):
    assert "port = 0  # --port" in callsmith("serve", "--print-config", "-p", "0").out
    assert "tools_budget = 0  # --tools-budget" in callsmith("serve", "--print-config", "--tools-budget", "0").out
    assert "args = []  # --mcp-args" in callsmith("serve", "--print-config", "--mcp-args", "").out


def test_arguments_of_an_mcp_server_are_separated_by_commas(callsmith):
    result = callsmith("serve", "--print-config", "--mcp-command", "python", "--mcp-args", "-m,my.server,--fast")
    assert 'args = ["-m", "my.server", "--fast"]' in result.out


def test_the_model_can_be_named_by_the_environment(callsmith, monkeypatch):
    monkeypatch.setenv("CALLSMITH_MODEL", "scripted:Hi")
    assert 'model = "scripted:Hi"  # --model' in callsmith("serve", "--print-config").out
