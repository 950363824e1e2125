"""Responses in the store: what a conversation on the server is made of.

Items are documents of their own, for a later request may refer to any of them. A response knows, by id, the items that came
before it, those of its request, and its own. Whoever asks sees only what is theirs.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import uuid4

from callsmith.core.errors import UsageError
from callsmith.core.serialize import DocumentCodec
from callsmith.core.values import Json
from callsmith.server.store import Document, Stale, Store, caller_kind
from callsmith.wire.fields import Fields
from callsmith.wire.openai.common import NotStored
from callsmith.wire.openai.items import item_id, item_kind, stored_item
from callsmith.wire.openai.responses import StoredReferences
from callsmith.wire.openai.responses_events import OPEN_STATUSES

RESPONSE, _ITEM = "response", "response_item"

_CONVERSATION = "conversation"
NO_ITEMS: Mapping[str, Json | None] = {}

_ADDED = frozenset({"completed", "incomplete", "cancelled"})  # the statuses with which a response is added to its conversation


@dataclass(frozen=True, slots=True)
class StoredItems:
    """The items of one caller in a store."""

    store: Store
    subject: str = ""

    def kind(self, name: str) -> str:
        return caller_kind(name, self.subject)

    async def get(self, ids: Sequence[str]) -> dict[str, Json]:
        """The items with these ids, in their order, as far as there are any."""
        documents = await self.store.get(self.kind(_ITEM), *ids)
        return {id: documents[id].data for id in ids if id in documents}

    def documents(self, items: Mapping[str, Json | None]) -> list[Document]:
        """What is put into the store for these items; None stands for one that is there already."""
        return [Document(self.kind(_ITEM), id, item) for id, item in items.items() if item is not None]

    async def delete(self, ids: Sequence[str]) -> None:
        await self.store.delete(self.kind(_ITEM), *ids)

    async def delete_unowned(self, ids: Sequence[str]) -> None:
        """Delete those of these items that belong to no stored response."""
        owners = {id: f"resp_{id.split('_')[1]}" for id in ids if id.count("_") > 1}
        documents = await self.store.get(self.kind(RESPONSE), *set(owners.values()))
        await self.delete([id for id, owner in owners.items() if owner not in documents])


def index_items(key: str, sent: Sequence[Mapping[str, Json]]) -> dict[str, Json | None]:
    """The items of a request as they are stored, by their ids; None for those that are there already."""
    items: dict[str, Json | None] = {}
    for number, item in enumerate(sent):
        kind = item_kind(Fields(item))
        if kind == "item_reference":
            items[item["id"]] = None
        else:
            # An id of our own: the client's might be that of another item. But an approval is answered by the id it has.
            id = item["id"] if kind == "mcp_approval_request" else item_id(kind, key, f"i{number}")
            items[id] = stored_item(item, id)
    return items


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """A conversation; its items are given by their ids, in order."""

    id: str
    created: int
    metadata: Mapping[str, Json] = field(default_factory=dict[str, Json])
    items: tuple[str, ...] = ()
    version: int = 0


CONVERSATION_CODEC = DocumentCodec(StoredConversation, outside=frozenset({"id", "version"}))


@dataclass(frozen=True, slots=True)
class StoredConversations:
    """The conversations of one caller in a store."""

    items: StoredItems

    async def create(self, metadata: Mapping[str, Json], items: Sequence[Mapping[str, Json]]) -> StoredConversation:
        conversation = StoredConversation(f"conv_{uuid4().hex}", int(time.time()), metadata)
        await self._put(conversation, index_items(uuid4().hex, items))
        return conversation

    async def get(self, id: str) -> StoredConversation:
        documents = await self.items.store.get(self.items.kind(_CONVERSATION), id)
        if id not in documents:
            raise NotStored(id, kind="Conversation")
        return _read_conversation(documents[id])

    async def latest(self, after: str, limit: int) -> list[StoredConversation]:
        """The conversations that were written last, from behind one of them."""
        if after:
            await self.get(after)  # one that is not there is an error
        return list(
            map(_read_conversation, await self.items.store.latest(self.items.kind(_CONVERSATION), after=after, limit=limit))
        )

    async def update(self, id: str, metadata: Mapping[str, Json]) -> StoredConversation:
        return await self._change(id, lambda conversation: replace(conversation, metadata=metadata))

    async def delete(self, id: str) -> None:
        """Delete a conversation, and those of its items that belong to no stored response."""
        conversation = await self.get(id)
        await self.items.store.delete(self.items.kind(_CONVERSATION), id)
        await self.items.delete_unowned(conversation.items)

    async def add(self, id: str, items: Mapping[str, Json | None], *more: Document) -> None:
        """Put items at the end of a conversation, and more documents into the store: all of it or nothing."""
        await self._change(id, lambda conversation: conversation, items, *more)

    async def remove(self, id: str, item: str) -> StoredConversation:
        """Take an item out of a conversation; it is deleted, unless it belongs to a stored response."""

        def without_item(conversation: StoredConversation) -> StoredConversation:
            if item not in conversation.items:
                raise NotStored(item, kind="Item")
            return replace(conversation, items=tuple(known for known in conversation.items if known != item))

        conversation = await self._change(id, without_item)
        await self.items.delete_unowned([item])
        return conversation

    async def _change(
        self,
        id: str,
        change: Callable[[StoredConversation], StoredConversation],
        items: Mapping[str, Json | None] = NO_ITEMS,
        *more: Document,
    ) -> StoredConversation:
        """Write a conversation anew, with more items and documents; once more where somebody else has written it meanwhile."""
        while True:
            changed = change(await self.get(id))
            with suppress(Stale):
                await self._put(changed, items, *more)
                return changed

    async def _put(self, conversation: StoredConversation, items: Mapping[str, Json | None], *more: Document) -> None:
        known = dict.fromkeys((*conversation.items, *items))  # each once
        data = CONVERSATION_CODEC.write(replace(conversation, items=tuple(known)))
        document = Document(self.items.kind(_CONVERSATION), conversation.id, data, conversation.version)
        await self.items.store.put(document, *self.items.documents(items), *more)


def _read_conversation(document: Document) -> StoredConversation:
    return CONVERSATION_CODEC.read(document.data, id=document.id, version=document.version or 0)


@dataclass(frozen=True, slots=True)
class EarlierItems:
    """What a request leans on: the items of the conversation so far, in order, and those it only names; all by id.

    `conversation` is the id of the response it began with or, with `is_kept`, of a conversation that the response is added to.
    `is_stored`: the items so far are in the store.
    """

    earlier: Mapping[str, Json] = field(default_factory=dict[str, Json])
    known: Mapping[str, Json] = field(default_factory=dict[str, Json])
    conversation: str = ""
    is_stored: bool = True
    is_kept: bool = False


class RecentResponses:
    """The latest responses of a connection that are not to be stored: they can be gone on from as long as it lasts."""

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._latest: dict[str, EarlierItems] = {}  # what a request that goes on from one builds on

    def before(self, id: str) -> EarlierItems | None:
        """What a request that goes on from this response builds on."""
        return self._latest.get(id)

    def items(self, ids: Sequence[str]) -> dict[str, Json]:
        """Those of these items that belong to one of the responses."""
        return {id: before.earlier[id] for before in self._latest.values() for id in ids if id in before.earlier}

    def add(self, id: str, before: EarlierItems) -> None:
        if len(self._latest) >= self._most:
            del self._latest[next(iter(self._latest))]
        self._latest[id] = before

    def forget(self, id: str) -> None:
        self._latest.pop(id, None)


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response without its items; these are given by their ids, in order.

    `conversation` is the id of the response the conversation began with, `earlier` are the items before this response, `input`
    those of its request and `output` those of its answer.
    """

    response: Mapping[str, Json]
    conversation: str
    earlier: tuple[str, ...]
    input: tuple[str, ...]
    output: tuple[str, ...]


