"""`ListedModel`: a model as the lists of all dialects have it; and the lists of Codex and of Ollama.

Codex asks for `/v1/models?client_version=…` where a provider has a key of its own, and reads an array `models` beside `data`. An
entry that lacks one of these fields spoils the whole list. From the entry it takes how long the context is, so that it compacts a
conversation in time, and its instructions: a few lines, for models whose context is small.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256

from callsmith.core.ports import ModelInfo
from callsmith.core.values import Json

_UNKNOWN = ModelInfo()


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model in a list: since when it is served (Unix time), what is known of it, and whether it is loaded. An alias is listed
    with what is known of the model it means, `alias_of`. `expires` is when it will be unloaded (Unix time), None: never."""

    name: str
    created: int = 0
    info: ModelInfo = _UNKNOWN
    is_loaded: bool = True
    alias_of: str = ""
    expires: float | None = None

    @property
    def created_at(self) -> str:
        """Since when it is served, as a date."""
        return write_moment(self.created)


def write_moment(seconds: float) -> str:
    """A Unix time as a date: `2026-11-16T08:00:00Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


QUERY = "client_version"  # the parameter by which it is known
_OUTPUT_BYTES = 10_000  # of what a command prints
_INSTRUCTIONS = """\
You are a coding agent in the user's terminal. The current folder is the user's project.
- Do what was asked, and no more. Look at files before you say what is in them or change them.
- Use your tools: read, search and edit with commands. One step at a time; look at the result before the next one.
- Keep changes small and in the style of the code around them. Run the project's tests after a change, if there are any.
- Never delete or overwrite work that is not yours, and do not commit, unless the user asks for it.
- When you are done, say in a few sentences what you changed and what you saw. If something failed, say so."""


def write_codex_models(models: Iterable[ListedModel]) -> list[dict[str, Json]]:
    """The entries of these models; the first one is what Codex offers first."""
    return [_write_model(model, number) for number, model in enumerate(models)]


def _write_model(model: ListedModel, number: int) -> dict[str, Json]:
    info = model.info
    return {
        "slug": model.name,
        "display_name": model.name,
        "description": info.description or info.name or model.name,
        "supported_reasoning_levels": [],
        "shell_type": "shell_command",
        "apply_patch_tool_type": "freeform",  # a custom tool, whose text its grammar holds
        "visibility": "list",
        "supported_in_api": True,
        "priority": number,
        "base_instructions": _INSTRUCTIONS,
        "supports_reasoning_summaries": False,
        "support_verbosity": False,
        "truncation_policy": {"mode": "bytes", "limit": _OUTPUT_BYTES},
        "supports_parallel_tool_calls": True,
        "context_window": info.context,
        "experimental_supported_tools": [],
        "input_modalities": ["text"],
    }


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
    known: dict[str, Json] = {"general.architecture": family, "general.basename": about.name}
    if weights.parameters:
        known["general.parameter_count"] = weights.parameters
    if about.info.context:  # what is served, which may be less than the model was trained for
        known[f"{family}.context_length"] = about.info.context
    return {
        "modelfile": "",
        "parameters": "",
        "template": about.info.template,
        "details": _write_details(about),
        "model_info": known,
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


def _write_count(number: int) -> str:
    """A number of parameters as people write it: 1.5B, 134.52M."""
    for unit, letter, digits in ((1e9, "B", 1), (1e6, "M", 2), (1e3, "K", 0)):
        if number >= unit:
            return f"{number / unit:.{digits}f}{letter}"
    return str(number) if number else ""
