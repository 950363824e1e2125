"""Settings: from a file, the environment and flags, each winning over the one before."""

import sys
import tomllib
from pathlib import Path

import pytest

from callsmith.core.approval import Policy
from callsmith.core.errors import MissingExtra, UnknownName, UsageError
from callsmith.core.values import Json, Tool
from callsmith.runtime.execute import Limits
from callsmith.server.settings import Key, Settings
from callsmith.server.settings_sources import SettingsSource, merge_settings, read_environment, read_settings_file, write_settings
from callsmith.server.store.opening import open_store
from callsmith.server.tools.tool_selection import wrap_server_tools
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed
from callsmith.tools.wrap.wrapper import judgements

M21 = ["search_corpus", "list_corpora", "translate", "list_marketplace"]


def settings_of(text: str, folder: Path) -> Settings:
    file = folder / "callsmith.toml"
    file.write_text(text, "utf-8")
    return merge_settings(read_settings_file(file)).settings


def with_setting(name: str, value: Json) -> Settings:
    return merge_settings(SettingsSource("--set", {name: value}, is_text=isinstance(value, str))).settings


def test_without_any_source_all_settings_are_the_default():
    assert merge_settings().settings == Settings()


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path):
    (tmp_path / "c.toml").write_text("[server]\nport = 1\nqueue = 1\nkeep_alive = 1\n", "utf-8")
    file = read_settings_file(tmp_path / "c.toml")
    environment = read_environment({"CALLSMITH_SERVER__PORT": "2", "CALLSMITH_SERVER__QUEUE": "2", "CALLSMITH_CACHE": "/x"})
    effective = merge_settings(file, environment, SettingsSource("--port", {"server.port": 3}))
    settings = effective.settings
    assert (settings.port, settings.queue, settings.keep_alive) == (3, 2, 1.0)
    assert [effective.origins[f"server.{name}"] for name in ("port", "queue")] == ["--port", "the environment"]


@pytest.mark.req("R158")
def test_the_servers_tools_can_be_switched_off():
    functions = Functions(lookup)
    assert Settings().llm.tools_enabled is True
    assert wrap_server_tools(functions, Settings().llm) is not None
    assert wrap_server_tools(functions, with_setting("llm.tools_enabled", False).llm) is None


@pytest.mark.req("R159")
@pytest.mark.req("R160")
@pytest.mark.req("R161")
@pytest.mark.parametrize(
    ("name", "field", "standard", "other"),
    [
        ("tools_max_iterations", "iterations", 6, 3),
        ("tools_per_tool_timeout_seconds", "seconds", 30.0, 5.0),
        ("tools_max_parallel", "parallel", 4, 1),
    ],
)
def test_limits_have_two_names(name: str, field: str, standard: float, other: float, tmp_path: Path):
    assert getattr(Settings().limits, field) == standard
    assert getattr(settings_of(f"[llm]\n{name} = {other}\n", tmp_path).limits, field) == other
    assert getattr(settings_of(f"[limits]\n{field} = {other}\n", tmp_path).limits, field) == other
    variable = {f"CALLSMITH_LLM__{name.upper()}": str(other)}
    assert getattr(merge_settings(read_environment(variable)).settings.limits, field) == other


def test_the_same_limit_under_both_names_is_an_error(tmp_path: Path):
    with pytest.raises(UsageError, match="the same setting"):
        settings_of("[llm]\ntools_max_parallel = 1\n[limits]\nparallel = 2\n", tmp_path)


@pytest.mark.req("R162")
async def test_the_default_set_says_which_of_the_servers_tools_are_offered():
    settings = with_setting("llm.tools_default_set", ",".join(M21))
    assert settings.llm.tools_default_set == tuple(M21)
    offered = wrap_server_tools(Listed(*M21, "drop_corpus"), settings.llm)
    assert offered is not None
    assert [listed_tool.name for listed_tool in await offered.tools()] == M21
    everything = wrap_server_tools(Listed(*M21, "drop_corpus"), Settings().llm)
    assert everything is not None
    assert len(await everything.tools()) == 5


