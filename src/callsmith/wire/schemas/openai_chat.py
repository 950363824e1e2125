"""Chat completions, completions and the list of models."""

from callsmith.wire.openai.chat import HINTS, MAX_CHOICES, NEUTRAL
from callsmith.wire.openai.completions import DEFAULT_MAX_TOKENS, MAX_COMPLETIONS
from callsmith.wire.openai.completions import HINTS as COMPLETION_HINTS
from callsmith.wire.openai.completions import NEUTRAL as COMPLETION_NEUTRAL
from callsmith.wire.schemas.notation import (
    Operation,
    Parameter,
    Schema,
    Term,
    answer,
    any_object,
    any_of,
    array,
    constant,
    flag,
    hints,
    integer,
    mapping,
    nullable,
    number,
    refused,
    request,
    text,
    words,
)
from callsmith.wire.schemas.shared import EXTENSIONS, MODEL, OUTPUT, POLICY, STREAM, sampling

_STREAM_OPTIONS = request({"include_usage": flag("Whether the last chunk has the usage.")})
_PART: dict[str, Term] = {
    "type": words("text", "input_text", "output_text", "refusal", "image_url", "input_image"),
    "text": text(),
    "refusal": text(),
    "image_url": any_of(text(), request({"url!": text("http(s): or data:"), "detail": text()})),
    "detail": text(),
    "file_id": {"enum": [], "description": "Refused: files are not stored here."},
}
_CALL: dict[str, Term] = {
    "id": text(),
    "type": constant("function"),
    "function": request({"name!": text(), "arguments": any_of(text(), any_object())}),
    "name": text(),
    "arguments": any_of(text(), any_object()),
}
_CHAT: dict[str, Term] = {
    "messages!": array("ChatMessage", minItems=1),
    "model": MODEL,
    "tools": array("ChatTool"),
    "tool_choice": "ToolChoice",
    **POLICY,
    "parallel_tool_calls": flag(),
    "functions": array("ChatTool", "Deprecated: tools."),
    "function_call": any_of("ToolChoice", about="Deprecated: tool_choice."),
    "max_completion_tokens": integer("As max_tokens.", minimum=-1),
    **sampling("max_tokens"),
    "logprobs": flag(),
    "top_logprobs": integer(minimum=0, maximum=20),
    **OUTPUT,
    "n": integer(minimum=1, maximum=MAX_CHOICES),
    "stream": STREAM,
    "stream_options": _STREAM_OPTIONS,
    "reasoning_effort": text("none switches thinking off, anything else on."),
    "chat_template_kwargs": request({"enable_thinking": flag(), "thinking": flag()}),
    "include_reasoning": flag("Whether the answer shows the reasoning."),
    "continue_final_message": flag("Whether the model goes on from the last message."),
    "add_generation_prompt": flag("false with continue_final_message, else true."),
    "prompt_cache_key": text("Requests with the same one go to the same of several servers."),
    "cache_salt": text("What is cached of the prompt is reused only with the same one."),
    **EXTENSIONS,
    **refused(NEUTRAL),
    **hints(HINTS),
}
_LOGPROBS = nullable(answer({"content": array("TokenLogprob"), "refusal": nullable(text())}))
_FUNCTION_CALL = answer({"name?": text(), "arguments": text()})
_REASON = words("stop", "length", "tool_calls", "function_call")
_HEADING: dict[str, Term] = {"id": text(), "created": integer("Unix time."), "model": text()}
_DELTA = answer(
    {
        "role?": constant("assistant"),
        "content?": text(),
        "reasoning_content?": text(),
        "reasoning?": text(),
        "function_call?": _FUNCTION_CALL,
        "tool_calls?": array(
            answer(
                {
                    "index": integer(),
                    "id?": text(),
                    "type?": constant("function"),
                    "function": answer({"name?": text(), "arguments": text("To be appended.")}),
                }
            )
        ),
    }
)
_MESSAGE = answer(
    {
        "role": constant("assistant"),
        "content": nullable(text()),
        "refusal": {"type": "null"},
        "reasoning_content?": text(),
        "reasoning?": text(),
        "tool_calls?": array(
            answer({"id": text(), "type": constant("function"), "function": answer({"name": text(), "arguments": text()})})
        ),
        "function_call?": answer({"name": text(), "arguments": text()}),
    }
)
_TOKENS = array(integer())

