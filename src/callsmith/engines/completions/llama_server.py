"""llama-server (llama.cpp): `/completion`, `/tokenize`, `/detokenize`, `/props`.

A prompt may be a mixture of texts and ids, and each text is tokenized by itself. Special tokens that the request does not list as
`preserved_tokens` come without text, but `return_tokens` has their ids.

`n_probs` gives log probabilities, before temperature, biases and grammar unless `post_sampling_probs` is asked for. Of the tokens
that are parts of one character only the last is reported, with all its bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from callsmith.core.types.tables import as_ids, as_list, as_object, as_text
from callsmith.core.values import Json, TokenLogprob
from callsmith.engines.completions.server import Chunk, CompletionServer, Continuation, Object, Progress, write_sampling
from callsmith.engines.completions.tokenizer import find_specials
from callsmith.engines.completions.tokens import read_token
from callsmith.engines.port import EngineInfo
from callsmith.engines.upstream import Upstream
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.targets.upstream import GrammarFields, for_llama_server
from callsmith.wire.fields import as_count, make_usage


class LlamaServer(CompletionServer):
    """A llama-server. One that routes between several models needs the model in every request."""

    kind, owner = "llama-server", "llamacpp"
    needs_room = False

    def __init__(self, upstream: Upstream, model: str = "") -> None:
        super().__init__(upstream, model)
        self._specials: Mapping[int, str] = {}

    async def describe(self) -> EngineInfo:
        """Its properties, and the special tokens, for which the tokenizer is asked."""
        model = self._model.get("model", "")
        listed = await self._listed_model()
        props = as_object(await self._upstream.get(f"props?model={model}" if model else "props"))
        meta = as_object(listed.get("meta"))
        settings = as_object(props.get("default_generation_settings"))
        bos, eos = as_text(props.get("bos_token")), as_text(props.get("eos_token"))
        size = as_count(meta.get("n_vocab")) or None
        specials = await find_specials(self.tokenize, self._detokenize, size, (bos, eos)) if size else {}
        self._specials = {token: text for text, token in specials.items()}
        (begun,) = await self.tokenize(["a"], add_special=True)
        self.adds_bos = bool(bos) and begun[:1] == [specials.get(bos)]
        path = as_text(props.get("model_path")) or as_text(listed.get("id"))
        return EngineInfo(
            name=model or path.replace("\\", "/").rpartition("/")[2].removesuffix(".gguf"),
            description=as_text(props.get("model_ftype")),
            context=as_count(settings.get("n_ctx")) or as_count(meta.get("n_ctx")) or None,
            template=as_text(props.get("chat_template")) or None,
            bos=bos,
            eos=eos,
            specials=specials,
        )

    async def tokenize(self, texts: Sequence[str], *, add_special: bool = False) -> list[list[int]]:
        settings = {"add_special": add_special, "parse_special": True}
        return [[*as_ids(await self._ask("tokenize", "tokens", content=text, **settings))] for text in texts]

    async def prompt(self, pieces: Sequence[str]) -> Object:
        """One text, or a mixture of ids and texts. A list of texts alone would be several prompts."""
        first, *others = pieces
        return {"prompt": [*await self._prompt_ids(first), *others] if others else first}

    def request(self, job: Continuation) -> tuple[str, dict[str, Any]]:
        """Stop strings are searched for here and not there, where text that may become one would be withheld with its ids."""
        sampling = job.sampling
        others = ("typical_p", "penalty_window")
        body: dict[str, Any] = {
            **job.prompt,
            "n_predict": -1 if job.room is None else job.room,
            "stream": True,
            "return_tokens": True,
            "cache_prompt": not job.origin.cache_salt,  # it has no salts
            **self._model,
            **write_sampling(sampling, others, repetition_penalty="repeat_penalty", penalty_window="repeat_last_n"),
            **job.grammar,
        }
        if sampling.logit_bias:
            body["logit_bias"] = [[entry.token, entry.bias] for entry in sampling.logit_bias]
        if sampling.logprobs is not None:
            body["n_probs"] = max(sampling.logprobs, 1)  # with 0, not even the one that was sampled
        penalties = (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty)
        if sampling.penalty_window is None and any(penalties):
            body["repeat_last_n"] = -1  # all of them
        return "completion", body

    def read(self, data: Object, progress: Progress) -> Chunk | None:
        self._check(data)
        cached = as_object(data.get("timings")).get("cache_n")
        usage = make_usage(data.get("tokens_evaluated"), data.get("tokens_predicted"), cached)
        end = None
        if data.get("stop") is True:
            is_cut = data.get("stop_type") == "limit" or data.get("stopped_limit") is True or data.get("truncated") is True
            end = "length" if is_cut else "stop"
        logprobs = tuple(self._token(item) for item in as_list(data.get("completion_probabilities")))
        text, tokens = as_text(data.get("content")), as_ids(data.get("tokens"))
        return Chunk(text, tokens, usage if usage.prompt else None, end, logprobs)

    def constrain(self, grammar: Grammar, specials: Mapping[str, int]) -> GrammarFields:
        return for_llama_server(grammar, specials)

    def _token(self, entry: Json) -> TokenLogprob:
        token = as_object(entry)
        data = bytes(as_id for as_id in as_ids(token.get("bytes")) if 0 <= as_id < 256)
        special = self._specials.get(as_count(token.get("id")), "")
        top = [self._token(item) for item in as_list(token.get("top_logprobs"))]
        return read_token(data or as_text(token.get("token")) or special, token.get("logprob"), top)

    async def _detokenize(self, tokens: list[int]) -> str:
        return as_text(await self._ask("detokenize", "content", tokens=[*tokens]))
