"""Responses in the store: what a conversation on the server is made of.

Items are documents of their own, for a later request may refer to any of them. A response knows, by id, the items that came
before it, those of its request, and its own. Whoever asks sees only what is theirs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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

    `conversation` is the id of the response it began with. `is_stored`: the items so far are in the store.
    """

    earlier: Mapping[str, Json] = field(default_factory=dict[str, Json])
    known: Mapping[str, Json] = field(default_factory=dict[str, Json])
    conversation: str = ""
    is_stored: bool = True


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


RESPONSE_CODEC = DocumentCodec(StoredResponse, upgrades={0: lambda old: {**old, "version": 1}})


@dataclass(frozen=True, slots=True)
class StoredResponses:
    """The responses of one caller in a store; `recent` are those that only a connection of theirs knows."""

    store: Store
    subject: str = ""
    recent: RecentResponses | None = None

    async def before(self, needs: StoredReferences) -> EarlierItems:
        """What is needed to read a request."""
        known = await self._items(needs.items)
        if self.recent:
            known = {**self.recent.items(needs.items), **known}
            if recent := self.recent.before(needs.previous):
                return replace(recent, known=known)
        earlier: Mapping[str, Json] = {}
        conversation = ""
        if needs.previous:
            previous = await self._stored(needs.previous, previous=True)
            ids = [*previous.earlier, *previous.input, *previous.output]
            earlier = await self._items(ids)
            if len(earlier) < len(set(ids)):  # a response it stands on was deleted
                raise NotStored(needs.previous, previous=True)
            conversation = previous.conversation
        return EarlierItems(earlier, known, conversation)

    def keep_recent(self, response: Mapping[str, Json], before: EarlierItems, given: Sequence[Mapping[str, Json]]) -> None:
        """Let the connection know a response that is not to be stored."""
        if self.recent and response["status"] != "failed":
            brought = {id: before.known.get(id) if item is None else item for id, item in _given_items(response, given).items()}
            earlier = {**before.earlier, **brought, **_made_items(response)}
            self.recent.add(response["id"], EarlierItems(earlier, {}, before.conversation or response["id"], is_stored=False))

    async def keep(self, response: Mapping[str, Json], before: EarlierItems, given: Sequence[Mapping[str, Json]]) -> None:
        """Store a response that has ended, with the items of its request."""
        brought, made = _given_items(response, given), _made_items(response)
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


def _given_items(response: Mapping[str, Json], given: Sequence[Mapping[str, Json]]) -> dict[str, Json | None]:
    """The items of a request as they are stored, by their ids; None for those that are there already."""
    key = response["id"].removeprefix("resp_")
    found: dict[str, Json | None] = {}
    for number, item in enumerate(given):
        kind = item_kind(Fields(item))
        if kind == "item_reference":
            found[item["id"]] = None
        else:
            # An id of our own: the client's might be that of another item. But an approval is answered by the id it has.
            id = item["id"] if kind == "mcp_approval_request" else item_id(kind, key, f"i{number}")
            found[id] = stored_item(item, id)
    return found


def _made_items(response: Mapping[str, Json]) -> dict[str, Json]:
    return {item["id"]: item for item in response["output"]}
