"""What the policies in a toolset say of its tools before anybody calls them."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from callsmith.core.approval import Judgement
from callsmith.core.ports import Toolset


@runtime_checkable
class Judging(Protocol):
    """A toolset that knows which of its tools need an approval; one that passes calls on asks the toolset inside."""

    async def judgements(self) -> Mapping[str, Judgement]: ...


async def judgements(toolset: Toolset) -> Mapping[str, Judgement]:
    """What is decided of a call of each tool, by its name, as far as that does not depend on the arguments. A tool that is not
    among them runs without asking."""
    return await toolset.judgements() if isinstance(toolset, Judging) else {}
