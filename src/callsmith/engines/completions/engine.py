"""An engine at the other end of a connection: `completions:http://localhost:8080`, of llama-server, vLLM or SGLang.

The server continues text and knows nothing of tools: prompts are rendered here, grammars go with the request, and answers are
read here. Behind `#` is the model, where a server has several; `completions:vllm+http://…` says which kind of server it is,
which else is found out by asking it. Several servers with the same model are separated by commas. The key is in the environment,
in CALLSMITH_UPSTREAM_KEY.
"""

import asyncio
import json
import logging
import os
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Final, cast

from callsmith.core.closing import closing
from callsmith.core.errors import GrammarRefused, ModelError, PromptTooLong, Rejected, UnknownName, UsageError
from callsmith.core.types.tables import as_object, as_text
from callsmith.core.values import Json, Sampling, Usage
from callsmith.engines.completions.llama_server import LlamaServer
from callsmith.engines.completions.server import Chunk, CompletionServer, Continuation, Object, Progress, list_models, translate
from callsmith.engines.completions.sglang import Sglang
from callsmith.engines.completions.tokens import SpecialSplitter, TokenAligner
from callsmith.engines.completions.vllm import Vllm
from callsmith.engines.lru import LRU, IdentityLRU
from callsmith.engines.port import EngineInfo, Finished, Piece
from callsmith.engines.text import StopScanner
from callsmith.engines.upstream import BrokeOff, Replica, RetryPolicy, Upstream, split_urls
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Grammar, Lit
from callsmith.grammar.relay import Relay
from callsmith.grammar.targets.gbnf_words import NotInGbnf
from callsmith.grammar.targets.upstream import GrammarFields
from callsmith.wire.sse import DONE, FrameReader

logger = logging.getLogger(__name__)

KINDS: Final[Mapping[str, type[CompletionServer]]] = {kind.kind: kind for kind in (LlamaServer, Vllm, Sglang)}
_SPEC: Final = re.compile(r"(?:([a-z-]+)\+)?(https?://[^#]+?)(?:/v1)?/?(?:#(.+))?")
_ENDLESS: Final = 1 << 20  # tokens of an answer, where neither the request nor the context limits it
_GRAMMARS: Final = 64  # of which the request fields are cached
_LARGEST: Final = 1024 * 1024  # characters of a grammar
_REFUSALS: Final = (400, 413, 422, 500)
_OF_GRAMMAR: Final = re.compile(r"grammar|structured.?output|structural.?tag|ebnf|guided", re.IGNORECASE)
_OF_LOGPROBS: Final = re.compile(r"logprobs", re.IGNORECASE)
_PROBED: Final = "Quizzical zebras vex"
_PROBE: Final = Grammar(Lit(_PROBED))
_PAUSE: Final = 1.0  # seconds between two questions whether the model is loaded
KEY: Final = "CALLSMITH_UPSTREAM_KEY"


def open(
    rest: str, *, context: int | None = None, key: str | None = None, retry_policy: RetryPolicy = RetryPolicy()
) -> "CompletionsEngine":
    """The engine for the server at that URL. `context` is how many tokens of its context are used, all of them by default."""
    spec = _SPEC.fullmatch(rest)
    if spec is None:
        raise UsageError(f"completions:{rest}: expected completions:http://HOST:PORT, perhaps with #MODEL behind it")
    kind, url, model = spec[1], spec[2], spec[3] or ""
    if kind is not None and kind not in KINDS:
        raise UnknownName("kind of server", kind, KINDS)
    key = os.environ.get(KEY) if key is None else key
    upstream = Upstream(
        [split_url.removesuffix("/v1") for split_url in split_urls(url)],
        headers={"authorization": f"Bearer {key}"} if key else None,
        retry_policy=retry_policy,
        probe="v1/models",
    )

    async def describe() -> tuple[CompletionServer, EngineInfo, bool]:
        try:
            listed = list_models(await _when_loaded(upstream))
            server = (KINDS[kind] if kind else _find_kind(url, listed))(upstream, model)
            info = await server.describe()
            return server, info, await _enforces_grammars(upstream, server, info)
        except ModelError as error:
            raise translate(error, None) from error

    server, info, is_enforcing = upstream.wait_for(describe)
    if info.template is None:
        logger.warning(
            "%s does not say its chat template: unless you give it (--chat-template), it is that of the model's name, or ChatML",
            url,
        )
    return CompletionsEngine(upstream, server, info, context=context, is_enforcing=is_enforcing)


