"""Conversations in the store: lists of items that responses are added to, and that can be changed."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

from callsmith.core.serialize import DocumentCodec
from callsmith.core.values import Json
from callsmith.server.routes.responses.stored_items import StoredItems, given_items
from callsmith.server.store import Document, Stale
from callsmith.wire.openai.common import NotStored

_CONVERSATION = "conversation"


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

    async def create(self, metadata: Mapping[str, Json], given: Sequence[Mapping[str, Json]]) -> StoredConversation:
        conversation = StoredConversation(f"conv_{uuid4().hex}", int(time.time()), metadata)
        await self._put(conversation, given_items(uuid4().hex, given))
        return conversation

    async def get(self, id: str) -> StoredConversation:
        documents = await self.items.store.get(self.items.kind(_CONVERSATION), id)
        if id not in documents:
            raise NotStored(id, kind="Conversation")
        return _read(documents[id])

    async def latest(self, after: str, limit: int) -> list[StoredConversation]:
        """The conversations that were written last, from behind one of them."""
        if after:
            await self.get(after)  # one that is not there is an error
        return list(map(_read, await self.items.store.latest(self.items.kind(_CONVERSATION), after=after, limit=limit)))

    async def update(self, id: str, metadata: Mapping[str, Json]) -> StoredConversation:
        while True:
            changed = replace(await self.get(id), metadata=metadata)
            try:
                await self._put(changed, {})
            except Stale:
                continue  # somebody else has written it meanwhile
            return changed

    async def delete(self, id: str) -> None:
        """Delete a conversation, and those of its items that belong to no stored response."""
        conversation = await self.get(id)
        await self.items.store.delete(self.items.kind(_CONVERSATION), id)
        await self.items.delete_unowned(conversation.items)

    async def add(self, id: str, items: Mapping[str, Json | None], *more: Document) -> None:
        """Put items at the end of a conversation, and more documents into the store: all of it or nothing."""
        while True:
            try:
                return await self._put(await self.get(id), items, *more)
            except Stale:
                continue  # somebody else has added to it meanwhile

    async def remove(self, id: str, item: str) -> StoredConversation:
        """Take an item out of a conversation; it is deleted, unless it belongs to a stored response."""
        while True:
            conversation = await self.get(id)
            if item not in conversation.items:
                raise NotStored(item, kind="Item")
            try:
                await self._put(replace(conversation, items=tuple(known for known in conversation.items if known != item)), {})
            except Stale:
                continue
            await self.items.delete_unowned([item])
            return conversation

    async def _put(self, conversation: StoredConversation, items: Mapping[str, Json | None], *more: Document) -> None:
        known = dict.fromkeys((*conversation.items, *items))  # each once
        written = CONVERSATION_CODEC.write(replace(conversation, items=tuple(known)))
        document = Document(self.items.kind(_CONVERSATION), conversation.id, written, conversation.version)
        await self.items.store.put(document, *self.items.documents(items), *more)


def _read(document: Document) -> StoredConversation:
    return CONVERSATION_CODEC.read(document.data, id=document.id, version=document.version or 0)
