"""What is shown while cases are asked."""

from callsmith.cli.evals.progress import EvalProgress


def test_nothing_is_said_of_the_time_that_is_left_before_anything_is_known() -> None:
    progress = EvalProgress(["m"], 4)
    assert "left" not in progress.line()
    progress._done["m"] += 1
    assert progress.line().startswith("1/4, ") and "min left" in progress.line()
    progress._done["m"] += 3
    assert "left" not in progress.line()
