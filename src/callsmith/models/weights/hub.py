"""Models of a hub: which of a repository's files are taken, and how they come here.

    plan = plan_download(parse("hf:org/repo"))       # asks the hub what there is, and chooses
    download(plan)                                   # → Path, in the cache that all clients of the hub share

The hub is asked by `huggingface_hub`, whose variables count: `HF_TOKEN`, `HF_ENDPOINT`, `HF_HUB_CACHE`, `HF_HUB_OFFLINE`, ….
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from threading import Thread
from typing import Any, Final, NoReturn, TypeAlias
from urllib.parse import urlsplit

from callsmith.core.errors import CallsmithError, MissingExtra, Rejected, Unavailable, UsageError, shorten
from callsmith.core.types.quantities import write_size
from callsmith.engines.cache_folder import hub_cache_folder
from callsmith.engines.memory import model_memory
from callsmith.models.weights.disk import alone, digest_of, is_gguf, require_room
from callsmith.models.weights.hub_names import HubName, parse
from callsmith.models.weights.variants import (
    Variant,
    VariantChoice,
    WeightFile,
    choose_variant,
    find_projector_file,
    list_variants,
)

__all__ = ["DownloadPlan", "HubName", "download", "parse", "plan_download", "plan_first"]

_MOST_FILES: Final = 10_000  # of a repository
_SMALL: Final = 16 << 20  # bytes of a file that is not worth resuming
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_ETAG: Final = re.compile(r"[0-9a-f]{32,64}")

Report: TypeAlias = Callable[[int, int], None]  # bytes that are there, and of how many


@dataclass(frozen=True, slots=True)
class DownloadPlan:
    """What will be fetched for a name, and why that."""

    name: HubName
    commit: str
    choice: VariantChoice
    projector: WeightFile | None = None  # what reads images for the model
    is_gated: bool = False  # its authors ask whoever wants it to accept their terms

    @property
    def variant(self) -> Variant:
        return self.choice.variant

    @property
    def files(self) -> tuple[WeightFile, ...]:
        """All that is fetched."""
        return (*self.variant.files, *([self.projector] if self.projector else []))

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)

    def describe(self) -> str:
        """What was chosen, why, and what else there is, in a line or two."""
        files = f", {len(self.variant.files)} files" if len(self.variant.files) > 1 else ""
        told = f"{self.name.repo}: {self.variant}{files}" + (f": {self.choice.reason}" if self.choice.reason else "")
        if self.projector:
            told += f"\nWith {PurePosixPath(self.projector.path).name} ({write_size(self.projector.size)}), which reads images"
        others = self.choice.others
        if not others:
            return told
        first, listed = others[0], ", ".join(map(str, others[:20])) + (" and more" if len(others) > 20 else "")
        other = HubName(self.name.repo, first.label, "" if first.label else first.files[0].path, self.name.revision)
        example = f"transformers:{self.name.repo}" if first.is_checkpoint else f"hf:{other}"
        return f"{told}\nAlso there: {listed}; another one is taken by its name, as in {example}"


def plan_download(name: HubName, *, seconds: float = 10) -> DownloadPlan:
    """Ask the hub what there is, and choose. Nothing is fetched. `seconds` is how long each step of the answer may take."""
    api = _client(name)
    try:
        info = api.model_info(name.repo, revision=name.revision or None, files_metadata=True, timeout=seconds)
        commit: str = info.sha or ""
        siblings: list[Any] = info.siblings or []
        if not _COMMIT.fullmatch(commit):
            raise ValueError("it names no commit")
        files = [WeightFile(str(item.rfilename), int(item.size or 0), item.lfs.sha256 if item.lfs else "") for item in siblings]
    except Exception as error:  # the client's own, and whatever comes of an answer that is none of a hub
        _explain(error, name)
    if len(files) > _MOST_FILES:
        raise Unavailable(f"{name.repo} has more than {_MOST_FILES} files", hint="Name one: hf:org/repo/file.gguf")
    safe = [file for file in files if _is_safe(file)]
    variants, lacking = list_variants(safe)
    choice = _choose(name, variants, lacking, [file.path for file in files])
    projector = find_projector_file(choice.variant, safe)
    return DownloadPlan(name, commit, choice, projector, is_gated=bool(getattr(info, "gated", None)))


def plan_first(names: Sequence[HubName], seconds: float) -> tuple[DownloadPlan | None, bool]:
    """The plan for the first of these that everybody may have, and whether the hub has answered within so many seconds in all."""
    done: list[DownloadPlan | None] = []

    def ask() -> None:
        for name in names:
            try:
                plan = plan_download(name, seconds=seconds)
            except (Rejected, UsageError):
                continue  # it is not there, or not for everybody
            except CallsmithError:
                return
            if not plan.is_gated:
                done.append(plan)
                return
        done.append(None)

    try:
        _client(names[0])  # which is slow to import, as the library is that knows the memory: the hub is not to blame
        model_memory()
    except CallsmithError:
        return None, False
    asking = Thread(target=ask, daemon=True)  # a hub that hangs keeps nobody from ending
    asking.start()
    asking.join(seconds)
    return (done[0], True) if done else (None, False)


def _choose(name: HubName, variants: list[Variant], lacking: list[str], files: list[str]) -> VariantChoice:
    named = [variant for variant in variants if name.matches(variant)]
    if named and (name.file or name.label):
        return VariantChoice(named[0], "" if len(named) == 1 else "the first of that name", tuple(named[1:]))
    if named:
        return choose_variant(named, model_memory())
    if lacking:
        raise Unavailable(f"{name} is incomplete on the hub: {'; '.join(lacking[:5])}")
    if variants:
        there = ", ".join(map(str, variants[:30]))
        raise UsageError(f"{name.repo} has no {name.file or name.label}; there: {there}", field="model")
    pickled = any(file.endswith((".bin", ".pt", ".pth")) for file in files)
    hint = "Its weights are pickled, and those are not read. " if pickled else ""
    raise Unavailable(
        f"{name.repo} holds neither GGUF files nor a checkpoint in safetensors",
        hint=f"{hint}Often another repository has them: look for {name.repo.rpartition('/')[2]}-GGUF on the hub.",
    )


def download(plan: DownloadPlan, report: Report = lambda done, total: None, *, force: bool = False) -> Path:
    """Fetch what was planned into the shared cache, and what is there already is left alone; `force` fetches it again.

    A download that broke off goes on where it stopped, also in another process. The file, or the folder of a checkpoint.
    """
    api, variant, done = _client(plan.name), plan.variant, 0
    paths: list[Path] = []
    for file in plan.files:
        begin = done

        def report_file(count: int, begin: int = begin) -> None:
            report(begin + count, plan.size)

        try:
            if file.size > _SMALL or force:
                _bring_blob(api, plan, file, report_file, force=force)
            paths.append(
                Path(
                    api.hf_hub_download(
                        plan.name.repo,
                        file.path,
                        revision=plan.name.revision or None,
                        cache_dir=hub_cache_folder(),
                        tqdm_class=_bar(report_file, file.size),
                    )
                )
            )
            if paths[-1].parents[file.path.count("/")].name != plan.commit:
                hint = "Fetch it again; what has stayed the same is kept."
                raise Unavailable(f"{plan.name.repo} was changed while it was fetched", hint=hint, retryable=True)
        except CallsmithError:
            raise
        except Exception as error:
            _explain(error, plan.name)
        done += file.size
        report(done, plan.size)
    if variant.is_checkpoint:
        return paths[0].parent
    if not is_gguf(paths[0]):
        raise Unavailable(f"what the hub has at {plan.name.repo}/{variant.files[0].path} is not a GGUF file")
    return paths[0]


def _bring_blob(api: Any, plan: DownloadPlan, file: WeightFile, report: Callable[[int], None], *, force: bool) -> None:
    """Put the bytes of a large file where the client looks for them before it asks the hub: it would begin anew each time."""
    from huggingface_hub import constants, file_download, utils

    client: Any = file_download
    if file.size > constants.MAX_HTTP_DOWNLOAD_SIZE:  # which the hub sends to its own client alone
        hub_cache_folder().mkdir(parents=True, exist_ok=True)
        require_room(hub_cache_folder(), file.size, "HF_HUB_CACHE")
        return
    url: str = client.hf_hub_url(plan.name.repo, file.path, revision=plan.commit, endpoint=api.endpoint)
    metadata = client.get_hf_file_metadata(url, library_name="callsmith")
    etag: str = metadata.etag or ""
    folder: str = client.repo_folder_name(repo_id=plan.name.repo, repo_type="model")
    if not _ETAG.fullmatch(etag) or metadata.size not in (None, file.size):
        raise ValueError(f"what it says of {file.path} does not fit together")
    blob = hub_cache_folder() / folder / "blobs" / etag
    partial, lock = blob.with_name(f"{etag}.incomplete"), hub_cache_folder() / ".locks" / folder / f"{etag}.lock"
    for made in (blob, lock):
        made.parent.mkdir(parents=True, exist_ok=True)
    with alone(lock):
        if force:
            partial.unlink(missing_ok=True)
            blob.unlink(missing_ok=True)
        if blob.is_file() and blob.stat().st_size == file.size:
            return
        begun = partial.stat().st_size if partial.is_file() else 0
        if begun > file.size:
            partial.unlink()
            begun = 0
        require_room(blob.parent, file.size - begun, "HF_HUB_CACHE")
        headers: dict[str, str] = utils.build_hf_headers(library_name="callsmith")  # pyright: ignore[reportUnknownMemberType]
        if urlsplit(metadata.location)[:2] != urlsplit(url)[:2]:
            headers.pop("authorization", None)  # the token is the hub's alone
        with partial.open("ab") as out:
            client.http_get(
                metadata.location,
                out,
                resume_size=begun,
                headers=headers,
                expected_size=file.size,
                tqdm_class=_bar(report, file.size),
            )
        if partial.stat().st_size != file.size or (file.sha256 and digest_of(partial).hexdigest() != file.sha256):
            partial.unlink()
            raise Unavailable(f"what the hub sent for {file.path} is damaged; it was thrown away", retryable=True)
        partial.replace(blob)


def _bar(report: Callable[[int], None], size: int) -> Any:
    """A progress bar, as the client wants one, that reports; a file that is longer than the hub has said ends there."""

    class Bar:
        def __init__(self, *args: object, initial: int = 0, **others: object) -> None:
            self._done = initial

        def update(self, count: float | None = 1) -> None:
            self._done += int(count or 0)
            if self._done > size:
                raise ValueError(f"it sends more than the {size} bytes that it has announced")
            report(self._done)

        def set_postfix_str(self, *args: object, **others: object) -> None:
            """Says nothing."""

        refresh = close = set_postfix_str

        def __enter__(self) -> "Bar":
            return self

        def __exit__(self, *error: object) -> None:
            """Nothing is left to do."""

    return Bar


def _client(name: HubName) -> Any:
    """The hub's client, whose types are not all known."""
    try:
        from huggingface_hub import HfApi, constants
    except ImportError as error:
        raise MissingExtra("llama", "fetching models from a hub") from error
    if constants.is_offline_mode():
        hint = "`callsmith models` lists what is on this machine."
        raise Unavailable(f"HF_HUB_OFFLINE is set, so that {name} is not fetched", hint=hint)
    return HfApi(library_name="callsmith")


