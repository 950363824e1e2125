"""GGUF models that were split into several files: `model-00001-of-00003.gguf`."""

import re
from pathlib import Path
from typing import Final

SPLIT: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)


def split_parts(path: Path) -> list[Path]:
    """All files of a model of which this is one, in order; of a model that was not split, the file itself."""
    match = SPLIT.fullmatch(path.name)
    if match is None:
        return [path]
    stem, count, ending = match["stem"], match["count"], path.suffix
    return [path.with_name(f"{stem}-{number:05}-of-{count}{ending}") for number in range(1, int(count) + 1)] or [path]
