"""How much the tests try, by `CALLSMITH_TESTS`: little by default, more when `thorough` (.ci/run), most when `exhaustive`."""

import os

PROFILE = os.environ.get("CALLSMITH_TESTS", "default")
PROFILES = {"default": 30, "thorough": 100, "exhaustive": 1000}  # examples of a hypothesis test that does not say its own number


def tries(default: int, thorough: int, exhaustive: int | None = None) -> int:
    """How many cases to try in this run. Tests that ask are marked `generated`: `make test-thorough` runs them again."""
    return {"default": default, "thorough": thorough, "exhaustive": exhaustive or thorough}[PROFILE]
