"""The tokenizer's files of a model folder: chat template, response template, BOS and EOS, added tokens.

A server may say where its model is without saying what the template is. If the server and the folder are on this machine, the
folder is read; the cache of the Hugging Face hub is looked into, too. Nothing is fetched.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from callsmith.core.values import Json
from callsmith.engines.completions.server import Object, as_list, as_object, as_text
from callsmith.engines.completions.special_tokens import is_like_special

_LARGEST: Final = 16 * 1024 * 1024  # bytes of a file
_LOCAL: Final = re.compile(r"localhost|127(\.\d+){3}|::1")
_REPOSITORY: Final = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What a tokenizer's settings say."""

    template: str | None = None
    response_template: Json = None
    bos: str = ""
    eos: str = ""
    specials: Mapping[str, int] = field(default_factory=dict[str, int])


def read_tokenizer_config(value: Json, template: str | None = None) -> TokenizerFiles:
    """The settings in a `tokenizer_config.json`. `template` is one from a file of its own, which counts more."""
    config = as_object(value)
    return TokenizerFiles(
        template or _template(config.get("chat_template")),
        config.get("response_template"),
        _token(config.get("bos_token")),
        _token(config.get("eos_token")),
        _added(as_object(config.get("added_tokens_decoder"))),
    )


def find_tokenizer_files(url: str, model: str) -> TokenizerFiles:
    """Those of the model that a server at this URL has, if both are on this machine; else empty ones."""
    folder = _folder(model) if model and _LOCAL.fullmatch(urlsplit(url).hostname or "") else None
    if folder is None:
        return TokenizerFiles()
    try:
        config = json.loads(_read(folder / "tokenizer_config.json") or "{}")
    except (ValueError, RecursionError):
        config = None
    return read_tokenizer_config(config, _read(folder / "chat_template.jinja"))


def _folder(model: str) -> Path | None:
    try:
        if (folder := Path(model)).is_absolute():
            return folder if folder.is_dir() else None
        if not _REPOSITORY.fullmatch(model):
            return None
        home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
        cached = Path(os.environ.get("HF_HUB_CACHE") or home / "hub") / f"models--{model.replace('/', '--')}"
        commit = _read(cached / "refs" / "main")
        folder = cached / "snapshots" / commit.strip() if commit else None
        return folder if folder and folder.is_dir() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8") if file.stat().st_size <= _LARGEST else None
    except (OSError, ValueError):
        return None


def _template(value: Json) -> str | None:
    """The template; of several, the one for tools, else the default."""
    if isinstance(value, str):
        return value or None
    named = {as_text(one.get("name")): as_text(one.get("template")) for one in map(as_object, as_list(value))}
    return named.get("tool_use") or named.get("default") or None


def _token(value: Json) -> str:
    return value if isinstance(value, str) else as_text(as_object(value).get("content"))


def _added(decoder: Object) -> dict[str, int]:
    """Added tokens by their text. `/tokenizer_info` of vLLM has the text alone where the file has an object."""
    texts = {int(token): _token(one) for token, one in decoder.items() if token.isdecimal()}
    return {text: token for token, text in texts.items() if is_like_special(text)}
