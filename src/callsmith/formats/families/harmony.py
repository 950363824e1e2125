"""Harmony: gpt-oss. Every message has a header; a call is a message to a function.

    <|channel|>analysis<|message|>Need the weather.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>

The prompt ends in `<|start|>assistant`. The recipient comes after the channel or before it; if it is the assistant itself, the
message is a thought.
"""

from callsmith.formats.algebra import ARGS, NAME, SKIP, Calls, Format, Says, Thinks, any_, opt

START = opt("<|start|>assistant")
TO = (" to=", opt("functions."), NAME)
KIND = (opt(" <|constrain|>", write=False), opt(SKIP))
AGAIN = opt("<|channel|>", SKIP, write=False)
END = any_("<|end|>", "<|return|>", "<|call|>")

FORMAT = Format(
    name="harmony",
    aliases=("gpt-oss", "openai"),
    parts=(
        Thinks((START, "<|channel|>", "analysis", "<|message|>"), (END,), ended_by_calls=True),
        Thinks(
            (START, "<|channel|>", any_("commentary", "analysis"), " to=assistant", "<|message|>"), (END,), ended_by_calls=True
        ),
        Thinks((START, " to=assistant", "<|channel|>", SKIP, "<|message|>"), (END,), ended_by_calls=True),
        Calls(START, "<|channel|>", "commentary", *TO, " <|constrain|>json", "<|message|>", ARGS, "<|call|>"),
        Calls(START, "<|channel|>", any_("commentary", "analysis"), *TO, AGAIN, *KIND, "<|message|>", ARGS, "<|call|>"),
        Calls(START, *TO, "<|channel|>", SKIP, *KIND, "<|message|>", ARGS, "<|call|>"),
        Says((START, "<|channel|>", any_("final", "commentary"), *KIND, "<|message|>"), (END,)),
        Says((START, "<|channel|>", opt(SKIP), "<|message|>"), (END,)),
    ),
    drop=("<|start|>",),
)
