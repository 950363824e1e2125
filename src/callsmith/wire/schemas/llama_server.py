"""What clients of llama-server and vLLM ask for besides."""

from callsmith.wire.llama_server import NEUTRAL
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
    integer,
    nullable,
    number,
    refused,
    request,
    text,
    words,
)
from callsmith.wire.schemas.shared import EXTENSIONS, MODEL, OUTPUT, STREAM, sampling

_TOKENS = array(integer())
_END: dict[str, Term] = {
    "model?": text(),
    "prompt?": text(),
    "stop_type?": words("limit", "word", "eos"),
    "stopping_word?": text(),
    "tokens_evaluated?": integer(),
    "tokens_predicted?": integer(),
    "tokens_cached?": integer(),
    "truncated?": constant(False),
    "completion_probabilities?": array("TokenLogprob"),
}

TITLE = "llama-server, vLLM"
SCHEMAS: dict[str, Schema] = {
    "CompletionRequest": request(
        {
            "prompt!": any_of(text(), _TOKENS, array(any_of(text(), _TOKENS))),
            "model": MODEL,
            **sampling("n_predict"),
            "max_tokens": integer("As n_predict."),
            "n_probs": integer(minimum=0, maximum=20),
            **OUTPUT,
            "stream": STREAM,
            "session_id": EXTENSIONS["session_id"],
            **refused(NEUTRAL),
        },
        "A text to be continued as it stands.",
    ),
    "CompletionAnswer": answer({"index": integer(), "content": text(), "stop": flag(), **_END}),
    "TokenizeRequest": any_of(
        request({"content!": text(), "model": MODEL, "add_special": flag(), "parse_special": flag(), "with_pieces": flag()}),
        request({"prompt!": text(), "model": MODEL, "add_special_tokens": flag(), "return_token_strs": flag()}),
        "ChatRequest",
        about="llama-server's shape, vLLM's, or a chat.",
    ),
    "Tokens": any_of(
        answer({"tokens": array(any_of(integer(), answer({"id": integer(), "piece": any_of(text(), array(integer()))})))}),
        answer(
            {"count": integer(), "max_model_len": nullable(integer()), "tokens": _TOKENS, "token_strs": nullable(array(text()))}
        ),
    ),
}

OPERATIONS = {
    "POST /completion": Operation(
        "Continue a text",
        "CompletionRequest",
        "CompletionAnswer",
        any_of("CompletionAnswer", "Error"),
        example={"prompt": "Once upon a time", "n_predict": 16},
    ),
    "POST /tokenize": Operation("The tokens of a text or a chat", "TokenizeRequest", "Tokens", example={"content": "Hello"}),
    "POST /detokenize": Operation(
        "The text of tokens",
        request({"tokens!": _TOKENS, "model": MODEL}),
        answer({"content": text(), "prompt": text()}),
        example={"tokens": [1, 2, 3]},
    ),
    "GET /props": Operation(
        "Properties of a model",
        answer=answer(
            {
                "model_alias": text(),
                "model_path": text(),
                "chat_template": nullable(text()),
                "default_generation_settings": answer(
                    {"n_ctx": nullable(integer()), "temperature": nullable(number()), "top_p": nullable(number())}
                ),
                "modalities": any_object(),
            }
        ),
        parameters=(Parameter("model", "Which model; without it the first one."),),
    ),
}
