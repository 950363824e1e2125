"""docs/dependencies.md: what is installed with `callsmith[all]`, and under which licences.

`python -m tests.dependencies` (or `make dependencies`) writes the page anew, from the packages that are installed.
"""

from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "dependencies.md"
LOCK = ROOT / "requirements.lock"
BEGINNING = """\
# Dependencies

All that `pip install 'callsmith[all]'` brings with it, and its licence. Versions and the hashes of their files are pinned in
`requirements.lock`; `make setup` installs nothing else. `make dependencies` writes this page.

`callsmith[transformers]` is not among them. It brings PyTorch (BSD-3-Clause), transformers, tokenizers and safetensors
(Apache-2.0), and what these need, all under such licences; `make test-torch` looks at them. PyTorch's builds for NVIDIA's GPUs
bring the CUDA libraries besides, under NVIDIA's own licence.

| package | licence |
|---|---|
"""


def installed(extra: str = "all") -> dict[str, Distribution]:
    """The packages that come with an extra of callsmith, by name. Those of other systems, not installed here, are left out."""
    distributions: dict[str, Distribution] = {}
    waiting: list[tuple[str, frozenset[str]]] = [("callsmith", frozenset({extra}))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name_waiting = waiting.pop()
        if name_waiting in seen:
            continue
        seen.add(name_waiting)
        name, extras = name_waiting
        distributions[name] = distribution(name)
        waiting += _needs(distributions[name], extras)
    del distributions["callsmith"]
    return dict(sorted(distributions.items()))


def _needs(package: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for line in package.requires or ():
        needed = Requirement(line)
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield canonicalize_name(needed.name), frozenset(needed.extras)


def licence(package: Distribution) -> str:
    """The licence as the package states it: as an expression, in its classifiers, or in words."""
    data = package.metadata
    if stated := data.get("License-Expression"):
        return stated
    classifiers = [item.rpartition(" :: ")[2] for item in data.get_all("Classifier") or () if item.startswith("License ::")]
    licences = [classifier for classifier in classifiers if classifier != "OSI Approved"]
    return ", ".join(licences) or (data.get("License") or "").strip().splitlines()[0]


def page() -> str:
    return BEGINNING + "".join(f"| {name} | {licence(package)} |\n" for name, package in installed().items())


def pinned() -> dict[str, int]:
    """The packages of the lock, and how many hashes each has."""
    pins: dict[str, int] = {}
    name = ""
    for line in LOCK.read_text("utf-8").splitlines():
        if "==" in line:
            name = line.partition("==")[0]
            pins[name] = 0
        elif line.lstrip().startswith("--hash=sha256:"):
            pins[name] += 1
    return pins


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
