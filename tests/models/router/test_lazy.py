import asyncio
import gc
import weakref

import pytest

from callsmith.core.closing import closing
from callsmith.core.errors import ModelError, Unavailable, UnknownName
from callsmith.core.events import Stopped, Text
from callsmith.core.ports import ModelInfo
from callsmith.core.values import Message, Request
from callsmith.models.router import LazyModel, MemoryBudget, in_use
from tests.fakes import FakeModel
from tests.models.router.opened import HELLO, Opener

HI = Request((Message.user("hi"),))
KNOWN = ModelInfo(name="described", memory=100)


async def ask(model: LazyModel) -> str:
    return "".join([event.text async for event in model.stream(HI) if isinstance(event, Text)])


async def until(condition) -> None:
    """Wait until something is so; pytest's time limit ends what never is."""
    while not condition():
        await asyncio.sleep(0.001)


async def test_a_model_is_opened_when_it_is_first_asked_and_only_once():
    opener = Opener()
    model = LazyModel("m", opener, KNOWN)
    assert (model.info.name, model.status.state, opener.calls) == ("described", "unloaded", 0)
    assert await ask(model) == await ask(model) == "Hello"
    assert (model.info.name, model.status.state, opener.calls) == ("opened", "loaded", 1)


async def test_twenty_requests_at_once_open_it_once():
    opener = Opener()
    opener.allowed.clear()
    model = LazyModel("m", opener, KNOWN)
    asking = [asyncio.create_task(ask(model)) for _ in range(20)]
    await until(lambda: opener.calls)
    assert model.status.state == "loading"
    opener.allowed.set()
    assert await asyncio.gather(*asking) == ["Hello"] * 20
    assert opener.calls == 1 and len(opener.opened[0].asked) == 20


async def test_who_waits_for_the_opening_can_go_away_alone():
    opener = Opener()
    opener.allowed.clear()
    model = LazyModel("m", opener, KNOWN)
    first, second = asyncio.create_task(ask(model)), asyncio.create_task(ask(model))
    await until(lambda: opener.calls)
    first.cancel()  # the one for whom it is opened
    with pytest.raises(asyncio.CancelledError):
        await first
    opener.allowed.set()
    assert await second == "Hello" and opener.calls == 1


async def test_an_opening_that_nobody_waits_for_any_more_is_used_later():
    opener = Opener()
    opener.allowed.clear()
    model = LazyModel("m", opener, KNOWN)
    alone = asyncio.create_task(ask(model))
    await until(lambda: opener.calls)
    alone.cancel()
    await asyncio.gather(alone, return_exceptions=True)
    opener.allowed.set()
    await until(lambda: model.status.state == "loaded")
    assert await ask(model) == "Hello" and opener.calls == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unavailable("the disk is gone"), "the disk is gone"),
        (UnknownName("model", "smollm", ["other"]), "m cannot be loaded: unknown model 'smollm'"),
        (RuntimeError("out of tricks"), "m cannot be loaded: RuntimeError; the server's log says more"),
    ],
)
async def test_a_failed_opening_is_told_to_all_who_wait_and_is_tried_again_later(error, words):
    opener = Opener()
    opener.fails.append(error)
    opener.allowed.clear()
    model = LazyModel("m", opener, KNOWN)
    asking = [asyncio.create_task(ask(model)) for _ in range(3)]
    await until(lambda: opener.calls)
    opener.allowed.set()
    output = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(item, ModelError) and words in item.message for item in output)
    assert (model.status.state, model.status.failures, opener.calls) == ("failed", 1, 1) and words in model.status.error
    assert await ask(model) == "Hello"
    assert (model.status.state, model.status.error, model.status.loads) == ("loaded", "", 1)


async def test_it_is_unloaded_when_nobody_has_asked_for_a_while():
    opener = Opener()
    model = LazyModel("m", opener, KNOWN, unload_after=0.01)
    await ask(model)
    await until(lambda: opener.opened[0].is_closed)
    assert (model.status.state, model.status.unloads) == ("unloaded", 1)
    assert await ask(model) == "Hello" and len(opener.opened) == 2


