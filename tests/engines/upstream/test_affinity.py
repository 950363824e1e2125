"""The id of a conversation: the same for each of its requests, and another for every key."""

from dataclasses import replace

from callsmith.core.capability.origin import Origin
from callsmith.core.values import Completion, Message, Request, Tool
from callsmith.engines.upstream.replicas import affinity_id

FIRST = Request((Message.system("Be brief."), Message.user("hi")), (Tool("add"),))


def later(request: Request) -> Request:
    return replace(request, messages=(*request.messages, Message.assistant("hello"), Message.user("and now?")))


def test_a_conversation_without_a_name_is_known_by_how_it_begins() -> None:
    assert affinity_id(later(FIRST)) == affinity_id(FIRST)
    others = [
        replace(FIRST, messages=(Message.system("Be long."), Message.user("hi"))),
        replace(FIRST, messages=(Message.system("Be brief."), Message.user("ho"))),
        replace(FIRST, tools=(Tool("subtract"),)),
        replace(FIRST, tools=(Tool("add"), Tool("subtract"))),
    ]
    assert len({affinity_id(item) for item in (FIRST, *others)}) == 5


def test_the_client_s_name_for_it_counts_before_anything_else() -> None:
    requests = (FIRST, later(FIRST), replace(FIRST, tools=(), origin=Origin("other")))
    named = [replace(request, origin=replace(request.origin, affinity="s")) for request in requests]
    assert len({affinity_id(item) for item in named}) == 1
    assert affinity_id(replace(FIRST, origin=Origin(session="s"))) == affinity_id(named[0]) != affinity_id(FIRST)


def test_callers_with_different_keys_never_share_one() -> None:
    def id_of(affinity: str, caller: str) -> str:
        return affinity_id(replace(FIRST, origin=Origin(affinity=affinity, caller=caller)))

    for affinity in ("", "s"):
        assert id_of(affinity, "alice") != id_of(affinity, "bob")
        assert id_of(affinity, "@10.0.0.1") == id_of(affinity, "@10.0.0.2")
    assert id_of("b", "a") != id_of("ab", "")


def test_it_can_be_sent_in_a_header_whatever_the_conversation_is_called() -> None:
    id = affinity_id(replace(FIRST, origin=Origin(affinity="ü\r\nx-evil: 1\ud800")))
    assert len(id) == 32
    assert int(id, 16)


def test_a_text_is_known_by_its_beginning() -> None:
    begun = "Once upon a time " * 100
    assert affinity_id(Completion(begun)) == affinity_id(Completion(begun + "there was"))
    assert affinity_id(Completion(begun)) != affinity_id(Completion("Never " + begun))
    assert affinity_id(Completion((1, 2, 3))) != affinity_id(Completion((1, 2, 4)))
