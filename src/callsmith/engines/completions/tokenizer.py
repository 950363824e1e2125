"""The tokenizer of a server's model: its special tokens, and what the files of the model say of it.

Where the server does not list its special tokens, its tokenizer is asked. Every token is turned to text; what looks like a
special token (`<|im_end|>`, `[INST]`, `<tool_call>`) is tokenized again inside the same brackets. An ordinary token is then
spelled otherwise, a special one is found wherever it occurs.

A server may say where its model is without saying what the template is. If the server and the folder are on this machine, the
folder is read; the cache of the Hugging Face hub is looked into, too. Nothing is fetched.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from callsmith.core.types.tables import as_list, as_object, as_text
from callsmith.core.values import Json
from callsmith.engines.cache_folder import hub_cache_folder
from callsmith.engines.port import EngineInfo

_SEPARATOR: Final = "\ufdd1\ufdd2"  # noncharacters, which no token has
_LOOK: Final = re.compile(r"[<\[\]{|]\S*\w\S*[>\[\]}|]")
_LONGEST: Final = 128  # characters of a special token
_STEP: Final = 40_000  # tokens that are asked for at once
_MOST: Final = 1_000_000  # tokens of a vocabulary

Tokenize = Callable[[Sequence[str]], Awaitable[list[list[int]]]]
Detokenize = Callable[[list[int]], Awaitable[str]]
_LARGEST: Final = 16 * 1024 * 1024  # bytes of a file
_LOCAL: Final = re.compile(r"localhost|127(\.\d+){3}|::1")
_REPOSITORY: Final = re.compile(r"[\w.-]+/[\w.-]+")


async def find_specials(tokenize: Tokenize, detokenize: Detokenize, size: int | None, known: Iterable[str]) -> dict[str, int]:
    """The texts of special tokens and their ids. `size` is the number of all tokens, if the server says it."""
    (separator,) = await tokenize([_SEPARATOR])
    candidates: dict[str, int] = {}
    for start in range(0, size or _MOST, _STEP):
        ids = range(start, min(start + _STEP, size or _MOST))
        text = await detokenize([id for token in ids for id in (token, *separator)])
        texts = text.split(_SEPARATOR)[: len(ids)]
        if size is None and not any(texts):
            break  # behind the last token
        # Without its spaces: some tokenizers put one before whatever begins a text.
        candidates |= {
            token_text.strip(): token
            for token, token_text in zip(ids, texts, strict=False)
            if is_like_special(token_text.strip())
        }
    wanted = [text for text in dict.fromkeys(known) if text]
    single = {text: ids[0] for text, ids in zip(wanted, await tokenize(wanted), strict=True) if len(ids) == 1}
    return await confirm_specials(tokenize, candidates) | single


async def confirm_specials(tokenize: Tokenize, candidates: Mapping[str, int]) -> dict[str, int]:
    """Those of the tokens that are found wherever their text occurs."""
    if not candidates:
        return {}
    (tokens,) = await tokenize([_SEPARATOR.join(f"{text[0]}{text}{text[-1]}" for text in candidates)])
    return {text: token for text, token in candidates.items() if token in set(tokens)}


def is_like_special(text: str) -> bool:
    """Whether a text looks like that of a special token. An added token that is a word or white space does not."""
    return 3 <= len(text) <= _LONGEST and _LOOK.fullmatch(text) is not None


def read_tokenizer_config(value: Json, template: str | None = None) -> EngineInfo:
    """What a `tokenizer_config.json` says. `template` is one from a file of its own, which counts more."""
    config = as_object(value)
    return EngineInfo(
        template=template or _choose_template(config.get("chat_template")),
        response_template=config.get("response_template"),
        bos=_token(config.get("bos_token")),
        eos=_token(config.get("eos_token")),
        specials=_read_added_tokens(as_object(config.get("added_tokens_decoder"))),
    )


def find_tokenizer_files(url: str, model: str) -> EngineInfo:
    """What the files of the model say that a server at this URL has, if both are on this machine; else nothing."""
    folder = _find_folder(model) if model and _LOCAL.fullmatch(urlsplit(url).hostname or "") else None
    if folder is None:
        return EngineInfo()
    try:
        config = json.loads(_read(folder / "tokenizer_config.json") or "{}")
    except (ValueError, RecursionError):
        config = None
    return read_tokenizer_config(config, _read(folder / "chat_template.jinja"))


def _find_folder(model: str) -> Path | None:
    try:
        if (folder := Path(model)).is_absolute():
            return folder if folder.is_dir() else None
        if not _REPOSITORY.fullmatch(model):
            return None
        cached = hub_cache_folder() / f"models--{model.replace('/', '--')}"
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


def _choose_template(value: Json) -> str | None:
    """The template; of several, the one for tools, else the default."""
    if isinstance(value, str):
        return value or None
    templates = {as_text(item.get("name")): as_text(item.get("template")) for item in map(as_object, as_list(value))}
    return templates.get("tool_use") or templates.get("default") or None


def _token(value: Json) -> str:
    return value if isinstance(value, str) else as_text(as_object(value).get("content"))


def _read_added_tokens(decoder: Mapping[str, Json]) -> dict[str, int]:
    """Added tokens by their text. `/tokenizer_info` of vLLM has the text alone where the file has an object."""
    texts = {int(token): _token(entry) for token, entry in decoder.items() if token.isdecimal()}
    return {text: token for token, text in texts.items() if is_like_special(text)}
