"""Names of models on a hub, as people write them:

    hf:org/repo · hf:org/repo:Q4_K_M · org/repo · hf:org/repo/file.gguf · hf.co/org/repo:Q4_K_M · https://huggingface.co/org/repo

`@revision` behind the repository or at the end names a branch, a tag or a commit. Some models have short names (`hub_models`).
"""

import re
from dataclasses import dataclass
from typing import Final

from callsmith.models.weights.hub_models import hub_models
from callsmith.models.weights.variants import CHECKPOINT, Variant

HUB_SCHEME: Final = "hf"
CHECKPOINT_SCHEME: Final = "transformers"  # the engine that opens checkpoints: `transformers:org/repo` wants one
_WORD: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_SPEC: Final = re.compile(
    rf"(?P<prefix>{HUB_SCHEME}:|{CHECKPOINT_SCHEME}:(?:{HUB_SCHEME}:)?|(?:https?://)?(?:www\.)?(?:hf\.co|huggingface\.co)/)?"
    rf"(?P<repo>{_WORD}/{_WORD})(?:@(?P<early>{_WORD}))?"
    rf"(?:/(?:resolve|blob|tree)/(?P<url_revision>{_WORD}|refs%2Fpr%2F\d+))?"
    rf"(?:[:/](?P<file>(?:{_WORD}/)*{_WORD}\.gguf)|:(?P<label>{_WORD}))?/?"
    rf"(?:@(?P<late>{_WORD}(?:/{_WORD})*))?"
)
_LONGEST: Final = 500  # characters of a name


@dataclass(frozen=True, slots=True)
class HubName:
    """A model on a hub: its repository, and which of its models if that is said. `label` is a quantisation, or `CHECKPOINT`."""

    repo: str
    label: str = ""
    file: str = ""
    revision: str = ""
    is_marked: bool = False  # it was written so that it can be nothing but a name on a hub

    def __str__(self) -> str:
        part = f"/{self.file}" if self.file else f":{self.label}" if self.label and self.label != CHECKPOINT else ""
        return f"{self.repo}{part}{'@' if self.revision else ''}{self.revision}"

    def matches(self, variant: Variant) -> bool:
        """Whether the name means this one of the repository's models."""
        if self.file:
            return any(file.path == self.file for file in variant.files)
        return not self.label or self.label.lower() == variant.label.lower()


def parse(spec: str) -> HubName | None:
    """The model on a hub that a text names; None if it names none."""
    if known := hub_models().get(spec):
        return parse(known.hub)
    address = spec.removesuffix("?download=true") if "://" in spec else spec
    match = _SPEC.fullmatch(address) if len(spec) <= _LONGEST else None
    if match is None or (match["early"] and match["late"]):
        return None
    prefix, label = match["prefix"] or "", match["label"] or ""
    if not prefix and (spec.endswith("/") or (not match["file"] and match["repo"].lower().endswith(".gguf"))):
        return None  # a file in a folder, or a folder, which is not there
    if prefix.startswith(CHECKPOINT_SCHEME):
        if match["file"] or label:
            return None
        label = CHECKPOINT
    revision = match["early"] or match["late"] or (match["url_revision"] or "").replace("%2F", "/")
    label = "" if label.lower() == "latest" else label  # as Ollama calls what nobody has chosen
    return HubName(match["repo"], label, match["file"] or "", "" if revision == "main" else revision, bool(prefix))


def is_hub_address(spec: str) -> bool:
    """Whether it is the address of a model's page on the hub, and not of a server."""
    return "://" in spec and parse(spec) is not None
