"""What a release needs of the source, for people and for the release workflow.

python deploy/release.py prepare 0.2.0   # write the version wherever it stands, and date its section of the changelog
python deploy/release.py check v0.2.0    # whether the tag, the versions and the changelog agree
python deploy/release.py notes v0.2.0    # that section of the changelog
"""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = "CHANGELOG.md"
# Where the version stands: the file, and what is around it, once or several times. `minor` is the version without its last part.
VERSIONS = {
    "pyproject.toml": r'(?m)^version = "(?P<version>[^"]+)"$',
    "deploy/helm/Chart.yaml": r"(?m)^version: (?P<version>\S+)$",
    "deploy/helm/Chart.yaml (appVersion)": r"(?m)^appVersion: (?P<version>\S+)$",
    "docs/start.md": r"callsmith-(?P<version>\d[^-]*)-py3-none-any\.whl",
    "docs/check.md": r"actions/check@v(?P<version>\S+)",
    "zensical.toml": r'(?m)^site_dir = "site/(?P<minor>[^"]+)"$',
}
# Also before 1.0: as PEP 440 and Semantic Versioning both write it.
VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")


class ReleaseError(Exception):
    """Why this cannot be released."""


def read_versions(root: Path) -> dict[str, str]:
    """The version as each file has it; in one that has it several times, perhaps several."""
    versions: dict[str, str] = {}
    for place, pattern in VERSIONS.items():
        found = re.finditer(pattern, (root / place.partition(" ")[0]).read_text("utf-8"))
        versions[place] = " and ".join(sorted({match[1] for match in found})) or "none"
    return versions


def written(place: str, version: str) -> str:
    """The version as a file is to have it."""
    return version.rpartition(".")[0] if "<minor>" in VERSIONS[place] else version


def read_notes(root: Path, version: str) -> str:
    """The section of the changelog on a version."""
    text = (root / CHANGELOG).read_text("utf-8")
    match = re.search(rf"(?ms)^## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)$(?P<notes>.*?)(?=^## \[|\Z)", text)
    if match is None:
        raise ReleaseError(f"{CHANGELOG} has no section '## [{version}] - YYYY-MM-DD'")
    return match["notes"].strip() + "\n"


def check(root: Path, tag: str) -> str:
    """The version that a tag releases, if everything agrees on it."""
    version = tag.removeprefix("v")
    if not tag.startswith("v") or not VERSION.fullmatch(version):
        raise ReleaseError(f"the tag {tag!r} is not of the form v1.2.3 or v1.2.3rc1")
    others = {place: known for place, known in read_versions(root).items() if known != written(place, version)}
    if others:
        raise ReleaseError(f"the tag says {version}, and " + ", ".join(f"{place} {known}" for place, known in others.items()))
    read_notes(root, version)
    return version


def prepare(root: Path, version: str) -> None:
    """Write the version, and make of what is unreleased its section."""
    if not VERSION.fullmatch(version):
        raise ReleaseError(f"{version!r} is not of the form 1.2.3 or 1.2.3rc1")
    changelog = root / CHANGELOG
    text = changelog.read_text("utf-8")
    if f"## [{version}]" in text:
        raise ReleaseError(f"{CHANGELOG} has a section on {version} already")
    unreleased = re.search(r"(?ms)^## \[Unreleased\]\n(.*?)(?=^## \[|\Z)", text)
    if unreleased is None or not unreleased[1].strip():
        raise ReleaseError(f"{CHANGELOG}: nothing is unreleased")
    today = datetime.now(UTC).date().isoformat()
    changelog.write_text(text.replace("## [Unreleased]\n", f"## [Unreleased]\n\n## [{version}] - {today}\n", 1), "utf-8")
    for place, pattern in VERSIONS.items():
        path = root / place.partition(" ")[0]
        content = path.read_text("utf-8")
        spans = [match.span(1) for match in re.finditer(pattern, content)]
        if not spans:
            raise ReleaseError(f"{place} has no version")
        for start, end in reversed(spans):
            content = content[:start] + written(place, version) + content[end:]
        path.write_text(content, "utf-8")


def main() -> None:
    """Do what is asked for."""
    match sys.argv[1:]:
        case ["prepare", version]:
            prepare(ROOT, version)
            print(f"Prepared {version}. Commit it, and tag it: git tag -s v{version}")
        case ["check", tag]:
            print(f"{check(ROOT, tag)} can be released.")
        case ["notes", tag]:
            print(read_notes(ROOT, check(ROOT, tag)), end="")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main()
    except ReleaseError as error:
        sys.exit(f"error: {error}")
