"""Background jobs that end because their event loop does, or that are cancelled from within."""

import asyncio

from callsmith.core.values import Call
from callsmith.runtime.conversation.conversation import Conversation
from callsmith.tools.functions import tool
from tests.fakes import FakeModel, calls, says


def test_a_job_whose_event_loop_has_ended_is_told_of():
    @tool(background=True)
    async def report() -> str:
        """Make the report."""
        await asyncio.sleep(0.2)
        return "the report"

    conversation = Conversation(FakeModel(calls(Call("report", {}, "c1")), says("It runs."), says("Well.")), [report])
    conversation.send_sync("Make the report.")
    conversation.send_sync("Is it there?")
    (job,) = asyncio.run(conversation.jobs())
    assert job.status == "interrupted"
    assert any("interrupted: " in message.content for message in conversation.messages)


async def test_a_tool_that_is_cancelled_within_has_ended():
    @tool(background=True)
    async def odd() -> None:
        """Wait for something that is cancelled."""
        inner = asyncio.ensure_future(asyncio.sleep(9))
        asyncio.get_running_loop().call_later(0.02, inner.cancel)
        await inner

    conversation = Conversation(FakeModel(calls(Call("odd", {}, "c1")), says("It runs."), says("Well.")), [odd])
    await conversation.send("go")
    async with asyncio.timeout(3):
        assert await conversation.wait_for_jobs()
    (job,) = await conversation.jobs()
    assert job.status == "failed"
    assert any("odd was cancelled" in message.content for message in conversation.messages)
