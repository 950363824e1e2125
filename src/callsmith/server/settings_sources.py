"""The settings of a server: from a TOML file, the environment and flags, each of which wins over the one before.

    [server]
    port = 9000                              # or CALLSMITH_SERVER__PORT=9000
    cors_origins = ["https://chat.example"]

    [llm]
    model = "smollm2-135m"
    tools = "mytools"
    tools_max_iterations = 3                 # the same as iterations under [limits]

    [models.big]                             # of several models, each has such a section
    model = "qwen2.5-coder-1.5b"
    context = 16384                          # what it does not say is what [llm] says

    [aliases]
    fast = "smollm2-135m"
    "claude-*" = "big"

    [keys.alice]
    sha256 = "…"                             # `callsmith keys new alice` prints it
    scopes = ["approver"]                    # may decide on calls of other keys

No name is ignored: an unknown one is an error that says which one may have been meant.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.options import SettingOption, fields_in_order, options_in
from callsmith.core.serialize import load
from callsmith.core.types.tables import parse_toml
from callsmith.core.values import Json
from callsmith.runtime.execute import Limits
from callsmith.runtime.jobs.job import JobLimits
from callsmith.server.parts import section_types
from callsmith.server.settings import PER_MODEL, CallerLimits, Key, Llm, Log, Mcp, Requests, Settings
from callsmith.server.store.opening import without_password

ENVIRONMENT = "CALLSMITH_"
_SEPARATOR = "__"  # between section and name; variables without it are no settings: CALLSMITH_CACHE, CALLSMITH_DEBUG
_KEY_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MODEL_NAME = re.compile(r"[^\s*?\[\]]{1,128}")

_OF_PARTS = section_types()
SECTIONS: Mapping[str, type] = {
    "server": Settings,
    "llm": Llm,
    "mcp": Mcp,
    **_OF_PARTS,
    "requests": Requests,
    "callers": CallerLimits,
    "limits": Limits,
    "jobs": JobLimits,
    "log": Log,
}
_TABLES = ("keys", "models", "aliases")
NOT_IN_SERVER_SECTION = frozenset({*SECTIONS, *_TABLES, "recorders", "parts"})  # those of Settings that [server] does not have

# Other names of some limits.
_ALIASES = {
    "server.largest_body": "requests.body_bytes",
    "llm.tools_max_iterations": "limits.iterations",
    "llm.tools_per_tool_timeout_seconds": "limits.seconds",
    "llm.tools_max_parallel": "limits.parallel",
}


def setting_options() -> tuple[SettingOption, ...]:
    """The settings that have a command-line option, section by section."""
    return tuple(option for section, kind in SECTIONS.items() for option in options_in(section, kind))


def _types() -> dict[str, Any]:
    """The type of every setting by its full name, `server.port`. In tables, * stands for the name of an entry."""
    types: dict[str, Any] = {f"keys.*.{name}": hint for name, hint in get_type_hints(Key).items()}
    of_models = get_type_hints(Llm)
    types |= {f"models.*.{name}": of_models[name] for name in PER_MODEL} | {"aliases.*": str}
    for section, kind in SECTIONS.items():
        hints = get_type_hints(kind)
        types |= {
            f"{section}.{field.name}": hints[field.name] for field in fields(kind) if field.name not in NOT_IN_SERVER_SECTION
        }
    return types


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """Values by the full names of settings, and where they are from. `is_text`: they are strings, whatever their type."""

    origin: str
    values: Mapping[str, Json]
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    """The settings that are in effect, and where each that is not the default comes from."""

    settings: Settings
    origins: Mapping[str, str]


def read_settings_file(path: Path) -> SettingsSource:
    """Read the settings of a TOML file."""
    try:
        return SettingsSource(str(path), dict(_flatten(parse_toml(path.read_text("utf-8-sig")))))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (UsageError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def read_environment(environment: Mapping[str, str]) -> SettingsSource:
    """Read the settings among environment variables: `CALLSMITH_SERVER__PORT` is server.port."""
    variables = {name: value for name, value in environment.items() if name.startswith(ENVIRONMENT) and _SEPARATOR in name}
    values = {name.removeprefix(ENVIRONMENT).lower().replace(_SEPARATOR, "."): value for name, value in variables.items()}
    return SettingsSource("the environment", values, is_text=True)


def merge_settings(*sources: SettingsSource) -> EffectiveSettings:
    """Merge sources into settings; a later source wins over those before it."""
    types, values, origins = _types(), dict[str, Json](), dict[str, str]()
    for source in sources:
        for name, value in _without_aliases(source).items():
            hint = types.get(_with_wildcard(name))
            if hint is None:
                entry, table = name.rpartition(".")[0], f"{name.partition('.')[0]}.*"
                known = [*types, *_ALIASES, *(item.replace(table, entry) for item in types if item.startswith(table))]
                elsewhere = [item for item in known if item.endswith(f".{name}")]  # the section was left out
                raise UnknownName(f"setting in {source.origin}", name, elsewhere or known, field=name)
            try:
                values[name] = load(hint, _parse_text(value, hint) if source.is_text else value, name)
            except UsageError as error:
                raise UsageError(f"{source.origin}: {error}", field=name) from None
            if isinstance(number := values[name], int | float) and number < 0 and not name.endswith("_bias"):
                raise UsageError(f"{source.origin}: {name}: may not be negative, got {number}", field=name)
            origins[name] = source.origin
    return EffectiveSettings(_build_settings(values), origins)


def write_settings(effective: EffectiveSettings) -> str:
    """The text of a TOML file with all settings and where each comes from. Passwords and hashes of keys are hidden."""
    settings, lines = effective.settings, list[str]()
    for section in SECTIONS:
        holder = _section(settings, section)
        lines += ["", f"[{section}]"]
        for setting in fields_in_order(SECTIONS[section]):
            if setting.name not in NOT_IN_SERVER_SECTION:
                lines.append(_line(f"{section}.{setting.name}", getattr(holder, setting.name), effective.origins))
    for name in settings.models:
        set_here = {item: value for item in PER_MODEL if (value := f"models.{name}.{item}") in effective.origins}
        lines += ["", f"[models.{json.dumps(name)}]"]
        lines += [_line(full, getattr(settings.models[name], setting), effective.origins) for setting, full in set_here.items()]
    if settings.aliases:
        lines += ["", "[aliases]"]
        lines += [f"{json.dumps(name)} = {json.dumps(target)}" for name, target in settings.aliases.items()]
    for name, key in settings.keys.items():
        lines += ["", f"[keys.{name}]", 'sha256 = "(hidden)"']
        lines += [_line(f"keys.{name}.{field.name}", getattr(key, field.name), effective.origins) for field in fields(key)[1:]]
    return "\n".join(lines[1:])


def _section(settings: Settings, name: str) -> Any:
    if name in _OF_PARTS:
        return settings.part(_OF_PARTS[name])
    return settings if name == "server" else getattr(settings, name)


def _line(name: str, value: Json, origins: Mapping[str, str]) -> str:
    short, origin = name.rpartition(".")[2], origins.get(name)
    if value is None:
        return f"# {short} is not set"
    if name == "server.store":
        value = without_password(value)
    return f"{short} = {json.dumps(value, ensure_ascii=False)}" + (f"  # {origin}" if origin else "")


def _flatten(table: Mapping[str, Json], before: str = "") -> Iterator[tuple[str, Json]]:
    for name, value in table.items():
        if value == {} and before.rstrip(".") in _TABLES:  # an entry without anything would not be there at all
            raise UsageError(f"{before}{name} is empty", field=before + name)
        if isinstance(value, dict):
            yield from _flatten(cast("dict[str, Json]", value), f"{before}{name}.")
        else:
            yield before + name, value


def _without_aliases(source: SettingsSource) -> dict[str, Json]:
    """The values of a source, with aliases replaced by the settings' own names."""
    for other, name in _ALIASES.items():
        if other in source.values and name in source.values:
            raise UsageError(f"{source.origin}: {other} and {name} are the same setting; give one of them", field=other)
    return {_ALIASES.get(name, name): value for name, value in source.values.items()}


