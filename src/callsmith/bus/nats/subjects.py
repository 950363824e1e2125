"""The subjects of NATS that the bus uses, all of them under `callsmith.<community>.`, so that permissions can be given for them.

    offers                       what a node offers, from now on
    who                          asks all nodes, or the one that is named, to say what they offer
    beat.<node>                  every second, from every node
    call.rag.query.<offer>       calls, for one of the nodes that have exactly this offer (a queue group)
    node.<node>                  calls, for this node
    control.<node>               what callers send while their calls run at this node: acknowledgements, messages, cancellation
    reply.<connection>.<call>    answers, for the caller

`<node>` and `<offer>` are digests.
"""

import re
from functools import lru_cache
from hashlib import sha256

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
QUEUE = "callsmith"  # the queue group of those who share an offer


def digest(data: bytes) -> str:
    """What stands for longer data in a subject."""
    return sha256(data).hexdigest()[:32]


@lru_cache(maxsize=4096)
def node_digest(node: str) -> str:
    return digest(node.encode("utf-8", "surrogatepass"))


class Subjects:
    """The subjects of one community."""

    def __init__(self, community: str = "") -> None:
        token = community if _TOKEN.fullmatch(community) else digest(community.encode("utf-8", "surrogatepass"))
        self._prefix = f"callsmith.{token if community else '_'}"
        self.offers = f"{self._prefix}.offers"
        self.who = f"{self._prefix}.who"
        self.beats = f"{self._prefix}.beat.*"

    def beat(self, node: str) -> str:
        return f"{self._prefix}.beat.{node_digest(node)}"

    def call(self, name: str, offer: str) -> str:
        return f"{self._prefix}.call.{name}.{offer}"

    def node(self, node: str) -> str:
        return f"{self._prefix}.node.{node_digest(node)}"

    def control(self, node: str) -> str:
        return f"{self._prefix}.control.{node_digest(node)}"

    def replies(self, connection: str) -> str:
        return f"{self._prefix}.reply.{connection}."

    def is_reply(self, subject: str) -> bool:
        """Whether answers may be sent there; nobody can have us send anything elsewhere."""
        return subject.startswith(f"{self._prefix}.reply.")
