"""What other programs have put on this machine already: Ollama, LM Studio, llama.cpp, and clients of the Hugging Face hub.

    find_models()                            # all of them, and those that cannot be used, with the reason
    find_model("qwen3:4b")                   # the one of that name, whosever it is; also ollama:qwen3:4b
    find_hub_model(HubName("org/repo"))      # that of a hub's name

Files are only read. Nothing is fetched, and nobody is asked.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from callsmith.core.errors import UsageError
from callsmith.engines.memory import model_memory
from callsmith.models.weights.catalogue import catalogue
from callsmith.models.weights.found.folders import LLAMA, LM_STUDIO, find_llama_models, find_lm_studio_models, find_own_models
from callsmith.models.weights.found.hub_cache import find_cached_models
from callsmith.models.weights.found.model import Finding, FoundModel, SkippedModel
from callsmith.models.weights.found.ollama import PROGRAM as OLLAMA
from callsmith.models.weights.found.ollama import find_ollama_models, find_ollama_projector
from callsmith.models.weights.hub_models import hub_models
from callsmith.models.weights.hub_names import HubName
from callsmith.models.weights.variants import choose_variant

__all__ = [
    "FoundModel",
    "SkippedModel",
    "find_hub_model",
    "find_model",
    "find_models",
    "find_ollama_projector",
    "list_model_names",
]

PREFIXES: Final[Mapping[str, str]] = {"ollama": OLLAMA, "lmstudio": LM_STUDIO, "llama.cpp": LLAMA}


def find_models() -> tuple[list[FoundModel], list[SkippedModel]]:
    """The models on this machine, and those that cannot be used."""
    findings = list(_find_all())
    return (
        [finding for finding in findings if isinstance(finding, FoundModel)],
        [finding for finding in findings if isinstance(finding, SkippedModel)],
    )


def list_model_names() -> list[str]:
    """The names that are known: those of the catalogue, those on this machine, and short ones of the hub's."""
    return list(dict.fromkeys([*catalogue(), *(model.name for model in find_models()[0]), *hub_models()]))


def find_model(spec: str) -> FoundModel | None:
    """The model of that name, also behind the name of its program (`ollama:qwen3:4b`). None if there is none; an error that says
    why if it cannot be used, or if the name means several."""
    prefix, colon, rest = spec.partition(":")
    program = PREFIXES.get(prefix, "") if colon else ""
    name = (rest if program else spec).lower()
    findings = [finding for finding in _find_all() if _is_called(finding, name) and program in ("", finding.program)]
    found = [finding for finding in findings if isinstance(finding, FoundModel)]
    skipped = [finding for finding in findings if isinstance(finding, SkippedModel)]
    if skipped and not found:
        raise UsageError(f"{skipped[0].program} has {spec}, but {skipped[0].reason}", field="model")
    if len({finding.repo.lower() or finding for finding in found}) > 1:
        names = ", ".join(f"{finding.name} of {finding.program}" for finding in found)
        raise UsageError(f"{spec} may be one of several: {names}; name the program too, as in ollama:{name}", field="model")
    return _choose(found)


def find_hub_model(name: HubName) -> FoundModel | None:
    """The model of a hub's name, in whichever program's folder it is; a revision is only known of those in the hub's cache."""
    cached = find_cached_models(name.repo, name.revision)
    others = () if name.revision else chain(find_lm_studio_models(), find_llama_models(), find_own_models(), find_ollama_models())
    found = [
        finding
        for finding in chain(cached, others)
        if isinstance(finding, FoundModel) and finding.repo.lower() == name.repo.lower() and name.matches(finding.variant)
    ]
    return _choose(found)


def _find_all() -> Iterator[Finding]:
    return chain(find_ollama_models(), find_lm_studio_models(), find_cached_models(), find_llama_models(), find_own_models())


def _is_called(finding: Finding, name: str) -> bool:
    """Whether this is one of a model's names: in full, without the tag `latest`, or without its quantisation."""
    full = finding.name.lower()
    repo = finding.repo.lower() if isinstance(finding, FoundModel) else ""
    return name in (full, full.removesuffix(":latest"), repo)


def _choose(found: list[FoundModel]) -> FoundModel | None:
    """Of several quantisations the one that suits this machine; of the same one in several places the first."""
    if len(found) < 2:
        return found[0] if found else None
    chosen = choose_variant([model.variant for model in found], model_memory()).variant
    return next(model for model in found if model.variant is chosen)
