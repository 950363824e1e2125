"""Calls as headers and as envelopes; what a caller sends while its call is answered."""

import json
from typing import Any

import pytest

from callsmith.wire.capability.envelopes import Envelope, signed_bytes
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.requests import Ack, Cancel, End, HandlerReply, read_call, read_message, write_call

BODY = {"params": {"corpus": "village"}, "input": {"query": "hall"}}
HEADERS = {
    "X-HearthNet-Capability": "rag.query",
    "X-HearthNet-Capability-Version": "1.0",
    "X-HearthNet-Request-Id": "01J",
    "X-HearthNet-From": "ed25519:abc",
    "X-HearthNet-Community": "village",
    "X-HearthNet-Timestamp": "1790000000.5",
}
ENVELOPE: Any = {
    "capability": "rag.query",
    "version": "1.0",
    "request_id": "01J",
    "from": "ed25519:abc",
    "community": "village",
    "timestamp": 1790000000.5,
    "body": BODY,
}


def test_a_call_by_headers_is_the_one_by_envelope_and_so_is_what_is_signed() -> None:
    by_headers = read_call([*HEADERS.items(), ("x-hearthnet-signature", "s"), ("x-hearthnet-token", "t")], BODY)
    by_envelope = read_call([("x-hearthnet-token", "t")], {"envelope": ENVELOPE, "signature": "s"})
    assert by_headers == by_envelope
    assert by_headers.signed == signed_bytes(ENVELOPE)
    assert (by_headers.signature, by_headers.envelope.token) == ("s", "t")


def test_what_is_written_is_read_back() -> None:
    envelope = Envelope(
        "rag.query", (1, 2), BODY, "r", "ed25519:a", session_id="s", seconds=2.5, stream=True, trace_id="t", depth=3
    )
    read = read_call([], json.loads(json.dumps(write_call(envelope, "sig"))))
    assert (read.envelope, read.signature, read.stream) == (envelope, "sig", True)


def test_headers_may_repeat_what_the_envelope_says_and_no_more() -> None:
    assert read_call(HEADERS.items(), {"envelope": ENVELOPE}).envelope.capability == "rag.query"
    for name in HEADERS:
        with pytest.raises(BusError):
            read_call([*{**HEADERS, name: "1"}.items()], {"envelope": ENVELOPE})
    without = {name: value for name, value in ENVELOPE.items() if name != "from"}
    with pytest.raises(BusError):  # a signature would not be for it
        read_call(HEADERS.items(), {"envelope": without})
    with pytest.raises(BusError):
        read_call([("x-hearthnet-token", "other")], {"envelope": {**ENVELOPE, "token": "t"}})
    with pytest.raises(BusError):
        read_call([("x-hearthnet-signature", "other")], {"envelope": ENVELOPE, "signature": "s"})


@pytest.mark.parametrize("name", [*HEADERS, "X-HearthNet-Token", "X-HearthNet-Signature"])
def test_a_header_that_was_sent_twice_is_refused(name: str) -> None:
    with pytest.raises(BusError) as failed:
        read_call([*HEADERS.items(), (name, "1"), (name.upper(), "1")], BODY)
    assert failed.value.code == "bad_request"


@pytest.mark.parametrize("id", ["a b", "a\nb", "ü", "a" * 129, "\u202e", "{}", "a/b"])
def test_an_id_that_could_not_come_back_in_a_header_is_refused(id: str) -> None:
    with pytest.raises(BusError):
        read_call([], {"envelope": {**ENVELOPE, "request_id": id}})


def test_what_a_caller_sends_is_read() -> None:
    result: Any = {"type": "tool_result", "tool_call_id": "tc_1", "body": {"a": 1}}
    assert read_message({"type": "ack", "upto": 8}) == Ack(8)
    assert read_message(result) == HandlerReply(result)
    assert read_message({**result, "body": ["any", "JSON"]}) == HandlerReply({**result, "body": ["any", "JSON"]})
    decided: Any = {"type": "confirmation", "tool_call_id": "tc_1", "decision": "approve"}
    assert read_message(decided) == HandlerReply(decided)
    assert read_message({"type": "end"}) == End()
    assert read_message({"type": "cancel"}) == Cancel()
