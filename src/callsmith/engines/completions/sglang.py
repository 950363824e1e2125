"""SGLang: `/generate`, `/tokenize`, `/detokenize`, `/model_info`.

Prompts are always ids: with a text, nobody could say whether a BOS is to be added. An event of the stream has the whole answer so
far, or only what is new, as the server was started. The chat template is read from the model's folder, if that is on this
machine.

Log probabilities are sent as the rest of an answer is: all of them again, or what is new. They are those of the model where the
temperature is 0, and else after the temperature, unless the server has SGLANG_RETURN_ORIGINAL_LOGPROB in its environment; a
grammar counts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from callsmith.core.errors import Rejected
from callsmith.core.types.tables import as_ids, as_list, as_object, as_text
from callsmith.core.values import Json, TokenLogprob
from callsmith.engines.completions.server import Chunk, CompletionServer, Continuation, Object, Progress, write_sampling
from callsmith.engines.completions.tokenizer import find_tokenizer_files
from callsmith.engines.completions.tokens import read_token
from callsmith.engines.port import EngineInfo
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.targets.upstream import GrammarFields, for_sglang
from callsmith.wire.fields import as_count, make_usage


class Sglang(CompletionServer):
    kind = owner = "sglang"

    async def describe(self) -> EngineInfo:
        """The model, its tokenizer's settings if its folder is here, and its special tokens."""
        listed = await self._listed_model()
        self._model = {}  # it has one model, which its own API does not name
        info = as_object(await self._info())
        model = as_text(info.get("model_path"))
        files = find_tokenizer_files(self._upstream.url, as_text(info.get("tokenizer_path")) or model)
        return await self._describe(model or as_text(listed.get("id")), listed, files)

    async def tokenize(self, texts: Sequence[str], *, add_special: bool = False) -> list[list[int]]:
        lists = as_list(await self._ask("tokenize", "tokens", prompt=[*texts], add_special_tokens=add_special))
        return [[*as_ids(ids)] for ids in lists]

    async def prompt(self, pieces: Sequence[str]) -> Object:
        return {"input_ids": await self._prompt_ids(*pieces)}

    def request(self, job: Continuation) -> tuple[str, dict[str, Any]]:
        settings: dict[str, Any] = {
            "max_new_tokens": job.room,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            **write_sampling(job.sampling, seed="sampling_seed"),
            **job.grammar,
        }
        body: dict[str, Any] = {**job.prompt, "sampling_params": settings, "stream": True, **job.session_fields}
        if job.sampling.logprobs is not None:
            body |= {"return_logprob": True, "top_logprobs_num": job.sampling.logprobs, "return_text_in_logprobs": True}
        return "generate", body

    def read(self, data: Object, progress: Progress) -> Chunk | None:
        self._check(data)
        text, tokens, meta = as_text(data.get("text")), as_ids(data.get("output_ids")), as_object(data.get("meta_info"))
        usage = make_usage(meta.get("prompt_tokens"), meta.get("completion_tokens"), meta.get("cached_tokens"))
        if progress.tokens and len(tokens) == usage.completion:  # all of it again
            text, tokens = text[progress.text :], tokens[progress.tokens :]
        progress.text += len(text)
        progress.tokens += len(tokens)
        ended = as_object(meta.get("finish_reason"))
        end = self._end(as_text(ended.get("type")), f": {as_text(ended.get('message'))}")
        return Chunk(text, tokens, usage if usage.prompt else None, end, _logprobs(meta, progress))

    def constrain(self, grammar: Grammar, specials: Mapping[str, int]) -> GrammarFields:
        return for_sglang(grammar)

    async def _info(self) -> Json:
        try:
            return await self._upstream.get("model_info")
        except Rejected as error:
            if error.status != 404:
                raise
            return await self._upstream.get("get_model_info")  # its older name

    async def _detokenize(self, tokens: list[int]) -> str:
        return as_text(await self._ask("detokenize", "text", tokens=[*tokens], skip_special_tokens=False))


def _logprobs(meta: Object, progress: Progress) -> tuple[TokenLogprob, ...]:
    """The new tokens. Each is a row of log probability, id and text; the likeliest in its place are a list of such rows."""
    rows, top = as_list(meta.get("output_token_logprobs")), as_list(meta.get("output_top_logprobs"))
    count = as_count(meta.get("output_token_logprobs_length")) or len(rows)
    seen = max(progress.logprobs - (count - len(rows)), 0)
    progress.logprobs = max(progress.logprobs, count)
    likeliest = [[_token(row) for row in as_list(item)] for item in top[seen:]]
    likeliest += [[] for _ in rows[seen + len(likeliest) :]]
    return tuple(_token(row, more) for row, more in zip(rows[seen:], likeliest, strict=False))


def _token(row: Json, top: Sequence[TokenLogprob] = ()) -> TokenLogprob:
    logprob, _, text = (*as_list(row), None, None, None)[:3]
    return read_token(as_text(text), logprob, top)
