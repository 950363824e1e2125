"""A model that another program has put on this machine."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from callsmith.models.weights.variants import CHECKPOINT, Variant

MOST_FILES: Final = 20_000  # of one program; more are not looked at
LARGEST_JSON: Final = 1 << 20  # bytes of a file that describes a model


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model on this machine: the program whose it is, what it is called there, and its file or the folder of a checkpoint.

    `repo`, `variant` and `revision` say what it is on a hub, where that is known.
    """

    program: str
    name: str
    path: Path
    variant: Variant
    repo: str = ""
    revision: str = ""

    @property
    def size(self) -> int:
        return self.variant.size


@dataclass(frozen=True, slots=True)
class SkippedModel:
    """A model that cannot be used, and why."""

    program: str
    name: str
    reason: str


Finding: TypeAlias = FoundModel | SkippedModel


def name_variants(repo: str, revision: str, variants: list[Variant]) -> dict[str, Variant]:
    """The models of a repository by the names that mean them: `org/repo:Q4_K_M`, or `org/repo/file.gguf` where others share the
    label or there is none."""
    labels = Counter(variant.label for variant in variants)
    at = f"@{revision}" if revision else ""
    named: dict[str, Variant] = {}
    for variant in variants:
        alone = variant.label and labels[variant.label] == 1
        part = "" if variant.label == CHECKPOINT else f":{variant.label}" if alone else f"/{variant.files[0].path}"
        named[f"{repo}{at if alone else ''}{part}{'' if alone else at}"] = variant
    return named