async def _enforces_grammars(upstream: Upstream, server: CompletionServer, info: EngineInfo) -> bool:
    """Whether the server enforces a grammar: a word that no model would begin with is asked for, and it comes or not."""
    engine = CompletionsEngine(upstream, server, info)
    texts: list[str] = []
    try:
        async with closing(engine.generate(Prompt("1 + 1 ="), Sampling(temperature=0.0, max_tokens=4), _PROBE)) as answer:
            texts += [item.text async for item in answer if isinstance(item, Piece)]
    except GrammarRefused as error:
        logger.warning("%s takes no grammars: %s", upstream.url, error.message)
        return False
    if text := "".join(texts).strip():
        if _PROBED.startswith(text):
            return True
        logger.warning("%s ignores grammars: calls are validated instead, and invalid ones asked for once more", upstream.url)
    return False


async def _when_loaded(upstream: Upstream) -> Json:
    """The list of models. A server that is still loading its model says 503: it is waited for."""
    seconds = upstream.retry_policy.begin
    while True:
        try:
            return await upstream.get("v1/models")
        except Rejected as error:
            if error.status != 503 or seconds <= 0:
                raise
            logger.info("waiting for a server: %s", error.message)
            await asyncio.sleep(_PAUSE)
            seconds -= _PAUSE


def _find_kind(url: str, models: Sequence[Object]) -> type[CompletionServer]:
    """The kind of a server, by what its list of models says of their owner."""
    owners = [as_text(model.get("owned_by")) for model in models]
    for kind in KINDS.values():
        if kind.owner in owners:
            return kind
    reason = f"says that {owners[0]!r} owns its models" if owners else "lists no models"
    raise UsageError(
        f"{url} {reason}, which is none of {', '.join(KINDS)}; if it is one, say so: completions:{next(iter(KINDS))}+{url}"
    )


