"""Which models a list of files holds, in which quantisations, and which of them suits this machine.

    variants = list_variants([WeightFile("m-Q4_K_M.gguf", 2_500_000_000), WeightFile("m-Q8_0.gguf", 4_300_000_000)])
    choose_variant(variants, room=6_000_000_000).variant.label       # → "Q4_K_M"

The files may be those of a repository on a hub, or of a folder on this machine.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final

from callsmith.core.types.quantities import write_size
from callsmith.engines.memory import ROOM
from callsmith.engines.split_gguf import SPLIT, choose_projector

CHECKPOINT: Final = "safetensors"  # the label of a checkpoint, which is a folder of files
USUAL: Final = "Q4_K_M"  # what most programs take where nobody chooses
_LABEL: Final = re.compile(
    r"(?:^|[-._])((?:UD-)?I?Q[1-8](?:_(?:K|[0-9]|NL|XXS|XS|S|M|L|XL))*|TQ[12]_0|MXFP4(?:_MOE)?|NVFP4|BF16|FP?16|FP?32)(?=$|[-._])",
    re.IGNORECASE,
)
_BESIDE_A_MODEL: Final = ("*mmproj*", "*imatrix*", "mtp-*")  # what comes with one, and is none
_CHECKPOINT_FILES: Final = ("*.json", "*.jinja", "*.txt", "*.model", "model*.safetensors")
_WEIGHTS: Final = "model*.safetensors"


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A file by its path inside a repository or a folder. `sha256` is empty where it is not known."""

    path: str
    size: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Variant:
    """One model in one quantisation: its label (`Q4_K_M`; empty if no name says it) and its files, in order. A checkpoint's label
    is `CHECKPOINT`."""

    label: str
    files: tuple[WeightFile, ...]

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def is_checkpoint(self) -> bool:
        return self.label == CHECKPOINT

    @property
    def title(self) -> str:
        """What it is called in a list of variants."""
        return self.label or PurePosixPath(self.files[0].path).name

    def __str__(self) -> str:
        return f"{self.title} ({write_size(self.size)})"


@dataclass(frozen=True, slots=True)
class VariantChoice:
    """The variant that was chosen, why, and what else there is."""

    variant: Variant
    reason: str
    others: tuple[Variant, ...] = ()


def list_variants(files: Iterable[WeightFile]) -> tuple[list[Variant], list[str]]:
    """The models among these files, GGUF first, and why some are none: models that were split and lack a part."""
    listed = list(files)
    whole: list[Variant] = []
    split: dict[tuple[str, int], dict[int, WeightFile]] = {}
    for file in sorted(listed, key=lambda file: (file.path.count("/"), file.path)):
        name = PurePosixPath(file.path).name.lower()
        if not name.endswith(".gguf") or any(fnmatchcase(name, pattern) for pattern in _BESIDE_A_MODEL):
            continue
        if match := SPLIT.fullmatch(file.path):
            split.setdefault((match["stem"], int(match["count"])), {})[int(match["number"])] = file
        else:
            whole.append(Variant(read_label(file.path), (file,)))
    lacking: list[str] = []
    for (stem, count), parts in split.items():
        missing = next((number for number in range(1, count + 1) if number not in parts), None)
        if missing is None and len(parts) == count:
            whole.append(Variant(read_label(f"{stem}.gguf"), tuple(parts[number] for number in sorted(parts))))
        else:
            lacking.append(f"{stem}: part {missing or 1} of {count} is missing")
    return [*whole, *_list_checkpoint(listed)], lacking


def find_projector_file(variant: Variant, files: Iterable[WeightFile]) -> WeightFile | None:
    """The file among these that reads images for the model, and lies where it is found: beside it."""
    if variant.is_checkpoint:
        return None
    model = PurePosixPath(variant.files[0].path)
    near = {PurePosixPath(file.path).name: file for file in files if PurePosixPath(file.path).parent == model.parent}
    name = choose_projector(model.name, near)
    return near[name] if name else None


def read_label(path: str) -> str:
    """The quantisation that the name of a file says, else that of its folder; empty if none does."""
    file = PurePosixPath(path)
    for name in (file.stem, file.parent.name):
        if labels := _LABEL.findall(name):
            return labels[-1].upper()
    return ""


def choose_variant(variants: Sequence[Variant], room: int | None) -> VariantChoice:
    """The variant to take where nobody says which: GGUF before a checkpoint, the usual quantisation if it fits into `room` bytes
    of memory, else the largest that does. `room` None: it is not known."""
    candidates = [variant for variant in variants if not variant.is_checkpoint] or list(variants)
    fitting = [variant for variant in candidates if room is None or variant.size * ROOM <= room]
    free = "how much memory is free is not known here" if room is None else f"{write_size(room)} of memory are free"
    usual = [variant for variant in fitting if variant.label == USUAL]
    if len(candidates) == 1 and fitting:
        chosen, reason = fitting[0], f"the only one; {free}"
    elif usual:
        chosen, reason = usual[0], f"the usual one; {free}"
    elif fitting:
        small = [variant for variant in fitting if _bits(variant) <= 8] or fitting
        chosen, reason = max(small, key=lambda variant: variant.size), f"the largest that fits; {free}"
    else:
        chosen = min(candidates, key=lambda variant: variant.size)
        reason = f"none fits: it needs about {write_size(int(chosen.size * ROOM))}, and {free}"
    return VariantChoice(chosen, reason, tuple(variant for variant in variants if variant is not chosen))


def _bits(variant: Variant) -> int:
    """About how many bits a number of the model has."""
    digits = re.search(r"\d+", variant.label)
    return int(digits[0]) if digits else 16


def _list_checkpoint(files: Sequence[WeightFile]) -> list[Variant]:
    """The checkpoint at the top of the folder, if there is one; its weights come first."""
    at_top = [file for file in files if "/" not in file.path]
    top = [file for file in at_top if any(fnmatchcase(file.path, pattern) for pattern in _CHECKPOINT_FILES)]
    weights = [file for file in top if fnmatchcase(file.path, _WEIGHTS)]
    if not weights or not any(file.path == "config.json" for file in top):
        return []
    return [Variant(CHECKPOINT, (*weights, *(file for file in top if file not in weights)))]
