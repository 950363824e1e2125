"""The pages of the documentation: each has its place in the navigation, and every link leads somewhere, in the built site too."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.blocks import DOCS, PAGES, ROOT

BUILDER = ROOT / ".venv-docs" / "bin" / "zensical"
SETTINGS = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]


def pages_in(entries: list[dict[str, str | list[dict[str, str]]]]) -> list[str]:
    """The pages of the navigation, in order."""
    return [page for entry in entries for to in entry.values() for page in ([to] if isinstance(to, str) else pages_in(to))]  # type: ignore[arg-type]


def test_every_page_has_one_place_in_the_navigation():
    assert sorted(pages_in(SETTINGS["nav"])) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_the_site_is_of_this_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert SETTINGS["site_dir"] == f"site/{version.rpartition('.')[0]}"


def links_of(page: Path) -> list[str]:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_in_a_page_leads_to_a_file(page: Path):
    here = [link.partition("#")[0] for link in links_of(page) if not urlsplit(link).scheme]
    assert [link for link in here if link and not (page.parent / link).exists()] == []


def anchors(page: Path) -> set[str]:
    """What a link to a heading of a page may end in."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_every_link_to_a_heading_leads_to_one(page: Path):
    links = [link.split("#") for link in links_of(page) if "#" in link and not urlsplit(link).scheme]
    assert [f"{to}#{at}" for to, at in links if at not in anchors(page.parent / to if to else page)] == []


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_no_page_of_the_site_links_to_a_file_outside_of_it(page: Path):
    assert [link for link in links_of(page) if link.startswith("../")] == []


def headings(page: str) -> set[str]:
    return set(re.findall(r"^#+ (.*)$", (DOCS / page).read_text("utf-8"), re.MULTILINE))


@pytest.mark.req("R205")
@pytest.mark.req("R238")
def test_best_practices_and_troubles_are_written_down():
    assert "Tools that models use well" in headings("tools.md") and "Who runs a call" in headings("tools.md")
    troubles = {"Tools are not called", "Tools of MCP servers are missing", "A stream stops in the middle, or for ever"}
    assert troubles <= headings("troubleshooting.md")
    assert "Use the available tools." in (DOCS / "troubleshooting.md").read_text("utf-8")


@pytest.mark.req("R204")
def test_there_are_guides_for_frameworks_performance_and_the_api():
    assert "What to turn" in headings("performance.md")
    assert {"adapters.md", "api.md", "apis.md", "performance.md"} <= set(pages_in(SETTINGS["nav"]))


@pytest.mark.req("R206")
@pytest.mark.req("R156")
def test_the_guides_to_mcp_and_to_the_cache_are_there():
    text = (DOCS / "sessions.md").read_text("utf-8")
    assert "mcp.md" in pages_in(SETTINGS["nav"])
    assert all(flag in text for flag in ("`--context-cache`", "`--ui-server`", "always on"))


@pytest.mark.req("R207")
def test_the_guide_to_the_agent_loop_says_where_to_step_in():
    assert "Where to step in" in headings("agent-loop.md")


class Page(HTMLParser):
    """The ids of a page, and what it links to and loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids |= {value for name in ("id", "name") if (value := values.get(name))}
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        elif source := values.get("src") or (values.get("href") if tag == "link" else None):
            self.loads.append(source)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built anew in a folder of its own, where another version stands already."""
    if not BUILDER.exists():
        pytest.skip("needs .venv-docs: make test-docs")
    root = tmp_path_factory.mktemp("docs")
    shutil.copytree(DOCS, root / "docs")
    shutil.copy(ROOT / "zensical.toml", root)
    (root / "site" / "0.0").mkdir(parents=True)
    built = subprocess.run([BUILDER, "build", "--strict"], cwd=root, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0 and "Warning" not in built.stderr, built.stdout + built.stderr
    subprocess.run([sys.executable, ROOT / "deploy" / "docs_versions.py", root / "site"], check=True, timeout=60)
    return root / SETTINGS["site_dir"]


@pytest.mark.docs
def test_every_link_of_the_built_site_leads_somewhere(site: Path):
    pages = {path: Page(path.read_text("utf-8")) for path in site.rglob("*.html")}
    dead: list[str] = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or path.name == "404.html":
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            to = to / "index.html" if to.is_dir() else to
            if not to.exists() or (parts.fragment and parts.fragment not in pages[to].ids and parts.fragment != "__skip"):
                dead.append(f"{path.name}: {link}")
    assert len(pages) > 10 and dead == []


@pytest.mark.docs
def test_the_site_loads_nothing_from_other_hosts(site: Path):
    assert [load for path in site.rglob("*.html") for load in Page(path.read_text("utf-8")).loads if urlsplit(load).netloc] == []


@pytest.mark.docs
def test_the_site_can_be_searched(site: Path):
    index = json.loads((site / "search.json").read_text("utf-8"))
    assert any("capability bus" in str(entry).lower() for entry in index["items"])


@pytest.mark.docs
def test_the_versions_that_are_there_can_be_switched_between(site: Path):
    assert [load["version"] for load in json.loads((site.parent / "versions.json").read_text())] == [site.name, "0.0"]
    assert f"url={site.name}/" in (site.parent / "index.html").read_text()
