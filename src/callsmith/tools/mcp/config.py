"""The configuration of MCP servers, in the `mcpServers` form that other hosts use too.

    {"mcpServers": {
        "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/tmp"], "trust": true},
        "issues": {"url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${ISSUES_TOKEN}"}, "approval": "ask"}}}

In TOML the tables are `[mcpServers.files]`; `servers`, as in VS Code, is read the same. `${NAME}` is an environment variable, and
`${NAME:-other}` one with a default. Keys that only other hosts know are skipped; what looks like a misspelled key is an error.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

from callsmith.core.approval import Rule, Verdict
from callsmith.core.errors import UsageError
from callsmith.core.values import Json
from callsmith.tools.wrap.naming import Prefix

Transport: TypeAlias = Literal["stdio", "http", "sse"]
Grant: TypeAlias = Literal["authorization_code", "client_credentials"]
ClientAuth: TypeAlias = Literal["basic", "post"]  # whether the secret is sent as a header or in the body

STANDARD_TIMEOUT = 30.0  # seconds
STANDARD_START = 30.0
MOST_MESSAGE_BYTES = 4 * 1024 * 1024  # of one message, a result for instance
MOST_TOOLS = 1_000
MOST_DEFINITION = 100_000  # characters of the definition of one tool; each value in it counts as 16
LOGIN_SECONDS = 300.0  # a person may take to log in
INSTALL_SECONDS = 900.0  # an installer may take in addition; ended half way, it may leave something broken behind
INSTALLERS = frozenset({"npx", "bunx", "pnpx", "pnpm", "yarn", "uvx", "uv", "pipx", "docker", "podman"})
SECTIONS = ("mcpServers", "mcp_servers", "servers")
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_INPUT = re.compile(r"\$\{input:[^}]*\}")  # VS Code asks its user for these
_PROTOCOL = re.compile(r"auto|legacy|\d{4}-\d\d-\d\d")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TRANSPORTS: Mapping[str, Transport] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
_SPELLED = """command cwd url httpUrl serverUrl type transport prefix protocol args autoApprove alwaysAllow allow allowedTools
includeTools deny disabledTools excludeTools env headers oauth trust approval timeout start_timeout sampling
max_message_bytes max_tools max_definition_bytes pin disabled enabled"""
_KEYS = frozenset(_SPELLED.split())
_VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True)
class OAuth:
    """How to get a token for a server that requires one: a person logs in with a browser, or a program with its credentials.

    `private_key` (PEM) signs instead of a secret. `issuer` is the authority that issued the credentials; they go to no other.
    Fields left out are discovered from the server.
    """

    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    grant: Grant = "authorization_code"
    private_key: str = field(default="", repr=False)
    algorithm: str = "ES256"
    client_auth: ClientAuth = "basic"
    issuer: str = ""
    metadata_url: str = ""  # of our client metadata document, for servers that accept one instead of a registration
    redirect_port: int = 0  # that the browser is redirected to; 0 is any


_OAUTH_KEYS = frozenset(field.name for field in fields(OAuth))


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server: how it is reached, how far it is trusted, and which of its tools are used.

    `trust`: the server's own hints about its tools (that one is read-only) are believed. `approval` are verdicts by patterns of
    tool names; the first that matches counts. `allow` and `deny` are patterns too.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    transport: Transport = "stdio"
    oauth: OAuth | None = None
    trust: bool = False
    approval: tuple[tuple[str, Verdict], ...] = ()
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    prefix: Prefix = "auto"
    timeout: float = STANDARD_TIMEOUT  # for a call
    start_timeout: float = STANDARD_START
    sampling: bool = False  # whether it may use our model (sampling)
    protocol: str = "auto"  # or "legacy", or a version
    max_message_bytes: int = MOST_MESSAGE_BYTES
    max_tools: int = MOST_TOOLS
    max_definition_bytes: int = MOST_DEFINITION
    pin: bool = False  # tools that are new or defined otherwise than in `pins` are not offered until they are accepted
    pins: str = ""  # the file; load_servers puts it beside its own

    def __post_init__(self) -> None:
        if self.url and self.transport == "stdio":
            object.__setattr__(self, "transport", "http")
        if not _NAME.fullmatch(self.name):
            raise UsageError(f"MCP server {self.name!r}: a name is 1 to 64 letters, digits, '_', '-' or '.'", field="mcpServers")
        if bool(self.command) == bool(self.url):
            raise UsageError(f"MCP server {self.name}: either command or url has to be given", field=f"mcpServers.{self.name}")
        if not _PROTOCOL.fullmatch(self.protocol):
            raise UsageError(
                f"MCP server {self.name}: protocol is auto, legacy or a version, not {self.protocol!r}",
                field=f"mcpServers.{self.name}.protocol",
            )

    @property
    def total_start_timeout(self) -> float:
        """How many seconds a start may take, with the login of a person or the installation of the server."""
        by_hand = self.oauth is not None and self.oauth.grant == "authorization_code"
        return self.start_timeout + (LOGIN_SECONDS if by_hand else 0.0) + (INSTALL_SECONDS if self.installs else 0.0)

    @property
    def installs(self) -> bool:
        """Whether the command may have to fetch and install the server before it starts it."""
        return Path(self.command).stem.lower() in INSTALLERS

    @property
    def source(self) -> str:
        """The server's tools have this as their `Tool.source`."""
        return f"mcp:{self.name}"

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The approval policy as rules."""
        reason = f"the configuration of {self.name} says so"
        return tuple(Rule(then, tools=tools, sources=self.source, reason=reason) for tools, then in self.approval)


def load_servers(path: Path, environment: Mapping[str, str]) -> tuple[ServerConfig, ...]:
    """The servers of a JSON or TOML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    try:
        document = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    try:
        pins = str(path.with_suffix(".pins.json"))
        return tuple(replace(server, pins=pins) if server.pin else server for server in read_servers(document, environment))
    except UsageError as error:
        raise UsageError(f"{path}: {error}", field=error.field) from error


