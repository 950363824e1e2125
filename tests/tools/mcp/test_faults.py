"""Servers that die, hang, flood and lie: the host answers every call, and the others go on."""

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.values import Call
from callsmith.runtime.execute import Limits
from callsmith.runtime.loop import run
from callsmith.tools.mcp import McpHost, ServerConfig
from tests.fakes import ASKED, FakeModel, calls, everything, finished, says
from tests.tools.mcp.trying import alive, call, noted, plain, status
from tests.waiting import until

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="the plain server uses signals"), pytest.mark.processes]


async def test_a_server_that_is_killed_in_a_call_fails_it_at_once_and_comes_back(tmp_path: Path):
    notes = tmp_path / "notes"
    async with McpHost([plain(options={"notes": str(notes)})]) as host:
        pid = int((await call(host, "pid")).text)
        hanging = asyncio.create_task(call(host, "hang"))
        await until(lambda: f"hanging {pid}" in noted(notes))
        os.kill(pid, signal.SIGKILL)
        result = await hanging
        assert (result.ok, result.code) == (False, "unavailable")
        assert "ended before it had answered" in result.text
        assert [tool.name for tool in await host.tools()][:1] == ["echo"]  # they are still offered
        await until(lambda: status(host).state == "ready" and status(host).starts == 2)
        assert (await call(host, "echo", text="again")).content == "again"
        assert int((await call(host, "pid")).text) != pid


async def test_calls_of_a_dead_server_fail_at_once_and_tell_its_last_words():
    async with McpHost([plain(options={"stderr": "a warning"})]) as host:
        assert not (await call(host, "die")).ok
        await until(lambda: status(host).state == "failed")
        assert "my last words" in status(host).error
        result = await call(host, "echo", text="x")
        assert (result.ok, result.code) == (False, "unavailable")  # it does not wait for the next start, which would answer


async def test_a_server_that_keeps_dying_is_started_ever_more_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    notes, pauses, wait_for = tmp_path / "notes", list[float | None](), asyncio.wait_for

    async def quicker(awaited: Any, seconds: float | None) -> Any:
        pauses.append(seconds)
        return await wait_for(awaited, seconds and seconds / 50)

    monkeypatch.setattr(asyncio, "wait_for", quicker)
    async with McpHost([plain(options={"exit": 3, "stderr": "no database", "notes": str(notes)})]) as host:
        assert await host.tools() == []
        assert "no database" in status(host).error
        await until(lambda: len(noted(notes)) >= 4)
    assert pauses[:3] == [0.5, 1, 2]


async def test_a_server_that_dies_at_start_is_told_with_what_it_wrote():
    async with McpHost([plain(options={"exit": 3, "stderr": "no database"})]) as host:
        assert await host.tools() == []
        assert status(host).state == "failed"
        assert "no database" in status(host).error
        assert (await call(host, "echo")).code == "bad_request"


async def test_a_command_that_does_not_exist_is_told():
    async with McpHost(
        [ServerConfig("plain", "no-such-command-at-all"), ServerConfig("other", "sh", cwd="/no/such/folder")]
    ) as host:
        assert await host.tools() == []
        assert "there is no command 'no-such-command-at-all'" in status(host).error
        assert "there is no folder '/no/such/folder'" in status(host, "other").error


async def test_a_server_that_hangs_at_start_holds_up_the_first_list_only(tmp_path: Path):
    notes = tmp_path / "notes"
    slow = plain("slow", options={"hang": "start", "stderr": "waiting for something", "notes": str(notes)}, start_timeout=1.0)
    async with McpHost([plain(), slow]) as host:
        assert len(await host.tools()) > 10
        await until(lambda: status(host, "slow").state == "failed")
        assert "did not answer within 1 seconds" in status(host, "slow").error
        assert "waiting for something" in status(host, "slow").error
        await until(lambda: status(host, "slow").state == "starting")
        failing = asyncio.create_task(until(lambda: status(host, "slow").state == "failed"))
        assert len(await host.tools()) > 10
        assert not failing.done()  # the list did not wait for the server to start
        await failing
        assert (await call(host, "plain_echo", text="x")).ok


async def test_a_host_is_closed_at_once_while_a_server_hangs_at_start(tmp_path: Path):
    notes = tmp_path / "notes"
    host = McpHost([plain(options={"hang": "start", "notes": str(notes)})])
    host.start()
    pid = int((await until(lambda: noted(notes)))[0].split()[1])
    await host.close()
    assert not alive(pid)


@pytest.mark.req("R157")
async def test_a_call_that_hangs_times_out_is_cancelled_at_the_server_and_holds_up_no_other(tmp_path: Path):
    notes = tmp_path / "notes"
    servers = [plain("a", options={"notes": str(notes)}, timeout=1.5, trust=True), plain("b", trust=True)]
    async with McpHost(servers) as host:
        await host.tools()
        model = FakeModel(
            calls(Call("a_hang", {}, "1"), Call("b_echo", {"text": "x"}, "2"), Call("a_echo", {"text": "y"}, "3")), says("so")
        )
        events = await everything(model, host)
        results = {result.call_id: result for result in finished(events)}
        assert (results["1"].ok, results["1"].code) == (False, "timeout")
        assert (results["2"].content, results["3"].content) == ("x", "y")
        await until(lambda: any(line.startswith("cancelled") for line in noted(notes)))
        assert (await call(host, "a_echo", text="z")).ok
        assert status(host, "a").starts == 1


