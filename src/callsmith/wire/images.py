"""Images in messages, as the dialects write them. They go to models of other servers as they came; nothing is fetched here."""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Final

from callsmith.core.errors import UsageError
from callsmith.core.values import Image, Json, Message, Role
from callsmith.wire.fields import Fields

_DATA: Final = re.compile(r"data:(image/[\w.+-]+);base64,(?=[A-Za-z0-9+/])")  # whether the rest is Base64 its reader sees
_ADDRESS: Final = re.compile(r"https?://\S{1,8192}")
_MARKS: Final = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}  # what a file begins with
_ROLES: Final = ("user", "tool")


class ContentBuilder:
    """Puts the content of a message together: texts, a line each, and the images between them."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._images: list[Image] = []
        self._size = 0

    def add_text(self, text: str) -> None:
        self._size += len(text) + bool(self._texts)
        self._texts.append(text)

    def add_image(self, url: str, detail: str = "") -> None:
        self._images.append(Image(url, self._size, detail))

    def message(self, role: Role, name: str = "") -> Message:
        return Message(role, "\n".join(self._texts), name=name, images=tuple(self._images))


def check_role(fields: Fields, key: str, message: Message) -> Message:
    """The message, unless it has images and is of a role that may have none."""
    if message.images and message.role not in _ROLES:
        raise fields.error(key, f"images may stand in messages of the roles {' and '.join(_ROLES)} only")
    return message


# --- OpenAI: {"type": "image_url", "image_url": {"url": "…"}}, {"type": "input_image", "image_url": "…"} --------------------


def read_image_part(part: Fields) -> tuple[str, str]:
    """The URL and the detail of an image, in chat completions and in Responses."""
    if part.get("file_id") is not None:
        raise part.error("file_id", "files are not stored here; give the image as a data: URL or by its address")
    inner, key = (part, "image_url") if isinstance(part.get("image_url"), str) else (part.required_object("image_url"), "url")
    return _check_url(inner, key), inner.text("detail") or ""


def write_chat_content(message: Message) -> Json:
    """The content of a message in chat completions: a string, unless there are images."""
    if not message.images:
        return message.content
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": part.url, **({"detail": part.detail} if part.detail else {})}}
        for part in message.parts
    ]


def write_input(message: Message) -> Json:
    """The content of a message, or the output of a call, in Responses: a string, unless there are images."""
    if not message.images:
        return message.content
    return [
        {"type": "input_text", "text": part}
        if isinstance(part, str)
        else {"type": "input_image", "image_url": part.url, "detail": part.detail or "auto"}
        for part in message.parts
    ]


# --- Anthropic: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "…"}} ---------------------


def read_image_block(block: Fields) -> str:
    """The URL of an image."""
    source = block.required_object("source")
    match source.required_text("type"):
        case "url":
            return _check_url(source, "url")
        case "base64":
            data, kind = source.required_text("data"), source.required_text("media_type")
            if not _DATA.match(url := f"data:{kind};base64,{data}"):
                raise source.error("data", "expected an image in Base64, and its type in media_type (image/png)")
            return url
        case other:
            raise source.error("type", f"sources of type {other!r} are not supported, only base64 and url")


def write_blocks(message: Message) -> list[Json]:
    """The text and the images of a message as blocks."""
    return [{"type": "text", "text": part} if isinstance(part, str) else _write_block(part.url) for part in message.parts]


def _write_block(url: str) -> Json:
    data = _DATA.match(url)
    inline = data and {"type": "base64", "media_type": data[1], "data": url[data.end() :]}
    return {"type": "image", "source": inline or {"type": "url", "url": url}}


# --- Ollama: "images": ["…"] ------------------------------------------------------------------------------------------------


def read_image_data(fields: Fields, key: str) -> tuple[Image, ...]:
    """The images of a message, which come as bare Base64."""
    return tuple(Image(_data_url(fields, f"{key}.{index}", data)) for index, data in enumerate(fields.texts(key)))


def write_image_data(images: Iterable[Image]) -> list[Json]:
    """The images as bare Base64."""
    matches = [(image.url, _DATA.match(image.url)) for image in images]
    if not all(data for _, data in matches):
        raise UsageError("this model's server takes images as data only: send them in Base64", field="messages")
    return [url[data.end() :] for url, data in matches if data]


def _data_url(fields: Fields, key: str, data: str) -> str:
    if _DATA.match(data):
        return data
    try:
        begun = base64.b64decode(data[:16], validate=True)
    except (binascii.Error, ValueError):
        begun = b""
    kind = next((kind for mark, kind in _MARKS.items() if begun.startswith(mark)), None)
    if kind is None:
        raise fields.error(key, f"expected an image in Base64: {', '.join(_MARKS.values())}")
    return f"data:image/{kind};base64,{data}"


def _check_url(fields: Fields, key: str) -> str:
    url = fields.required_text(key)
    if not (_DATA.match(url) or _ADDRESS.fullmatch(url)):
        raise fields.error(key, "expected the http address of an image, or the image itself: data:image/png;base64,…")
    return url
