"""What other servers do and this one does not: the error says where to go, in the shape of the client's API."""

import anthropic
import ollama
import openai
import pytest

from callsmith.core.events import Stopped
from callsmith.core.values import Usage
from callsmith.server.app import create_app
from callsmith.wire.schemas.not_served import NOT_SERVED
from tests.fakes import FakeModel
from tests.server.asking import http
from tests.serving import served


def app():
    return create_app({"m": FakeModel([Stopped("stop", Usage())])})


@pytest.mark.parametrize("path", NOT_SERVED)
async def test_what_is_not_served_says_what_to_use_instead(path: str):
    async with http(app()) as asking:
        answer = await asking.post(path, json={"model": "m", "prompt": "hi"})
    assert answer.status_code == 404
    error = answer.json()["error"]
    message = error if path.startswith("/api/") else error["message"]
    assert message.startswith(f"{path} is not served here: no ")
    assert "llama-server with --" in message


async def test_clients_read_the_sentence():
    async with served(app()) as url:
        asks = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
        with pytest.raises(openai.NotFoundError, match="no embeddings are computed here: ask a server that is made for it"):
            await asks.embeddings.create(model="m", input="hi")
        with pytest.raises(ollama.ResponseError, match="no embeddings are computed here") as refused:
            await ollama.AsyncClient(host=url).embed(model="m", input="hi")
        assert refused.value.status_code == 404
        # A header tells whose client asks, where the path does not.
        client = anthropic.AsyncAnthropic(base_url=url, api_key="none")
        with pytest.raises(anthropic.NotFoundError, match="no documents are ranked here"):
            await client.post("/v1/rerank", cast_to=object, body={"query": "a", "documents": []})
