"""GGUF files that belong together: models that were split (`model-00001-of-00003.gguf`), and their projectors (`mmproj`)."""

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

SPLIT: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_LABEL: Final = re.compile(r"(?:^|[-._])(?:UD-)?(I?Q[1-8]\w*|MXFP4\w*|BF16|F16|F32)(?=$|[-._])", re.IGNORECASE)
_PREFERRED: Final = ("F16", "BF16", "Q8_0", "F32")  # projectors: more than half precision is not needed, and less may show


def split_parts(path: Path) -> list[Path]:
    """All files of a model of which this is one, in order; of a model that was not split, the file itself."""
    match = SPLIT.fullmatch(path.name)
    if match is None:
        return [path]
    stem, count, ending = match["stem"], match["count"], path.suffix
    return [path.with_name(f"{stem}-{number:05}-of-{count}{ending}") for number in range(1, int(count) + 1)] or [path]


def choose_projector(model: str, names: Iterable[str]) -> str:
    """Of the names of files beside a model's the one of its projector: one with the model's name in it, else one without any
    name where there is no other model. Empty: there is none."""
    files = sorted(name for name in names if name.lower().endswith(".gguf"))
    projectors = [name for name in files if "mmproj" in name.lower()]
    wanted, models = _bare_name(model), {_bare_name(name) for name in files if name not in projectors}
    own = [name for name in projectors if (bare := _bare_name(name)) and (bare in wanted or wanted in bare)]
    nameless = [name for name in projectors if not _bare_name(name)] if models <= {wanted} else []
    return min(own or nameless, key=_rank, default="")


def _rank(projector: str) -> int:
    label = (_LABEL.findall(PurePosixPath(projector).stem) or [""])[-1].upper()
    return _PREFERRED.index(label) if label in _PREFERRED else len(_PREFERRED)


def _bare_name(file: str) -> str:
    """What a file's name says of the model: without the quantisation, and without what says that it is a projector."""
    match = SPLIT.fullmatch(file)
    stem = match["stem"] if match else PurePosixPath(file).stem
    return re.sub(r"mmproj|model|[^a-z0-9]", "", _LABEL.sub("", stem).lower())
