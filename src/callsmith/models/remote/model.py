"""`RemoteModel`: a model that another server runs, asked in the dialect of that server.

What it offers natively is used: tools, choices, structured output, reasoning. What it breaks is fixed where it can be, and
reported: calls that come as text, without ids, under one number or with invalid arguments, a call that was required and did not
come. To a server without tools they are shown in the prompt.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from callsmith.core.choice import apply_policy
from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError, ModelError, Rejected, Unavailable, UnknownName
from callsmith.core.events import ModelEvent, Report, Stopped
from callsmith.core.ports import ModelInfo
from callsmith.core.types.call_ids import CallIds
from callsmith.core.types.model_step import ModelStep
from callsmith.core.types.tables import as_list, as_object
from callsmith.core.values import Call, Choice, ChoicePolicy, InReasoning, Json, Request, Sampling, Tool
from callsmith.engines.lru import LRU
from callsmith.engines.port import with_defaults
from callsmith.engines.upstream import BrokeOff, Replica, Upstream
from callsmith.engines.upstream.replicas import affinity_id
from callsmith.formats import format_named
from callsmith.formats.algebra import Format
from callsmith.formats.inference.find_calls import any_format, combined_format
from callsmith.formats.prompt.prompt import messages_as_text, with_output_instructions
from callsmith.formats.prompt.tool_prompt import TEMPLATE, ToolPrompt
from callsmith.grammar.limits import refusing_depth
from callsmith.models.answers.normalizer import AnswerNormalizer
from callsmith.models.answers.reading import Stage, StepRecorder
from callsmith.models.answers.validator import AnswerValidator, UnenforcedOf, all_unenforced, nothing_unenforced
from callsmith.models.grammars import grammar_fields
from callsmith.models.remote.answer import (
    StopFilter,
    TextCalls,
    UpstreamAnswer,
    UpstreamCalls,
    explain_rejection,
    refuses_model,
    refuses_tools,
)
from callsmith.wire.fields import as_count
from callsmith.wire.signed import Signed
from callsmith.wire.upstream.dialects import UpstreamDialect
from callsmith.wire.upstream.quirks import Quirks, ToolNames, fit_names, fit_request, names_of

PROMPTED: Final = "generic-xml"  # the format of calls for servers without tools, where the user names none
_MOST_SIGNED: Final = 16 * 1024 * 1024  # characters of answers that are kept because they are signed
_DRAIN_SECONDS: Final = 0.1  # until a connection whose answer has ended is closed and not used again
_UNCHECKED: Final = "*"  # in place of a keyword: all of a schema is validated here
_NO_TOOLS: Final = "the upstream takes no tools here: they are shown to the model in its prompt"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemoteTraits:
    """What is known of a remote model besides its API.

    `provider` is whose it is, `key_variable` where its key comes from. `format` is how it writes calls as text (None: any way
    that is known), `context` how many tokens prompt and answer may have.
    """

    provider: str = ""
    key_variable: str = ""
    format: Format | None = None
    context: int | None = None
    sampling: Sampling = Sampling()
    policy: ChoicePolicy = "auto"
    in_reasoning: InReasoning = "recover"
    guards: tuple[str, ...] = ()
    tool_prompt: ToolPrompt = TEMPLATE


@dataclass(frozen=True, slots=True)
class _Plan:
    """A request, ready to be sent. `tools` are those that may be called, `prompted` says that the model is shown them as text.
    `session` is the id of its conversation, by which a server is chosen."""

    request: Request
    tools: tuple[Tool, ...]
    body: dict[str, Json]
    names: ToolNames
    notices: tuple[str, ...]
    prompted: bool
    session: str


class RemoteModel:
    """Answers requests through another server."""

    def __init__(
        self,
        upstream: Upstream,
        dialect: UpstreamDialect,
        model: str,
        quirks: Quirks = Quirks(),
        traits: RemoteTraits = RemoteTraits(),
    ) -> None:
        self.upstream = upstream
        self.dialect = dialect
        self.model = model
        self.quirks = quirks
        self.traits = traits
        self._signed: LRU[tuple[tuple[str, ...], Json]] = LRU(_MOST_SIGNED)
        self._refused: set[str] = set()  # the modes of choices in which the upstream refuses tools
        self._read = combined_format([traits.format, any_format()]) if traits.format else any_format()

    @property
    def info(self) -> ModelInfo:
        provider, traits = self.traits.provider or self.upstream.url, self.traits
        return ModelInfo(
            name=self.model,
            description=f"{self.model} at {provider}",
            format="native" if self.quirks.tools else self._prompted_format.name,
            context=traits.context,
            policy=traits.policy,
            sampling=traits.sampling,
            guards=traits.guards,
            tool_prompt=traits.tool_prompt.name,
            count=self.count if self.dialect.counts_tokens else None,
            upstreams=self.upstream.replicas,
        )

    async def count(self, request: Request) -> int:
        """How many tokens the prompt of this request has, where the server says."""
        plan = await self._make_plan(self._apply_defaults(request))
        body = {key: value for key, value in plan.body.items() if key not in ("max_tokens", "stream")}
        try:
            counted: Any = await self.upstream.post(f"{self.dialect.path}/count_tokens", body, plan.session)
        except Rejected as error:
            raise self._explain(error) from error
        return as_count(counted["input_tokens"])

    async def close(self) -> None:
        """Close the connections. Answering afterwards is an error."""
        await self.upstream.close()

    async def stream(self, request: Request, *, is_retry: bool = False) -> AsyncGenerator[ModelEvent, None]:
        """The answer as events. Text is withheld where a call is required, and calls that have to be validated; `is_retry`: they
        are not validated again. What breaks off before anything of it was shown is asked for again."""
        request = request if is_retry else self._apply_defaults(request)
        plan = await self._make_plan(request)
        attempt, tried, has_shown = 0, set[Replica](), False
        while True:
            validator, recorder = None if is_retry else self._make_validator(plan), _make_recorder(plan)
            answer = self._begin(plan, recorder, validator)
            try:
                async with closing(self.upstream.stream(self.dialect.path, plan.body, plan.session, tried)) as pieces:
                    async for data in pieces:
                        for event in answer.feed(data):
                            has_shown = True
                            yield event
                        if answer.is_done:
                            await _drain(pieces)
                            break
                for event in answer.close():
                    has_shown = True
                    yield event
                break
            except Rejected as error:
                plan = await self._after_refusal(plan, error)
                tried.clear()  # it is another request
            except ModelError as error:
                # What could not be reached at all has been tried again already.
                had_begun = not isinstance(error, Unavailable) or isinstance(error, BrokeOff)
                if has_shown or not had_begun or not error.retryable or attempt >= self.upstream.retry_policy.retries:
                    raise
                await asyncio.sleep(self.upstream.retry_policy.pause * 2**attempt)
                attempt += 1
            finally:
                if recorder is not None:
                    recorder.close()
        self._remember(plan, *answer.signed)
        if validator is not None:
            async with closing(validator.finish()) as events:
                async for event in events:
                    yield _drop_unchecked(event) if isinstance(event, Stopped) else event

    def _begin(self, plan: _Plan, recorder: StepRecorder | None, validator: AnswerValidator | None) -> UpstreamAnswer:
        """The answer to a plan, of which nothing has come yet."""
        request = plan.request
        reads_text = (plan.prompted or (bool(plan.tools) and self.quirks.repairs)) and request.sampling.logprobs is None
        recover = self.traits.in_reasoning == "recover"
        text = TextCalls(self._read, plan.tools, is_expected=plan.prompted, recover=recover) if reads_text else None
        ids = CallIds(call.id for message in request.messages for call in message.calls)
        behind: list[Stage] = [StopFilter(request.sampling.stop).filter] if request.sampling.stop else []
        behind += [partial(_add_notices, plan.notices)] if plan.notices else []
        return UpstreamAnswer(
            self.upstream,
            self.dialect,
            UpstreamCalls(plan.names, (tool.name for tool in plan.tools), text, ids),
            AnswerNormalizer(may_call=bool(plan.tools), parallel=request.parallel is not False, reads_on=True),
            before=() if recorder is None else (recorder.filter,),
            behind=behind if validator is None else [*behind, validator.filter],
            stops=request.sampling.stop,
        )

    def _make_validator(self, plan: _Plan) -> AnswerValidator | None:
        """What validates the answer: no grammar of ours constrains it."""
        request, must_call = plan.request, plan.request.choice.mode == "required"
        if request.prefilled:
            return AnswerValidator(request, nothing_unenforced, None)
        if not (plan.tools or request.output):
            return None
        ask = partial(self.stream, is_retry=True)
        return AnswerValidator(request, self._list_unenforced(request), ask, must_call=must_call, server=self.model)

    async def _after_refusal(self, plan: _Plan, error: Rejected) -> _Plan:
        """The request in another form, where the upstream refused it for its tools; else the error that the refusal means."""
        mode = plan.request.choice.mode
        if plan.tools and not plan.prompted and refuses_tools(error):
            _log.warning("%s refuses tools (%s): they are shown in the prompt", self.upstream.url, error.message)
            self._refused.add(mode)
            return await self._make_plan(plan.request)
        if refuses_model(error):
            raise UnknownName("model", self.model, await self._models(), field="model") from error
        explained = self._explain(error)
        if isinstance(explained, Rejected) and explained.hint:
            _log.error("%s\n%s", explained.message, explained.hint)
        raise explained from error

    def _explain(self, error: Rejected) -> CallsmithError:
        return explain_rejection(error, url=self.upstream.url, key_variable=self.traits.key_variable)

    async def _models(self) -> list[str]:
        """The names of the upstream's models, for an error message."""
        try:
            return model_names(await self.upstream.get(self.dialect.list_path))
        except ModelError:
            return []

    async def _make_plan(self, request: Request) -> _Plan:
        return await asyncio.to_thread(self._plan, request) if _is_large(request) else self._plan(request)

    @refusing_depth
    def _plan(self, request: Request) -> _Plan:
        tools = request.choice.among(request.tools)
        as_text = not self.quirks.tools or not self.traits.tool_prompt.is_template
        prompted = bool(tools) and (as_text or request.choice.mode in self._refused)
        prompted_request, more = (self._as_text(request, tools)) if prompted or as_text else (request, {})
        if prompted_request.output and prompted_request.output.schema is not None and "schema" not in self.quirks.outputs:
            messages = with_output_instructions(
                prompted_request.messages, prompted_request.output.schema, among_calls=bool(tools)
            )
            prompted_request = replace(prompted_request, messages=messages)
        fitted, left_out = fit_request(prompted_request, self.quirks)
        names = names_of(fitted, self.quirks)
        signed = self._find_signed(fitted)
        sent = fit_names(fitted, names, self.quirks)
        body = self.dialect.write(self.model, sent, signed, self.quirks)
        notices = (*left_out, *([_NO_TOOLS] if prompted and not as_text else ()))
        session = affinity_id(request)
        if self.quirks.session:
            more = {**more, "session_id": session}
        return _Plan(request, tools, {**body, **more}, names, notices, prompted, session)

    def _as_text(self, request: Request, tools: Sequence[Tool]) -> tuple[Request, dict[str, Json]]:
        """The request without tools, which are shown in its messages, and the fields that constrain the answer, if any."""
        more = grammar_fields(self._prompted_format, tools, request, self.quirks.grammar)
        messages = messages_as_text(request, tools, self._prompted_format, self.traits.tool_prompt)
        return replace(request, messages=messages, tools=(), choice=Choice(), parallel=None), more

    @property
    def _prompted_format(self) -> Format:
        """How calls are written by a model that is shown its tools as text."""
        return self.traits.format or format_named(self.traits.tool_prompt.format or PROMPTED)

    def _list_unenforced(self, request: Request) -> UnenforcedOf:
        """Everything is validated, for no grammar of ours holds it; but an output that is none of JSON."""
        if not self.quirks.checks:
            return nothing_unenforced
        output = ("",) if request.output is not None and request.output.schema is not None else ()
        return all_unenforced((*output, *(tool.name for tool in request.tools)), "", _UNCHECKED)

    def _apply_defaults(self, request: Request) -> Request:
        """The request, with the model's defaults for what it leaves open."""
        return replace(
            request,
            sampling=with_defaults(request.sampling, self.traits.sampling),
            choice=apply_policy(request, self.traits.policy),
            policy=None,
        )

    def _remember(self, plan: _Plan, calls: Sequence[Call], signed: Json) -> None:
        """Keep what the upstream has signed, for when the calls come back with their results."""
        if signed is not None:
            ids = tuple(call.id for call in calls)
            self._signed.put((plan.request.origin.cache_salt, ids[0]), (ids, signed), len(repr(signed)))

    def _find_signed(self, request: Request) -> Signed:
        signed: dict[str, Json] = {}
        for message in request.messages:
            ids = tuple(call.id for call in message.calls)
            kept = self._signed.get((request.origin.cache_salt, ids[0])) if ids else None
            if kept is not None and kept[0] == ids:
                signed[self.quirks.fit_id(ids[0])] = kept[1]
        return signed


