"""A settings file to begin with: every setting with its default and what it is for, all of it in comments."""

import inspect
import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields
from types import NoneType
from typing import Any, get_args, get_type_hints

from callsmith.core.options import Flag, fields_in_order
from callsmith.server.settings import PER_MODEL, Key, Llm
from callsmith.server.settings_sources import NOT_IN_SERVER_SECTION, SECTIONS

WIDTH = 110
_HEAD = """\
Settings of callsmith. What is in comments is the default: remove the # before a line to change it.
`callsmith serve --print-config` shows what is in effect, and where each value comes from."""
_REMARK = re.compile(r"^    (\w+): [^#\n]*#\s*(.+)$", re.MULTILINE)  # a comment behind a field, in the source
_TEXT, _PLACEHOLDERS = '"…"', {int: "0", float: "0.0"}


def settings_template() -> str:
    """The text of the file. Unedited, it changes nothing."""
    lines = list(_comment(_HEAD))
    for section, kind in SECTIONS.items():
        lines += ["", *_comment(_summary(kind)), f"[{section}]"]
        chosen = [
            setting for setting in fields_in_order(kind) if section != "server" or setting.name not in NOT_IN_SERVER_SECTION
        ]
        lines += _settings(kind, chosen)
    models = [setting for setting in fields_in_order(Llm) if setting.name in PER_MODEL]
    lines += ["", *_comment("Of several models each has a section; what it does not say is what [llm] says."), "# [models.NAME]"]
    lines += [_setting(setting, get_type_hints(Llm)[setting.name]) for setting in models]
    lines += ["", *_comment("Other names of models, and patterns of such names."), "# [aliases]", '# "claude-*" = "NAME"']
    lines += ["", *_comment(_summary(Key)), *_comment("`callsmith keys new NAME` prints such a section."), "# [keys.NAME]"]
    lines += _settings(Key, fields(Key))
    return "\n".join(lines) + "\n"


def _settings(kind: type, chosen: Iterable[Field[Any]]) -> Iterator[str]:
    hints, remarks = get_type_hints(kind), dict(_REMARK.findall(inspect.getsource(kind)))
    for setting in chosen:
        flag: Flag | None = setting.metadata.get("flag")
        yield from _comment(f"{flag.names[0]}: {flag.help}" if flag else remarks.get(setting.name, ""))
        yield _setting(setting, hints[setting.name])


def _setting(setting: Field[Any], hint: Any) -> str:
    """The line of a setting; one that has no default is shown with a placeholder."""
    if setting.default in (None, MISSING):
        kind: Any = next(kind for kind in (*get_args(hint), hint) if kind is not NoneType)
        return f"# {setting.name} = {_PLACEHOLDERS.get(kind, _TEXT)}  # not set"
    return f"# {setting.name} = {json.dumps(setting.default, ensure_ascii=False)}"


def _summary(kind: type) -> str:
    """What the docstring of a section says, paragraph by paragraph."""
    return inspect.cleandoc(kind.__doc__ or "")


def _comment(text: str) -> Iterator[str]:
    """Lines of a comment. Two # tell them from settings, which can be put into effect by removing the one they have."""
    for paragraph in text.split("\n\n"):
        yield from textwrap.wrap(" ".join(paragraph.split()), WIDTH, initial_indent="## ", subsequent_indent="## ")
