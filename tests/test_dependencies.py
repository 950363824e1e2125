"""What is installed: pinned with hashes, under licences that ask nothing of users, and nothing is unpickled."""

import ast
import re
from importlib.util import find_spec

import pytest

from tests.dependencies import PAGE, ROOT, installed, licence, page, pinned

PERMISSIVE = re.compile(r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Mozilla|Zlib|CC0", re.IGNORECASE)
# These look at what `make setup` installs.
with_everything = pytest.mark.skipif(find_spec("xllamacpp") is None, reason="not all extras are installed")
UNSAFE = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve"}


@with_everything
def test_every_package_is_pinned_with_the_hashes_of_its_files():
    hashes = pinned()
    assert len(hashes) > 50
    assert [name for name, count in hashes.items() if not count] == []
    assert sorted(installed().keys() - hashes.keys()) == []


@with_everything
@pytest.mark.parametrize("extra", ["all", pytest.param("transformers", marks=pytest.mark.torch)])
def test_every_licence_is_known_and_permissive(extra: str):
    assert {name: licence(package) for name, package in installed(extra).items() if not PERMISSIVE.search(licence(package))} == {}


@with_everything
def test_the_page_lists_what_is_installed():
    listed = re.findall(r"^\| ([\w-]+) \| ", PAGE.read_text("utf-8"), re.MULTILINE)[1:]
    assert listed == [*installed()], "make dependencies writes the page anew"
    assert PAGE.read_text("utf-8").partition("|---|")[0] == page().partition("|---|")[0]


def test_nothing_is_unpickled():
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not UNSAFE & {name.partition(".")[0] for name in names}, path
            assert not (isinstance(node, ast.Attribute) and ast.unparse(node) in ("marshal.loads", "marshal.load")), path
