"""Chat, generate and the lists of models, as Ollama has them."""

from callsmith.wire.ollama.requests import NEUTRAL_OPTIONS, NEUTRAL_PROMPT, OPTION_HINTS
from callsmith.wire.schemas.notation import (
    Operation,
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
    nullable,
    number,
    refused,
    request,
    text,
    words,
)
from callsmith.wire.schemas.shared import AS_WRITTEN, EXTENSIONS, JSON_SCHEMA, MODEL, POLICY, STREAM, sampling

_BOTH: dict[str, Term] = {
    "model": MODEL,
    "stream": {**STREAM, "default": True},
    "format": any_of(words("", "json"), JSON_SCHEMA, about="json, or a JSON Schema that the answer has to fit."),
    "as_written": AS_WRITTEN,
    "think": any_of(flag(), words("low", "medium", "high", "max")),
    "logprobs": flag(),
    "top_logprobs": integer(minimum=0, maximum=20),
    "keep_alive": any_of(number(), text(), about="How long the model stays loaded: seconds, or 5m."),
    "options": request({**sampling("num_predict"), **refused(NEUTRAL_OPTIONS), **hints(OPTION_HINTS)}),
    **EXTENSIONS,
}
_CALL = request(
    {"id": text(), "function!": request({"name!": text(), "arguments": any_of(any_object(), text()), "index": integer()})}
)
_HEADING: dict[str, Term] = {"model": text(), "created_at": text(), "done": flag()}
_END: dict[str, Term] = {
    "done_reason?": words("stop", "length", "load", "unload"),
    "total_duration?": integer("Nanoseconds."),
    "load_duration?": integer("Nanoseconds."),
    "prompt_eval_count?": integer("Tokens of the prompt."),
    "prompt_eval_duration?": integer("Nanoseconds."),
    "eval_count?": integer("Tokens of the answer."),
    "eval_duration?": integer("Nanoseconds."),
    "logprobs?": array("TokenLogprob"),
    "callsmith?": "Report",
}
_DETAILS = answer(
    {
        "parent_model": text(),
        "format": text(),
        "family": text(),
        "families": array(text()),
        "parameter_size": text(),
        "quantization_level": text(),
    }
)
_TAG: dict[str, Term] = {"name": text(), "model": text(), "size": integer(), "digest": text(), "details": _DETAILS}

TITLE = "Ollama"
SCHEMAS: dict[str, Schema] = {
    "OllamaChatRequest": request(
        {
            **_BOTH,
            "messages": array(
                request(
                    {
                        "role!": words("system", "user", "assistant", "tool"),
                        "content": text(),
                        "images": any_of(text(), array(text()), about="In Base64."),
                        "thinking": text(),
                        "tool_calls": array(_CALL),
                        "tool_name": text(),
                        "name": text("As tool_name."),
                        "tool_call_id": text(),
                    }
                ),
                "Without any, the model is loaded, or with keep_alive 0 unloaded.",
            ),
            "tools": array("ChatTool"),
            "tool_choice": "ToolChoice",
            "parallel_tool_calls": flag(),
            **POLICY,
        },
        "A chat to be continued.",
    ),
    "OllamaGenerateRequest": request(
        {**_BOTH, "prompt": text(), "system": text(), **refused(NEUTRAL_PROMPT)}, "A prompt to be answered."
    ),
    "OllamaChatAnswer": answer(
        {
            **_HEADING,
            "message": answer(
                {
                    "role": constant("assistant"),
                    "content": text(),
                    "thinking?": text(),
                    "tool_calls?": array(
                        answer(
                            {"id": text(), "function": answer({"index": integer(), "name": text(), "arguments": any_object()})}
                        )
                    ),
                }
            ),
            **_END,
        }
    ),
    "OllamaGenerateAnswer": answer(
        {**_HEADING, "response": text(), "thinking?": text(), "tool_calls?": array(any_object()), **_END}
    ),
    "OllamaError": answer({"error": text(), "request_id?": text()}),
}


OPERATIONS = {
    "POST /api/chat": Operation(
        "Continue a chat",
        "OllamaChatRequest",
        "OllamaChatAnswer",
        any_of("OllamaChatAnswer", "OllamaError"),
        example={"messages": [{"role": "user", "content": "Say hello."}], "stream": False},
        error="OllamaError",
        media="application/x-ndjson",
    ),
    "POST /api/generate": Operation(
        "Answer a prompt",
        "OllamaGenerateRequest",
        "OllamaGenerateAnswer",
        any_of("OllamaGenerateAnswer", "OllamaError"),
        example={"prompt": "Say hello.", "stream": False},
        error="OllamaError",
        media="application/x-ndjson",
    ),
    "GET /api/tags": Operation("List the models", answer=answer({"models": array(answer({**_TAG, "modified_at": text()}))})),
    "GET /api/ps": Operation(
        "List the models that are loaded",
        answer=answer(
            {"models": array(answer({**_TAG, "expires_at": text(), "size_vram": integer(), "context_length": integer()}))}
        ),
    ),
    "POST /api/show": Operation(
        "Describe a model",
        request({"model": MODEL, "name": text("As model.")}),
        answer(
            {
                "modelfile": text(),
                "parameters": text(),
                "template": nullable(text()),
                "details": _DETAILS,
                "model_info": any_object(),
                "capabilities": array(text()),
                "modified_at": text(),
            }
        ),
        example={},
        error="OllamaError",
    ),
    "GET /api/version": Operation(
        "The version of Ollama's API, and of this server", answer=answer({"version": text(), "callsmith": text()})
    ),
}
