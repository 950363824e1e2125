"""The settings of a server, section by section. `settings_sources` reads them from files, the environment and flags."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias, TypeVar

from callsmith.core.capability.authority import Trust
from callsmith.core.choice import MOST_CALL_BIAS
from callsmith.core.errors import UsageError
from callsmith.core.options import DefaultModel, EngineOptions, Flag
from callsmith.core.types.quantities import parse_duration, parse_size
from callsmith.core.values import ChoicePolicy, InReasoning, Repair
from callsmith.runtime.execute import Limits
from callsmith.runtime.jobs.job import STANDARD_JOB_LIMITS, JobLimits
from callsmith.runtime.telemetry.turns import Recorder
from callsmith.wire.extensions import EVERYTHING, ToolMode

T = TypeVar("T")

AuditLevel: TypeAlias = Literal["all", "side_effects", "off"]

SCOPES = ("admin", "approver")
_HASH = re.compile(r"[0-9a-f]{64}")


def flag(
    default: T,
    *names: str,
    help: str,
    minimum: float | None = None,
    maximum: float | None = None,
    file: Literal["", "any", "existing"] = "",
    variable: str | None = None,
    table: str = "",
) -> T:
    """A field of the settings that has a command-line option. Fields without one can be set by --set."""
    option = Flag(names, help, minimum, maximum, bool(file), file == "existing", variable, table)
    return field(default=default, metadata={"flag": option})


@dataclass(frozen=True, slots=True)
class Llm(EngineOptions):
    """A model that is served, and the tools the server itself runs. None leaves a choice to the model or the catalogue.

    Of several models each has a section `[models.NAME]` with fields of `PER_MODEL`, and from `[llm]` what it does not say itself.
    `tools_default_set` are patterns: of the server's tools, those that are offered. `tools_budget` is how many tokens their
    definitions may take before the model has to find them (0: any number; None: a quarter of its context). `tools_cache` caches
    results within a conversation: of tools that say how long, and where `tools_cache_seconds` is more than 0, for so long, of all
    that are idempotent and have no side effects. `tools_longest_result` is how many characters of a result there are for anybody;
    of those the model reads `limits.result_characters`. `tools_background` are patterns: calls of these tools go on in the
    background. With `tools_code` the model calls the server's tools by code.
    """

    model: str | None = flag(
        None,
        "--model",
        "-m",
        variable="CALLSMITH_MODEL",
        table="models",
        help="A name of `callsmith models`, a GGUF file, a folder, a model on the Hugging Face hub, as hf:org/repo:Q4_K_M or its "
        "address, an engine, as scripted:TEXT, or a model of another server: PROVIDER:MODEL as in ollama:qwen3, or "
        "http://HOST/v1#MODEL (several: http://A/v1,http://B/v1#MODEL). For several models NAME=MODEL, as often as there are "
        "models. Default: see --default-model.",
    )
    default_model: DefaultModel = flag(
        "ask",
        "--default-model",
        variable="CALLSMITH_DEFAULT_MODEL",
        help="Where no model is named: embedded is the first of `callsmith models`; best fetches the best of the hub that fits, "
        "if the hub answers; ask takes what is on this machine, and asks before it fetches a larger one.",
    )
    name: str | None = flag(None, "--name", help="The model's name for clients.")
    format: str | None = flag(
        None, "--format", "-f", help="The format the model writes calls in, if not the one its template shows."
    )
    format_file: str | None = flag(
        None,
        "--format-file",
        file="existing",
        help="A format of your own: TOML, or a tokenizer_config.json with a response_template.",
    )
    presets: str | None = flag(
        None, "--presets", file="existing", help="Presets of your own, as TOML: what is known of models by their names."
    )
    chat_template: str | None = flag(None, "--chat-template", file="existing", help="A chat template instead of the model's own.")
    concurrency: int | None = flag(
        None, "--concurrency", minimum=1, help="Answers generated at once; they share the context. Default: 8."
    )
    tool_choice_policy: ChoicePolicy | None = flag(
        None,
        "--tool-choice-policy",
        help="Where the model may choose: auto leaves it free, required_first_hop makes it call a tool until there is a result, "
        "required_always makes it call a tool in every answer.",
    )
    auto_guarded: bool | None = flag(
        None,
        "--auto-guarded/--no-auto-guarded",
        help="Constrain calls to the tools' schemas also where the model may choose to call or to answer. "
        "Default: what is known to suit the model.",
    )
    tool_prompt: str | None = flag(
        None,
        "--tool-prompt",
        help="How tools are put to the model: template (the chat template's own way), json-array, python-calls, or one of your "
        "own. Default: what was measured to suit the model.",
    )
    call_bias: float | None = flag(
        None,
        "--call-bias",
        minimum=-MOST_CALL_BIAS,
        maximum=MOST_CALL_BIAS,
        help="Where the model may choose: how much likelier it calls tools, as log odds; below 0: rarer. A request's own "
        "call_bias takes its place. Default: 0.",
    )
    in_reasoning: InReasoning | None = flag(
        None, "--in-reasoning", help="Calls inside the reasoning, where none stands outside: recover them, or ignore."
    )
    api: str | None = flag(
        None,
        "--api",
        help="In which API a model of another server is asked: chat, responses, anthropic or ollama. Default: its provider's.",
    )
    repair: Repair | None = flag(
        None,
        "--repair",
        help="Calls that a model of another server writes as text: read them (on), or not (off). Default: where its provider "
        "may pass such on.",
    )
    unload_after: str = flag(
        "never",
        "--unload-after",
        help="How long a model stays loaded when nobody asks, as in 5m; the next request loads it again.",
    )
    memory: str | None = flag(
        None,
        "--memory",
        help="How much memory models may take together, as in 8GB; what was not asked for longest is unloaded. Default: any.",
    )
    share_prompt_cache: bool = flag(
        False,
        "--share-prompt-cache",
        help="Reuse what was computed of a prompt for other keys too. They can then find out what others have sent.",
    )
    tools: str | None = flag(None, "--tools", help="demo, module:attribute, or a module or file.py with @tool functions.")
    tool_mode: ToolMode = "standard"
    tools_enabled: bool = True
    tools_default_set: tuple[str, ...] = EVERYTHING
    tools_require_confirmation_for_side_effects: bool = True
    tools_cache: bool = True
    tools_cache_seconds: float = 0.0
    tools_longest_result: int = 1_000_000
    tools_background: tuple[str, ...] = ()
    tools_code: bool = flag(
        False,
        "--tools-code",
        help="Offer the model one tool, run_code, in which it writes Python that calls the server's tools, in a sandbox.",
    )
    tools_budget: int | None = flag(
        None,
        "--tools-budget",
        minimum=0,
        help="Tokens that the definitions of tools may take; the model has to search for the tools beyond that. "
        "0: any number. Default: a quarter of its context.",
    )
    client_tools_shown: int | None = flag(
        None,
        "--client-tools-shown",
        minimum=0,
        help="How many tools a client may bring that are all shown to the model; where there are more, it has to search for "
        "them. Default: any number.",
    )

    def __post_init__(self) -> None:
        for name, parse, value in (("unload_after", parse_duration, self.unload_after), ("memory", parse_size, self.memory)):
            try:
                parse(value or "0")
            except ValueError as error:
                raise UsageError(f"llm.{name}: {error}", field=f"llm.{name}") from None
        if self.call_bias is not None and not abs(self.call_bias) <= MOST_CALL_BIAS:
            bounds = f"expected a number from {-MOST_CALL_BIAS:g} to {MOST_CALL_BIAS:g}, got {self.call_bias}"
            raise UsageError(f"llm.call_bias: {bounds}", field="llm.call_bias")

    @property
    def unload_seconds(self) -> float | None:
        """How long a model stays loaded when nobody asks; None: for ever."""
        return parse_duration(self.unload_after)

    @property
    def memory_bytes(self) -> int | None:
        """How much memory models may take together; None: any number."""
        return None if self.memory is None else parse_size(self.memory)


# The fields of Llm that each of several models may have a value of its own for.
PER_MODEL = (
    *("model", "format", "format_file", "presets", "chat_template", "concurrency"),
    *(option.name for option in fields(EngineOptions)),
    *("tool_choice_policy", "auto_guarded", "tool_prompt", "call_bias", "in_reasoning", "api", "repair", "unload_after"),
)


@dataclass(frozen=True, slots=True)
class Mcp:
    """MCP servers whose tools the server runs: those of a file, and one that is given by its command."""

    config: str | None = flag(None, "--mcp-config", file="any", help="A file with mcpServers, in JSON or TOML.")
    command: str | None = flag(None, "--mcp-command", help="The command of one MCP server.")
    args: tuple[str, ...] = flag((), "--mcp-args", help="The arguments of --mcp-command, separated by commas.")
    trust: bool = flag(
        False, "--mcp-trust", help="Believe what all these servers say of their tools: those that only read run unasked."
    )
    allow: tuple[str, ...] = flag(
        (), "--mcp-allow", help="Tools that run unasked: names or patterns, separated by commas, as 'files_read*'."
    )
    tool_refresh_seconds: float = flag(
        30.0, "--mcp-tool-refresh-seconds", minimum=1, help="Seconds between two listings of a server's tools."
    )


@dataclass(frozen=True, slots=True)
class Log:
    """What is logged and traced, and how. Prompts, answers, arguments and results are never logged."""

    format: Literal["text", "json"] = flag("text", "--log-format", help="text, or json: a JSON object a line.")
    access: bool = flag(False, "--access-log", help="Log every request.")
    trace: str | None = flag(
        None,
        "--trace",
        file="any",
        help="Append a record of each turn to this file, for `callsmith tools report`; without arguments, results and texts.",
    )
    otel: bool = flag(
        False, "--otel", help="Export OpenTelemetry spans, as the OTEL_* environment variables say (OTEL_EXPORTER_OTLP_ENDPOINT)."
    )


@dataclass(frozen=True, slots=True)
class Requests:
    """How large a request may be, in every dialect: what is larger is refused, with the name of the field and the limit."""

    body_bytes: int = 8 * 1024 * 1024
    tokenize_bytes: int = 1024 * 1024  # of a body of `/tokenize` or `/detokenize`: its answer is many times as large
    arriving_bytes: int = 64 * 1024 * 1024  # of all bodies that are not complete yet; half of it for one caller
    values: int = 250_000  # JSON values in a body
    messages: int = 10_000  # or items
    tools: int = 2_000
    tool_bytes: int = 256 * 1024  # of one tool, its schema included
    schema_values: int = 100_000  # JSON values in the definitions of all tools
    stops: int = 64
    stop_bytes: int = 1024  # of one stop string
    output_bytes: int = 256 * 1024  # of the schema, pattern or grammar that an answer has to fit
    field_bytes: int = 64 * 1024  # of each field that is a list of names or numbers: metadata, logit_bias, …
    approvals: int = 64  # that one request decides on


@dataclass(frozen=True, slots=True)
class CallerLimits:
    """What one caller may use: a key or, without keys, an address. None: whatever there is."""

    concurrent: int | None = None  # answers at a time
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None  # of prompts and answers


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a caller, known by its hash only, and the models, tools and capabilities it may use: shell patterns of names.

    With the scope `admin` it is shown everything in `/health` and `/metrics`, and may drain upstreams. With `approver` it decides
    on calls of other keys, those that the patterns of `approves_for` name. With `approves = false` it may not approve calls of
    its own. `trust` is how far its calls of capabilities are trusted. Where it has a limit, that takes the place of the one all
    callers have.
    """

    sha256: str
    models: tuple[str, ...] = EVERYTHING
    tools: tuple[str, ...] = EVERYTHING
    capabilities: tuple[str, ...] = EVERYTHING
    trust: Trust = "member"
    scopes: tuple[str, ...] = ()
    approves: bool = True
    approves_for: tuple[str, ...] = EVERYTHING
    concurrent: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def __post_init__(self) -> None:
        if not _HASH.fullmatch(self.sha256):
            raise UsageError("sha256: expected the 64 hexadecimal digits that `callsmith keys new` prints", field="sha256")
        for scope in self.scopes:
            if scope not in SCOPES:
                raise UsageError(f"scopes: unknown scope {scope!r}; expected one of {', '.join(SCOPES)}", field="scopes")
        if self.trust == "self":
            raise UsageError('trust: "self" is the server itself; a key has unknown, member, trusted or anchor', field="trust")


