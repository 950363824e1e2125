"""Who may reuse what is cached of whose prompts."""

from hashlib import sha256


def cache_salt(caller: str, salt: str = "") -> str:
    """The salt of a caller's prompts, and of those among them that have been given the same one; empty where neither is named.

    What is cached of a prompt is reused for prompts with the same salt only.
    """
    return sha256(f"{len(caller)}:{caller}{salt}".encode("utf-8", "replace")).hexdigest()[:32] if caller or salt else ""
