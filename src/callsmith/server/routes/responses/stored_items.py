"""Items in the store: each is a document of its own, which responses and conversations refer to by its id."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from callsmith.core.values import Json
from callsmith.server.store import Document, Store, caller_kind
from callsmith.wire.fields import Fields
from callsmith.wire.openai.items import item_id, item_kind, stored_item

RESPONSE, _ITEM = "response", "response_item"


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


def given_items(key: str, given: Sequence[Mapping[str, Json]]) -> dict[str, Json | None]:
    """The items of a request as they are stored, by their ids; None for those that are there already."""
    items: dict[str, Json | None] = {}
    for number, item in enumerate(given):
        kind = item_kind(Fields(item))
        if kind == "item_reference":
            items[item["id"]] = None
        else:
            # An id of our own: the client's might be that of another item. But an approval is answered by the id it has.
            id = item["id"] if kind == "mcp_approval_request" else item_id(kind, key, f"i{number}")
            items[id] = stored_item(item, id)
    return items
