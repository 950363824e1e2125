"""Images for a model that runs here, by the vendors' own clients: a small model with a projector of random weights beside it.

What it says of an image makes no sense. That it was given the image is seen in the tokens of its prompt.
"""

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("xllamacpp")

import anthropic
import httpx2
import ollama
import openai

from callsmith.core.ports import OpenedModel
from callsmith.models.opening import Options, open_model
from callsmith.server.app import create_app
from tests.hub_fixtures import home, hub_server
from tests.hub_server import FakeHub
from tests.serving import served_apart
from tests.small import THREADS, shallow_file
from tests.tiny_projector import write_png, write_projector

__all__ = ["home", "hub_server"]

pytestmark = pytest.mark.weights

RED, BLUE = (base64.b64encode(write_png(56, 56, color)).decode() for color in ((220, 20, 20), (20, 20, 220)))
IMAGE_TOKENS = 16  # of this projector, whatever the image
QUESTION = "What is this?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeing")
    (folder / "m-Q4_1.gguf").write_bytes(shallow_file().read_bytes())
    write_projector(folder / "mmproj-F16.gguf", 576)
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    options = Options(context=2048, threads=THREADS)
    blind = open_model(str(shallow_file()), options)
    with served_apart(create_app({"seeing": open_model(str(folder), options), "blind": blind})) as url:
        yield url


Asks = Callable[[str, str, str], tuple[int, str]]  # of which model, about which image: the tokens of the prompt, and the answer


def ask_chat(address: str, model: str, image: str) -> tuple[int, str]:
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    parts: list[Any] = [{"type": "text", "text": QUESTION}]
    parts += [{"type": "image_url", "image_url": {"url": _url(image)}}] if image else []
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": parts}], max_tokens=12, temperature=0
    )
    assert answer.usage
    return answer.usage.prompt_tokens, answer.choices[0].message.content or ""


def ask_responses(address: str, model: str, image: str) -> tuple[int, str]:
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    parts: list[Any] = [{"type": "input_text", "text": QUESTION}]
    parts += [{"type": "input_image", "image_url": _url(image), "detail": "auto"}] if image else []
    answer = client.responses.create(model=model, input=[{"role": "user", "content": parts}], max_output_tokens=12, temperature=0)
    assert answer.usage
    return answer.usage.input_tokens, answer.output_text


def ask_messages(address: str, model: str, image: str) -> tuple[int, str]:
    client = anthropic.Anthropic(base_url=address, api_key="none", max_retries=0)
    parts: list[Any] = [{"type": "text", "text": QUESTION}]
    source = {"type": "base64", "media_type": "image/png", "data": image}
    parts += [{"type": "image", "source": source}] if image else []
    messages: list[Any] = [{"role": "user", "content": parts}]
    answer = client.messages.create(model=model, messages=messages, max_tokens=12, extra_body={"temperature": 0})
    tokens = answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)
    assert client.messages.count_tokens(model=model, messages=messages).input_tokens == tokens
    return tokens, "".join(block.text for block in answer.content if block.type == "text")


def ask_ollama(address: str, model: str, image: str) -> tuple[int, str]:
    message: dict[str, Any] = {"role": "user", "content": QUESTION, **({"images": [image]} if image else {})}
    answer = ollama.Client(address).chat(model, [message], options={"num_predict": 12, "temperature": 0})
    return answer.prompt_eval_count or 0, answer.message.content or ""


def _url(image: str) -> str:
    return image if image.startswith("http") else f"data:image/png;base64,{image}"


APIS = (ask_chat, ask_responses, ask_messages, ask_ollama)


@pytest.mark.parametrize("ask", APIS)
def test_an_image_is_part_of_the_prompt_in_each_api(address: str, ask: Asks):
    text, _ = ask(address, "seeing", "")
    red, said = ask(address, "seeing", RED)
    assert red == text + IMAGE_TOKENS
    assert said
    assert ask(address, "seeing", BLUE)[0] == red


def test_all_apis_give_the_model_the_same_prompt(address: str):
    for image in ("", RED):
        assert len({ask(address, "seeing", image)[0] for ask in APIS}) == 1


REFUSED = (openai.BadRequestError, anthropic.BadRequestError, ollama.ResponseError)


@pytest.mark.parametrize("ask", APIS)
def test_a_model_without_a_projector_says_what_it_lacks(address: str, ask: Asks):
    with pytest.raises(REFUSED, match=r"reads text, and no images: it has no projector .* nor by --projector") as refused:
        ask(address, "blind", RED)
    assert refused.value.status_code == 400  # type: ignore[attr-defined]
    assert ask(address, "blind", "")[0]


@pytest.mark.parametrize("ask", APIS[:2])
def test_an_image_by_its_address_is_not_fetched(address: str, ask: Asks):
    with pytest.raises(openai.BadRequestError, match="models that run here fetch nothing: send it as data"):
        ask(address, "seeing", "http://127.0.0.1:9/image.png")


def test_an_image_in_the_result_of_a_tool_is_read(address: str):
    client = anthropic.Anthropic(base_url=address, api_key="none", max_retries=0)

    def count(*blocks: dict[str, Any]) -> int:
        messages: list[Any] = [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "shoot", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [*blocks]}]},
        ]
        tools: list[Any] = [{"name": "shoot", "input_schema": {"type": "object", "properties": {}}}]
        answer = client.messages.create(model="seeing", messages=messages, tools=tools, max_tokens=4)
        return answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)

    text = {"type": "text", "text": "Here it is: "}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": RED}}
    assert count(text, image) == count(text) + IMAGE_TOKENS


def test_a_forced_call_is_made_behind_an_image(address: str):
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    parameters = {"type": "object", "properties": {"color": {"enum": ["red", "blue"]}}, "required": ["color"]}
    answer = client.chat.completions.create(
        model="seeing",
        messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": _url(RED)}}]}],
        tools=[{"type": "function", "function": {"name": "paint", "parameters": parameters}}],
        tool_choice="required",
    )
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.type == "function" and json.loads(call.function.arguments)["color"] in ("red", "blue")


def test_who_can_read_images_is_listed(address: str):
    listed = httpx2.get(f"{address}/v1/models", headers={"anthropic-version": "2023-06-01"}).json()["data"]
    assert {item["id"]: item["capabilities"]["image_input"]["supported"] for item in listed} == {"seeing": True, "blind": False}


def test_text_that_looks_like_the_place_of_an_image_is_refused_beside_one(address: str):
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    parts: list[Any] = [{"type": "text", "text": "\ufdd4"}, {"type": "image_url", "image_url": {"url": _url(RED)}}]
    with pytest.raises(openai.BadRequestError, match=r"U\+FDD4"):
        client.chat.completions.create(model="seeing", messages=[{"role": "user", "content": parts}])
    client.chat.completions.create(model="seeing", messages=[{"role": "user", "content": parts[:1]}], max_tokens=1)


def test_a_model_of_the_hub_brings_its_projector(folder: Path, hub_server: FakeHub):
    from callsmith.models.weights.fetch import fetch

    hub_server.add("org/seeing", {file.name: file.read_bytes() for file in folder.iterdir()})
    fetch("hf:org/seeing")
    model: OpenedModel = open_model("hf:org/seeing", Options(context=256, threads=THREADS))
    assert model.info.reads_images
    asyncio.run(model.close())
