"""Folders of models as other programs write them: Ollama, LM Studio, llama.cpp, and clients of the Hugging Face hub."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

CONTENT = b"GGUF" + bytes(range(256)) * 8


def write_ollama(root: Path, name: str, content: bytes | Path | None = CONTENT, projector: Path | None = None) -> Path:
    """A model as `ollama pull` leaves it: a manifest at HOST/NAMESPACE/MODEL/TAG, and blobs by their digests; without content one
    that runs in the cloud. The blob of its weights."""
    blobs = root / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)

    def keep(data: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / f"sha256-{digest}").write_bytes(data)
        return {"mediaType": f"application/vnd.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    data = content.read_bytes() if isinstance(content, Path) else content
    model = [keep(data, "ollama.image.model")] if data is not None else []
    if projector:
        model += [keep(projector.read_bytes(), "ollama.image.projector")]
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": keep(b'{"model_format":"gguf"}', "docker.container.image.v1+json"),
        "layers": [*model, keep(b"{{ .Prompt }}", "ollama.image.template"), keep(b"MIT", "ollama.image.license")],
    }
    file = root / "manifests" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(manifest))
    return blobs / f"sha256-{hashlib.sha256(data or b'').hexdigest()}"


def write_lm_studio(home: Path, model: str, *files: str) -> list[Path]:
    """Files of a model in LM Studio's folder, PUBLISHER/MODEL. The folder."""
    folder = home / "models" / model
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).write_bytes(CONTENT)
    return [folder]


def write_flat(cache: Path, org: str, repo: str, tag: str, *files: str) -> None:
    """Files as `llama-server -hf` left them until it took the hub's cache: all in one folder, with a manifest and ETags."""
    cache.mkdir(parents=True, exist_ok=True)
    (cache / f"manifest={org}={repo}={tag}.json").write_text(json.dumps({"ggufFile": {"rfilename": files[0]}}))
    for name in files:
        (cache / f"{org}_{repo}_{name}").write_bytes(CONTENT)
        (cache / f"{org}_{repo}_{name}.etag").write_text('"abc"')


def write_cached(cache: Path, repo: str, files: Mapping[str, bytes], revision: str = "main") -> Path:
    """A repository in the cache of the hub: blobs, a snapshot of links to them, and the commit of a branch. The snapshot."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    commit = hashlib.sha1(f"{repo}{revision}".encode()).hexdigest()
    (folder / "blobs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / revision).parent.mkdir(parents=True, exist_ok=True)
    (folder / "refs" / revision).write_text(commit)
    snapshot = folder / "snapshots" / commit
    for name, content in files.items():
        blob = folder / "blobs" / hashlib.sha256(content).hexdigest()
        blob.write_bytes(content)
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).symlink_to(Path("../" * (2 + name.count("/"))) / "blobs" / blob.name)
    return snapshot
