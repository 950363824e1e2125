"""`callsmith init`."""

import re
import tomllib
from pathlib import Path

import pytest

from callsmith.server.settings import Settings
from callsmith.server.settings_sources import merge_settings, read_settings_file, setting_options
from callsmith.server.settings_template import settings_template

SETTING = re.compile(r"^# (?=[a-z_0-9]+ = )", re.MULTILINE)


def test_the_file_is_written_into_the_config_folder_and_changes_nothing(callsmith, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("CALLSMITH_CONFIG", str(tmp_path / "config"))
    result = callsmith("init")
    path = tmp_path / "config" / "callsmith.toml"
    assert result.out.splitlines()[0] == f"Written: {path}"
    assert "callsmith serve --print-config" in result.out
    assert merge_settings(read_settings_file(path)).settings == Settings()


def test_a_file_that_exists_is_replaced_only_by_force(callsmith, tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text("[server]\nport = 9000\n")
    result = callsmith("init", "--output", str(path))
    assert (result.code, result.err) == (2, f"error: {path} exists already: --force replaces it, --output writes elsewhere\n")
    assert path.read_text() == "[server]\nport = 9000\n"
    assert callsmith("init", "--output", str(path), "--force").code == 0
    assert path.read_text() == settings_template()


def test_a_folder_that_cannot_be_written_is_told(callsmith, tmp_path: Path):
    (tmp_path / "file").write_text("")
    result = callsmith("init", "--output", str(tmp_path / "file" / "callsmith.toml"))
    assert result.code == 2
    assert "cannot be written" in result.err or "exists already" in result.err


def test_every_line_can_be_put_into_effect_and_says_the_default(tmp_path: Path):
    sections = settings_template().partition("\n# [models.NAME]")[0]
    defaults = "\n".join(line for line in sections.split("\n") if not line.endswith("# not set"))
    path = tmp_path / "all.toml"
    path.write_text(SETTING.sub("", defaults))
    effective = merge_settings(read_settings_file(path))
    assert effective.settings == Settings()
    assert len(effective.origins) > 60


@pytest.mark.parametrize("table", ["models", "keys"])
def test_what_is_shown_of_a_table_is_toml(table: str):
    text = settings_template().partition(f"\n# [{table}.NAME]\n")[2].partition("\n\n")[0]
    lines = [line.removeprefix("# ") for line in text.splitlines() if not line.startswith("## ")]
    assert tomllib.loads("\n".join(lines))


def test_every_setting_is_in_it():
    text = settings_template()
    for option in setting_options():
        section, _, name = option.name.partition(".")
        part = text.partition(f"\n[{section}]\n")[2].partition("\n[")[0]
        assert f"\n# {name} = " in f"\n{part}"
        assert f"{option.flag.names[0]}: " in part
