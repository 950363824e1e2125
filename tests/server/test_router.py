"""Several models behind one server: names, aliases, lists, loading and unloading, as clients of every dialect see it."""

import asyncio
from collections.abc import Mapping

import anthropic
import httpx
import ollama
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI, NotFoundError

from callsmith.core.errors import Unavailable, UsageError
from callsmith.core.events import Stopped, Text
from callsmith.core.ports import ModelInfo
from callsmith.models.router import LazyModel, MemoryBudget
from callsmith.server.app import create_app
from callsmith.server.settings import Key, Settings
from tests.fakes import FakeModel
from tests.models.router.opened import Opener
from tests.server.asking import HI, http, says

ALIASES = {"fast": "small", "claude-*": "big", "claude-local": "big"}
BIG = ModelInfo(name="Big", format="hermes", context=4096, thinks=True, memory=10**9)
SMALL = ModelInfo(name="Small", format="generic-xml", context=512, memory=10**8)


def saying(text: str) -> Opener:
    return Opener([Text(text), Stopped("stop")])


class Served:
    """A server with two models that are loaded on demand, and its clients."""

    def __init__(self, *, aliases: Mapping[str, str] = ALIASES, limit: int | None = None, seconds: float = 600) -> None:
        self.budget = MemoryBudget(limit, patience=0.05)
        self.openers = {"big": saying("I am big."), "small": saying("I am small.")}
        infos = {"big": BIG, "small": SMALL}
        self.models = {name: LazyModel(name, opener, infos[name], budget=self.budget) for name, opener in self.openers.items()}
        app = create_app(self.models, settings=Settings(aliases=aliases, request_seconds=seconds))
        self.http = http(app)
        self.openai = AsyncOpenAI(base_url="http://localhost/v1", api_key="x", http_client=self.http, max_retries=0)
        self.anthropic = AsyncAnthropic(base_url="http://localhost", api_key="x", http_client=self.http, max_retries=0)
        self.ollama = ollama.AsyncClient("http://localhost", transport=httpx.ASGITransport(app=app, raise_app_exceptions=False))

    async def ask(self, model: str) -> str:
        answer = await self.openai.chat.completions.create(model=model, messages=HI)
        return f"{answer.model}: {answer.choices[0].message.content}"

    @property
    def states(self) -> list[str]:
        return [model.status.state for model in self.models.values()]


async def test_models_are_asked_by_name_alias_and_pattern_in_every_dialect():
    served = Served()
    answers = [await served.ask(name) for name in ("big", "small", "fast", "claude-sonnet-5", "", "default")]
    assert answers == [f"{name}: I am {name}." for name in ("big", "small", "small", "big", "big", "big")]
    message = await served.anthropic.messages.create(model="claude-opus-5", max_tokens=9, messages=HI)
    assert (message.model, message.content[0].text) == ("big", "I am big.")  # pyright: ignore
    assert (await served.ollama.chat("fast:latest", HI)).message.content == "I am small."
    response = await served.openai.responses.create(model="fast", input="hi")
    assert (response.model, response.output_text) == ("small", "I am small.")


async def test_default_is_what_the_aliases_say():
    served = Served(aliases={"default": "small"})
    assert [await served.ask(name) for name in ("default", "")] == ["small: I am small."] * 2


async def test_where_several_are_served_a_name_of_the_hub_means_none_unless_an_alias_says_so():
    with pytest.raises(NotFoundError, match="known: big, claude-local, fast, small"):
        await Served().ask("Qwen/Qwen3-0.6B")
    assert await Served(aliases={"Qwen/*": "small"}).ask("Qwen/Qwen3-0.6B") == "small: I am small."


async def test_an_unknown_model_is_the_dialects_own_error_which_lists_what_there_is():
    served = Served()
    with pytest.raises(NotFoundError, match="known: big, claude-local, fast, small") as chat:
        await served.ask("gpt-5")
    assert chat.value.code == "model_not_found"
    with pytest.raises(anthropic.NotFoundError, match="known: big, claude-local, fast, small"):
        await served.anthropic.messages.create(model="gpt-5", max_tokens=9, messages=HI)
    with pytest.raises(ollama.ResponseError, match="known: big, claude-local, fast, small") as caught:
        await served.ollama.chat("gpt-5", HI)
    assert caught.value.status_code == 404


def test_aliases_that_mean_nothing_are_errors_when_the_server_is_made():
    with pytest.raises(UsageError, match="'fast' means 'tiny', which is no model; there are: m"):
        create_app({"m": FakeModel(says("a"))}, settings=Settings(aliases={"fast": "tiny"}))


