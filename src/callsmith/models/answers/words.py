"""Answers in words: what only looks like a call is taken back, and what is missing for a call is asked for."""

import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Final

from callsmith.core.closing import closing
from callsmith.core.events import ModelEvent, Report, Started, Stopped, Text
from callsmith.core.values import Choice, Request

INVENTED: Final = "invented_call"
_BEGINNING: Final = re.compile(r"\s*+(?:```\w*+\s*+|<\w++>\s*+)?+\[?\s*+\{\s*+\"(?:name|function|tool|tool_name)\"\s*:")
_MAY_BEGIN: Final = re.compile(r"\s*+(?:`{1,3}\w*+\s*+|<\w*+>?\s*+)?+\[?\s*+(?:\{\s*+(?:\"[a-z_]{0,9}\"?\s*+)?+)?+")
MISSING: Final = (
    "(Something that is needed for this was not said. Ask the user for it in one short question, and do not say that it is done.)"
)


async def take_back_invented_calls(
    events: AsyncGenerator[ModelEvent, None], again: Callable[[], AsyncGenerator[ModelEvent, None]]
) -> AsyncGenerator[ModelEvent, None]:
    """The answer; if it begins like a call, which nobody would make, it is taken back, and that of `again` comes instead."""
    withheld: list[Text] = []
    is_free = False
    async with closing(events):
        async for event in events:
            if is_free or not isinstance(event, Text | Stopped):
                yield event
                continue
            if isinstance(event, Text):
                withheld.append(event)
            text = "".join([text_event.text for text_event in withheld])
            if _BEGINNING.match(text):
                break
            if isinstance(event, Stopped) or not _MAY_BEGIN.fullmatch(text):
                is_free = True
                for text_event in withheld:
                    yield text_event
                if isinstance(event, Stopped):
                    yield event
        else:
            return
    async with closing(again()) as second:
        async for event in second:
            if isinstance(event, Stopped):
                yield replace(event, report=event.report + Report(taken_back=(INVENTED,)))
            elif not isinstance(event, Started):
                yield event


def ask_for_words(request: Request, *, asks_for_missing: bool) -> Request:
    """The request, to be answered in words; by a question for what is missing, where something is."""
    *before, last = request.messages
    if asks_for_missing:
        last = replace(last, content=f"{last.content}\n\n{MISSING}")
    return replace(request, messages=(*before, last), choice=Choice("none"))
