"""What the tables of several dialects have in common: sampling, tools, outputs, our own fields, reports, errors."""

from callsmith.core.choice import MOST_CALL_BIAS
from callsmith.wire.schemas.notation import (
    Schema,
    Term,
    answer,
    any_object,
    any_of,
    array,
    constant,
    flag,
    integer,
    mapping,
    nullable,
    number,
    request,
    text,
    words,
)

MODEL = text("A model, or an alias; without it the first one.")
STREAM = flag("Whether the answer comes as a stream.")
JSON_SCHEMA = any_object("A JSON Schema.")
TEXTS = any_of(text(), array(text()))

# Fields of our own, in every dialect whose requests may have the server's tools run.
EXTENSIONS: dict[str, Term] = {
    "tool_mode": words("standard", "mixed", about="With mixed, the server's tools are offered beside those of the request."),
    "server_tools": any_of(text(), array(text()), about="Patterns of names: the server's tools that are offered."),
    "starter_tools": flag("Whether a clock, a calculator and a unit converter are offered, where the server was given no tools."),
    "tool_events": flag("Whether the answer shows what the server's tools did."),
    "wait_for_approval": flag("Whether a stream stays open while a call waits for a person."),
    "explain": flag("Whether the answer says what the model was given and what it wrote, step by step."),
    "session_id": text("The conversation: its cache is evicted last, and results of its jobs come into it."),
}
POLICY: dict[str, Term] = {
    "tool_choice_policy": words(
        "auto", "required_first_hop", "required_always", about="What becomes of a tool_choice that is auto."
    ),
    "call_bias": number(
        "How much likelier calls are where the model chooses, as log odds; below 0: rarer.",
        minimum=-MOST_CALL_BIAS,
        maximum=MOST_CALL_BIAS,
    ),
}


def sampling(limit: str, stop: str = "stop") -> dict[str, Term]:
    """The fields by which a request says how it is sampled."""
    return {
        "temperature": number(minimum=0),
        "top_p": number(minimum=0, maximum=1),
        "top_k": integer("0 or -1: all tokens.", minimum=-1),
        "min_p": number(minimum=0, maximum=1),
        "typical_p": number(minimum=0, maximum=1),
        "seed": integer("The same answer again, while nothing else is being answered."),
        limit: integer("The most tokens of the answer; -1: as many as fit."),
        stop: any_of(text(), array(text()), about="Texts at which the answer ends."),
        "presence_penalty": number(minimum=-2, maximum=2),
        "frequency_penalty": number(minimum=-2, maximum=2),
        "repetition_penalty": number(minimum=0, maximum=10),
        "repeat_penalty": number("As repetition_penalty.", minimum=0, maximum=10),
        "repeat_last_n": integer("How many tokens the penalties look back on; -1: all.", minimum=-1),
        "logit_bias": mapping(number(minimum=-100, maximum=100), "By the ids of tokens."),
    }


AS_WRITTEN = flag("Whether the schema is taken at its word: objects open unless it closes them, in any order.")
# What an answer has to be, in chat completions and completions. One of them a request.
OUTPUT: dict[str, Term] = {
    "response_format": "ResponseFormat",
    "guided_json_schema": any_of(JSON_SCHEMA, text("A JSON Schema as text.")),
    "json_schema": any_of(JSON_SCHEMA, text("A JSON Schema as text.")),
    "guided_json": any_of(JSON_SCHEMA, text("A JSON Schema as text.")),
    "as_written": AS_WRITTEN,
    "guided_choice": any_of(text(), array(text()), about="The answer is one of these texts."),
    "guided_regex": text("The answer fits this regular expression."),
    "guided_grammar": text("The answer fits this grammar: Lark, or llama.cpp's GBNF."),
    "grammar": text("As guided_grammar."),
    "structured_outputs": "StructuredOutputs",
}
_FUNCTION: dict[str, Term] = {
    "name!": text(minLength=1, maxLength=256),
    "description": text(),
    "parameters": JSON_SCHEMA,
    "strict": flag("Whether its calls are held to the schema where the choice is auto, too."),
    "defer_loading": flag("Found by a search, where the request declares one."),
    "required": array(text(), "Required parameters, where the schema does not list them."),
    **dict.fromkeys(("input_schema", "inputSchema", "parameters_schema"), any_object("As parameters.")),
}
TOKEN_LOGPROB: dict[str, Term] = {"token": text(), "logprob": number(), "bytes": array(integer())}

