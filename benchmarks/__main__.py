"""`python -m benchmarks reader grammar --model smollm2-135m`; without names, all of them. Some, and `plot`, go by name only."""

import argparse
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from benchmarks import measure
from callsmith.models.weights.catalogue import catalogue, default_model
from callsmith.models.weights.fetch import fetch

NAMES = (
    "startup",
    "reader",
    "grammar",
    "gbnf",
    "soundness",
    "schemas",
    "constrained",
    "gpu",
    "alone",
    "prefix",
    "batching",
    "loop",
    "server",
    "gateway",
    "relay",
    "bus",
    "memory",
    "budgets",
    "deciding",
    "plugins",
)
# Only where they are named: two need a GPU or an environment of their own, one judges, three ask a model for its calls, which
# takes long on a processor, and one wants a collection of schemas: all others together take half an hour.
APART = ("torch_engine", "lookup", "guard", "small_guards", "journeys", "conversations", "maskbench")
# What is said of these is said of the default model; the others take a small one.
LARGE = ("grammar", "constrained", "journeys", "conversations", "deciding", "small_guards")
# These open a model by its name, which takes weights that are there.
OPENING = ("batching", "journeys", "conversations", "deciding", "small_guards", "guard")
INTERPRETERS = {"loop": ".venv-clients", "plugins": ".venv-vllm"}  # where the rivals are, if they are anywhere


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run: {', '.join(NAMES + APART)}; or plot")
    parser.add_argument("--model", help="the weights for those that need some")
    corpus = parser.add_argument_group("maskbench")
    corpus.add_argument("--corpus", help="the file of its schemas")
    corpus.add_argument("--sample", type=int, help="how many of them; all by default")
    corpus.add_argument("--engines", help="which of its engines, with commas between them")
    parser.add_argument("--record", action="store_true", help=f"add what was measured to {measure.HISTORY.name}, and draw it")
    arguments = parser.parse_args()
    if arguments.names == ["plot"]:
        measure.plot()
        return
    unknown = [name for name in arguments.names if name not in NAMES + APART]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(NAMES + APART)}")
    if len(arguments.names) == 1 and not arguments.record:
        name = arguments.names[0]
        model = arguments.model or (default_model() if name in LARGE else "smollm2-135m")
        if name in OPENING and model in catalogue():
            fetch(model)
        given = {key: vars(arguments)[key] for key in ("corpus", "sample", "engines") if vars(arguments)[key] is not None}
        import_module(f"benchmarks.{name}").main(model, **given)
        measure.told(name)
        return
    failed = run(arguments.names or NAMES, arguments.model, arguments.record)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def run(names: "tuple[str, ...] | list[str]", model: str | None, is_recorded: bool) -> list[str]:
    """Each in a process of its own: what one has loaded is none of the others' business. Those that failed are told."""
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        passed_on = Path(folder, "measurements.jsonl")
        passed_on.touch()
        for name in names:
            apart = Path(__file__).parents[1] / INTERPRETERS.get(name, "") / "bin" / "python"
            python = str(apart) if name in INTERPRETERS and apart.exists() else sys.executable
            command = [python, "-m", "benchmarks", name, *(["--model", model] if model else [])]
            if subprocess.run(command, env={**os.environ, measure.PASSED_ON: str(passed_on)}).returncode:
                failed.append(name)
        if is_recorded:
            measure.record(passed_on)
    return failed


if __name__ == "__main__":
    main()
