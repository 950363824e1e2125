"""`POST /v1/responses/compact`: the model summarises a conversation, so that it can go on in a shorter context."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast
from uuid import uuid4

from callsmith.core.errors import ModelError
from callsmith.core.events import Stopped, Text
from callsmith.core.values import Json, Sampling, Usage
from callsmith.server.http.streams import collect_items
from callsmith.server.routes.responses.dialect import ResponsesDialect
from callsmith.server.tools.planner import ToolPlanner
from callsmith.wire.fields import Fields
from callsmith.wire.openai.items import COMPACTION, SUMMARISE, item_id, item_kind, stored_item, write_compaction
from callsmith.wire.openai.responses_events import write_usage

_MOST_TOKENS = 1024  # of a summary


async def compact(dialect: ResponsesDialect, body: Json) -> Json:
    """What the users of a conversation said, and a summary of all of it."""
    fields = Fields.of(body, "")
    name = fields.required_text("model")
    given = fields.get("input")
    own: list[Json] = (
        [{"role": "user", "content": given}] if isinstance(given, str) else [item.data for item in fields.objects("input")]
    )
    references = {key: fields.text(key) for key in ("previous_response_id", "instructions", "prompt_cache_key")}
    asking = {"model": name, "store": False, **references, "input": [*own, {"role": "user", "content": SUMMARISE}]}
    asked = await dialect.read(asking, dialect.stored())
    said = [*asked.before.earlier.values(), *own]
    if not said:
        raise fields.error("input", "there is nothing to compact: give items or a previous_response_id")
    request = replace(asked.request.request, sampling=Sampling(max_tokens=_MOST_TOKENS), thinking=False)
    service = dialect.service
    answers = service.answers.with_tools(ToolPlanner(service.settings))
    events = await collect_items(answers.answer(service.models.get(name), request))
    summary = "".join(event.text for event in events if isinstance(event, Text)).strip()
    if not summary:
        raise ModelError("the model wrote no summary")
    usage = next((event.usage for event in events if isinstance(event, Stopped)), Usage())
    key = uuid4().hex
    return {
        "id": f"resp_{key}",
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [*_user_messages(said, key), write_compaction(item_id(COMPACTION, key, "c"), summary)],
        "usage": write_usage(usage),
    }


def _user_messages(items: Sequence[Json], key: str) -> list[Json]:
    messages = [
        item for item in items if item_kind(Fields(cast("Mapping[str, Json]", item))) == "message" and item.get("role") == "user"
    ]
    return [stored_item(item, item_id("message", key, number)) for number, item in enumerate(messages)]
