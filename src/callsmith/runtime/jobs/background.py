"""BackgroundTools: a toolset whose background tools answer with a job, and `job_result`, which has the result of one.

When a job has ended, its result comes into the conversation as a call of `job_result` that the model seems to have made: a call
and its result are valid in every template and every API, where a tool message without its call is refused. The run executes that
call like any that a history ends in, so that nothing else has to know of jobs.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from fnmatch import fnmatchcase

from callsmith.core.choice import JOB_RESULT
from callsmith.core.closing import closing
from callsmith.core.events import CallEvent, ToolProgress
from callsmith.core.failures import make_failure
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Json, Message, Result, Schema, Tool
from callsmith.runtime.jobs.job import Job
from callsmith.runtime.jobs.jobs import ACCEPTED, Jobs

JOB_ID = re.compile(r"job_[0-9a-f]{24}")
_MOST_SECONDS = 300  # that `job_result` waits
_MOST_ARGUMENTS = 200  # characters of a job's arguments that stand beside its result
_PARAMETERS: Schema = {
    "type": "object",
    "properties": {
        "job": {"type": "string", "description": "The id of the job: job_…"},
        "seconds": {
            "type": "number",
            "minimum": 0,
            "maximum": _MOST_SECONDS,
            "description": "How long to wait for it, if it is not there yet.",
        },
    },
    "required": ["job"],
}
_DESCRIPTION = (
    "The result of a tool that goes on in the background. You are given it anyway when it is there; ask only to wait for it."
)
RESULT_TOOL = Tool(
    JOB_RESULT, _DESCRIPTION, _PARAMETERS, idempotent=True, timeout=_MOST_SECONDS + 30.0, cache_seconds=0.0, source="callsmith"
)


class BackgroundTools:
    """A toolset around another one: calls of tools that are `background`, or that a pattern names, become jobs."""

    def __init__(self, toolset: Toolset, jobs: Jobs, patterns: Iterable[str] = ()) -> None:
        self._toolset = toolset
        self._jobs = jobs
        self._patterns = tuple(patterns)
        self._given: list[Job] | None = None  # whose results were given in a turn that has not ended

    async def tools(self) -> Sequence[Tool]:
        tools = await self._toolset.tools()
        return [*tools, RESULT_TOOL] if any(map(self._is_background, tools)) else tools

    async def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        tool = next((known for known in await self._toolset.tools() if known.name == call.name), None)
        if tool is None and call.name == JOB_RESULT:
            items = self._result(call, context)
        elif tool is not None and self._is_background(tool):
            items = self._jobs.begin(self._toolset, tool, call, context)
        else:
            items = self._toolset.call(call, context)
        async with closing(items):
            async for item in items:
                yield item

    def begin_turn(self) -> None:
        """A turn begins of which nothing is stored if it fails: what it gives of jobs counts as given when it ends."""
        self._given = []

    async def end_turn(self) -> None:
        """The turn has ended well: the results that it gave do not come again."""
        while self._given:
            await self._jobs.deliver(self._given.pop())

    def _is_background(self, tool: Tool) -> bool:
        return tool.background or any(fnmatchcase(tool.name, pattern) for pattern in self._patterns)

    async def _result(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        id = str(call.arguments.get("job", ""))
        job = await self._jobs.get(context.subject, id)
        if job is None:
            yield make_failure(
                call, "not_found", f"there is no job {id!r} here; it may be too old, or have ended with its program"
            )
            return
        await context.starting()
        if job.status == "running" and (seconds := float(call.arguments.get("seconds") or 0)):
            async with closing(self._follow(job, min(seconds, _MOST_SECONDS), call)) as items:
                async for item in items:
                    yield item
            job = await self._jobs.get(context.subject, id) or job
        if job.result is None:
            yield Result(call.id, call.name, f"{id} is still running{self._how_far(id)}.", code=ACCEPTED)
            return
        if self._given is None:
            await self._jobs.deliver(job)
        else:
            self._given.append(job)
        yield Result(call.id, call.name, f"{job.result.text}\n{_origin(job)}", job.result.ok, job.result.code)

    async def _follow(self, job: Job, seconds: float, call: Call) -> AsyncIterator[ToolProgress]:
        """The progress of a job for so long, or to its end."""
        until = asyncio.get_running_loop().time() + seconds
        async with closing(self._jobs.follow(job)) as items:
            while True:
                try:
                    async with asyncio.timeout_at(until):
                        item = await anext(items, None)
                except TimeoutError:
                    return
                if not isinstance(item, ToolProgress):
                    return
                yield ToolProgress(call.id, item.text, item.current, item.total)

    def _how_far(self, id: str) -> str:
        progress = self._jobs.progress(id)
        if progress is None:
            return ""
        of = "" if progress.total is None else f" of {progress.total:g}"
        step = "" if progress.current is None else f"{progress.current:g}{of}"
        return f" ({', '.join(filter(None, (step, progress.text)))})"


async def calls_for_results(jobs: Jobs, subject: str, conversation: str, messages: Iterable[Message]) -> tuple[Call, ...]:
    """Calls for the results of jobs that have ended and are not in their conversation yet: jobs that were begun in it, and those
    whose ids stand in its messages."""
    ids = {id for message in messages for id in JOB_ID.findall(message.content)}
    if not ids and not conversation:
        return ()
    return tuple(result_call(job.id) for job in await jobs.list_due(subject, conversation, ids))


def result_call(id: str) -> Call:
    arguments: dict[str, Json] = {"job": id}
    return Call(JOB_RESULT, arguments, f"result_of_{id}")


def _origin(job: Job) -> str:
    """What a result is of, for a model that does not see the call any more."""
    text = job.call.text
    arguments = text if len(text) <= _MOST_ARGUMENTS else f"{text[:_MOST_ARGUMENTS]}…"
    return f"(This is the result of {job.call.name} {arguments}, which ran in the background as {job.id}.)"
