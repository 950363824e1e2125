"""Who calls, and what they may: identities of nodes, capability tokens, and the check of every call that comes in."""
