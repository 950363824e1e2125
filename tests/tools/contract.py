"""What every toolset keeps: subclass it and give a toolset, one call that works and one name it does not have."""

from collections.abc import AsyncIterator

from callsmith.core.events import ToolProgress
from callsmith.core.ports import Context, Toolset
from callsmith.core.schema import check_schema, validate
from callsmith.core.values import Call, Result, Tool


async def outcome(items: AsyncIterator[ToolProgress | Result]) -> tuple[list[ToolProgress], Result]:
    """The progress and the one result of a call; anything else is a breach."""
    seen = [item async for item in items]
    *progress, result = seen
    assert isinstance(result, Result)
    reported = [item for item in progress if isinstance(item, ToolProgress)]
    assert len(reported) == len(progress), "a Result comes once, and last"
    return reported, result


class ToolsetContract:
    """Progress, then exactly one Result; ids and names are those of the call; an unknown name is a Result too.

    Give the fixture `toolset`, and `working`: a call that works there.
    """

    working: Call = Call("unset")

    async def test_tools_have_distinct_names_and_valid_schemas(self, toolset: Toolset):
        tools = await toolset.tools()
        assert all(isinstance(tool, Tool) for tool in tools)
        assert len({tool.name for tool in tools}) == len(tools)
        for tool in tools:
            check_schema(tool.parameters)

    async def test_tools_are_the_same_when_asked_again(self, toolset: Toolset):
        assert list(await toolset.tools()) == list(await toolset.tools())

    async def test_the_working_call_fits_its_schema(self, toolset: Toolset):
        (tool,) = [tool for tool in await toolset.tools() if tool.name == self.working.name]
        assert validate(tool.parameters, self.working.arguments) == []

    async def test_a_call_ends_in_one_result_that_bears_its_id(self, toolset: Toolset):
        progress, result = await outcome(toolset.call(self.working, Context()))
        assert (result.call_id, result.name, result.ok) == (self.working.id, self.working.name, True)
        assert {item.call_id for item in progress} <= {self.working.id}

    async def test_the_text_of_a_result_can_be_read_by_a_model(self, toolset: Toolset):
        _, result = await outcome(toolset.call(self.working, Context()))
        assert isinstance(result.text, str)

    async def test_an_unknown_name_is_answered_with_a_result(self, toolset: Toolset):
        _, result = await outcome(toolset.call(Call("no_such_tool", {}, "c9"), Context()))
        assert (result.call_id, result.ok, result.code) == ("c9", False, "bad_request")

    async def test_a_call_that_is_closed_early_does_no_harm(self, toolset: Toolset):
        items = toolset.call(self.working, Context())
        await anext(aiter(items))
        await items.aclose()  # type: ignore[attr-defined]
        assert (await outcome(toolset.call(self.working, Context())))[1].ok