async def test_a_key_uses_aliases_of_its_own_models_only():
    keys = {"bob": Key("0" * 64, models=("small",))}
    models = {name: FakeModel(says(name)) for name in ("big", "small")}
    app = create_app(models, settings=Settings(aliases=ALIASES, keys=keys | {"key": Key(HASH, models=("small",))}))
    async with http(app) as asking:
        headers = {"authorization": "Bearer secret"}
        listed = (await asking.get("/v1/models", headers=headers)).json()["data"]
        assert [item["id"] for item in listed] == ["small", "fast"]
        refused = await asking.post("/v1/chat/completions", headers=headers, json={"model": "claude-x", "messages": HI})
        assert refused.status_code == 404
        assert "big" not in refused.text
        answer = await asking.post("/v1/chat/completions", headers=headers, json={"messages": HI, "model": "default"})
        assert answer.json()["model"] == "small"


HASH = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # of "secret"


async def test_models_are_listed_with_what_they_can_do_and_none_is_loaded_for_that():
    served = Served()
    listed = {model.id: model.to_dict() async for model in served.openai.models.list()}
    assert list(listed) == ["big", "small", "fast", "claude-local"]
    assert listed["big"]["max_model_len"] == 4096
    assert listed["big"]["callsmith"] == {"format": "hermes", "tools": True, "thinking": True, "loaded": False}
    assert listed["fast"]["callsmith"]["alias_of"] == "small"
    retrieved = await served.openai.models.retrieve("claude-something")
    assert retrieved.id == "big"
    theirs = {model.id: model async for model in served.anthropic.models.list()}
    assert list(theirs) == list(listed) and theirs["claude-local"].display_name == "claude-local (big)"
    capabilities = theirs["big"].capabilities
    assert theirs["big"].max_input_tokens == 4096 and capabilities is not None
    assert capabilities.thinking.supported and capabilities.structured_outputs.supported
    assert not theirs["small"].capabilities.thinking.supported  # pyright: ignore
    tags = (await served.ollama.list()).models
    assert [tag.model for tag in tags] == list(listed)
    assert (await served.ollama.show("claude-x")).capabilities == ["completion", "tools", "thinking"]
    assert (await served.ollama.ps()).models == [] and served.states == ["unloaded", "unloaded"]
    await served.ask("big")
    assert (await served.openai.models.retrieve("big")).to_dict()["callsmith"]["loaded"] is True  # pyright: ignore


async def test_codex_gets_the_list_it_can_read():
    served = Served()
    plain, codex = [(await served.http.get(path)).json() for path in ("/v1/models", "/v1/models?client_version=0.166.0")]
    assert "models" not in plain and codex["data"] == plain["data"]
    assert [model["slug"] for model in codex["models"]] == ["big", "small", "fast", "claude-local"]
    big = codex["models"][0]
    assert (big["context_window"], big["visibility"], big["supported_in_api"]) == (4096, "list", True)
    required = {"supported_reasoning_levels", "shell_type", "priority", "base_instructions", "truncation_policy"}
    assert required <= big.keys() and big["base_instructions"]


async def test_twenty_requests_at_once_load_a_model_once():
    served = Served()
    served.openers["big"].allowed.clear()
    asking = [asyncio.create_task(served.ask("big")) for _ in range(20)]
    while not served.openers["big"].calls:
        await asyncio.sleep(0.001)
    assert await served.ask("small") == "small: I am small."  # who asks for another does not wait
    served.openers["big"].allowed.set()
    assert await asyncio.gather(*asking) == ["big: I am big."] * 20
    assert served.openers["big"].calls == 1


async def test_a_failed_load_is_told_to_the_client_and_tried_again():
    served = Served()
    served.openers["big"].fails.append(Unavailable("/models/big.gguf is damaged"))
    failed = await served.http.post("/v1/chat/completions", json={"model": "big", "messages": HI})
    assert (failed.status_code, failed.json()["error"]["message"]) == (503, "/models/big.gguf is damaged")
    health = (await served.http.get("/health")).json()
    assert (health["status"], health["models"]) == ("degraded", {"big": "failed", "small": "unloaded"})
    assert health["model_errors"] == {"big": "/models/big.gguf is damaged"}
    assert (await served.http.get("/ready")).status_code == 200  # the other model can be asked
    assert await served.ask("big") == "big: I am big."
    health = (await served.http.get("/health")).json()
    assert (health["status"], health["models"]["big"]) == ("ok", "ready") and "model_errors" not in health


async def test_what_does_not_fit_beside_a_model_in_use_is_a_503_that_says_when_to_come_again():
    served = Served(limit=1_050_000_000)
    async with served.models["big"].use():
        refused = await served.http.post("/v1/chat/completions", json={"model": "small", "messages": HI})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert "no room for small now: big in use" in refused.json()["error"]["message"]
        overloaded = await served.http.post(
            "/v1/messages", json={"model": "small", "messages": HI, "max_tokens": 9}, headers={"anthropic-version": "x"}
        )
        assert (overloaded.status_code, overloaded.headers["retry-after"]) == (529, "5")
    assert await served.ask("small") == "small: I am small."
    assert served.states == ["unloaded", "loaded"]


