"""Authorities that are passed on: they can only become narrower."""

from itertools import product

import pytest

from callsmith.core.capability.authority import Authority, is_trusted

NAMES = ("rag.query", "rag.list", "llm.chat", "experimental.a", "ragx.query")
PATTERNS = [
    ("*",),
    (),
    ("rag.*",),
    ("rag.query",),
    ("rag.*", "llm.chat"),
    ("?ag.*",),
    ("[!r]*",),
    ("*.query",),
    ("rag.query", "llm.*"),
]


@pytest.mark.parametrize(("one", "other"), list(product(PATTERNS, PATTERNS)))
def test_what_may_be_called_by_both_may_be_called_by_either(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    both = Authority(capabilities=one).narrow("self", other)
    for name in NAMES:
        allowed = Authority(capabilities=one).may_call(name) and Authority(capabilities=other).may_call(name)
        assert allowed or not both.may_call(name), name
        if one == other or "*" in one or "*" in other or (name in one and name in other):
            assert both.may_call(name) == allowed, name


@pytest.mark.parametrize(("one", "other"), list(product(("unknown", "member", "trusted", "anchor", "self"), repeat=2)))
def test_trust_is_that_of_the_lesser(one, other) -> None:
    trust = Authority(trust=one).narrow(other, ("*",)).trust
    assert trust in (one, other) and is_trusted(one, trust) and is_trusted(other, trust)
