"""Responses in the store: what a conversation on the server is made of.

Items are documents of their own, for a later request may refer to any of them. A response knows, by id, the items that came
before it, those of its request, and its own. Whoever asks sees only what is theirs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from callsmith.core.serialize import DocumentCodec
from callsmith.core.values import Json
from callsmith.server.store import Document, Store
from callsmith.wire.fields import Fields
from callsmith.wire.openai.common import NotStored
from callsmith.wire.openai.items import item_id, item_kind, stored_item
from callsmith.wire.openai.responses import StoredReferences

_RESPONSE, _ITEM = "response", "response_item"


@dataclass(frozen=True, slots=True)
class EarlierItems:
    """What a request leans on: the items of the conversation so far, in order, and those it only names; all by id.

    `conversation` is the id of the response it began with.
    """

    earlier: Mapping[str, Json] = field(default_factory=dict[str, Json])
    known: Mapping[str, Json] = field(default_factory=dict[str, Json])
    conversation: str = ""


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


RESPONSE_CODEC = DocumentCodec(StoredResponse, upgrades={0: lambda old: {**old, "version": 1}})


@dataclass(frozen=True, slots=True)
class StoredResponses:
    """The responses of one caller in a store."""

    store: Store
    subject: str = ""

    async def before(self, needs: StoredReferences) -> EarlierItems:
        """What is needed to read a request."""
        earlier: dict[str, Json] = {}
        conversation = ""
        if needs.previous:
            previous = await self._stored(needs.previous, previous=True)
            ids = [*previous.earlier, *previous.input, *previous.output]
            earlier = await self._items(ids)
            if len(earlier) < len(set(ids)):  # a response it stands on was deleted
                raise NotStored(needs.previous, previous=True)
            conversation = previous.conversation
        return EarlierItems(earlier, await self._items(needs.items), conversation)

    async def keep(self, response: Mapping[str, Json], before: EarlierItems, given: Sequence[Mapping[str, Json]]) -> None:
        """Store a response that has ended, with the items of its request."""
        key = response["id"].removeprefix("resp_")
        brought: dict[str, Json | None] = {}
        for number, item in enumerate(given):
            kind = item_kind(Fields(item))
            if kind == "item_reference":
                brought[item["id"]] = None  # it is there already
            else:
                # An id of our own: the client's might be that of another item. But an approval is answered by the id it has.
                id = item["id"] if kind == "mcp_approval_request" else item_id(kind, key, f"i{number}")
                brought[id] = stored_item(item, id)
        made: dict[str, Json] = {item["id"]: item for item in response["output"]}
        items = [Document(self._kind(_ITEM), id, item) for id, item in {**brought, **made}.items() if item is not None]
        stored = StoredResponse(
            {**response, "output": []}, before.conversation or response["id"], tuple(before.earlier), tuple(brought), tuple(made)
        )
        await self.store.put(*items, Document(self._kind(_RESPONSE), response["id"], RESPONSE_CODEC.write(stored)))

    async def response(self, id: str) -> dict[str, Json]:
        """The response as it was answered."""
        stored = await self._stored(id)
        items = await self._items(stored.output)
        return {**stored.response, "output": list(items.values())}

    async def input_items(self, id: str) -> list[Json]:
        """All that the model was told, the conversation before it included."""
        stored = await self._stored(id)
        return list((await self._items([*stored.earlier, *stored.input])).values())

    async def forget(self, id: str) -> list[str]:
        """Delete a response, what was asked and what was answered. What referred to it or went on from it loses that.

        The ids of what was answered come back.
        """
        stored = await self._stored(id)
        key = id.removeprefix("resp_")
        own = [*(item for item in stored.input if f"_{key}_" in item), *stored.output]
        await self.store.delete(self._kind(_ITEM), *own)
        await self.store.delete(self._kind(_RESPONSE), id)
        return list(stored.output)

    def _kind(self, name: str) -> str:
        """A kind for each caller: nobody can as much as name what belongs to another."""
        return f"{name}/{self.subject}" if self.subject else name

    async def _stored(self, id: str, *, previous: bool = False) -> StoredResponse:
        found = await self.store.get(self._kind(_RESPONSE), id)
        if id not in found:
            raise NotStored(id, previous=previous)
        return RESPONSE_CODEC.read(found[id].data)

    async def _items(self, ids: Sequence[str]) -> dict[str, Json]:
        found = await self.store.get(self._kind(_ITEM), *ids)
        return {id: found[id].data for id in ids if id in found}
