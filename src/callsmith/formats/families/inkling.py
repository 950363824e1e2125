"""Inkling: every message names its content type.

    <|message_model|><|content_thinking|>Need the weather.<|end_message|>
    <|message_model|>get_weather<|content_invoke_tool_json|>{"name": "get_weather", "args": {"city": "Paris"}}<|end_message|>

The prompt ends in `<|message_model|>`. A plain text invocation (`<|content_invoke_tool_text|>`) names no arguments: it is text.
"""

from callsmith.formats.algebra import ARGS, NAME, SKIP, Calls, Format, Says, Thinks, any_, obj, opt

START = opt("<|message_model|>", opt(SKIP))
END = any_("<|end_message|>", "<|content_model_end_sampling|>")

FORMAT = Format(
    name="inkling",
    parts=(
        Thinks((START, "<|content_thinking|>"), (END,), ended_by_calls=True),
        Calls(
            opt("<|message_model|>", opt(NAME)), "<|content_invoke_tool_json|>", obj(("name", NAME), ("args", ARGS)), END,
        ),
        Says((START, any_("<|content_text|>", "<|content_invoke_tool_text|>", "<|content_tool_error|>")), (END,)),
    ),
    drop=(
        "<|message_user|>", "<|message_system|>", "<|message_tool|>", "<|content_audio_input|>", "<|content_image_input|>",
        "<|audio_end|>", "<|image_end|>",
    ),
)  # fmt: skip
