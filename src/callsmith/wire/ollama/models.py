"""Models as Ollama's dialect writes them: `/api/tags`, `/api/ps`, `/api/show`."""

from hashlib import sha256

from callsmith.core.values import Json
from callsmith.wire.model_lists.listed_model import ListedModel, write_moment

_NEVER = "9999-12-31T23:59:59Z"


def write_tag(about: ListedModel) -> dict[str, Json]:
    """A model in the list of models. Its digest is one of its name: clients only want to tell models apart by it."""
    return {
        "name": about.name,
        "model": about.name,
        "modified_at": about.created_at,
        "size": about.info.weights.size,
        "digest": sha256(about.name.encode()).hexdigest(),
        "details": _write_details(about),
    }


def write_running(about: ListedModel) -> dict[str, Json]:
    """A model in the list of those that are loaded; its size is what it takes of the memory."""
    info = about.info
    running = {
        **write_tag(about),
        "size": info.memory or info.weights.size,
        "expires_at": _NEVER if about.expires is None else write_moment(about.expires),
        "size_vram": 0,
        "context_length": info.context or 0,
    }
    del running["modified_at"]
    return running


def write_show(about: ListedModel) -> dict[str, Json]:
    """All that is known of a model."""
    weights = about.info.weights
    family = weights.architecture or "unknown"
    known = {
        "general.parameter_count": weights.parameters,
        f"{family}.context_length": about.info.context,  # what is served, which may be less than the model was trained for
    }
    return {
        "modelfile": "",
        "parameters": "",
        "template": about.info.template,
        "details": _write_details(about),
        "model_info": {"general.architecture": family, "general.basename": about.name, **_without_empty(known)},
        "capabilities": ["completion", "tools", *(["thinking"] if about.info.thinks else [])],
        "modified_at": about.created_at,
    }


def _write_details(about: ListedModel) -> dict[str, Json]:
    weights = about.info.weights
    return {
        "parent_model": "",
        "format": weights.format,
        "family": weights.architecture,
        "families": [weights.architecture] if weights.architecture else [],
        "parameter_size": weights.size_label or _write_count(weights.parameters),
        "quantization_level": weights.quantization,
    }


def _without_empty(fields: dict[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in fields.items() if value}


def _write_count(number: int) -> str:
    """A number of parameters as people write it: 1.5B, 134.52M."""
    for unit, letter, digits in ((1e9, "B", 1), (1e6, "M", 2), (1e3, "K", 0)):
        if number >= unit:
            return f"{number / unit:.{digits}f}{letter}"
    return str(number) if number else ""
