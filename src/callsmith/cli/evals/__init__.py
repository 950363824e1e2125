"""Commands that prove something: `check`."""
