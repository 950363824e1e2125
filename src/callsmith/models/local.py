"""`LocalModel`: an engine, a format and a template make a model. The only place where prompt, grammar and reader meet."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final

from callsmith.core.choice import apply_policy
from callsmith.core.errors import GrammarRefused, UnsupportedSchema, UsageError
from callsmith.core.events import ModelEvent, Report, Started, Stopped, StopReason, Unenforced
from callsmith.core.ports import ModelInfo
from callsmith.core.types.model_step import ModelStep
from callsmith.core.values import (
    ChoicePolicy,
    Completion,
    InReasoning,
    Message,
    Output,
    Request,
    Sampling,
    Tool,
    Usage,
)
from callsmith.engines.lru import LRU, IdentityLRU
from callsmith.engines.port import Engine, EngineInfo, Finished, Piece, with_defaults
from callsmith.engines.upstream.affinity import affinity_id
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.escaping import Escaper
from callsmith.formats.prompt.prompt import Prompt, prompt_for
from callsmith.formats.prompt.splice import RawTurn
from callsmith.formats.prompt.template import Template
from callsmith.formats.reader.reader import Reader
from callsmith.grammar.limits import refusing_depth
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.output import format_for_output
from callsmith.grammar.schema.loosen import STEPS
from callsmith.models.answer import AnswerFilter, report_step
from callsmith.models.checked import UnenforcedOf, checked
from callsmith.models.enforcement import Enforcement
from callsmith.models.grammars import AnswerGrammar, Grammars, grammar_text
from callsmith.models.logprobs import LogprobAligner
from callsmith.models.plain_text import LocalTokenizer, continue_text

# From here on prompt and grammar are made in a thread: it takes about 20 ms.
_LONG_TEXT: Final = 100_000
_MANY_MESSAGES: Final = 200
_MANY_TOOLS: Final = 20
_LONG_OUTPUT: Final = 2_000
_TURNS: Final = 64_000_000  # characters of turns that are known as they were written


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of a model besides its format and template.

    `also` are formats it is read in besides its own; `parallel`, whether it may make several calls at once where a request does
    not say; `thinks`, whether it reasons; `auto_guarded`, whether calls are constrained also where the choice is `auto`;
    `policy`, on which hops it may choose at all; `in_reasoning`, what becomes of calls inside its reasoning;
    `guards`, the names of the guards it needs where its calls are run here. `strict`: what it writes is read as it stands, and
    nothing is repaired; for measuring what repairs are worth.
    """

    also: tuple[Format, ...] = ()
    sampling: Sampling = Sampling()
    parallel: bool = True
    thinks: bool = False
    auto_guarded: bool = False
    policy: ChoicePolicy = "auto"
    in_reasoning: InReasoning = "recover"
    guards: tuple[str, ...] = ()
    strict: bool = False


