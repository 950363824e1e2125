"""`/v1/conversations`: conversations that the server keeps, and their items. A response is added to one by naming it.

OpenAI does not have `GET /v1/conversations?limit&after`: a caller's own, the one that was last added to first; with `query`
those in which that is said. Nor has it `from`, which begins a conversation with what another one has.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.errors import UsageError
from callsmith.core.values import Json
from callsmith.server.http.pagination import paginate, read_limit, write_page
from callsmith.server.http.streams import JsonResponse
from callsmith.server.routes.responses.dialect import ResponsesDialect
from callsmith.server.routes.responses.stored import StoredConversation, StoredConversations, index_items
from callsmith.wire.fields import Fields
from callsmith.wire.openai.common import NotStored
from callsmith.wire.openai.items import read_items
from callsmith.wire.openai.mcp import plain_items

PATH = "/v1/conversations"

_MOST_ITEMS = 20  # that are added at a time
_LONGEST_QUERY = 200
_SEARCH_SECONDS = 1.0  # that one request searches; the next one goes on from there
_BATCH = 50  # conversations, or items of one, that are looked through at a time
_AROUND = 60  # characters that are told on either side of what was found


def conversation_routes(dialect: ResponsesDialect) -> list[Route]:
    endpoints = _ConversationEndpoints(dialect)
    items = f"{PATH}/{{id}}/items"
    return [
        Route(PATH, endpoints.list, methods=["GET"]),
        Route(PATH, endpoints.create, methods=["POST"]),
        Route(f"{PATH}/{{id}}", endpoints.retrieve, methods=["GET"]),
        Route(f"{PATH}/{{id}}", endpoints.update, methods=["POST"]),
        Route(f"{PATH}/{{id}}", endpoints.delete, methods=["DELETE"]),
        Route(items, endpoints.list_items, methods=["GET"]),
        Route(items, endpoints.add_items, methods=["POST"]),
        Route(f"{items}/{{item}}", endpoints.retrieve_item, methods=["GET"]),
        Route(f"{items}/{{item}}", endpoints.delete_item, methods=["DELETE"]),
    ]


@dataclass(frozen=True, slots=True)
class _ConversationEndpoints:
    dialect: ResponsesDialect

    async def create(self, request: Request) -> Response:
        body = Fields.of(await self.dialect.service.bodies.read(request), "")
        stored, source = self._open_conversations(), body.object("from")
        earlier = await _read_earlier(stored, source) if source else ()
        return _write_conversation(await stored.create(_read_metadata(body), (*earlier, *_read_items(body))))

    async def list(self, request: Request) -> Response:
        limit = read_limit(request)
        if "query" in request.query_params:
            return JsonResponse(await _search(self._open_conversations(), request, limit))
        page = await self._open_conversations().latest(request.query_params.get("after", ""), limit + 1)
        return JsonResponse(write_page([_view(conversation) for conversation in page[:limit]], has_more=len(page) > limit))

    async def retrieve(self, request: Request) -> Response:
        return _write_conversation(await self._open_conversations().get(request.path_params["id"]))

    async def update(self, request: Request) -> Response:
        body = Fields.of(await self.dialect.service.bodies.read(request), "")
        return _write_conversation(await self._open_conversations().update(request.path_params["id"], _read_metadata(body)))

    async def delete(self, request: Request) -> Response:
        id = request.path_params["id"]
        await self._open_conversations().delete(id)
        return JsonResponse({"id": id, "object": "conversation.deleted", "deleted": True})

    async def list_items(self, request: Request) -> Response:
        stored = self._open_conversations()
        conversation = await stored.get(request.path_params["id"])
        page = paginate([{"id": id} for id in conversation.items], request)
        items_by_id = await stored.items.get([item["id"] for item in page["data"]])  # no more than is shown
        return JsonResponse({**page, "data": list(items_by_id.values())})

    async def add_items(self, request: Request) -> Response:
        body = Fields.of(await self.dialect.service.bodies.read(request), "")
        sent = _read_items(body)
        if not sent:
            raise body.error("items", "at least one item is required")
        items, stored = index_items(uuid4().hex, sent), self._open_conversations()
        await stored.add(request.path_params["id"], items)
        ids = list(items)
        page = {"object": "list", "data": list(items.values()), "first_id": ids[0], "last_id": ids[-1], "has_more": False}
        return JsonResponse(page)

    async def retrieve_item(self, request: Request) -> Response:
        stored, item = self._open_conversations(), request.path_params["item"]
        conversation = await stored.get(request.path_params["id"])
        items_by_id = await stored.items.get([item]) if item in conversation.items else {}
        if item not in items_by_id:
            raise NotStored(item, kind="Item")
        return JsonResponse(items_by_id[item])

    async def delete_item(self, request: Request) -> Response:
        return _write_conversation(
            await self._open_conversations().remove(request.path_params["id"], request.path_params["item"])
        )

    def _open_conversations(self) -> StoredConversations:
        return self.dialect.open_stored().conversations


async def _read_earlier(stored: StoredConversations, source: Fields) -> Sequence[Mapping[str, Json]]:
    """The items of another conversation, as far as the one that is named; all of them if none is."""
    ids = (await stored.get(source.required_text("conversation"))).items
    before = source.text("before")
    if before and before not in ids:
        raise NotStored(before, kind="Item")
    return list((await stored.items.get(ids[: ids.index(before)] if before else ids)).values())


async def _search(stored: StoredConversations, request: Request, limit: int) -> dict[str, Json]:
    """A page of the conversations that have a text in their title or messages; `last_id` is the last that was looked through."""
    query = request.query_params["query"].strip()
    if not 1 <= len(query) <= _LONGEST_QUERY:
        raise UsageError(f"query: expected a text of 1 to {_LONGEST_QUERY} characters, got {len(query)}", field="query")
    wanted, deadline = _fold(query), time.monotonic() + _SEARCH_SECONDS
    found: list[Json] = []
    last = request.query_params.get("after", "")
    while batch := await stored.latest(last, _BATCH):
        for conversation in batch:
            last = conversation.id
            in_message = await _find_message(stored, conversation, wanted)
            if in_message or wanted in _fold(str(conversation.metadata.get("title", ""))):
                found.append({**_view(conversation), **({"match": in_message} if in_message else {})})
            if len(found) == limit or time.monotonic() > deadline:
                has_more = bool(await stored.latest(last, 1))
                return {**write_page(found, has_more=has_more), "last_id": last}
    return {**write_page(found, has_more=False), "last_id": last or None}


async def _find_message(stored: StoredConversations, conversation: StoredConversation, wanted: str) -> dict[str, Json] | None:
    """The latest message of a conversation that has the text, and what stands around it there."""
    ids = conversation.items[::-1]
    for first in range(0, len(ids), _BATCH):
        for id, item in (await stored.items.get(ids[first : first + _BATCH])).items():
            text = _read_text(item)
            if (start := _fold(text).find(wanted)) >= 0:
                end = start + len(wanted)
                before, after = text[max(0, start - _AROUND) : start], text[end : end + _AROUND]
                return {"item": id, "before": before, "text": text[start:end], "after": after}
        await asyncio.sleep(0)  # others have their turn
    return None


def _fold(text: str) -> str:
    """The text without the difference between small and capital letters, each character in its place.

    A regular expression that ignores it takes seconds for a long text of one letter, in which everything else waits."""
    return text.replace("İ", "i").lower().replace("ς", "σ")  # the one letter that becomes two, and one with two small forms


def _read_text(item: Json) -> str:
    """What is said in an item: nothing where it is no message. A part may be a text alone."""
    parts = item["content"] if item["type"] == "message" else ()
    return "".join(part if isinstance(part, str) else part.get("text") or "" for part in parts)


def _read_metadata(body: Fields) -> Mapping[str, Json]:
    metadata = body.object("metadata")
    for name in metadata.data if metadata else ():
        assert metadata is not None
        metadata.required_text(name)
    return metadata.data if metadata else {}


def _read_items(body: Fields) -> Sequence[Mapping[str, Json]]:
    items = list(body.objects("items"))
    if len(items) > _MOST_ITEMS:
        raise body.error("items", f"{len(items)} items are too many: at most {_MOST_ITEMS} are added at a time")
    read_items(plain_items(items)[0])  # what no response could be made of is refused now
    return [item.data for item in items]


def _write_conversation(conversation: StoredConversation) -> Response:
    return JsonResponse(_view(conversation))


def _view(conversation: StoredConversation) -> dict[str, Json]:
    about = {"created_at": conversation.created, "metadata": dict(conversation.metadata)}
    return {"id": conversation.id, "object": "conversation", **about}