async def test_the_time_counts_from_the_last_answer():
    model = LazyModel("m", Opener(), KNOWN, unload_after=100)
    async with in_use(model):
        assert model.status.expires_in == 100
    await asyncio.sleep(0.01)
    before = model.status.expires_in
    async with in_use(model):
        pass
    assert before is not None and before < 100 and (model.status.expires_in or 0) > before


async def test_an_answer_is_finished_before_the_model_is_unloaded():
    opener = Opener([Text("a"), 0.02, Text("b"), Stopped("stop")])
    model = LazyModel("m", opener, KNOWN, unload_after=0.001)
    assert await ask(model) == "ab"
    async with closing(model.stream(HI)) as events:
        await anext(events)
        await model.unload()
        assert not opener.opened[-1].is_closed
    await until(lambda: opener.opened[-1].is_closed)
    assert not any(item.cut_off for item in opener.opened)


async def test_a_request_that_arrives_during_the_unloading_waits_and_has_it_opened_again():
    opener = Opener()
    model = LazyModel("m", opener, KNOWN)
    await ask(model)
    opener.opened[0].closing = 0.02
    unloading = asyncio.create_task(model.unload())
    await until(lambda: model.status.state == "unloaded")  # it is being closed
    assert await ask(model) == "Hello" and opener.opened[0].is_closed
    await unloading
    assert len(opener.opened) == 2 and not opener.opened[1].is_closed and len(opener.opened[0].asked) == 1


async def test_no_request_is_lost_while_models_come_and_go():
    opener = Opener([Text("a"), 0.001, Text("b"), Stopped("stop")])
    model = LazyModel("m", opener, KNOWN, unload_after=0.001)

    async def several() -> list[str]:
        texts: list[str] = []
        for pause in (0, 0.002, 0.001, 0.003):
            texts.append(await ask(model))
            await asyncio.sleep(pause)
        return texts

    async def unloading() -> None:
        for _ in range(30):
            await model.unload()
            await asyncio.sleep(0.001)

    *answers, _ = await asyncio.gather(*(several() for _ in range(10)), unloading())
    assert answers == [["ab"] * 4] * 10
    assert not any(item.cut_off for item in opener.opened) and len(opener.opened) > 1
    assert sum(not item.is_closed for item in opener.opened) <= 1


async def test_a_request_can_say_how_long_the_model_stays_until_it_is_unloaded():
    opener = Opener()
    model = LazyModel("m", opener, KNOWN, unload_after=100)
    model.stay_for(None)
    await ask(model)
    assert model.status.expires_in is None
    model.stay_for(50)
    await ask(model)
    assert 0 < (model.status.expires_in or 0) <= 50
    async with in_use(model):
        model.stay_for(0)
        assert not opener.opened[0].is_closed
    await until(lambda: opener.opened[0].is_closed)
    await ask(model)
    assert 50 < (model.status.expires_in or 0) <= 100  # as the settings say, from now on


async def test_what_takes_no_memory_here_stays():
    model = LazyModel("m", Opener(), ModelInfo(), unload_after=0.001)
    await ask(model)
    model.unload_when_idle()
    await asyncio.sleep(0.01)
    assert (model.status.state, model.status.expires_in) == ("loaded", None)


async def test_a_model_that_nobody_uses_is_unloaded_when_that_is_asked():
    model = LazyModel("m", Opener(), KNOWN, unload_after=100)
    await ask(model)
    model.unload_when_idle()
    await until(lambda: model.status.state == "unloaded")
    await ask(model)
    assert (model.status.expires_in or 0) > 50


async def test_an_unloaded_model_is_garbage():
    opener = Opener()
    model = LazyModel("m", opener, KNOWN)
    await ask(model)
    weak = weakref.ref(opener.opened.pop())
    await model.unload()
    gc.collect()
    assert weak() is None


