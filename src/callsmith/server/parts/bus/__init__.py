"""The capability bus as a part of the server: its node, its tools, and the server's models on it."""
