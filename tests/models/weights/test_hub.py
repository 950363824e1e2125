"""Models of a hub, by its real client against a hub on this machine: chosen, fetched, resumed, refused; and stored once."""

import hashlib
import random
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("huggingface_hub")

from callsmith.core.errors import MissingExtra, Rejected, Unavailable, UsageError
from callsmith.engines.cache_folder import hub_cache_folder
from callsmith.models.weights import fetch as weights
from callsmith.models.weights import hub
from callsmith.models.weights.hub import DownloadPlan
from tests.hub_server import FakeHub

LARGE = b"GGUF" + random.Random(7).randbytes(20 << 20)  # worth resuming
SMALL = b"GGUF" + bytes(1000)
CONFIG = b'{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}'


def plan(spec: str) -> DownloadPlan:
    name = hub.parse(spec)
    assert name is not None
    return hub.plan_download(name)


def blobs() -> list[Path]:
    return [path for path in hub_cache_folder().rglob("blobs/*") if path.is_file()]


def test_a_model_is_fetched_into_the_shared_cache_with_progress_and_found_again_without_the_hub(
    hub_server: FakeHub, monkeypatch: pytest.MonkeyPatch
):
    hub_server.add("org/repo", {"m-Q4_K_M.gguf": LARGE, "m-Q8_0.gguf": LARGE + LARGE, "README.md": b"#"})
    with pytest.raises(Unavailable, match="has not been fetched") as caught:
        weights.locate("hf:org/repo")
    assert caught.value.hint == "Run: callsmith models fetch hf:org/repo"
    seen: list[tuple[int, int]] = []
    path = weights.fetch("hf:org/repo", progress=lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == LARGE
    assert seen == sorted(seen) and seen[-1] == (len(LARGE), len(LARGE)) and len(seen) > 2
    assert path.is_relative_to(hub_cache_folder() / "models--org--repo" / "snapshots")
    assert [blob.name for blob in blobs()] == [hashlib.sha256(LARGE).hexdigest()]
    hub_server.down = 503
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for spec in ("hf:org/repo", "org/repo", "hf:org/repo:q4_k_m", "org/repo/m-Q4_K_M.gguf", "https://huggingface.co/org/repo"):
        assert weights.locate(spec) == path
    with pytest.raises(Unavailable, match=r"HF_HUB_OFFLINE.*org/repo:Q8_0"):
        weights.fetch("hf:org/repo:Q8_0")


def test_what_another_client_of_the_hub_has_fetched_is_used_and_not_stored_twice(hub_server: FakeHub):
    from huggingface_hub import hf_hub_download

    hub_server.add("org/repo", {"m-Q4_K_M.gguf": LARGE})
    path = Path(hf_hub_download("org/repo", "m-Q4_K_M.gguf", cache_dir=hub_cache_folder()))
    assert weights.locate("hf:org/repo") == path
    asked = len(hub_server.downloads())
    assert weights.fetch("hf:org/repo:Q4_K_M") == path
    assert len(hub_server.downloads()) == asked and len(blobs()) == 1


def test_what_reads_images_for_a_model_comes_with_it(hub_server: FakeHub):
    projectors = {"mmproj-F32.gguf": SMALL * 4, "mmproj-F16.gguf": SMALL * 2, "mmproj-BF16.gguf": SMALL * 3}
    hub_server.add("org/repo", {"m-Q4_K_M.gguf": SMALL, "m-Q8_0.gguf": SMALL * 5, **projectors})
    planned = plan("hf:org/repo")
    assert planned.projector is not None and planned.projector.path == "mmproj-F16.gguf"
    assert planned.size == 3 * len(SMALL)
    assert "\nWith mmproj-F16.gguf (0 MB), which reads images\n" in planned.describe()
    path = weights.fetch("hf:org/repo")
    assert sorted(file.name for file in path.parent.iterdir()) == ["m-Q4_K_M.gguf", "mmproj-F16.gguf"]
    hub_server.add("org/both", {"m-Q4_K_M.gguf": SMALL, "other-Q4_K_M.gguf": SMALL, "mmproj-F16.gguf": SMALL})
    assert plan("hf:org/both/m-Q4_K_M.gguf").projector is None, "it may be the other one's"


def test_what_was_chosen_and_what_else_there_is_is_told(hub_server: FakeHub, monkeypatch: pytest.MonkeyPatch):
    hub_server.add("org/repo", {"m-Q4_K_M.gguf": SMALL * 3, "m-Q8_0.gguf": SMALL * 6, "m-Q2_K.gguf": SMALL})
    monkeypatch.setattr(hub, "model_memory", lambda: 10**9)
    told = plan("hf:org/repo").describe()
    assert told.startswith(
        "org/repo: Q4_K_M (0 MB): the usual one; 1.0 GB of memory are free\nAlso there: Q2_K (0 MB), Q8_0 (0 MB);"
    )
    assert told.endswith("as in hf:org/repo:Q2_K")
    monkeypatch.setattr(hub, "model_memory", lambda: 2000)
    assert plan("hf:org/repo").variant.label == "Q2_K"
    assert plan("hf:org/repo:q8_0").variant.label == "Q8_0"
    assert plan("hf:org/repo/m-Q8_0.gguf").choice.reason == ""
    for spec in ("hf:org/repo:Q5_K_M", "hf:org/repo/other.gguf"):
        with pytest.raises(UsageError, match=r"has no .*; there: Q2_K \(0 MB\), Q4_K_M"):
            plan(spec)


def test_a_model_that_was_split_comes_whole_and_is_opened_by_its_first_part(hub_server: FakeHub):
    parts = {f"Q8_0/m-Q8_0-0000{number}-of-00003.gguf": SMALL + bytes([number]) for number in (1, 2, 3)}
    hub_server.add("org/repo", {**parts, "broken-Q4_0-00001-of-00002.gguf": SMALL})
    path = weights.fetch("hf:org/repo")
    assert path.name == "m-Q8_0-00001-of-00003.gguf"
    assert [(path.parent / Path(name).name).read_bytes() for name in parts] == list(parts.values())
    assert weights.locate("hf:org/repo:Q8_0") == path
    third = path.with_name("m-Q8_0-00003-of-00003.gguf")
    assert weights.locate(str(third)) == path
    third.unlink()
    with pytest.raises(Unavailable, match="has not been fetched"):
        weights.locate("hf:org/repo:Q8_0")
    with pytest.raises(Unavailable, match="part 3 of 3 is missing"):
        weights.locate(str(path))
    assert weights.fetch("hf:org/repo:Q8_0") == weights.locate("hf:org/repo")


def test_a_repository_with_half_a_model_is_told(hub_server: FakeHub):
    hub_server.add("org/half", {"m-Q4_0-00001-of-00002.gguf": SMALL})
    with pytest.raises(Unavailable, match="part 2 of 2 is missing"):
        plan("org/half")


def test_revisions_are_kept_apart(hub_server: FakeHub):
    repo = hub_server.add("org/repo", {"m-Q4_0.gguf": SMALL})
    hub_server.add("org/repo", {"m-Q4_0.gguf": SMALL + b"old"}, "v1")
    hub_server.add("org/repo", {"m-Q4_0.gguf": SMALL + b"pull request"}, "refs/pr/3")
    commit = repo.commit("v1")
    assert weights.fetch("hf:org/repo@v1").read_bytes() == SMALL + b"old"
    with pytest.raises(Unavailable, match="has not been fetched"):
        weights.locate("hf:org/repo@main")
    assert weights.fetch("hf:org/repo:Q4_0@refs/pr/3").read_bytes() == SMALL + b"pull request"
    assert weights.fetch("hf:org/repo").read_bytes() == SMALL
    contents = {
        spec: weights.locate(spec).read_bytes()[len(SMALL) :] for spec in ("org/repo", "org/repo@v1", f"org/repo@{commit}")
    }
    assert list(contents.values()) == [b"", b"old", b"old"]
    with pytest.raises(Rejected, match="no revision v9"):
        plan("hf:org/repo@v9")


def test_a_model_that_is_changed_while_it_is_fetched_is_not_put_together_of_two(hub_server: FakeHub):
    old = {f"m-Q8_0-0000{number}-of-00003.gguf": SMALL + bytes([number]) for number in (1, 2, 3)}
    new = {path: content[:-2] + b"!" for path, content in old.items()}
    commit = hub_server.add("org/repo", old).commit("main")

    def change(done: int, total: int) -> None:
        hub_server.add("org/repo", old, commit)  # still there, by its name
        hub_server.add("org/repo", new)

    with pytest.raises(Unavailable, match="was changed while it was fetched") as caught:
        weights.fetch("hf:org/repo", progress=change)
    assert caught.value.retryable
    path = weights.fetch("hf:org/repo")
    assert weights.locate("hf:org/repo") == path
    assert [(path.parent / name).read_bytes() for name in new] == list(new.values())


def test_a_connection_that_breaks_is_taken_up_where_it_broke(hub_server: FakeHub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub_server.add("org/repo", {"m-Q4_0.gguf": LARGE})
    hub_server.break_after, hub_server.breaks = 11 << 20, 1  # the client writes ten at a time
    assert weights.fetch("org/repo").read_bytes() == LARGE
    begins = [int(asked.removeprefix("bytes=").rstrip("-") or 0) for asked in hub_server.downloads()]
    assert len(begins) == 2 and begins[0] == 0 and begins[1] >= 10 << 20


def test_a_fetch_that_was_ended_goes_on_in_the_next_and_what_it_left_is_checked(hub_server: FakeHub):
    hub_server.add("org/repo", {"m-Q4_0.gguf": LARGE})
    digest = hashlib.sha256(LARGE).hexdigest()
    partial = hub_cache_folder() / "models--org--repo" / "blobs" / f"{digest}.incomplete"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(LARGE[:1000])
    path = weights.fetch("org/repo")
    assert path.read_bytes() == LARGE and hub_server.downloads() == ["bytes=1000-"]
    for left, message in ((b"x" * 1000, "damaged"), (LARGE + b"more", "")):
        path.resolve().unlink(missing_ok=True)
        partial.write_bytes(left)
        if message:
            with pytest.raises(Unavailable, match=message) as caught:
                weights.fetch("org/repo")
            assert caught.value.retryable
        else:
            assert weights.fetch("org/repo").read_bytes() == LARGE
        assert not partial.exists()
    path.resolve().unlink()
    partial.write_bytes(LARGE)  # it was killed when all was there
    assert weights.fetch("org/repo").read_bytes() == LARGE


def test_what_is_damaged_on_its_way_is_thrown_away_and_force_fetches_again(hub_server: FakeHub):
    hub_server.add("org/repo", {"m-Q4_0.gguf": LARGE})
    digest = hashlib.sha256(LARGE).hexdigest()
    hub_server.damage = {digest: b"GGUF" + bytes(len(LARGE) - 4)}
    with pytest.raises(Unavailable, match="damaged; it was thrown away"):
        weights.fetch("org/repo")
    assert blobs() == []
    hub_server.damage = {}
    path = weights.fetch("org/repo")
    path.resolve().write_bytes(bytes(len(LARGE)))
    assert weights.fetch("org/repo", force=True).read_bytes() == LARGE


def test_the_token_goes_to_the_hub_and_to_nobody_else(hub_server: FakeHub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub_server.add("org/gated", {"m-Q4_0.gguf": LARGE}, tokens=frozenset({"hf_secret"}))
    assert weights.fetch("org/gated").read_bytes() == LARGE
    sent = {path.split("/")[1]: token for _, path, token, _ in hub_server.requests if "resolve" in path or "cdn" in path}
    assert sent == {"org": "hf_secret", "cdn": ""}


def test_a_gated_repository_says_where_its_terms_are_accepted_and_how_to_log_in(
    hub_server: FakeHub, monkeypatch: pytest.MonkeyPatch
):
    hub_server.add("org/gated", {"m-Q4_0.gguf": SMALL}, tokens=frozenset({"hf_right"}))
    with pytest.raises(Rejected, match="is gated") as caught:
        weights.fetch("org/gated")
    assert f"{hub_server.url}/org/gated" in caught.value.hint
    assert "hf auth login" in caught.value.hint and "HF_TOKEN" in caught.value.hint
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(Rejected, match="is gated") as caught:
        weights.fetch("org/gated")
    assert caught.value.status == 403 and "account" in caught.value.hint
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert weights.fetch("org/gated").read_bytes() == SMALL


def test_a_repository_that_is_private_or_not_there_says_so(hub_server: FakeHub, monkeypatch: pytest.MonkeyPatch):
    hub_server.add("org/private", {"m-Q4_0.gguf": SMALL}, tokens=frozenset({"hf_right"}), hidden=True)
    for spec in ("hf:org/private", "hf:org/none"):
        with pytest.raises(Rejected, match=f"knows no {spec[3:]} ") as caught:
            weights.fetch(spec)
        assert "HF_TOKEN" in caught.value.hint
    with pytest.raises(Rejected, match="and no file or folder org/none here"):
        weights.fetch("org/none")
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert weights.fetch("hf:org/private").read_bytes() == SMALL


def test_a_hub_that_is_not_there_or_down_says_so(hub_server: FakeHub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub_server.down = 500
    with pytest.raises((Rejected, Unavailable)) as caught:
        weights.fetch("org/repo")
    assert caught.value.retryable
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(Unavailable, match=r"from the hub at http://127\.0\.0\.1:9") as caught:
        weights.fetch("org/repo")
    assert caught.value.retryable and "HF_ENDPOINT" in caught.value.hint


def test_a_checkpoint_is_fetched_without_what_else_is_in_its_repository(hub_server: FakeHub):
    wanted = {"config.json": CONFIG, "tokenizer.json": b"{}", "model.safetensors": b"x" * 100, "chat_template.jinja": b"t"}
    others = {"pytorch_model.bin": b"x" * 100, "onnx/model.onnx": b"x", "run.py": b"x", "README.md": b"#"}
    hub_server.add("org/model", {**wanted, **others})
    folder = weights.fetch("org/model")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == wanted
    assert weights.locate("transformers:org/model") == weights.locate("hf:org/model") == folder


def test_of_both_gguf_is_taken_unless_the_other_is_asked_for(hub_server: FakeHub):
    hub_server.add("org/both", {"m-Q8_0.gguf": SMALL, "config.json": CONFIG, "model.safetensors": b"x" * 100})
    assert plan("org/both").variant.label == "Q8_0"
    assert "safetensors" in plan("org/both").describe()
    assert plan("transformers:org/both").variant.is_checkpoint


def test_a_repository_without_a_model_says_where_one_may_be(hub_server: FakeHub):
    hub_server.add("org/Old", {"pytorch_model.bin": b"x", "config.json": CONFIG})
    with pytest.raises(Unavailable, match="neither GGUF files nor a checkpoint") as caught:
        plan("org/Old")
    assert "pickled" in caught.value.hint and "Old-GGUF" in caught.value.hint


def test_a_file_that_is_no_gguf_is_told(hub_server: FakeHub):
    hub_server.add("org/repo", {"m-Q4_0.gguf": b"<html>"})
    with pytest.raises(Unavailable, match="is not a GGUF file"):
        weights.fetch("org/repo")


def test_without_the_client_of_the_hub_the_part_to_install_is_named(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=r"pip install 'callsmith\[llama\]'"):
        weights.fetch("hf:org/repo")
    with pytest.raises(Unavailable, match="has not been fetched"):
        weights.locate("hf:org/repo")


def test_a_cache_that_cannot_be_written_or_is_full_says_where_another_is_named(
    hub_server: FakeHub, monkeypatch: pytest.MonkeyPatch
):
    hub_server.add("org/repo", {"m-Q4_0.gguf": LARGE})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(Unavailable, match="are needed") as caught:
        weights.fetch("org/repo")
    assert "HF_HUB_CACHE" in caught.value.hint
    shutil.rmtree(hub_cache_folder())
    hub_cache_folder().write_text("a file stands where the folder should")
    with pytest.raises(Unavailable, match="could not write") as caught:
        weights.fetch("org/repo")
    assert "HF_HUB_CACHE" in caught.value.hint
