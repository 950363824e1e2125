"""An answer of very many calls: what is done for each of them grows with their number, and not with its square."""

import time

from callsmith.core.values import Call, Message, Result
from callsmith.runtime.conversation.journal import add_results
from callsmith.runtime.loop import list_unanswered


def seconds(number: int) -> float:
    """What it takes to answer the last of so many calls, at best."""
    calls = [Call("look", {}, f"c{place}") for place in range(number)]
    results = [Message.tool(Result(call.id, "look", "")) for call in calls]
    history, best = (Message.assistant(calls=calls), *results[:-1]), float("inf")
    for _ in range(5):
        began = time.perf_counter()
        assert list_unanswered(history) == (calls[-1],)
        assert list_unanswered(add_results(history, results[-1])) == ()
        best = min(best, time.perf_counter() - began)
    return best


def test_a_call_among_ten_times_as_many_costs_about_ten_times_as_much():
    assert seconds(4_000) < 40 * seconds(400)  # the square would be a hundred
