"""A soak: clients and a page for an hour, while MCP servers, upstreams, stores and the servers themselves are hit.

    python -m tests.attack.soak [SECONDS]        # or: make soak SECONDS=3600

Two servers, one with a SQLite file and one with PostgreSQL, answer eight clients and a person at the page, in Chromium, over
the four APIs. What is not installed is left out, and that is said. The model says what it is told to, so that a lost, mixed up or
half answer is noticed, and so is a call that ran twice, never, or against a person's word. Figures are printed at the end; the
exit status is 1 if anything of that has happened.
"""
