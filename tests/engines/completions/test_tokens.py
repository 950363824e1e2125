"""Log probabilities from servers of every kind: what is asked for, what is read, and what is decided by them."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from callsmith.core.errors import ModelError, Rejected
from callsmith.core.events import CallReady, ModelEvent, Started, Stopped, Text
from callsmith.core.values import Completion, Message, Request, Sampling, TokenLogprob, Tool
from callsmith.engines.completions import tokenizer
from callsmith.engines.completions.tokens import TokenAligner, read_token
from callsmith.engines.port import Engine, Piece, SampledToken
from callsmith.formats import format_named
from callsmith.formats.prompt.prompt import Prompt
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from callsmith.models.plain_text import continue_text
from callsmith.models.tool_prompts import tool_prompt_named
from callsmith.models.traits import Traits

from .scripted_servers import Kind, ScriptedServer, frame, opened

KINDS: tuple[Kind, ...] = ("llama-server", "vllm", "sglang")
ASKED = Sampling(max_tokens=100, logprobs=2)
WEATHER = Tool("get_weather", "", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
LIKELY = {"`": -0.5, "<tool_call>": -2.0, "z": -3.0}


@pytest.fixture(autouse=True)
def small_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "_STEP", 500)  # tokens that are asked for at once


async def pieces_of(engine: Engine, sampling: Sampling = ASKED) -> list[Piece]:
    return [item async for item in engine.generate(Prompt("Hi"), sampling) if isinstance(item, Piece)]


def tokens_of(pieces: list[Piece]) -> list[SampledToken]:
    return [token for piece in pieces for token in piece.tokens]


@pytest.mark.parametrize("at_once", [1, 3, 50])
@pytest.mark.parametrize("kind", KINDS)
async def test_each_token_has_its_log_probability_and_its_place(kind: Kind, at_once: int) -> None:
    if kind == "llama-server" and at_once > 1:
        pytest.skip("it sends one token at a time")
    text = "a<tool_call>bc"
    async with opened(ScriptedServer(kind, [text], at_once=at_once, likely=LIKELY)) as engine:
        assert engine.info.logprobs
        pieces = await pieces_of(engine)
    tokens = tokens_of(pieces)
    assert "".join(piece.text for piece in pieces) == text
    assert [token.logprob.text for token in tokens] == ["a", "<tool_call>", "b", "c"]
    assert [text[token.start : token.end] for token in tokens] == ["a", "<tool_call>", "b", "c"]
    assert [(candidate.text, candidate.logprob) for candidate in tokens[0].logprob.top] == [("`", -0.5), ("a", -1.0)]
    assert all(piece.usage for piece in pieces)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_likeliest_tokens_are_as_many_as_were_asked_for(kind: Kind) -> None:
    async with opened(ScriptedServer(kind, ["ab"], likely={**LIKELY, "y": -0.6})) as engine:
        for count in (0, 1, 2, 4):
            tokens = tokens_of(await pieces_of(engine, replace(ASKED, logprobs=count)))
            top = [candidate.text for candidate in tokens[0].logprob.top]
            assert top == ["`", "y", "a", "<tool_call>"][:count]  # special tokens too, whether the server says their text or not
            assert tokens[0].logprob.logprob == -1.0
        assert not tokens_of(await pieces_of(engine, Sampling(max_tokens=100)))


async def test_each_server_is_asked_in_its_own_words() -> None:
    bodies: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        server = ScriptedServer(kind, ["ab"])
        async with opened(server) as engine:
            await pieces_of(engine, replace(ASKED, logprobs=20))
            await pieces_of(engine, Sampling(max_tokens=100))
        bodies[kind], plain = server.asked
        assert not {"n_probs", "logprobs", "return_logprob"} & plain.keys()
    assert bodies["llama-server"]["n_probs"] == 20
    assert bodies["vllm"]["logprobs"] == 20
    assert bodies["sglang"].items() >= {"return_logprob": True, "top_logprobs_num": 20, "return_text_in_logprobs": True}.items()


async def test_sglang_may_send_all_of_them_again_or_what_is_new() -> None:
    for is_cumulative in (True, False):
        async with opened(ScriptedServer("sglang", ["Hello"], is_cumulative=is_cumulative, at_once=2)) as engine:
            tokens = tokens_of(await pieces_of(engine))
        assert [token.logprob.text for token in tokens] == [*"Hello"]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_that_ends_at_once_tells_what_else_was_likely(kind: Kind) -> None:
    async with opened(ScriptedServer(kind, [""], likely=LIKELY)) as engine:
        for sampling in (ASKED, replace(ASKED, temperature=0.0, max_tokens=1)):
            (piece,) = await pieces_of(engine, sampling)
            assert piece.text == ""
            (token,) = piece.tokens
            assert (token.start, token.end, token.logprob.text) == (0, 0, "<|im_end|>")
            assert token.logprob.top[0] == TokenLogprob(b"`", -0.5)
        assert await pieces_of(engine, Sampling(max_tokens=100)) == []
        events = [event async for event in continue_text(engine, Completion("Hi", ASKED))]
        assert [type(event) for event in events] == [Started, Stopped]  # what ended it is no text


@pytest.mark.parametrize("kind", KINDS)
async def test_withheld_text_keeps_its_tokens(kind: Kind) -> None:
    async with opened(ScriptedServer(kind, ["abab!"])) as engine:
        pieces = await pieces_of(engine, replace(ASKED, stop=("abc",)))
        assert [token.logprob.text for token in tokens_of(pieces)] == [*"abab!"]
        assert [token.start for token in tokens_of(pieces)] == [0, 1, 2, 3, 4]


# --- servers that refuse, or say odd things ------------------------------------------------------------------------------------

TOO_MANY = "Requested sample logprobs of 20, which is greater than max allowed: 5"


@pytest.mark.parametrize("in_stream", [False, True])
async def test_a_server_that_gives_fewer_is_told_how_to_be_started(in_stream: bool) -> None:
    error = {"error": {"message": TOO_MANY, "type": "BadRequestError", "code": 400}}

    async def refuse(request: HttpRequest) -> Response:
        return Response(frame(error), media_type="text/event-stream") if in_stream else JSONResponse(error, 400)

    async with opened(ScriptedServer("vllm", [refuse])) as engine:
        with pytest.raises(ModelError, match=r"max allowed: 5[\s\S]*--max-logprobs 20") as caught:
            await pieces_of(engine, replace(ASKED, logprobs=20))
    assert in_stream or (isinstance(caught.value, Rejected) and caught.value.status == 400)


@pytest.mark.parametrize(
    ("kind", "odd"),
    [
        ("llama-server", {"completion_probabilities": [None, {"bytes": [999, -1, "x"], "logprob": "high", "top_logprobs": 7}]}),
        ("llama-server", {"completion_probabilities": {"a": 1}}),
        ("vllm", {"logprobs": {"tokens": ["a", 3], "token_logprobs": [None], "top_logprobs": [None, [1]]}}),
        ("vllm", {"logprobs": {"tokens": "ab", "token_logprobs": 1, "top_logprobs": None}}),
        ("sglang", {"output_token_logprobs": [[], None, [1e300, 5]], "output_top_logprobs": [[[None, None]], 3]}),
        ("sglang", {"output_token_logprobs": "x", "output_token_logprobs_length": 7}),
    ],
)
async def test_log_probabilities_that_are_none_do_no_harm(kind: Kind, odd: dict[str, Any]) -> None:
    async def stream(request: HttpRequest) -> Response:
        choice = {"text": "ab", "token_ids": [107, 108], "finish_reason": "stop", **odd}
        meta = {"prompt_tokens": 2, "completion_tokens": 2, "finish_reason": {"type": "stop"}, **odd}
        llama = {"content": "ab", "tokens": [107, 108], "stop": True, "tokens_evaluated": 2, **odd}
        events: dict[str, Any] = {
            "llama-server": llama,
            "vllm": {"choices": [choice]},
            "sglang": {"text": "ab", "output_ids": [107, 108], "meta_info": meta},
        }
        return Response(frame(events[kind]), media_type="text/event-stream")

    async with opened(ScriptedServer(kind, [stream])) as engine:
        pieces = await pieces_of(engine)
    assert "".join(piece.text for piece in pieces) == "ab"
    assert all(token.logprob.logprob <= 0 and math.isfinite(token.logprob.logprob) for token in tokens_of(pieces))


# --- where tokens stand --------------------------------------------------------------------------------------------------------


def test_a_log_probability_is_a_finite_number_whatever_a_server_says() -> None:
    values = [-1, -0.5, 10**400, -(10**400), math.inf, -math.inf, math.nan, None, "x", [1]]
    assert [read_token("a", item).logprob for item in values] == [-1.0, -0.5, 0.0, -9999.0, 0.0, *[-9999.0] * 5]


def places(*events: tuple[str, list[str | bytes]], end: Any = "stop") -> list[tuple[int, int]]:
    aligner = TokenAligner(top=0)
    for number, (text, tokens) in enumerate(events, start=1):
        aligner.feed(text, [read_token(token, -1.0) for token in tokens], end if number == len(events) else None)
    return [(token.start, token.end) for token in aligner.take()]


def test_a_token_with_a_part_of_a_character_ends_before_it() -> None:
    smile = "😀".encode()
    expected = [(0, 1), (1, 1), (1, 2), (2, 3)]
    assert places(("a😀b", ["a", smile[:2], smile[2:], "b"])) == expected
    assert places(("a", ["a"]), ("", ["�"]), ("😀", ["�"]), ("b", ["b"])) == expected
    assert places(("a😀", ["a", "�", "�", "<end>"])) == expected[:3]
    assert places(("a", ["a", "�"]), ("�", []), end="length") == [(0, 1), (1, 2)]


def test_a_token_that_is_written_otherwise_alone_has_the_text_up_to_the_next() -> None:
    assert places(("Hello world,", ["Hello", "world", ","])) == [(0, 5), (5, 11), (11, 12)]
    assert places(("Hello", ["Hello", "world"]), (" world", [])) == [(0, 5), (5, 11)]
    assert places(("He", ["Hello"]), ("llo!", ["!"])) == [(0, 5), (5, 6)]


def test_text_without_tokens_is_passed_over() -> None:
    assert places(("ab", []), ("c", ["c"]), ("d", [])) == [(2, 3)]
    assert places(("", ["", "a"]), ("a", []), ("", ["<end>"])) == [(0, 0), (0, 1)]


# --- what is decided -----------------------------------------------------------------------------------------------------------


async def answer(engine: Engine) -> list[ModelEvent]:
    tool_prompt = tool_prompt_named("json-array")
    model = LocalModel(engine, format_named(tool_prompt.format), Template(CHATML), Traits(tool_prompt=tool_prompt))
    request = Request((Message.user("Weather in Paris?"),), (WEATHER,))
    return [event async for event in model.stream(request)]


@pytest.mark.parametrize("kind", KINDS)
async def test_whether_tools_are_called_is_decided_by_what_the_server_tells(kind: Kind) -> None:
    call = json.dumps({"name": "get_weather", "arguments": {"city": "Paris"}})
    server = ScriptedServer(kind, ["```", call + "]\n```"], likely={"`": -0.5})
    async with opened(server) as engine:
        events = await answer(engine)
    assert isinstance(events[-1], Stopped) and events[-1].report.decision is not None
    assert events[-1].report.decision.calls
    assert [event.call.arguments for event in events if isinstance(event, CallReady)] == [{"city": "Paris"}]
    server = ScriptedServer(kind, ["", "It is sunny."], likely={"I": -0.1})
    async with opened(server) as engine:
        events = await answer(engine)
    assert isinstance(events[-1], Stopped) and events[-1].report.decision is not None
    assert not events[-1].report.decision.calls
    assert "".join(event.text for event in events if isinstance(event, Text)) == "It is sunny."
