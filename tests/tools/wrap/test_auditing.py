"""Audited: executions are reported before they start and when they have ended, and refused calls are none."""

import asyncio
from dataclasses import replace

import pytest

from callsmith.core.approval import Approved, Policy, Rule
from callsmith.core.capability.authority import Authority
from callsmith.core.capability.execution import Execution, hash_arguments
from callsmith.core.errors import StoreUnavailable
from callsmith.core.ports import Context
from callsmith.core.values import Call, Tool
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Audited, Cached, Confirmed
from tests.fakes import Recording
from tests.tools.wrap.recording import items
from tests.virtual_time import virtual_time

CALL = Call("pay", {"euros": 5}, "c1")


class Log:
    """What was reported, and how often the tool had run by then."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.entries: list[tuple[Execution, int]] = []

    async def __call__(self, execution: Execution) -> None:
        self.entries.append((execution, len(self.paid)))

    @property
    def outcomes(self) -> list[str]:
        return [execution.outcome for execution, _ in self.entries]

    @property
    def tools(self) -> Functions:
        @tool(side_effects=True)
        async def pay(euros: int) -> str:
            self.paid.append(euros)
            if euros == 0:
                raise ValueError("nothing to pay")
            if euros > 1000:
                await asyncio.sleep(60)
            return f"paid {euros}"

        return Functions(pay)


async def test_an_execution_is_reported_before_it_starts_and_when_it_has_ended():
    log = Log()
    authority = Authority("ada", via=("node-1",), trust="member", token="secret", trace_id="t1")
    await items(Audited(log.tools, log), CALL, Context("talk", subject="ada", authority=authority))
    (began, before), (ended, after) = log.entries
    assert (before, after) == (0, 1)
    assert replace(ended, outcome="", seconds=None) == began
    assert (ended.outcome, ended.kind, ended.name, ended.source, ended.side_effects) == ("ok", "tool", "pay", "python", True)
    assert (ended.subject, ended.via, ended.conversation, ended.trace_id) == ("ada", ("node-1",), "talk", "t1")
    assert ended.digest == (await log.tools.tools())[0].digest
    assert ended.arguments == hash_arguments({"euros": 5})
    assert ended.seconds is not None
    assert "secret" not in repr(log.entries)


async def test_who_approved_it_is_recorded_and_what_was_run_and_not_what_was_asked():
    log = Log()
    for toolset in (Confirmed(Audited(log.tools, log)), Audited(Confirmed(log.tools), log)):
        log.entries.clear()
        (question,) = await items(toolset, CALL)
        assert log.entries == []
        decisions = {"c1": Approved({"euros": 7}, by="boss")}
        await items(toolset, CALL, Context(decisions=decisions, asked={"c1": question.tool}))
        ended = log.entries[-1][0]
        assert (ended.approved, ended.approved_by, ended.arguments) == (True, "boss", hash_arguments({"euros": 7}))


async def test_what_is_refused_or_answered_from_a_cache_is_no_execution():
    log, denied = Log(), Policy((Rule("deny"),))
    await items(Audited(Confirmed(log.tools, denied), log), CALL)
    await items(Audited(log.tools, log), replace(CALL, arguments={"euros": "many"}))
    assert log.entries == []
    cached = Cached(Audited(Recording(Tool("look", idempotent=True)), log))
    for _ in range(2):
        await items(cached, Call("look", {}, "c1"))
    assert log.outcomes == ["ok"]  # of a toolset that does not say when it starts


@virtual_time
async def test_failures_and_cancellation_are_outcomes():
    log = Log()
    audited = Audited(log.tools, log)
    with pytest.raises(ValueError, match="nothing to pay"):
        await items(audited, replace(CALL, arguments={"euros": 0}))
    paying = asyncio.create_task(items(audited, replace(CALL, arguments={"euros": 2000})))
    await asyncio.sleep(1)
    paying.cancel()
    await asyncio.wait({paying})
    assert log.outcomes == ["", "internal_error", "", "cancelled"]


async def test_what_cannot_be_put_on_record_does_not_run():
    log = Log()

    async def away(_: Execution) -> None:
        raise StoreUnavailable("the disk is full")

    with pytest.raises(StoreUnavailable):
        await items(Audited(log.tools, away), CALL)
    assert log.paid == []
