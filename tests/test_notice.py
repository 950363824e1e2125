"""NOTICE says what came from where, and that is all there is of others."""

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTICE = (ROOT / "NOTICE").read_text("utf-8")


@pytest.mark.req("R62")
def test_no_source_of_ours_is_anothers() -> None:
    """Code that is copied keeps its notice: nothing that the package holds has one."""
    marks = re.compile(r"SPDX-|Copyright|©|\(c\) 20\d\d|Licensed under|All rights reserved|vendored from", re.IGNORECASE)
    sources = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".js", ".css", ".jinja", ".toml")]
    assert len(sources) > 500
    marked = [path for path in sources if marks.search(path.read_text("utf-8"))]
    assert [path.relative_to(ROOT).as_posix() for path in marked] == []


@pytest.mark.req("R62")
def test_what_is_copied_is_named_with_its_licence_and_exists() -> None:
    copied = NOTICE.partition("Copied, and changed")[2].partition("Written here")[0]
    files = re.findall(r"^  (\S+/\S+)", copied, re.MULTILINE)
    assert files == ["tests/evals/bfcl/fixtures.json"]
    source = json.loads((ROOT / files[0]).read_text("utf-8"))["source"]
    assert " ".join(source.split()) in " ".join(copied.split()).replace("cases of the ", "").replace("github.com/", "")
    for place in re.findall(r"^  ((?:src|tests)/\S+)", NOTICE, re.MULTILINE):
        assert (ROOT / place).exists(), place


def test_it_goes_with_the_package() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["license-files"] == ["LICENSE", "NOTICE"]
