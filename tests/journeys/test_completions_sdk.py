"""Plain completions and tokens of a real model: `/v1/completions` by the OpenAI client, and what llama-server and vLLM have."""

import json
from itertools import accumulate
from typing import Any

import httpx
import openai
import pytest

from callsmith.core.events import Stopped, Text
from callsmith.core.values import Completion, Sampling
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from callsmith.server.settings import Key, Settings
from tests.fakes import FakeModel
from tests.journeys.scripts import HI, TOOLS, app_of, client_of, scripted_model
from tests.server.asking import says

pytestmark = pytest.mark.weights

COUNT = "one two three four five six seven"
GREEDY: dict[str, Any] = {"model": "m", "temperature": 0.0, "max_tokens": 6}


def http_of(model: Any, **options: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=create_app({"m": model}, **options), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=None)


async def test_a_text_is_continued_as_it_stands(small: LocalModel) -> None:
    client = client_of(app_of(small))
    answer = await client.completions.create(**GREEDY, prompt=COUNT)
    assert answer.object == "text_completion"
    [choice] = answer.choices
    assert choice.text.startswith(" eight")
    assert choice.finish_reason == "length"
    assert answer.usage and answer.usage.completion_tokens == 6
    streamed = [chunk async for chunk in await client.completions.create(**GREEDY, prompt=COUNT, stream=True)]
    assert "".join(piece.text for chunk in streamed for piece in chunk.choices) == choice.text
    assert [piece.finish_reason for chunk in streamed for piece in chunk.choices][-1] == "length"
    echoed = await client.completions.create(**GREEDY, prompt=COUNT, echo=True)
    assert echoed.choices[0].text == COUNT + choice.text


async def test_several_prompts_of_either_kind_are_answered_in_order(small: LocalModel) -> None:
    client = client_of(app_of(small))
    assert small.info.tokenizer is not None
    tokens = small.info.tokenizer.encode(COUNT)
    body = {**GREEDY, "max_tokens": 1}
    by_id = await client.completions.create(**body, prompt=tokens, echo=True)
    assert by_id.choices[0].text == COUNT + " eight"
    several = await client.completions.create(**body, prompt=["a b c", COUNT], n=2)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in several.choices[2:]] == [" eight", " eight"]


async def test_log_probabilities_stand_in_four_lists(small: LocalModel) -> None:
    client = client_of(app_of(small))
    choice = (await client.completions.create(**GREEDY, prompt=COUNT, logprobs=2)).choices[0]
    assert choice.logprobs and choice.logprobs.tokens and choice.logprobs.token_logprobs and choice.logprobs.top_logprobs
    assert "".join(choice.logprobs.tokens) == choice.text
    ends = [*accumulate(map(len, choice.logprobs.tokens))]
    assert choice.logprobs.text_offset == [0, *ends[:-1]]
    for token, logprob, top in zip(
        choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs, strict=True
    ):
        assert len(top) == 2
        assert top[token] == logprob == max(top.values())


async def test_an_answer_is_held_to_what_was_asked_for(small: LocalModel) -> None:
    client = client_of(app_of(small))
    schema = {"type": "object", "properties": {"city": {"enum": ["Bonn", "Rome"]}}, "required": ["city"]}
    extra = {"structured_outputs": {"json": schema}}
    answer = await client.completions.create(**{**GREEDY, "max_tokens": 40}, prompt="A city: ", extra_body=extra)
    assert json.loads(answer.choices[0].text)["city"] in ("Bonn", "Rome")
    stopped = await client.completions.create(**GREEDY, prompt=COUNT, stop=[" nine"])
    assert stopped.choices[0].finish_reason == "stop"
    assert "nine" not in stopped.choices[0].text


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["x", 5]}, "prompt.1"),
        ({"prompt": "x", "n": 65}, "n"),
        ({"prompt": "x", "echo": True, "logprobs": 1}, "echo"),
        ({"prompt": "x", "best_of": 3}, "best_of"),
        ({"prompt": "x", "logprobs": 21}, "logprobs"),
    ],
)
async def test_what_is_not_possible_is_refused_by_name(body: dict[str, Any], field: str) -> None:
    client = client_of(app_of(scripted_model(format_named("hermes"), "Hello", 1)))
    with pytest.raises(openai.BadRequestError) as refused:
        await client.completions.create(model="m", **body)
    assert refused.value.param == field


