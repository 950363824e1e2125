"""Advice: which server is checked, and what its operator can do about what is wrong."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from callsmith.core.types.tables import as_object, as_objects, as_text
from callsmith.evals.check.exchange import Exchange

ServerKind: TypeAlias = Literal[
    "callsmith", "vLLM", "SGLang", "llama.cpp", "Ollama", "LiteLLM", "LM Studio", "transformers serve", "unknown"
]

_OWNERS: dict[str, ServerKind] = {
    "callsmith": "callsmith",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp",
    "library": "Ollama",
    "organization_owner": "LM Studio",
}
_BEHIND = "callsmith serve --model completions:URL in front of it"  # the prompts and grammars are ours, the weights are its

# By what a finding is about: the group of its probe.
_ADVICE: dict[ServerKind, dict[str, str]] = {
    "vLLM": {
        "calls": "Start it with --enable-auto-tool-choice and --tool-call-parser for this model; or use callsmith's parser: "
        "pip install callsmith, --tool-call-parser callsmith (docs/servers.md).",
        "choices": "callsmith's parser holds required and named calls: --tool-call-parser callsmith (docs/servers.md).",
        "schemas": "callsmith's parser constrains such calls and reads them: --tool-call-parser callsmith (docs/servers.md).",
        "history": "Its chat template refuses this history: --chat-template with one that takes tools.",
    },
    "SGLang": {
        "calls": "Start it with --tool-call-parser for this model, or callsmith's (docs/servers.md).",
        "choices": "callsmith's detector constrains required and named calls: --tool-call-parser callsmith (docs/servers.md).",
        "schemas": "callsmith's detector constrains calls to their schemas: --tool-call-parser callsmith (docs/servers.md).",
    },
    "llama.cpp": {
        "calls": f"Has its chat template tools (--chat-template-file)? {_BEHIND} reads the calls of all formats.",
        "choices": f"{_BEHIND} holds calls by grammars of its own (docs/servers.md).",
        "schemas": f"{_BEHIND} holds calls by grammars of its own (docs/servers.md).",
        "history": "Its chat template refuses this history: --chat-template-file with one that takes tools.",
    },
    "Ollama": {
        "calls": "The model's template must know tools: `ollama show` lists them among its capabilities.",
        "choices": "Ollama ignores tool_choice: callsmith in front of it (callsmith serve --model URL) does not.",
        "schemas": "Ollama does not constrain calls: callsmith in front of it (callsmith serve --model URL) checks them.",
    },
    "LiteLLM": dict.fromkeys(
        ("calls", "choices", "schemas", "history", "outputs"),
        "LiteLLM passes on what the server behind it says: check that one too.",
    ),
}
_ANY: dict[str, str] = {
    "calls": "callsmith serve --model URL#MODEL in front of it reads the calls that this server leaves in the text.",
    "choices": "callsmith serve --model URL#MODEL in front of it validates required calls, and asks once more.",
    "schemas": "callsmith serve --model URL#MODEL in front of it validates calls, and asks once more.",
    "outputs": "callsmith serve --model URL#MODEL in front of it validates structured output, and asks once more.",
}


def identify(listed: Exchange, answered: Sequence[Exchange] = ()) -> ServerKind:
    """Which server this seems to be, by its list of models and what else it has answered."""
    if any(name.startswith("x-litellm") for item in (listed, *answered) for name in item.headers):
        return "LiteLLM"
    if listed.headers.get("server", "").startswith("callsmith"):
        return "callsmith"
    if any(as_text(as_object(item.json()).get("model")).endswith("@main") for item in answered):
        return "transformers serve"
    for item in as_objects(as_object(listed.json()).get("data")):
        if kind := _OWNERS.get(as_text(item.get("owned_by"))):
            return kind
    return "unknown"


def advice(server: ServerKind, probe: str) -> str:
    """What to do about a finding of this probe; empty where there is nothing to say."""
    if server == "callsmith":
        return ""
    group = probe.partition(".")[0]
    return _ADVICE.get(server, {}).get(group) or _ANY.get(group, "")
