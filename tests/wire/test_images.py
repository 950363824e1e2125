"""Images in messages: read and written in every dialect, in their place between the texts, and refused where they cannot be."""

import base64
from typing import Any

import pytest
from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionUserMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

from callsmith.core.errors import UsageError
from callsmith.core.serialize import dump, load
from callsmith.core.values import Image, Message, Request
from callsmith.wire.anthropic import messages
from callsmith.wire.ollama import requests
from callsmith.wire.openai import chat, responses

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
DATA = Image(f"data:image/png;base64,{PNG}", 5)
ADDRESS = Image("https://example.org/cat.jpg", 5)
ASKED = Message.user("These\ntwo?", images=[DATA, ADDRESS])


def chat_body(content: Any, role: str = "user") -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": role, "content": content}]}


def through_chat(message: Message) -> tuple[Message, Any]:
    body = chat.write_request(chat.ChatRequest("m", Request((message,))))
    TypeAdapter(ChatCompletionUserMessageParam).validate_python(body["messages"][0])
    return chat.read_request(body).request.messages[0], body["messages"][0]["content"]


def through_responses(message: Message) -> tuple[Message, Any]:
    body = responses.write_request(responses.ResponsesRequest("m", Request((message,))))
    TypeAdapter(ResponseInputItemParam).validate_python(body["input"][0])
    return responses.read_request(body).request.messages[0], body["input"][0]["content"]


def through_anthropic(message: Message) -> tuple[Message, Any]:
    body = messages.write_request(messages.MessagesRequest("m", Request((message,))))
    TypeAdapter(MessageParam).validate_python(body["messages"][0])
    return messages.read_request(body).request.messages[0], body["messages"][0]["content"]


@pytest.mark.parametrize("through", [through_chat, through_responses, through_anthropic])
def test_images_come_back_in_their_place(through: Any) -> None:
    read, body = through(ASKED)
    assert (read.content, read.images[0].url, read.images[1].url) == (ASKED.content, DATA.url, ADDRESS.url)
    assert [part if isinstance(part, str) else part.at for part in read.parts] == ["These", 5, 5, "two?"]
    assert [part["type"] for part in body][1:3] in (["image_url"] * 2, ["input_image"] * 2, ["image"] * 2)


def test_ollama_takes_the_data_alone() -> None:
    body = requests.write_chat(requests.OllamaRequest("m", Request((Message.user("What?", images=[DATA]),)), True))
    assert body["messages"][0]["images"] == [PNG]
    read = requests.read_chat(body).request.messages[0]
    assert (read.content, [image.url for image in read.images]) == ("What?", [DATA.url])
    with pytest.raises(UsageError, match="as data only"):
        requests.write_chat(requests.OllamaRequest("m", Request((ASKED,)), True))


def test_a_tools_result_may_have_images() -> None:
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    content = [{"type": "text", "text": "Look:"}, block]
    result = {"type": "tool_result", "tool_use_id": "c1", "is_error": True, "content": content}
    use = {"type": "tool_use", "id": "c1", "name": "shoot", "input": {}}
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}],
    }
    read = messages.read_request(body).request.messages[1]
    assert read.role == "tool"
    assert read.parts == ["Error: Look:", Image(DATA.url, len("Error: Look:"))]
    again = messages.write_request(messages.MessagesRequest("m", Request((read,))))
    assert again["messages"][0]["content"][0]["content"][1] == block


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ([{"type": "image_url", "image_url": {}}], "messages.0.content.0.image_url.url"),
        ([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}], "messages.0.content.0.image_url.url"),
        ([{"type": "image_url", "image_url": {"url": "data:text/html;base64,aGk="}}], "messages.0.content.0.image_url.url"),
        ([{"type": "input_image", "file_id": "file-1"}], "messages.0.content.0.file_id"),
        ([{"type": "input_audio", "input_audio": {}}], "messages.0.content.0.type"),
    ],
)
def test_what_is_no_image_is_the_clients_error(content: Any, field: str) -> None:
    with pytest.raises(UsageError) as refused:
        chat.read_request(chat_body(content))
    assert refused.value.field == field


def test_only_users_and_tools_show_images() -> None:
    image = [{"type": "image_url", "image_url": {"url": DATA.url}}]
    with pytest.raises(UsageError, match="user and tool"):
        chat.read_request(chat_body(image, "system"))


def test_images_are_stored_with_their_message() -> None:
    assert load(Message, dump(ASKED)) == ASKED
    assert Message.user("x", images=[Image.from_bytes(b"\x89PNG")]).images[0].url == "data:image/png;base64,iVBORw=="
