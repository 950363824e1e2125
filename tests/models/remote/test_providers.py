"""Models of other servers as users name them: providers, URLs, keys, and mistakes in either."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from callsmith.cli.inputs.options import alias_of
from callsmith.core.errors import Unavailable, UnknownName, UsageError
from callsmith.models.opening import Options, open_model
from callsmith.models.remote.model import RemoteModel
from callsmith.models.remote.providers import parse_spec, providers, providers_in
from callsmith.wire.upstream.quirks import Quirks
from tests.models.remote.scripted import ASK, chat, text_of
from tests.scripted_server import http, scripted


def opened(spec: str, **options: Any) -> RemoteModel:
    model = open_model(spec, Options(**options))
    assert isinstance(model, RemoteModel)
    return model


NAMED = {
    "openai:gpt-5-mini": ("https://api.openai.com/v1", "chat", "gpt-5-mini"),
    "anthropic:claude-sonnet-5": ("https://api.anthropic.com/v1", "anthropic", "claude-sonnet-5"),
    "ollama:qwen3:4b": ("http://localhost:11434", "ollama", "qwen3:4b"),
    "openrouter:qwen/qwen3-coder": ("https://openrouter.ai/api/v1", "chat", "qwen/qwen3-coder"),
    "nvidia:nvidia/nemotron-3-nano": ("https://integrate.api.nvidia.com/v1", "chat", "nvidia/nemotron-3-nano"),
    "openbmb:minicpm-v-4.5": ("http://localhost:8000/v1", "chat", "minicpm-v-4.5"),
    "vllm+http://gpu1:8000/v1#qwen3": ("http://gpu1:8000/v1", "chat", "qwen3"),
    "https://host.example/v1/#some/model": ("https://host.example/v1", "chat", "some/model"),
}


@pytest.mark.parametrize("spec", NAMED)
@pytest.mark.req("R142")
@pytest.mark.req("R143")
def test_a_spec_says_where_in_which_api_and_which_model(spec: str) -> None:
    model = opened(spec)
    assert (model.upstream.url, model.dialect.name, model.model) == NAMED[spec]
    assert alias_of(spec) == model.model == model.info.name


def test_another_api_can_be_chosen() -> None:
    model = opened("openai:gpt-5", api="responses")
    assert model.dialect.name == "responses"
    assert "seed" not in model.quirks.sampling and model.quirks.history == "signed"
    assert opened("http://localhost:11434/v1#m", api="ollama").upstream.url == "http://localhost:11434"
    with pytest.raises(UnknownName, match="unknown API 'smoke'; known: anthropic, chat, ollama, responses"):
        open_model("openai:gpt-5", Options(api="smoke"))


def test_repair_mode_can_be_turned_on_and_off() -> None:
    assert opened("ollama:m").quirks.repairs and not opened("ollama:m", repair="off").quirks.repairs
    assert not opened("openai:m").quirks.repairs and opened("openai:m", repair="on").quirks.repairs


async def test_keys_come_from_the_environment_and_go_where_the_api_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for spec, variable, header in (
        ("openai+{}/v1#m", "OPENAI_API_KEY", "authorization: bearer sesame"),
        ("anthropic+{}/v1#m", "ANTHROPIC_API_KEY", "x-api-key: sesame"),
        ("{}/v1#m", "CALLSMITH_UPSTREAM_KEY", "authorization: bearer sesame"),
    ):
        monkeypatch.setenv(variable, "sesame")
        async with scripted(chat({"content": "Hi"})) as server:
            model = opened(spec.format(server.url), api="chat" if "anthropic" not in spec else None)
            with suppress(Unavailable):  # it is no stream of Anthropic's; what matters is what was sent
                _ = [event async for event in model.stream(ASK)]
            await model.close()
        assert header in server.headers[0]
        monkeypatch.delenv(variable)


def test_a_variable_says_where_a_server_of_ones_own_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "box:11434")
    assert opened("ollama:m").upstream.url == "http://box:11434"
    monkeypatch.setenv("VLLM_BASE_URL", "https://gpu/v1")
    assert opened("vllm:m").upstream.url == "https://gpu/v1"


async def test_a_server_with_one_model_need_not_be_told_its_name() -> None:
    async with scripted(http(b'{"object": "list", "data": [{"id": "the-one"}]}'), chat({"content": "Hi"})) as server:
        model = await asyncio.to_thread(opened, f"{server.url}/v1")
        assert model.model == "the-one"
        assert text_of([event async for event in model.stream(ASK)]) == "Hi"
        await model.close()


async def test_a_server_with_several_wants_to_be_told() -> None:
    async with scripted(http(b'{"data": [{"id": "a"}, {"id": "b"}]}')) as server:
        with pytest.raises(UsageError, match=r"has 2 models \(a, b\): name one"):
            await asyncio.to_thread(open_model, f"{server.url}/v1")


@pytest.mark.parametrize(
    "spec", ["llama:x", "scripted:Hi", "qwen2.5-coder-1.5b", "C:/models/a.gguf", "org/repo/file.gguf", "no-such:x"]
)
def test_what_is_no_remote_model_is_none(spec: str) -> None:
    assert parse_spec(spec) is None


def test_an_unknown_provider_before_a_url_is_named() -> None:
    with pytest.raises(UnknownName, match="unknown provider 'vlm'; did you mean 'vllm'"):
        open_model("vlm+http://localhost:8000/v1#m")


def test_every_provider_loads_and_has_an_api() -> None:
    wanted = {
        "openai",
        "anthropic",
        "ollama",
        "openrouter",
        "together",
        "mistral",
        "groq",
        "lmstudio",
        "nvidia",
        "openbmb",
        "vllm",
    }
    assert wanted | {"sglang", "llama-server", "callsmith"} <= set(providers())
    for provider in providers().values():
        assert provider.api in provider.quirks, provider.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mine = 1", "provider mine: expected an object"),
        ("[mine]\napi = 'chat'", "provider mine.url: is missing"),
        ("[mine]\nurl = 'http://a'\ncolour = 1", "unknown key 'colour'"),
        ("[mine]\nurl = 'http://a'\napi = 'smoke'", "unknown API 'smoke'"),
        ("[mine]\nurl = 'http://a'\n[mine.chat]\ncolour = 1", r"provider mine.chat.colour: unknown key 'colour'"),
        ("[mine]\nurl = 'http://a'\n[mine.chat]\ntools = 'no'", "chat.tools: expected a boolean"),
        ("[mine]\nurl = 'http://a'\n[mine.chat]\nsampling = ['top_q']", "did you mean 'top_p'"),
        ("[mine]\nurl = 'http://a'\n[mine.chat]\nhistory = 'all'", "chat.history: expected one of"),
        ("[mine", "not TOML"),
    ],
)
def test_a_provider_that_is_written_wrongly_is_an_error_when_it_is_read(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        providers_in(text)


def test_users_add_providers_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "providers"
    folder.mkdir()
    (folder / "mine.toml").write_text("[mine]\nurl = 'http://mine/v1'\nformats = ['hermes']\n[mine.chat]\ntools = false\n")
    monkeypatch.setenv("CALLSMITH_CONFIG", str(tmp_path))
    providers.cache_clear()
    try:
        model = opened("mine:m")
        assert model.quirks == Quirks(tools=False)
        assert model.info.format == "hermes"
        (folder / "mine.toml").write_text("[mine]\n")
        providers.cache_clear()
        with pytest.raises(UsageError, match=r"mine.toml: provider mine.url: is missing"):
            providers()
    finally:
        monkeypatch.undo()
        providers.cache_clear()
