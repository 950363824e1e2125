"""What `deploy/release.py` writes and refuses."""

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
SITE = "zensical.toml"


@pytest.fixture(scope="module")
def release() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("release", ROOT / "deploy" / "release.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The files that a release changes, as they are here."""
    for name in ("pyproject.toml", "deploy/helm/Chart.yaml", "docs/start.md", "docs/check.md", "zensical.toml", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_all_places_have_the_same_version(release: ModuleType):
    versions = release.read_versions(ROOT)
    (version,) = {versions[place] for place in versions if place != SITE}
    assert versions[SITE] == version.rpartition(".")[0] != ""


def test_a_release_is_prepared_checked_and_told(release: ModuleType, source: Path):
    unreleased = (source / "CHANGELOG.md").read_text("utf-8").partition("## [Unreleased]\n")[2].partition("\n## [")[0]
    release.prepare(source, "7.8.9")
    assert release.check(source, "v7.8.9") == "7.8.9"
    assert set(release.read_versions(source).values()) == {"7.8.9", "7.8"}
    assert (source / "docs" / "start.md").read_text("utf-8").count("callsmith-7.8.9-py3-none-any.whl[all]") > 1
    assert release.read_notes(source, "7.8.9") == unreleased.strip() + "\n"
    assert "## [Unreleased]\n\n## [7.8.9] - 20" in (source / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.parametrize("tag", ["7.8.9", "v7.8", "v7.8.9-final", "v", "v7.8.9; rm -rf /"])
def test_a_tag_that_is_no_version_is_refused(release: ModuleType, source: Path, tag: str):
    with pytest.raises(release.ReleaseError, match="not of the form"):
        release.check(source, tag)


def test_what_does_not_agree_is_refused(release: ModuleType, source: Path):
    with pytest.raises(release.ReleaseError, match=r"the tag says 7\.8\.9, and pyproject\.toml"):
        release.check(source, "v7.8.9")
    version = release.read_versions(source)["pyproject.toml"]
    with pytest.raises(release.ReleaseError, match="has no section"):
        release.check(source, f"v{version}")
    release.prepare(source, "7.8.9")
    with pytest.raises(release.ReleaseError, match="already"):
        release.prepare(source, "7.8.9")
    with pytest.raises(release.ReleaseError, match="nothing is unreleased"):
        release.prepare(source, "7.9.0")
    assert set(release.read_versions(source).values()) == {"7.8.9", "7.8"}
    chart = source / "deploy" / "helm" / "Chart.yaml"
    chart.write_text(chart.read_text("utf-8").replace("appVersion: 7.8.9", "appVersion: 7.0.0"), "utf-8")
    with pytest.raises(release.ReleaseError, match=r"appVersion\) 7\.0\.0"):
        release.check(source, "v7.8.9")