def merged_limits(key: Key, common: CallerLimits) -> CallerLimits:
    """The limits of a key, where it has any of its own, and else those that all callers have."""
    own = {limit.name: getattr(key, limit.name) for limit in fields(common)}
    return replace(common, **{name: value for name, value in own.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a server. Fields that are no section of their own are under [server] in a file."""

    host: str = flag("127.0.0.1", "--host", help="The address to listen on.")
    open: bool = flag(
        False, "--open", help="Serve whoever reaches the address, without keys, although it is not only this machine that can."
    )
    allowed_hosts: tuple[str, ...] = flag(
        (),
        "--allow-host",
        help="Names this server goes by, besides --host and those of this machine: shell patterns, separated by commas.",
    )
    port: int = flag(8000, "--port", "-p", minimum=0, maximum=65535, help="The port to listen on; 0: any free one.")
    connections: int = 512  # open at a time; a quarter of them may wait for answers that need no key
    connections_per_address: int = 256  # of one address without a key; and requests of one key that are answered at a time
    websockets: int = 32  # open at a time, of one key, or of one address where there are no keys
    websocket_ping_seconds: float = 30.0  # between two pings
    websocket_idle_seconds: float = 120.0  # after which a WebSocket is closed whose client is waited for
    header_seconds: float = 10.0  # that a client may take to send the headers of a request
    body_seconds: float = 30.0  # in which a body has to be complete, or to grow
    idle_seconds: float = 75.0  # after which a connection is closed that nothing is asked on
    keep_alive: float = 15.0  # seconds without an event after which a stream sends a comment
    request_seconds: float | None = 600.0  # deadline of an answer; waiting for a person does not count
    stalled_seconds: float = 60.0  # after which a client that does not read its stream is dropped
    queue: int = flag(64, "--queue", minimum=1, help="Requests that may be answered or wait at a time; more are refused (429).")
    cors_origins: tuple[str, ...] = flag(
        (), "--allow-origin", help="Origins of web pages that may send requests, separated by commas; *: any."
    )
    page: bool = flag(True, "--no-page", help="Do not serve the page for browsers at /.")
    store: str | None = flag(
        None,
        "--store",
        help="Where approvals and responses are stored: a file, or postgresql://USER@HOST/DATABASE, which several servers can "
        "share. Default: in memory.",
    )
    store_connections: int = 8  # to a database, at most; and one that listens
    store_bytes: int = 128 * 1024 * 1024  # of each kind of document of one caller; the oldest are deleted
    approval_seconds: float = 24 * 60 * 60.0  # how long a call waits for a person's decision
    audit: AuditLevel = "all"  # of which executions of tools there is a record in the store
    recent_turns: int = 1_000  # of each caller, whose records `/v1/turns` and `/v1/telemetry` are made from
    guards: bool = flag(True, "--no-guards", help="Do not guard small models against loops and copied answers.")
    llm: Llm = Llm()
    mcp: Mcp = Mcp()
    requests: Requests = Requests()
    callers: CallerLimits = CallerLimits()
    limits: Limits = Limits()
    jobs: JobLimits = STANDARD_JOB_LIMITS
    log: Log = Log()
    keys: Mapping[str, Key] = field(default_factory=dict[str, Key])
    models: Mapping[str, Llm] = field(default_factory=dict[str, Llm])  # by name, besides the one of `llm`
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])  # other names, and patterns of names, of models
    recorders: tuple[Recorder, ...] = ()  # of turns, besides the trace
    parts: tuple[Any, ...] = ()  # the sections of `server/parts`

    def part(self, kind: type[T]) -> T:
        """The settings of a part: those that were given, or its defaults."""
        return next((section for section in self.parts if isinstance(section, kind)), None) or kind()