class CompletionsEngine:
    """A server that continues text, as an `Engine`."""

    def __init__(
        self,
        upstream: Upstream,
        server: CompletionServer,
        info: EngineInfo,
        *,
        context: int | None = None,
        is_enforcing: bool = True,
    ) -> None:
        self._upstream = upstream
        self._server = server
        self._fields: IdentityLRU[GrammarFields] = IdentityLRU(_GRAMMARS)
        self._refused: LRU[bool] = LRU(_GRAMMARS)  # hashes of request fields
        self.info = replace(
            info,
            description=" ".join(filter(None, (info.description, f"behind {server.kind}"))),
            context=min((limit for limit in (info.context, context) if limit), default=None),
            unenforced=self._list_unenforced,
            is_enforcing=is_enforcing,
            write_grammar=self._write_grammar,
            logprobs=True,
            spells_specials=True,
            upstreams=upstream.replicas,
        )

    async def generate(
        self, prompt: Prompt, sampling: Sampling, grammar: Grammar | Relay | None = None
    ) -> AsyncGenerator[Piece | Finished, None]:
        """Continue the prompt. Leaving the generator early closes the connection, which has the server stop."""
        if isinstance(grammar, Relay):
            raise UsageError("a server takes one grammar, no relay of them")
        job = await self._job(prompt, sampling, grammar)
        path, body = self._server.request(job)
        splitter, scanner = SpecialSplitter(self.info.specials), StopScanner(sampling.stop)
        aligner, has_text = TokenAligner(sampling.logprobs or 0), False
        room, usage, count = sampling.max_tokens or self.info.context or _ENDLESS, Usage(), 0
        async with closing(self._chunks(path, body, job)) as chunks:
            async for chunk in chunks:
                usage, count = chunk.usage or usage, count + len(chunk.tokens)
                pieces = splitter.feed(chunk.text, chunk.tokens)
                end = chunk.end or ("length" if count > room else None)  # whatever the server thinks of limits
                if end:
                    pieces += splitter.close(is_stop=end == "stop")
                if sampling.logprobs is not None:
                    aligner.feed("".join([piece.text for piece in pieces]), chunk.logprobs, end)
                has_text = has_text or bool(pieces)
                outputs = [output for piece in pieces for output in scanner.feed(piece)]
                is_over = end is not None or scanner.found
                if is_over:
                    outputs += scanner.close() if has_text else [Piece("")]
                for number, output in enumerate(outputs, start=1):
                    tokens = aligner.take() if number == len(outputs) else ()
                    if output.text or tokens:
                        yield Piece(output.text, output.special, usage, tokens)
                if is_over:
                    yield Finished("stop" if scanner.found else end or "stop", usage, scanner.matched)
                    return

    async def count(self, text: str) -> int:
        (tokens,) = await self._server.tokenize([text])
        return len(tokens)

    async def close(self) -> None:
        await self._upstream.close()

    async def _job(self, prompt: Prompt, sampling: Sampling, grammar: Grammar | None) -> Continuation:
        pieces = [piece for piece in prompt.pieces if piece] or [""]
        if self._server.adds_bos:
            pieces[0] = pieces[0].removeprefix(self.info.bos)
        return Continuation(
            await self._server.prompt(pieces),
            sampling,
            await self._room(pieces, sampling.max_tokens),
            {} if grammar is None else self._constrain(grammar, "".join(prompt.prefilled)).body,
            prompt.origin,
        )

    async def _room(self, pieces: list[str], wanted: int | None) -> int | None:
        """How long the answer may become. Some servers refuse more than fits; no text has more tokens than bytes."""
        context = self.info.context
        if context is None or (wanted is None and not self._server.needs_room):
            return wanted
        if wanted is not None and wanted + sum(len(piece.encode("utf-8", "replace")) for piece in pieces) < context:
            return wanted
        used = sum(map(len, await self._server.tokenize(pieces))) + self._server.adds_bos
        if used >= context:
            raise PromptTooLong(used, context)
        return min(wanted or context, context - used)

    def _constrain(self, grammar: Grammar, prefilled: str = "") -> GrammarFields:
        """The request fields of a grammar. The server's matcher begins behind the prompt and what that has of the answer."""
        if prefilled:
            begun = replace(grammar, prefix=grammar.prefix + prefilled, triggers=())
            return self._server.constrain(begun, self.info.specials)
        return self._fields.get_or_make((grammar,), lambda: self._server.constrain(grammar, self.info.specials))

    def _write_grammar(self, grammar: Grammar) -> str:
        return json.dumps(self._constrain(grammar).body, ensure_ascii=False, indent=2)

    def _list_unenforced(self, grammar: Grammar) -> Sequence[tuple[str, str]] | None:
        """What the server does not enforce of a grammar; None if it has refused it, or would, or it cannot be written for it."""
        try:
            fields = self._constrain(grammar)
        except NotInGbnf:
            return None
        if self._refused.get(_digest(fields.body)) or _size(fields.body) > _LARGEST:
            return None
        return fields.unenforced

    async def _chunks(self, path: str, body: Mapping[str, Json], job: Continuation) -> AsyncGenerator[Chunk, None]:
        """What the server streams. An answer that breaks off before anything of it has come is asked for again; another error is
        raised as what it means to whoever asked."""
        retry_policy, has_begun, tried = self._upstream.retry_policy, False, set[Replica]()
        for attempt in range(retry_policy.retries + 1):
            frames, progress = FrameReader(), Progress()
            try:
                async with closing(self._upstream.stream(path, dict(body), job.origin.affinity, tried)) as stream:
                    async for data in stream:
                        for frame in frames.feed(data):
                            if frame.data != DONE and (chunk := self._server.read(self._parse(frame.data), progress)):
                                has_begun = True
                                yield chunk
                                if chunk.end:
                                    return
                raise BrokeOff(self._upstream.url, "it did not say that it is complete")
            except BrokeOff:
                if has_begun or attempt == retry_policy.retries:
                    raise
            except ModelError as error:
                raise self._translate(error, job) from error
            await asyncio.sleep(retry_policy.pause * 2**attempt)

    def _translate(self, error: ModelError, job: Continuation) -> ModelError | PromptTooLong:
        if job.grammar and isinstance(error, Rejected) and error.status in _REFUSALS and _OF_GRAMMAR.search(error.message):
            self._refused.put(_digest(job.grammar), True)
            return GrammarRefused(error.message, status=error.status)
        if (wanted := job.sampling.logprobs) and _OF_LOGPROBS.search(error.message):
            hint = f"The log probabilities of {wanted} tokens were asked for: start vLLM with --max-logprobs {wanted} or more."
            is_refused = isinstance(error, Rejected)
            return Rejected(error.message, status=error.status, hint=hint) if is_refused else ModelError(error.message, hint=hint)
        return translate(error, self.info.context)

    def _parse(self, text: str) -> Object:
        try:
            return as_object(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{self._upstream.url} streams what is no JSON") from error


def _digest(body: Object) -> bytes:
    return blake2b(json.dumps(body, sort_keys=True).encode("utf-8", "replace"), digest_size=16).digest()


def _size(body: Object) -> int:
    """How many characters the grammar in these fields has."""
    return max((len(text) for text in _texts(body)), default=0)


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in cast(Object, value).values():
            yield from _texts(inner)
