"""Histories: tool messages put where they belong, behind the calls they answer and in the order of these."""

from collections import Counter
from collections.abc import Sequence

from callsmith.core.values import Message


def add_results(messages: Sequence[Message], *results: Message) -> tuple[Message, ...]:
    """The history with these tool messages at its end; one that answers what was answered already takes its place."""
    end = next((index for index in range(len(messages), 0, -1) if messages[index - 1].role != "tool"), 0)
    order = [call.id for call in messages[end - 1].calls] if end else []
    times, places = Counter(order), {id: place for place, id in reversed([*enumerate(order)])}  # of two with one id, the first
    answers = list(messages[end:])
    for result in results:
        same = [index for index, message in enumerate(answers) if message.call_id == result.call_id]
        if len(same) < max(1, times[result.call_id]):  # histories of others may have two calls with one id
            answers.append(result)
        else:
            answers[same[-1]] = result
    answers.sort(key=lambda message: places.get(message.call_id, len(order)))
    return (*messages[:end], *answers)


def join_messages(messages: Sequence[Message], added: Sequence[Message]) -> tuple[Message, ...]:
    """The history and what a run has added to it; results at the beginning of that answer calls at the end of the history."""
    results = next((index for index, message in enumerate(added) if message.role != "tool"), len(added))
    return (*add_results(messages, *added[:results]), *added[results:])
