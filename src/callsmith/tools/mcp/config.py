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
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from callsmith.core.approval import Rule, Verdict
from callsmith.core.errors import UsageError
from callsmith.core.serialize import load
from callsmith.core.types.tables import Table, kind, parse_toml
from callsmith.core.values import Json
from callsmith.tools.wrap.naming import Prefix

Transport: TypeAlias = Literal["stdio", "http", "sse"]
Grant: TypeAlias = Literal["authorization_code", "client_credentials"]
ClientAuth: TypeAlias = Literal["basic", "post"]  # whether the secret is sent as a header or in the body

STANDARD_TIMEOUT = 30.0  # seconds
STANDARD_START = 30.0
STANDARD_TASK = 60 * 60.0
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
includeTools deny disabledTools excludeTools env headers oauth trust approval timeout task_timeout start_timeout sampling
resources max_message_bytes max_tools max_definition_bytes pin disabled enabled"""
_KEYS = frozenset(_SPELLED.split())
_VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
_PREFIXES: tuple[Prefix, ...] = get_args(Prefix)


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
    task_timeout: float = STANDARD_TASK  # for a call that goes on at the server as a task
    start_timeout: float = STANDARD_START
    sampling: bool = False  # whether it may use our model (sampling)
    resources: bool = False  # whether the model may list and read its resources
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
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    try:
        document = parse_toml(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, UsageError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    try:
        pins = str(path.with_suffix(".pins.json"))
        return tuple(replace(server, pins=pins) if server.pin else server for server in read_servers(document, environment))
    except UsageError as error:
        raise UsageError(f"{path}: {error}", field=error.field) from error


def read_servers(document: Json, environment: Mapping[str, str] | None = None) -> tuple[ServerConfig, ...]:
    """The servers of a configuration, without those that are disabled."""
    whole = Table.of(document, "the configuration")
    if isinstance(whole.get("mcp"), Mapping) and not any(name in whole.data for name in SECTIONS):
        whole = Table.of(whole.get("mcp"), "mcp")  # the settings of VS Code
    sections = [name for name in SECTIONS if name in whole.data]
    if not sections:
        keys = ", ".join(map(repr, whole.data)) or "nothing"
        raise UsageError(f'no "mcpServers" (or "servers", as in VS Code) in the configuration, but {keys}', field="mcpServers")
    if len(sections) > 1:
        raise UsageError(f"the configuration has both {sections[0]} and {sections[1]}: which of them?", field=sections[1])
    entries = _Entry.of(whole.get(sections[0]), sections[0])
    read = {name: entries.required_object(name) for name in entries.data}
    return tuple(
        entry.server(name, environment or {})
        for name, entry in read.items()
        if not entry.flag("disabled") and entry.flag("enabled") is not False
    )


class _Entry(Table):
    """An entry of a configuration, read key by key; environment variables in its texts are expanded."""

    environment: Mapping[str, str] = {}

    def server(self, name: str, environment: Mapping[str, str]) -> ServerConfig:
        self.environment = environment
        self._check_spelling(_KEYS)
        url = self._text("url") or self._text("httpUrl") or self._text("serverUrl")
        return ServerConfig(
            name=name,
            command=self._text("command"),
            args=self.texts("args"),
            env=self._named_texts("env"),
            cwd=self._text("cwd") or None,
            url=url,
            headers=self._named_texts("headers"),
            transport=self._transport() if url else "stdio",
            oauth=self._oauth(),
            trust=self.flag("trust") or False,
            approval=self._approval(),
            allow=self.texts("allow") or self.texts("allowedTools") or self.texts("includeTools") or ("*",),
            deny=self.texts("deny") + self.texts("disabledTools") + self.texts("excludeTools"),
            prefix=self.one_of("prefix", _PREFIXES, "auto"),
            timeout=self._seconds("timeout") or STANDARD_TIMEOUT,
            task_timeout=self._seconds("task_timeout") or STANDARD_TASK,
            start_timeout=self._seconds("start_timeout") or STANDARD_START,
            sampling=self.flag("sampling") or False,
            resources=self.flag("resources") or False,
            protocol=self._text("protocol") or "auto",
            max_message_bytes=self.integer("max_message_bytes", 1) or MOST_MESSAGE_BYTES,
            max_tools=self.integer("max_tools", 1) or MOST_TOOLS,
            max_definition_bytes=self.integer("max_definition_bytes", 1) or MOST_DEFINITION,
            pin=self.flag("pin") or False,
        )

    def _check_spelling(self, known: frozenset[str]) -> None:
        for key in self.data.keys() - known:
            if meant := difflib.get_close_matches(key, known, 1, 0.8):
                raise self.error(key, f"did you mean {meant[0]}?")

    def _text(self, key: str) -> str:
        return self._expand(key, self.text(key) or "")

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(self._expand(key, value) for value in self.array(key) or ())

    def _named_texts(self, key: str) -> dict[str, str]:
        table = self.object(key)
        return {name: self._expand(key, value) for name, value in table.data.items()} if table else {}

    def _expand(self, key: str, value: Json) -> str:
        """A text with environment variables expanded; a number is one, too."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.error(key, f"expected a string, got {kind(value)}")
        if input_reference := _INPUT.search(str(value)):
            raise self.error(
                key, f"nobody can be asked for {input_reference[0]} here; use an environment variable, as in ${{TOKEN}}"
            )

        def expand(reference: re.Match[str]) -> str:
            name, otherwise = reference.groups()
            if name in self.environment:
                return self.environment[name]
            if otherwise is None:
                raise self.error(key, f"there is no environment variable {name}")
            return otherwise

        return _VARIABLE.sub(expand, str(value))

    def _seconds(self, key: str) -> float | None:
        return self.number(key, inf, least=0.001)

    def _transport(self) -> Transport:
        spelled = self._text("type") or self._text("transport") or "http"
        if spelled not in _TRANSPORTS:
            raise self.error("type", f"expected one of {', '.join(_TRANSPORTS)}, got {spelled!r}")
        return _TRANSPORTS[spelled]

    def _oauth(self) -> OAuth | None:
        if self.get("oauth") is True:
            return OAuth()
        table = self.object("oauth")
        if table is None:
            return None
        table.environment = self.environment
        table._check_spelling(_OAUTH_KEYS)
        texts = {key: table._expand(key, value) if isinstance(value, str) else value for key, value in table.data.items()}
        values = {key: value for key, value in texts.items() if value not in ("", None)}
        return load(OAuth, values, table.path, ignore_unknown=True)

    def _approval(self) -> tuple[tuple[str, Verdict], ...]:
        """The verdicts by patterns of names; the lists of tools that other hosts run without asking come first."""
        free: list[tuple[str, Verdict]] = [(name, "auto") for name in self.texts("autoApprove") + self.texts("alwaysAllow")]
        value = self.get("approval")
        verdicts = Table({"*": value}, self.at("approval")) if isinstance(value, str) else self.object("approval") or Table({})
        return (*free, *((pattern, verdicts.one_of(pattern, _VERDICTS, "ask")) for pattern in verdicts.data))
