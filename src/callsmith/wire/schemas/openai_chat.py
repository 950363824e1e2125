"""Chat completions, completions and the list of models."""

from callsmith.wire.openai.chat import ChatFields, FlatToolFields
from callsmith.wire.openai.completions import CompletionsFields
from callsmith.wire.schemas import Operation, Parameter

TITLE = "OpenAI Chat Completions"
REQUESTS = (ChatFields, CompletionsFields, FlatToolFields)
TYPES = """
type _Part = partial {
    type: "text" | "input_text" | "output_text" | "refusal" | "image_url" | "input_image"
    text: string, refusal: string, detail: string
    image_url: string | partial {url!: string, detail: string}  // http(s): or data:
    file_id: never  // Refused: files are not stored here.
}
type _Arguments = string | object
type ChatMessage = partial {
    role!: "system" | "developer" | "user" | "assistant" | "tool" | "function"
    content: string | (string | _Part)[]
    name: string
    tool_call_id: string  // Of a tool's message: the call that it answers.
    tool_calls: partial {
        id: string, type: "function" | "custom", name: string, arguments: _Arguments, input: string
        function: partial {name!: string, arguments: _Arguments}
        custom: partial {name!: string, input: string}
    }[]
    function_call: partial {type: string, function: object, name!: string, arguments: _Arguments}  // Deprecated.
    reasoning_content: string
    reasoning: string  // As reasoning_content.
    refusal: string | null  // Read as the content, where there is none.
}
type _Heading = {
    id: string
    created: integer  // Unix time.
    model: string
}
type _Logprobs = {content: TokenLogprob[], refusal: string | null} | null
type _Reason = "stop" | "length" | "content_filter" | "tool_calls" | "function_call"
type _Function = {name: string, arguments: string}
type _Message = {
    role: "assistant", content: string | null, refusal: null, reasoning_content?: string, reasoning?: string
    tool_calls?: (
        {id: string, type: "function", function: _Function} | {id: string, type: "custom", custom: {name: string, input: string}}
    )[]
    function_call?: _Function
}
type ChatCompletion = {
    ..._Heading
    object: "chat.completion"
    choices: {index: integer, message: _Message, logprobs: _Logprobs, finish_reason: _Reason}[]
    usage: Usage
    callsmith?: Report
}
type _Delta = {
    role?: "assistant", content?: string, reasoning_content?: string, reasoning?: string
    function_call?: {name?: string, arguments: string}
    tool_calls?: {
        index: integer, id?: string, type?: "function" | "custom"
        function?: {name?: string, arguments: string}, custom?: {name?: string, input: string}
    }[]
}
type ChatChunk = {
    ..._Heading
    object: "chat.completion.chunk"
    choices: {index: integer, delta: _Delta, logprobs: _Logprobs, finish_reason: _Reason | null}[]
    usage?: Usage
    callsmith?: Report | ToolEvent
} | Error  // A chunk, whose texts are to be appended; the stream ends with [DONE].
type TextCompletion = {
    ..._Heading
    object: "text_completion"
    choices: {
        index: integer, text: string
        logprobs: {tokens: string[], token_logprobs: number[], top_logprobs: map<number>[], text_offset: integer[]} | null
        finish_reason: "stop" | "length" | "content_filter" | null
    }[]
    usage?: Usage
    callsmith?: Report
}
type Model = {
    id: string, object: "model", created: integer, owned_by: string
    max_model_len: integer | null  // The length of the context.
    callsmith: {
        format?: string  // How it writes calls.
        tools: boolean, thinking: boolean, loaded: boolean, alias_of?: string
    }
}
type _ModelList = {
    object: "list", data: Model[]
    models?: object[]  // For Codex.
}
type Models = _ModelList | AnthropicModels  // In the caller's own dialect: Anthropic's for whoever sends anthropic-version.
"""

_WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_CHATTING = Operation(
    "Continue a chat",
    "ChatRequest",
    "ChatCompletion",
    "ChatChunk",
    example={
        "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
        "tool_choice": "required",
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": _WEATHER}}],
    },
)
_COMPLETING = Operation(
    "Continue texts",
    "CompletionsRequest",
    "TextCompletion",
    "TextCompletion | Error",
    example={"prompt": "Once upon a time", "max_tokens": 16},
)
_EITHER_ERROR = "Error | AnthropicError"
_LISTING = Operation(
    "List the models",
    answer="Models",
    parameters=(Parameter("client_version", "Sent by Codex, which gets a list of its own as well."),),
    error=_EITHER_ERROR,
)

OPERATIONS = {
    "POST /v1/chat/completions": _CHATTING,
    "POST /chat/completions": _CHATTING,
    "POST /v1/completions": _COMPLETING,
    "POST /completions": _COMPLETING,
    "GET /v1/models": _LISTING,
    "GET /models": _LISTING,
    "GET /v1/models/{name}": Operation("Describe a model", answer="Model | AnthropicModel", error=_EITHER_ERROR),
}