TITLE = "OpenAI Chat Completions"
SCHEMAS: dict[str, Schema] = {
    "ChatMessage": request(
        {
            "role!": words("system", "developer", "user", "assistant", "tool", "function"),
            "content": any_of(text(), array(any_of(text(), request(_PART)))),
            "name": text(),
            "tool_call_id": text("Of a tool's message: the call that it answers."),
            "tool_calls": array(request(_CALL)),
            "function_call": request(
                {"type": text(), "function": any_object(), "name!": text(), "arguments": any_of(text(), any_object())},
                "Deprecated.",
            ),
            "reasoning_content": text(),
            "reasoning": text("As reasoning_content."),
        }
    ),
    "ChatRequest": request(_CHAT, "A chat to be continued. Fields that are not listed are passed over."),
    "ChatCompletion": answer(
        {
            **_HEADING,
            "object": constant("chat.completion"),
            "choices": array(answer({"index": integer(), "message": _MESSAGE, "logprobs": _LOGPROBS, "finish_reason": _REASON})),
            "usage": "Usage",
            "callsmith?": "Report",
        }
    ),
    "ChatChunk": any_of(
        answer(
            {
                **_HEADING,
                "object": constant("chat.completion.chunk"),
                "choices": array(
                    answer({"index": integer(), "delta": _DELTA, "logprobs": _LOGPROBS, "finish_reason": nullable(_REASON)})
                ),
                "usage?": "Usage",
                "callsmith?": any_of("Report", "ToolEvent"),
            }
        ),
        "Error",
        about="A chunk; the stream ends with [DONE].",
    ),
    "CompletionsRequest": request(
        {
            "prompt!": any_of(
                text(), _TOKENS, array(any_of(text(), _TOKENS)), about="A text, the ids of tokens, or a list of such."
            ),
            "model": MODEL,
            **sampling("max_tokens"),
            "max_tokens": integer(minimum=-1, default=DEFAULT_MAX_TOKENS),
            **OUTPUT,
            "n": integer(minimum=1, maximum=MAX_COMPLETIONS),
            "echo": flag("Whether the prompt stands before the text."),
            "logprobs": integer(minimum=0, maximum=20),
            "stream": STREAM,
            "stream_options": _STREAM_OPTIONS,
            "cache_salt": text("What is cached of the prompt is reused only with the same one."),
            "session_id": EXTENSIONS["session_id"],
            **refused(COMPLETION_NEUTRAL),
            **hints(COMPLETION_HINTS),
        },
        "Texts to be continued as they stand.",
    ),
    "TextCompletion": answer(
        {
            **_HEADING,
            "object": constant("text_completion"),
            "choices": array(
                answer(
                    {
                        "index": integer(),
                        "text": text(),
                        "logprobs": nullable(
                            answer(
                                {
                                    "tokens": array(text()),
                                    "token_logprobs": array(number()),
                                    "top_logprobs": array(mapping(number())),
                                    "text_offset": array(integer()),
                                }
                            )
                        ),
                        "finish_reason": nullable(words("stop", "length")),
                    }
                )
            ),
            "usage?": "Usage",
            "callsmith?": "Report",
        }
    ),
    "Model": answer(
        {
            "id": text(),
            "object": constant("model"),
            "created": integer(),
            "owned_by": text(),
            "max_model_len": nullable(integer("The length of the context.")),
            "callsmith": answer(
                {
                    "format?": text("How it writes calls."),
                    "tools": flag(),
                    "thinking": flag(),
                    "loaded": flag(),
                    "alias_of?": text(),
                }
            ),
        }
    ),
    "Models": any_of(
        answer({"object": constant("list"), "data": array("Model"), "models?": array(any_object(), "For Codex.")}),
        "AnthropicModels",
        about="The list in the caller's own dialect: Anthropic's for whoever sends anthropic-version.",
    ),
}

_ASKING = {"messages": [{"role": "user", "content": "What is the weather in Paris?"}]}
_CHATTING = Operation(
    "Continue a chat",
    "ChatRequest",
    "ChatCompletion",
    "ChatChunk",
    example={
        **_ASKING,
        "tool_choice": "required",
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
                },
            }
        ],
    },
)
_COMPLETING = Operation(
    "Continue texts",
    "CompletionsRequest",
    "TextCompletion",
    any_of("TextCompletion", "Error"),
    example={"prompt": "Once upon a time", "max_tokens": 16},
)
_EITHER_ERROR = any_of("Error", "AnthropicError")
_LISTING = Operation(
    "List the models",
    answer="Models",
    parameters=(Parameter("client_version", "Sent by Codex, which gets a list of its own as well."),),
    error=_EITHER_ERROR,
)
_NOT_HERE = Operation("Not served: no embeddings are computed here", answer="Error")

OPERATIONS = {
    "POST /v1/chat/completions": _CHATTING,
    "POST /chat/completions": _CHATTING,
    "POST /v1/completions": _COMPLETING,
    "POST /completions": _COMPLETING,
    "GET /v1/models": _LISTING,
    "GET /models": _LISTING,
    "GET /v1/models/{name}": Operation("Describe a model", answer=any_of("Model", "AnthropicModel"), error=_EITHER_ERROR),
    **{f"{method} {path}": _NOT_HERE for path in ("/v1/embeddings", "/embeddings", "/embedding") for method in ("GET", "POST")},
}
