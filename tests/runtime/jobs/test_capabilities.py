"""A capability of a bus that streams its progress, used as a tool that goes on in the background."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.offer import offer
from callsmith.bus.reach import CapabilityTools
from callsmith.core.events import ToolProgress
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result
from callsmith.runtime.jobs.background import JOB_ID, BackgroundTools
from callsmith.runtime.jobs.job import Job
from callsmith.runtime.jobs.jobs import Jobs
from callsmith.tools.functions import Functions


@pytest.mark.req("R217")
async def test_a_capability_that_streams_becomes_a_job_with_its_progress_and_result():
    go = asyncio.Event()

    async def generate(prompt: str) -> AsyncIterator[Any]:
        """Make an image."""
        for step in (1, 2):
            yield ToolProgress("", "step", step, 2)
            await go.wait()
        yield {"image_cid": f"cid of {prompt}"}

    bus, jobs = CapabilityBus(), Jobs()
    await offer(bus, Functions(generate), "experimental.img")
    toolset = BackgroundTools(CapabilityTools(bus, patterns=["experimental.img.*"]), jobs, ["img_*"])
    assert [tool.name for tool in await toolset.tools()] == ["img_generate", "job_result"]
    call = Call("img_generate", {"prompt": "a cat"}, "c1")
    (begun,) = [item async for item in toolset.call(call, Context("talk"))]
    assert isinstance(begun, Result)
    assert (begun.code, len(JOB_ID.findall(begun.text))) == ("accepted", 1)
    (job,) = await jobs.list()
    followed = list[Any]()
    async for item in jobs.follow(job):
        followed.append(item)
        go.set()
    assert [(item.current, item.total) for item in followed if isinstance(item, ToolProgress)] == [(1, 2), (2, 2)]
    assert isinstance(followed[-1], Job)
    assert followed[-1].result == Result("c1", "img_generate", '{"image_cid": "cid of a cat"}')
