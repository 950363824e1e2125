"""Chat, generate and the lists of models, as Ollama has them."""

from callsmith.wire.ollama.requests import OllamaChatFields, OllamaGenerateFields, OllamaShowFields
from callsmith.wire.schemas import Operation

TITLE = "Ollama"
REQUESTS = (OllamaChatFields, OllamaGenerateFields, OllamaShowFields)
TYPES = """
type OllamaTool = partial {type: "function", function!: Function} | FlatFunction
type _End = {
    done_reason?: "stop" | "length" | "load" | "unload"
    total_duration?: integer  // Nanoseconds.
    load_duration?: integer  // Nanoseconds.
    prompt_eval_count?: integer  // Tokens of the prompt.
    prompt_eval_duration?: integer  // Nanoseconds.
    eval_count?: integer  // Tokens of the answer.
    eval_duration?: integer  // Nanoseconds.
    logprobs?: TokenLogprob[], callsmith?: Report
}
type _Message = {
    role: "assistant", content: string, thinking?: string
    tool_calls?: {id: string, function: {index: integer, name: string, arguments: object}}[]
}
type OllamaChatAnswer = {model: string, created_at: string, done: boolean, message: _Message, ..._End}
type OllamaGenerateAnswer = {
    model: string, created_at: string, done: boolean, response: string, thinking?: string, tool_calls?: object[], ..._End
}
type OllamaError = {error: string, request_id?: string}
type _Details = {
    parent_model: string, format: string, family: string, families: string[], parameter_size: string, quantization_level: string
}
type _Tag = {name: string, model: string, size: integer, digest: string, details: _Details}
type OllamaTags = {models: {..._Tag, modified_at: string}[]}
type OllamaRunning = {models: {..._Tag, expires_at: string, size_vram: integer, context_length: integer}[]}
type OllamaModel = {
    modelfile: string, parameters: string, template: string | null, details: _Details, model_info: object
    capabilities: string[], modified_at: string
}
"""

OPERATIONS = {
    "POST /api/chat": Operation(
        "Continue a chat",
        "OllamaChatRequest",
        "OllamaChatAnswer",
        "OllamaChatAnswer | OllamaError",
        example={"messages": [{"role": "user", "content": "Say hello."}], "stream": False},
        error="OllamaError",
        media="application/x-ndjson",
    ),
    "POST /api/generate": Operation(
        "Answer a prompt",
        "OllamaGenerateRequest",
        "OllamaGenerateAnswer",
        "OllamaGenerateAnswer | OllamaError",
        example={"prompt": "Say hello.", "stream": False},
        error="OllamaError",
        media="application/x-ndjson",
    ),
    "GET /api/tags": Operation("List the models", answer="OllamaTags"),
    "GET /api/ps": Operation("List the models that are loaded", answer="OllamaRunning"),
    "POST /api/show": Operation("Describe a model", "OllamaShow", "OllamaModel", example={}, error="OllamaError"),
    "GET /api/version": Operation(
        "The version of Ollama's API, and of this server", answer="{version: string, callsmith: string}"
    ),
}
