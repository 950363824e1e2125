"""`LocalModel`: an engine, a format and a template make a model. The only place where prompt, grammar and reader meet."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final

from callsmith.core.choice import apply_policy
from callsmith.core.errors import GrammarRefused, UnsupportedSchema, UsageError
from callsmith.core.events import CallReady, ModelEvent, Report, Started, Stopped, StopReason, Unenforced
from callsmith.core.ports import ModelInfo
from callsmith.core.types.model_step import CallDecision, ModelStep
from callsmith.core.values import Choice, Completion, Message, Request, Sampling, Tool, Usage
from callsmith.engines.lru import LRU, IdentityLRU
from callsmith.engines.port import Engine, Finished, Piece, with_defaults
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
from callsmith.models.answers.checked import UnenforcedOf, checked, nothing_unenforced
from callsmith.models.answers.deciding import (
    SURE,
    TAKEN_BACK,
    AnswerPlan,
    Decider,
    decided_report,
    judge_of,
    margin,
    with_decision,
)
from callsmith.models.answers.enforcement import Enforcement
from callsmith.models.answers.filter import AnswerFilter, calls_size, first_pieces, report_step
from callsmith.models.answers.words import in_words, without_invented_calls
from callsmith.models.grammars import AnswerGrammar, Grammars, grammar_text
from callsmith.models.logprobs import LogprobAligner
from callsmith.models.plain_text import LocalTokenizer, continue_text
from callsmith.models.traits import NOTHING_KNOWN, Traits, describe_local

# From here on prompt and grammar are made in a thread: it takes about 20 ms.
_LONG_TEXT: Final = 100_000
_MANY_MESSAGES: Final = 200
_MANY_TOOLS: Final = 20
_LONG_OUTPUT: Final = 2_000
_TURNS: Final = 64_000_000  # characters of turns that are known as they were written


class LocalModel:
    """Answers requests through an engine."""

    def __init__(self, engine: Engine, format: Format, template: Template, traits: Traits = NOTHING_KNOWN) -> None:
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
        asked = traits.tool_prompt
        is_deciding = asked.threshold is not None and bool(asked.opening) and engine.info.logprobs
        self._decider = Decider(engine, format, asked, self._prompted) if is_deciding else None

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

    def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """The answer as events. Where the choice is open and can be decided beforehand, it is: what comes is calls, or words."""
        decides = self._decider is not None and self._is_open(request)
        return self._decided(request, self._decider) if decides and self._decider else self._constrained(request)

    def _is_open(self, request: Request) -> bool:
        """Whether it is to be decided if the answer has calls. A model that reasons first decides for itself."""
        thinks = self.traits.thinks and request.thinking is not False
        is_auto = apply_policy(request, self.traits.policy).mode == "auto"
        return is_auto and bool(request.tools) and not request.prefilled and not thinks

    async def _decided(self, request: Request, decider: Decider) -> AsyncGenerator[ModelEvent, None]:
        """The answer, with the choice made before it is written."""
        is_exact, request = request.sampling.temperature is None, self._settled(request)
        decided = await decider.decide(request, is_exact=is_exact)
        decision, spent, begun = decided.decision, decided.usage, False
        async with aclosing(self._held(decided.request, decision)) as events:
            async for event in events:
                if isinstance(event, Stopped) and TAKEN_BACK in event.report.taken_back:
                    spent, decision = spent + event.usage, event.report.decision or decision
                    break
                begun |= isinstance(event, Started)
                yield with_decision(event, decision, Usage() if decision.calls else spent)
            else:
                return
        # The call that it was about to make has values that nobody has given: it answers in words, or asks for them.
        missing = (margin(request, decided.decision) or 0.0) > SURE
        async with aclosing(self._held(in_words(request, asks_for_missing=missing), decision)) as events:
            async for event in events:
                if not (begun and isinstance(event, Started)):
                    yield with_decision(event, decision, spent, taken_back=(TAKEN_BACK,))

    def _held(self, request: Request, decision: CallDecision) -> AsyncGenerator[ModelEvent, None]:
        """The answer that was decided on; words that look like a call of something that is no tool are taken back."""
        events = self._constrained(request, decision)
        if decision.calls or request.output:
            return events
        return without_invented_calls(events, lambda: self._constrained(replace(request, tools=()), decision))

    async def _constrained(self, request: Request, decision: CallDecision | None = None) -> AsyncGenerator[ModelEvent, None]:
        """The answer as events; only what has to be validated is withheld until it is complete. An answer that goes on from a
        prefilled one is not asked for again: nothing in its place would go on from the same words."""
        request, begun = self._settled(request), False
        try:
            async with aclosing(self._streamed(request, decision, guarded=self.traits.auto_guarded)) as events:
                async for event in events:
                    begun = True
                    yield event
            return
        except UnsupportedSchema as error:
            # That calls are constrained was not asked for with this request: it is answered all the same.
            open_request = replace(request, choice=Choice()) if decision else request  # that a call must come was not asked for
            is_asked_for = _must_constrain(open_request, request.choice.among(request.tools))
            if begun or is_asked_for or not (self.traits.auto_guarded or decision):
                raise
            notice = f"calls were not constrained: {error}"
        async with aclosing(self._streamed(request, decision, guarded=False, is_free=True)) as events:
            async for event in events:
                yield replace(event, report=event.report + Report(notices=(notice,))) if isinstance(event, Stopped) else event

    async def _streamed(
        self, request: Request, decision: CallDecision | None, *, guarded: bool, is_free: bool = False
    ) -> AsyncGenerator[ModelEvent, None]:
        """The answer, by a grammar that the engine does not refuse; `is_free`: by none."""
        for _ in range(STEPS + 1):
            make = partial(self._plan, request, decision, guarded=guarded, is_free=is_free)
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
        return sum([await self.engine.count(piece) for piece in (await self._prompted(request)).pieces])

    async def _prompted(self, request: Request) -> Prompt:
        return await asyncio.to_thread(self._prompt, request) if self._is_large(request) else self._prompt(request)

    @refusing_depth
    def _prompt(self, request: Request) -> Prompt:
        request = self._settled(request)
        return self._prompt_of(request, request.choice.among(request.tools))

    def _prompt_of(self, request: Request, tools: Sequence[Tool]) -> Prompt:
        def find_turn(id: str) -> RawTurn | None:
            return self._turns.get((request.cache_salt, id))

        asked = self.traits.tool_prompt
        is_opened = request.choice.mode == "required" and not (self.traits.thinks and request.thinking is not False)
        prompt = prompt_for(
            request,
            tools,
            self.template,
            self.format,
            self._escaper,
            find_turn if asked.is_template else None,
            asked,
            asked.opening if is_opened and tools else "",
        )
        return prompt if self.engine.info.upstreams is None else replace(prompt, affinity=affinity_id(request))

    async def close(self) -> None:
        """Free what the engine holds. Answering afterwards is an error."""
        await self.engine.close()

    def _validated(self, plan: AnswerPlan) -> AsyncGenerator[ModelEvent, None]:
        """The answer, with what no grammar enforces validated."""
        unenforced, is_free = self._unenforced(plan), plan.grammar is not None and not self._enforcement.is_known
        answer = self._watched(plan)
        # Where text may be written, the grammar holds calls in the model's own format, not in the others that are read too.
        every_call = plan.grammar is not None and plan.request.choice.mode == "auto" and bool(self.traits.also)
        is_unheld = plan.grammar is None and bool(plan.tools) and not self.traits.strict
        if plan.prompt.prefilled:
            return checked(answer, plan.request, nothing_unenforced, None) if plan.tools else answer
        if not (unenforced or every_call or is_unheld):
            return answer

        def again(request: Request) -> AsyncGenerator[ModelEvent, None]:
            return self._watched(self._plan(request, plan.decision, guarded=is_unheld or self.traits.auto_guarded))

        doubts = unenforced or nothing_unenforced
        return checked(answer, plan.request, doubts, again, is_free=is_free, every_call=every_call, is_unheld=is_unheld)

    def _watched(self, plan: AnswerPlan) -> AsyncGenerator[ModelEvent, None]:
        """The answer; where it comes from afar, it is looked whether the grammar was enforced."""
        answer = self._answer(plan, []) if plan.request.explain is None else self._explained(plan)
        if plan.grammar is None or self.engine.info.unenforced is None or not self._enforcement.is_known:
            return answer
        return self._enforcement.watched(answer, plan.request, self._unenforced(plan))

    async def _explained(self, plan: AnswerPlan) -> AsyncGenerator[ModelEvent, None]:
        """The answer; whoever has asked is shown what the model was given and what it wrote."""
        assert plan.request.explain is not None
        written: list[Piece] = []
        grammar = await asyncio.to_thread(grammar_text, self.engine.info, plan.grammar)
        step = ModelStep(plan.prompt.text, grammar=grammar, decision=plan.decision)

        def so_far() -> tuple[str, Usage]:
            usage = next((piece.usage for piece in reversed(written) if piece.usage), Usage())
            return "".join([piece.text for piece in written]), usage

        async with aclosing(report_step(self._answer(plan, written), step, plan.request.explain, so_far)) as events:
            async for event in events:
                yield event

    async def _answer(self, plan: AnswerPlan, written: list[Piece]) -> AsyncGenerator[ModelEvent, None]:
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
        judge = judge_of(plan, self.traits.tool_prompt)
        answer = AnswerFilter(self.format.ids, bool(plan.tools), parallel=request.parallel is not False, judge=judge)
        begun, called = False, 0

        async def spent(piece: Piece) -> Usage:
            count = self.engine.count
            return piece.usage or Usage(await count(prompt.text), await count("".join([one.text for one in written])))

        async def stopped(reason: StopReason, usage: Usage, matched: str = "") -> Stopped:
            if reason == "calls":
                self._remember(plan, answer.message, first_pieces(written, called) if answer.complete else written)
            reasoning = await self.engine.count("".join(answer.thoughts)) if answer.thoughts else 0
            report = decided_report(plan.decision, judge, is_cut=answer.is_cut and not answer.message.calls)
            return Stopped(reason, replace(usage, reasoning=min(reasoning, usage.completion)), report, matched)

        async with aclosing(self.engine.generate(prompt, request.sampling, plan.grammar)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Finished):
                    for event in answer.shown((aligner or reader).close()):
                        yield event
                    yield await stopped("calls" if answer.complete else answer.reason(piece.reason), piece.usage, piece.matched)
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
                read = aligner.feed(piece) if aligner else reader.feed(piece.text, piece.special)
                for event in answer.shown(read):
                    yield event
                if any(isinstance(event, CallReady) for event in read):
                    called = calls_size(written, read, reader.withheld)
                if answer.complete:
                    yield await stopped("calls", await spent(piece))
                    return

    def _remember(self, plan: AnswerPlan, message: Message, written: Iterable[Piece]) -> None:
        """Remember a turn with calls as it was written: clients send it back otherwise."""
        prompt, escape = plan.prompt, self._escaper.escape_text
        if prompt.prefilled or not self.traits.tool_prompt.is_template:
            return
        runs = [(special, "".join([piece.text for piece in run])) for special, run in groupby(written, attrgetter("special"))]
        answer = "".join([text if special else escape(text) for special, text in runs])
        turn = RawTurn(prompt.rendered, prompt.marked, answer, message)
        self._turns.put((plan.request.cache_salt, message.calls[0].id), turn, turn.size)

    @refusing_depth
    def _plan(
        self, request: Request, decision: CallDecision | None = None, *, guarded: bool, is_free: bool = False
    ) -> AnswerPlan:
        tools = request.choice.among(request.tools)
        prompt = self._prompt_of(request, tools)
        output = None if request.choice.mode == "required" else request.output
        grammar = None if is_free else self._grammar(request, tools, prompt, guarded=guarded)
        return AnswerPlan(request, tools, output, prompt, grammar, decision)

    def _is_large(self, request: Request) -> bool:
        """Whether making prompt and grammar may take so long that others notice: many words, or tools not seen before."""
        if sum([message.size for message in request.messages]) > _LONG_TEXT or len(request.messages) > _MANY_MESSAGES:
            return True
        new: list[bool] = []
        self._seen.get_or_make((request.tools,), lambda: new.append(True))
        if new and len(request.tools) > _MANY_TOOLS:
            return True
        output = request.output
        return (
            output is not None and len(output.pattern or output.grammar or repr(output.schema or output.choices)) > _LONG_OUTPUT
        )

    def _written(self, plan: AnswerPlan) -> Format:
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

    def _unenforced(self, plan: AnswerPlan) -> UnenforcedOf | None:
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
            call_bias=self.traits.call_bias if request.call_bias is None else request.call_bias,
        )

    def _settled_sampling(self, sampling: Sampling) -> Sampling:
        if sampling.logprobs is not None and not self.engine.info.logprobs:
            raise UsageError("logprobs: this model's engine does not give log probabilities", field="logprobs")
        return with_defaults(sampling, self.traits.sampling)


def _must_constrain(request: Request, tools: Sequence[Tool]) -> bool:
    """Whether a request with these tools asks for a constraint: by a required call, an output, or a strict tool."""
    return request.choice.mode == "required" or request.output is not None or any(tool.strict for tool in tools)