@pytest.mark.req("R163")
async def test_side_effects_are_confirmed_unless_the_operator_says_otherwise():
    functions = Functions(lookup)
    assert isinstance(wrap_server_tools(functions, Settings().llm), Confirmed)
    assert not isinstance(
        wrap_server_tools(functions, with_setting("llm.tools_require_confirmation_for_side_effects", False).llm), Confirmed
    )
    own = wrap_server_tools(Confirmed(Functions(store), Policy(side_effects="auto")), Settings().llm)
    assert own is not None and (await judgements(own))["store"].verdict == "auto"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\nprot = 1", "did you mean 'server.port'"),
        ("[servr]\nport = 1", "did you mean 'server.port'"),
        ("port = 1", "known: server.port$"),
        ("[llm]\ntools_max_iteration = 1", "did you mean 'llm.tools_max_iterations'"),
        ('[keys.bob]\nsha = "x"', "did you mean 'keys.bob.sha256'"),
        ('[keys."b.o.b"]\nsha256 = "x"', "unknown setting"),
        ("[server]\nrecorders = []", "unknown setting"),
    ],
)
def test_an_unknown_name_is_an_error_that_names_the_nearest(text: str, message: str, tmp_path: Path):
    with pytest.raises(UnknownName, match=message) as caught:
        settings_of(text, tmp_path)
    assert "callsmith.toml" in str(caught.value)