async def test_ollama_clients_load_and_unload_models_and_see_when_they_go():
    served = Served()
    assert (await served.ollama.generate("big")).done_reason == "load"
    (running,) = (await served.ollama.ps()).models
    assert (running.model, running.size, running.context_length) == ("big", 10**9, 100)
    assert running.expires_at is not None and running.expires_at.year == 9999
    await served.ollama.chat("fast", HI, keep_alive="5m")
    expiring = {model.model: model.expires_at for model in (await served.ollama.ps()).models}
    assert expiring["small"] is not None and expiring["small"].year < 9999
    assert (await served.ollama.generate("big", keep_alive=0)).done_reason == "unload"
    await asyncio.sleep(0.01)
    assert served.states == ["unloaded", "loaded"]
    await served.ollama.chat("big", HI)
    assert served.states == ["loaded", "loaded"]  # what a client said is over with the unloading
    await served.ollama.chat("big", HI, keep_alive=0)
    await asyncio.sleep(0.01)
    assert served.states == ["unloaded", "loaded"]


async def test_loading_is_admitted_like_a_request_and_has_its_deadline():
    served = Served(seconds=0.05)
    served.openers["big"].allowed.clear()
    with pytest.raises(ollama.ResponseError, match="no complete answer within") as caught:
        await served.ollama.generate("big")
    assert caught.value.status_code == 504 and served.states[0] == "loading"
    served.openers["big"].allowed.set()


async def test_unloading_what_is_not_loaded_changes_nothing():
    served = Served()
    assert (await served.ollama.generate("big", keep_alive=0)).done_reason == "unload"
    await served.ollama.chat("big", HI)
    await asyncio.sleep(0.01)
    assert served.states == ["loaded", "unloaded"]


async def test_tokens_are_counted_and_texts_continued_by_a_model_that_is_loaded_for_it():
    served = Served()
    counted = await served.http.post("/v1/messages/count_tokens", json={"model": "big", "messages": HI})
    assert counted.status_code == 404 and served.states == ["loaded", "unloaded"]  # such a model cannot count


async def test_loads_and_unloads_are_counted():
    served = Served()
    served.openers["small"].fails.append(Unavailable("broken"))
    await served.http.post("/v1/chat/completions", json={"model": "small", "messages": HI})
    await served.ask("big")
    await served.models["big"].unload()
    await served.ask("big")
    lines = (await served.http.get("/metrics")).text.splitlines()
    expected = (
        'callsmith_model_loads_total{model="big"} 2.0',
        'callsmith_model_unloads_total{model="big"} 1.0',
        'callsmith_model_load_failures_total{model="small"} 1.0',
        'callsmith_model_loaded{model="big"} 1.0',
        'callsmith_model_loaded{model="small"} 0.0',
        'callsmith_model_memory_bytes{model="big"} 1e+09',
    )
    assert set(expected) <= set(lines)


async def test_loading_counts_towards_the_deadline_of_an_answer_and_goes_on_for_the_next():
    served = Served(seconds=0.05)
    served.openers["big"].allowed.clear()
    late = await served.http.post("/v1/chat/completions", json={"model": "big", "messages": HI})
    assert late.status_code == 504
    assert (await served.http.get("/health")).json()["answering"] == 0
    served.openers["big"].allowed.set()
    while served.states[0] != "loaded":
        await asyncio.sleep(0.001)
    assert await served.ask("big") == "big: I am big." and served.openers["big"].calls == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"])
async def test_a_stream_that_cannot_begin_has_the_status_of_its_error(path: str):
    served = Served()
    served.openers["big"].fails.append(Unavailable("broken", retryable=True, seconds=7))
    body = {"model": "big", "messages": HI, "input": "hi", "max_tokens": 9, "stream": True}
    refused = await served.http.post(path, json=body)
    assert (refused.status_code, refused.headers["retry-after"]) == (529 if "messages" in path else 503, "7")


async def test_a_stream_is_finished_although_the_model_is_to_go():
    served = Served()
    served.openers["big"].answers = ([Text("one "), 0.05, Text("two"), Stopped("stop")],)
    stream = await served.openai.chat.completions.create(model="big", messages=HI, stream=True)
    pieces = [(await anext(stream)).choices[0].delta.content]
    assert (await served.ollama.generate("big", keep_alive=0)).done_reason == "unload"
    assert served.states[0] == "loaded"
    pieces += [chunk.choices[0].delta.content async for chunk in stream]
    assert "".join(filter(None, pieces)) == "one two"
    await asyncio.sleep(0.01)
    assert served.states[0] == "unloaded" and not served.openers["big"].opened[0].cut_off
