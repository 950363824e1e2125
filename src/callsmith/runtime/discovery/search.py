"""Search for tools: BM25 over the words of their names, descriptions and parameters.

>>> [tool.name for tool in search("mail somebody", [Tool("send_email", "Sends mails."), Tool("add", "Adds numbers.")])]
['send_email']
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from math import log
from typing import Any, cast

from callsmith.core.values import Tool

MOST = 5  # tools that one search returns
_LONGEST = 600  # characters of a name or a description that count: clients bring tools, too, and of any size
_MOST_PARAMETERS = 64  # of a tool that count
_MOST_TERMS = 16  # of a query
_MOST_COMPARED = 5000  # words among which similar ones are looked for, which takes long
_MIN_SHARE = 0.3  # of the best score, which a tool must reach to be listed
_SATURATION, _LENGTH = 1.2, 0.5  # BM25's k1 and b; descriptions are short, so length counts for little
_NAME, _DESCRIPTION, _PARAMETER, _DETAIL = 3.0, 1.0, 1.0, 0.5  # what a word weighs, by where it stands

# Acronyms, words of camelCase and snake_case, numbers; signs of scripts that have no spaces, one by one.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z\u3040-\u30ff\u3400-\u9fff]+|\d+")
_STOP_WORDS = """a about an and any are as at be by can do does for from has have how i if in into is it its me my need of on
or please that the their them then there this to tool tools use using want what when where which with you your"""
_COMMON = frozenset(_STOP_WORDS.split())


def search(query: str, tools: Sequence[Tool], most: int = MOST) -> list[Tool]:
    """The tools that match the query best, the best first; only tools that have a word of it."""
    if not tools:
        return []
    documents = [_weights(tool) for tool in tools]
    spread = Counter(word for document in documents for word in document)
    mean = sum(sum(document.values()) for document in documents) / len(documents) or 1.0
    terms = islice(dict.fromkeys(words(query[:_LONGEST])), _MOST_TERMS)
    wanted = {word: share for term in terms for word, share in _known(term, spread).items()}
    scored: list[tuple[float, int]] = []
    for place, document in enumerate(documents):
        damp = _SATURATION * (1 - _LENGTH + _LENGTH * sum(document.values()) / mean)
        score = sum(
            share * log(1 + (len(tools) - spread[word] + 0.5) / (spread[word] + 0.5)) * (1 + _SATURATION) * times / (times + damp)
            for word, share in wanted.items()
            if (times := document[word])
        )
        if score > 0:
            scored.append((-score, place))
    scored.sort()
    return [tools[place] for score, place in scored[:most] if score <= scored[0][0] * _MIN_SHARE]


@lru_cache(4096)  # a search reads the same texts as the one before
def words(text: str) -> tuple[str, ...]:
    """The words of a text, stemmed and without stop words.

    >>> words("createdIssues in_my HTTPServer")
    ('creat', 'issu', 'http', 'serv')
    """
    return tuple(_stem(word) for match in _WORD.findall(text) if (word := match.lower()) not in _COMMON)


def _stem(word: str) -> str:
    """A rough stem of an English word: the same for its forms, and not necessarily a word itself."""
    word = re.sub(r"(?<=..)(ies|ications?)$", "y", word)
    for ending in ("ions", "ion", "ings", "ing", "ers", "er", "ors", "or", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word.removesuffix(ending)
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


def _known(term: str, spread: Mapping[str, int]) -> dict[str, float]:
    """The words of the tools that match a term: the term itself, else longer and similar ones, which count half."""
    if term in spread:
        return {term: 1.0}
    longer = [word for word in spread if (term in word if len(term) > 3 else len(term) > 2 and word.startswith(term))]
    return dict.fromkeys(longer or get_close_matches(term, islice(spread, _MOST_COMPARED), 2, 0.8), 0.5)


def _weights(tool: Tool) -> Counter[str]:
    """The weight of each word of a tool."""
    weights: Counter[str] = Counter()
    for weight, text in ((_NAME, tool.name), (_DESCRIPTION, tool.description), *_parameters(tool.parameters)):
        for word in words(text[:_LONGEST]):
            weights[word] += weight  # pyright: ignore[reportArgumentType]  (a Counter counts in any numbers)
    return weights


def _parameters(schema: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    properties: Any = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    for name, value in islice(cast("Mapping[str, Any]", properties).items(), _MOST_PARAMETERS):
        yield _PARAMETER, str(name)
        detail: Any = cast("Mapping[str, Any]", value).get("description") if isinstance(value, Mapping) else None
        if isinstance(detail, str):
            yield _DETAIL, detail