def test_an_unknown_variable_is_an_error_if_it_looks_like_a_setting():
    with pytest.raises(UnknownName, match=r"the environment.*server\.port"):
        merge_settings(read_environment({"CALLSMITH_SERVER__PROT": "1"}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[server]\nport = "x"', "server.port: expected an integer"),
        ("[server]\nport = 70000", "from 0 to 65535"),
        ("[server]\nqueue = -1", "may not be negative"),
        ("[server]\nport = true", "an integer"),
        ("[server]\nguards = 1", "a boolean"),
        ('[server]\ncors_origins = "x"', "expected an array, got a string"),
        ('[llm]\ntool_mode = "both"', "expected one of standard, mixed, got 'both'"),
        ('[llm]\ntool_choice_policy = "x"', "expected one of auto"),
        ("[llm]\ncall_bias = -20.5", "llm.call_bias: expected a number from -20 to 20, got -20.5"),
        ("[llm]\ncall_bias = nan", "llm.call_bias: expected a number"),
        ('[models.big]\nmodel = "x"\ncall_bias = inf', "models.big.call_bias: expected a number"),
        ('[keys.bob]\nsha256 = "secret"', "keys.bob.sha256: expected the 64"),
        ('[keys.bob]\nmodels = ["*"]', "keys.bob.sha256"),
        ("[keys.bob]\n", "callsmith.toml: keys.bob is empty"),
        ("[models.big]\n", "callsmith.toml: models.big is empty"),
        ("[server", "callsmith.toml"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_setting(text: str, message: str, tmp_path: Path):
    with pytest.raises(UsageError, match=message):
        settings_of(text, tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("server.guards", "False", False),
        ("server.request_seconds", "2", 2.0),
        ("server.request_seconds", "none", None),
        ("server.cors_origins", "https://a, https://b", ("https://a", "https://b")),
        ("server.cors_origins", '["https://a"]', ("https://a",)),
        ("server.host", "true", "true"),
        ("llm.model", "0", "0"),
        ("llm.context", "4096", 4096),
        ("llm.call_bias", "-2", -2.0),
    ],
)
def test_text_is_parsed_by_the_type_of_the_setting(name: str, text: str, value: Json):
    section, _, field = name.partition(".")
    settings = with_setting(name, text)
    assert getattr(settings if section == "server" else getattr(settings, section), field) == value


def test_keys_come_from_the_environment_too():
    variables = {"CALLSMITH_KEYS__BOB__SHA256": "a" * 64, "CALLSMITH_KEYS__BOB__MODELS": "qwen*"}
    assert merge_settings(read_environment(variables)).settings.keys == {"bob": Key("a" * 64, ("qwen*",))}


def test_printed_settings_are_read_back_and_hide_the_hashes(tmp_path: Path):
    text = f'[server]\nhost = "::1"\n[limits]\ntokens = 5\n[keys.bob]\nsha256 = "{"a" * 64}"\ntools = ["x"]\n'
    (tmp_path / "c.toml").write_text(text, "utf-8")
    effective = merge_settings(read_settings_file(tmp_path / "c.toml"))
    printed = write_settings(effective)
    assert "a" * 64 not in printed
    table = tomllib.loads(printed)
    bob = table["keys"]["bob"]
    assert (bob["sha256"], bob["models"], bob["tools"], bob["scopes"]) == ("(hidden)", ["*"], ["x"], [])
    del table["keys"]
    again = settings_of(printed[: printed.index("[keys.bob]")], tmp_path)
    assert (again.host, again.limits) == ("::1", Limits(tokens=5))


@tool
async def lookup(word: str) -> str:
    return word


@tool(side_effects=True)
async def store(word: str) -> str:
    return word


class Listed(Functions):
    """Tools of these names, which nobody calls."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self._names = names

    async def tools(self) -> list[Tool]:
        return [Tool(name) for name in self._names]


def test_the_password_of_a_database_is_not_shown():
    for url in (
        "postgresql://me:se%20cret@db:5432/x",
        "postgresql://me:a/b@se@cret@db/x",
        "postgres://db/x?user=me&password=se%20cret&sslmode=require",
    ):
        text = write_settings(merge_settings(SettingsSource("--store", {"server.store": url})))
        assert "cret" not in text
        assert "***" in text
    assert 'store = "a:b@c.db"' in write_settings(merge_settings(SettingsSource("--store", {"server.store": "a:b@c.db"})))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("mysql://me@db/x", "mysql is no store; expected a file, or postgresql://"),
        ("postgresql://me:secret@db", "names no database"),
        ("postgresql://me:secret@db:many/x", "many"),
    ],
)
def test_the_address_of_no_database_is_an_error_that_shows_no_password(url: str, why: str):
    with pytest.raises(UsageError) as wrong:
        open_store(url)
    assert why in str(wrong.value)
    assert "secret" not in str(wrong.value)


def test_a_database_needs_the_driver(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(MissingExtra, match=r"callsmith\[postgres\]"):
        open_store("postgresql://me@db/x")


# Several models


MODELS = """
[llm]
context = 1000
unload_after = "1h"
memory = "8GB"

[models.big]
model = "qwen2.5-coder-1.5b"

[models."tiny:0.1"]
model = "scripted:Hi"
context = 200
unload_after = "5m"

[aliases]
default = "big"
"claude-3.5-*" = "tiny:0.1"
"""


def test_each_of_several_models_has_its_own_options_and_the_common_ones(tmp_path: Path):
    settings = settings_of(MODELS, tmp_path)
    big, tiny = settings.models["big"], settings.models["tiny:0.1"]
    assert (big.model, big.context, big.unload_seconds) == ("qwen2.5-coder-1.5b", 1000, 3600)
    assert (tiny.model, tiny.context, tiny.unload_seconds) == ("scripted:Hi", 200, 300)
    assert settings.aliases == {"default": "big", "claude-3.5-*": "tiny:0.1"}
    assert settings.llm.model is None and settings.llm.memory_bytes == 8 * 10**9


def test_models_that_are_written_out_are_read_back(tmp_path: Path):
    (tmp_path / "a.toml").write_text(MODELS, "utf-8")
    effective = merge_settings(read_settings_file(tmp_path / "a.toml"))
    assert settings_of(write_settings(effective), tmp_path) == effective.settings


def test_models_and_aliases_come_from_the_environment_too():
    effective = merge_settings(
        read_environment({"CALLSMITH_MODELS__BIG__MODEL": "scripted:Hi", "CALLSMITH_ALIASES__FAST": "big"})
    )
    assert effective.settings.models["big"].model == "scripted:Hi" and effective.settings.aliases == {"fast": "big"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[models.big]\ncontext = 9\n", "models.big.model: expected a name of `callsmith models`"),
        ('[models.big]\nmodel = "a"\ncontxt = 9\n', "did you mean 'models.big.context'"),
        ('[models.big]\nmodel = "a"\ntools = "demo"\n', "unknown setting"),
        ('[models."a*"]\nmodel = "a"\n', "unknown setting"),
        ('[models.big]\nmodel = "a"\nunload_after = "soon"\n', "models.big.unload_after: 'soon' is no duration"),
        ('[llm]\nunload_after = "soon"\n', "llm.unload_after: 'soon' is no duration"),
        ('[llm]\nmemory = "much"\n', "llm.memory: 'much' is no size"),
        ("[aliases]\nfast = 3\n", "aliases.fast: expected a string"),
    ],
)
def test_what_is_wrong_with_models_and_aliases_is_said(text: str, words: str, tmp_path: Path):
    with pytest.raises(UsageError, match=words.replace("*", ".")):
        settings_of(text, tmp_path)
