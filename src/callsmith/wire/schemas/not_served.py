"""What clients of other servers ask for and this one does not do: the paths, and the sentence that says where to go."""

from typing import Final

from callsmith.wire.schemas import Operation

TITLE = "Not served"

_ELSEWHERE: Final = (
    "ask a server that is made for it, such as llama-server with --{option}, Ollama, vLLM or text-embeddings-inference, "
    "and keep this one for chat and tools"
)
_EMBEDDINGS: Final = f"no embeddings are computed here: {_ELSEWHERE.format(option='embeddings')}"
_RERANKING: Final = f"no documents are ranked here: {_ELSEWHERE.format(option='reranking').replace('Ollama, ', '')}"

# Each path, and why it is not served.
NOT_SERVED: Final = {
    **dict.fromkeys(("/v1/embeddings", "/embeddings", "/embedding", "/api/embed", "/api/embeddings"), _EMBEDDINGS),
    **dict.fromkeys(("/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking"), _RERANKING),
}

OPERATIONS = {
    f"{method} {path}": Operation(
        f"Not served: {why.partition(':')[0]}", answer="Error", error="OllamaError" if path.startswith("/api/") else "Error"
    )
    for path, why in NOT_SERVED.items()
    for method in ("GET", "POST")
}
