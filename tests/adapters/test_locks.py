"""The frameworks that have an adapter are pinned, with hashes, in locks of their own, which their environments are made of."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = {"CLIENTS_LOCK": "tests/clients/requirements.lock", "CREWAI_LOCK": "tests/adapters/crewai.lock"}
HASHES = r"(    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+"
PINNED = re.compile(rf"^([\w.-]+)(?:\[[\w,-]+\])?==([^ ;\\]+)(?: ;[^\\\n]+)? \\\n{HASHES}", re.MULTILINE)


def pinned(path: str) -> dict[str, str]:
    """The versions in a lock; each has a hash."""
    text = (ROOT / path).read_text("utf-8")
    assert re.fullmatch(r"(# download: .*)?\s*", PINNED.sub("", text))
    return {name: version for name, version, _ in PINNED.findall(text)}


@pytest.mark.req("R149")
@pytest.mark.parametrize(
    ("lock", "frameworks"),
    [("CLIENTS_LOCK", ["langchain", "langchain-core", "llama-index-core"]), ("CREWAI_LOCK", ["crewai"])],
)
def test_every_framework_is_pinned_in_the_lock_its_environment_is_made_of(lock: str, frameworks: list[str]) -> None:
    assert set(frameworks) <= pinned(LOCKS[lock]).keys()
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert f"{lock} := {LOCKS[lock]}\n" in makefile
    assert f"--require-hashes -r $({lock})" in makefile


@pytest.mark.req("R149")
def test_what_is_declared_is_pinned() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    names = [re.split(r"[\[<>=]", client)[0] for client in groups["clients"]]
    assert set(names) <= pinned(LOCKS["CLIENTS_LOCK"]).keys()


def test_beside_the_frameworks_is_what_is_pinned_everywhere() -> None:
    clients = pinned(LOCKS["CLIENTS_LOCK"])
    assert {name: clients.get(name) for name in pinned("requirements.lock")} == pinned("requirements.lock")