def _is_safe(file: WeightFile) -> bool:
    """Whether the path stays in its folder; others are left out, as if they were not there."""
    parts = file.path.split("/")
    return file.size >= 0 and not any(part in ("", ".", "..") or "\\" in part or ":" in part or "\0" in part for part in parts)


def _explain(error: Exception, name: HubName) -> NoReturn:
    """What went wrong between the hub's client and the hub, for who has named the model."""
    from huggingface_hub import constants, errors
    from huggingface_hub.utils import get_token

    page = f"{constants.ENDPOINT}/{name.repo}"
    token = "the token that is used" if get_token() else "a token: log in with `hf auth login`, or set HF_TOKEN"
    status = error.response.status_code if isinstance(error, errors.HfHubHTTPError) else 0
    if isinstance(error, errors.GatedRepoError):
        who = "Your account needs the right to it, and the token must be one of it" if get_token() else f"Then use {token}"
        raise Rejected(
            f"{name.repo} is gated: its authors ask you to accept its terms first",
            status=status,
            hint=f"Accept them at {page}. {who}.",
        ) from error
    if isinstance(error, errors.RevisionNotFoundError):
        revision = name.revision or "main"
        raise Rejected(f"{name.repo} has no revision {revision} (404)", status=status, hint=f"See {page}") from error
    if isinstance(error, errors.RemoteEntryNotFoundError):
        raise Rejected(f"{name.repo} has no such file (404): {name}", status=status, hint=f"See {page}/tree/main") from error
    if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 403, 404):
        nothing_here = "" if name.is_marked else f", and no file or folder {name.repo} here"
        raise Rejected(
            f"the hub knows no {name.repo}{nothing_here} ({status})",
            status=status,
            hint=f"Check the spelling. If the repository is private, it needs {token}.",
        ) from error
    if status:
        raise Rejected(f"the hub refused {name}: {status}", status=status, retryable=status >= 500 or status == 429) from error
    if isinstance(error, OSError) and error.errno:
        hint = "Make room, or set HF_HUB_CACHE to another folder."
        raise Unavailable(f"could not write {error.filename or hub_cache_folder()}: {error.strerror}", hint=hint) from error
    why = shorten(" ".join(str(error).split()) or type(error).__name__)
    raise Unavailable(
        f"cannot fetch {name} from the hub at {constants.ENDPOINT}: {why}",
        hint="Check the network, or set HF_ENDPOINT to a mirror. What has arrived is kept.",
        retryable=True,
    ) from error
