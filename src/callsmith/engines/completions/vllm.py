"""vLLM: `/v1/completions`, `/tokenize`, `/detokenize`, and `/tokenizer_info` where it is enabled.

`/v1/completions` takes and returns ids of tokens beside text, so that its `/inference/v1/generate`, which is off by default, has
nothing to add. The chat template is in `/tokenizer_info`, which is off by default too; else it is read from the model's folder,
if that is on this machine.

Log probabilities are before temperature, biases and grammar, unless the server was started with another `--logprobs-mode`. The
likeliest tokens are told by their texts, so that of two with the same text there is one.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from callsmith.core.errors import Rejected
from callsmith.core.values import Json, TokenLogprob, Usage
from callsmith.engines.completions.logprobs import read_token
from callsmith.engines.completions.model_folder import TokenizerFiles, find_tokenizer_files, read_tokenizer_config
from callsmith.engines.completions.server import (
    SAMPLING,
    Chunk,
    CompletionServer,
    Description,
    Job,
    Object,
    Progress,
    as_ids,
    as_list,
    as_object,
    as_text,
    write_bias,
    write_sampling,
)
from callsmith.engines.completions.special_tokens import find_specials
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.targets.upstream import RequestFields, for_vllm
from callsmith.wire.fields import as_count

_AT_ONCE: Final = 8  # texts that are tokenized at a time


class Vllm(CompletionServer):
    """A vLLM server."""

    kind = "vllm"
    needs_room = True

    async def describe(self) -> Description:
        """The model, its tokenizer's settings as far as they can be had, and its special tokens."""
        listed = await self._listed_model()
        name, path = as_text(listed.get("id")), as_text(listed.get("root"))
        self._model = {"model": name}
        files = await self._tokenizer_info() or find_tokenizer_files(self._upstream.url, path)
        begun = await self._tokens("a", add_special=True)
        adds_bos = begun != await self._tokens("a")
        bos = await self._detokenize(begun[:1]) if adds_bos else files.bos
        specials = await find_specials(self.tokenize, self._detokenize, None, (bos, files.eos))
        return Description(
            name=path or name,
            context=as_count(listed.get("max_model_len")) or None,
            template=files.template,
            response_template=files.response_template,
            bos=bos,
            eos=files.eos,
            adds_bos=adds_bos,
            specials={**specials, **files.specials},
        )

    async def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        return [ids for few in _batches(texts) for ids in await asyncio.gather(*map(self._tokens, few))]

    async def prompt(self, pieces: Sequence[str]) -> Object:
        """One text, or ids."""
        first, *others = pieces
        if not others:
            return {"prompt": first}
        begun = await self._tokens(first, add_special=True)
        return {"prompt": [*begun, *(token for ids in await self.tokenize(others) for token in ids)]}

    def request(self, job: Job) -> tuple[str, dict[str, Any]]:
        body: dict[str, Any] = {
            **self._model,
            **job.prompt,
            "max_tokens": job.room,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "return_token_ids": True,
            **write_sampling(job.sampling, SAMPLING),
            **job.grammar,
        }
        if job.sampling.logit_bias:
            body["logit_bias"] = write_bias(job.sampling)
        if job.sampling.logprobs is not None:
            body["logprobs"] = job.sampling.logprobs
        if job.session:
            body["session_id"] = job.session
        if job.cache_salt:
            body["cache_salt"] = job.cache_salt
        return "v1/completions", body

    def read(self, data: Object, progress: Progress) -> Chunk | None:
        self._check(data)
        choice = next(map(as_object, as_list(data.get("choices"))), None)
        counted = as_object(data.get("usage"))
        cached = as_count(as_object(counted.get("prompt_tokens_details")).get("cached_tokens"))
        usage = Usage(as_count(counted.get("prompt_tokens")), as_count(counted.get("completion_tokens")), cached)
        if choice is None:
            return None
        end = self._end(as_text(choice.get("finish_reason")))
        text, tokens, logprobs = as_text(choice.get("text")), as_ids(choice.get("token_ids")), _logprobs(choice.get("logprobs"))
        return Chunk(text, tokens, usage if usage.prompt else None, end, logprobs)

    def constrain(self, grammar: Grammar, specials: Mapping[str, int]) -> RequestFields:
        return for_vllm(grammar, specials=specials)

    async def _tokenizer_info(self) -> TokenizerFiles | None:
        try:
            return read_tokenizer_config(await self._upstream.get("tokenizer_info"))
        except Rejected as error:
            if error.status in (401, 403):
                raise
            return None

    async def _tokens(self, text: str, *, add_special: bool = False) -> list[int]:
        return list(as_ids(await self._ask("tokenize", "tokens", prompt=text, add_special_tokens=add_special)))

    async def _detokenize(self, tokens: list[int]) -> str:
        return as_text(await self._ask("detokenize", "prompt", tokens=[*tokens]))


def _logprobs(said: Json) -> tuple[TokenLogprob, ...]:
    """The tokens of a choice; beside each the likeliest ones, and itself where it is none of them."""
    listed = as_object(said)
    texts, values, top = (as_list(listed.get(name)) for name in ("tokens", "token_logprobs", "top_logprobs"))
    likeliest = [[read_token(text, value) for text, value in as_object(one).items()] for one in top]
    likeliest += [[] for _ in texts[len(top) :]]
    return tuple(read_token(as_text(text), *rest) for text, *rest in zip(texts, values, likeliest, strict=False))


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (texts[start : start + _AT_ONCE] for start in range(0, len(texts), _AT_ONCE))
