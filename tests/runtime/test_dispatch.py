"""Calls one by one, for programs that hold the conversation themselves."""

import pytest

from callsmith.core.approval import ConfirmationRequired, Policy, Rule
from callsmith.core.errors import LimitReached
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result
from callsmith.runtime.dispatch import Dispatcher
from callsmith.runtime.execute import Limits
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed

PAID: list[int] = []


@tool(side_effects=True)
async def pay(euros: int) -> str:
    """Send money."""
    PAID.append(euros)
    return f"paid {euros}"


async def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


@pytest.fixture
def dispatcher() -> Dispatcher:
    PAID.clear()
    return Dispatcher(Confirmed(Functions(pay, double)))


@pytest.mark.req("R89")
async def test_a_call_is_run_and_its_result_returned(dispatcher: Dispatcher):
    assert await dispatcher.dispatch(Call("double", {"number": 4}, "c1")) == Result("c1", "double", 8)
    assert [definition.name for definition in await dispatcher.definitions()] == ["pay", "double"]


@pytest.mark.req("R186")
@pytest.mark.req("R99")
async def test_dispatch_validates_arguments(dispatcher: Dispatcher):
    result = await dispatcher.dispatch(Call("double", {"number": "four", "other": 1}, "c1"))
    assert (result.ok, result.code) == (False, "bad_request")
    assert result.text.startswith("invalid_arguments: ")
    assert "/number" in result.text and "other" in result.text


@pytest.mark.req("R187")
@pytest.mark.req("R93")
async def test_side_effect_tool_requires_confirmation(dispatcher: Dispatcher):
    call = Call("pay", {"euros": 5}, "c1")
    with pytest.raises(ConfirmationRequired, match="requires_confirmation") as raised:
        await dispatcher.dispatch(call)
    assert (raised.value.needed.call, raised.value.needed.reason) == (call, "pay has side effects")
    assert PAID == []


@pytest.mark.req("R91")
async def test_a_confirmed_call_is_run_once_and_with_the_arguments_the_person_gave(dispatcher: Dispatcher):
    call = Call("pay", {"euros": 5000}, "c1")
    assert (await dispatcher.dispatch_confirmed(call)).content == "paid 5000"
    assert (await dispatcher.dispatch_confirmed(call, {"euros": 5})).text.startswith("paid 5\n")
    assert PAID == [5000, 5]
    with pytest.raises(ConfirmationRequired):  # a yes is to one call, not to the next that looks like it
        await dispatcher.dispatch(call)


@pytest.mark.req("R97")
async def test_what_the_policy_forbids_no_confirmation_allows():
    PAID.clear()
    strict = Policy((Rule("deny", "pay", reason="the till is closed"),))
    dispatcher = Dispatcher(Confirmed(Functions(pay, double)), context=Context(tighten=strict))
    result = await dispatcher.dispatch_confirmed(Call("pay", {"euros": 5}, "c1"))
    assert (result.ok, result.text, PAID) == (False, "denied: the till is closed", [])


async def test_a_tool_that_dispatches_to_itself_reaches_a_limit():
    depths: list[int] = []

    async def again(context: Context) -> str:
        """Call yourself."""
        depths.append(context.depth)
        return (await dispatcher.dispatch(Call("again", {}, "c"))).text

    dispatcher = Dispatcher(Functions(again), limits=Limits(depth=3))
    result = await dispatcher.dispatch(Call("again", {}, "c"))
    assert depths == [1, 2, 3]
    assert (result.ok, result.code) == (True, "")  # the outer tools made the innermost failure their answer
    assert "nested 3 deep" in result.text


async def test_beyond_the_limit_of_depth_nothing_is_dispatched():
    with pytest.raises(LimitReached, match="nested 6 deep"):
        await Dispatcher(Functions(double), context=Context(depth=6)).dispatch(Call("double", {"number": 1}, "c"))
