"""Background tools: the model is told of a job, and its result comes into the conversation when it is there."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from callsmith.core.approval import Approved
from callsmith.core.capability.authority import Authority
from callsmith.core.errors import StoreUnavailable
from callsmith.core.events import ToolFinished, ToolProgress
from callsmith.core.ports import Context
from callsmith.core.values import Call, Choice, Message, Result, Tool
from callsmith.runtime.conversation.conversation import Conversation
from callsmith.runtime.execute import Limits
from callsmith.runtime.jobs.background import JOB_ID, BackgroundTools, calls_for_results
from callsmith.runtime.jobs.job import Job, JobLimits, MemoryJobs
from callsmith.runtime.jobs.jobs import Jobs
from callsmith.runtime.nesting import nested_context
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed
from tests.fakes import FakeModel, StrictFakeModel, calls, everything, finished, says
from tests.virtual_time import virtual_time

DRAW = Call("draw", {"what": "a cat"}, "c1")


class Studio:
    """A tool that draws slowly, and says how far it is."""

    def __init__(self, seconds: float = 3.0, **options: Any) -> None:
        self.drawn: list[str] = []
        self.stopped = 0

        @tool(background=True, **options)
        async def draw(what: str) -> AsyncIterator[Any]:
            self.drawn.append(what)
            try:
                for step in range(1, 4):
                    await asyncio.sleep(seconds / 3)
                    yield ToolProgress("", "drawing", step, 3)
                yield {"image": f"{what}.png"}
            except asyncio.CancelledError:
                self.stopped += 1
                raise

        def look() -> str:
            return "nothing new"

        self.tools = Functions(draw, look)


def ids(text: str) -> list[str]:
    return JOB_ID.findall(text)


@pytest.mark.req("R217")
@virtual_time
async def test_the_model_is_told_of_a_job_and_gets_the_result_with_the_next_thing_said():
    studio = Studio()
    model = StrictFakeModel(calls(DRAW), says("I am drawing."), says("Soon."), says("Here it is."))
    conversation = Conversation(model, studio.tools)
    reply = await conversation.send("Draw a cat.")
    assert reply.text == "I am drawing."
    (handle,) = [message.content for message in conversation.messages if message.role == "tool"]
    (job,) = await conversation.jobs()
    assert ids(handle) == [job.id]
    assert job.status == "running"
    assert (await conversation.send("Is it there?")).text == "Soon."
    await asyncio.sleep(4)
    assert (await conversation.send("And now?")).text == "Here it is."
    user, call, result, _ = conversation.messages[-4:]
    assert (user.content, call.calls[0].name, call.calls[0].arguments) == ("And now?", "job_result", {"job": job.id})
    assert result.call_id == call.calls[0].id
    assert result.content.startswith('{"image": "a cat.png"}\n(This is the result of draw {"what": "a cat"}')
    assert "job_result" in [listed_tool.name for listed_tool in model.asked[-1].tools]
    assert [job.delivered for job in await conversation.jobs()] == [True]


@pytest.mark.req("R217")
@virtual_time
async def test_a_conversation_goes_on_by_itself_when_its_jobs_have_ended():
    model = StrictFakeModel(calls(DRAW), says("I am drawing."), says("Here it is."))
    conversation = Conversation(model, Studio().tools)
    await conversation.send("Draw a cat.")
    reply = await conversation.wait_for_jobs()
    assert reply is not None
    assert reply.text == "Here it is."
    roles = [message.role for message in conversation.messages]
    assert roles == ["user", "assistant", "tool", "assistant", "assistant", "tool", "assistant"]
    assert await conversation.wait_for_jobs() is None


@pytest.mark.req("R217")
@virtual_time
async def test_the_model_can_wait_for_a_job_and_its_progress_is_seen():
    jobs, studio = Jobs(), Studio()
    toolset = BackgroundTools(studio.tools, jobs)
    (begun,) = finished(await everything(FakeModel(calls(DRAW), says("…")), toolset))
    assert (begun.ok, begun.code) == (True, "accepted")
    (id,) = ids(begun.text)

    def wait(seconds: float) -> FakeModel:
        return FakeModel(calls(Call("job_result", {"job": id, "seconds": seconds}, "c2")), says("…"))

    events = await everything(wait(1.5), toolset)
    (still,) = finished(events)
    assert (still.content, still.code) == (f"{id} is still running (1 of 3, drawing).", "accepted")
    events = await everything(wait(60), toolset)
    assert [(event.current, event.total) for event in events if isinstance(event, ToolProgress)] == [(1, 3), (2, 3), (3, 3)]
    assert finished(events)[0].text.startswith('{"image": "a cat.png"}')
    started: list[str] = []

    async def starting() -> None:
        started.append("c4")

    context = Context(starting=starting)
    assert [item async for item in toolset.call(Call("job_result", {"job": id}, "c4"), context)] and started == ["c4"]
    (unknown,) = finished(await everything(FakeModel(calls(Call("job_result", {"job": "job_0"}, "c3")), says("…")), toolset))
    assert unknown.code == "not_found"


@virtual_time
async def test_a_job_outlives_the_limits_of_a_call_and_ends_at_its_own():
    studio = Studio(seconds=1000, timeout=5)  # in the background it may be silent for longer
    toolset = BackgroundTools(studio.tools, jobs := Jobs(limits=JobLimits(seconds=600)))
    await everything(FakeModel(calls(DRAW), says("…")), toolset, limits=Limits(seconds=1))
    await asyncio.sleep(599)
    assert [job.status for job in await jobs.list()] == ["running"]
    await asyncio.sleep(2)
    (job,) = await jobs.list()
    assert (job.status, job.result and job.result.code, studio.stopped) == ("failed", "timeout", 1)


@virtual_time
async def test_a_tool_that_raises_is_a_job_that_failed_and_the_model_reads_why():
    @tool(background=True)
    async def draw(what: str) -> str:
        await asyncio.sleep(1)
        raise ValueError("no paper")

    model = FakeModel(calls(DRAW), says("…"), says("It failed."))
    conversation = Conversation(model, Functions(draw))
    await conversation.send("Draw.")
    await conversation.wait_for_jobs()
    assert conversation.messages[-2].content.startswith("internal_error: no paper\n(This is")
    assert (await conversation.jobs())[0].status == "failed"


@virtual_time
async def test_what_needs_approval_is_asked_about_first_and_then_goes_on_in_the_background():
    studio = Studio(side_effects=True)
    conversation = Conversation(FakeModel(calls(DRAW), says("I am drawing.")), Confirmed(studio.tools))
    reply = await conversation.send("Draw a cat.")
    assert [item.call.name for item in reply.pending] == ["draw"]
    assert (await conversation.jobs(), studio.drawn) == ((), [])
    reply = await conversation.decide("c1", Approved({"what": "a dog"}))
    assert (reply.text, [job.status for job in await conversation.jobs()]) == ("I am drawing.", ["running"])
    await conversation.wait_for_jobs()
    assert studio.drawn == ["a dog"]


async def test_a_call_that_makes_no_sense_is_no_job():
    jobs = Jobs()
    (refused,) = finished(
        await everything(FakeModel(calls(Call("draw", {}, "c1")), says("…")), BackgroundTools(Studio().tools, jobs))
    )
    assert (refused.code, await jobs.list()) == ("bad_request", [])


@virtual_time
async def test_other_tools_are_as_they_were_and_patterns_name_more():
    jobs, studio = Jobs(), Studio()
    look = FakeModel(calls(Call("look", {}, "c1")), says("…"))
    assert [item.content for item in finished(await everything(look, BackgroundTools(studio.tools, jobs)))] == ["nothing new"]
    assert [listed_tool.name for listed_tool in await BackgroundTools(Functions(len), jobs).tools()] == ["len"]
    background = BackgroundTools(Functions(tool(name="look")(lambda: 1)), jobs, ["lo*"])
    assert [listed_tool.name for listed_tool in await background.tools()] == ["look", "job_result"]


@virtual_time
async def test_a_job_that_is_cancelled_stops_and_says_so():
    studio = Studio(seconds=60, side_effects=True)
    jobs = Jobs()
    await everything(FakeModel(calls(DRAW), says("…")), BackgroundTools(studio.tools, jobs))
    (job,) = await jobs.list()
    after = await jobs.cancel(job)
    assert after is not None
    assert after.result is not None
    assert (after.status, studio.stopped) == ("cancelled", 1)
    assert "may or may not have taken effect" in after.result.text
    assert await jobs.cancel(after) == after


@virtual_time
async def test_a_turn_that_is_cut_off_before_the_tool_starts_leaves_no_job():
    async def never() -> None:
        await asyncio.Event().wait()

    studio, jobs = Studio(), Jobs()
    items = BackgroundTools(studio.tools, jobs).call(DRAW, Context(starting=never))
    waiting = asyncio.ensure_future(anext(items))
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.wait({waiting})
    await asyncio.sleep(1)
    assert (await jobs.list(), studio.drawn) == ([], [])


@virtual_time
async def test_no_more_jobs_run_than_may_and_the_oldest_results_make_room():
    studio, jobs = Studio(), Jobs(limits=JobLimits(running=3, stored=4))
    toolset = BackgroundTools(studio.tools, jobs)

    async def draw(number: int, subject: str = "") -> Result:
        (result,) = [item async for item in toolset.call(Call("draw", {"what": str(number)}, "c"), Context(subject=subject))]
        assert isinstance(result, Result)
        return result

    codes = [result.code for result in await asyncio.gather(*map(draw, range(10)))]
    assert (codes.count("accepted"), codes.count("limit_reached")) == (3, 7)
    assert (await draw(1, "another")).code == "accepted"
    for round in range(3):
        await asyncio.sleep(5)
        assert (await draw(round)).code == "accepted"
    assert len(await jobs.list()) == 4


@virtual_time
async def test_jobs_are_brought_only_to_their_own_caller_and_conversation_or_where_their_ids_stand():
    jobs = Jobs()
    toolset = BackgroundTools(Studio().tools, jobs)
    async for _ in toolset.call(DRAW, Context("talk", subject="ada")):
        pass
    await asyncio.sleep(5)
    (job,) = await jobs.list("ada")
    messages = [Message.user(f"What became of {job.id}?")]
    assert len(await calls_for_results(jobs, "ada", "talk", ())) == 1
    assert len(await calls_for_results(jobs, "ada", "other", messages)) == 1
    assert await calls_for_results(jobs, "ada", "other", ()) == ()
    assert await calls_for_results(jobs, "bob", "talk", messages) == ()
    results = [item async for item in toolset.call(Call("job_result", {"job": job.id}, "c"), Context("talk", subject="bob"))]
    assert isinstance(results[0], Result)
    assert results[0].code == "not_found"


@virtual_time
@pytest.mark.parametrize(
    ("options", "token", "status", "drawn"),
    [
        ({}, "", "done", 2),
        ({"side_effects": True, "idempotent": True}, "", "done", 2),
        ({"side_effects": True}, "", "interrupted", 1),
        ({}, "a token", "interrupted", 1),
    ],
)
async def test_what_may_be_repeated_is_started_anew_and_the_rest_is_interrupted(
    options: dict[str, Any], token: str, status: str, drawn: int
):
    storage, studio = MemoryJobs(), Studio(**options)
    first, second = Jobs(storage), Jobs(storage)
    toolset = BackgroundTools(studio.tools, first)
    async for _ in toolset.call(DRAW, Context("talk", authority=Authority(token=token))):
        pass
    await asyncio.sleep(1)
    await first.close()
    await second.take_over("", studio.tools)
    await asyncio.sleep(5)
    (job,) = await second.list()
    assert (job.status, len(studio.drawn), job.attempts) == (status, drawn, drawn)


@virtual_time
async def test_a_job_whose_process_is_stopped_again_and_again_is_given_up():
    storage, studio = MemoryJobs(), Studio()
    jobs = Jobs(storage)
    async for _ in BackgroundTools(studio.tools, jobs).call(DRAW, Context()):
        pass
    for _ in range(5):
        await jobs.close()
        jobs = Jobs(storage)
        await jobs.take_over("", studio.tools)
        await asyncio.sleep(0.1)
    (job,) = await jobs.list()
    assert (job.status, len(studio.drawn)) == ("interrupted", 3)


@virtual_time
async def test_a_job_that_somebody_ended_elsewhere_stops_here():
    storage, studio = MemoryJobs(), Studio()
    here, there = Jobs(storage), Jobs(storage)
    async for _ in BackgroundTools(studio.tools, here).call(DRAW, Context()):
        pass
    await asyncio.sleep(1)
    (job,) = await there.list()
    await there.cancel(job)
    await asyncio.sleep(5)
    assert ([item.status for item in await here.list()], studio.stopped) == (["cancelled"], 1)


@virtual_time
async def test_of_a_result_that_is_too_long_the_beginning_is_stored():
    @tool(background=True)
    async def draw(what: str) -> str:
        return "x" * 50_000_000

    jobs = Jobs()
    async for _ in BackgroundTools(Functions(draw), jobs).call(DRAW, Context()):
        pass
    followed = [item async for item in jobs.follow((await jobs.list())[0])]
    assert isinstance(followed[-1], Job)
    assert followed[-1].result is not None
    assert 40_000 < len(followed[-1].result.text) < 41_000
    assert "49,960,000 of 50,000,000 characters are missing" in followed[-1].result.text


@virtual_time
async def test_a_required_call_is_still_required_after_the_result_of_a_job():
    model = StrictFakeModel(calls(DRAW), says("…"), calls(Call("look", {}, "c2")), says("Done."))
    conversation = Conversation(model, Studio().tools, choice=Choice("required"))
    await conversation.send("Draw.")
    await asyncio.sleep(5)
    events = [event async for event in conversation.stream("Look.")]
    assert [event.result.name for event in events if isinstance(event, ToolFinished)] == ["job_result", "look"]
    assert [request.choice.mode for request in model.asked] == ["required", "auto", "required", "auto"]


class Elsewhere:
    """A toolset whose work goes on outside of the program: it is found again by what was noted."""

    def __init__(self) -> None:
        self.begun, self.found, self.stopped = 0, list[str](), 0
        self.over = asyncio.Event()

    async def tools(self) -> list[Tool]:
        return [Tool("build", side_effects=True, background=True)]

    async def call(self, call: Call, context: Context) -> AsyncIterator[Result]:
        await context.starting()
        assert context.checkpoint is not None
        if context.checkpoint.value:
            self.found.append(context.checkpoint.value)
        else:
            self.begun += 1
            await context.checkpoint.save("build 7")
        try:
            await self.over.wait()
        except asyncio.CancelledError:
            self.stopped += not context.checkpoint.is_left()
            raise
        yield Result(call.id, call.name, "built")


@virtual_time
async def test_work_that_goes_on_elsewhere_is_found_again_however_often_and_not_begun_anew():
    storage, work = MemoryJobs(), Elsewhere()
    jobs = Jobs(storage)
    await everything(FakeModel(calls(Call("build", {}, "c1")), says("…")), BackgroundTools(work, jobs))
    for _ in range(5):
        await jobs.close()
        (left,) = await jobs.list()
        assert (left.status, left.checkpoint, left.repeatable) == ("running", "build 7", False)
        jobs = Jobs(storage)
        await jobs.take_over("", work)
        await asyncio.sleep(1)
    work.over.set()
    ended = [item async for item in jobs.follow(left)][-1]
    assert isinstance(ended, Job) and ended.result is not None
    assert (ended.status, ended.result.text) == ("done", "built")
    assert (work.begun, work.found, work.stopped) == (1, ["build 7"] * 5, 0)


@virtual_time
async def test_work_that_ended_elsewhere_while_nobody_looked_is_found_after_its_time_too():
    storage, work = MemoryJobs(), Elsewhere()
    jobs = Jobs(storage)
    await everything(FakeModel(calls(Call("build", {}, "c1")), says("…")), BackgroundTools(work, jobs))
    await jobs.close()
    (left,) = await jobs.list()
    await storage.write(replace(left, created=left.created - 10**6, attempts=2))
    work.over.set()
    later = Jobs(storage)
    await later.take_over("", work)
    await asyncio.sleep(1)
    assert [job.status for job in await later.list()] == ["done"]


@virtual_time
async def test_work_elsewhere_is_stopped_with_its_job_and_given_up_after_its_time():
    work, jobs = Elsewhere(), Jobs(limits=JobLimits(seconds=10))
    await everything(FakeModel(calls(Call("build", {}, "c1")), says("…")), BackgroundTools(work, jobs))
    (job,) = await jobs.list()
    after = await jobs.cancel(job)
    assert after is not None and (after.status, work.stopped) == ("cancelled", 1)
    await everything(FakeModel(calls(Call("build", {}, "c2")), says("…")), BackgroundTools(work, jobs))
    await asyncio.sleep(11)
    assert ([job.status for job in await jobs.list()], work.stopped) == (["cancelled", "failed"], 2)


@virtual_time
async def test_what_a_nested_run_notes_is_not_the_outer_calls():
    seen: list[object] = []

    async def look(call: Call, context: Context) -> AsyncIterator[Result]:
        await context.starting()
        seen.append(context.checkpoint)
        seen.append(nested_context(context, 6).checkpoint)
        yield Result(call.id, call.name, "seen")

    work, jobs = Elsewhere(), Jobs()
    work.call = look  # type: ignore[method-assign]
    await everything(FakeModel(calls(Call("build", {}, "c1")), says("…")), BackgroundTools(work, jobs))
    assert seen[0] is not None and seen[1] is None


async def test_a_result_reaches_the_model_although_the_store_cannot_note_that_it_did(monkeypatch: pytest.MonkeyPatch):
    storage, call = MemoryJobs(), Call("draw", {}, "c1")
    ended = Job("job_1", call, Tool("draw"), "", "", 1.0, "done", 2.0, result=Result("c1", "draw", "a cat.png"))
    await storage.write(ended)

    async def write(job: Job) -> Job:
        raise StoreUnavailable("it is away")

    monkeypatch.setattr(storage, "write", write)
    toolset = BackgroundTools(Functions(), Jobs(storage))
    (result,) = [item async for item in toolset.call(Call("job_result", {"job": "job_1"}, "c2"), Context())]
    assert isinstance(result, Result) and result.text.startswith("a cat.png")
