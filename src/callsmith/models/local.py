"""`LocalModel`: an engine, a format and a template make a model. The only place where prompt, grammar and reader meet."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final

from callsmith.core.choice import apply_policy
from callsmith.core.closing import closing
from callsmith.core.errors import GrammarRefused, UnsupportedSchema, UsageError, list_names
from callsmith.core.events import ModelEvent, Report, Started, Stopped, Unenforced
from callsmith.core.ports import ModelInfo
from callsmith.core.types.model_step import CallDecision, ModelStep
from callsmith.core.values import Choice, Completion, Message, Request, Sampling, Tool, Usage
from callsmith.engines.lru import LRU, IdentityLRU
from callsmith.engines.port import Engine, Finished, Piece, with_defaults
from callsmith.engines.upstream.replicas import affinity_id
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.escaping import Escaper
from callsmith.formats.prompt.prompt import NO_IMAGES, Prompt, prompt_for, split_at_images
from callsmith.formats.prompt.splice import RawTurn
from callsmith.formats.prompt.template import Template
from callsmith.formats.reader.reader import Reader
from callsmith.grammar.limits import refusing_depth
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.output import format_for_output
from callsmith.grammar.schema.loosen import STEPS
from callsmith.models.answers.deciding import (
    TAKEN_BACK,
    AnswerPlan,
    Decider,
    add_decision,
    ask_instead,
    make_judge,
    report_decision,
    take_back_invented_calls,
)
from callsmith.models.answers.normalizer import AnswerNormalizer
from callsmith.models.answers.reading import EngineAnswer, Stage, StepRecorder, pass_through
from callsmith.models.answers.thinking import BudgetedGeneration, raw_text
from callsmith.models.answers.validator import AnswerValidator, Enforcement, UnenforcedOf, ViolationDetector, nothing_unenforced
from callsmith.models.grammars import AnswerGrammar, Grammars, grammar_text
from callsmith.models.plain_text import LocalTokenizer, continue_text
from callsmith.models.traits import NOTHING_KNOWN, Traits, describe_local

# From here on prompt and grammar are made in a thread: it takes about 20 ms.
_LONG_TEXT: Final = 100_000
_MANY_MESSAGES: Final = 200
_MANY_TOOLS: Final = 20
_LONG_OUTPUT: Final = 2_000
_ALL, _SOME, _NONE = range(3)  # of the tools: whose calls a grammar holds to their schemas
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
        self._frames = frozenset(text for text in self._specials if text not in repr(self._read))
        self._grammars = Grammars(format, relays=engine.info.relays, unenforced_by=engine.info.unenforced)
        self._enforcement = Enforcement(engine.info.name, is_known=engine.info.is_enforcing)
        self._seen: IdentityLRU[None] = IdentityLRU(256)  # sets of tools
        self._turns: LRU[RawTurn] = LRU(_TURNS)
        tool_prompt = traits.tool_prompt
        is_deciding = tool_prompt.threshold is not None and bool(tool_prompt.opening) and engine.info.logprobs
        self._decider = Decider(engine, format, tool_prompt, self._make_prompt) if is_deciding else None

    @property
    def info(self) -> ModelInfo:
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
        decides = self._decider is not None and self._is_undecided(request)
        return self._decide_and_answer(request, self._decider) if decides and self._decider else self._answer(request)

    def _is_undecided(self, request: Request) -> bool:
        """Whether it is to be decided if the answer has calls. A model that reasons first decides for itself."""
        thinks = self.traits.thinks and request.thinking_limit != 0
        is_auto = apply_policy(request, self.traits.policy).mode == "auto"
        return is_auto and bool(request.tools) and not request.prefilled and not thinks

    async def _decide_and_answer(self, request: Request, decider: Decider) -> AsyncGenerator[ModelEvent, None]:
        """The answer, with the choice made before it is written."""
        is_exact, request = request.sampling.temperature is None, self._apply_defaults(request)
        decided = await decider.decide(request, is_exact=is_exact)
        decision, spent, begun = decided.decision, decided.usage, False
        async with closing(self._answer_decided(decided.request, decision)) as events:
            async for event in events:
                if isinstance(event, Stopped) and TAKEN_BACK in event.report.taken_back:
                    spent, decision = spent + event.usage, event.report.decision or decision
                    break
                begun |= isinstance(event, Started)
                yield add_decision(event, decision, Usage() if decision.calls else spent)
            else:
                return
        # The call that it was about to make has values that nobody has given: it answers in words, or asks for them.
        async with closing(self._answer_decided(ask_instead(request, decided.decision), decision)) as events:
            async for event in events:
                if not (begun and isinstance(event, Started)):
                    yield add_decision(event, decision, spent, taken_back=(TAKEN_BACK,))

    def _answer_decided(self, request: Request, decision: CallDecision) -> AsyncGenerator[ModelEvent, None]:
        """The answer that was decided on; words that look like a call of something that is no tool are taken back."""
        events = self._answer(request, decision)
        if decision.calls or request.output:
            return events
        return take_back_invented_calls(events, lambda: self._answer(replace(request, tools=()), decision))

    async def _answer(
        self, request: Request, decision: CallDecision | None = None, retried: AnswerPlan | None = None
    ) -> AsyncGenerator[ModelEvent, None]:
        """The answer as events, by a grammar that the engine does not refuse; only what has to be validated is withheld until it
        is complete. `retried` is the plan of an answer of which something is asked for again: the second is not validated."""
        request = request if retried else self._apply_defaults(request)
        guarded = self.traits.auto_guarded or (retried is not None and retried.grammar is None)
        held, has_begun, notices = _ALL, False, tuple[str, ...]()
        for _ in range(STEPS + 3):
            plan = recorder = None
            try:
                plan = await self._make_plan(request, decision, guarded=guarded, held=held)
                answer, validator = self._begin(plan), None if retried else self._make_validator(plan)
                recorder = await self._make_recorder(plan, answer) if request.explain else None
                stages = self._make_stages(plan, recorder, validator)
                async with closing(self._generate(plan, answer)) as pieces:
                    async for piece in pieces:
                        events: Iterable[ModelEvent] = answer.feed(piece)
                        if not has_begun:
                            has_begun, events = True, chain(await answer.start(piece), events)
                        for event in pass_through(stages, events):
                            yield event
                        if answer.is_over:
                            for event in pass_through(stages, [await self._stop(plan, answer, piece, notices)]):
                                yield event
                            break
                if validator is not None:
                    async with closing(validator.finish()) as rest:
                        async for event in rest:
                            yield event
                return
            except GrammarRefused:  # the engine remembers it: the next grammar is looser
                if has_begun or plan is None or not isinstance(plan.grammar, Grammar) or plan.grammar.loosened == STEPS:
                    raise
            except UnsupportedSchema as error:
                if has_begun or held == _NONE or retried or not self._may_go_free(request, decision):
                    raise
                at_fault = await asyncio.to_thread(self._grammars.list_unheld, request.choice.among(request.tools))
                held, whose = (_SOME, f" of {list_names(at_fault)}") if at_fault and held == _ALL else (_NONE, "")
                notices = (f"calls{whose} were not constrained: {error}",)
            finally:
                if recorder is not None:
                    recorder.close()

    def _generate(self, plan: AnswerPlan, answer: EngineAnswer) -> AsyncGenerator[Piece | Finished, None]:
        """What the engine writes, with no more reasoning than the request wants."""
        limit = plan.request.thinking_limit
        if limit is None or self._read.thinks is None:
            return self.engine.generate(plan.prompt, plan.request.sampling, plan.grammar)

        def grammar_behind() -> AnswerGrammar:
            return plan.grammar and self._find_grammar(plan.request, plan.tools, lenient=plan.lenient)

        return BudgetedGeneration(self.engine, plan, answer.reader, limit, self._escaper.escape_text, grammar_behind).generate()

    def _may_go_free(self, request: Request, decision: CallDecision | None) -> bool:
        """Whether calls may come that no grammar holds: that they are constrained was not asked for with this request."""
        open_request = replace(request, choice=Choice()) if decision else request  # that a call must come was not asked for
        is_guarded = self.traits.auto_guarded or decision is not None
        return is_guarded and not _must_constrain(open_request, request.choice.among(request.tools))

    def complete(self, completion: Completion) -> AsyncGenerator[ModelEvent, None]:
        """Continue a text as it is."""
        settled = self._apply_sampling_defaults(completion.sampling)
        return continue_text(self.engine, replace(completion, sampling=settled))

    async def count(self, request: Request) -> int:
        """How many tokens the prompt of this request has, without a BOS that the engine may add."""
        prompt = await self._make_prompt(request)
        count_images = self.engine.info.count_images
        if not prompt.images or count_images is None:
            return sum([await self.engine.count(piece) for piece in prompt.pieces])
        texts = [text for piece in prompt.pieces for text in split_at_images(piece)]
        return await count_images(prompt) + sum([await self.engine.count(text) for text in texts])

    async def _make_prompt(self, request: Request) -> Prompt:
        return await asyncio.to_thread(self._prompt, request) if self._is_large(request) else self._prompt(request)

    @refusing_depth
    def _prompt(self, request: Request) -> Prompt:
        request = self._apply_defaults(request)
        return self._build_prompt(request, request.choice.among(request.tools))

    def _build_prompt(self, request: Request, tools: Sequence[Tool]) -> Prompt:
        def find_turn(id: str) -> RawTurn | None:
            return self._turns.get((request.origin.cache_salt, id))

        tool_prompt = self.traits.tool_prompt
        is_opened = request.choice.mode == "required" and not (self.traits.thinks and request.thinking_limit != 0)
        prompt = prompt_for(
            request,
            tools,
            self.template,
            self.format,
            self._escaper,
            find_turn if tool_prompt.is_template else None,
            tool_prompt,
            tool_prompt.opening if is_opened and tools else "",
            "" if self.engine.info.count_images else self.engine.info.no_images or NO_IMAGES,
        )
        if self.engine.info.upstreams is None:
            return prompt
        return replace(prompt, origin=replace(prompt.origin, affinity=affinity_id(request)))

    async def close(self) -> None:
        """Free what the engine holds. Answering afterwards is an error."""
        await self.engine.close()

    def _make_validator(self, plan: AnswerPlan) -> AnswerValidator | None:
        """What validates the answer where no grammar enforces all of it. An answer that goes on from a prefilled one is not asked
        for again: nothing in its place would go on from the same words."""
        if plan.prompt.prefilled:
            return AnswerValidator(plan.request, nothing_unenforced, None) if plan.tools else None
        unenforced = self._list_unenforced(plan)
        is_ignored = plan.grammar is not None and not self._enforcement.is_known
        # Where text may be written, the grammar holds calls in the model's own format, not in the others that are read too.
        checks_all_calls = plan.grammar is not None and plan.request.choice.mode == "auto" and bool(self.traits.also)
        is_unconstrained = plan.grammar is None and bool(plan.tools) and not self.traits.strict
        if not (unenforced or checks_all_calls or is_unconstrained):
            return None
        return AnswerValidator(
            plan.request,
            unenforced or nothing_unenforced,
            lambda request: self._answer(request, plan.decision, plan),
            must_call=is_ignored and plan.request.choice.mode == "required",
            checks_all_calls=checks_all_calls,
            is_unconstrained=is_unconstrained,
        )

    def _make_stages(self, plan: AnswerPlan, recorder: StepRecorder | None, validator: AnswerValidator | None) -> list[Stage]:
        """What the events go through. Where they come from afar, it is looked whether the grammar was enforced."""
        stages: list[Stage] = [] if recorder is None else [recorder.filter]
        if plan.grammar is not None and self.engine.info.unenforced is not None and self._enforcement.is_known:
            unenforced = self._list_unenforced(plan) or nothing_unenforced
            stages.append(ViolationDetector(self._enforcement, plan.request, unenforced).filter)
        return stages if validator is None else [*stages, validator.filter]

    async def _make_recorder(self, plan: AnswerPlan, answer: EngineAnswer) -> StepRecorder:
        """What shows whoever has asked what the model was given and what it wrote."""
        assert plan.request.explain is not None
        grammar = await asyncio.to_thread(grammar_text, self.engine.info, plan.grammar)
        step = ModelStep(plan.prompt.text, grammar=grammar, decision=plan.decision)
        return StepRecorder(step, plan.request.explain, lambda: (answer.text, answer.usage))

    def _begin(self, plan: AnswerPlan) -> EngineAnswer:
        """The answer to a plan, of which nothing is written yet."""
        request, prompt = plan.request, plan.prompt
        is_constrained = plan.grammar is not None and self._enforcement.is_known
        specials = frozenset[str]() if is_constrained and self.engine.info.spells_specials else self._specials
        reader = Reader(
            self._reader_format(plan),
            plan.tools,
            (prompt.opened, *prompt.prefilled),
            specials=specials,
            strict=self.traits.strict,
            is_constrained=is_constrained,
            recover=self.traits.in_reasoning == "recover",
        )
        normalizer = AnswerNormalizer(
            may_call=bool(plan.tools),
            parallel=request.parallel is not False,
            id_pattern=self.format.ids,
            judge=make_judge(plan, self.traits.tool_prompt),
        )
        return EngineAnswer(self.engine, plan, reader, normalizer, frames=self._frames, reads_specials=bool(specials))

    async def _stop(self, plan: AnswerPlan, answer: EngineAnswer, piece: Piece | Finished, notices: tuple[str, ...]) -> Stopped:
        """The end of an answer with this piece."""
        normalizer, end = answer.normalizer, await answer.end(piece)
        reason = normalizer.stop_reason(end.reason)
        if reason == "calls":
            self._remember(plan, normalizer.message, answer.turn)
        reasoning = await self.engine.count("".join(normalizer.thoughts)) if normalizer.thoughts else 0
        is_cut = normalizer.is_cut and not normalizer.calls
        report = Report(notices=notices) + report_decision(plan.decision, normalizer.judge, is_cut=is_cut)
        return Stopped(reason, replace(end.usage, reasoning=min(reasoning, end.usage.completion)), report, end.matched)

    def _remember(self, plan: AnswerPlan, message: Message, pieces: Iterable[Piece]) -> None:
        """Remember a turn with calls as it was written: clients send it back otherwise."""
        prompt = plan.prompt
        if prompt.prefilled or not self.traits.tool_prompt.is_template:
            return
        turn = RawTurn(prompt.rendered, prompt.marked, raw_text(pieces, self._escaper.escape_text), message)
        self._turns.put((plan.request.origin.cache_salt, message.calls[0].id), turn, turn.size)

    async def _make_plan(self, request: Request, decision: CallDecision | None, *, guarded: bool, held: int) -> AnswerPlan:
        plan = partial(self._plan, request, decision, guarded=guarded, held=held)
        return await asyncio.to_thread(plan) if self._is_large(request) else plan()

    @refusing_depth
    def _plan(self, request: Request, decision: CallDecision | None, *, guarded: bool, held: int) -> AnswerPlan:
        tools = request.choice.among(request.tools)
        prompt = self._build_prompt(request, tools)
        output = None if request.choice.mode == "required" else request.output
        grammar = None if held == _NONE else self._grammar(request, tools, prompt, guarded=guarded, lenient=held == _SOME)
        return AnswerPlan(request, tools, output, prompt, grammar, decision, lenient=held == _SOME)

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

    def _reader_format(self, plan: AnswerPlan) -> Format:
        """The format to read: where no call may be made, marked calls are recognised to be left out, and all else is text."""
        if plan.output is not None:
            return format_for_output(self.format if plan.tools else self.format.without_calls(), plan.output)
        if plan.tools:
            return self._read
        return self.format if plan.request.tools else self.format.without_calls()

    def _grammar(self, request: Request, tools: Sequence[Tool], prompt: Prompt, *, guarded: bool, lenient: bool) -> AnswerGrammar:
        """The grammar of the answer; None where nothing is constrained, as where calls are neither asked for nor `guarded`."""
        if not guarded and not _must_constrain(request, tools):
            return None
        may_think = self.traits.thinks and request.thinking_limit != 0
        return self._find_grammar(request, tools, opened=prompt.opened, thinking=may_think, lenient=lenient)

    def _find_grammar(
        self, request: Request, tools: Sequence[Tool], *, opened: str = "", thinking: bool = False, lenient: bool = False
    ) -> AnswerGrammar:
        parallel, choice, output = request.parallel is not False, request.choice, request.output
        return self._grammars.get(
            tools, choice, parallel=parallel, opened=opened, thinking=thinking, output=output, lenient=lenient
        )

    def _list_unenforced(self, plan: AnswerPlan) -> UnenforcedOf | None:
        """What the grammar does not enforce and has to be validated; None if nothing. Tools are examined when called."""
        if plan.grammar is not None and not self._enforcement.is_known:
            return self._enforcement.list_unenforced(plan.request)
        if plan.grammar is None or (isinstance(plan.grammar, Grammar) and not plan.grammar.unenforced):
            return None
        tools = {tool.name: tool for tool in plan.tools}
        step = plan.grammar.loosened if isinstance(plan.grammar, Grammar) else 0

        def unenforced(name: str) -> Sequence[Unenforced]:
            if name in tools:
                return self._grammars.list_unenforced(tools[name], step)
            if name or plan.output is None:
                return ()
            return self._grammars.unenforced_of_output(plan.output, step)

        return unenforced

    def _apply_defaults(self, request: Request) -> Request:
        """The request, with the model's defaults for what it leaves open."""
        return replace(
            request,
            sampling=self._apply_sampling_defaults(request.sampling),
            parallel=self.traits.parallel if request.parallel is None else request.parallel,
            choice=apply_policy(request, self.traits.policy),
            call_bias=self.traits.call_bias if request.call_bias is None else request.call_bias,
        )

    def _apply_sampling_defaults(self, sampling: Sampling) -> Sampling:
        if sampling.logprobs is not None and not self.engine.info.logprobs:
            raise UsageError("logprobs: this model's engine does not give log probabilities", field="logprobs")
        return with_defaults(sampling, self.traits.sampling)


def _must_constrain(request: Request, tools: Sequence[Tool]) -> bool:
    """Whether a request with these tools asks for a constraint: by a required call, an output, or a strict tool."""
    return request.choice.mode == "required" or request.output is not None or any(tool.strict for tool in tools)
