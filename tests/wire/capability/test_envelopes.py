"""`decode_envelope` reads what `read_envelope` reads, and leaves it everything else."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callsmith.wire.capability.envelopes import Envelope, decode_envelope, read_envelope, write_envelope
from callsmith.wire.capability.errors import BusError

PLAIN = {"capability": "rag.query", "version": "1.0", "body": {"params": {}, "input": {"query": "hall"}}}
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 200),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.sampled_from(["member", "self", "2.1", ">=1.0", "\x00", "é" * 129, "\u202e", [], {}, ["a"], [1], ["a"] * 300, 1e309]),
)
KEYS = [*write_envelope(Envelope("a.b", (1, 0))), "request_id", "from", "to", "community", "timestamp", "session_id", "seconds"]
KEYS += ["stream", "token", "subject", "via", "trace_id", "depth", "trust", "capabilities", "something_else"]


@given(st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=5))
@example({"seconds": 0, "timestamp": 7, "depth": 3, "via": ["a", "b"], "trust": "member", "capabilities": []})
def test_what_is_read_quickly_is_what_is_read_thoroughly(fields: dict[str, Any]) -> None:
    data = json.dumps({**PLAIN, **fields}).encode()
    try:
        quickly = decode_envelope(data)
    except BusError as error:
        with pytest.raises(BusError, match="is no"):
            read_envelope(json.loads(data))
        assert error.code == "bad_request"
        return
    if quickly is not None:
        assert quickly == read_envelope(json.loads(data))


@pytest.mark.parametrize(
    "envelope", [Envelope("rag.query", (1, 2)), Envelope("a.b", (1, 0), {"input": {}}, "r1", "n1", "n2", "c")]
)
def test_what_is_written_is_read_quickly(envelope: Envelope) -> None:
    assert decode_envelope(json.dumps(write_envelope(envelope)).encode()) == envelope


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"capability": "a.b"}', b"\xff", b"[" * 100_000])
def test_what_is_none_is_left_to_who_can_say_why(data: bytes) -> None:
    assert decode_envelope(data) is None