def _with_wildcard(name: str) -> str:
    """The name of a setting, with * in place of the name of an entry in a table."""
    first, _, rest = name.partition(".")
    which, _, part = rest.rpartition(".")
    if first == "aliases" and rest:
        return "aliases.*"
    pattern = {"keys": _KEY_NAME, "models": _MODEL_NAME}.get(first)
    return f"{first}.*.{part}" if pattern and pattern.fullmatch(which) else name


def _parse_text(value: Json, hint: Any) -> Json:
    """Parse a value given as text. Items of lists may be separated by commas; "none" unsets an optional setting."""
    if not isinstance(value, str):
        return value
    if value.strip().lower() == "none" and NoneType in get_args(hint):
        return None
    if hint is str or (str in get_args(hint) and get_origin(hint) is not tuple) or get_origin(hint) is Literal:
        return value
    try:
        return tomllib.loads(f"value = {value.lower() if bool in (hint, *get_args(hint)) else value}")["value"]
    except tomllib.TOMLDecodeError:
        return [part.strip() for part in value.split(",") if part.strip()] if get_origin(hint) is tuple else value


def _build_settings(values: Mapping[str, Json]) -> Settings:
    sections: dict[str, dict[str, Json]] = {section: {} for section in SECTIONS}
    tables: dict[str, dict[str, dict[str, Json]]] = {"keys": {}, "models": {}}
    aliases: dict[str, str] = {}
    for name, value in values.items():
        first, _, rest = name.partition(".")
        which, _, part = rest.rpartition(".")
        if first == "aliases":
            aliases[rest] = value
        elif first in tables:
            tables[first].setdefault(which, {})[part] = value
        else:
            sections[first][part] = value
    if not 0 <= sections["server"].get("port", 0) <= 65535:
        raise UsageError("server.port: expected a number from 0 to 65535", field="server.port")
    llm = Llm(**sections["llm"])
    return Settings(
        **sections["server"],
        llm=llm,
        mcp=Mcp(**sections["mcp"]),
        requests=Requests(**sections["requests"]),
        callers=CallerLimits(**sections["callers"]),
        limits=Limits(**sections["limits"]),
        jobs=JobLimits(**sections["jobs"]),
        log=Log(**sections["log"]),
        keys={name: _build_key(name, parts) for name, parts in tables["keys"].items()},
        models={name: _build_model(name, parts, llm) for name, parts in tables["models"].items()},
        aliases=aliases,
        parts=tuple(part for name, kind in _OF_PARTS.items() if (part := kind(**sections[name])) != kind()),
    )


def _build_key(name: str, parts: dict[str, Json]) -> Key:
    try:
        return Key(parts.pop("sha256", ""), **parts)
    except UsageError as error:
        raise UsageError(f"keys.{name}.{error}", field=f"keys.{name}") from None


def _build_model(name: str, parts: Mapping[str, Json], common: Llm) -> Llm:
    if not parts.get("model"):
        what = "expected a name of `callsmith models`, a file, or what else --model takes"
        raise UsageError(f"models.{name}.model: {what}", field=f"models.{name}")
    try:
        return replace(common, **{**parts, "name": name})
    except UsageError as error:
        raise UsageError(str(error).replace("llm.", f"models.{name}.", 1), field=f"models.{name}") from None