def model_names(listed: Json) -> list[str]:
    """The names in a list of models, of whatever API."""
    fields = as_object(listed)
    rows = map(as_object, as_list(fields.get("data") or fields.get("models") or listed))
    return [name for row in rows if isinstance(name := row.get("id") or row.get("name"), str)]


def _make_recorder(plan: _Plan) -> StepRecorder | None:
    """What shows whoever has asked what was sent, and what came."""
    if plan.request.explain is None:
        return None
    return StepRecorder(ModelStep(json.dumps(plan.body, ensure_ascii=False, indent=2)), plan.request.explain)


def _add_notices(notices: tuple[str, ...], events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
    """The events, with notices at the end."""
    for event in events:
        yield replace(event, report=event.report + Report(notices=notices)) if isinstance(event, Stopped) else event


def _drop_unchecked(event: Stopped) -> Stopped:
    """The end, without what only says that a remote model's calls are validated here, for all of them are."""
    checked = tuple(keyword for keyword in event.report.unenforced if keyword.keyword != _UNCHECKED)
    return replace(event, report=replace(event.report, unenforced=checked))


def _is_large(request: Request) -> bool:
    """Whether writing the request may take so long that others notice."""
    return sum([message.size for message in request.messages]) > 200_000 or len(request.tools) > 100


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read to the end of an answer that is complete, so that its connection can be used again; but do not wait for it."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in pieces:
                break
    except (TimeoutError, ModelError):
        pass
