"""Finding the special tokens of a server's model, where the server does not list them: its tokenizer is asked.

Every token is turned to text; what looks like a special token (`<|im_end|>`, `[INST]`, `<tool_call>`) is tokenized again inside
the same brackets. An ordinary token is then spelled otherwise, a special one is found wherever it stands.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

_SEPARATOR: Final = "\ufdd1\ufdd2"  # noncharacters, which no token has
_LOOK: Final = re.compile(r"[<\[\]{|]\S*\w\S*[>\[\]}|]")
_LONGEST: Final = 128  # characters of a special token
_STEP: Final = 40_000  # tokens that are asked for at once
_MOST: Final = 1_000_000  # tokens of a vocabulary

Tokenize = Callable[[Sequence[str]], Awaitable[list[list[int]]]]
Detokenize = Callable[[list[int]], Awaitable[str]]


async def find_specials(tokenize: Tokenize, detokenize: Detokenize, size: int | None, known: Iterable[str]) -> dict[str, int]:
    """The texts of special tokens and their ids. `size` is the number of all tokens, if the server says it."""
    (separator,) = await tokenize([_SEPARATOR])
    found: dict[str, int] = {}
    for start in range(0, size or _MOST, _STEP):
        ids = range(start, min(start + _STEP, size or _MOST))
        text = await detokenize([one for token in ids for one in (token, *separator)])
        texts = text.split(_SEPARATOR)[: len(ids)]
        if size is None and not any(texts):
            break  # behind the last token
        # Without its spaces: some tokenizers put one before whatever begins a text.
        found |= {said.strip(): token for token, said in zip(ids, texts, strict=False) if is_like_special(said.strip())}
    return await confirm_specials(tokenize, found) | await _single_tokens(tokenize, known)


async def confirm_specials(tokenize: Tokenize, found: Mapping[str, int]) -> dict[str, int]:
    """Those of the tokens that are found wherever their text stands."""
    if not found:
        return {}
    (tokens,) = await tokenize([_SEPARATOR.join(f"{text[0]}{text}{text[-1]}" for text in found)])
    return {text: token for text, token in found.items() if token in set(tokens)}


async def _single_tokens(tokenize: Tokenize, texts: Iterable[str]) -> dict[str, int]:
    wanted = [text for text in dict.fromkeys(texts) if text]
    return {text: ids[0] for text, ids in zip(wanted, await tokenize(wanted), strict=True) if len(ids) == 1}


def is_like_special(text: str) -> bool:
    """Whether a text looks like that of a special token. An added token that is a word or white space does not."""
    return 3 <= len(text) <= _LONGEST and _LOOK.fullmatch(text) is not None
