"""Servers that answer from a script as llama-server, vLLM or SGLang do: a token for every character, and a few special ones."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from callsmith.engines import open_engine
from callsmith.engines.port import Engine
from callsmith.engines.upstream import RetryPolicy
from tests.serving import served

QUICK = RetryPolicy(connect=60, begin=60, silence=60, retries=1, pause=0.01, longest_pause=0.2)
Kind = Literal["llama-server", "vllm", "sglang"]
SPECIALS = {"<s>": 1, "<|im_end|>": 2, "<tool_call>": 3, "</tool_call>": 4, "<think>": 5}
TEMPLATE = """{%- if tools %}{{ tools | tojson }}{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>
{{ call.function | tojson }}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
_OWNERS = {"llama-server": "llamacpp", "vllm": "vllm", "sglang": "sglang"}
_TEXTS = {token: text for text, token in SPECIALS.items()}
_FIRST, _LAST = 10, 400  # the ids of characters
_CHARACTERS = {*range(_FIRST, _LAST), *(_FIRST + ord(item) for item in "\ufdd1\ufdd2")}


def encode(text: str) -> list[int]:
    tokens: list[int] = []
    while text:
        special = next((item for item in SPECIALS if text.startswith(item)), None)
        tokens.append(SPECIALS[special] if special else _FIRST + ord(text[0]))
        text = text[len(special or "x") :]
    return tokens


def decode(tokens: list[int]) -> str:
    """The text of the tokens. There are ASCII characters, and two noncharacters, which the engine asks for."""
    return "".join(_TEXTS.get(item) or (chr(item - _FIRST) if item in _CHARACTERS else "") for item in tokens)


@dataclass
class ScriptedServer:
    """`says` are the answers, one a request: tokens, or whatever writes a response. `ignores_grammars`: also the first, which is
    the question whether it does; one that does not answers that as it should."""

    kind: Kind = "llama-server"
    says: list[str | Callable[[Request], Awaitable[Response]]] = field(default_factory=list[Any])
    ignores_grammars: bool = False
    is_cumulative: bool = True
    adds_bos: bool = False
    at_once: int = 1  # tokens in an event
    likely: dict[str, float] = field(default_factory=dict[str, float])  # tokens with log probabilities; that sampled has -1
    end: str | None = None
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def app(self) -> Starlette:
        completion = {"llama-server": "/completion", "vllm": "/v1/completions", "sglang": "/generate"}[self.kind]
        routes = [
            Route("/v1/models", self.models),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
            Route(completion, self.complete, methods=["POST"]),
        ]
        if self.kind == "llama-server":
            routes.append(Route("/props", self.props))
        elif self.kind == "vllm":
            routes.append(Route("/tokenizer_info", self.tokenizer_info))
        else:
            routes.append(Route("/model_info", self.model_info))
        return Starlette(routes=routes)

    async def models(self, request: Request) -> Response:
        meta = {"n_vocab": _LAST, "n_ctx": 4096}
        model = {"id": "tiny", "owned_by": _OWNERS[self.kind], "root": "org/tiny", "max_model_len": 4096, "meta": meta}
        return JSONResponse({"object": "list", "data": [model]})

    async def props(self, request: Request) -> Response:
        settings = {"n_ctx": 4096}
        return JSONResponse(
            {
                "default_generation_settings": settings,
                "chat_template": TEMPLATE,
                "bos_token": "<s>",
                "eos_token": "<|im_end|>",
                "model_path": "/models/tiny.gguf",
            }
        )

    async def tokenizer_info(self, request: Request) -> Response:
        added = {str(token): {"content": text, "special": True} for text, token in SPECIALS.items()}
        return JSONResponse(
            {
                "tokenizer_class": "Tiny",
                "chat_template": TEMPLATE,
                "bos_token": "<s>",
                "eos_token": {"content": "<|im_end|>"},
                "added_tokens_decoder": added,
            }
        )

    async def model_info(self, request: Request) -> Response:
        return JSONResponse({"model_path": "org/tiny", "tokenizer_path": "org/tiny", "is_generation": True})

    async def tokenize(self, request: Request) -> Response:
        body = await request.json()
        texts = body.get("content", body.get("prompt"))
        begin = [SPECIALS["<s>"]] if self.adds_bos and body.get("add_special", body.get("add_special_tokens")) else []
        if isinstance(texts, list):
            return JSONResponse({"tokens": [begin + encode(item) for item in texts]})
        return JSONResponse({"tokens": begin + encode(texts), "count": len(texts)})

    async def detokenize(self, request: Request) -> Response:
        text = decode((await request.json())["tokens"])
        return JSONResponse({"content": text, "prompt": text, "text": text})

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        if len(self.asked) == 1 and not self.ignores_grammars:
            answer: Any = "Quiz"
        else:
            answer = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if not isinstance(answer, str):
            return await answer(request)
        return StreamingResponse(self.stream(answer, body), media_type="text/event-stream")

    async def stream(self, answer: str, body: dict[str, Any]) -> AsyncIterator[bytes]:
        tokens = [*encode(answer), SPECIALS["<|im_end|>"]]
        most = body.get("n_predict", body.get("max_tokens", body.get("sampling_params", {}).get("max_new_tokens")))
        is_cut = most is not None and 0 <= most < len(tokens)
        tokens = tokens[:most] if is_cut else tokens
        for start in range(0, len(tokens), self.at_once):
            is_last = start + self.at_once >= len(tokens)
            reason = self.end or ("length" if is_cut else "stop")
            yield frame(with_logprobs(self, self.event(tokens, start, reason if is_last else None), tokens, start, body))
        if self.kind == "llama-server":
            stop = {"length": "limit", "stop": "eos"}.get(self.end or ("length" if is_cut else "stop"), self.end)
            counted = {"tokens_predicted": len(tokens), "tokens_evaluated": 9, "timings": {"cache_n": 3}}
            yield frame({"content": "", "tokens": [], "stop": True, "stop_type": stop, **counted})
        else:
            yield b"data: [DONE]\n\n"

    def event(self, tokens: list[int], start: int, reason: str | None) -> dict[str, Any]:
        new, count = tokens[start : start + self.at_once], min(start + self.at_once, len(tokens))
        visible = [item for item in new if item != SPECIALS["<|im_end|>"]]  # no server shows the token that ends an answer
        if self.kind == "llama-server":
            text = decode([item for item in visible if item >= _FIRST])
            return {"content": text, "tokens": new, "stop": False, "tokens_predicted": count, "tokens_evaluated": 9}
        if self.kind == "vllm":
            usage = {"prompt_tokens": 9, "completion_tokens": count, "prompt_tokens_details": {"cached_tokens": 3}}
            choice = {"index": 0, "text": decode(visible), "token_ids": new, "finish_reason": reason}
            return {"choices": [choice], "usage": usage}
        sent = tokens[: start + self.at_once] if self.is_cumulative else new
        meta = {"prompt_tokens": 9, "completion_tokens": count, "cached_tokens": 3, "finish_reason": reason and {"type": reason}}
        text = decode([item for item in sent if item != SPECIALS["<|im_end|>"]])
        return {"text": text, "output_ids": sent, "meta_info": meta}


def with_logprobs(
    server: ScriptedServer, event: dict[str, Any], tokens: list[int], start: int, body: dict[str, Any]
) -> dict[str, Any]:
    """The event with the log probabilities of its tokens, if the request asks for them, in the server's own shape."""
    end = start + server.at_once
    likely = {encode(text)[0]: value for text, value in server.likely.items()}
    if server.kind == "llama-server" and body.get("n_probs"):
        rows = [
            _bytes_row(item) | {"top_logprobs": _top(item, likely, body["n_probs"], _bytes_row)} for item in tokens[start:end]
        ]
        return {**event, "completion_probabilities": rows}
    if server.kind == "vllm" and body.get("logprobs") is not None:
        new, most = tokens[start:end], body["logprobs"]
        # What was sampled stands first, whether it is one of the likeliest or not.
        top = [{decode([item]): -1.0} | {row[2]: row[0] for row in _top(item, likely, most, _row)} for item in new]
        texts = [decode([item]) for item in new]
        logprobs = {"tokens": texts, "token_logprobs": [-1.0 for _ in new], "top_logprobs": top, "text_offset": [0 for _ in new]}
        return {**event, "choices": [{**event["choices"][0], "logprobs": logprobs}]}
    if server.kind == "sglang" and body.get("return_logprob"):
        sent = tokens[:end] if server.is_cumulative else tokens[start:end]
        rows = [_row(item, -1.0) for item in sent]
        top = [_top(item, likely, body["top_logprobs_num"], _row) for item in sent]
        length = len(tokens[:end])
        logprobs = {"output_token_logprobs": rows, "output_top_logprobs": top, "output_token_logprobs_length": length}
        return {**event, "meta_info": {**event["meta_info"], **logprobs}}
    return event


def _top(token: int, likely: dict[int, float], most: int, row: Callable[[int, float], Any]) -> list[Any]:
    ranked = sorted({token: -1.0, **likely}.items(), key=lambda item: -item[1])
    return [row(*item) for item in ranked[:most]]


def _bytes_row(token: int, logprob: float = -1.0) -> dict[str, Any]:
    text = "" if token in _TEXTS else decode([token])  # it does not say what special tokens are
    return {"id": token, "token": text, "bytes": list(text.encode()), "logprob": logprob}


def _row(token: int, logprob: float) -> list[Any]:
    return [logprob, token, decode([token])]


def frame(data: object) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


@asynccontextmanager
async def opened(*servers: ScriptedServer) -> AsyncIterator[Engine]:
    """The engine for these servers; all answers are those of their scripts."""
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(served(server.app, force=True)) for server in servers]
        engine = await asyncio.to_thread(open_engine, f"completions:{','.join(urls)}", retry_policy=QUICK)
        for server in servers:
            server.asked.clear()
            server.ignores_grammars = True
        try:
            yield engine
        finally:
            await engine.close()
