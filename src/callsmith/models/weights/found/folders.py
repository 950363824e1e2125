"""What is in plain folders: those of LM Studio (`PUBLISHER/MODEL/file.gguf`), of older versions of llama.cpp
(`ORG_REPO_file.gguf`), and of users themselves."""

import json
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from callsmith.core.types.tables import as_object, as_text
from callsmith.models.weights.catalogue import weights_folder
from callsmith.models.weights.found.model import LARGEST_JSON, MOST_FILES, Finding, FoundModel, SkippedModel, name_variants
from callsmith.models.weights.variants import WeightFile, list_variants

LM_STUDIO: Final = "LM Studio"
LLAMA: Final = "llama.cpp"
_MANIFEST: Final = "manifest="  # manifest=ORG=REPO=TAG.json, for each repository that something was fetched from


def find_lm_studio_models() -> Iterator[Finding]:
    """The GGUF models of LM Studio, wherever its settings have put them."""
    folders = dict.fromkeys(_models_folder(home) for home in _lm_studio_homes())
    for folder in folders:
        yield from find_in_tree(LM_STUDIO, folder)


def find_own_models() -> Iterator[Finding]:
    """What earlier versions of callsmith have fetched from a hub."""
    return find_in_tree("callsmith", weights_folder() / "hub")


def find_in_tree(program: str, root: Path) -> Iterator[Finding]:
    """The models of a folder in which there is one for each publisher, and in it one for each model."""
    for publisher in list_entries(root):
        for folder in list_entries(publisher):
            if folder.is_dir():
                yield from find_in_folder(program, folder, f"{publisher.name}/{folder.name}")


def find_in_folder(program: str, folder: Path, repo: str) -> Iterator[Finding]:
    """The models whose files are in a folder, or one level below."""
    files = list(islice(list_files(folder), MOST_FILES))
    variants, lacking = list_variants(files)
    usable = [variant for variant in variants if not variant.is_checkpoint]
    for name, variant in name_variants(repo, "", usable).items():
        yield FoundModel(program, name, folder / variant.files[0].path, variant, repo)
    if len(usable) < len(variants):
        yield SkippedModel(program, repo, "it is no GGUF file, but made for another engine")
    for reason in lacking:
        yield SkippedModel(program, repo, reason)


def find_llama_models() -> Iterator[Finding]:
    """The models that older versions of llama.cpp have fetched. The manifests beside them say where a repository's name ends."""
    root = _llama_cache()
    entries = [entry for entry in list_entries(root) if entry.is_file()]
    manifests = [entry.name.removeprefix(_MANIFEST).split("=") for entry in entries if entry.name.startswith(_MANIFEST)]
    repos = {f"{parts[0]}_{parts[1]}_": f"{parts[0]}/{parts[1]}" for parts in manifests if len(parts) == 3}
    prefixes = sorted(repos, key=len, reverse=True)
    by_repo: dict[str, list[Path]] = {}
    for entry in entries:
        prefix = next((prefix for prefix in prefixes if entry.name.startswith(prefix)), "")
        by_repo.setdefault(prefix, []).append(entry)
    for prefix, paths in by_repo.items():
        files = [WeightFile(path.name.removeprefix(prefix), path.stat().st_size) for path in paths]
        variants, lacking = list_variants(files)
        repo = repos.get(prefix, "")
        named = name_variants(repo, "", variants) if repo else {variant.files[0].path: variant for variant in variants}
        for name, variant in named.items():
            yield FoundModel(LLAMA, name, root / f"{prefix}{variant.files[0].path}", variant, repo)
        for reason in lacking:
            yield SkippedModel(LLAMA, repo, reason)


def list_entries(folder: Path) -> list[Path]:
    """What is in a folder, without what is hidden; nothing if it cannot be read."""
    try:
        return sorted(islice((entry for entry in folder.iterdir() if not entry.name.startswith(".")), MOST_FILES))
    except OSError:
        return []


def list_files(folder: Path) -> Iterator[WeightFile]:
    """The files in a folder, and those one level below."""
    for entry in list_entries(folder):
        for file in list_entries(entry) if entry.is_dir() else [entry]:
            try:
                if file.is_file():
                    yield WeightFile(file.relative_to(folder).as_posix(), file.stat().st_size)
            except OSError:
                continue


def _lm_studio_homes() -> list[Path]:
    home = Path.home()
    try:
        pointer = home / ".lmstudio-home-pointer"
        chosen = pointer.read_text("utf-8").strip() if pointer.stat().st_size < 5000 else ""
    except (OSError, ValueError):
        chosen = ""
    return [*([Path(chosen)] if chosen else []), home / ".lmstudio", home / ".cache" / "lm-studio"]


def _models_folder(home: Path) -> Path:
    """Where this LM Studio keeps its models: as its settings say, else in a folder of its own."""
    try:
        settings = home / "settings.json"
        text = settings.read_text("utf-8") if settings.stat().st_size <= LARGEST_JSON else ""
        chosen = as_text(as_object(json.loads(text)).get("downloadsFolder"))
    except (OSError, ValueError, RecursionError):
        chosen = ""
    return Path(chosen) if chosen and "\0" not in chosen else home / "models"


def _llama_cache() -> Path:
    if chosen := os.environ.get("LLAMA_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "llama.cpp"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "llama.cpp"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llama.cpp"
