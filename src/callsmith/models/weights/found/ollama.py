"""What Ollama holds: manifests (`manifests/HOST/NAMESPACE/MODEL/TAG`) that name blobs (`blobs/sha256-…`) by their digests."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from callsmith.core.types.tables import as_list, as_object, as_text
from callsmith.core.values import Json
from callsmith.models.weights.disk import is_gguf
from callsmith.models.weights.found.model import LARGEST_JSON, MOST_FILES, Finding, FoundModel, SkippedModel
from callsmith.models.weights.variants import Variant, WeightFile

PROGRAM: Final = "Ollama"
_HOST, _NAMESPACE = "registry.ollama.ai", "library"  # that nobody writes
_HUB_HOSTS: Final = ("hf.co", "huggingface.co")
_MODEL: Final = "application/vnd.ollama.image.model"
_PROJECTOR: Final = "application/vnd.ollama.image.projector"
_DIGEST: Final = re.compile(r"sha256[:-]([0-9a-f]{64})")
_LEVELS: Final = 4


def find_ollama_models() -> Iterator[Finding]:
    """The models of Ollama, and those that it has in a form that only Ollama runs."""
    root = _root()
    for manifest in _manifests(root):
        host, namespace, model, tag = manifest.parts[-_LEVELS:]
        place = "" if host == _HOST and namespace == _NAMESPACE else f"{namespace}/" if host == _HOST else f"{host}/{namespace}/"
        name = f"{place}{model}:{tag}"
        found = _read_model(root / "blobs", manifest)
        if isinstance(found, str):
            yield SkippedModel(PROGRAM, name, found)
            continue
        repo = f"{namespace}/{model}" if host in _HUB_HOSTS else ""
        variant = Variant(tag if repo and tag != "latest" else "", (WeightFile(found.name, found.stat().st_size),))
        yield FoundModel(PROGRAM, name, found, variant, repo)


def find_ollama_projector(weights: Path) -> Path | None:
    """The projector of a model of Ollama: a blob that the same manifest names."""
    root = _root()
    if not weights.is_relative_to(root / "blobs"):
        return None
    for manifest in _manifests(root):
        layers = _read_layers(manifest)
        if not isinstance(layers, str) and weights in _blobs(root / "blobs", layers, _MODEL):
            return next((blob for blob in _blobs(root / "blobs", layers, _PROJECTOR) if blob and blob.is_file()), None)
    return None


def _root() -> Path:
    return Path(os.environ.get("OLLAMA_MODELS") or Path.home() / ".ollama" / "models").expanduser()


def _manifests(root: Path) -> Iterator[Path]:
    return islice(_paths(root / "manifests", _LEVELS), MOST_FILES)


def _paths(folder: Path, levels: int) -> Iterator[Path]:
    """The files so many levels down. No more are gone down, so that links in a circle end."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError:
        return
    for entry in entries:
        if levels > 1:
            yield from _paths(entry, levels - 1)
        elif entry.is_file():
            yield entry


def _read_model(blobs: Path, manifest: Path) -> Path | str:
    """The file of a model, or why there is none."""
    layers = _read_layers(manifest)
    if isinstance(layers, str):
        return layers
    models = _blobs(blobs, layers, _MODEL)
    if not models:
        return "it has no GGUF file: it runs in Ollama's cloud, or only in Ollama"
    if len(models) > 1:
        return f"its weights are in {len(models)} files"
    blob = models[0]
    if blob is None:
        return "its manifest names its weights by something that is no digest"
    try:
        if not blob.is_file():
            return f"its weights are missing: there is no {blob.name}"
        return blob if is_gguf(blob) else "its weights are no GGUF file"
    except OSError as error:
        return f"its weights cannot be read: {error.strerror or error}"


def _blobs(blobs: Path, layers: Iterable[Mapping[str, Json]], kind: str) -> list[Path | None]:
    """The files of the layers of this kind; None for one that is named by something that is no digest."""
    digests = [_DIGEST.fullmatch(as_text(layer.get("digest"))) for layer in layers if as_text(layer.get("mediaType")) == kind]
    return [blobs / f"sha256-{digest[1]}" if digest else None for digest in digests]


def _read_layers(manifest: Path) -> list[Mapping[str, Json]] | str:
    try:
        if manifest.stat().st_size > LARGEST_JSON:
            return f"its manifest is larger than {LARGEST_JSON >> 20} MiB"
        document = as_object(json.loads(manifest.read_text("utf-8")))
    except (OSError, ValueError, RecursionError):
        return "its manifest cannot be read"
    return [as_object(layer) for layer in as_list(document.get("layers"))]
