"""Where a request comes from, and who may reuse what is cached of its prompt."""

from dataclasses import dataclass, field
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request comes from; it changes nothing in the answer.

    `session` names the conversation, so that its KV cache can be reused. What is cached of a prompt is reused for prompts of the
    same `cache_salt` only. `affinity` is the client's own name of the conversation where servers are chosen by it
    (`engines/upstream/replicas.py`). An engine that is busy shares itself out among the `caller`s.
    """

    session: str = ""
    cache_salt: str = ""
    affinity: str = ""
    caller: str = field(default="", compare=False)


NOWHERE = Origin()


def cache_salt(caller: str, salt: str = "") -> str:
    """The salt of a caller's prompts, and of those among them that have been given the same one; empty where neither is named.

    What is cached of a prompt is reused for prompts with the same salt only.
    """
    return sha256(f"{len(caller)}:{caller}{salt}".encode("utf-8", "replace")).hexdigest()[:32] if caller or salt else ""
