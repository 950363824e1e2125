"""Responses in the store: what a conversation on the server is made of.

Items are documents of their own, for a later request may refer to any of them. A response knows, by id, the items that came
before it, those of its request, and its own. Whoever asks sees only what is theirs.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from callsmith.core.errors import UsageError
from callsmith.core.serialize import DocumentCodec
from callsmith.core.values import Json
from callsmith.server.routes.responses.stored_conversations import StoredConversations
from callsmith.server.routes.responses.stored_items import RESPONSE, StoredItems, given_items
from callsmith.server.store import Document, Stale, Store
from callsmith.wire.openai.common import NotStored
from callsmith.wire.openai.responses import StoredReferences
from callsmith.wire.openai.responses_events import OPEN_STATUSES

_ADDED = frozenset({"completed", "incomplete", "cancelled"})  # the statuses with which a response is added to its conversation


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
            previous = await self._stored(needs.previous, previous=True)
            if previous.response["status"] in OPEN_STATUSES:
                raise UsageError("previous_response_id: this response is not complete", field="previous_response_id")
            ids = [*previous.earlier, *previous.input, *previous.output]
            earlier = await self.items.get(ids)
            if len(earlier) < len(set(ids)):  # a response it builds on was deleted
                raise NotStored(needs.previous, previous=True)
            conversation = previous.conversation
        return EarlierItems(earlier, known, conversation)

    async def keep(
        self, response: Mapping[str, Json], before: EarlierItems, given: Sequence[Mapping[str, Json]], *, store: bool = True
    ) -> None:
        """Store a response that has ended, with the items of its request; with its connection only, unless `store`."""
        brought, output = given_items(response["id"].removeprefix("resp_"), given), _output_items(response)
        conversation = before.conversation or response["id"]
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
            given = {id: before.known.get(id) if item is None else item for id, item in brought.items()}
            earlier = {**before.earlier, **given, **_output_items(response)}
            self.recent.add(response["id"], EarlierItems(earlier, {}, before.conversation, is_stored=False))

    async def response(self, id: str) -> dict[str, Json]:
        """The response as it was answered."""
        stored = await self._stored(id)
        items = await self.items.get(stored.output)
        return {**stored.response, "output": list(items.values())}

    async def input_items(self, id: str) -> list[Json]:
        """All that the model was given, with the conversation before it."""
        stored = await self._stored(id)
        return list((await self.items.get([*stored.earlier, *stored.input])).values())

    async def forget(self, id: str) -> list[str]:
        """Delete a response, what was asked and what was answered. What referred to it or went on from it loses that.

        The ids of what was answered come back.
        """
        stored = await self._stored(id)
        key = id.removeprefix("resp_")
        own = [*(item for item in stored.input if f"_{key}_" in item), *stored.output]
        await self.items.delete(own)
        await self.store.delete(self.items.kind(RESPONSE), id)
        return list(stored.output)

    async def fail(self, id: str, why: str) -> None:
        """Enter that a response that is not complete has failed, unless it is written meanwhile."""
        (document,) = (await self.store.get(self.items.kind(RESPONSE), id)).values()
        stored = RESPONSE_CODEC.read(document.data)
        if stored.response["status"] in OPEN_STATUSES:
            failed = {**stored.response, "status": "failed", "error": {"code": "server_error", "message": why}}
            with suppress(Stale):
                await self.store.put(replace(document, data=RESPONSE_CODEC.write(replace(stored, response=failed))))

    async def _stored(self, id: str, *, previous: bool = False) -> StoredResponse:
        documents = await self.store.get(self.items.kind(RESPONSE), id)
        if id not in documents:
            raise NotStored(id, previous=previous)
        return RESPONSE_CODEC.read(documents[id].data)


def _output_items(response: Mapping[str, Json]) -> dict[str, Json]:
    return {item["id"]: item for item in response["output"]}