async def test_closing_a_call_early_cancels_it_at_the_server(tmp_path: Path):
    notes = tmp_path / "notes"
    async with McpHost([plain(options={"notes": str(notes)})]) as host:
        task = asyncio.create_task(call(host, "hang"))
        await until(lambda: any(line.startswith("hanging") for line in noted(notes)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: any(line.startswith("cancelled") for line in noted(notes)))
        assert (await call(host, "echo", text="x")).ok


async def test_four_calls_of_a_round_run_side_by_side_and_answer_in_their_order():
    async with McpHost([plain(trust=True)]) as host:
        await host.tools()
        pauses = (0.4, 0.3, 0.2, 0.1)  # none of them begins before all four have come
        tool_calls = [Call("sleep", {"seconds": seconds, "together": 4}, str(number)) for number, seconds in enumerate(pauses)]
        *_, last = [
            event async for event in run(FakeModel(calls(*tool_calls), says("done")), host, ASKED, limits=Limits(parallel=4))
        ]
        results = [message.content for message in last.messages if message.role == "tool"]  # type: ignore[union-attr]
        assert results == ["slept 0.4", "slept 0.3", "slept 0.2", "slept 0.1"]


async def test_a_new_tool_is_seen_when_the_server_says_so():
    async with McpHost([plain()], refresh=600) as host:
        await host.tools()
        await call(host, "grow")
        await until(lambda: status(host).tools == 21)
        assert (await call(host, "grown_0", text="x")).ok


@pytest.mark.req("R154")
async def test_a_new_tool_is_seen_after_a_while_when_the_server_says_nothing():
    async with McpHost([plain(options={"modern": True})], refresh=0.3) as host:
        await host.tools()
        await call(host, "grow")
        await until(lambda: status(host).tools == 21)


async def test_a_flood_of_changes_leads_to_few_lists():
    async with McpHost([plain()], refresh=600) as host:
        await host.tools()
        await call(host, "flood")
        await asyncio.sleep(2.5)
        assert 2 <= int((await call(host, "lists")).text) <= 4


async def test_a_server_that_loses_its_list_keeps_its_last_good_one():
    async with McpHost([plain()], refresh=600) as host:
        before = await host.tools()
        await call(host, "break_list")
        await asyncio.sleep(1)
        assert await host.tools() == before
        assert status(host).state == "ready"
        assert (await call(host, "echo", text="x")).ok


async def test_a_server_that_chatters_before_it_speaks_is_understood():
    async with McpHost([plain(options={"chatter": True})]) as host:
        assert (await call(host, "echo", text="x")).ok


async def test_a_host_can_be_closed_at_any_moment_of_a_start(tmp_path: Path):
    async def one(number: int) -> None:
        notes = tmp_path / str(number)
        host = McpHost([plain(options={"hang": "start", "notes": str(notes)}, start_timeout=0.3)])
        host.start()
        await asyncio.sleep(number / 10)
        await host.close()
        assert not any(alive(int(line.split()[1])) for line in noted(notes))

    async with asyncio.timeout(20):
        await asyncio.gather(*(one(number) for number in range(8)))


async def test_a_loop_that_ends_while_a_host_is_open_ends_its_servers(tmp_path: Path):
    notes = tmp_path / "notes"

    async def forgetful() -> None:
        host = McpHost([plain("a", options={"notes": str(notes)}), plain("b", options={"hang": "start", "notes": str(notes)})])
        host.start()
        await until(lambda: len(noted(notes)) >= 2)

    async with asyncio.timeout(20):
        await asyncio.to_thread(asyncio.run, forgetful())
    assert not any(alive(int(line.split()[1])) for line in noted(notes) if line.startswith("started"))


async def test_a_host_is_closed_at_once_while_a_list_hangs(tmp_path: Path):
    notes = tmp_path / "notes"
    async with McpHost([plain(options={"notes": str(notes)})], refresh=600) as host:
        await call(host, "hang_list")
        await until(lambda: "hanging" in noted(notes))
        assert (await call(host, "echo", text="x")).ok
        assert status(host).state == "ready"
    assert status(host).state == "configured"


@pytest.mark.parametrize("how", ["close", "kill"])
async def test_nothing_a_server_has_started_outlives_it(how: str):
    async with McpHost([plain()]) as host:
        child = int((await call(host, "spawn")).text)
        stubborn = int((await call(host, "spawn", stubborn=True)).text)
        pid = int((await call(host, "pid")).text)
        assert alive(child) and alive(stubborn) and alive(pid)
        if how == "kill":
            os.kill(pid, signal.SIGKILL)
            await until(lambda: not (alive(child) or alive(stubborn)))
    assert not (alive(child) or alive(stubborn) or alive(pid))


async def test_no_task_no_thread_and_no_open_file_is_left_after_closing():
    tasks, files = asyncio.all_tasks(), _open_files()
    async with McpHost([plain("a"), plain("b", options={"modern": True}), plain("c", options={"exit": 1})]) as host:
        await host.tools()
        await call(host, "a_grow")
        await call(host, "b_echo")
    assert asyncio.all_tasks() == tasks
    assert [thread.name for thread in threading.enumerate() if "mcp" in thread.name] == []
    assert _open_files() <= files + 2  # what the event loop keeps to watch processes


async def test_a_host_that_was_never_started_is_closed_and_stays_closed():
    host = McpHost([plain()])
    await host.close()
    assert await host.tools() == []
    assert status(host).starts == 0


async def test_a_host_that_is_closed_answers_calls_all_the_same():
    async with McpHost([plain()]) as host:
        await host.tools()
    result = await call(host, "echo", text="x")
    assert (result.ok, result.code) == (False, "unavailable")


def _open_files() -> int:
    place = Path("/proc/self/fd")
    return len(list(place.iterdir())) if place.exists() else 0
