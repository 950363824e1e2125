"""`callsmith check` against a server that is right, and with faults planted."""
