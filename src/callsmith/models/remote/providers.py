"""Providers: servers and services by name, and what a user writes behind `--model` for a model of theirs.

    openai:gpt-5-mini · ollama:qwen3 · vllm+http://gpu1:8000/v1,http://gpu2:8000/v1#qwen3 · http://localhost:8080/v1#some-model

Ours are in `providers.toml`; TOML files of the same shape in the folder `providers` of the user's settings add to them.
"""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Final
from urllib.parse import urlsplit

from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.serialize import load
from callsmith.core.types.tables import Table, parse_toml
from callsmith.core.values import Json
from callsmith.engines.upstream import split_urls
from callsmith.models.plugins import user_files
from callsmith.models.weights.found import PREFIXES, find_model
from callsmith.models.weights.hub_names import is_hub_address
from callsmith.wire.upstream.dialects import DIALECTS, dialect_named
from callsmith.wire.upstream.quirks import SAMPLING, Quirks

KEY_VARIABLE: Final = "CALLSMITH_UPSTREAM_KEY"  # where a provider has no variable of its own
_KEYS: Final = ("url", "url_variable", "key", "api", "formats")
_URL: Final = re.compile(r"(?:(?P<provider>[a-z][a-z0-9_-]+)\+)?(?P<url>https?://[^#\s]+)(?:#(?P<model>.*))?")
_IS_HERE: Final = re.compile(r"https?://localhost\b")


@dataclass(frozen=True, slots=True)
class Provider:
    """A server or service. `key` and `url_variable` name environment variables; `quirks` are by dialect."""

    name: str
    url: str
    url_variable: str = ""
    key: str = ""
    api: str = "chat"
    formats: tuple[str, ...] = ()
    quirks: Mapping[str, Quirks] = field(default_factory=dict[str, Quirks])


@dataclass(frozen=True, slots=True)
class RemoteSpec:
    """A model of a provider, as a user names it. `model` is empty where the server is to be asked which one it has.

    `urls` are several where several servers have it. `is_own`: the operator has chosen them, and they are no service's.
    """

    provider: Provider
    urls: tuple[str, ...]
    model: str
    is_own: bool


def parse_spec(spec: str) -> RemoteSpec | None:
    """The remote model that a spec names; None if it names none.

    What another program has on this machine (`ollama:qwen3`) is a model of its server while that runs, and else its weights.
    """
    if is_hub_address(spec):
        return None
    if match := _URL.fullmatch(spec):
        provider = _provider(match["provider"]) if match["provider"] else Provider("", "")
        return RemoteSpec(provider, split_urls(match["url"]), match["model"] or "", is_own=True)
    name, colon, model = spec.partition(":")
    if not colon or name not in providers():
        return None
    provider = providers()[name]
    chosen = os.environ.get(provider.url_variable, "") if provider.url_variable else ""
    url = chosen if not chosen or "://" in chosen else f"http://{chosen}"  # Ollama's variable has a host and a port
    is_here = _IS_HERE.match(provider.url) is not None
    if is_here and not url and name in PREFIXES and not _listens(provider.url) and find_model(spec):
        return None
    is_own = bool(url) or is_here
    return RemoteSpec(provider, split_urls(url or provider.url), model, is_own=is_own)


def _listens(url: str) -> bool:
    """Whether somebody listens at an address of this machine."""
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname or "localhost", address.port or 80), timeout=1):
            return True
    except OSError:
        return False


def api_key(provider: Provider) -> str:
    """The key for a provider, from the environment."""
    own = os.environ.get(provider.key, "") if provider.key else ""
    return own or os.environ.get(KEY_VARIABLE, "")


@cache
def providers() -> Mapping[str, Provider]:
    """Every provider by name; the user's own replace ours."""
    known = providers_in((files("callsmith.models.remote") / "providers.toml").read_text(encoding="utf-8"))
    for path, text in user_files("providers"):
        try:
            known |= providers_in(text)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
    return known


def providers_in(text: str) -> dict[str, Provider]:
    """The providers of a TOML text. What does not exist is an error here, not when it is needed."""
    return {name: _read_provider(name, table) for name, table in parse_toml(text).items()}


def _provider(name: str) -> Provider:
    if name not in providers():
        raise UnknownName("provider", name, providers(), field="model")
    return providers()[name]


def _read_provider(name: str, table: Json) -> Provider:
    place = f"provider {name}"
    row = dict(Table.of(table, place).check_keys((*_KEYS, *DIALECTS)).data)
    quirks = {item: load(Quirks, row.pop(item), f"{place}.{item}") for item in DIALECTS if item in row}
    provider = load(Provider, {"name": name, **row}, place)
    for unknown in {name for quirk in quirks.values() for name in quirk.sampling if name not in SAMPLING}:
        raise UnknownName(f"sampling field (in {place})", unknown, SAMPLING)
    return replace(provider, api=dialect_named(provider.api).name, quirks=quirks)
