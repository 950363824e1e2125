"""A small real model, asked by the vendors' own clients: counts, durations and errors as each of them knows them."""

import json
from collections.abc import Iterator

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

import anthropic
import ollama
import openai

from callsmith.server.app import create_app
from tests.serving import served_apart
from tests.small import open_small, small_file

pytestmark = pytest.mark.weights

HI = [{"role": "user", "content": "Say hi."}]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served_apart(create_app({"small": open_small(context=512)})) as url:
        yield url


@pytest.fixture(scope="module")
def claude(address: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=address, api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def gpt(address: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def llama(address: str) -> ollama.Client:
    return ollama.Client(address)


def test_a_stream_of_messages_begins_with_the_tokens_of_its_prompt(claude: anthropic.Anthropic):
    counted = claude.messages.count_tokens(model="small", messages=HI).input_tokens
    for _ in range(2):  # the second time from the cache, which this API does not count among the input
        with claude.messages.create(model="small", messages=HI, max_tokens=4, stream=True) as stream:
            events = list(stream)
        first, last = events[0].message.usage, next(event for event in events if event.type == "message_delta").usage
        assert first.input_tokens + first.cache_read_input_tokens == counted > 0
        assert first.input_tokens == last.input_tokens
        assert first.output_tokens == 0 < last.output_tokens


def test_a_model_is_described_by_its_weights(llama: ollama.Client):
    (listed,), (running,) = llama.list().models, llama.ps().models
    for item in (listed, running):
        assert item.size == small_file().stat().st_size
        assert item.details is not None
        assert (item.details.format, item.details.family, item.details.quantization_level) == ("gguf", "llama", "Q4_1")
        assert item.details.parameter_size == "135M"
    assert running.context_length == 512
    model_card = llama.show("small")
    assert model_card.modelinfo is not None
    assert model_card.modelinfo["llama.context_length"] == 512
    assert model_card.modelinfo["general.parameter_count"] == 134515008


@pytest.mark.parametrize("stream", [False, True])
def test_durations_are_those_of_the_model(llama: ollama.Client, stream: bool):
    answer = llama.chat("small", HI, stream=stream, options={"num_predict": 16, "seed": 1})
    last = list(answer)[-1] if stream else answer
    loading, reading, writing = last.load_duration, last.prompt_eval_duration, last.eval_duration
    assert last.total_duration == loading + reading + writing
    assert min(loading, reading) > 0
    assert writing > 16 * 50_000  # nanoseconds: no machine decodes a token in 50 µs


def test_a_prompt_that_is_too_long_is_told_as_each_client_knows_it(
    claude: anthropic.Anthropic, gpt: openai.OpenAI, llama: ollama.Client
):
    long = "word " * 600
    messages = [{"role": "user", "content": long}]
    with pytest.raises(openai.BadRequestError) as chat:
        gpt.chat.completions.create(model="small", messages=messages)
    assert (chat.value.code, chat.value.param) == ("context_length_exceeded", "messages")
    with pytest.raises(openai.BadRequestError) as response:
        gpt.responses.create(model="small", input=long)
    assert (response.value.code, response.value.param) == ("context_length_exceeded", "input")
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 512 ") as message:
        claude.messages.create(model="small", messages=messages, max_tokens=4)
    assert message.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(ollama.ResponseError, match="prompt is too long"):
        llama.generate("small", long)


def test_a_prefilled_answer_is_continued(claude: anthropic.Anthropic, gpt: openai.OpenAI, llama: ollama.Client):
    begun = [{"role": "user", "content": "Count from one to five."}, {"role": "assistant", "content": "one, two, three,"}]
    options = {"continue_final_message": True, "add_generation_prompt": False}
    chat = gpt.chat.completions.create(model="small", messages=begun, max_tokens=4, temperature=0, extra_body=options)
    message = claude.messages.create(model="small", messages=begun, max_tokens=4, extra_body={"temperature": 0})
    line = llama.chat("small", begun, options={"num_predict": 4, "temperature": 0})
    assert chat.choices[0].message.content == message.content[0].text == line.message.content
    assert (line.message.content or "").strip().startswith("four")


def test_a_prefilled_answer_is_held_to_its_schema_from_its_beginning(gpt: openai.OpenAI):
    schema = {"type": "object", "properties": {"city": {"enum": ["Bonn", "Rome"]}, "people": {"type": "integer"}}}
    schema |= {"required": ["city", "people"], "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema, "strict": True}}

    def answer(begun: str) -> str:
        messages = [{"role": "user", "content": "A city?"}, {"role": "assistant", "content": begun}]
        options = {"continue_final_message": True}
        completion = gpt.chat.completions.create(
            model="small", messages=messages, response_format=wanted, max_tokens=40, extra_body=options
        )
        return begun + (completion.choices[0].message.content or "")

    assert json.loads(answer('{"city": "R'))["city"] == "Rome"
    with pytest.raises(openai.BadRequestError, match="beginning of the answer"):
        answer('{"town": ')


def test_without_a_name_or_by_default_the_first_model_is_meant(
    claude: anthropic.Anthropic, gpt: openai.OpenAI, llama: ollama.Client
):
    assert gpt.chat.completions.create(model="default", messages=HI, max_tokens=2).model == "small"
    assert gpt.responses.create(input="hi", max_output_tokens=2).model == "small"
    assert claude.messages.create(model="", messages=HI, max_tokens=2).model == "small"
    assert llama.generate("default:latest", "hi", options={"num_predict": 2}).done
    assert gpt.models.retrieve("default").id == "small"