def describe_local(engine: EngineInfo, format: Format, template: Template, traits: Traits) -> ModelInfo:
    """What is known of the model that these make, opened or not."""
    return ModelInfo(
        name=engine.name,
        description=engine.description,
        format=format.name,
        template=template.source,
        weights=engine.weights,
        memory=engine.memory,
        placement=engine.placement,
        thinks=traits.thinks,
        context=engine.context,
        policy=traits.policy,
        sampling=with_defaults(traits.sampling, engine.sampling),
        guards=traits.guards,
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """A request, ready to be generated. `output` is the structured output, where text may be written at all."""

    request: Request
    tools: tuple[Tool, ...]
    output: Output | None
    prompt: Prompt
    grammar: AnswerGrammar


class LocalModel:
    """Answers requests through an engine."""

    def __init__(self, engine: Engine, format: Format, template: Template, traits: Traits = Traits()) -> None:
        self.engine = engine
        self.format = format
        self.template = template
        self.traits = traits
        self._read = format.also(*traits.also)
        self._specials = frozenset(engine.info.specials)
        self._escaper = Escaper(self._specials)
        # Special tokens that belong to no marker of the format: they frame messages.
        self._foreign = frozenset(text for text in self._specials if text not in repr(self._read))
        self._grammars = Grammars(format, relays=engine.info.relays, unenforced_by=engine.info.unenforced)
        self._enforcement = Enforcement(engine.info.name, is_known=engine.info.is_enforcing)
        self._seen: IdentityLRU[None] = IdentityLRU(256)  # sets of tools
        self._turns: LRU[RawTurn] = LRU(_TURNS)

    @property
    def info(self) -> ModelInfo:
        """What is known of the model."""
        engine = self.engine.info
        return replace(
            describe_local(engine, self.format, self.template, self.traits),
            count=self.count,
            complete=self.complete,
            tokenizer=LocalTokenizer(engine.tokenizer, self._prompt) if engine.tokenizer else None,
            upstreams=engine.upstreams,
            prefill=engine.prefill,
        )

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """The answer as events; only what has to be validated is withheld until it is complete. An answer that goes on from a
        prefilled one is not asked for again: nothing in its place would go on from the same words."""
        request = self._settled(request)
        begun = False
        try:
            async with aclosing(self._streamed(request, guarded=self.traits.auto_guarded)) as events:
                async for event in events:
                    begun = True
                    yield event
            return
        except UnsupportedSchema as error:
            # That calls are constrained was not asked for with this request: it is answered all the same.
            if begun or not self.traits.auto_guarded or _must_constrain(request, request.choice.among(request.tools)):
                raise
            notice = f"calls were not constrained: {error}"
        async with aclosing(self._streamed(request, guarded=False)) as events:
            async for event in events:
                yield replace(event, report=event.report + Report(notices=(notice,))) if isinstance(event, Stopped) else event

    async def _streamed(self, request: Request, *, guarded: bool) -> AsyncGenerator[ModelEvent, None]:
        """The answer, by a grammar that the engine does not refuse."""
        for _ in range(STEPS + 1):
            make = partial(self._plan, request, guarded=guarded)
            plan = await asyncio.to_thread(make) if self._is_large(request) else make()
            try:
                async with aclosing(self._validated(plan)) as events:
                    async for event in events:
                        yield event
                return
            except GrammarRefused:  # the engine remembers it: the next grammar is looser
                if not isinstance(plan.grammar, Grammar) or plan.grammar.loosened == STEPS:
                    raise

    def complete(self, completion: Completion) -> AsyncGenerator[ModelEvent, None]:
        """Continue a text as it stands."""
        settled = self._settled_sampling(completion.sampling)
        return continue_text(self.engine, replace(completion, sampling=settled))

    async def count(self, request: Request) -> int:
        """How many tokens the prompt of this request has, without a BOS that the engine may add."""
        prompt = await asyncio.to_thread(self._prompt, request) if self._is_large(request) else self._prompt(request)
        return sum([await self.engine.count(piece) for piece in prompt.pieces])

    @refusing_depth
    def _prompt(self, request: Request) -> Prompt:
        request = self._settled(request)
        return self._prompt_of(request, request.choice.among(request.tools))

    def _prompt_of(self, request: Request, tools: Sequence[Tool]) -> Prompt:
        def find_turn(id: str) -> RawTurn | None:
            return self._turns.get((request.cache_salt, id))

        prompt = prompt_for(request, tools, self.template, self.format, self._escaper, find_turn)
        return prompt if self.engine.info.upstreams is None else replace(prompt, affinity=affinity_id(request))

    async def close(self) -> None:
        """Free what the engine holds. Answering afterwards is an error."""
        await self.engine.close()

    def _validated(self, plan: _Plan) -> AsyncGenerator[ModelEvent, None]:
        """The answer, with what no grammar enforces validated."""
        unenforced, is_free = self._unenforced(plan), plan.grammar is not None and not self._enforcement.is_known
        answer = self._watched(plan)
        # Where text may be written, the grammar holds calls in the model's own format, not in the others that are read too.
        every_call = plan.grammar is not None and plan.request.choice.mode == "auto" and bool(self.traits.also)
        if (unenforced is None and not every_call) or plan.prompt.prefilled:
            return answer

        def again(request: Request) -> AsyncGenerator[ModelEvent, None]:
            return self._watched(self._plan(request, guarded=self.traits.auto_guarded))

        return checked(answer, plan.request, unenforced or _nothing, again, is_free=is_free, every_call=every_call)

    def _watched(self, plan: _Plan) -> AsyncGenerator[ModelEvent, None]:
        """The answer; where it comes from afar, it is looked whether the grammar was enforced."""
        answer = self._answer(plan, []) if plan.request.explain is None else self._explained(plan)
        if plan.grammar is None or self.engine.info.unenforced is None or not self._enforcement.is_known:
            return answer
        return self._enforcement.watched(answer, plan.request, self._unenforced(plan))

    async def _explained(self, plan: _Plan) -> AsyncGenerator[ModelEvent, None]:
        """The answer; whoever has asked is shown what the model was given and what it wrote."""
        assert plan.request.explain is not None
        written: list[Piece] = []
        step = ModelStep(plan.prompt.text, grammar=await asyncio.to_thread(grammar_text, self.engine.info, plan.grammar))

        def so_far() -> tuple[str, Usage]:
            usage = next((piece.usage for piece in reversed(written) if piece.usage), Usage())
            return "".join([piece.text for piece in written]), usage

        async with aclosing(report_step(self._answer(plan, written), step, plan.request.explain, so_far)) as events:
            async for event in events:
                yield event

    async def _answer(self, plan: _Plan, written: list[Piece]) -> AsyncGenerator[ModelEvent, None]:
        """The answer; `written` becomes what the engine has written for it."""
        request, prompt = plan.request, plan.prompt
        is_constrained = plan.grammar is not None and self._enforcement.is_known
        specials = frozenset[str]() if is_constrained and self.engine.info.spells_specials else self._specials
        reader = Reader(
            self._written(plan),
            plan.tools,
            (prompt.opened, *prompt.prefilled),
            specials=specials,
            strict=self.traits.strict,
            is_constrained=is_constrained,
            recover=self.traits.in_reasoning == "recover",
        )
        aligner = None if request.sampling.logprobs is None else LogprobAligner(reader)
        answer = AnswerFilter(self.format.ids, bool(plan.tools), parallel=request.parallel is not False)
        begun = False

        async def spent(piece: Piece) -> Usage:
            count = self.engine.count
            return piece.usage or Usage(await count(prompt.text), await count("".join([one.text for one in written])))

        async def stopped(reason: StopReason, usage: Usage, matched: str = "") -> Stopped:
            if reason == "calls":
                self._remember(plan, answer.message, written)
            reasoning = await self.engine.count("".join(answer.thoughts)) if answer.thoughts else 0
            return Stopped(reason, replace(usage, reasoning=min(reasoning, usage.completion)), matched=matched)

        async with aclosing(self.engine.generate(prompt, request.sampling, plan.grammar)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Finished):
                    for event in answer.shown((aligner or reader).close()):
                        yield event
                    yield await stopped(answer.reason(piece.reason), piece.usage, piece.matched)
                    return
                if not begun:
                    begun = True
                    yield Started(replace(await spent(piece), completion=0))
                if piece.special and not answer.calling and piece.text in self._foreign and piece.text in prompt.text:
                    # A token that frames messages: the model goes on with somebody else's turn, and its own is over.
                    for event in answer.shown((aligner or reader).close()):
                        yield event
                    yield await stopped(answer.reason("stop"), await spent(piece))
                    return
                written.append(piece)
                if piece.special and not specials:
                    piece = replace(piece, special=False)
                for event in answer.shown(aligner.feed(piece) if aligner else reader.feed(piece.text, piece.special)):
                    yield event
                if answer.complete:
                    yield await stopped("calls", await spent(piece))
                    return

    def _remember(self, plan: _Plan, message: Message, written: Iterable[Piece]) -> None:
        """Remember a turn with calls as it was written: clients send it back otherwise."""
        prompt, escape = plan.prompt, self._escaper.escape_text
        if prompt.prefilled:
            return
        runs = [(special, "".join([piece.text for piece in run])) for special, run in groupby(written, attrgetter("special"))]
        answer = "".join([text if special else escape(text) for special, text in runs])
        turn = RawTurn(prompt.rendered, prompt.marked, answer, message)
        self._turns.put((plan.request.cache_salt, message.calls[0].id), turn, turn.size)

    @refusing_depth
    def _plan(self, request: Request, *, guarded: bool) -> _Plan:
        tools = request.choice.among(request.tools)
        prompt = self._prompt_of(request, tools)
        output = None if request.choice.mode == "required" else request.output
        return _Plan(request, tools, output, prompt, self._grammar(request, tools, prompt, guarded=guarded))

    def _is_large(self, request: Request) -> bool:
        """Whether making prompt and grammar may take so long that others notice: many words, or tools not seen before."""
        if sum([len(message.content) for message in request.messages]) > _LONG_TEXT or len(request.messages) > _MANY_MESSAGES:
            return True
        new: list[bool] = []
        self._seen.get_or_make((request.tools,), lambda: new.append(True))
        if new and len(request.tools) > _MANY_TOOLS:
            return True
        output = request.output
        return (
            output is not None and len(output.pattern or output.grammar or repr(output.schema or output.choices)) > _LONG_OUTPUT
        )

    def _written(self, plan: _Plan) -> Format:
        """The format to read: where no call may be made, marked calls are recognised to be left out, and all else is text."""
        if plan.output is not None:
            return format_for_output(self.format if plan.tools else self.format.without_calls(), plan.output)
        if plan.tools:
            return self._read
        return self.format if plan.request.tools else self.format.without_calls()

    def _grammar(self, request: Request, tools: Sequence[Tool], prompt: Prompt, *, guarded: bool) -> AnswerGrammar:
        """The grammar of the answer; None where nothing is constrained, as where calls are neither asked for nor `guarded`."""
        if not guarded and not _must_constrain(request, tools):
            return None
        return self._grammars.get(
            tools,
            request.choice,
            parallel=request.parallel is not False,
            opened=prompt.opened,
            thinking=self.traits.thinks and request.thinking is not False,
            output=request.output,
        )

    def _unenforced(self, plan: _Plan) -> UnenforcedOf | None:
        """What the grammar does not enforce and has to be validated; None if nothing. Tools are examined when called."""
        if plan.grammar is not None and not self._enforcement.is_known:
            return self._enforcement.unenforced(plan.request)
        if plan.grammar is None or (isinstance(plan.grammar, Grammar) and not plan.grammar.unenforced):
            return None
        tools = {tool.name: tool for tool in plan.tools}
        step = plan.grammar.loosened if isinstance(plan.grammar, Grammar) else 0

        def unenforced(name: str) -> Sequence[Unenforced]:
            if name in tools:
                return self._grammars.unenforced(tools[name], step)
            if name or plan.output is None:
                return ()
            return self._grammars.unenforced_of_output(plan.output, step)

        return unenforced

    def _settled(self, request: Request) -> Request:
        """The request, with the model's defaults for what it leaves open."""
        return replace(
            request,
            sampling=self._settled_sampling(request.sampling),
            parallel=self.traits.parallel if request.parallel is None else request.parallel,
            choice=apply_policy(request, self.traits.policy),
        )

    def _settled_sampling(self, sampling: Sampling) -> Sampling:
        if sampling.logprobs is not None and not self.engine.info.logprobs:
            raise UsageError("logprobs: this model's engine does not give log probabilities", field="logprobs")
        return with_defaults(sampling, self.traits.sampling)


def _nothing(name: str) -> Sequence[Unenforced]:
    """What is not enforced of a tool whose calls a grammar holds wholly."""
    return ()


def _must_constrain(request: Request, tools: Sequence[Tool]) -> bool:
    """Whether a request with these tools asks for a constraint: by a required call, an output, or a strict tool."""
    return request.choice.mode == "required" or request.output is not None or any(tool.strict for tool in tools)
