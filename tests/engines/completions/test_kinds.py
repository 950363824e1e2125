"""What each kind of server is asked, and what is read of its answers; and servers that are out of their mind."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

from callsmith.core.capability.origin import Origin
from callsmith.core.errors import (
    GrammarRefused,
    ModelError,
    PromptTooLong,
    Rejected,
    Unavailable,
    UnknownName,
    UsageError,
)
from callsmith.core.values import Sampling, TokenBias, Usage
from callsmith.engines import open_engine
from callsmith.engines.completions import tokenizer
from callsmith.engines.completions.tokenizer import find_tokenizer_files
from callsmith.engines.port import Engine, Finished, Piece
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Grammar, Lit
from tests.engines.contract import gather, say
from tests.serving import served

from .scripted_servers import QUICK, SPECIALS, TEMPLATE, Kind, ScriptedServer, encode, frame, opened

KINDS: tuple[Kind, ...] = ("llama-server", "vllm", "sglang")
PLAIN = Sampling(max_tokens=100)


@pytest.fixture(autouse=True)
def small_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "_STEP", 500)  # tokens that are asked for at once


async def pieces_of(engine: Engine, sampling: Sampling = PLAIN, grammar: Grammar | None = None) -> list[Piece | Finished]:
    return [item async for item in engine.generate(Prompt("Hi"), sampling, grammar)]


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_server_says_what_it_serves(kind: Kind) -> None:
    async with opened(ScriptedServer(kind, adds_bos=True)) as engine:
        info = engine.info
        assert info.name.endswith("tiny")
        assert info.context == 4096
        assert info.is_enforcing
        assert dict(info.specials) == SPECIALS
        assert info.bos == "<s>"
        assert info.template == (None if kind == "sglang" else TEMPLATE)
        assert await engine.count("<tool_call>ab") == 3


@pytest.mark.parametrize("at_once", [1, 3, 50])
@pytest.mark.parametrize("kind", KINDS)
async def test_special_tokens_are_told_from_their_letters(kind: Kind, at_once: int) -> None:
    if kind == "llama-server" and at_once > 1:
        pytest.skip("it sends one token at a time")
    async with opened(ScriptedServer(kind, ["a<tool_call>bc</tool_call>"], at_once=at_once)) as engine:
        *pieces, finished = await pieces_of(engine)
    assert finished == Finished("stop", Usage(9, 6, 3))
    assert [piece.text for piece in pieces if isinstance(piece, Piece) and piece.special] == ["<tool_call>", "</tool_call>"]
    assert "".join(piece.text for piece in pieces if isinstance(piece, Piece)) == "a<tool_call>bc</tool_call>"


async def test_sglang_may_send_all_of_it_again_or_what_is_new() -> None:
    for is_cumulative in (True, False):
        async with opened(ScriptedServer("sglang", ["Hello <think>"], is_cumulative=is_cumulative, at_once=2)) as engine:
            text, finished = await gather(engine.generate(Prompt("Hi"), PLAIN))
        assert (text, finished.usage.completion) == ("Hello <think>", 8)


@pytest.mark.parametrize("kind", KINDS)
async def test_limits_and_stop_strings_end_an_answer(kind: Kind) -> None:
    server = ScriptedServer(kind, ["one two three"])
    async with opened(server) as engine:
        assert await say(engine, Prompt("Hi"), Sampling(max_tokens=5)) == ("one t", Finished("length", Usage(9, 5, 3)))
        text, finished = await say(engine, Prompt("Hi"), replace(PLAIN, stop=("tw",)))
        assert (text, finished.reason, finished.matched) == ("one ", "stop", "tw")
        server.end = "a reason of tomorrow"
        assert (await say(engine, Prompt("Hi"), PLAIN))[1].reason == "stop"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_prompt_begins_once_with_its_bos_and_letters_stay_letters(kind: Kind) -> None:
    server = ScriptedServer(kind, ["ok"], adds_bos=True)
    async with opened(server) as engine:
        await say(engine, Prompt("<s>Hi"), PLAIN)
        await say(engine, Prompt("<s>Hi <think>", cuts=(7,)), PLAIN)
    whole, cut = (request.get("prompt", request.get("input_ids")) for request in server.asked)
    assert whole == ([1, *encode("Hi")] if kind == "sglang" else "Hi")
    letters = [1, *encode("Hi <"), *encode("think>")]
    assert cut == ([1, *encode("Hi <"), "think>"] if kind == "llama-server" else letters)


async def test_sampling_is_told_in_the_servers_own_words() -> None:
    sampling = Sampling(
        0.5, 0.9, 40, 0.1, seed=7, max_tokens=9, repetition_penalty=1.1, logit_bias=(TokenBias(12, -1.0),), presence_penalty=0.2
    )
    bodies: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        server = ScriptedServer(kind, ["ok"])
        async with opened(server) as engine:
            await say(engine, Prompt("Hi", origin=Origin(affinity="s1", cache_salt="salt")), sampling)
        bodies[kind] = server.asked[0]
    llama, vllm, sglang = bodies["llama-server"], bodies["vllm"], bodies["sglang"]
    shared = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "presence_penalty": 0.2}
    assert llama.items() >= {**shared, "seed": 7, "n_predict": 9, "repeat_penalty": 1.1, "repeat_last_n": -1}.items()
    assert llama["logit_bias"] == [[12, -1.0]]
    assert llama["cache_prompt"] is False
    assert vllm.items() >= {**shared, "seed": 7, "max_tokens": 9, "repetition_penalty": 1.1, "skip_special_tokens": False}.items()
    assert (vllm["logit_bias"], vllm["session_id"], vllm["cache_salt"]) == ({"12": -1.0}, "s1", "salt")
    assert sglang["sampling_params"].items() >= {**shared, "sampling_seed": 7, "max_new_tokens": 9}.items()
    assert (sglang["session_id"], sglang["cache_salt"]) == ("s1", "salt")
    assert "stop" not in {**llama, **vllm, **sglang["sampling_params"]}


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_servers_whose_own_limit_is_short_are_told_the_room_there_is(kind: Kind) -> None:
    server = ScriptedServer(kind, ["ok"])
    async with opened(server) as engine:
        await say(engine, Prompt("Hi"), Sampling())
        await say(engine, Prompt("Hi"), Sampling(max_tokens=9000))
        with pytest.raises(PromptTooLong) as caught:
            await say(engine, Prompt("x" * 5000), Sampling())
    assert (caught.value.tokens, caught.value.context) == (5000, 4096)
    rooms = [request.get("max_tokens", request.get("sampling_params", {}).get("max_new_tokens")) for request in server.asked]
    assert rooms == [4094, 4094]


async def test_a_grammar_goes_with_the_request_and_a_prefilled_answer_is_continued() -> None:
    fields = {"llama-server": "grammar", "vllm": "structured_outputs", "sglang": "sampling_params"}
    for kind in KINDS:
        server = ScriptedServer(kind, ["ok"])
        async with opened(server) as engine:
            await pieces_of(engine, grammar=Grammar(Lit("Hello there")))
            await gather(engine.generate(Prompt("Hi: Hello", prefilled=("Hello",)), PLAIN, Grammar(Lit("Hello there"))))
            with pytest.raises(UsageError, match="cannot continue"):
                await gather(engine.generate(Prompt("Hi: Bye", prefilled=("Bye",)), PLAIN, Grammar(Lit("Hello there"))))
        first, second = (json.dumps(request[fields[kind]]) for request in server.asked)
        assert "Hello there" in first
        assert "Hello" not in second and "there" in second


# --- servers that are not what they should be -----------------------------------------------------------------------------------


async def answer_in(engine: Engine) -> tuple[str, Finished]:
    return await asyncio.wait_for(say(engine, Prompt("Hi"), PLAIN), 30)


async def html(request: Request) -> Response:
    return HTMLResponse("<title>Sign in</title>")


def refusing(status: int, body: Any, **headers: str) -> Any:
    async def refuse(request: Request) -> Response:
        return JSONResponse(body, status, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return refuse


def streaming(*frames: bytes, pause: float = 0.0, endless: bool = False) -> Any:
    async def write() -> AsyncIterator[bytes]:
        for item in frames:
            yield item
        while endless:
            yield frames[-1]
            await asyncio.sleep(pause)

    async def stream(request: Request) -> Response:
        return StreamingResponse(write(), media_type="text/event-stream")

    return stream


WORD = frame({"content": "word", "tokens": [10], "stop": False, "tokens_evaluated": 2, "tokens_predicted": 1})


@pytest.mark.parametrize(
    ("says", "error", "match"),
    [
        (html, Unavailable, "HTML page"),
        (refusing(503, {"error": {"message": "all slots are busy"}}), Rejected, "503: all slots are busy"),
        (refusing(429, {"error": "slow down"}, retry_after="60"), Rejected, "429: slow down"),
        (refusing(401, {"error": "who are you"}), Rejected, "CALLSMITH_UPSTREAM_KEY"),
        (refusing(400, {"error": {"message": "request (5000 tokens) exceeds the available context size (4096 tokens)"}}),
         PromptTooLong, "5000"),
        (refusing(400, {"message": "This model's maximum context length is 4,096 tokens. However, your prompt contains at least "
                                   "4097 input tokens"}), PromptTooLong, "4097"),
        (refusing(400, {"error": "The input (5001 tokens) is longer than the model's context length (4096 tokens)."}),
         PromptTooLong, "5001"),
        (streaming(WORD), Unavailable, "did not say that it is complete"),
        (streaming(WORD, frame({"error": {"code": 500, "message": "out of memory"}})), ModelError, "out of memory"),
        (streaming(WORD, b"data: {broken\n\n"), ModelError, "no JSON"),
        (streaming(WORD, b"data: [1, 2]\n\n"), Unavailable, "did not say"),
    ],
)  # fmt: skip
async def test_what_goes_wrong_there_is_the_right_error_here(says: Any, error: type[Exception], match: str) -> None:
    async with opened(ScriptedServer(says=[says])) as engine:
        with pytest.raises(error, match=match):
            await answer_in(engine)


async def test_an_endless_answer_ends_at_its_limit() -> None:
    async with opened(ScriptedServer(says=[streaming(WORD, endless=True)])) as engine:
        text, finished = await answer_in(engine)
    assert finished.reason == "length"
    assert text == "word" * 101


async def test_invalid_utf8_and_values_of_wrong_types_do_no_harm() -> None:
    odd = b'data: {"content": "a\xff", "tokens": ["x", null, true, 10], "tokens_predicted": -4, "timings": []}\n\n'
    end = frame({"content": None, "tokens": 7, "stop": True, "stop_type": {}, "tokens_evaluated": 2, "tokens_predicted": 1})
    async with opened(ScriptedServer(says=[streaming(odd, end)])) as engine:
        assert await answer_in(engine) == ("a\ufffd", Finished("stop", Usage(2, 1)))


async def test_a_server_that_hangs_up_before_the_answer_is_asked_again_and_in_the_middle_is_not() -> None:
    busy = refusing(503, {"error": "busy"})
    server = ScriptedServer(says=[busy, "all well"])
    async with opened(server) as engine:
        assert (await answer_in(engine))[0] == "all well"
    assert len(server.asked) == 2


async def test_leaving_early_closes_the_connection() -> None:
    gone = asyncio.Event()

    async def watch(request: Request) -> Response:
        async def write() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield WORD
                    await asyncio.sleep(0.01)
            finally:
                gone.set()

        return StreamingResponse(write(), media_type="text/event-stream")

    async with opened(ScriptedServer(says=[watch])) as engine:
        async with aclosing(engine.generate(Prompt("Hi"), Sampling())) as answer:
            await anext(answer)
        await asyncio.wait_for(gone.wait(), 5)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_ignores_grammars_is_found_out(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(ScriptedServer(kind, ["2, of course"], ignores_grammars=True)) as engine:
        assert not engine.info.is_enforcing
    assert "ignores grammars" in caplog.text


async def test_a_grammar_that_a_server_refuses_is_remembered() -> None:
    refusal = refusing(400, {"error": {"message": "Failed to initialize samplers: failed to parse grammar"}})
    async with opened(ScriptedServer(says=[refusal, "Hello"])) as engine:
        assert engine.info.unenforced is not None
        grammar, other = Grammar(Lit("Hello")), Grammar(Lit("Hallo"))
        assert engine.info.unenforced(grammar) == ()
        with pytest.raises(GrammarRefused):
            await pieces_of(engine, grammar=grammar)
        assert engine.info.unenforced(grammar) is None
        assert engine.info.unenforced(other) == ()


# --- which server, and which model ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["localhost:8080", "", "ftp://host", "http://", "http://host#"])
def test_a_spec_that_is_none_is_refused(rest: str) -> None:
    with pytest.raises(UsageError, match="http://"):
        open_engine(f"completions:{rest}")


async def test_an_unknown_kind_or_model_is_said_with_those_there_are() -> None:
    with pytest.raises(UnknownName, match="llama-server"):
        open_engine("completions:tgi+http://localhost:1")
    async with served(ScriptedServer().app, force=True) as url:
        with pytest.raises(UnknownName, match="unknown model 'other'; known: tiny"):
            await asyncio.to_thread(open_engine, f"completions:{url}#other")
    with pytest.raises(Unavailable, match="cannot be reached"):
        await asyncio.to_thread(open_engine, "completions:http://127.0.0.1:9", retry_policy=QUICK)


async def test_a_server_of_another_kind_has_to_be_named() -> None:
    server = ScriptedServer("vllm")

    async def models(request: Request) -> Response:
        return JSONResponse({"data": [{"id": "a", "owned_by": "acme"}, {"id": "b", "owned_by": "acme"}]})

    server.models = models  # type: ignore[method-assign]
    async with served(server.app, force=True) as url:
        with pytest.raises(UsageError, match=r"says that 'acme' owns its models.*completions:llama-server\+http"):
            await asyncio.to_thread(open_engine, f"completions:{url}")
        with pytest.raises(UsageError, match="several models: say which"):
            await asyncio.to_thread(open_engine, f"completions:vllm+{url}")
        engine = await asyncio.to_thread(open_engine, f"completions:vllm+{url}/v1#b")
        assert engine.info.name == "b"
        await engine.close()


def test_the_template_of_a_model_on_this_machine_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tmp_path / "models--org--tiny" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--org--tiny" / "refs").mkdir()
    (tmp_path / "models--org--tiny" / "refs" / "main").write_text("abc\n")
    config = {"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}], "eos_token": "</s>"}
    (snapshot / "tokenizer_config.json").write_text(json.dumps(config))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    files = find_tokenizer_files("http://localhost:8000", "org/tiny")
    assert (files.template, files.eos) == ("T", "</s>")
    assert find_tokenizer_files("http://127.0.0.1:8000", str(snapshot)).template == "T"
    (snapshot / "chat_template.jinja").write_text("J")
    assert find_tokenizer_files("http://[::1]:8000", str(snapshot)).template == "J"
    assert find_tokenizer_files("http://example.com", str(snapshot)).template is None  # that is another machine's folder
    assert find_tokenizer_files("http://localhost", "../../etc").template is None
    (snapshot / "tokenizer_config.json").write_text("{")
    assert find_tokenizer_files("http://localhost", str(snapshot)).eos == ""
