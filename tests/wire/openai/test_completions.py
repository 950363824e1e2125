"""Requests of the older API that continues a text."""

from typing import Any

import pytest

from callsmith.core.errors import UsageError
from callsmith.wire.openai.completions import DEFAULT_MAX_TOKENS, MAX_COMPLETIONS, read_request


def test_a_text_has_a_length_of_its_own_unless_one_is_asked_for() -> None:
    (default,) = read_request({"model": "m", "prompt": "Once"}).completions
    assert default.sampling.max_tokens == DEFAULT_MAX_TOKENS
    (completion,) = read_request({"model": "m", "prompt": "Once", "max_tokens": 3}).completions
    assert completion.sampling.max_tokens == 3


def test_each_of_several_prompts_is_continued_so_many_times() -> None:
    request = read_request({"model": "m", "prompt": ["Once", "Twice"], "n": 2, "echo": True, "stream": True})
    assert [completion.prompt for completion in request.completions] == ["Once", "Twice"]
    assert (request.model, request.n, request.echo, request.stream, request.include_usage) == ("m", 2, True, True, False)
    assert read_request({"prompt": "a", "stream_options": {"include_usage": True}}).include_usage


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": "a", "n": MAX_COMPLETIONS + 1}, "n"),
        ({"prompt": ["a"] * (MAX_COMPLETIONS + 1)}, "prompt"),
        ({"prompt": "a", "echo": True, "logprobs": 2}, "echo"),
    ],
)
def test_what_is_too_much_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_request(body)
    assert refused.value.field == field
    assert len(read_request({"prompt": ["a"] * MAX_COMPLETIONS}).completions) == MAX_COMPLETIONS