RESPONSE_CODEC = DocumentCodec(StoredResponse)


@dataclass(frozen=True, slots=True)
class StoredResponses:
    """The responses of one caller in a store; `recent` are those that only a connection of theirs knows."""

    store: Store
    subject: str = ""
    recent: RecentResponses | None = None

    @property
    def items(self) -> StoredItems:
        return StoredItems(self.store, self.subject)

    @property
    def conversations(self) -> StoredConversations:
        return StoredConversations(self.items)

    async def before(self, needs: StoredReferences) -> EarlierItems:
        """What is needed to read a request."""
        known = await self.items.get(needs.items)
        if self.recent:
            known = {**self.recent.items(needs.items), **known}
            if recent := self.recent.before(needs.previous):
                return replace(recent, known=known)
        if needs.conversation:
            items = (await self.conversations.get(needs.conversation)).items
            return EarlierItems(await self.items.get(items), known, needs.conversation, is_kept=True)
        earlier: Mapping[str, Json] = {}
        conversation = ""
        if needs.previous:
            previous = await self._load(needs.previous, previous=True)
            if previous.response["status"] in OPEN_STATUSES:
                raise UsageError("previous_response_id: this response is not complete", field="previous_response_id")
            ids = [*previous.earlier, *previous.input, *previous.output]
            earlier = await self.items.get(ids)
            if len(earlier) < len(set(ids)):  # a response it builds on was deleted
                raise NotStored(needs.previous, previous=True)
            conversation = previous.conversation
        return EarlierItems(earlier, known, conversation)

    async def keep(
        self,
        response: Mapping[str, Json],
        before: EarlierItems,
        request_items: Sequence[Mapping[str, Json]],
        *,
        store: bool = True,
    ) -> None:
        """Store a response that has ended, with the items of its request; with its connection only, unless `store`."""
        brought, output = index_items(response["id"].removeprefix("resp_"), request_items), _output_items(response)
        conversation = before.conversation or response["id"]
        if before.is_kept:  # a conversation has items of its own: one that is only named may be another's
            key = response["id"].removeprefix("resp_")
            brought = dict(_copied(id, item, before, key, number) for number, (id, item) in enumerate(brought.items()))
        if not store:
            self._keep_recent(response, replace(before, conversation=conversation), brought)
        stored = StoredResponse({**response, "output": []}, conversation, tuple(before.earlier), tuple(brought), tuple(output))
        documents = [Document(self.items.kind(RESPONSE), response["id"], RESPONSE_CODEC.write(stored))] if store else []
        if before.is_kept and response["status"] in _ADDED:
            with suppress(NotStored):  # it was deleted meanwhile
                await self.conversations.add(conversation, {**brought, **output}, *documents)
                return
        if store:
            await self.store.put(*self.items.documents({**brought, **output}), *documents)

    def _keep_recent(self, response: Mapping[str, Json], before: EarlierItems, brought: Mapping[str, Json | None]) -> None:
        if self.recent and response["status"] in _ADDED:
            own = {id: before.known.get(id) if item is None else item for id, item in brought.items()}
            earlier = {**before.earlier, **own, **_output_items(response)}
            self.recent.add(response["id"], EarlierItems(earlier, {}, before.conversation, is_stored=False))

    async def response(self, id: str) -> dict[str, Json]:
        """The response as it was answered."""
        stored = await self._load(id)
        items = await self.items.get(stored.output)
        return {**stored.response, "output": list(items.values())}

    async def input_items(self, id: str) -> list[Json]:
        """All that the model was given, with the conversation before it."""
        stored = await self._load(id)
        return list((await self.items.get([*stored.earlier, *stored.input])).values())

    async def forget(self, id: str) -> list[str]:
        """Delete a response, what was asked and what was answered. What referred to it or went on from it loses that.

        The ids of what was answered come back.
        """
        stored = await self._load(id)
        key = id.removeprefix("resp_")
        own = [*(item for item in stored.input if f"_{key}_" in item), *stored.output]
        await self.items.delete(own)
        await self.store.delete(self.items.kind(RESPONSE), id)
        return list(stored.output)

    async def has(self, id: str) -> bool:
        return bool(await self.store.get(self.items.kind(RESPONSE), id))

    async def fail(self, id: str, why: str) -> None:
        """Enter that a response that is not complete has failed, unless it is written meanwhile."""
        document = (await self.store.get(self.items.kind(RESPONSE), id)).get(id)
        if document is None:  # it was deleted meanwhile
            return
        stored = RESPONSE_CODEC.read(document.data)
        if stored.response["status"] in OPEN_STATUSES:
            failed = {**stored.response, "status": "failed", "error": {"code": "server_error", "message": why}}
            with suppress(Stale):
                await self.store.put(replace(document, data=RESPONSE_CODEC.write(replace(stored, response=failed))))

    async def _load(self, id: str, *, previous: bool = False) -> StoredResponse:
        documents = await self.store.get(self.items.kind(RESPONSE), id)
        if id not in documents:
            raise NotStored(id, previous=previous)
        return RESPONSE_CODEC.read(documents[id].data)


def _copied(id: str, item: Json | None, before: EarlierItems, key: str, number: int) -> tuple[str, Json | None]:
    """An item of a request as a conversation has it: what was only named, and is not in it already, is copied."""
    named = before.known.get(id) if item is None and id not in before.earlier else None
    if named is None:
        return id, item
    own = item_id(named["type"], key, f"i{number}")
    return own, {**named, "id": own}


def _output_items(response: Mapping[str, Json]) -> dict[str, Json]:
    return {item["id"]: item for item in response["output"]}
