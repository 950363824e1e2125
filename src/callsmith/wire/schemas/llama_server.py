"""What clients of llama-server and vLLM ask for besides."""

from callsmith.wire.llama_server import CompletionFields, DetokenizeFields, NativeTokenizeFields, TokenizeFields
from callsmith.wire.schemas import Operation, Parameter

TITLE = "llama-server, vLLM"
REQUESTS = (CompletionFields, NativeTokenizeFields, TokenizeFields)
TYPES = """
type CompletionAnswer = {
    index: integer, content: string, stop: boolean, model?: string, prompt?: string, stop_type?: "limit" | "word" | "eos"
    stopping_word?: string, tokens_evaluated?: integer, tokens_predicted?: integer, tokens_cached?: integer, truncated?: false
    completion_probabilities?: TokenLogprob[]
}
type TokenizeRequest = NativeTokenize | VllmTokenize | ChatRequest  // llama-server's shape, vLLM's, or a chat.
type Tokens =
    | {tokens: (integer | {id: integer, piece: string | integer[]})[]}
    | {count: integer, max_model_len: integer | null, tokens: integer[], token_strs: string[] | null}
type Properties = {
    model_alias: string, model_path: string, chat_template: string | null, modalities: object
    default_generation_settings: {n_ctx: integer | null, temperature: number | null, top_p: number | null}
}
"""

OPERATIONS = {
    "POST /completion": Operation(
        "Continue a text",
        "CompletionRequest",
        "CompletionAnswer",
        "CompletionAnswer | Error",
        example={"prompt": "Once upon a time", "n_predict": 16},
    ),
    "POST /tokenize": Operation("The tokens of a text or a chat", "TokenizeRequest", "Tokens", example={"content": "Hello"}),
    "POST /detokenize": Operation(
        "The text of tokens", DetokenizeFields, "{content: string, prompt: string}", example={"tokens": [1, 2, 3]}
    ),
    "GET /props": Operation(
        "Properties of a model",
        answer="Properties",
        parameters=(Parameter("model", "Which model; without it the first one."),),
    ),
}
