"""GGUF models that were split into several files: `model-00001-of-00003.gguf`."""

import re
from pathlib import Path
from typing import Final

_SPLIT: Final = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.IGNORECASE)


def split_parts(path: Path) -> list[Path]:
    """All files of a model of which this is one, in order; of a model that was not split, the file itself."""
    match = _SPLIT.search(path.name)
    if match is None:
        return [path]
    stem, ending = path.name[: match.start()], path.suffix
    return [path.with_name(f"{stem}-{number:05}-of-{match[1]}{ending}") for number in range(1, int(match[1]) + 1)] or [path]