async def test_a_closed_model_is_not_opened_again():
    opener = Opener()
    model = LazyModel("m", opener, KNOWN)
    model.load_now()
    await model.close()
    await model.close()
    with pytest.raises(Unavailable, match="m is closed"):
        await ask(model)
    assert opener.calls == 1 and opener.opened[0].is_closed


async def test_models_that_are_simply_there_are_used_as_they_are():
    model = FakeModel(HELLO)
    async with in_use(model) as opened:
        assert opened is model


# Memory


def sized(name: str, memory: int, budget: MemoryBudget, opener: Opener | None = None) -> LazyModel:
    return LazyModel(name, opener or Opener(), ModelInfo(memory=memory), budget=budget)


async def test_the_model_that_was_not_asked_for_longest_makes_room():
    budget = MemoryBudget(250)
    a, b, c = (sized(name, 100, budget) for name in "abc")
    for model in (a, b, a, c):
        await ask(model)
    assert [item.status.state for item in (a, b, c)] == ["loaded", "unloaded", "loaded"] and budget.used == 200


async def test_nothing_is_unloaded_where_there_is_room():
    budget = MemoryBudget(300)
    models = [sized(name, 100, budget) for name in "abc"]
    for model in models:
        await ask(model)
    assert {model.status.state for model in models} == {"loaded"}


async def test_a_model_in_use_is_waited_for_and_idle_ones_stay_until_that_helps():
    budget = MemoryBudget(250)
    a, b, large = sized("a", 100, budget), sized("b", 100, budget), sized("large", 200, budget)
    await ask(b)
    async with in_use(a):
        asking = asyncio.create_task(ask(large))
        await asyncio.sleep(0.01)
        assert (a.status.state, b.status.state, large.status.state) == ("loaded", "loaded", "loading")
    assert await asking == "Hello"
    assert (a.status.state, b.status.state) == ("unloaded", "unloaded")


async def test_where_nothing_can_go_the_client_is_told_when_to_come_again():
    budget = MemoryBudget(150, patience=0.2)
    a, b = sized("a", 100, budget), sized("b", 100, budget)
    async with in_use(a):
        with pytest.raises(Unavailable, match="no room for b now: a in use") as raised:
            await ask(b)
    assert raised.value.retryable and raised.value.seconds
    assert await ask(b) == "Hello" and a.status.state == "unloaded"


async def test_a_model_that_is_larger_than_all_there_is_says_so_at_once():
    opener = Opener()
    model = sized("large", 3 * 10**9, MemoryBudget(2 * 10**9), opener)
    with pytest.raises(Unavailable, match=r"large needs about 3.0 GB, and models may take 2.0 GB together") as raised:
        await ask(model)
    assert not raised.value.retryable and not opener.calls


async def test_the_memory_of_a_model_that_could_not_be_opened_is_free_again():
    budget, opener = MemoryBudget(100), Opener()
    opener.fails.append(Unavailable("broken"))
    broken, other = sized("broken", 100, budget, opener), sized("other", 100, budget)
    with pytest.raises(Unavailable):
        await ask(broken)
    assert budget.used == 0 and await ask(other) == "Hello"


async def test_a_model_whose_only_client_has_gone_while_it_waited_for_room_is_not_opened():
    budget, opener = MemoryBudget(100), Opener()
    a, b = sized("a", 100, budget), sized("b", 100, budget, opener)
    async with in_use(a):
        asking = asyncio.create_task(ask(b))
        await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await asyncio.sleep(0.01)
    assert not opener.calls and a.status.state == "loaded"
    assert await ask(b) == "Hello"


async def test_several_loads_at_once_keep_to_the_limit():
    budget = MemoryBudget(250)
    models = [sized(f"m{number}", 100, budget) for number in range(5)]

    async def several(model: LazyModel) -> None:
        for _ in range(5):
            async with in_use(model):
                assert budget.used <= 250
                await asyncio.sleep(0.001)

    await asyncio.gather(*map(several, models))
    assert budget.used <= 250
