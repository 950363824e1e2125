"""`python -m benchmarks reader grammar --model smollm2-135m`; without names, all of them."""

import argparse
from importlib import import_module

NAMES = ("startup", "reader", "grammar", "gbnf", "constrained", "batching", "loop", "server", "soundness")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run: {', '.join(NAMES)}")
    parser.add_argument("--model", default="smollm2-135m", help="the weights for those that need some")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in NAMES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(NAMES)}")
    for name in given.names or NAMES:
        import_module(f"benchmarks.{name}").main(given.model)


if __name__ == "__main__":
    main()
