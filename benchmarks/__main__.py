"""`python -m benchmarks reader grammar --model smollm2-135m`; without names, all of them."""

import argparse
import subprocess
import sys
from importlib import import_module

from callsmith.models.weights.catalogue import default_model

NAMES = (
    "startup",
    "reader",
    "grammar",
    "gbnf",
    "constrained",
    "gpu",
    "batching",
    "loop",
    "server",
    "gateway",
    "relay",
    "bus",
    "soundness",
    "journeys",
    "plugins",
)
APART = ("torch_engine",)  # in an environment of its own, so only where it is named
LARGE = ("grammar", "constrained", "journeys")  # what is said of them is said of the default model; the others take a small one


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run: {', '.join(NAMES + APART)}")
    parser.add_argument("--model", help="the weights for those that need some")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in NAMES + APART]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(NAMES + APART)}")
    names = given.names or NAMES
    if len(names) == 1:
        model = given.model or (default_model() if names[0] in LARGE else "smollm2-135m")
        import_module(f"benchmarks.{names[0]}").main(model)
        return
    for name in names:  # each in a process of its own: what one has loaded is none of the others' business
        model = ["--model", given.model] if given.model else []
        subprocess.run([sys.executable, "-m", "benchmarks", name, *model], check=True)


if __name__ == "__main__":
    main()