SCHEMAS: dict[str, Schema] = {
    "Error": answer(
        {
            "error": answer(
                {
                    "message": text("What is wrong, and with which field."),
                    "type": text(),
                    "param": nullable(text()),
                    "code": nullable(text()),
                }
            ),
            "request_id?": text(),
        },
        "An error in OpenAI's shape.",
    ),
    "Function": request(_FUNCTION, "A function that the model may call."),
    "ChatTool": any_of(
        request({"type": text("function; other kinds are passed over"), "function!": "Function"}),
        request({"type": text(), **_FUNCTION}, "A flat function."),
        request({"type!": text()}, "A tool that only its own vendor runs: it is passed over."),
    ),
    "ToolChoice": any_of(
        words("auto", "none", "required", "any"),
        request(
            {
                "type": words("function", "tool", "auto", "none", "required", "any", "allowed_tools", "mcp"),
                "function": request({"name!": text()}),
                "name": text(),
                "specific": text("The name of the tool, in another spelling."),
                "allowed_tools": "AllowedTools",
                "mode": words("auto", "required", "none", "any"),
                "tools": array(any_object()),
                "server_label": text("Of an MCP server, with the type mcp."),
            }
        ),
        about="Which tools may or must be called.",
    ),
    "AllowedTools": request(
        {
            "mode": words("auto", "required", "none", "any"),
            "tools!": array(request({"type": text(), "function": request({"name!": text()}), "name": text()})),
        }
    ),
    "ResponseFormat": request(
        {
            "type!": words("text", "json_object", "json_schema"),
            "json_schema": request(
                {
                    "name": text(),
                    "schema!": any_of(JSON_SCHEMA, text()),
                    "strict": flag(),
                    "as_written": AS_WRITTEN,
                    "description": text(),
                }
            ),
            "schema": any_of(JSON_SCHEMA, text(), about="With json_object."),
            "as_written": AS_WRITTEN,
        }
    ),
    "StructuredOutputs": request(
        {
            "json": any_of(JSON_SCHEMA, text()),
            "as_written": AS_WRITTEN,
            "json_object": flag(),
            "choice": TEXTS,
            "regex": text(),
            "grammar": text(),
        },
        "What the answer has to be, as vLLM has it.",
    ),
    "Usage": answer(
        {
            "prompt_tokens": integer(),
            "completion_tokens": integer(),
            "total_tokens": integer(),
            "prompt_tokens_details": answer({"cached_tokens": integer("Tokens that the KV cache had.")}),
            "completion_tokens_details": answer({"reasoning_tokens": integer()}),
        }
    ),
    "TokenLogprob": answer({**TOKEN_LOGPROB, "top_logprobs": array(answer(TOKEN_LOGPROB))}),
    "Call": answer({"id": text(), "name": text(), "arguments": any_object()}),
    "ToolEvent": any_of(
        answer({"event": constant("tool_started"), "id": text(), "name": text(), "arguments": any_object()}),
        answer(
            {
                "event": constant("tool_progress"),
                "id": text(),
                "text": text(),
                "current": nullable(number()),
                "total": nullable(number()),
            }
        ),
        answer(
            {"event": constant("tool_finished"), "id": text(), "name": text(), "ok": flag(), "content": text(), "code?": text()}
        ),
        "ConfirmationNeeded",
        answer({"event": constant("notice"), "text": text()}),
        about="What one of the server's tools did.",
    ),
    "ConfirmationNeeded": answer(
        {
            "event?": constant("confirmation_needed"),
            "id": text("Of the approval."),
            "name": text(),
            "arguments": any_object(),
            "call_id": text(),
            "reason": text(),
            "expires": nullable(number("Unix time.")),
        },
        "A call that waits for a person.",
    ),
    "Decision": answer(
        {"calls": flag(), "score": number("Of a call, as log odds."), "threshold": number("From here on tools are called.")},
        "Whether tools were called, where that was decided before the answer was written.",
    ),
    "Report": answer(
        {
            "unenforced?": array(
                answer({"tool": nullable(text()), "path": text(), "keyword": text()}),
                "Parts of a schema that no grammar could enforce; they were checked afterwards.",
            ),
            "retries?": integer("How often the model was asked once more."),
            "taken_back?": array(text(), "What guards took back before it was shown."),
            "notices?": array(text()),
            "approvals?": array("ConfirmationNeeded"),
            "events?": array("ToolEvent"),
            "steps?": array(
                answer(
                    {
                        "prompt": text("As the model was given it."),
                        "text": text("What it wrote."),
                        "grammar": text("What held it; empty: nothing did."),
                        "repairs": array(text()),
                        "seconds": number(),
                        "prompt_tokens": integer(),
                        "tokens": integer(),
                        "decision?": "Decision",
                    }
                ),
                "With explain.",
            ),
            "decision?": "Decision",
        },
        "What was done for an answer.",
    ),
}
