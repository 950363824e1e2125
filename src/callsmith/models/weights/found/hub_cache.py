"""What the cache of the Hugging Face hub holds: `models--ORG--REPO/snapshots/COMMIT/…`, with the commits of branches and tags in
`refs/`. New versions of llama.cpp keep theirs there, or in the same form where `LLAMA_CACHE` says."""

import json
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from callsmith.core.types.tables import as_list, as_object, as_text
from callsmith.engines.cache_folder import hub_cache_folder
from callsmith.models.weights.found.model import LARGEST_JSON, MOST_FILES, Finding, FoundModel, SkippedModel, name_variants
from callsmith.models.weights.variants import WeightFile, list_variants

PROGRAM: Final = "Hugging Face"
_REPO: Final = re.compile(r"models--([A-Za-z0-9][\w.-]*?)--([A-Za-z0-9][\w.-]*)")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_GENERATES: Final = ("ForCausalLM", "ForConditionalGeneration")


def find_cached_models(only: str = "", revision: str | None = None) -> Iterator[Finding]:
    """The models in the caches; `only` those of one repository, and of one revision (empty: the default branch)."""
    llama = os.environ.get("LLAMA_CACHE", "")
    for program, folder in ((PROGRAM, hub_cache_folder()), ("llama.cpp", Path(llama).expanduser() if llama else None)):
        if folder is None:
            continue
        for repo_folder in [folder / f"models--{only.replace('/', '--')}"] if only else _list_folder(folder):
            if match := _REPO.fullmatch(repo_folder.name):
                yield from _find_in_repo(program, f"{match[1]}/{match[2]}", repo_folder, revision)


def _find_in_repo(program: str, repo: str, folder: Path, wanted: str | None) -> Iterator[Finding]:
    for revision, commit in _list_revisions(folder).items():
        if wanted is not None and wanted not in (revision, commit):
            continue
        snapshot = folder / "snapshots" / commit
        variants, lacking = list_variants(islice(_list_files(snapshot), MOST_FILES))
        usable = [variant for variant in variants if not variant.is_checkpoint or _generates(snapshot)]
        for name, variant in name_variants(repo, revision, usable).items():
            if reason := _lacks_weights(snapshot) if variant.is_checkpoint else "":
                yield SkippedModel(program, name, reason)
            else:
                path = snapshot if variant.is_checkpoint else snapshot / variant.files[0].path
                yield FoundModel(program, name, path, variant, repo, revision)
        for reason in lacking:
            yield SkippedModel(program, repo, reason)


def _list_revisions(folder: Path) -> dict[str, str]:
    """The commits by the branch or tag whose they are, the default branch first as an empty name; others by themselves."""
    refs = folder / "refs"
    known: dict[str, str] = {}
    for place, _, names in islice(os.walk(refs), MOST_FILES):
        for name in sorted(names)[:MOST_FILES]:
            commit = _read_small(Path(place, name)).strip()
            revision = Path(place, name).relative_to(refs).as_posix()
            if _COMMIT.fullmatch(commit):
                known["" if revision == "main" else revision] = commit
    for snapshot in _list_folder(folder / "snapshots"):
        if _COMMIT.fullmatch(snapshot.name) and snapshot.name not in known.values():
            known[snapshot.name] = snapshot.name
    return dict(sorted(known.items()))


def _list_files(snapshot: Path) -> Iterator[WeightFile]:
    """The files of a snapshot, which are links to blobs. Links to folders are not followed; those to nothing are left out."""
    for place, _, names in os.walk(snapshot):
        for name in names:
            file = Path(place, name)
            try:
                yield WeightFile(file.relative_to(snapshot).as_posix(), file.stat().st_size)
            except OSError:
                continue


def _generates(snapshot: Path) -> bool:
    """Whether the checkpoint is a language model, as its configuration says."""
    try:
        config = as_object(json.loads(_read_small(snapshot / "config.json")))
    except (ValueError, RecursionError):
        return False
    return any(as_text(name).endswith(_GENERATES) for name in as_list(config.get("architectures")))


def _lacks_weights(snapshot: Path) -> str:
    """Why the checkpoint is incomplete; empty if it is not."""
    try:
        index = as_object(json.loads(_read_small(snapshot / "model.safetensors.index.json", 32 * LARGEST_JSON) or "{}"))
    except (ValueError, RecursionError):
        return "the list of its files cannot be read"
    names = {as_text(name) for name in as_object(index.get("weight_map")).values()}
    missing = sorted(name for name in names if "/" not in name and not (snapshot / name).is_file())
    return f"{missing[0]} is missing" if missing else ""


def _list_folder(folder: Path) -> list[Path]:
    try:
        return sorted(islice(folder.iterdir(), MOST_FILES))
    except OSError:
        return []


def _read_small(file: Path, most: int = LARGEST_JSON) -> str:
    """The text of a file; empty if it cannot be read, or is longer than such a file may be."""
    try:
        return file.read_text("utf-8") if file.stat().st_size <= most else ""
    except (OSError, ValueError):
        return ""
