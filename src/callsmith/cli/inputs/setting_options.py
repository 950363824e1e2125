"""Options that come from the settings: their names, types and help texts stand at the fields of `server/settings.py`.

    app.command(cls=SettingsCommand)(serve)     # an option for every setting that has one
    app.command(cls=ChatCommand)(chat)          # `only` names the settings that this command has options for

The settings are imported when such a command is used and not before, so that `callsmith --help` stays fast.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast, get_args, get_origin

import typer
from typer.core import TyperCommand
from typer.main import get_command

from callsmith.cli.inputs.completion import COMPLETIONS
from callsmith.core.errors import UsageError
from callsmith.core.options import SettingOption

if TYPE_CHECKING:
    from callsmith.server.settings import Settings
    from callsmith.server.settings_sources import SettingsSource

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)=(.+)", re.DOTALL)
HEADINGS = {
    "server": "Server",
    "llm": "Model and tools",
    "mcp": "MCP servers",
    "limits": "Limits",
    "log": "Logs and traces",
}


class SettingsCommand(TyperCommand):
    """A command with an option for every setting that has one. The command reads what was given with `given_settings`."""

    only: ClassVar[tuple[str, ...]] = ()  # full names of settings; empty: all

    @cached_property
    def settings(self) -> "Mapping[str, SettingOption]":
        """The settings that have an option here, by the parameter's name."""
        from callsmith.server.settings_sources import setting_options

        return {
            setting_option.name.replace(".", "__"): setting_option
            for setting_option in setting_options()
            if not self.only or setting_option.name in self.only
        }

    @cached_property
    def setting_params(self) -> list[Any]:
        """The options, made by typer from a signature that stands for them."""

        def collect() -> None: ...

        parameters = [make_parameter(name, setting, self._is_repeatable(setting)) for name, setting in self.settings.items()]
        collect.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command()(collect)
        params = list(get_command(app).params)
        for param in params:
            if self._is_repeatable(self.settings[str(param.name)]):
                _read_variable_whole(param)
        return params

    def _is_repeatable(self, setting: SettingOption) -> bool:
        """Whether the option may be given several times; a command that has only some of the settings has no tables."""
        return bool(setting.flag.table) and not self.only

    def get_params(self, ctx: Any) -> list[Any]:
        return [*self.setting_params, *super().get_params(ctx)]

    def invoke(self, ctx: Any) -> Any:
        from callsmith.server.settings_sources import SettingsSource

        values = {name: ctx.params.pop(name) for name in self.settings}
        ctx.obj = [
            SettingsSource(setting.flag.names[0], _values(setting, values[name]))
            for name, setting in self.settings.items()
            if values[name] not in (None, []) and not (setting.type is bool and not values[name])
        ]
        return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options of each section of the settings under a heading, behind the command's own."""
        from callsmith.server.settings_sources import SECTIONS

        headings = {name: HEADINGS.get(name) or getattr(section, "heading", "Options") for name, section in SECTIONS.items()}
        groups: dict[str, list[Any]] = {"Arguments": [], "Options": [], **{heading: [] for heading in headings.values()}}
        for param in self.get_params(ctx):
            setting = self.settings.get(param.name)
            own = "Arguments" if param.param_type_name == "argument" else "Options"
            heading = headings[setting.name.partition(".")[0]] if setting else own
            if record := param.get_help_record(ctx):
                groups[heading].append(record)
        for heading, records in groups.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def given_settings(context: typer.Context) -> "list[SettingsSource]":
    """The settings that were given as options of this command."""
    return context.obj


def settings_of(context: typer.Context) -> "Settings":
    """The settings as the options of this command alone make them."""
    from callsmith.server.settings_sources import merge_settings

    return merge_settings(*given_settings(context)).settings


def make_parameter(name: str, setting: SettingOption, is_repeatable: bool = False) -> inspect.Parameter:
    """The parameter of a command that stands for the option of a setting."""
    flag, default = setting.flag, setting.default
    default_text = f" Default: {default:g}." if isinstance(default, float) else f" Default: {default}."
    is_bool = setting.type is bool
    option = typer.Option(
        *flag.names,
        help=flag.help if is_bool or default in (None, (), "") else flag.help + default_text,
        show_default=False,
        min=flag.minimum,
        max=flag.maximum,
        dir_okay=not flag.is_file,
        exists=flag.must_exist,
        envvar=flag.variable,
        autocompletion=COMPLETIONS.get(setting.name) or _complete_words(setting),
    )
    kind: Any = bool if is_bool else (list[str] if is_repeatable else _option_type(setting)) | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=False if is_bool else None, annotation=Annotated[kind, option]
    )


def _complete_words(setting: SettingOption) -> Callable[[str], list[str]] | None:
    """Completes the words of a setting that has a list of them."""
    kinds = get_args(setting.type) if NoneType in get_args(setting.type) else (setting.type,)
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    return (lambda incomplete: [word for word in words if word.startswith(incomplete)]) if words else None


def _option_type(setting: SettingOption) -> Any:
    """The type of what is typed: texts for lists and for words out of a list, which the settings check."""
    if setting.flag.is_file:
        return Path
    plain = [kind for kind in get_args(setting.type) or (setting.type,) if kind is not NoneType]
    return plain[0] if get_origin(setting.type) is not tuple and plain[0] in (int, float, bool) else str


def _read_variable_whole(param: Any) -> None:
    """Take the environment variable of an option that may be given several times as one value, spaces and all."""

    def value(ctx: Any) -> list[str] | None:
        variable: str | None = param.resolve_envvar_value(ctx)
        return None if variable is None else [variable]

    param.value_from_envvar = value


def _values(setting: SettingOption, value: Any) -> dict[str, Any]:
    """The settings that an option gives values to: one, or as many as it was given with a name."""
    if not isinstance(value, list | tuple):
        return {setting.name: _value(setting, value)}
    from callsmith.models.weights.disk import find_path

    values: dict[str, Any] = {}
    for text in cast("Sequence[str]", value):
        pair = None if find_path(text) else _NAMED.fullmatch(text)
        name = f"{setting.flag.table}.{pair[1]}.{setting.name.rpartition('.')[2]}" if pair else setting.name
        if name in values:
            what = f"{pair[1]!r} is given twice" if pair else "give each but one a name, as NAME=VALUE"
            raise UsageError(f"{setting.flag.names[0]}: {what}", field=setting.name)
        values[name] = pair[2] if pair else text
    return values


def _value(setting: SettingOption, value: Any) -> Any:
    if setting.type is bool:
        return not setting.default
    if get_origin(setting.type) is tuple:
        return [part for part in value.split(",") if part]
    return str(value) if setting.flag.is_file else value
