"""Plain text and tokens, apart from messages: continuing a text as it is, and the tokens of texts and prompts."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace

from callsmith.core.closing import closing
from callsmith.core.errors import UsageError
from callsmith.core.events import ModelEvent, Report, Started, Stopped, Text, Unenforced
from callsmith.core.values import Completion, Request, Usage
from callsmith.engines.port import Engine, Finished, Tokenizer
from callsmith.engines.upstream.replicas import affinity_id
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.limits import refusing_depth
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.output import output_grammar

_PLAIN = Format(name="plain", parts=())  # no markers around text


async def continue_text(engine: Engine, completion: Completion) -> AsyncGenerator[ModelEvent, None]:
    """What the engine writes after the prompt. Special tokens are left out; those that end an answer end it."""
    prompt, grammar = _prompt(engine, completion), None
    report = Report()
    if completion.output is not None:
        held = refusing_depth(output_grammar)(_PLAIN, completion.output)
        grammar = Grammar(held.node)
        by_engine = engine.info.unenforced(grammar) if engine.info.unenforced else ()
        if by_engine is None:
            raise UsageError("the output makes a grammar that is too large for the model's server", field="response_format")
        report = Report(tuple(Unenforced("", *keyword) for keyword in (*held.unenforced, *by_engine)))
    begun = False
    async with closing(engine.generate(prompt, completion.sampling, grammar)) as pieces:
        async for piece in pieces:
            if not begun:
                begun = True
                yield Started(replace(piece.usage or Usage(await engine.count(prompt.text)), completion=0))
            if isinstance(piece, Finished):
                yield Stopped(piece.reason, piece.usage, report, piece.matched)
                return
            if piece.text and not piece.special:
                yield Text(piece.text, tuple(token.logprob for token in piece.tokens))


def _prompt(engine: Engine, completion: Completion) -> Prompt:
    affinity = "" if engine.info.upstreams is None else affinity_id(completion)
    prompt = Prompt("", origin=replace(completion.origin, affinity=affinity))
    if isinstance(completion.prompt, str):
        return replace(prompt, text=completion.prompt)
    if engine.info.tokenizer is None:
        raise UsageError("prompt: this model's engine takes text only, no ids of tokens", field="prompt")
    text = b"".join(engine.info.tokenizer.decode(completion.prompt)).decode("utf-8", "replace")
    return replace(prompt, text=text, tokens=completion.prompt)


@dataclass(frozen=True, slots=True)
class LocalTokenizer:
    """The tokens of a local model. `prompt_for` makes a prompt of a request."""

    tokens: Tokenizer
    prompt_for: Callable[[Request], Prompt]

    def encode(self, text: str, *, bos: bool = True, specials: bool = True) -> list[int]:
        return self._begun(self.tokens.encode(text, specials=specials), bos)

    def encode_request(self, request: Request) -> list[int]:
        prompt = self.prompt_for(request)
        if prompt.images:
            raise UsageError("the tokens of messages with images have no ids", field="messages")
        return self._begun([token for piece in prompt.pieces for token in self.tokens.encode(piece)], bos=True)

    def decode(self, tokens: Sequence[int]) -> list[bytes]:
        return self.tokens.decode(tokens)

    def _begun(self, tokens: list[int], bos: bool) -> list[int]:
        first = self.tokens.bos
        return tokens if not bos or first is None or tokens[:1] == [first] else [first, *tokens]
