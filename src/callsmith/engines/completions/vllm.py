"""vLLM: `/v1/completions`, `/tokenize`, `/detokenize`, and `/tokenizer_info` where it is enabled.

`/v1/completions` takes and returns ids of tokens beside text, so that its `/inference/v1/generate`, which is off by default, has
nothing to add. The chat template is in `/tokenizer_info`, which is off by default too; else it is read from the model's folder,
if that is on this machine.

Log probabilities are before temperature, biases and grammar, unless the server was started with another `--logprobs-mode`. The
likeliest tokens are reported by their texts, so that of two with the same text there is one.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from callsmith.core.errors import Rejected
from callsmith.core.types.tables import as_ids, as_list, as_object, as_text
from callsmith.core.values import Json, TokenLogprob
from callsmith.engines.completions.server import Chunk, CompletionServer, Continuation, Object, Progress, write_sampling
from callsmith.engines.completions.tokenizer import find_tokenizer_files, read_tokenizer_config
from callsmith.engines.completions.tokens import read_token
from callsmith.engines.port import EngineInfo
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.targets.upstream import GrammarFields, for_vllm
from callsmith.wire.fields import make_usage

_AT_ONCE: Final = 8  # texts that are tokenized at a time


class Vllm(CompletionServer):
    kind = owner = "vllm"

    async def describe(self) -> EngineInfo:
        """The model, its tokenizer's settings as far as they can be had, and its special tokens."""
        listed = await self._listed_model()
        name, path = as_text(listed.get("id")), as_text(listed.get("root"))
        self._model = {"model": name}
        files = await self._tokenizer_info() or find_tokenizer_files(self._upstream.url, path)
        return await self._describe(path or name, listed, files)

    async def tokenize(self, texts: Sequence[str], *, add_special: bool = False) -> list[list[int]]:
        async def ask(text: str) -> list[int]:
            return [*as_ids(await self._ask("tokenize", "tokens", prompt=text, add_special_tokens=add_special))]

        batches = (texts[start : start + _AT_ONCE] for start in range(0, len(texts), _AT_ONCE))
        return [ids for batch in batches for ids in await asyncio.gather(*map(ask, batch))]

    async def prompt(self, pieces: Sequence[str]) -> Object:
        return {"prompt": pieces[0] if len(pieces) == 1 else await self._prompt_ids(*pieces)}

    def request(self, job: Continuation) -> tuple[str, dict[str, Any]]:
        body: dict[str, Any] = {
            **self._model,
            **job.prompt,
            "max_tokens": job.room,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "return_token_ids": True,
            **write_sampling(job.sampling),
            **job.grammar,
            **job.session_fields,
        }
        if job.sampling.logprobs is not None:
            body["logprobs"] = job.sampling.logprobs
        return "v1/completions", body

    def read(self, data: Object, progress: Progress) -> Chunk | None:
        self._check(data)
        choice = next(map(as_object, as_list(data.get("choices"))), None)
        if choice is None:
            return None
        spent = as_object(data.get("usage"))
        cached = as_object(spent.get("prompt_tokens_details")).get("cached_tokens")
        usage = make_usage(spent.get("prompt_tokens"), spent.get("completion_tokens"), cached)
        end = self._end(as_text(choice.get("finish_reason")))
        text, tokens, logprobs = as_text(choice.get("text")), as_ids(choice.get("token_ids")), _logprobs(choice.get("logprobs"))
        return Chunk(text, tokens, usage if usage.prompt else None, end, logprobs)

    def constrain(self, grammar: Grammar, specials: Mapping[str, int]) -> GrammarFields:
        return for_vllm(grammar, specials=specials)

    async def _tokenizer_info(self) -> EngineInfo | None:
        try:
            return read_tokenizer_config(await self._upstream.get("tokenizer_info"))
        except Rejected as error:
            if error.status in (401, 403):
                raise
            return None

    async def _detokenize(self, tokens: list[int]) -> str:
        return as_text(await self._ask("detokenize", "prompt", tokens=[*tokens]))


def _logprobs(field: Json) -> tuple[TokenLogprob, ...]:
    """The tokens of a choice; beside each the likeliest ones, and itself where it is none of them."""
    listed = as_object(field)
    texts, values, top = (as_list(listed.get(name)) for name in ("tokens", "token_logprobs", "top_logprobs"))
    likeliest = [[read_token(text, value) for text, value in as_object(item).items()] for item in top]
    likeliest += [[] for _ in texts[len(top) :]]
    return tuple(read_token(as_text(text), *rest) for text, *rest in zip(texts, values, likeliest, strict=False))
