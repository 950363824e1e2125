"""Images on their way to a model of another server: what a client sends in one dialect arrives in that of the server."""

import base64
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from openai import AsyncOpenAI, BadRequestError

from callsmith.core.values import Image
from callsmith.server.app import create_app
from tests.models.remote.scripted import chat, lines, remote, sse
from tests.scripted_server import Scripted, scripted
from tests.serving import served

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
IMAGE = Image(f"data:image/png;base64,{PNG}")
ENDS = {
    "chat": chat({"content": "A cat."}),
    "ollama": lines({"model": "m", "message": {"role": "assistant", "content": "A cat."}, "done": True, "done_reason": "stop"}),
    "anthropic": sse(
        {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "A cat."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
        done=False,
    ),
}


async def ask(server: Scripted, api: str, url: str) -> str | None:
    """What the model at this server answers to a question about an image, through ours."""
    model = remote(server, api)
    question: list[Any] = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    try:
        async with served(create_app({"gpt": model})) as address, AsyncOpenAI(base_url=f"{address}/v1", api_key="k") as client:
            answer = await client.chat.completions.create(model="gpt", messages=[{"role": "user", "content": question}])
    finally:
        await model.close()
    return answer.choices[0].message.content


def sent_image(body: Any, api: str) -> Any:
    message = body["messages"][0]
    return message["images"][0] if api == "ollama" else message["content"][1]


@pytest.mark.parametrize(
    ("api", "expected"),
    [
        ("chat", {"type": "image_url", "image_url": {"url": IMAGE.url}}),
        ("anthropic", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}),
        ("ollama", PNG),
    ],
)
async def test_an_image_arrives_in_the_servers_dialect(api: str, expected: Any) -> None:
    async with scripted(ENDS[api]) as server:
        assert await ask(server, api, IMAGE.url) == "A cat."
    assert sent_image(server.asked[0], api) == expected


async def test_ollama_is_not_sent_an_address() -> None:
    async with scripted(ENDS["ollama"]) as server:
        with pytest.raises(BadRequestError, match="as data only"):
            await ask(server, "ollama", "https://example.org/cat.png")
    assert not server.asked
