"""The list of models as Codex reads it: beside `data`, an array `models` that says how each is to be used.

Codex asks for `/v1/models?client_version=…` where a provider has a key of its own; an entry that lacks one of these fields spoils
the whole list. From the entry it takes how long the context is, so that it compacts a conversation in time, and its instructions:
a few lines, for models whose context is small.
"""

from collections.abc import Iterable

from callsmith.core.values import Json
from callsmith.wire.model_lists.listed_model import ListedModel

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