def read_servers(document: Json, environment: Mapping[str, str] | None = None) -> tuple[ServerConfig, ...]:
    """The servers of a configuration, without those that are disabled."""
    whole = _table(document, "the configuration")
    if isinstance(whole.get("mcp"), Mapping) and not any(name in whole for name in SECTIONS):
        whole = _table(whole["mcp"], "mcp")  # the settings of VS Code
    sections = [name for name in SECTIONS if name in whole]
    if not sections:
        keys = ", ".join(map(repr, whole)) or "nothing"
        raise UsageError(f'no "mcpServers" (or "servers", as in VS Code) in the configuration, but {keys}', field="mcpServers")
    if len(sections) > 1:
        raise UsageError(f"the configuration has both {sections[0]} and {sections[1]}: which of them?", field=sections[1])
    section = sections[0]
    entries = _table(whole[section], section)
    read = [_EntryReader(name, _table(entry, f"{section}.{name}"), environment or {}) for name, entry in entries.items()]
    return tuple(entry.server() for entry in read if not entry.get("disabled", bool, False) and entry.get("enabled", bool, True))


class _EntryReader:
    """An entry of a configuration, read key by key."""

    def __init__(self, name: str, data: Mapping[str, Json], environment: Mapping[str, str]) -> None:
        self._name = name
        self._data = data
        self._environment = environment

    def server(self) -> ServerConfig:
        self._check_keys(_KEYS)
        url = self._text("url") or self._text("httpUrl") or self._text("serverUrl")
        return ServerConfig(
            name=self._name,
            command=self._text("command"),
            args=self._texts("args"),
            env=self._named_texts("env"),
            cwd=self._text("cwd") or None,
            url=url,
            headers=self._named_texts("headers"),
            transport=self._transport() if url else "stdio",
            oauth=self._oauth(),
            trust=self.get("trust", bool, False),
            approval=self._approval(),
            allow=self._texts("allow") or self._texts("allowedTools") or self._texts("includeTools") or ("*",),
            deny=self._texts("deny") + self._texts("disabledTools") + self._texts("excludeTools"),
            prefix=self._one_of("prefix", Prefix, "auto"),
            timeout=self._seconds("timeout", STANDARD_TIMEOUT),
            start_timeout=self._seconds("start_timeout", STANDARD_START),
            sampling=self.get("sampling", bool, False),
            protocol=self._text("protocol") or "auto",
            max_message_bytes=self._count("max_message_bytes", MOST_MESSAGE_BYTES),
            max_tools=self._count("max_tools", MOST_TOOLS),
            max_definition_bytes=self._count("max_definition_bytes", MOST_DEFINITION),
            pin=self.get("pin", bool, False),
        )

    def _check_keys(self, known: frozenset[str]) -> None:
        for key in self._data.keys() - known:
            if meant := difflib.get_close_matches(key, known, 1, 0.8):
                raise self._error(key, f"did you mean {meant[0]}?")

    def get(self, key: str, kind: type[Any], standard: Any) -> Any:
        value = self._data.get(key)
        if value is None:
            return standard
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._error(key, f"expected {_KINDS[kind]}, found {value!r}")
        return value

    def _text(self, key: str) -> str:
        return self._expand(key, self.get(key, str, ""))

    def _texts(self, key: str) -> tuple[str, ...]:
        values: list[Json] = self.get(key, list, [])
        return tuple(self._expand(key, self._string(key, value)) for value in values)

    def _named_texts(self, key: str) -> dict[str, str]:
        table: Mapping[str, Json] = self.get(key, dict, {})
        return {name: self._expand(key, self._string(key, value)) for name, value in table.items()}

    def _string(self, key: str, value: Json) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self._error(key, f"expected text, found {value!r}")
        return str(value)

    def _expand(self, key: str, text: str) -> str:
        """The text with environment variables expanded."""
        if input_reference := _INPUT.search(text):
            raise self._error(
                key, f"nobody can be asked for {input_reference[0]} here; use an environment variable, as in ${{TOKEN}}"
            )

        def value(reference: re.Match[str]) -> str:
            name, otherwise = reference.groups()
            if name in self._environment:
                return self._environment[name]
            if otherwise is None:
                raise self._error(key, f"there is no environment variable {name}")
            return otherwise

        return _VARIABLE.sub(value, text)

    def _seconds(self, key: str, standard: float) -> float:
        value = self._data.get(key)
        if value is None:
            return standard
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise self._error(key, f"expected a number of seconds, found {value!r}")
        return float(value)

    def _count(self, key: str, standard: int) -> int:
        value: int = self.get(key, int, standard)
        if value <= 0:
            raise self._error(key, f"expected a number above 0, found {value!r}")
        return value

    def _one_of(self, key: str, kind: Any, standard: str) -> Any:
        value, allowed = self.get(key, str, standard), get_args(kind)
        if value not in allowed:
            raise self._error(key, f"expected one of {', '.join(allowed)}, found {value!r}")
        return value

    def _transport(self) -> Transport:
        spelled = self._text("type") or self._text("transport") or "http"
        if spelled not in _TRANSPORTS:
            raise self._error("type", f"expected one of {', '.join(_TRANSPORTS)}, found {spelled!r}")
        return _TRANSPORTS[spelled]

    def _oauth(self) -> OAuth | None:
        if self._data.get("oauth") is None:
            return None
        if self._data["oauth"] is True:
            return OAuth()
        inner = _EntryReader(self._name, _table(self._data["oauth"], f"mcpServers.{self._name}.oauth"), self._environment)
        inner._check_keys(_OAUTH_KEYS)
        return OAuth(
            client_id=inner._text("client_id"),
            client_secret=inner._text("client_secret"),
            scope=inner._text("scope"),
            grant=inner._one_of("grant", Grant, "authorization_code"),
            private_key=inner._text("private_key"),
            algorithm=inner._text("algorithm") or "ES256",
            client_auth=inner._one_of("client_auth", ClientAuth, "basic"),
            issuer=inner._text("issuer"),
            metadata_url=inner._text("metadata_url"),
            redirect_port=inner.get("redirect_port", int, 0),
        )

    def _approval(self) -> tuple[tuple[str, Verdict], ...]:
        """The verdicts by patterns of names; the lists of tools that other hosts run without asking come first."""
        names = self._texts("autoApprove") + self._texts("alwaysAllow")
        free: list[tuple[str, Verdict]] = [(name, "auto") for name in names]
        value = self._data.get("approval")
        if value is None:
            return tuple(free)
        named = {"*": value} if isinstance(value, str) else _table(value, f"mcpServers.{self._name}.approval")
        for pattern, verdict in named.items():
            if verdict not in _VERDICTS:
                raise self._error("approval", f"expected one of {', '.join(_VERDICTS)} for {pattern!r}, found {verdict!r}")
            free.append((pattern, verdict))
        return tuple(free)

    def _error(self, key: str, why: str) -> UsageError:
        return UsageError(f"MCP server {self._name}: {key}: {why}", field=f"mcpServers.{self._name}.{key}")


_KINDS: Mapping[type, str] = {str: "text", bool: "true or false", int: "a number", list: "a list", dict: "a table"}


def _table(value: Json, what: str) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{what}: expected a table, found {value!r}", field="mcpServers")
    return cast("Mapping[str, Json]", value)
