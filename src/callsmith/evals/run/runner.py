"""Asks cases in several setups, some cases at once, judges the answers and keeps a record of each."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from callsmith.core.errors import ModelError, UsageError
from callsmith.core.ports import Model
from callsmith.core.schema import validate
from callsmith.core.values import Call, Sampling
from callsmith.evals.bfcl.checker import BfclVerdict, Checker
from callsmith.evals.cases.case import Case
from callsmith.evals.cases.equality import ast_eq, ast_eq_any
from callsmith.evals.run.ask import CaseAnswer, ask
from callsmith.evals.run.conversation import CaseConversation
from callsmith.evals.run.record import CaseRecord, Records, call_row, case_digest
from callsmith.evals.run.setup import Setup, WithToolPrompt, offered_tools, set_up

MOST_FAILURES: Final = 20  # answers in a row, after which something else is wrong than the cases


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How cases are asked. Greedy decoding with a seed: the same answers again, as far as batches round alike."""

    max_tokens: int = 512
    seconds: float = 300.0  # for one case, or one turn of a conversation
    concurrency: int = 8  # cases at once

    @property
    def sampling(self) -> Sampling:
        return Sampling(temperature=0.0, seed=0, max_tokens=self.max_tokens)


DEFAULTS: Final = RunSettings()


class Runner:
    """Asks a model the cases. All setups of a case are asked directly one after the other: its prompt is in the KV cache then."""

    def __init__(
        self,
        model: Model,
        setups: Mapping[str, Setup],
        records: Records,
        checker: Checker | None = None,
        settings: RunSettings = DEFAULTS,
        with_tool_prompt: WithToolPrompt | None = None,
    ) -> None:
        self._models = {label: set_up(model, setup, with_tool_prompt) for label, setup in setups.items()}
        self._setups = setups
        self._records = records
        self._checker = checker
        self._settings = settings
        self._failures = 0

    async def run(self, cases: Sequence[Case], on_record: Callable[[CaseRecord], None] | None = None) -> None:
        """Ask the cases that have no record yet. `on_record` is called with each new one."""
        waiting = iter(cases)

        async def work() -> None:
            for case in waiting:
                for label in self._setups:
                    if self._records.done(case, label) is None:
                        record = await self._record(case, label)
                        self._records.add(record)
                        if on_record is not None:
                            on_record(record)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._settings.concurrency):
                    group.create_task(work())
        except* ModelError as errors:
            raise errors.exceptions[0] from None

    async def _record(self, case: Case, label: str) -> CaseRecord:
        begun = CaseRecord(case.id, case.category, label, case_digest(case), is_equal=is_strictly_equal(case, ()))
        try:
            async with asyncio.timeout(self._settings.seconds * len(case.turns)):
                answer, verdict, whose = await self._answer(case, label)
        except TimeoutError:
            return self._wrap_failure(begun, f"no answer within {self._settings.seconds * len(case.turns):g} s")
        except Exception as error:  # whatever it is, a run of hours goes on with the next case, and says so in its results
            return self._wrap_failure(begun, f"{type(error).__name__}: {error}")
        self._failures = 0
        return replace(
            begun,
            is_right=verdict.is_right,
            judge=whose,
            error_type=verdict.error_type,
            is_equal=is_strictly_equal(case, answer.calls),
            calls=tuple(call_row(call) for call in answer.calls),
            valid=count_valid(case, answer.calls),
            text=answer.written,
            finish=answer.finish,
            prompt_tokens=answer.usage.prompt,
            completion_tokens=answer.usage.completion,
            cached_tokens=answer.usage.cached,
            seconds=round(answer.seconds, 4),
            retries=answer.report.retries,
            repairs=tuple(answer.repairs),
            steps=answer.rounds,
            taken_back=answer.report.taken_back,
            score=answer.report.decision.score if answer.report.decision else None,
        )

    async def _answer(self, case: Case, label: str) -> tuple[CaseAnswer, BfclVerdict, str]:
        """The answer to a case, the verdict on it, and whose that is."""
        model, setup = self._models[label], self._setups[label]
        if case.world is not None:
            if self._checker is None:
                raise UsageError("conversations need the benchmark, whose tools they call")
            conversation = CaseConversation(model, setup, self._checker, self._settings.sampling)
            return *await conversation.hold(case, case.world), "bfcl"
        tools = offered_tools(model, setup, case.tools)
        answer = await ask(model, setup.request(case.messages, tools, self._settings.sampling))
        return answer, *await judge(case, answer.calls, self._checker)

    def _wrap_failure(self, begun: CaseRecord, error: str) -> CaseRecord:
        self._failures += 1
        if self._failures >= MOST_FAILURES:
            raise ModelError(f"{self._failures} answers in a row have failed, the last one: {error}")
        return replace(begun, error_type="error", error=error)


async def judge(case: Case, calls: Sequence[Call], checker: Checker | None) -> tuple[BfclVerdict, str]:
    """The verdict on the calls that were made, and whose it is: that of the benchmark's checker where acceptable values are
    listed, else that of strict equality."""
    if case.expect == "no_call":
        return BfclVerdict(not calls, "" if not calls else "called"), "expect"
    if case.expect == "any_call":
        return BfclVerdict(bool(calls), "" if calls else "no_call"), "expect"
    if not calls:
        return BfclVerdict(False, "no_call"), "expect"
    if case.answers and checker is not None:
        return await checker.check_calls(case, calls), "bfcl"
    is_equal = is_strictly_equal(case, calls)
    return BfclVerdict(bool(is_equal), "" if is_equal else "not_equal"), "ast_eq"


def is_strictly_equal(case: Case, calls: Sequence[Call]) -> bool | None:
    """Whether the calls equal the right ones; None where none are known."""
    if case.calls:
        return ast_eq(calls, case.calls)
    return ast_eq_any(calls, case.answers) if case.answers else None


def count_valid(case: Case, calls: Sequence[Call]) -> int:
    """How many of the calls are of tools that there are, with arguments that fit their schemas."""
    schemas = {tool.name: tool.parameters for turn in case.turns for tool in turn.tools}
    return sum(call.name in schemas and not validate(schemas[call.name], dict(call.arguments)) for call in calls)
