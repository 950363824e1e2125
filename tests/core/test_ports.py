"""What is known of a model: its own `info`, passed on by every model around it; defaults where it has none."""

from callsmith.core.ports import ModelInfo, model_info
from callsmith.core.values import Message, Request
from callsmith.runtime.discovery import FIND_TOOLS, ToolCosts, limit_shown_tools
from callsmith.runtime.guards.guards import guard_model
from tests.fakes import FakeModel, Handlers, hello, says
from tests.runtime.many import MANY


class Described(FakeModel):
    """A model that counts a thousand tokens for every tool it is shown."""

    async def count(self, request: Request) -> int:
        return 1_000 * len(request.tools)

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("small one", context=2048, policy="required_first_hop", guards=("small",), count=self.count)


def test_of_a_plain_model_nothing_is_known_and_it_counts_as_ready() -> None:
    info = model_info(FakeModel(says("")))
    assert (info, info.ready, info.context, info.count) == (ModelInfo(), True, None, None)


async def test_guards_pass_on_what_is_known_and_are_needed_no_more() -> None:
    model = guard_model(Described(says("")))
    info = model_info(model)
    assert (info.name, info.context, info.policy, info.guards) == ("small one", 2048, "required_first_hop", ())
    assert guard_model(model) is model
    assert info.count and await info.count(Request((), MANY[:2])) == 2_000


async def test_tokens_are_counted_with_the_tools_that_are_shown() -> None:
    toolset = Handlers(*MANY, **{tool.name: hello for tool in MANY})
    limited_model, found_in = await limit_shown_tools(Described(says("")), toolset, ToolCosts())
    request = Request((Message.user("go"),), tuple(await found_in.tools()))
    info = model_info(limited_model)
    assert FIND_TOOLS in {tool.name for tool in request.tools}
    assert (info.name, info.policy) == ("small one", "required_first_hop")
    assert info.count and await info.count(request) == 1_000