async def test_a_model_that_only_answers_messages_says_so_and_a_key_opens_only_its_models() -> None:
    async with http_of(FakeModel(says("hi"))) as http:
        answer = await http.post("/v1/completions", json={"model": "m", "prompt": "x"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
        answer = await http.post("/tokenize", json={"content": "x"})
        assert answer.status_code == 400
    key = {"tester": Key(sha256="0" * 64)}
    async with http_of(FakeModel(says("hi")), settings=Settings(keys=key)) as http:
        for path in ("/v1/completions", "/completion", "/tokenize", "/detokenize", "/props"):
            assert (await http.post(path, json={})).status_code == 401


async def test_special_tokens_are_not_part_of_the_text() -> None:
    engine = Scripted(["a<|im_start|>b"], specials={"<|im_start|>": 1})
    local = LocalModel(engine, format_named("hermes"), Template(CHATML))
    events = [event async for event in local.complete(Completion("x", Sampling()))]
    assert [event.text for event in events if isinstance(event, Text)] == ["a", "b"]
    assert isinstance(events[-1], Stopped)


# llama-server and vLLM


async def test_tokens_there_and_back_in_both_shapes(small: LocalModel) -> None:
    async with http_of(small) as http:
        native = (await http.post("/tokenize", json={"content": "Köln<|im_end|>"})).json()
        assert (await http.post("/detokenize", json=native)).json()["content"] == "Köln<|im_end|>"
        letters = (await http.post("/tokenize", json={"content": "Köln<|im_end|>", "parse_special": False})).json()
        assert len(letters["tokens"]) > len(native["tokens"])
        pieces = (await http.post("/tokenize", json={"content": "Köln", "with_pieces": True})).json()["tokens"]
        data = b"".join(
            bytes(piece["piece"]) if isinstance(piece["piece"], list) else piece["piece"].encode() for piece in pieces
        )
        assert data.decode() == "Köln"
        body = {"model": "m", "prompt": "Köln", "return_token_strs": True}
        vllm = (await http.post("/tokenize", json=body)).json()
        assert vllm["count"] == len(vllm["tokens"]) == len(vllm["token_strs"])
        assert vllm["max_model_len"] == 2048
        assert (await http.post("/detokenize", json={"model": "m", "tokens": vllm["tokens"]})).json()["prompt"] == "Köln"
        chat = (await http.post("/tokenize", json={"messages": HI, "tools": TOOLS})).json()
        usage = (await http.post("/v1/messages/count_tokens", json={"model": "m", "messages": HI})).json()
        assert chat["count"] > usage["input_tokens"] > 0
        wrong = await http.post("/detokenize", json={"tokens": [10**9]})
        assert wrong.status_code == 400
        assert "there is no token 1000000000" in wrong.json()["error"]["message"]


async def test_the_native_completion_streamed_and_whole(small: LocalModel) -> None:
    body = {"prompt": COUNT, "n_predict": 4, "temperature": 0, "n_probs": 2}
    async with http_of(small) as http:
        whole = (await http.post("/completion", json=body)).json()
        assert whole["content"].startswith(" eight")
        assert (whole["stop"], whole["stop_type"], whole["tokens_predicted"]) == (True, "limit", 4)
        assert len(whole["completion_probabilities"]) == 4
        sent = (await http.post("/completion", json={**body, "stream": True})).text
        frames = [json.loads(line.removeprefix("data: ")) for line in sent.splitlines() if line.startswith("data: ")]
        assert "".join(frame["content"] for frame in frames) == whole["content"]
        assert [frame["stop"] for frame in frames] == [False] * (len(frames) - 1) + [True]


async def test_paths_without_a_version_and_the_properties(small: LocalModel) -> None:
    async with http_of(small) as http:
        body = {"model": "m", "messages": HI, "max_tokens": 2}
        assert (await http.post("/chat/completions", json=body)).json()["object"] == "chat.completion"
        assert (await http.get("/models")).json()["data"][0]["id"] == "m"
        assert (await http.post("/completions", json={"prompt": COUNT})).json()["object"] == "text_completion"
        props = (await http.get("/props")).json()
        assert props["model_alias"] == "m"
        assert props["default_generation_settings"]["n_ctx"] == 2048
        assert props["chat_template"]


async def test_a_grammar_in_gbnf_is_followed_wherever_it_is_sent(small: LocalModel) -> None:
    gbnf = 'root ::= answer ("," answer)+\nanswer ::= "yes" | "no"'
    schema = {"enum": ["Bonn", "Rome"]}
    async with http_of(small) as http:
        native = (await http.post("/completion", json={"prompt": "Is it? ", "n_predict": 9, "grammar": gbnf})).json()
        assert set(native["content"].split(",")) <= {"yes", "no", ""}
        chosen = (await http.post("/completion", json={"prompt": "A city: ", "json_schema": schema})).json()
        assert json.loads(chosen["content"]) in schema["enum"]
        body = {"model": "m", "messages": HI, "max_tokens": 9}
        chat = (await http.post("/v1/chat/completions", json={**body, "grammar": 'root ::= "yes" | "no"'})).json()
        assert chat["choices"][0]["message"]["content"] in ("yes", "no")
        broken = await http.post("/v1/chat/completions", json={**body, "grammar": "root ::= nowhere"})
        assert (broken.status_code, broken.json()["error"]["param"]) == (400, "grammar")
        assert "no rule 'nowhere'" in broken.json()["error"]["message"]
