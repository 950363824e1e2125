"""What is asked of a server at the end of a soak: is everything there that was acknowledged?"""

import asyncio
from typing import Any

import httpx2

from tests.attack.soak.apis import response_text
from tests.attack.soak.ledger import Ledger

_CANCELLED = ("failed", "cancelled", "incomplete")


async def settle(url: str, ledger: Ledger) -> None:
    """Look up every answer and every call that a client was promised."""
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        for id, said in ledger.stored.items():
            response = await _get(client, f"/v1/responses/{id}")
            if response is None or response_text(response).split() != said.split():
                ledger.lost.append(f"{id}, which was complete")
        for id, said in ledger.background.items():
            response = await _get(client, f"/v1/responses/{id}")
            status = response["status"] if response else "gone"
            ledger.ends[f"in the background: {status}"] += 1
            if status == "completed":
                ledger.same(said, response_text(response), f"{id}, in the background")
            elif status not in _CANCELLED:
                ledger.lost.append(f"{id}, in the background: {status}")
        for id, turns in ledger.conversations.items():
            await _check_conversation(client, ledger, id, turns)
        await _check_approvals(client, ledger)


async def _check_conversation(client: httpx2.AsyncClient, ledger: Ledger, id: str, turns: list[str]) -> None:
    """Its acknowledged turns are there, in order, each once, question and answer."""
    items = await _get(client, f"/v1/conversations/{id}/items?limit=100&order=asc")
    texts = ["".join(part.get("text", "") for part in item["content"]).split() for item in (items or {"data": ()})["data"]
             if item["type"] == "message"]  # fmt: skip
    for turn in turns:
        if texts.count(turn.split()) != 2:
            ledger.lost.append(f"{turn!r} is {texts.count(turn.split())} times in {id}, and not as question and answer")
    wanted = [turn.split() for turn in turns for _ in range(2)]
    if [text for text in texts if text in wanted] != wanted:
        ledger.wrong.append(f"{id} is not in order")


async def _check_approvals(client: httpx2.AsyncClient, ledger: Ledger) -> None:
    """What was decided is stored, and of every approved call it is known what came of it."""
    approvals: dict[str, Any] = {}
    after = ""
    while page := await _get(client, f"/v1/approvals?status=all&limit=100{after}"):
        approvals |= {approval["arguments"].get("reference"): approval for approval in page["data"]}
        after = f"&after={page['last_id']}"
        if not page["has_more"]:
            break
    for reference in [*ledger.doubtful]:
        if reference in approvals:
            approvals[reference] = await _decide(client, approvals[reference])
            ledger.called(reference, approvals[reference])
    ledger.lost += [f"what came of the call {reference}" for reference in ledger.doubtful]
    for kind, references in (("done", ledger.approved | ledger.interrupted), ("denied", ledger.denied)):
        for reference in references:
            if (status := approvals.get(reference, {}).get("status")) != kind:
                ledger.lost.append(f"the decision on {reference}, which is {status} and was {kind}")


async def _decide(client: httpx2.AsyncClient, approval: Any) -> Any:
    """Say once more that a call is allowed, until it is known what came of it."""
    path = f"/v1/approvals/{approval['id']}"
    for _ in range(60):
        if approval["status"] in ("done", "expired"):
            break
        await client.post(path, json={"approve": True})
        approval = await _get(client, path)
        await asyncio.sleep(0.5)
    return approval


async def _get(client: httpx2.AsyncClient, path: str) -> Any:
    for _ in range(20):
        answer = await client.get(path)
        if answer.status_code in (200, 404):
            return answer.json() if answer.status_code == 200 else None
        await asyncio.sleep(0.5)
    raise RuntimeError(f"{path} cannot be looked up")
