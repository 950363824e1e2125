"""Descriptors as JSON, both ways."""

import json
from typing import Any

import pytest

from callsmith.bus.descriptor import Descriptor, read_descriptor, write_descriptor
from callsmith.wire.capability.errors import BusError

FULL = Descriptor(
    "rag.query",
    (1, 2),
    {"type": "object"},
    {"type": "object"},
    {"type": "object"},
    "Searches a corpus.",
    "beta",
    {"corpus": ["village"]},
    3,
    "trusted",
    5.5,
    True,
    True,
)


@pytest.mark.parametrize("descriptor", [FULL, Descriptor("experimental.echo")])
def test_what_is_written_is_read_back(descriptor: Descriptor) -> None:
    parsed = json.loads(json.dumps(write_descriptor(descriptor)))
    assert read_descriptor(parsed) == descriptor
    assert read_descriptor({**parsed, "something": "new"}) == descriptor


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {"name": "rag.query"},
        {"name": "RAG", "version": "1.0"},
        {"name": "rag.query", "version": 1},
        {"name": "rag.query", "version": "1.0", "max_concurrent": "many"},
        {"name": "rag.query", "version": "1.0", "trust_required": "anybody"},
        {"name": "rag.query", "version": "1.0", "request_schema": {"type": 5}},
        {"name": "rag.query", "version": "1.0", "timeout_seconds": True},
        {"name": "rag.query", "version": "1.0", "params": []},
    ],
)
def test_what_is_no_descriptor_is_refused(wrong: Any) -> None:
    with pytest.raises(BusError):
        read_descriptor(wrong)
