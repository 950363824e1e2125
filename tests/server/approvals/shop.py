"""A shop whose tools have side effects, and the requests that ask for them and decide."""

import asyncio
from typing import Any

import httpx2

from callsmith.core.events import ConfirmationNeeded
from callsmith.core.values import Call
from callsmith.server.approvals.approvals import Approval, Approvals
from callsmith.tools.functions import Functions, tool
from tests.fakes import FakeModel
from tests.server.asking import HI

PAY, TIP = Call("pay", {"euros": 5}, "p1"), Call("tip", {"euros": 1}, "t1")
CHAT = "/v1/chat/completions"


class Shop:
    """Tools with side effects, and what they did."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.paid: list[tuple[str, int]] = []
        self._seconds = seconds

    @property
    def tools(self) -> Functions:
        return Functions(*self.functions)

    @property
    def functions(self) -> tuple[Any, ...]:
        @tool(side_effects=True)
        async def pay(euros: int) -> str:
            self.paid.append(("pay", euros))
            await asyncio.sleep(self._seconds)
            return f"paid {euros}"

        @tool(side_effects=True)
        async def tip(euros: int) -> str:
            self.paid.append(("tip", euros))
            return f"tipped {euros}"

        return pay, tip


async def ask(asking: httpx2.AsyncClient, **body: Any) -> Any:
    response = await asking.post(CHAT, json={"model": "m", "messages": HI, **body})
    assert response.status_code == 200, response.text
    return response.json()


async def asked(asking: httpx2.AsyncClient, **body: Any) -> list[str]:
    """Ask for something that has to be approved: the ids of the approvals."""
    return [approval["id"] for approval in (await ask(asking, **body))["callsmith"]["approvals"]]


async def listed(asking: httpx2.AsyncClient, **query: Any) -> list[Any]:
    return (await asking.get("/v1/approvals", params=query)).json()["data"]


async def answer(asking: httpx2.AsyncClient, id: str, **decision: Any) -> Any:
    response = await asking.post(f"/v1/approvals/{id}", json=decision)
    assert response.status_code == 200, response.text
    return response.json()


def tool_results(model: FakeModel, number: int = -1) -> list[str]:
    """The tool results the model has read."""
    return [message.content for message in model.asked[number].messages if message.role == "tool"]


async def pending(approvals: Approvals, id: str = "confirm_1", run: str = "run_1") -> Approval:
    """A stored approval that nobody has decided."""
    return await approvals.write_one(approvals.new(ConfirmationNeeded(id, Call("pay", {}, "c1")), run, "", ""))
